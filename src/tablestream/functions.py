"""The aggregates for `GroupedTable.agg` and `GroupedStream.agg`, named like Spark's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Real
from typing import Any, ClassVar

from pyspark.sql import Column

from tablestream.arguments.kinds import flag
from tablestream.errors import ArgumentError
from tablestream.window_functions import (
    WindowFunction,
    cume_dist,
    dense_rank,
    first_value,
    lag,
    last_value,
    lead,
    named_column,
    nth_value,
    ntile,
    percent_rank,
    rank,
    row_number,
)

__all__ = [
    "AggregateFunction", "Aggregator", "WindowFunction", "any_value", "approx_count_distinct",
    "approx_percentile", "avg", "bit_and", "bit_or", "bit_xor", "bool_and", "bool_or", "collect_list",
    "collect_set", "corr", "count", "count_distinct", "count_if", "covar_pop", "covar_samp", "cume_dist",
    "dense_rank", "first", "first_value", "kurtosis", "lag", "last", "last_value", "lead", "max", "max_by",
    "median", "min", "min_by", "mode", "nth_value", "ntile", "percent_rank", "percentile", "rank", "regr_avgx",
    "regr_avgy", "regr_count", "regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy",
    "row_number", "skewness", "stddev", "stddev_pop", "stddev_samp", "string_agg", "sum", "var_pop", "var_samp",
    "variance",
]  # fmt: skip

#: The aggregates that do not ignore nulls.
_SEE_NULLS = ("first", "last")


class Aggregator(ABC):
    """An aggregate of your own: a class with a state that takes a group's values, which are not null, one by one.

    If it has `subtract`, a change of the group costs a call or two. If not, the state is made anew of all values of the
    group, in an order of their own, whenever it changes; groups of streams only ever add.

    Methods get and return Python's values, as those of `GroupedTable.aggregate` do; a struct is a dict. One that raises
    ends the query and names the group. A restarted plan is compared by the class's name, `version` and the types.

    Attributes
    ----------
    state, result
        The types of the state and of the result, as in ``"bigint"`` or ``"n bigint, total double"``.
    version
        Change it when you change what a method does.

    Examples
    --------
    >>> class Range(Aggregator):
    ...     state, result = "array<int>", "int"
    ...     def zero(self):
    ...         return []
    ...     def add(self, state, value):
    ...         return [min([value, *state]), max([value, *state])]
    ...     def finish(self, state):
    ...         return state[1] - state[0] if state else None
    >>> Range().of("price")
    Range().of('price')
    """

    state: ClassVar[str]
    result: ClassVar[str]
    version: ClassVar[str] = ""

    @abstractmethod
    def zero(self) -> Any:
        """Return the state of a group without values."""

    @abstractmethod
    def add(self, state: Any, value: Any, /) -> Any:
        """Return the state with a value more."""

    def subtract(self, state: Any, value: Any, /) -> Any:
        """Return the state with a value less, whichever was added. Optional."""
        raise NotImplementedError

    @abstractmethod
    def finish(self, state: Any, /) -> Any:
        """Return the result, also of a group whose values are all null: that of ``zero()``."""

    def of(self, column: str | Column) -> AggregateFunction:
        """Return the aggregate of a column, for ``agg``.

        Several columns are one struct, as in ``of("struct(price, quantity)")``.
        """
        subtracts = type(self).subtract is not Aggregator.subtract
        return AggregateFunction("own" if subtracts else "own, anew", named_column(column), own=self)

    @property
    def text(self) -> str:
        """The aggregate as plans describe it."""
        version = f" version {self.version}" if self.version else ""
        return f"{type(self).__qualname__}{version} with the state {self.state}"


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
        A percentage, a precision or a delimiter; None where there is none.
    by, descending
        The column that orders the rows, or the second one of pairs, if any, and whether the greatest comes first.
    own
        The aggregate, if it is the user's own.
    condition
        Which rows count: a Column or a string. None: all.
    """

    name: str
    column: Column | str | None
    parameter: float | str | None = None
    by: Column | str | None = None
    descending: bool = False
    own: Aggregator | None = None
    condition: Column | str | None = None

    def filter(self, condition: Column | str) -> AggregateFunction:
        """Aggregate only the rows for which a condition holds: SQL's ``FILTER (WHERE ...)``.

        Parameters
        ----------
        condition
            A Column or a string. Null counts as false.

        Raises
        ------
        ArgumentError
            It has a filter already, or it is `first` or `last`.

        Notes
        -----
        The other rows count as nulls, which these aggregates ignore. So ``first`` and ``last`` have no filter.

        Examples
        --------
        >>> count().filter("price > 100")
        count() filter 'price > 100'
        """
        if self.name in _SEE_NULLS:
            raise ArgumentError(
                f"{self.name}() has no filter: it does not ignore nulls.",
                hint="Filter the table before it is grouped, or use min_by or max_by.",
            )
        if self.condition is not None:
            raise ArgumentError(
                f"{self.name}() has a filter already.", hint="Write both conditions as one, with AND."
            )
        return replace(self, condition=named_column(condition))

    def __repr__(self) -> str:
        filtered = "" if self.condition is None else f" filter {self.condition!r}"
        if self.own is not None:
            return f"{type(self.own).__name__}().of({self.column!r}){filtered}"
        given = [one for one in (self.column, self.by, self.parameter) if one is not None]
        return f"{self.name}({', '.join(map(repr, given))}){filtered}"


