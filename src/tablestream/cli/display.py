"""How commands read and show rows: as a table where it fits, otherwise one column a line; to programs as JSON lines."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import IO, Any, cast
from zoneinfo import ZoneInfo

import polars as pl
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tablestream.base.data_text import visible, visible_json
from tablestream.base.time_zones import in_utc
from tablestream.connectors.json_text import json_options
from tablestream.operators.calendar import CYCLE_US, DAY_US, clock, date_text
from tablestream.operators.cells import KEY, VALUE, cells, dtype

#: The width of lines if the output is not a terminal.
LINE_WIDTH = 80
_1970, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
#: Between these times Python knows a zone's offset: years 770 to 9569.
_FIRST_US, _END_US = -3 * CYCLE_US, 19 * CYCLE_US


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Let the command decide what it means that its reader has gone; Rich would end the process with code 1."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def console(file: IO[str] | None = None, *, width: int = LINE_WIDTH, stderr: bool = False) -> Console:
    """Return the console: as wide as the terminal, or a fixed width for plain output."""
    found = _Console(file=file, stderr=stderr, highlight=False)
    if found.is_terminal:
        return found
    return _Console(file=file, stderr=stderr, highlight=False, width=width)


def polars_rows(rows: DataFrame) -> pl.DataFrame:
    """Return all rows at once."""
    return cast("pl.DataFrame", pl.from_arrow(in_utc(rows.toArrow(), keep_known=True)))


def json_lines(rows: DataFrame) -> Iterator[str]:
    """Yield each row as a JSON object, in the order of the rows; the driver never holds all of them."""
    for (line,) in rows.select(F.to_json(F.struct("*"), json_options())).toLocalIterator():
        yield visible_json(str(line))


def text_rows(names: Sequence[str], rows: Iterable[Sequence[str]]) -> pl.DataFrame:
    """Return rows of texts."""
    return pl.DataFrame(list(rows), dict.fromkeys(names, pl.String), orient="row")


def print_rows(out: Console, title: str, rows: pl.DataFrame) -> None:
    """Print rows as a table, or one column a line if the table is wider than the console."""
    out.print(Text(visible(title)), soft_wrap=True)
    table = table_of_rows(None, rows)
    if table.__rich_measure__(out, out.options.update(max_width=10_000)).maximum <= out.width:
        out.print(table)
        return
    columns = [visible(name) for name in rows.columns]
    names = max(map(len, columns), default=0)
    for number, row in enumerate(_texts(rows), start=1):
        out.print(Text(f"row {number}"), soft_wrap=True)
        for name, text in zip(columns, row, strict=True):
            out.print(Text(f"  {name.ljust(names)}  {text}"), soft_wrap=True)


def table_of_rows(title: str | None, rows: pl.DataFrame) -> Table:
    """Lay out rows as a table; null is shown as a dash."""
    table = Table(title=title, title_justify="left")
    for name, kind in rows.schema.items():
        table.add_column(
            Text(visible(name)), justify="right" if kind.is_numeric() else "left", overflow="fold"
        )
    for row in _texts(rows):
        table.add_row(*map(Text, row))
    return table


def _texts(rows: pl.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield each row as texts. They are made of cells: Python's dates and dictionaries do not hold all values."""
    columns = [
        ["-" if one is None else visible(_shown(one, own.dtype)) for one in cells(own)] for own in rows
    ]
    return zip(*columns, strict=True)


def _shown(cell: Any, kind: pl.DataType) -> str:
    """Return a cell as text; a time is one of the session's time zone, as where Spark shows it."""
    if isinstance(kind, pl.Date):
        return date_text(cell)
    if isinstance(kind, pl.Datetime):
        return _time_text(cell, kind.time_zone)
    if isinstance(kind, pl.List):
        return f"[{', '.join(_part(one, dtype(kind.inner)) for one in cell)}]"
    if isinstance(kind, pl.Struct):
        parts = [f"{one.name!r}: {_part(cell[one.name], dtype(one.dtype))}" for one in kind.fields]
        return f"{{{', '.join(parts)}}}"
    if isinstance(kind, pl.Map):
        key, value = dtype(kind.key), dtype(kind.value)
        return f"{{{', '.join(f'{_part(one[KEY], key)}: {_part(one[VALUE], value)}' for one in cell)}}}"
    return str(cell)


def _part(cell: Any, kind: pl.DataType) -> str:
    """Return a part of a nested value as text, as Python shows it where it is no time."""
    shown = isinstance(kind, pl.Date | pl.Datetime | pl.List | pl.Struct | pl.Map)
    return _shown(cell, kind) if shown and cell is not None else repr(cell)


def _time_text(time_us: int, zone: str | None) -> str:
    """Return a time of a zone as text."""
    days, rest_us = divmod(time_us if zone is None else time_us + _offset_us(time_us, zone), DAY_US)
    return f"{date_text(days)} {clock(rest_us)}"


def _offset_us(time_us: int, zone: str) -> int:
    """Return how far a zone is ahead of UTC at a time."""
    if not _FIRST_US <= time_us < _END_US:
        time_us = time_us % CYCLE_US + (_FIRST_US if time_us < _FIRST_US else _END_US - CYCLE_US)
    ahead = (_1970 + time_us * _MICROSECOND).astimezone(ZoneInfo(zone)).utcoffset()
    return (ahead or timedelta()) // _MICROSECOND
