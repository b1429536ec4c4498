"""Aggregates that need the rows of their group: the least and the greatest value, lists, sets, first and last.

=====================  ===========================================================================
function               result
=====================  ===========================================================================
``MIN``, ``MAX``       the least, the greatest value that is not null; null if there is none
``FIRST``, ``LAST``    the value of the row that came first, last; null if that is its value
``COLLECT_LIST``       the values that are not null, in the order in which their rows came
``COLLECT_SET``        the same without repetitions
``COUNT_DISTINCT``     how many different values that are not null
=====================  ===========================================================================

A row that changes comes anew: it is the last one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import polars as pl

from tablestream.operators.cells import cells, column
from tablestream.operators.events import Ints, ints
from tablestream.operators.groups import GroupEvents
from tablestream.state.changes import FOREIGN_HASH, KEY_HASH, LIVE, SEQ, last_by, number_keys
from tablestream.state.trace import Trace, TraceSpec

_TURN = "_turn"


class Kind(Enum):
    """What is made of the values of a group."""

    MIN = "min"
    MAX = "max"
    FIRST = "first"
    LAST = "last"
    COLLECT_LIST = "collect_list"
    COLLECT_SET = "collect_set"
    COUNT_DISTINCT = "count_distinct"


@dataclass(frozen=True)
class Collected:
    """An aggregate of a column that needs the rows of the group; `result` is the dtype of what it makes."""

    kind: Kind
    column: str
    result: pl.DataType


@dataclass(frozen=True)
class Members:
    """The rows of groups, and aggregates of them.

    Parameters
    ----------
    keys, group_keys, value
        The columns and dtypes of the table's key, of the group's, and of what is aggregated.
    functions
        What is made of the values.
    """

    keys: pl.Schema
    group_keys: pl.Schema
    value: pl.DataType
    functions: tuple[Collected, ...]

    @property
    def trace(self) -> TraceSpec:
        """The rows of each group, and when they came."""
        columns = {FOREIGN_HASH: pl.Int64(), **self.group_keys, KEY_HASH: pl.Int64(), **self.keys}
        return TraceSpec(
            name="rows of groups",
            number=1,
            hash=FOREIGN_HASH,
            key=tuple(self.group_keys),
            unique=tuple(self.keys),
            unique_hash=KEY_HASH,
            schema=pl.Schema({**columns, LIVE: pl.Boolean(), _TURN: pl.Int64(), "v": self.value}),
        )

    def run(self, events: GroupEvents, shown: Ints, touched: pl.DataFrame, trace: Trace) -> list[pl.Series]:
        """Return the aggregates at some messages, a series a function, and remember the rows."""
        stored = trace.lookup(touched)
        group_of = [FOREIGN_HASH, *self.group_keys]
        messages = events.messages
        ids, stored_ids = (ints(one) for one in number_keys(FOREIGN_HASH, group_of[1:], [messages, stored]))
        numbers = np.empty(int(max(ids.max(initial=-1), stored_ids.max(initial=-1))) + 1, dtype=np.int64)
        numbers[ids] = events.group
        keys, stored_keys = (ints(one) for one in number_keys(KEY_HASH, list(self.keys), [messages, stored]))
        groups = _by_group(stored, numbers[stored_ids], stored_keys)
        results = self._worked(events, set(shown.tolist()), keys, groups)
        turn = int(stored[_TURN].max() or 0)  # type: ignore[arg-type]
        newest = last_by(
            messages.with_columns((pl.col(SEQ) + turn).alias(_TURN), pl.col("_is").alias(LIVE)).sort(SEQ),
            pl.Series(events.group[np.argsort(ints(messages[SEQ]), kind="stable")]),
            list(self.keys),
        )
        trace.insert(newest.select(list(self.trace.schema)))
        return self._columns(results)

    def recalled(self, groups: pl.DataFrame, trace: Trace) -> list[pl.Series]:
        """Return the aggregates of some groups as they are remembered, a series a function."""
        names, of_group = self._aggregated, [FOREIGN_HASH, *self.group_keys]
        stored = trace.lookup(groups.select(of_group))
        ids, stored_ids = (ints(one) for one in number_keys(FOREIGN_HASH, of_group[1:], [groups, stored]))
        (keys,) = number_keys(KEY_HASH, list(self.keys), [stored])
        rows = _by_group(stored, stored_ids, ints(keys))
        found = [_GroupRows(self.functions, names, rows.get((group,))) for group in ids.tolist()]
        return self._columns(
            [[one.collections[n].result() for one in found] for n in range(len(self.functions))]
        )

    @property
    def _aggregated(self) -> list[str]:
        """The columns of the value that are aggregated, each once."""
        return list(dict.fromkeys(one.column for one in self.functions))

    def _columns(self, results: Sequence[list[Any]]) -> list[pl.Series]:
        return [column(found, one.result) for found, one in zip(results, self.functions, strict=True)]

    def _worked(
        self,
        events: GroupEvents,
        shown: set[int],
        keys: Ints,
        groups: dict[tuple[Any, ...], pl.DataFrame],
    ) -> list[list[Any]]:
        """Go through the messages, group by group."""
        names = self._aggregated
        new = list(zip(*(cells(events.new(name)) for name in names), strict=True))
        adds, removes, row_keys = events.adds.tolist(), events.removes.tolist(), keys.tolist()
        results: list[list[Any]] = [[] for _ in self.functions]
        current, rows = -1, _GroupRows(self.functions, names)
        for at, group in enumerate(events.group.tolist()):
            if group != current:
                current, rows = group, _GroupRows(self.functions, names, groups.get((group,)))
            if removes[at]:
                rows.remove(row_keys[at])
            if adds[at]:
                rows.add(row_keys[at], new[at])
            if at in shown:
                for result, collection in zip(results, rows.collections, strict=True):
                    result.append(collection.result())
        return results


def _by_group(stored: pl.DataFrame, groups: Ints, keys: Ints) -> dict[tuple[Any, ...], pl.DataFrame]:
    """The rows of each group by its number, in the order in which they came."""
    rows = pl.DataFrame({"group": groups, "key": keys, "turn": stored[_TURN], "v": stored["v"]})
    return rows.sort("group", "turn").partition_by("group", as_dict=True) if rows.height else {}


class _GroupRows:
    """The rows of one group by their keys' numbers, and what is collected of them."""

    def __init__(
        self, functions: Sequence[Collected], names: list[str], stored: pl.DataFrame | None = None
    ) -> None:
        self._parts = [names.index(one.column) for one in functions]
        self.collections = [_collection(one.kind) for one in functions]
        self._rows: dict[int, Sequence[Any]] = {}
        if stored is not None:
            values = (cells(stored["v"].struct.field(name)) for name in names)
            for key, *row in zip(stored["key"].to_list(), *values, strict=True):
                self.add(key, row)

    def add(self, key: int, row: Sequence[Any]) -> None:
        """Take in a row; it is the last one."""
        self._rows[key] = row
        for part, collection in zip(self._parts, self.collections, strict=True):
            collection.add(key, row[part])

    def remove(self, key: int) -> None:
        """Take a row out."""
        row = self._rows.pop(key)
        for part, collection in zip(self._parts, self.collections, strict=True):
            collection.remove(key, row[part])


