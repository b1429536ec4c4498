"""The window functions for `GroupedTable.over`, named like Spark's; `tablestream.functions` has them, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column

from tablestream.arguments.kinds import flag, whole
from tablestream.errors import ArgumentError


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
    number = _checked_offset("nth_value", "n", n, least=1)
    return _of_another("nth_value", column, number, None, ignore_nulls)


def _of_another(
    name: str, column: str | Column, offset: Any, default: str | Column | None, ignore_nulls: Any
) -> WindowFunction:
    """A function that is a column of another row."""
    number, skips = _checked_offset(name, "offset", offset), flag(ignore_nulls, "ignore_nulls")
    return WindowFunction(name, named_column(column), number, default, skips)


def _checked_offset(function: str, argument: str, given: Any, least: int = 0) -> int:
    """Return a number of rows; refuse what is none."""
    number = whole(given)
    if number is None or number < least:
        raise ArgumentError(
            f"{function}({argument}={given!r}) is not a number of rows.",
            hint="Give a whole number, such as 1.",
        )
    return number


def named_column(given: str | Column) -> str | Column:
    """Return a column that is given; refuse what is none."""
    if isinstance(given, str | Column):
        return given
    raise ArgumentError(f"{given!r} is not a column.", hint="Give a name, an SQL expression or a Column.")
