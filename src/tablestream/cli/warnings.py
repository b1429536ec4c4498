"""The library's warnings while a query runs, on the screen of the command line."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tablestream.cli.screen import Screen


class _ToScreen(logging.Handler):
    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.WARNING)
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        """Show a warning."""
        text = record.getMessage()
        self._screen.say(f"Warning: {text}", {"event": "warning", "message": text})


@contextlib.contextmanager
def warnings_on(screen: Screen) -> Iterator[None]:
    """Show what the library logs on a screen."""
    logger, handler = logging.getLogger("tablestream"), _ToScreen(screen)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