class _Collection(ABC):
    """The values of one group."""

    @abstractmethod
    def add(self, key: int, value: Any) -> None:
        """Take in the value of a row."""

    @abstractmethod
    def remove(self, key: int, value: Any) -> None:
        """Take it out."""

    @abstractmethod
    def result(self) -> Any:
        """What the aggregate is now."""


class _Ordered(_Collection):
    """The different values, sorted; NaN is the greatest."""

    def __init__(self, position: int) -> None:
        self._position = position
        self._counts: Counter[Any] = Counter()
        self._sorted: list[Any] = []

    def add(self, key: int, value: Any) -> None:  # noqa: ARG002
        if value is None:
            return
        ordered = comparable(value)
        self._counts[ordered] += 1
        if self._counts[ordered] == 1:
            insort(self._sorted, ordered)

    def remove(self, key: int, value: Any) -> None:  # noqa: ARG002
        if value is None:
            return
        ordered = comparable(value)
        self._counts[ordered] -= 1
        if not self._counts[ordered]:
            del self._counts[ordered]
            del self._sorted[bisect_left(self._sorted, ordered)]

    def result(self) -> Any:
        if not self._sorted:
            return None
        found = self._sorted[self._position]
        return found[1] if isinstance(found, tuple) else found


class _Rows(_Collection):
    """The values by row, in the order in which the rows came."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._values: dict[int, Any] = {}

    def add(self, key: int, value: Any) -> None:
        self._values[key] = value

    def remove(self, key: int, value: Any) -> None:  # noqa: ARG002
        del self._values[key]

    def result(self) -> Any:
        if self._kind is Kind.FIRST:
            return next(iter(self._values.values()), None)
        if self._kind is Kind.LAST:
            return next(reversed(self._values.values()), None)
        present = [value for value in self._values.values() if value is not None]
        if self._kind is Kind.COLLECT_LIST:
            return present
        return list({hashable(value): value for value in reversed(present)}.values())[::-1]


class _Distinct(_Collection):
    """How often each value is there."""

    def __init__(self) -> None:
        self._counts: Counter[Any] = Counter()

    def add(self, key: int, value: Any) -> None:  # noqa: ARG002
        if value is not None:
            self._counts[hashable(value)] += 1

    def remove(self, key: int, value: Any) -> None:  # noqa: ARG002
        if value is not None:
            self._counts[hashable(value)] -= 1
            if not self._counts[hashable(value)]:
                del self._counts[hashable(value)]

    def result(self) -> Any:
        return len(self._counts)


def _collection(kind: Kind) -> _Collection:
    if kind in {Kind.MIN, Kind.MAX}:
        return _Ordered(0 if kind is Kind.MIN else -1)
    return _Distinct() if kind is Kind.COUNT_DISTINCT else _Rows(kind)


def comparable(value: Any) -> Any:
    """A value that has an order and one equality: NaN equals itself and is greatest, text sorts by its bytes."""
    if isinstance(value, float):
        return (1, math.nan) if math.isnan(value) else (0, value + 0.0)
    return (value.encode(), value) if isinstance(value, str) else value


def hashable(value: Any) -> Any:
    """A value that can be a member of a set, equal where Spark's values are: NaN to itself, 0.0 to -0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple((name, hashable(part)) for name, part in value.items())
    return tuple(map(hashable, value)) if isinstance(value, list) else value
