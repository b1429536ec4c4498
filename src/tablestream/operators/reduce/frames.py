"""The values of window functions over rows that are sorted by partition and, within it, by an order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from tablestream.errors import TotalOverflowError
from tablestream.operators.events import ends, ints, run_start
from tablestream.operators.reduce.ranking import sorted_by
from tablestream.state.positions import Bools, Ints, gather, starts

#: A sum of 64 bits that has overflowed is this far from the sum as a float.
_FAR = 2.0**62


@dataclass(frozen=True)
class Frames:
    """Rows in partitions."""

    values: pl.Series
    """The structs that rows are of."""
    row: Ints
    """The position in `values` of each row."""
    begins: Bools
    """Whether each row is the first of its partition."""
    peers: Ints
    """A number per row; those that are peers of the same partition have the same one."""

    @cached_property
    def start(self) -> Ints:
        """The position of the first row of each row's partition."""
        return run_start(self.begins)

    @cached_property
    def partition(self) -> Ints:
        """The number of each row's partition."""
        return np.asarray(np.cumsum(self.begins) - 1)

    @cached_property
    def peer_begins(self) -> Bools:
        """Whether each row is the first of its peers."""
        return starts(self.partition, self.peers)

    @cached_property
    def last_peer(self) -> Ints:
        """The position of each row's last peer."""
        last = np.flatnonzero(ends(self.partition, self.peers))
        return np.asarray(last[np.cumsum(self.peer_begins) - 1])

    @property
    def number(self) -> Ints:
        """The number of each row in its partition, from 1."""
        return np.arange(1, len(self.row) + 1) - self.start

    def column(self, name: str) -> pl.Series:
        """A column of the rows."""
        return self.values.struct.field(name)[pl.Series(self.row)]

    def last(self, *, by_rows: bool) -> Ints:
        """The position of the last row of each row's frame."""
        return np.arange(len(self.row)) if by_rows else self.last_peer


@dataclass(frozen=True)
class Use:
    """A window function of a column."""

    function: str
    """Its name."""
    column: str | None = None
    default: str | None = None
    """The fields of the struct that it is of, and that it gives where there is no row; None: none."""
    offset: int = 1
    """How many rows before or after."""
    by_rows: bool = False
    """Whether the frame ends at the row, and not at its last peer."""
    name: str = ""
    """The name of its column in the result."""

    def of(self, frames: Frames) -> pl.Series:
        """The value of each row."""
        if self.function in _NUMBERED:
            return pl.Series(_NUMBERED[self.function](frames))
        if self.function in {"lag", "lead"}:
            return self._shifted(frames)
        last = frames.last(by_rows=self.by_rows)
        if self.function in {"first_value", "last_value"}:
            at = frames.start if self.function == "first_value" else last
            return _taken(frames, str(self.column), at)
        return self._running(frames, last)[pl.Series(last)]

    def _shifted(self, frames: Frames) -> pl.Series:
        """The value of the row so many rows before or after."""
        places = np.arange(len(frames.row))
        at = places - self.offset if self.function == "lag" else places + self.offset
        there = (at >= 0) & (at < len(places))
        there[there] = frames.partition[at[there]] == frames.partition[there]
        found = _taken(frames, str(self.column), np.where(there, at, -1))
        if self.default is None:
            return found
        return found.zip_with(pl.Series(there), frames.column(self.default))

    def _running(self, frames: Frames, shown: Ints) -> pl.Series:
        """The aggregate from the first row of the partition up to each row; only those at `shown` have to fit."""
        if self.column is None:
            return pl.Series(frames.number)
        column = frames.column(self.column)
        if self.function in {"min", "max"}:
            return _extremes(frames, self.column, greatest=self.function == "max")
        count = _summed(frames, column.is_not_null().cast(pl.Int64))
        if self.function == "count":
            return count
        total = _summed(frames, column.cast(pl.Float64).fill_null(0))
        if self.function == "sum" and column.dtype.is_integer():
            whole = _summed(frames, column.cast(pl.Int64).fill_null(0))
            if ((whole.cast(pl.Float64) - total).abs() > _FAR)[pl.Series(shown)].any():
                raise TotalOverflowError(
                    f"A sum in column '{self.name}' does not fit bigint.",
                    hint="Cast the column before it is added up, for instance to double.",
                )
            total = whole
        return (total if self.function == "sum" else total / count).set(count == 0, None)


_NUMBERED = {
    "row_number": lambda frames: frames.number,
    "rank": lambda frames: frames.number[run_start(frames.peer_begins)],
    "dense_rank": lambda frames: (
        np.cumsum(frames.peer_begins) - np.cumsum(frames.peer_begins)[frames.start] + 1
    ),
}


def _summed(frames: Frames, numbers: pl.Series) -> pl.Series:
    """The sum of numbers from the first row of the partition up to each row."""
    columns = pl.DataFrame({"x": numbers, "of": frames.partition})
    return columns.select(pl.col("x").cum_sum().over("of")).to_series()


def _taken(frames: Frames, name: str, at: Ints) -> pl.Series:
    """A column of the rows at some positions; null where the position is negative."""
    return gather(frames.values.struct.field(name), np.where(at >= 0, frames.row[at], -1))


def _extremes(frames: Frames, name: str, *, greatest: bool) -> pl.Series:
    """The least or greatest value up to each row, in the order of sorting; nulls do not count."""
    column = frames.values.struct.field(name)
    parts = [part.alias(f"p{number}") for number, (part, _) in enumerate(sorted_by(column, down=False))]
    frame = pl.DataFrame(parts)
    by = ints(
        frame.select(pl.arg_sort_by(frame.columns, descending=not greatest, nulls_last=True)).to_series()
    )
    rank = np.empty(len(by), dtype=np.int64)
    rank[by] = np.arange(1, len(by) + 1)
    rank[column.is_null().to_numpy()] = 0
    base = frames.partition * (len(by) + 1)
    best = np.maximum.accumulate(base + rank[frames.row]) - base
    return gather(column, np.where(best > 0, by[best - 1], -1))
