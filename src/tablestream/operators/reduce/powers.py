"""Exact sums of powers of numbers, and of products of several columns, and the statistics that follow from them.

Sums are whole numbers of any size, see `totals`, so a value that is removed leaves no residue, and the result is that
of the values that are there, rounded once; a root is rounded once more. A row in which a column is null adds nothing.
NaN and infinities are counted, and add nothing to sums; they make the result NaN.

Of one column:

======================  ======================================  =============================================
function                remembered                              result
======================  ======================================  =============================================
``Variance``            how many values are not null, their     of a sample null for less than two values, of
.                       sum, the sum of their squares; of       a population null for none
.                       floats how many are NaN or infinite
``Skewness``,           the same, and the sums of higher        null for no values, and where all are equal
``Kurtosis``            powers
``Deviations``          the same as ``Variance``                ``regr_sxx``, ``regr_syy``: the sum of the
.                                                               squares of deviations; null for no values
======================  ======================================  =============================================

Of pairs of numbers, the covariance, the correlation and the regression of ``y`` on ``x``:

======================  ===========================================================================
function                result; n pairs, of which no number is null
======================  ===========================================================================
``covar_pop``           null for no pairs
``covar_samp``          of a sample; null for less than two pairs
``regr_sxy``            the sum of the products of deviations; null for no pairs
``corr``                null for less than two pairs, and where all x or all y are equal
``regr_slope``          null where all x are equal
``regr_intercept``      the same
``regr_r2``             the same; 1 where all y are equal
======================  ===========================================================================
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

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
    to_bytes,
    units,
)
from tablestream.state.positions import Ints


class OfPowers(Function):
    """An aggregate that follows from sums of powers."""

    powers: ClassVar[dict[str, tuple[int, ...]]]
    """The remembered sums, by their names: of the product of each column to this power."""

    @property
    @abstractmethod
    def columns(self) -> dict[str, pl.DataType]:
        """The columns, and their dtypes; all are null where one is."""

    @abstractmethod
    def of_sums(self, count: int, sums: Sequence[int], parts: Sequence[int], not_finite: int) -> float | None:
        """Return the result.

        `count`: how many rows have values. `sums`: these of `powers`. `parts`: how many parts a whole has, in which the
        numbers of each column are counted. `not_finite`: how many rows have a NaN or an infinity.
        """

    @property
    def result(self) -> pl.DataType:
        return pl.Float64()

    @property
    def state(self) -> dict[str, pl.DataType]:
        return {"count": pl.Int64(), **dict.fromkeys(self.powers, pl.Binary()), "not_finite": pl.Int64()}

    def run(self, events: GroupEvents, base: Sequence[pl.Series], shown: Ints) -> Totals:
        new, old = ([of(one) for one in self.columns] for of in (events.new, events.old))
        zeros = self._zeros([*new, *old], base[1:-1])
        counts, strange = (
            events.running(_moved(new, old, which), ints(known.fill_null(0)))
            for which, known in ((_is_there, base[0]), (_is_strange, base[-1]))
        )
        added, removed = ([units(one, zeros).astype(object) for one in rows] for rows in (new, old))
        sums = [
            events.running(_product(added, powers) - _product(removed, powers), _known(known, zeros * times))
            for powers, times, known in zip(self.powers.values(), self._times, base[1:-1], strict=True)
        ]
        last = events.last
        kept = [_kept(one[last], zeros * times) for one, times in zip(sums, self._times, strict=True)]
        numbers = [pl.Series(one[last], dtype=pl.Int64) for one in (counts, strange)]
        results = self._results(counts[shown], [one[shown] for one in sums], strange[shown], zeros)
        return Totals(results, [numbers[0], *kept, numbers[1]])

    def recalled(self, rows: pl.Series, base: Sequence[pl.Series]) -> pl.Series:  # noqa: ARG002
        return self._results(ints(base[0]), [_known(one) for one in base[1:-1]], ints(base[-1]))

    @property
    def _times(self) -> list[int]:
        """How many floats are multiplied for each sum."""
        floats = [kind.is_float() for kind in self.columns.values()]
        return [int(np.dot(powers, floats)) for powers in self.powers.values()]

    def _zeros(self, rows: Sequence[pl.Series], sums: Sequence[pl.Series]) -> int:
        """How many last bits of all floats, as `units`, are 0: numbers without them are much shorter."""
        floats = [one.cast(pl.Float64).fill_null(0.0).to_numpy() for one in rows if one.dtype.is_float()]
        if not floats:
            return 0
        values = np.concatenate(floats)
        exponents = np.frexp(values[np.isfinite(values) & (values != 0)])[1]
        found = [FLOAT_BITS, max(0, int(exponents.min(initial=FLOAT_BITS)) - 53 + FLOAT_BITS)]
        for times, series in zip(self._times, sums, strict=True):
            if times:
                found += [((one & -one).bit_length() - 1) // times for one in map(from_bytes, series) if one]
        return min(found)

    def _results(
        self, counts: Ints, sums: Sequence[Ints | Objects], not_finite: Ints, zeros: int = 0
    ) -> pl.Series:
        parts = [_parts(kind, zeros) for kind in self.columns.values()]
        of = zip(*(one.tolist() for one in sums), strict=True)
        rows = zip(counts.tolist(), of, not_finite.tolist(), strict=True)
        results = [self.of_sums(count, one, parts, strange) for count, one, strange in rows]
        return pl.Series(results, dtype=self.result)


@dataclass(frozen=True)
class OfOne(OfPowers):
    """An aggregate of one column."""

    column: str
    of: pl.DataType
    """The column, and its dtype."""

    @property
    def columns(self) -> dict[str, pl.DataType]:
        return {self.column: self.of}


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
class OfPairs(OfPowers):
    """A statistic of two columns, both of which are null where one is."""

    name: str
    """Which one."""
    y: str
    of_y: pl.DataType
    x: str
    of_x: pl.DataType
    """The columns, and their dtypes."""

    powers: ClassVar = {"y": (1, 0), "x": (0, 1), "yy": (2, 0), "xx": (0, 2), "yx": (1, 1)}

    @property
    def columns(self) -> dict[str, pl.DataType]:
        return {self.y: self.of_y, self.x: self.of_x}

    def of_sums(self, count: int, sums: Sequence[int], parts: Sequence[int], not_finite: int) -> float | None:
        if count < (2 if self.name in {"covar_samp", "corr"} else 1):
            return None
        (y, x, yy, xx, yx), (of_y, of_x) = sums, parts
        of_all = _Deviations(count * yy - y * y, count * xx - x * x, count * yx - y * x)
        # With Kafka Streams' defects a value may be taken away that is not there.
        if not_finite > 0 or min(of_all.y, of_all.x) < 0:
            return math.nan
        if self.name in _DIVISORS:
            return divided(of_all.both, count * _DIVISORS[self.name](count) * of_y * of_x)
        if not of_all.x or (not of_all.y and self.name == "corr"):
            return None
        return {
            "corr": lambda: signed_root(of_all.both**2, of_all.y * of_all.x, of_all.both),
            "regr_slope": lambda: divided(of_all.both * of_x, of_all.x * of_y),
            "regr_intercept": lambda: divided(y * of_all.x - of_all.both * x, count * of_all.x * of_y),
            "regr_r2": lambda: divided(of_all.both**2, of_all.y * of_all.x) if of_all.y else 1.0,
        }[self.name]()


class _Deviations(NamedTuple):
    """The sums of the squares of deviations from the means, and of their products; each times the number of pairs."""

    y: int
    x: int
    both: int


#: By what the sum of the products of deviations is divided.
_DIVISORS: dict[str, Callable[[int], int]] = {
    "covar_pop": lambda count: count,
    "covar_samp": lambda count: count - 1,
    "regr_sxy": lambda _: 1,
}


@dataclass(frozen=True)
class Deviations(OfOne):
    """The sum of the squares of a column's deviations from its mean."""

    powers: ClassVar = {"total": (1,), "squares": (2,)}

    def of_sums(self, count: int, sums: Sequence[int], parts: Sequence[int], not_finite: int) -> float | None:
        total, squares = sums
        if count <= 0:
            return None
        return math.nan if not_finite > 0 else divided(count * squares - total * total, count * parts[0] ** 2)


