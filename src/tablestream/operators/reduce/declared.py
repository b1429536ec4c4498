"""The declared aggregates by name: what each takes, and what computes it over rows, and over records.

Rows of a table can be taken back; records of a stream cannot, so some aggregates remember less of them. A new aggregate
is a class, an entry here, and a function in `tablestream.functions`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import polars as pl

from tablestream.operators.reduce.accumulated import Accumulated
from tablestream.operators.reduce.aggregate import AnyFunction
from tablestream.operators.reduce.bits import AllOrAny, Bits
from tablestream.operators.reduce.collected import Collected, Kind
from tablestream.operators.reduce.counted import CountDistinct
from tablestream.operators.reduce.own import Anew, Subtracting
from tablestream.operators.reduce.powers import Deviations, Kurtosis, OfPairs, Skewness, Variance
from tablestream.operators.reduce.ranked_counts import Mode, Percentile
from tablestream.operators.reduce.totals import Count, Sum


class Takes(Enum):
    """Which types an aggregate takes."""

    ANY = "every type"
    COMPARED = "every type, which it compares by its bytes"
    ORDERED = "all types but arrays, maps and binary"
    NUMBERS = "numbers"
    SUMS = "numbers and intervals of days"
    BOOLEANS = "booleans"
    TEXTS = "strings"


@dataclass(frozen=True)
class Use:
    """An aggregate that was asked for."""

    name: str
    """What users call the result."""
    column: str
    of: pl.DataType
    """The aggregated column, and its dtype."""
    result: pl.DataType
    """The dtype of the result, which is that of Spark's function."""
    by: str | None = None
    of_by: pl.DataType | None = None
    descending: bool = False
    """The column that orders the rows, if there is one, its dtype, and whether the greatest comes first."""
    parameter: float | str | None = None
    """A share, a precision or a delimiter."""
    own: Any = None
    state: pl.DataType | None = None
    """The user's aggregate, and the dtype of its state."""


_Make = Callable[[Use], AnyFunction]


@dataclass(frozen=True)
class Declared:
    """A declared aggregate."""

    takes: Takes
    """The types of its column."""
    over_rows: _Make | None
    over_records: _Make
    """What computes it, of a table, and of a stream; None: it is not there for tables."""
    sees_order: bool = False
    """Whether a row that is written again, as it is, can change the result."""
    of_pairs: bool = False
    """Whether it is of the rows in which two columns are not null, which both are of the types that it takes."""


def _always(make: _Make, takes: Takes) -> Declared:
    return Declared(takes, make, make)


def _of_rows(kind: Kind, takes: Takes, *, sees_order: bool = True) -> Declared:
    def rows(use: Use) -> Collected:
        return Collected(kind, use.column, use.result, use.by, use.descending, str(use.parameter or ""))

    return Declared(takes, rows, lambda use: Accumulated(rows(use), use.of, use.of_by), sees_order)


def _variance(*, population: bool, root: bool) -> Declared:
    return _always(lambda use: Variance(use.column, use.of, population, root), Takes.NUMBERS)


def _of_pairs(make: _Make) -> Declared:
    return replace(_always(make, Takes.NUMBERS), of_pairs=True)


def _pairs(name: str) -> Declared:
    return _of_pairs(lambda use: OfPairs(name, use.column, use.of, *_of_x(use)))


def _of_x(use: Use) -> tuple[str, pl.DataType]:
    """The second column of pairs, and its dtype."""
    assert use.by is not None and use.of_by is not None  # noqa: S101, PT018 - pairs have one
    return use.by, use.of_by


def _bits(name: str) -> Declared:
    return _always(lambda use: Bits(name, use.column, use.of), Takes.NUMBERS)


def _estimate(name: str, takes: Takes) -> Declared:
    def sketched(use: Use) -> AnyFunction:
        # The library of sketches is an extra: only plans with a sketch need it.
        from tablestream.operators.reduce.sketched import Sketch, Sketched

        return Sketched(Sketch(name), use.column, float(use.parameter or 0), use.result)

    return Declared(takes, None, sketched)


def _own(kind: type[Subtracting | Anew]) -> _Make:
    return lambda use: kind(use.column, use.of, use.result, use.state or pl.Null(), use.name, use.own)


AGGREGATES: dict[str, Declared] = {
    "count": _always(lambda use: Count(use.column), Takes.ANY),
    "sum": _always(lambda use: Sum(use.column, use.of, use.result, name=use.name), Takes.SUMS),
    "avg": _always(lambda use: Sum(use.column, use.of, use.result, average=True, name=use.name), Takes.SUMS),
    "var_samp": _variance(population=False, root=False),
    "var_pop": _variance(population=True, root=False),
    "stddev_samp": _variance(population=False, root=True),
    "stddev_pop": _variance(population=True, root=True),
    "skewness": _always(lambda use: Skewness(use.column, use.of), Takes.NUMBERS),
    "kurtosis": _always(lambda use: Kurtosis(use.column, use.of), Takes.NUMBERS),
    **{name: _pairs(name) for name in ("covar_pop", "covar_samp", "corr", "regr_sxy")},
    **{name: _pairs(name) for name in ("regr_slope", "regr_intercept", "regr_r2")},
    "regr_count": _of_pairs(lambda use: Count(use.column)),
    "regr_avgy": _of_pairs(lambda use: Sum(use.column, use.of, use.result, average=True, name=use.name)),
    "regr_avgx": _of_pairs(lambda use: Sum(*_of_x(use), use.result, average=True, name=use.name)),
    "regr_syy": _of_pairs(lambda use: Deviations(use.column, use.of)),
    "regr_sxx": _of_pairs(lambda use: Deviations(*_of_x(use))),
    **{name: _bits(name) for name in ("bit_and", "bit_or", "bit_xor")},
    "bool_and": _always(lambda use: AllOrAny(use.column, every=True), Takes.BOOLEANS),
    "bool_or": _always(lambda use: AllOrAny(use.column, every=False), Takes.BOOLEANS),
    "min": _of_rows(Kind.MIN, Takes.ORDERED, sees_order=False),
    "max": _of_rows(Kind.MAX, Takes.ORDERED, sees_order=False),
    "first": _of_rows(Kind.FIRST, Takes.ANY),
    "last": _of_rows(Kind.LAST, Takes.ANY),
    "collect_list": _of_rows(Kind.COLLECT_LIST, Takes.ANY),
    "collect_set": _of_rows(Kind.COLLECT_SET, Takes.COMPARED),
    "min_by": _of_rows(Kind.MIN_BY, Takes.ANY),
    "max_by": _of_rows(Kind.MAX_BY, Takes.ANY),
    "string_agg": _of_rows(Kind.STRING_AGG, Takes.TEXTS),
    "count_distinct": Declared(
        Takes.COMPARED,
        lambda use: CountDistinct(use.column, use.of),
        _of_rows(Kind.COUNT_DISTINCT, Takes.COMPARED).over_records,
    ),
    "mode": _always(lambda use: Mode(use.column, use.of), Takes.ORDERED),
    "percentile": _always(
        lambda use: Percentile(use.column, use.of, float(use.parameter or 0)), Takes.NUMBERS
    ),
    "approx_count_distinct": _estimate("approx_count_distinct", Takes.COMPARED),
    "approx_percentile": _estimate("approx_percentile", Takes.NUMBERS),
    "own": _always(_own(Subtracting), Takes.ANY),
    "own, anew": Declared(Takes.ANY, _own(Anew), _own(Subtracting)),
}
