"""How the demo shows what it does: a growing table on a terminal, lines elsewhere, JSON for programs."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Protocol

from rich.console import Group
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tablestream.cli.display import console, table_of_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    import polars as pl

    from examples.demo.progress import MicroBatchReport

_REFRESHES_PER_S = 4
#: The width of lines if the output is not a terminal: the samples of joined rows have many columns.
_LINE_WIDTH = 140


class Progress(Protocol):
    """What is shown while the query runs."""

    def micro_batch(self, report: MicroBatchReport) -> None:
        """Show that a micro-batch has ended."""

    def tick(self, elapsed_s: float) -> None:
        """Show that time has passed."""


class Display(Protocol):
    """What the demo tells, and to whom."""

    def say(self, text: str) -> None:
        """Tell people something."""

    def rows(self, title: str, rows: pl.DataFrame) -> None:
        """Show people a few rows."""

    def progress(self, expected: int) -> AbstractContextManager[Progress]:
        """Show the `expected` micro-batches as they come, until the context ends."""

    def summary(self, facts: dict[str, Any]) -> None:
        """Tell programs how it ended."""


class TextDisplay:
    """For people.

    Parameters
    ----------
    file
        Where to write; by default standard output. A terminal gets a table that grows, anything else lines.
    """

    def __init__(self, file: IO[str] | None = None) -> None:
        self._console = console(file, width=_LINE_WIDTH)

    def say(self, text: str) -> None:
        """Write a line."""
        self._console.print(Text(text), soft_wrap=True)

    def rows(self, title: str, rows: pl.DataFrame) -> None:
        """Write a small table; nulls are shown as a dash."""
        self._console.print(table_of_rows(title, rows))

    @contextmanager
    def progress(self, expected: int) -> Iterator[Progress]:
        """Show micro-batches in the way that suits the output."""
        if not self._console.is_terminal:
            yield _Lines(self)
            return
        growing = _GrowingTable(expected)
        with Live(
            get_renderable=growing.render, console=self._console, refresh_per_second=_REFRESHES_PER_S
        ) as live:
            yield growing
            growing.end()
            live.refresh()

    def summary(self, facts: dict[str, Any]) -> None:
        """Do nothing: people have been told."""


class JsonDisplay:
    """For programs: a JSON object per line and micro-batch, then one for the end, and nothing else.

    Parameters
    ----------
    file
        Where to write; by default standard output.
    """

    def __init__(self, file: IO[str] | None = None) -> None:
        self._file = file

    def say(self, text: str) -> None:
        """Do nothing: this is for people."""

    def rows(self, title: str, rows: pl.DataFrame) -> None:
        """Do nothing: this is for people."""

    @contextmanager
    def progress(self, expected: int) -> Iterator[Progress]:  # noqa: ARG002  # programs count for themselves
        """Write micro-batches as they end."""
        yield self

    def micro_batch(self, report: MicroBatchReport) -> None:
        """Write a report."""
        self._write(report.as_json())

    def tick(self, elapsed_s: float) -> None:
        """Do nothing: lines come when there is something to say."""

    def summary(self, facts: dict[str, Any]) -> None:
        """Write the last line."""
        self._write({"event": "summary", **facts})

    def _write(self, fact: dict[str, Any]) -> None:
        print(json.dumps(fact, default=str), file=self._file, flush=True)


class _Totals:
    """What all micro-batches so far come to."""

    def __init__(self) -> None:
        self.rows_in = self.changes_out = 0

    def add(self, report: MicroBatchReport) -> None:
        self.rows_in += report.rows_in
        self.changes_out += report.changes_out


class _Lines:
    """Progress as plain lines, one per micro-batch."""

    def __init__(self, display: TextDisplay) -> None:
        self._display, self._totals = display, _Totals()

    def micro_batch(self, report: MicroBatchReport) -> None:
        self._totals.add(report)
        totals = self._totals
        self._display.say(
            f"micro-batch {report.micro_batch}: {report.rows_in:,} rows in, "
            f"{report.changes_out:,} changes out, {report.changes_per_s:,.0f} changes/s, "
            f"{report.duration_s:.1f} s; "
            f"in all {totals.rows_in:,} in, {totals.changes_out:,} out, {report.elapsed_s:.1f} s"
        )

    def tick(self, elapsed_s: float) -> None:
        """Do nothing: a line that only says that time passes would be noise."""


class _GrowingTable:
    """Progress as a table with a row per micro-batch, and a line under it that moves."""

    def __init__(self, expected: int) -> None:
        self._expected, self._totals, self._done, self._elapsed_s = expected, _Totals(), 0, 0.0
        self._spinner: Spinner | None = Spinner("dots")
        self._table = Table()
        for name in ("micro-batch", "rows in", "changes out", "changes/s", "seconds", "elapsed"):
            self._table.add_column(name, justify="right")

    def micro_batch(self, report: MicroBatchReport) -> None:
        self._totals.add(report)
        self._done += 1
        self._table.add_row(
            str(report.micro_batch),
            f"{report.rows_in:,}",
            f"{report.changes_out:,}",
            f"{report.changes_per_s:,.0f}",
            f"{report.duration_s:.1f}",
            f"{report.elapsed_s:.1f}",
        )

    def tick(self, elapsed_s: float) -> None:
        self._elapsed_s = elapsed_s

    def end(self) -> None:
        """Let the moving line stand."""
        self._spinner = None

    def render(self) -> Group:
        rate = self._totals.changes_out / self._elapsed_s if self._elapsed_s else 0.0
        line = Text(
            f"{self._done} of {self._expected} micro-batches, {self._totals.rows_in:,} rows in, "
            f"{self._totals.changes_out:,} changes out, {rate:,.0f} changes/s, {self._elapsed_s:.0f} s"
        )
        if self._spinner is None:
            return Group(self._table, line)
        self._spinner.update(text=line)
        return Group(self._table, self._spinner)
