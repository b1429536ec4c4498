"""Statistics of pairs of numbers: the covariance, the correlation and the regression of ``y`` on ``x``.

======================  ===========================================================================
function                result; n pairs, of which no number is null
======================  ===========================================================================
``covar_pop``           null for no pairs
``covar_samp``          of a sample; null for less than two pairs
``regr_sxy``            the sum of the products of deviations; null for no pairs
``Deviations``          ``regr_sxx``, ``regr_syy``: the sum of their squares; null for no pairs
``corr``                null for less than two pairs, and where all x or all y are equal
``regr_slope``          null where all x are equal
``regr_intercept``      the same
``regr_r2``             the same; 1 where all y are equal
======================  ===========================================================================

A pair with a NaN or an infinity makes it NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import polars as pl

from tablestream.operators.reduce.powers import OfOne, OfPowers, signed_root
from tablestream.operators.reduce.totals import divided


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
