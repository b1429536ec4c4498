"""The values of window functions over rows that are sorted by partition and, within it, by an order."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import cached_property
from typing import Literal

import numpy as np
import polars as pl

from tablestream.errors import TotalOverflowError
from tablestream.operators.events import ints, pick, run_end, run_start
from tablestream.operators.reduce.ranking import sorted_by
from tablestream.state.positions import Bools, Ints, gather, put_back, starts

_LEAST, _GREATEST = -(2**63), 2**63 - 1
_EXACT = Context(prec=80, rounding=ROUND_HALF_UP)


@dataclass(frozen=True)
class Frame:
    """The rows of its partition that a row's function sees."""

    by_rows: bool = False
    """Whether bounds are numbers of rows; if not, they are differences of the last field of the order."""
    start: float | None = None
    end: float | None = 0
    """How far from the row it begins and ends, before it if negative; 0: at the row or, if not by rows, at its peers.
    None: at the first, and at the last, row of the partition."""


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
    frame: Frame = Frame()
    order: tuple[tuple[str, bool], ...] = ()
    """The fields that rows are sorted by, each with whether the greatest comes first."""

    @cached_property
    def start(self) -> Ints:
        """The position of the first row of each row's partition."""
        return run_start(self.begins)

    @cached_property
    def end(self) -> Ints:
        """The position behind the last row of each row's partition."""
        return run_end(self.begins) + 1

    @cached_property
    def partition(self) -> Ints:
        """The number of each row's partition."""
        return np.asarray(np.cumsum(self.begins) - 1)

    @cached_property
    def peer_begins(self) -> Bools:
        """Whether each row is the first of its peers."""
        return starts(self.partition, self.peers)

    @cached_property
    def peer_end(self) -> Ints:
        """The position behind each row's last peer."""
        return run_end(self.peer_begins) + 1

    @property
    def number(self) -> Ints:
        """The number of each row in its partition, from 1."""
        return self.places - self.start + 1

    @property
    def rank(self) -> Ints:
        """The number of the first of each row's peers."""
        return self.number[run_start(self.peer_begins)]

    @property
    def count(self) -> Ints:
        """The number of rows of each row's partition."""
        return self.end - self.start

    @cached_property
    def places(self) -> Ints:
        """The position of each row."""
        return np.arange(len(self.row))

    @cached_property
    def first(self) -> Ints:
        """The position of the first row of each row's frame."""
        if self.frame.start is None:
            return self.start
        return self._reached(self.frame.start, behind=False)

    @cached_property
    def after(self) -> Ints:
        """The position behind the last row of each row's frame; that of the first one if the frame has no rows."""
        end = self.end if self.frame.end is None else self._reached(self.frame.end, behind=True)
        return np.maximum(self.first, end)

    def column(self, name: str) -> pl.Series:
        """A column of the rows."""
        return self.values.struct.field(name)[pl.Series(self.row)]

    def _reached(self, distance: float, *, behind: bool) -> Ints:
        """The position of the first row that is so far from each row or, with `behind`, of the first one beyond."""
        if self.frame.by_rows:
            most = len(self.places)
            moved = self.places + min(max(int(distance), -most), most) + behind
            return np.clip(moved, self.start, self.end)
        if not distance:
            return self.peer_end if behind else run_start(self.peer_begins)
        *outer, (name, down) = self.order
        column = self.column(name)
        is_float = column.dtype.is_float()
        there = column.is_not_null() & column.is_not_nan() if is_float else column.is_not_null()
        kind = column.dtype if is_float else pl.Int64()  # a float is moved as a float: so does Spark
        numbers = column.to_physical().cast(kind).set(~there, 0).to_numpy()
        numbers = numbers if not down else -numbers if is_float else ~numbers
        moved = numbers + numbers.dtype.type(distance) if is_float else _moved(numbers, int(distance))
        reached = np.where(there, moved, numbers)
        apart = starts(self.partition, column.is_null(), there, *(self.column(one) for one, _ in outer))
        group = np.tile(np.cumsum(apart), 2)
        is_row = np.repeat([True, False], len(numbers))
        order = np.lexsort((is_row ^ behind, np.concatenate([numbers, reached]), group))
        return np.asarray(put_back(np.cumsum(is_row[order]), order)[~is_row])