def count(column: str | Column | None = None) -> AggregateFunction:
    """Count rows, or the rows in which a column is not null: ``bigint``.

    Examples
    --------
    >>> count().name
    'count'
    """
    return AggregateFunction("count", None if column is None else named_column(column))


def sum(column: str | Column) -> AggregateFunction:  # noqa: A001 - Spark's name
    """Add up the values that are not null; null if there are none. Result types as in Spark's ``sum``.

    Sums are exact: removing a row subtracts exactly what it added, also for floats. A sum of integers beyond 64
    bits ends the query.
    """
    return AggregateFunction("sum", named_column(column))


def avg(column: str | Column) -> AggregateFunction:
    """Average the values that are not null; null if there are none. Result types as in Spark's ``avg``."""
    return AggregateFunction("avg", named_column(column))


def min(column: str | Column) -> AggregateFunction:  # noqa: A001 - Spark's name
    """The smallest value that is not null."""
    return AggregateFunction("min", named_column(column))


def max(column: str | Column) -> AggregateFunction:  # noqa: A001 - Spark's name
    """The largest value that is not null."""
    return AggregateFunction("max", named_column(column))


def first(column: str | Column) -> AggregateFunction:
    """The value of the row that arrived first, also if it is null. A changed row arrives anew."""
    return AggregateFunction("first", named_column(column))


def last(column: str | Column) -> AggregateFunction:
    """The value of the row that arrived last, also if it is null."""
    return AggregateFunction("last", named_column(column))


def collect_list(column: str | Column) -> AggregateFunction:
    """The values that are not null, in the order in which their rows arrived.

    Reads all rows of a group whenever it changes.
    """
    return AggregateFunction("collect_list", named_column(column))


def collect_set(column: str | Column) -> AggregateFunction:
    """The distinct values that are not null, in the order in which they arrived.

    Reads all rows of a group whenever it changes.
    """
    return AggregateFunction("collect_set", named_column(column))


def count_distinct(column: str | Column) -> AggregateFunction:
    """Count the distinct values that are not null: ``bigint``."""
    return AggregateFunction("count_distinct", named_column(column))


def stddev(column: str | Column) -> AggregateFunction:
    """The standard deviation of a sample: ``double``, null for fewer than two values.

    Computed exactly from the values that are there, also after rows were removed; NaN if one is NaN or infinite.
    """
    return stddev_samp(column)


def stddev_samp(column: str | Column) -> AggregateFunction:
    """See `stddev`."""
    return AggregateFunction("stddev_samp", named_column(column))


def stddev_pop(column: str | Column) -> AggregateFunction:
    """The standard deviation of a population: ``double``, null if there are no values."""
    return AggregateFunction("stddev_pop", named_column(column))


