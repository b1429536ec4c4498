"""Running totals: a row's part is added when the row is added, and subtracted when it is removed.

Totals are exact integers, of any size if needed: a decimal is its unscaled number, a float a multiple of the
smallest float there is. So removing a row leaves no residue, and the order of changes does not matter. `exact_floats`
adds floats column by column, unless their sizes differ too much.

======================  ======================================  =============================================
function                remembered                              result
======================  ======================================  =============================================
``Count()``             --                                      rows of the group
``Count(column)``       rows where it is not null               the same
``Sum``, ``Average``    rows where it is not null, their        null without such rows; NaN and infinities as
.                       total, and of floats how many are       in floating-point arithmetic
.                       NaN, infinite, negative infinite
======================  ======================================  =============================================

An emitted result that does not fit its type is an error, as in Spark's ANSI mode. Totals in between may be of any
size.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from tablestream.base.data_text import cut_text
from tablestream.errors import TotalOverflowError
from tablestream.operators.events import ints
from tablestream.operators.reduce.exact_floats import Limbs, Scaled, summed
from tablestream.operators.reduce.groups import GroupEvents
from tablestream.operators.reduce.user_values import type_name
from tablestream.state.positions import Ints

Objects = npt.NDArray[np.object_]

#: Floats are multiples of 2 to the power of minus this.
FLOAT_BITS = 1074
_SAFE = float(1 << 62)
#: The first number beyond 64 bits.
_LIMIT = 1 << 63
_EXACT = Context(prec=80, rounding=ROUND_HALF_UP)


@dataclass(frozen=True)
class Totals:
    """What a function computed: its result at some messages, and what to remember of each group."""

    result: pl.Series
    state: list[pl.Series]


class Function(ABC):
    """An aggregate of one column, or of none, kept as running totals."""

    @property
    @abstractmethod
    def result(self) -> pl.DataType:
        """The dtype of the result."""

    @property
    @abstractmethod
    def state(self) -> dict[str, pl.DataType]:
        """The dtypes of what is remembered of a group, beside its number of rows."""

    @abstractmethod
    def run(self, events: GroupEvents, base: Sequence[pl.Series], shown: Ints) -> Totals:
        """Process all messages.

        `events`: the messages. `base`: what was remembered, in the columns of `state`. `shown`: the messages for which
        results are wanted.
        """

    @abstractmethod
    def recalled(self, rows: pl.Series, base: Sequence[pl.Series]) -> pl.Series:
        """Return the remembered results of groups.

        `rows`: how many rows each group has. `base`: what is remembered of each, in the columns of `state`.
        """


@dataclass(frozen=True)
class Count(Function):
    """Count rows, or those in which a column is not null."""

    column: str | None = None

    @property
    def result(self) -> pl.DataType:
        return pl.Int64()

    @property
    def state(self) -> dict[str, pl.DataType]:
        return {} if self.column is None else {"count": pl.Int64()}

    def run(self, events: GroupEvents, base: Sequence[pl.Series], shown: Ints) -> Totals:
        if self.column is None:
            return Totals(pl.Series(events.rows[shown], dtype=pl.Int64), [])
        counts = events.running(present(events, self.column), ints(base[0].fill_null(0)))
        return Totals(
            pl.Series(counts[shown], dtype=pl.Int64), [pl.Series(counts[events.last], dtype=pl.Int64)]
        )

    def recalled(self, rows: pl.Series, base: Sequence[pl.Series]) -> pl.Series:
        return rows if self.column is None else base[0]


@dataclass(frozen=True)
class Sum(Function):
    """The sum of a column or, with `average`, its mean."""

    column: str
    of: pl.DataType
    """Its dtype."""
    into: pl.DataType
    """The dtype of the result, as in Spark."""
    average: bool = False
    """Whether to return the average."""
    name: str = ""
    """What users call the result."""

    @property
    def result(self) -> pl.DataType:
        return self.into

    @property
    def state(self) -> dict[str, pl.DataType]:
        special = (
            dict.fromkeys(("nan", "infinite", "minus_infinite"), pl.Int64()) if self.of.is_float() else {}
        )
        total: dict[str, pl.DataType] = (
            {"total": pl.Int64()} if self._is_bounded else {"exact_total": pl.Binary()}
        )
        return {"count": pl.Int64(), **total, **special}

    @property
    def _is_bounded(self) -> bool:
        """Whether the remembered total is the result itself, and fits 64 bits."""
        return self._is_whole and not self.average

    @property
    def _is_whole(self) -> bool:
        """Whether values are whole numbers of 64 bits: integers, or the microseconds of intervals."""
        return self.of.is_integer() or isinstance(self.of, pl.Duration)

    def run(self, events: GroupEvents, base: Sequence[pl.Series], shown: Ints) -> Totals:
        counts = events.running(present(events, self.column), ints(base[0].fill_null(0)))
        limbs = self._limbs(events, base[1]) if self.of.is_float() else None
        if limbs is not None:
            values, total = self._rounded(limbs.at(shown), counts[shown]), _kept(limbs.at(events.last))
        else:
            totals = self._totals(events, base[1])
            found = self._values(totals[shown], counts[shown])
            if totals.dtype == object and not self.into.is_float():
                self._check(found, events, shown)
            values, total = self._results(found), self._kept(totals[events.last])
        specials = self._specials(events, base[2:])
        state = [pl.Series(counts[events.last], dtype=pl.Int64), total]
        state += [pl.Series(special[events.last], dtype=pl.Int64) for special in specials]
        return Totals(_with_specials(values, [special[shown] for special in specials]), state)

    def recalled(self, rows: pl.Series, base: Sequence[pl.Series]) -> pl.Series:  # noqa: ARG002
        values = self._values(self._known(base[1]), ints(base[0]))
        return _with_specials(self._results(values), [ints(special) for special in base[2:]])

    def _results(self, values: Sequence[Any]) -> pl.Series:
        """Results as a column; of intervals they are given in microseconds."""
        if isinstance(self.into, pl.Duration):
            return pl.Series(values, dtype=pl.Int64, strict=True).cast(self.into)
        return pl.Series(values, dtype=self.into, strict=True)

    def _specials(self, events: GroupEvents, base: Sequence[pl.Series]) -> list[Ints]:
        """How many values are NaN, infinite and negative infinite after each message; of floats only."""
        known = [ints(one.fill_null(0)) for one in base]
        if known and all(one(self.column).is_finite().all() for one in (events.old, events.new)):
            return [counts[events.group] for counts in known]
        changes = (moves(events, self.column, which) for which in _SPECIALS[: len(known)])
        return [events.running(*pair) for pair in zip(changes, known, strict=True)]

    def _limbs(self, events: GroupEvents, base: pl.Series) -> Limbs | None:
        """The total of floats after each message; None if their sizes differ too much."""
        known = [_scaled(one) for one in base]
        return summed(events, events.new(self.column), events.old(self.column), known)

    def _rounded(self, totals: Limbs, counts: Ints) -> pl.Series:
        """The results from totals of floats."""
        if self.average:
            up, down = max(totals.exponent, 0), max(-totals.exponent, 0)
            pairs = zip(totals.numbers(), counts.tolist(), strict=True)
            means = [divided(total << up, count << down) if count else None for total, count in pairs]
            return pl.Series(means, dtype=self.into)
        found = pl.Series(totals.floats()).zip_with(
            pl.Series(counts != 0), pl.Series([None], dtype=pl.Float64)
        )
        return found.cast(self.into)

    def _values(self, totals: Ints | Objects, counts: Ints) -> list[Any]:
        """The results from totals in units, whether or not they fit."""
        return [
            self._value(total, count) for total, count in zip(totals.tolist(), counts.tolist(), strict=True)
        ]

    def _totals(self, events: GroupEvents, base: pl.Series) -> Ints | Objects:
        """The total after each message, in units."""
        known = self._known(base)
        new, old = units(events.new(self.column)), units(events.old(self.column))
        if self._is_whole:
            if _size(new).sum() + _size(old).sum() + _size(known).max(initial=0.0) < _SAFE:
                return events.running(new - old, known.astype(np.int64))
            new, old, known = (one.astype(object) for one in (new, old, known))
        return events.running(new - old, known)

    def _known(self, base: pl.Series) -> Any:
        """The remembered total of each group, in units."""
        if self._is_bounded:
            return ints(base.fill_null(0))
        return np.array([from_bytes(one) for one in base], dtype=object)

    def _kept(self, totals: Ints | Objects) -> pl.Series:
        """Totals in the form in which they are remembered."""
        if self._is_bounded:
            return pl.Series([int(total) for total in totals], dtype=pl.Int64, strict=True)
        return pl.Series([to_bytes(int(total)) for total in totals], dtype=pl.Binary)

    def _value(self, total: int, count: int) -> Any:
        """The result from a total in units."""
        if not count:
            return None
        if self.of.is_float():
            return divided(total, (count if self.average else 1) << FLOAT_BITS)
        if isinstance(self.of, pl.Decimal):
            value = _EXACT.scaleb(Decimal(total), -self.of.scale)
            into = self.into
            assert isinstance(into, pl.Decimal)  # noqa: S101 - Spark's averages and sums of decimals are such
            value = _EXACT.divide(value, Decimal(count)) if self.average else value
            return _EXACT.quantize(value, Decimal(1).scaleb(-into.scale))
        if self.average and isinstance(self.into, pl.Duration):
            return int(_EXACT.quantize(_EXACT.divide(Decimal(total), Decimal(count)), Decimal(1)))
        return divided(total, count) if self.average else total

    def _check(self, values: Sequence[Any], events: GroupEvents, shown: Ints) -> None:
        """Raise for results that do not fit their type."""
        for at, value in zip(shown.tolist(), values, strict=True):
            if value is None or self._fits(value):
                continue
            what, group = "average" if self.average else "sum", events.group_shown(at)
            wide = "decimal(38,0)" if self._is_whole else "double"
            raise TotalOverflowError(
                f"The {what} in column '{self.name}' of the group {group} is {cut_text(str(value))}, which does not fit"
                f" {type_name(self.into)}.",
                hint=f"Cast the column before it is aggregated, for instance to {wide}.",
            )

    def _fits(self, value: Any) -> bool:
        if isinstance(self.into, pl.Decimal):
            return bool(value.adjusted() < self.into.precision - self.into.scale)
        return bool(-_LIMIT <= value < _LIMIT)


def _size(numbers: Ints | Objects) -> npt.NDArray[np.float64]:
    """About how large numbers are, whatever their sign."""
    return np.abs(numbers.astype(np.float64))


def divided(total: int, by: int) -> float:
    """Return the nearest float, infinite if it is too large."""
    try:
        return total / by
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def present(events: GroupEvents, column: str) -> Ints:
    """How each message changes the number of values that are not null."""
    return moves(events, column, lambda values: values.is_not_null())


def moves(events: GroupEvents, column: str, which: Callable[[pl.Series], pl.Series]) -> Ints:
    """How each message changes the number of certain values."""
    new, old = (ints(which(one(column)).fill_null(value=False)) for one in (events.new, events.old))
    return np.asarray(new - old)


_SPECIALS: tuple[Callable[[pl.Series], pl.Series], ...] = (
    lambda values: values.is_nan(),
    lambda values: values == math.inf,
    lambda values: values == -math.inf,
)


def _with_specials(result: pl.Series, specials: Sequence[Ints]) -> pl.Series:
    """Replace sums that include NaN or infinities."""
    if not specials or not any(special.any() for special in specials):
        return result
    nan, plus, minus = (pl.lit(pl.Series(special > 0)) for special in specials)
    return pl.select(
        pl.when(nan | (plus & minus))
        .then(math.nan)
        .when(plus)
        .then(math.inf)
        .when(minus)
        .then(-math.inf)
        .otherwise(pl.lit(result))
        .cast(result.dtype)
    ).to_series()


def units(values: pl.Series, zeros: int = 0) -> Any:
    """Values as whole numbers of the column's unit; 0 for null, NaN and infinities.

    `zeros`: how many last bits of floats to leave out, which are 0.
    """
    if isinstance(values.dtype, pl.Duration):
        values = values.cast(pl.Int64)
    if values.dtype.is_integer():
        return ints(values.fill_null(0))
    if values.dtype.is_float():
        finite = values.cast(pl.Float64).fill_null(0.0)
        return np.array([_float_units(one, zeros) for one in finite.to_list()], dtype=object)
    scale = values.dtype.scale if isinstance(values.dtype, pl.Decimal) else 0
    return np.array(
        [0 if one is None else int(one.scaleb(scale, _EXACT)) for one in values.to_list()], dtype=object
    )


def _float_units(value: float, zeros: int) -> int:
    if not value or not math.isfinite(value):
        return 0
    mantissa, exponent = math.frexp(value)
    shift = exponent - 53 + FLOAT_BITS - zeros
    whole = int(mantissa * (1 << 53))
    return whole << shift if shift >= 0 else whole >> -shift


def _kept(totals: Limbs) -> pl.Series:
    """Totals of floats in the form in which they are remembered."""
    unit = totals.exponent + FLOAT_BITS
    return pl.Series([to_bytes(total, unit) for total in totals.numbers()], dtype=pl.Binary)


def to_bytes(total: int, unit: int = 0) -> bytes:
    """A number in units of 2 to the power of `unit`, as its power of two (2 bytes) and the remaining factor."""
    zeros = (total & -total).bit_length() - 1 if total else 0
    rest = total >> zeros
    shift = zeros + unit if total else 0
    return shift.to_bytes(2, "big") + rest.to_bytes(rest.bit_length() // 8 + 1, "big", signed=True)


def from_bytes(data: bytes | None) -> int:
    """The number that `to_bytes` wrote; 0 if there is none."""
    if data is None:
        return 0
    return int.from_bytes(data[2:], "big", signed=True) << int.from_bytes(data[:2], "big")


def _scaled(data: bytes | None) -> Scaled:
    """A remembered total of floats as a whole number, and the power of two that it is a multiple of."""
    if data is None:
        return 0, 0
    return int.from_bytes(data[2:], "big", signed=True), int.from_bytes(data[:2], "big") - FLOAT_BITS
