"""The variance and other moments of numbers, and whether all or any booleans are true.

======================  ======================================  =============================================
function                remembered                              result
======================  ======================================  =============================================
``Variance``            how many values are not null, their     of a sample null for less than two values, of
.                       sum, the sum of their squares; of       a population null for none; NaN if a value is
.                       floats how many are NaN or infinite     NaN or infinite
``Skewness``,           the same, and the sums of higher        null for no values, and where all are equal;
``Kurtosis``            powers                                  NaN if a value is NaN or infinite
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
from typing import ClassVar

import polars as pl

from tablestream.operators.events import ints
from tablestream.operators.reduce.groups import GroupEvents
from tablestream.operators.reduce.powers import OfOne, root, signed_root
from tablestream.operators.reduce.totals import Function, Totals, divided, moves, present
from tablestream.state.positions import Ints


@dataclass(frozen=True)
class Variance(OfOne):
    """The variance of a column, or its root."""

    population: bool
    """Whether the values are all there are, not a sample."""
    root: bool
    """Whether to return the standard deviation."""

    powers: ClassVar = {"total": (1,), "squares": (2,)}

    def of_sums(self, count: int, sums: Sequence[int], parts: Sequence[int], not_finite: int) -> float | None:
        degrees, (total, squares) = count if self.population else count - 1, sums
        if degrees <= 0:
            return None
        numerator, denominator = count * squares - total * total, count * degrees * parts[0] ** 2
        # With Kafka Streams' defects a value may be taken away that is not there.
        if not_finite > 0 or numerator < 0:
            return math.nan
        return root(numerator, denominator) if self.root else divided(numerator, denominator)


@dataclass(frozen=True)
class Skewness(OfOne):
    """The skewness of a column."""

    powers: ClassVar = {**Variance.powers, "cubes": (3,)}

    def of_sums(self, count: int, sums: Sequence[int], parts: Sequence[int], not_finite: int) -> float | None:  # noqa: ARG002 - it has no unit
        total, squares, cubes = sums
        second = count * squares - total**2
        third = count**2 * cubes - 3 * count * total * squares + 2 * total**3
        if count <= 0 or not (second or not_finite > 0):
            return None
        if not_finite > 0 or second < 0:
            return math.nan
        return signed_root(third**2, second**3, third)


@dataclass(frozen=True)
class Kurtosis(OfOne):
    """The kurtosis of a column, less that of a normal distribution."""

    powers: ClassVar = {**Skewness.powers, "fourths": (4,)}

    def of_sums(self, count: int, sums: Sequence[int], parts: Sequence[int], not_finite: int) -> float | None:  # noqa: ARG002 - it has no unit
        total, squares, cubes, fourths = sums
        second = count * squares - total**2
        fourth = (
            count**3 * fourths - 4 * count**2 * total * cubes + 6 * count * total**2 * squares - 3 * total**4
        )
        if count <= 0 or not (second or not_finite > 0):
            return None
        return math.nan if not_finite > 0 else divided(fourth - 3 * second**2, second**2)


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
