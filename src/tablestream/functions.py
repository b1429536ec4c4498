"""What `GroupedTable.agg` computes of each group: Spark's aggregates, by their names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from tablestream.calling import user_line
from tablestream.errors import ArgumentError


@dataclass(frozen=True)
class AggregateFunction:
    """An aggregate to be computed of every group; the functions of this module make it.

    Attributes
    ----------
    name
        Of Spark's function.
    column
        What it is of: a Column, or a string as everywhere; none: rows.
    parameter
        Of an approximate one, how good it is or what it asks for; the others have none.
    """

    name: str
    column: Column | str | None
    parameter: float | None = None


def count(column: str | Column | None = None) -> AggregateFunction:
    """Count rows, or those in which a column is not null: ``bigint``.

    Examples
    --------
    >>> count().name
    'count'
    """
    return AggregateFunction("count", None if column is None else _column(column))


def sum(column: str | Column) -> AggregateFunction:  # noqa: A001 - Spark's name
    """Add up the values that are not null; null if there are none. Types as Spark's ``sum``.

    Sums are exact: a row that leaves takes away what it brought, floats included. A sum of integers beyond 64
    bits ends the query.
    """
    return AggregateFunction("sum", _column(column))


def avg(column: str | Column) -> AggregateFunction:
    """Average the values that are not null; null if there are none. Types as Spark's ``avg``."""
    return AggregateFunction("avg", _column(column))


def min(column: str | Column) -> AggregateFunction:  # noqa: A001 - Spark's name
    """The least value that is not null."""
    return AggregateFunction("min", _column(column))


def max(column: str | Column) -> AggregateFunction:  # noqa: A001 - Spark's name
    """The greatest value that is not null."""
    return AggregateFunction("max", _column(column))


def first(column: str | Column) -> AggregateFunction:
    """The value of the row that came first, also if it is null; a row that changes comes anew."""
    return AggregateFunction("first", _column(column))


def last(column: str | Column) -> AggregateFunction:
    """The value of the row that came last, also if it is null."""
    return AggregateFunction("last", _column(column))


def collect_list(column: str | Column) -> AggregateFunction:
    """The values that are not null, in the order in which their rows came. Reads all rows of a group that changes."""
    return AggregateFunction("collect_list", _column(column))


def collect_set(column: str | Column) -> AggregateFunction:
    """The different values that are not null, as they came. Reads all rows of a group that changes."""
    return AggregateFunction("collect_set", _column(column))


def count_distinct(column: str | Column) -> AggregateFunction:
    """How many different values that are not null: ``bigint``."""
    return AggregateFunction("count_distinct", _column(column))


def approx_count_distinct(column: str | Column, rsd: float = 0.05) -> AggregateFunction:
    """Estimate how many different values that are not null: ``bigint``. For streams only.

    Parameters
    ----------
    column
        What it is of.
    rsd
        The relative standard deviation of the estimate, from 0.001 to 0.4.

    Raises
    ------
    ArgumentError
        The deviation is out of range.
    """
    if not 0.001 <= rsd <= 0.4:
        raise ArgumentError(
            f"rsd={rsd!r} is no deviation that can be had.", hint="From 0.001 to 0.4.", where=user_line()
        )
    return AggregateFunction("approx_count_distinct", _column(column), rsd)


def approx_percentile(column: str | Column, percentage: float) -> AggregateFunction:
    """Estimate the value below which a share of the values lies: ``double``, null if there are none.

    For streams only, by a t-digest. Between values it interpolates.

    Parameters
    ----------
    column
        What it is of: numbers.
    percentage
        The share, from 0 to 1.

    Raises
    ------
    ArgumentError
        The share is out of range.
    """
    if not 0 <= percentage <= 1:
        raise ArgumentError(
            f"percentage={percentage!r} is no share.", hint="Give 0.5 for the median.", where=user_line()
        )
    return AggregateFunction("approx_percentile", _column(column), percentage)


def _percentile(column: Column) -> Column:
    return F.percentile_approx(column.cast("double"), 0.5)


#: Spark's function of each name, which tells the type of the result.
SPARK: dict[str, Callable[..., Column]] = {
    "count": F.count,
    "sum": F.sum,
    "avg": F.avg,
    "min": F.min,
    "max": F.max,
    "first": F.first,
    "last": F.last,
    "collect_list": F.collect_list,
    "collect_set": F.collect_set,
    "count_distinct": F.count_distinct,
    "approx_count_distinct": F.approx_count_distinct,
    "approx_percentile": _percentile,
}


def _column(given: str | Column) -> str | Column:
    if isinstance(given, str | Column):
        return given
    raise ArgumentError(
        f"{given!r} is not a column.", hint="Give a name, an SQL expression or a Column.", where=user_line()
    )
