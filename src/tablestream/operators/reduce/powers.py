"""Exact sums of powers of numbers, and of products of several columns, from which statistics follow.

Sums are whole numbers of any size, see `totals`, so a value that is removed leaves no residue. A row in which a column
is null adds nothing. NaN and infinities are counted, and add nothing to sums.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl

from tablestream.operators.events import ints
from tablestream.operators.reduce.groups import GroupEvents
from tablestream.operators.reduce.totals import (
    FLOAT_BITS,
    Function,
    Objects,
    Totals,
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