def variance(column: str | Column) -> AggregateFunction:
    """The variance of a sample: ``double``, null for fewer than two values. Exact as `stddev` is."""
    return var_samp(column)


def var_samp(column: str | Column) -> AggregateFunction:
    """See `variance`."""
    return AggregateFunction("var_samp", named_column(column))


def var_pop(column: str | Column) -> AggregateFunction:
    """The variance of a population: ``double``, null if there are no values."""
    return AggregateFunction("var_pop", named_column(column))


def bool_and(column: str | Column) -> AggregateFunction:
    """Whether all values that are not null are true; null if there are none."""
    return AggregateFunction("bool_and", named_column(column))


def bool_or(column: str | Column) -> AggregateFunction:
    """Whether any value is true; null if all are null."""
    return AggregateFunction("bool_or", named_column(column))


def min_by(column: str | Column, by: str | Column) -> AggregateFunction:
    """The value of the row with the least `by` that is not null; of several such rows the first that arrived."""
    return AggregateFunction("min_by", named_column(column), by=named_column(by))


def max_by(column: str | Column, by: str | Column) -> AggregateFunction:
    """The value of the row with the greatest `by` that is not null; of several such rows the last that arrived.

    Examples
    --------
    >>> max_by("price", by="at").by
    'at'
    """
    return AggregateFunction("max_by", named_column(column), by=named_column(by))


def mode(column: str | Column) -> AggregateFunction:
    """The value that most rows have, of several such values the least; null if there are no values."""
    return AggregateFunction("mode", named_column(column))


def median(column: str | Column) -> AggregateFunction:
    """The exact median: ``double``, null if there are no values. See `percentile`."""
    return percentile(column, 0.5)


def percentile(column: str | Column, percentage: float) -> AggregateFunction:
    """An exact percentile, interpolated between two values as by Spark: ``double``, null if there are no values.

    Parameters
    ----------
    column
        A column of numbers. NaN is the greatest.
    percentage
        From 0 to 1; 0.5 is the median.

    Raises
    ------
    ArgumentError
        `percentage` is no number, or out of range.
    """
    return AggregateFunction("percentile", named_column(column), _share(percentage))


def string_agg(
    column: str | Column,
    delimiter: str = "",
    *,
    order_by: str | Column | None = None,
    descending: bool = False,
) -> AggregateFunction:
    """Join the texts that are not null; null if there are none.

    Reads all rows of a group whenever it changes.

    Parameters
    ----------
    column
        A column of strings.
    delimiter
        What stands between two texts.
    order_by
        What orders the texts; null comes last. Default: the order in which their rows arrived.
    descending
        Whether the greatest comes first.

    Raises
    ------
    ArgumentError
        `delimiter` is not a string, or `descending` is given without `order_by`.
    """
    if not isinstance(delimiter, str):
        raise ArgumentError(f"delimiter={delimiter!r} is not a string.", hint="Write delimiter=', '.")
    if flag(descending, "descending") and order_by is None:
        raise ArgumentError(
            "descending=True orders nothing: texts without order_by= stand in the order in which their rows arrived.",
            hint="Name what orders them, as in order_by='at'.",
        )
    by = None if order_by is None else named_column(order_by)
    return AggregateFunction("string_agg", named_column(column), delimiter, by, bool(descending))


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
        `rsd` is no number, or out of range.
    """
    between = _between(rsd, 0.001, 0.4, "rsd")
    return AggregateFunction("approx_count_distinct", named_column(column), between)


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
        `percentage` is no number, or out of range.
    """
    return AggregateFunction("approx_percentile", named_column(column), _share(percentage))


def any_value(column: str | Column) -> AggregateFunction:
    """The value of some row, also if it is null: of the one that arrived first."""
    return first(column)


def count_if(condition: str | Column) -> AggregateFunction:
    """Count the rows for which a condition holds: ``bigint``."""
    return count().filter(condition)


def skewness(column: str | Column) -> AggregateFunction:
    """The skewness: ``double``, null if no values differ. Exact as `stddev` is."""
    return AggregateFunction("skewness", named_column(column))


