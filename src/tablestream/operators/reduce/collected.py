"""The declared aggregates that need the rows of a group, and how values are compared."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import polars as pl

from tablestream.operators.reduce.ranking import Order


class Kind(Enum):
    """Which aggregate of a group's values."""

    MIN = "min"
    MAX = "max"
    FIRST = "first"
    LAST = "last"
    COLLECT_LIST = "collect_list"
    COLLECT_SET = "collect_set"
    COUNT_DISTINCT = "count_distinct"
    MIN_BY = "min_by"
    MAX_BY = "max_by"
    STRING_AGG = "string_agg"


@dataclass(frozen=True)
class Collected:
    """An aggregate of a column that needs the rows of the group."""

    kind: Kind
    column: str
    """Which one, and of which column."""
    result: pl.DataType
    """The dtype of the result."""
    by: str | None = None
    descending: bool = False
    """The column that rows are ordered by, if not by their arrival, and whether the greatest comes first."""
    delimiter: str = ""
    """What stands between texts."""

    @property
    def is_set(self) -> bool:
        """Whether equal values count once."""
        return self.kind in {Kind.COLLECT_SET, Kind.COUNT_DISTINCT}

    @property
    def is_list(self) -> bool:
        """Whether the result contains all rows of the group."""
        return self.is_set or self.kind in {Kind.COLLECT_LIST, Kind.STRING_AGG}

    @property
    def order(self) -> Order:
        """The order whose first row it shows, or in which it lists all rows."""
        of = self.column if self.kind in {Kind.MIN, Kind.MAX} else self.by
        columns = () if of is None else (of,)
        newest = self.kind in {Kind.MAX, Kind.MAX_BY, Kind.LAST}
        down = (newest or self.descending,) * len(columns)
        keeps_nulls = self.kind is Kind.STRING_AGG and self.by is not None
        return Order(columns, down, newest, keeps_nulls)

    def of_all(self, values: Iterable[Any]) -> Any:
        """Return the result of all values of a group, in their order; in a set a value stands where it comes first."""
        present = [value for value in values if value is not None]
        if self.is_set:
            first: dict[Any, Any] = {}
            for value in present:
                first.setdefault(hashable(value), value)
            present = list(first.values())
        return self.of_present(present)

    def of_present(self, values: Sequence[Any]) -> Any:
        """Return the result of the values that it shows, none of which is null."""
        if self.kind is Kind.STRING_AGG:
            return self.delimiter.join(values) if values else None
        return len(values) if self.kind is Kind.COUNT_DISTINCT else list(values)


def comparable(value: Any) -> Any:
    """A form of the value with an order and one equality: NaN equals itself, and is greatest; text sorts by bytes.

    The fields of a struct are compared one after the other; a null is the least.
    """
    if isinstance(value, dict):
        return tuple((part is not None, comparable(part)) for part in value.values())
    if isinstance(value, float):
        return (1, math.nan) if math.isnan(value) else (0, value + 0.0)
    return (value.encode(), value) if isinstance(value, str) else value


def hashable(value: Any) -> Any:
    """A form of the value that a set can contain, equal where Spark's values are: NaN to itself, 0.0 to -0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple((name, hashable(part)) for name, part in value.items())
    return tuple(map(hashable, value)) if isinstance(value, list) else value


def without_minus_zero(cell: Any) -> Any:
    """One of equal cells: 0.0 in the place of -0.0, also inside."""
    if isinstance(cell, float):
        return cell + 0.0
    if isinstance(cell, dict):
        return {name: without_minus_zero(part) for name, part in cell.items()}
    return list(map(without_minus_zero, cell)) if isinstance(cell, list) else cell