@dataclass(frozen=True)
class Use:
    """A window function of a column."""

    function: str
    """Its name."""
    column: str | None = None
    default: str | None = None
    """The fields of the struct that it is of, and that it gives where there is no row; None: none."""
    offset: int = 1
    """How many rows before or after; the number of the row in the frame; into how many parts."""
    ignores_nulls: bool = False
    """Whether rows in which the column is null are passed over."""
    name: str = ""
    """The name of its column in the result."""

    def of(self, frames: Frames) -> pl.Series:
        """The value of each row."""
        if self.function in _NUMBERED:
            return pl.Series(_NUMBERED[self.function](frames))
        if self.function == "ntile":
            return pl.Series(self._part(frames))
        if self.column is None:
            return pl.Series(frames.after - frames.first)
        column = frames.column(self.column)
        if self.function in {"min", "max"}:
            return _extremes(frames, self.column, greatest=self.function == "max")
        if self.function in {"count", "sum", "avg"}:
            return self._total(frames, column)
        at = self._told(frames, column)
        found = gather(frames.values.struct.field(self.column), pick(frames.row, at, -1))
        return (
            found if self.default is None else found.zip_with(pl.Series(at >= 0), frames.column(self.default))
        )

    def _part(self, frames: Frames) -> Ints:
        """The number of each row's part, of so many that differ by one row at most; the first ones are the larger."""
        before, (size, larger) = frames.number - 1, np.divmod(frames.count, self.offset)
        behind = before - larger * (size + 1)
        number = np.where(behind < 0, before // (size + 1), larger + behind // np.maximum(size, 1))
        return np.asarray(number + 1)

    def _told(self, frames: Frames, column: pl.Series) -> Ints:
        """The position of the row whose value each row is told; -1: there is none."""
        passes = self.ignores_nulls and self.offset > 0  # no row before or after: the row itself
        known = np.flatnonzero(column.is_not_null()) if passes else frames.places
        begin, end = frames.first, frames.after
        if self.function in {"lag", "lead"}:
            begin, end = frames.start, frames.end
        if self.function == "lag":
            at = np.searchsorted(known, frames.places) - self.offset
        elif self.function == "lead":
            at = np.searchsorted(known, frames.places, "right") + self.offset - 1
        elif self.function == "last_value":
            at = np.searchsorted(known, end) - 1
        else:
            at = np.searchsorted(known, begin) + self.offset - 1
        found = pick(known, np.where(at < len(known), at, -1), -1)
        return np.where((found >= begin) & (found < end), found, -1)

    def _total(self, frames: Frames, column: pl.Series) -> pl.Series:
        """How many values of the frame are not null, their sum or their mean."""
        count = _differences(frames, column.is_not_null().cast(pl.Int64))
        if self.function == "count":
            return count
        kind = column.dtype
        if kind.is_float():
            total = _folded(frames, column.cast(pl.Float64).fill_null(0), "sum")
        else:
            units = column.to_physical().cast(pl.Int128).fill_null(0)
            total = _differences(frames, units)
            if isinstance(kind, pl.Decimal):
                about = _differences(frames, units.cast(pl.Float64))  # 128 bits may be too few
                self._check((about.abs() < 2e38) & total.is_between(1 - 10**38, 10**38 - 1), "decimal(38)")
                total = (
                    total.to_frame()
                    .select(pl.all().reinterpret(dtype=pl.Decimal(38, kind.scale)))
                    .to_series()
                )
            elif self.function == "sum":
                self._check(total.is_between(_LEAST, _GREATEST), "bigint")
        if self.function == "avg":
            total = (
                self._means(total, count) if isinstance(kind, pl.Decimal) else total.cast(pl.Float64) / count
            )
        return total.set(count == 0, None)

    def _means(self, totals: pl.Series, counts: pl.Series) -> pl.Series:
        """The means of decimals, with four digits more, as in Spark."""
        assert isinstance(totals.dtype, pl.Decimal)  # noqa: S101 - it says how many digits there are
        scale = min(totals.dtype.scale + 4, 38)
        unit, least_wrong = Decimal(1).scaleb(-scale), Decimal(1).scaleb(38 - scale)
        found = [
            _EXACT.quantize(_EXACT.divide(total, Decimal(count)), unit) if count else None
            for total, count in zip(totals.to_list(), counts.to_list(), strict=True)
        ]
        fits = [one is None or abs(one) < least_wrong for one in found]
        self._check(pl.Series(fits, dtype=pl.Boolean), f"decimal(38,{scale})")
        return pl.Series(found, dtype=pl.Decimal(38, scale))

    def _check(self, fits: pl.Series, kind: str) -> None:
        if not fits.all():
            raise TotalOverflowError(
                f"A sum or mean in column '{self.name}' does not fit {kind}.",
                hint="Cast the column before it is added up, for instance to double.",
            )


_NUMBERED = {
    "row_number": lambda frames: frames.number,
    "rank": lambda frames: frames.rank,
    "dense_rank": lambda frames: (
        np.cumsum(frames.peer_begins) - np.cumsum(frames.peer_begins)[frames.start] + 1
    ),
    "percent_rank": lambda frames: (frames.rank - 1) / np.maximum(frames.count - 1, 1),
    "cume_dist": lambda frames: (frames.peer_end - frames.start) / frames.count,
}


def _moved(numbers: Ints, distance: int) -> Ints:
    """Numbers so much larger, or as large as 64 bits allow."""
    if distance < 0:
        return np.maximum(numbers, _LEAST - distance) + distance
    return np.minimum(numbers, _GREATEST - distance) + distance


def _differences(frames: Frames, numbers: pl.Series) -> pl.Series:
    """The sum of the numbers of each frame, where a difference of sums has no residue."""
    sums = pl.concat([pl.zeros(1, numbers.dtype, eager=True), numbers.cum_sum()])
    return sums[pl.Series(frames.after)] - sums[pl.Series(frames.first)]


def _folded(frames: Frames, numbers: pl.Series, how: Literal["sum", "max"]) -> pl.Series:
    """The sum or the greatest of the numbers of each frame; of a frame without rows any number."""
    is_begun, is_ended = frames.frame.start is not None, frames.frame.end is not None
    if not (is_begun and is_ended):  # running ones, also backwards
        running = getattr(pl.col("x"), f"cum_{how}")(reverse=is_begun).over("of")
        rows = pl.DataFrame({"x": numbers, "of": frames.partition}).select(running).to_series()
        at = np.minimum(frames.first, len(rows) - 1) if is_begun else np.maximum(frames.after - 1, 0)
        return rows[pl.Series(at)]
    pairs = np.column_stack([frames.first, frames.after]).ravel()
    function = np.add if how == "sum" else np.maximum
    return pl.Series(function.reduceat(np.append(numbers.to_numpy(), 0), pairs)[::2])


def _extremes(frames: Frames, name: str, *, greatest: bool) -> pl.Series:
    """The least or greatest value of each frame, in the order of sorting; nulls do not count."""
    column = frames.values.struct.field(name)
    parts = [part.alias(f"p{number}") for number, (part, _) in enumerate(sorted_by(column, down=False))]
    frame = pl.DataFrame(parts)
    by = ints(
        frame.select(pl.arg_sort_by(frame.columns, descending=not greatest, nulls_last=True)).to_series()
    )
    rank = put_back(np.arange(1, len(by) + 1), by)
    rank[column.is_null().to_numpy()] = 0
    best = ints(_folded(frames, pl.Series(rank[frames.row]), "max"))
    return gather(column, np.where((best > 0) & (frames.after > frames.first), by[best - 1], -1))
