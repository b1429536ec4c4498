"""Where ``tablestream run`` writes: changes to standard output, progress to standard error, or JSON lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from threading import RLock
from typing import TYPE_CHECKING, Any, Protocol

import polars as pl
from rich.text import Text

from tablestream.base.data_text import visible_lines
from tablestream.cli.display import console, print_rows
from tablestream.cli.progress import MicroBatch

if TYPE_CHECKING:
    Rows = Callable[[], pl.DataFrame]
    Lines = Callable[[], Iterable[str]]

_ERASE = "\r\x1b[2K"


class Screen(Protocol):
    """What is shown while a query runs."""

    def say(self, text: str, event: Mapping[str, Any]) -> None:
        """Tell people a text, and programs an event."""

    def micro_batch(self, done: MicroBatch) -> None:
        """Show that a micro-batch has ended."""

    def changes(self, title: str, rows: Rows, lines: Lines) -> None:
        """Show changes. Each of `rows` and `lines` reads them: a screen calls the one that it needs."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class TextScreen:
    """For people. A terminal gets one line that is updated, anything else a line per micro-batch."""

    def __init__(self) -> None:
        self._out, self._err = console(), console(stderr=True)
        self._updates = self._err.is_terminal and not self._err.is_dumb_terminal
        self._status = ""
        self._lock = RLock()  # Spark writes the changes in a thread of its own

    def say(self, text: str, event: Mapping[str, Any]) -> None:  # noqa: ARG002 - for programs
        with self._lock:
            self._erase()
            self._err.print(Text(visible_lines(text)), soft_wrap=True)
            self._draw()

    def micro_batch(self, done: MicroBatch) -> None:
        """Write a line, or replace it; warnings say why records were dropped."""
        with self._lock:
            if self._updates:
                self._status = str(done)
            else:
                self._err.print(Text(str(done)), soft_wrap=True)
            self._draw()

    def changes(self, title: str, rows: Rows, lines: Lines) -> None:  # noqa: ARG002 - the same
        found = rows()
        with self._lock:
            self._erase()
            print_rows(self._out, title, found)
            sys.stdout.flush()
            self._draw()

    def close(self) -> None:
        """Keep the last state of the line that was updated."""
        with self._lock:
            if self._status:
                sys.stderr.write("\n")
                self._status = ""

    def _erase(self) -> None:
        if self._status:
            sys.stderr.write(_ERASE)
            sys.stderr.flush()

    def _draw(self) -> None:
        if self._status:
            sys.stderr.write(_ERASE + self._status[: self._err.width - 1])
            sys.stderr.flush()


class JsonScreen:
    """For programs: JSON lines on standard output."""

    def __init__(self) -> None:
        self._lock = RLock()

    def say(self, text: str, event: Mapping[str, Any]) -> None:  # noqa: ARG002 - for people
        self._write([json.dumps(event)])

    def micro_batch(self, done: MicroBatch) -> None:
        self._write([json.dumps(done.as_json())])

    def changes(self, title: str, rows: Rows, lines: Lines) -> None:  # noqa: ARG002 - the same
        self._write(lines())

    def close(self) -> None:
        """Do nothing."""

    def _write(self, lines: Iterable[str]) -> None:
        with self._lock:
            for line in lines:
                sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