def root(numerator: int, denominator: int) -> float:
    """The root of a quotient, which may itself be too large for a float, or too small."""
    half = (numerator.bit_length() - denominator.bit_length()) // 2
    up, down = max(-2 * half, 0), max(2 * half, 0)
    try:
        return math.ldexp(math.sqrt((numerator << up) / (denominator << down)), half)
    except OverflowError:
        return math.inf


def signed_root(numerator: int, denominator: int, sign: int) -> float:
    """The root of a quotient, with the sign of a number."""
    found = root(numerator, denominator)
    return -found if sign < 0 else found


def _is_there(rows: Sequence[pl.Series]) -> pl.Series:
    return rows[0].is_not_null()


def _is_strange(rows: Sequence[pl.Series]) -> pl.Series:
    strange = [~one.is_finite() for one in rows if one.dtype.is_float()]
    none = pl.zeros(len(rows[0]), pl.Boolean, eager=True)
    return pl.select(pl.any_horizontal(none, *strange)).to_series().fill_null(value=False)


def _moved(
    new: Sequence[pl.Series], old: Sequence[pl.Series], which: Callable[[Sequence[pl.Series]], pl.Series]
) -> Ints:
    """How each message changes the number of certain rows."""
    return np.asarray(ints(which(new)) - ints(which(old)))


def _product(columns: Sequence[Any], powers: Sequence[int]) -> Any:
    return math.prod(one**power for one, power in zip(columns, powers, strict=True) if power)


def _parts(kind: pl.DataType, zeros: int) -> int:
    """How many parts a whole has, in which numbers are counted."""
    if kind.is_float():
        return 1 << (FLOAT_BITS - zeros)
    return 10**kind.scale if isinstance(kind, pl.Decimal) else 1


def _known(base: pl.Series, zeros: int = 0) -> Any:
    return np.array([from_bytes(one) >> zeros for one in base], dtype=object)


def _kept(totals: Ints | Objects, zeros: int) -> pl.Series:
    return pl.Series([to_bytes(one, zeros) for one in totals.tolist()], dtype=pl.Binary)
