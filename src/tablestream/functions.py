"""The aggregates for `GroupedTable.agg` and `GroupedStream.agg`, named like Spark's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Real
from typing import Any, ClassVar

from pyspark.sql import Column

from tablestream.arguments.kinds import flag, whole
from tablestream.errors import ArgumentError

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
        return AggregateFunction("own" if subtracts else "own, anew", _column(column), own=self)

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
        The column that orders the rows, if there is one, and whether the greatest comes first.
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
        return replace(self, condition=_column(condition))

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


def stddev(column: str | Column) -> AggregateFunction:
    """The standard deviation of a sample: ``double``, null for fewer than two values.

    Computed exactly from the values that are there, also after rows were removed; NaN if one is NaN or infinite.
    """
    return stddev_samp(column)


def stddev_samp(column: str | Column) -> AggregateFunction:
    """See `stddev`."""
    return AggregateFunction("stddev_samp", _column(column))


def stddev_pop(column: str | Column) -> AggregateFunction:
    """The standard deviation of a population: ``double``, null if there are no values."""
    return AggregateFunction("stddev_pop", _column(column))


def variance(column: str | Column) -> AggregateFunction:
    """The variance of a sample: ``double``, null for fewer than two values. Exact as `stddev` is."""
    return var_samp(column)


def var_samp(column: str | Column) -> AggregateFunction:
    """See `variance`."""
    return AggregateFunction("var_samp", _column(column))


def var_pop(column: str | Column) -> AggregateFunction:
    """The variance of a population: ``double``, null if there are no values."""
    return AggregateFunction("var_pop", _column(column))


def bool_and(column: str | Column) -> AggregateFunction:
    """Whether all values that are not null are true; null if there are none."""
    return AggregateFunction("bool_and", _column(column))


def bool_or(column: str | Column) -> AggregateFunction:
    """Whether any value is true; null if all are null."""
    return AggregateFunction("bool_or", _column(column))


def min_by(column: str | Column, by: str | Column) -> AggregateFunction:
    """The value of the row with the least `by` that is not null; of several such rows the first that arrived."""
    return AggregateFunction("min_by", _column(column), by=_column(by))


def max_by(column: str | Column, by: str | Column) -> AggregateFunction:
    """The value of the row with the greatest `by` that is not null; of several such rows the last that arrived.

    Examples
    --------
    >>> max_by("price", by="at").by
    'at'
    """
    return AggregateFunction("max_by", _column(column), by=_column(by))


def mode(column: str | Column) -> AggregateFunction:
    """The value that most rows have, of several such values the least; null if there are no values."""
    return AggregateFunction("mode", _column(column))


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
    return AggregateFunction("percentile", _column(column), _share(percentage))


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
    by = None if order_by is None else _column(order_by)
    return AggregateFunction("string_agg", _column(column), delimiter, by, bool(descending))


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
    return AggregateFunction("approx_count_distinct", _column(column), between)


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
    return AggregateFunction("approx_percentile", _column(column), _share(percentage))


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


def _column(given: str | Column) -> str | Column:
    if isinstance(given, str | Column):
        return given
    raise ArgumentError(f"{given!r} is not a column.", hint="Give a name, an SQL expression or a Column.")


@dataclass(frozen=True)
class WindowFunction:
    """A function of a row and the others of its partition, for `GroupedTable.over`.

    Attributes
    ----------
    name
        The name of Spark's function.
    column
        What it is of: a Column or a string. None: rows.
    offset, default
        How many rows before or after, and the value where there is none; a Column, or None: null. Of ``nth_value``
        the number of the row, of ``ntile`` the number of parts.
    ignore_nulls
        Whether rows in which the column is null are passed over.
    """

    name: str
    column: Column | str | None = None
    offset: int = 1
    default: Column | str | None = None
    ignore_nulls: bool = False


def row_number() -> WindowFunction:
    """Number the rows of a partition, from 1; peers in the order of their keys: ``int``.

    Examples
    --------
    >>> row_number().name
    'row_number'
    """
    return WindowFunction("row_number")


def rank() -> WindowFunction:
    """One more than the rows before the row and its peers: ``int``.

    Examples
    --------
    >>> rank().name
    'rank'
    """
    return WindowFunction("rank")


def dense_rank() -> WindowFunction:
    """One more than the distinct values of the order before the row: ``int``.

    Examples
    --------
    >>> dense_rank().name
    'dense_rank'
    """
    return WindowFunction("dense_rank")


def percent_rank() -> WindowFunction:
    """The share of the other rows of the partition that are before the row and its peers: ``double``.

    Examples
    --------
    >>> percent_rank().name
    'percent_rank'
    """
    return WindowFunction("percent_rank")


def cume_dist() -> WindowFunction:
    """The share of the rows of the partition up to the row's last peer: ``double``.

    Examples
    --------
    >>> cume_dist().name
    'cume_dist'
    """
    return WindowFunction("cume_dist")


def ntile(n: int) -> WindowFunction:
    """The number of the row's part, of `n` parts of a partition; the first ones may have a row more: ``int``.

    Raises
    ------
    ArgumentError
        `n` is no whole number, or less than 1.

    Examples
    --------
    >>> ntile(4).offset
    4
    """
    return WindowFunction("ntile", offset=_checked_offset("ntile", "n", n, least=1))


def lag(
    column: str | Column, offset: int = 1, default: str | Column | None = None, *, ignore_nulls: bool = False
) -> WindowFunction:
    """The value of a column in the row so many rows before.

    Parameters
    ----------
    column
        A Column or a string.
    offset
        How many rows before.
    default
        The value where there is no such row, over this row; a string is a column or SQL. Default: null.
    ignore_nulls
        Whether rows in which the column is null are passed over.

    Raises
    ------
    ArgumentError
        The offset is no whole number, or negative.

    Examples
    --------
    >>> lag("price", 2, "0").offset
    2
    """
    return _of_another("lag", column, offset, default, ignore_nulls)


def lead(
    column: str | Column, offset: int = 1, default: str | Column | None = None, *, ignore_nulls: bool = False
) -> WindowFunction:
    """The value of a column in the row so many rows after; see `lag`.

    Examples
    --------
    >>> lead("price").name
    'lead'
    """
    return _of_another("lead", column, offset, default, ignore_nulls)


def first_value(column: str | Column, *, ignore_nulls: bool = False) -> WindowFunction:
    """The value of a column in the first row of the frame; it may be null unless nulls are passed over.

    Examples
    --------
    >>> first_value("price").column
    'price'
    """
    return _of_another("first_value", column, 1, None, ignore_nulls)


def last_value(column: str | Column, *, ignore_nulls: bool = False) -> WindowFunction:
    """The value of a column in the last row of the frame; see `first_value`.

    Examples
    --------
    >>> last_value("price").column
    'price'
    """
    return _of_another("last_value", column, 1, None, ignore_nulls)


def nth_value(column: str | Column, n: int, *, ignore_nulls: bool = False) -> WindowFunction:
    """The value of a column in the `n`-th row of the frame, from 1; null if it has fewer. See `first_value`.

    Raises
    ------
    ArgumentError
        `n` is no whole number, or less than 1.

    Examples
    --------
    >>> nth_value("price", 2).offset
    2
    """
    _checked_offset("nth_value", "n", n, least=1)
    return _of_another("nth_value", column, n, None, ignore_nulls)


def _of_another(
    name: str, column: str | Column, offset: Any, default: str | Column | None, ignore_nulls: Any
) -> WindowFunction:
    """A function that is a column of another row."""
    number, skips = _checked_offset(name, "offset", offset), flag(ignore_nulls, "ignore_nulls")
    return WindowFunction(name, _column(column), number, default, skips)


def _checked_offset(function: str, argument: str, given: Any, least: int = 0) -> int:
    """Return a number of rows; refuse what is none."""
    number = whole(given)
    if number is None or number < least:
        raise ArgumentError(
            f"{function}({argument}={given!r}) is not a number of rows.",
            hint="Give a whole number, such as 1.",
        )
    return number
