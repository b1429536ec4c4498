"""The variance and the standard deviation of numbers, and whether all or any booleans are true.

======================  ======================================  =============================================
function                remembered                              result
======================  ======================================  =============================================
``Variance``            how many values are not null, their     of a sample null for less than two values, of
.                       sum, the sum of their squares; of       a population null for none; NaN if a value is
.                       floats how many are NaN or infinite     NaN or infinite
``AllOrAny``            how many values are not null, and how   null without values
.                       many are true
======================  ======================================  =============================================

Sums are exact whole numbers, see `totals`, so a value that is removed leaves no residue, and the result is that of the
values that are there, rounded once; a root is rounded once more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from tablestream.operators.events import ints
from tablestream.operators.reduce.groups import GroupEvents
from tablestream.operators.reduce.totals import (
    FLOAT_BITS,
    Function,
    Objects,
    Totals,
    divided,
    from_bytes,
    moves,
    present,
    to_bytes,
    units,
)
from tablestream.state.positions import Ints


@dataclass(frozen=True)
class Variance(Function):
    """The variance of a column, or its root."""

    column: str
    of: pl.DataType
    """The column, and its dtype."""
    population: bool
    """Whether the values are all there are, not a sample."""
    root: bool
    """Whether to return the standard deviation."""

    @property
    def result(self) -> pl.DataType:
        return pl.Float64()

    @property
    def state(self) -> dict[str, pl.DataType]:
        return {"count": pl.Int64(), "total": pl.Binary(), "squares": pl.Binary(), "not_finite": pl.Int64()}

    def run(self, events: GroupEvents, base: Sequence[pl.Series], shown: Ints) -> Totals:
        counts, strange = (
            events.running(change, ints(known.fill_null(0)))
            for change, known in ((present(events, self.column), base[0]), (self._strange(events), base[3]))
        )
        values = [one(self.column) for one in (events.new, events.old)]
        zeros = _zeros(values, base[1:3]) if self.of.is_float() else 0
        new, old = (units(one, zeros).astype(object) for one in values)
        total = events.running(new - old, _known(base[1], zeros))
        squares = events.running(new * new - old * old, _known(base[2], 2 * zeros))
        columns = (one[shown] for one in (counts, total, squares, strange))
        last = events.last
        numbers = [pl.Series(one[last], dtype=pl.Int64) for one in (counts, strange)]
        whole = [_kept(total[last], zeros), _kept(squares[last], 2 * zeros)]
        return Totals(self._results(*columns, zeros=zeros), [numbers[0], *whole, numbers[1]])

    def recalled(self, rows: pl.Series, base: Sequence[pl.Series]) -> pl.Series:  # noqa: ARG002
        return self._results(ints(base[0]), _known(base[1]), _known(base[2]), ints(base[3]))

    def _strange(self, events: GroupEvents) -> Ints:
        """How each message changes the number of values that are NaN or infinite."""
        if not self.of.is_float():
            return np.zeros(len(events), dtype=np.int64)
        return moves(events, self.column, lambda values: ~values.is_finite())

    def _results(self, *columns: Ints | Objects, zeros: int = 0) -> pl.Series:
        rows = zip(*(one.tolist() for one in columns), strict=True)
        return pl.Series([self._result(*row, zeros=zeros) for row in rows], dtype=pl.Float64)

    def _result(self, count: int, total: int, squares: int, strange: int, *, zeros: int) -> float | None:
        degrees = count if self.population else count - 1
        if degrees <= 0:
            return None
        numerator, denominator = count * squares - total * total, count * degrees
        # With Kafka Streams' defects a value may be taken away that is not there.
        if strange > 0 or numerator < 0:
            return math.nan
        if self.of.is_float():
            denominator <<= 2 * (FLOAT_BITS - zeros)
        elif isinstance(self.of, pl.Decimal):
            denominator *= 10 ** (2 * self.of.scale)
        return _root(numerator, denominator) if self.root else divided(numerator, denominator)


@dataclass(frozen=True)
class AllOrAny(Function):
    """Whether all values of a column of booleans are true, or any."""

    column: str
    every: bool

    @property
    def result(self) -> pl.DataType:
        return pl.Boolean()

    @property
    def state(self) -> dict[str, pl.DataType]:
        return {"count": pl.Int64(), "true": pl.Int64()}

    def run(self, events: GroupEvents, base: Sequence[pl.Series], shown: Ints) -> Totals:
        changes = present(events, self.column), moves(events, self.column, lambda values: values)
        counts = [
            events.running(change, ints(known.fill_null(0)))
            for change, known in zip(changes, base, strict=True)
        ]
        state = [pl.Series(one[events.last], dtype=pl.Int64) for one in counts]
        return Totals(self._results(*(one[shown] for one in counts)), state)

    def recalled(self, rows: pl.Series, base: Sequence[pl.Series]) -> pl.Series:  # noqa: ARG002
        return self._results(*map(ints, base))

    def _results(self, counts: Ints, true: Ints) -> pl.Series:
        found = true == counts if self.every else true > 0
        return pl.select(pl.when(pl.lit(pl.Series(counts > 0))).then(pl.lit(pl.Series(found)))).to_series()


def _root(numerator: int, denominator: int) -> float:
    """The root of a quotient, which may itself be too large for a float, or too small."""
    half = (numerator.bit_length() - denominator.bit_length()) // 2
    up, down = max(-2 * half, 0), max(2 * half, 0)
    try:
        return math.ldexp(math.sqrt((numerator << up) / (denominator << down)), half)
    except OverflowError:
        return math.inf


def _zeros(values: Sequence[pl.Series], totals: Sequence[pl.Series]) -> int:
    """How many last bits of all floats, as `units`, are 0: numbers without them are much shorter."""
    floats = np.concatenate([one.cast(pl.Float64).fill_null(0.0).to_numpy() for one in values])
    exponents = np.frexp(floats[np.isfinite(floats) & (floats != 0)])[1]
    found = [FLOAT_BITS, max(0, int(exponents.min(initial=FLOAT_BITS)) - 53 + FLOAT_BITS)]
    for times, series in enumerate(totals, start=1):
        found += [((one & -one).bit_length() - 1) // times for one in map(from_bytes, series) if one]
    return min(found)


def _known(base: pl.Series, zeros: int = 0) -> Any:
    return np.array([from_bytes(one) >> zeros for one in base], dtype=object)


def _kept(totals: Ints | Objects, zeros: int) -> pl.Series:
    return pl.Series([to_bytes(one, zeros) for one in totals.tolist()], dtype=pl.Binary)
