"""The declared aggregates that need the rows of a group, and how values are compared."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import polars as pl


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
    """An aggregate of a column that needs the rows of the group.

    Attributes
    ----------
    kind, column
        Which one, and of which column.
    result
        The dtype of the result.
    by, descending
        The column that rows are ordered by, if not by their arrival, and whether the greatest comes first.
    delimiter
        What stands between texts.
    """

    kind: Kind
    column: str
    result: pl.DataType
    by: str | None = None
    descending: bool = False
    delimiter: str = ""

    @property
    def is_list(self) -> bool:
        """Whether the result contains all rows of the group."""
        return self.kind in {Kind.COLLECT_LIST, Kind.COLLECT_SET, Kind.STRING_AGG}

    def of_all(self, values: Iterable[Any]) -> Any:
        """Return the result of all values of a group, in their order."""
        found = collected(self.kind, values)
        return joined(found, self.delimiter) if self.kind is Kind.STRING_AGG else found


def collected(kind: Kind, values: Iterable[Any]) -> list[Any]:
    """Make a list or a set of the values of a group, in the order in which their rows arrived.

    In a set a value stands where the first of its rows stands.
    """
    present = [value for value in values if value is not None]
    if kind is not Kind.COLLECT_SET:
        return present
    first: dict[Any, Any] = {}
    for value in present:
        first.setdefault(hashable(value), value)
    return list(first.values())


def joined(texts: Sequence[str], delimiter: str) -> str | None:
    """Join texts; None if there are none."""
    return delimiter.join(texts) if texts else None


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
