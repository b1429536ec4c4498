"""How commands show rows: as a table where it fits, otherwise one column a line."""

from __future__ import annotations

from datetime import datetime
from typing import IO

import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

#: The width of lines if the output is not a terminal.
LINE_WIDTH = 80


def console(file: IO[str] | None = None, *, width: int = LINE_WIDTH, stderr: bool = False) -> Console:
    """Return the console: as wide as the terminal, or a fixed width for plain output."""
    found = Console(file=file, stderr=stderr, highlight=False)
    if found.is_terminal:
        return found
    return Console(file=file, stderr=stderr, highlight=False, width=width)


def print_rows(out: Console, title: str, rows: pl.DataFrame) -> None:
    """Print rows as a table, or one column a line if the table is wider than the console."""
    out.print(Text(title), soft_wrap=True)
    table = table_of_rows(None, rows)
    if table.__rich_measure__(out, out.options.update(max_width=10_000)).maximum <= out.width:
        out.print(table)
        return
    names = max(map(len, rows.columns), default=0)
    for number, row in enumerate(rows.iter_rows(named=True), start=1):
        out.print(Text(f"row {number}"), soft_wrap=True)
        for name, value in row.items():
            out.print(Text(f"  {name.ljust(names)}  {_shown(value)}"), soft_wrap=True)


def table_of_rows(title: str | None, rows: pl.DataFrame) -> Table:
    """Lay out rows as a table; null is shown as a dash."""
    table = Table(title=title, title_justify="left")
    for name, dtype in rows.schema.items():
        table.add_column(name, justify="right" if dtype.is_numeric() else "left", overflow="fold")
    for row in rows.iter_rows():
        table.add_row(*(Text(_shown(value)) for value in row))
    return table


def _shown(value: object) -> str:
    """Return a value as text; a time is one of the session's time zone, as where Spark shows it."""
    if isinstance(value, datetime):
        value = value.replace(tzinfo=None)
    return "-" if value is None else str(value)
