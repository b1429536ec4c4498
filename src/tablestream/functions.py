"""The aggregates for `GroupedTable.agg` and `GroupedStream.agg`, named like Spark's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from tablestream.calling import user_line
from tablestream.errors import ArgumentError


@dataclass(frozen=True)
class AggregateFunction:
    """An aggregate of each group, made by the functions of this module.

    Attributes
    ----------
    name
        The name of Spark's function.
    column
        The aggregated column: a Column or a string. None: rows.
    parameter
        For approximate aggregates, the precision or the percentage; otherwise None.
    """

    name: str
    column: Column | str | None
    parameter: float | None = None


def count(column: str | Column | None = None) -> AggregateFunction:
    """Count rows, or the rows in which a column is not null: ``bigint``.

    Examples
    --------
    >>> count().name
    'count'
    """
    return AggregateFunction("count", None if column is None else _column(column))


def sum(column: str | Column) -> AggregateFunction:  # noqa: A001 - Spark's name
    """Add up the values that are not null; null if there are none. Result types as in Spark's ``sum``.

    Sums are exact: removing a row subtracts exactly what it added, also for floats. A sum of integers beyond 64
    bits ends the query.
    """
    return AggregateFunction("sum", _column(column))


def avg(column: str | Column) -> AggregateFunction:
    """Average the values that are not null; null if there are none. Result types as in Spark's ``avg``."""
    return AggregateFunction("avg", _column(column))


def min(column: str | Column) -> AggregateFunction:  # noqa: A001 - Spark's name
    """The smallest value that is not null."""
    return AggregateFunction("min", _column(column))


def max(column: str | Column) -> AggregateFunction:  # noqa: A001 - Spark's name
    """The largest value that is not null."""
    return AggregateFunction("max", _column(column))


def first(column: str | Column) -> AggregateFunction:
    """The value of the row that arrived first, also if it is null. A changed row arrives anew."""
    return AggregateFunction("first", _column(column))


def last(column: str | Column) -> AggregateFunction:
    """The value of the row that arrived last, also if it is null."""
    return AggregateFunction("last", _column(column))


def collect_list(column: str | Column) -> AggregateFunction:
    """The values that are not null, in the order in which their rows arrived.

    Reads all rows of a group whenever it changes.
    """
    return AggregateFunction("collect_list", _column(column))


def collect_set(column: str | Column) -> AggregateFunction:
    """The distinct values that are not null, in the order in which they arrived.

    Reads all rows of a group whenever it changes.
    """
    return AggregateFunction("collect_set", _column(column))


def count_distinct(column: str | Column) -> AggregateFunction:
    """Count the distinct values that are not null: ``bigint``."""
    return AggregateFunction("count_distinct", _column(column))


def approx_count_distinct(column: str | Column, rsd: float = 0.05) -> AggregateFunction:
    """Estimate the number of distinct values that are not null: ``bigint``. For streams only.

    Parameters
    ----------
    column
        The column.
    rsd
        The relative standard deviation of the estimate, from 0.001 to 0.4.

    Raises
    ------
    ArgumentError
        `rsd` is out of range.
    """
    if not 0.001 <= rsd <= 0.4:
        raise ArgumentError(
            f"rsd={rsd!r} is out of range.", hint="Give a number between 0.001 and 0.4.", where=user_line()
        )
    return AggregateFunction("approx_count_distinct", _column(column), rsd)


def approx_percentile(column: str | Column, percentage: float) -> AggregateFunction:
    """Estimate a percentile: ``double``, null if there are no values. For streams only.

    Uses a t-digest, and interpolates between values.

    Parameters
    ----------
    column
        A column of numbers.
    percentage
        The percentile, from 0 to 1; 0.5 is the median.

    Raises
    ------
    ArgumentError
        `percentage` is out of range.
    """
    if not 0 <= percentage <= 1:
        raise ArgumentError(
            f"percentage={percentage!r} is not between 0 and 1.",
            hint="Give 0.5 for the median.",
            where=user_line(),
        )
    return AggregateFunction("approx_percentile", _column(column), percentage)


def _percentile(column: Column) -> Column:
    return F.percentile_approx(column.cast("double"), 0.5)


#: Spark's function of each name; the plan takes the result type from it.
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
