"""What `GroupedTable.agg` computes of each group: Spark's aggregates, by their names."""

from __future__ import annotations

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
        What it is of; none: rows.
    """

    name: str
    column: Column | None


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
    """The least value that is not null. Costs reading the group's rows when it changes."""
    return AggregateFunction("min", _column(column))


def max(column: str | Column) -> AggregateFunction:  # noqa: A001 - Spark's name
    """The greatest value that is not null. Costs reading the group's rows when it changes."""
    return AggregateFunction("max", _column(column))


def first(column: str | Column) -> AggregateFunction:
    """The value of the row that came first, also if it is null; a row that changes comes anew."""
    return AggregateFunction("first", _column(column))


def last(column: str | Column) -> AggregateFunction:
    """The value of the row that came last, also if it is null."""
    return AggregateFunction("last", _column(column))


def collect_list(column: str | Column) -> AggregateFunction:
    """The values that are not null, in the order in which their rows came."""
    return AggregateFunction("collect_list", _column(column))


def collect_set(column: str | Column) -> AggregateFunction:
    """The different values that are not null, in the order in which they came."""
    return AggregateFunction("collect_set", _column(column))


def count_distinct(column: str | Column) -> AggregateFunction:
    """How many different values that are not null: ``bigint``."""
    return AggregateFunction("count_distinct", _column(column))


#: Spark's function of each name, which tells the type of the result.
SPARK = {
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
}


def _column(given: str | Column) -> Column:
    if isinstance(given, str):
        return F.expr(given)
    if isinstance(given, Column):
        return given
    raise ArgumentError(
        f"{given!r} is not a column.", hint="Give a name, an SQL expression or a Column.", where=user_line()
    )
