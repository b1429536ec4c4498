"""The line of user code that made a call, for errors and warnings."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType

_PACKAGE = __name__.split(".")[0]
_written: ContextVar[str] = ContextVar("written", default="")


@contextmanager
def written_at(line: str) -> Iterator[None]:
    """Say for a while that what is built was written on a line, ``file:line``, of a file that is not Python."""
    token = _written.set(line)
    try:
        yield
    finally:
        _written.reset(token)


def user_line() -> str:
    """Return ``file:line`` of the innermost frame outside this package; empty if there is none."""
    if _written.get():
        return _written.get()
    frame, _ = _user_frame()
    return "" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def warn(message: str) -> None:
    """Warn at the user's line."""
    if _written.get():
        file, _, line = _written.get().rpartition(":")
        warnings.warn_explicit(message, UserWarning, file, int(line))
        return
    _, depth = _user_frame()
    warnings.warn(message, stacklevel=depth)


def _user_frame() -> tuple[FrameType | None, int]:
    """The innermost frame outside this package, and its distance from the caller, which counts 1.

    It goes by the module and not by the file: a method that `dataclasses` generated has no file.
    """
    frame, depth = inspect.currentframe(), -1
    while frame is not None and str(frame.f_globals.get("__name__")).split(".")[0] == _PACKAGE:
        frame, depth = frame.f_back, depth + 1
    return frame, depth + 1
