"""The line of the user's code that a call came from: errors name it."""

from __future__ import annotations

import inspect
from pathlib import Path

_PACKAGE = str(Path(__file__).parent)


def user_line() -> str:
    """Return ``file:line`` of the innermost frame outside this package; empty if there is none."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame is not None else ""