def kurtosis(column: str | Column) -> AggregateFunction:
    """The excess kurtosis: ``double``, null if no values differ. Exact as `stddev` is."""
    return AggregateFunction("kurtosis", named_column(column))


def bit_and(column: str | Column) -> AggregateFunction:
    """The bits that all whole numbers of a column have; null if there are none."""
    return AggregateFunction("bit_and", named_column(column))


def bit_or(column: str | Column) -> AggregateFunction:
    """The bits that any whole number of a column has; null if there are none."""
    return AggregateFunction("bit_or", named_column(column))


def bit_xor(column: str | Column) -> AggregateFunction:
    """The bits that an odd number of a column's whole numbers have; null if there are none."""
    return AggregateFunction("bit_xor", named_column(column))


def covar_pop(y: str | Column, x: str | Column) -> AggregateFunction:
    """The covariance of all pairs without null: ``double``, null if there are none. Exact as `stddev` is."""
    return _of_pairs("covar_pop", y, x)


def covar_samp(y: str | Column, x: str | Column) -> AggregateFunction:
    """The covariance of a sample: null for fewer than two pairs. See `covar_pop`."""
    return _of_pairs("covar_samp", y, x)


def corr(y: str | Column, x: str | Column) -> AggregateFunction:
    """The correlation: null for fewer than two pairs, and if all `y` or all `x` are equal. See `covar_pop`."""
    return _of_pairs("corr", y, x)


def regr_count(y: str | Column, x: str | Column) -> AggregateFunction:
    """Count the pairs without null: ``bigint``."""
    return _of_pairs("regr_count", y, x)


def regr_avgx(y: str | Column, x: str | Column) -> AggregateFunction:
    """The average `x` of the pairs without null. See `avg`."""
    return _of_pairs("regr_avgx", y, x)


def regr_avgy(y: str | Column, x: str | Column) -> AggregateFunction:
    """The average `y` of the pairs without null. See `avg`."""
    return _of_pairs("regr_avgy", y, x)


def regr_sxx(y: str | Column, x: str | Column) -> AggregateFunction:
    """The sum of the squares of the deviations of `x` from its mean. See `covar_pop`."""
    return _of_pairs("regr_sxx", y, x)


def regr_syy(y: str | Column, x: str | Column) -> AggregateFunction:
    """The sum of the squares of the deviations of `y` from its mean. See `covar_pop`."""
    return _of_pairs("regr_syy", y, x)


def regr_sxy(y: str | Column, x: str | Column) -> AggregateFunction:
    """The sum of the products of the deviations of `y` and `x` from their means. See `covar_pop`."""
    return _of_pairs("regr_sxy", y, x)


def regr_slope(y: str | Column, x: str | Column) -> AggregateFunction:
    """The slope of the regression line of `y` on `x`: null if all `x` are equal. See `covar_pop`."""
    return _of_pairs("regr_slope", y, x)


def regr_intercept(y: str | Column, x: str | Column) -> AggregateFunction:
    """The value of the regression line of `y` on `x` at 0: null if all `x` are equal. See `covar_pop`."""
    return _of_pairs("regr_intercept", y, x)


def regr_r2(y: str | Column, x: str | Column) -> AggregateFunction:
    """The square of the correlation: null if all `x` are equal, 1 if only all `y` are. See `covar_pop`."""
    return _of_pairs("regr_r2", y, x)


def _of_pairs(name: str, y: str | Column, x: str | Column) -> AggregateFunction:
    return AggregateFunction(name, named_column(y), by=named_column(x))


def _share(percentage: float) -> float:
    return _between(
        percentage, 0, 1, "percentage", " 0.5 is the median; several percentiles are several aggregates."
    )


def _between(given: Any, least: float, most: float, argument: str, more: str = "") -> float:
    """A number in a range, also one of NumPy."""
    is_number = isinstance(given, Real | Decimal) and not isinstance(given, bool)
    if not (is_number and least <= float(given) <= most):
        raise ArgumentError(
            f"{argument}={given!r} is not a number between {least} and {most}.",
            hint=f"Give a number from {least} to {most}.{more}",
        )
    return float(given)
