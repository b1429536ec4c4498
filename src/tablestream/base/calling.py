"""The line of user code that made a call, for errors and warnings."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from types import FrameType

_PACKAGE = __name__.split(".")[0]


def user_line() -> str:
    """Return ``file:line`` of the innermost frame outside this package; empty if there is none."""
    frame, _ = _user_frame()
    return "" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def warn(message: str) -> None:
    """Warn at the user's line."""
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
