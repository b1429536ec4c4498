"""Aggregates that pick a value by how many rows have each one: the mode, and percentiles.

Of a group with many different values only its `heads` are read: the values near the picked one, with their counts, and
what is known of the others. A change of any other value reads its count alone.

The mode is the value that most rows of a group have:

====================================  =================================================
the group's values                    result
====================================  =================================================
none that is not null                 null
one that most rows have               that value
several that equally many rows have   the least of them
====================================  =================================================

Every value that is not a head of a mode ranks after its bound: the count and the value of the last head when heads were
chosen.

A percentile is the value at a share of a group's values, in their order; between two values, a mean of both:

====================================  =========================================================================
the group's values                    result
====================================  =========================================================================
none that is not null                 null
n that are not null                   with p = share * (n - 1): the value at place p, counted from 0; between two
.                                     places the two values, each weighted by how near it is
====================================  =========================================================================

NaN is the greatest value. The heads of a percentile are all values from a lowest to a highest one; how many rows have a
value below the lowest one is known, and how many rows have any value.

References
----------
Spark's ``percentile``, which computes the same.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, ClassVar, Protocol

import numpy as np
import polars as pl

from tablestream.operators.cells import cells
from tablestream.operators.cells import column as column_of
from tablestream.operators.events import bools
from tablestream.operators.reduce.collected import comparable
from tablestream.operators.reduce.counted import COUNT, VALUE, Moved, OfCounts, value_bytes
from tablestream.operators.reduce.groups import GroupEvents
from tablestream.operators.reduce.heads import are_large, most_heads
from tablestream.operators.reduce.row_versions import group_numbers
from tablestream.state.changes import FOREIGN_HASH, LIVE
from tablestream.state.positions import Bools, Ints
from tablestream.state.trace import Trace
from tablestream.state.trace_spec import TraceSpec

#: What a picker returns if its heads do not have the value.
SHORT = object()
#: The column of a value in the traces.
CELL = "value"


class Picker(Protocol):
    """The known values of one group, in a form that can be compared."""

    counts: dict[Any, int]
    """How many rows have each value; more than none."""

    def take(self, value: Any, before: int, after: int) -> None:
        """Change how many rows have a value, which need not be known."""

    def pick(self) -> Any:
        """Return what is picked, or `SHORT`."""

    def bound(self, most: int) -> Mapping[str, Any]:
        """Keep `most` values around the picked one if twice as many are known; return what to know of the others."""


class OfRankedCounts(OfCounts):
    """An aggregate that picks a value."""

    numbers: ClassVar[tuple[str, ...]]
    values: ClassVar[tuple[str, ...]]
    """The names of what `Picker.bound` returns: numbers, and values of the column."""

    @property
    @abstractmethod
    def word(self) -> str:
        """What it is called in the state."""

    @abstractmethod
    def picker(self, counts: dict[Any, int], bound: Mapping[str, Any] | None) -> Picker:
        """Begin with all values, or with heads and what `Picker.bound` returned."""

    @abstractmethod
    def cell(self, picked: Any, cell_of: Callable[[Any], Any]) -> Any:
        """Return the result for what was picked; `cell_of` returns the cell of a value."""

    @property
    def state(self) -> dict[str, pl.DataType]:
        numbers = dict.fromkeys(map(self.named, self.numbers), pl.Int64())
        values = dict.fromkeys(map(self.named, self.values), self.of)
        return {self.named("has_heads"): pl.Boolean(), self.named("shown"): self.result, **numbers, **values}

    def named(self, what: str) -> str:
        """A column of its state."""
        return f"{self.word}_{what}"

    def traces(self, group_keys: pl.Schema) -> tuple[TraceSpec, ...]:
        names = values_name(self.column), f"heads of {self.word}"
        return tuple(values_trace(name, group_keys, self.of) for name in names)

    def run(
        self, events: GroupEvents, moved: Moved, shown: Ints, trace: Callable[[str], Trace]
    ) -> tuple[pl.Series, dict[str, pl.Series]]:
        every, heads = trace(values_name(self.column)), trace(f"heads of {self.word}")
        with_heads = bools(events.groups[self.named("has_heads")].fill_null(value=False))
        picking = _Picking(self, events, moved, shown)
        short = picking.pick(with_heads, heads, are_heads=True)
        picking.pick(~with_heads | short, every, are_heads=False)
        results = column_of(picking.results, self.result)
        return results, picking.remember(heads, with_heads & ~short)

    def recalled(self, groups: pl.DataFrame, trace: Callable[[str], Trace]) -> pl.Series:  # noqa: ARG002
        return groups[self.named("shown")]


def values_name(column: str) -> str:
    """The trace of the values of each group."""
    return f"values by group of {column}"


def values_trace(name: str, group_keys: pl.Schema, of: pl.DataType) -> TraceSpec:
    """A trace of values of groups, and how many rows have each of them."""
    columns = {FOREIGN_HASH: pl.Int64(), **group_keys, VALUE: pl.Binary(), LIVE: pl.Boolean()}
    schema = pl.Schema({**columns, COUNT: pl.Int64(), CELL: of})
    return TraceSpec(name, schema, key=tuple(group_keys), unique=(VALUE,), hash=FOREIGN_HASH)


def stored_values(events: GroupEvents, trace: Trace, groups: Bools) -> tuple[pl.DataFrame, list[int]]:
    """Return the stored values of some of the groups that have messages, and the number of each one's group."""
    keys = events.messages[events.first].select(FOREIGN_HASH, *trace.spec.key)
    rows = trace.lookup(keys.filter(pl.Series(groups, dtype=pl.Boolean)))
    return rows, group_numbers(keys, rows, list(trace.spec.key)).tolist()


def remember_values(events: GroupEvents, moved: Moved, trace: Trace) -> None:
    """Remember the values of each group, after all aggregates have read them."""
    last = moved.last
    groups = events.messages[moved.at[last]].select(FOREIGN_HASH, *trace.spec.key)
    count = pl.Series(COUNT, moved.after[last], dtype=pl.Int64)
    values = moved.rows[VALUE][last], (count > 0).alias(LIVE), count, moved.values[last].alias(CELL)
    trace.insert(groups.with_columns(*values))


@dataclass(frozen=True)
class _Known:
    """A group while its messages are worked off: what was remembered of it as heads, and its picker."""

    heads: dict[Any, int]
    picker: Picker


class _Picking:
    """One aggregate of the groups that have messages."""

    def __init__(self, function: OfRankedCounts, events: GroupEvents, moved: Moved, shown: Ints) -> None:
        self._function, self._events, self._moved = function, events, moved
        self._cells: dict[Any, Any] = {}
        self._keys = self._comparable(moved.values)
        self._moves_from = [*np.searchsorted(moved.at, events.first).tolist(), len(moved.at)]
        self._shown = shown
        self._shown_from = [*np.searchsorted(shown, events.first).tolist(), len(shown)]
        self._known: dict[int, _Known] = {}
        self._last: dict[int, Any] = {}
        self.results: list[Any] = [None] * len(shown)

    def _comparable(self, values: pl.Series) -> list[Any]:
        """Values in a form that can be compared; `_cells` has the cell of each."""
        found = cells(values)
        keys = [None if cell is None else comparable(cell) for cell in found]
        for key, cell in zip(keys, found, strict=True):
            self._cells.setdefault(key, cell)
        return keys

    def pick(self, groups: Bools, trace: Trace, *, are_heads: bool) -> Bools:
        """Work off the messages of some groups; return those whose heads do not have what is to be picked."""
        short = np.zeros(len(groups), dtype=bool)
        if not groups.any():
            return short
        stored = self._stored(groups, trace)
        for group in np.flatnonzero(groups).tolist():
            counts = stored.get(group, {})
            heads = dict(counts) if are_heads else self._known[group].heads if group in self._known else {}
            picker = self._function.picker(counts, self._bound(group) if are_heads else None)
            self._known[group] = _Known(heads, picker)
            short[group] = not self._pick(group, picker)
        return short

    def _stored(self, groups: Bools, trace: Trace) -> dict[int, dict[Any, int]]:
        """The stored counts of the values of some groups."""
        rows, numbers = stored_values(self._events, trace, groups)
        found: dict[int, dict[Any, int]] = {}
        for group, key, count in zip(
            numbers, self._comparable(rows[CELL]), rows[COUNT].to_list(), strict=True
        ):
            found.setdefault(group, {})[key] = count
        return found

    def _bound(self, group: int) -> dict[str, Any]:
        """What is remembered of a group beside its heads."""
        function, of_group = self._function, self._events.groups[group : group + 1]
        found = {name: of_group[function.named(name)][0] for name in function.numbers}
        for name in function.values:
            (found[name],) = self._comparable(of_group[function.named(name)])
        return found

    def _pick(self, group: int, picker: Picker) -> bool:
        """Work off the messages of a group; say whether what is picked is always known."""
        moves = self._moves(group)
        at, move = next(moves, (None, None))
        for number in range(self._shown_from[group], self._shown_from[group + 1]):
            while move is not None and at <= self._shown[number]:
                picker.take(*move)
                at, move = next(moves, (None, None))
            picked = picker.pick()
            if picked is SHORT:
                return False
            self.results[number] = self._cell(picked)
        while move is not None:
            picker.take(*move)
            _, move = next(moves, (None, None))
        picked = picker.pick()
        self._last[group] = None if picked is SHORT else self._cell(picked)
        return picked is not SHORT

    def _moves(self, group: int) -> Iterator[tuple[Any, Any]]:
        moved = self._moved
        for number in range(self._moves_from[group], self._moves_from[group + 1]):
            yield moved.at[number], (self._keys[number], int(moved.before[number]), int(moved.after[number]))

    def _cell(self, picked: Any) -> Any:
        return None if picked is None else self._function.cell(picked, self._cells.__getitem__)

    def remember(self, trace: Trace, by_heads: Bools) -> dict[str, pl.Series]:
        """Remember heads where they changed; return the columns of `OfRankedCounts.state`."""
        most = most_heads(self._events.rows[self._events.last]).tolist()
        state: dict[str, list[Any]] = {name: [] for name in self._function.state}
        changed: list[tuple[int, Any, int]] = []
        every = [self._known[group] for group in range(len(most))]
        values = np.array([len(known.picker.counts) for known in every], dtype=np.int64)
        for group, has_heads in enumerate((by_heads | are_large(values)).tolist()):
            known, picker = every[group], every[group].picker
            bound = picker.bound(most[group]) if has_heads else {}
            heads = picker.counts if has_heads else {}
            changed += [
                (group, key, heads.get(key, 0))
                for key in known.heads.keys() | heads.keys()
                if known.heads.get(key) != heads.get(key)
            ]
            numbers = (bound.get(name) for name in self._function.numbers)
            cells_of = (self._cells.get(bound.get(name)) for name in self._function.values)
            row = has_heads, self._last[group], *numbers, *cells_of
            for column, value in zip(state.values(), row, strict=True):
                column.append(value)
        self._insert(trace, changed)
        return {name: column_of(state[name], kind) for name, kind in self._function.state.items()}

    def _insert(self, trace: Trace, changed: list[tuple[int, Any, int]]) -> None:
        found = [self._cells[key] for _, key, _ in changed]
        groups = self._events.messages[self._events.first[[group for group, _, _ in changed]]]
        count = pl.Series(COUNT, [count for *_, count in changed], dtype=pl.Int64)
        trace.insert(
            groups.select(FOREIGN_HASH, *trace.spec.key).with_columns(
                pl.Series(VALUE, list(map(value_bytes, found)), dtype=pl.Binary),
                (count > 0).alias(LIVE),
                count,
                column_of(found, self._function.of).alias(CELL),
            )
        )


@dataclass(frozen=True)
class Mode(OfRankedCounts):
    """The most frequent value of a column."""

    numbers = ("count",)
    values = ("value",)

    column: str
    of: pl.DataType

    @property
    def result(self) -> pl.DataType:
        return self.of

    @property
    def word(self) -> str:
        return f"mode_{self.column}"

    def picker(self, counts: dict[Any, int], bound: Mapping[str, Any] | None) -> Picker:
        return _MostFrequent(counts, bound or {})

    def cell(self, picked: Any, cell_of: Callable[[Any], Any]) -> Any:
        return cell_of(picked)


class _MostFrequent:
    """Finds the greatest count in a heap, which also has counts that are no longer right."""

    def __init__(self, counts: dict[Any, int], bound: Mapping[str, Any]) -> None:
        self.counts = counts
        self._bound = None if bound.get("count") is None else (-bound["count"], bound["value"])
        self._heap = [(-count, value) for value, count in counts.items()]
        heapify(self._heap)

    def take(self, value: Any, before: int, after: int) -> None:  # noqa: ARG002
        self.counts.pop(value, None)
        if after > 0 and self._is_head((-after, value)):
            self.counts[value] = after
            heappush(self._heap, (-after, value))

    def _is_head(self, rank: tuple[int, Any]) -> bool:
        return self._bound is None or rank <= self._bound

    def pick(self) -> Any:
        while self._heap and self.counts.get(self._heap[0][1]) != -self._heap[0][0]:
            heappop(self._heap)
        if self._heap:
            return self._heap[0][1]
        return None if self._bound is None else SHORT

    def bound(self, most: int) -> Mapping[str, Any]:
        if len(self.counts) > 2 * most:
            ranks = sorted((-count, value) for value, count in self.counts.items())[:most]
            self.counts, self._bound = {value: -count for count, value in ranks}, ranks[-1]
        if self._bound is None:
            return {}
        return {"count": -self._bound[0], "value": self._bound[1]}


@dataclass(frozen=True)
class Percentile(OfRankedCounts):
    """A percentile of a column of numbers."""

    numbers = ("below", "rows")
    values = ("low", "high")

    column: str
    of: pl.DataType
    """The column, and its dtype."""
    share: float
    """From 0 to 1."""

    @property
    def result(self) -> pl.DataType:
        return pl.Float64()

    @property
    def word(self) -> str:
        return f"percentile_{self.share}_{self.column}"

    def picker(self, counts: dict[Any, int], bound: Mapping[str, Any] | None) -> Picker:
        return _Middle(counts, bound, self.share)

    def cell(self, picked: Any, cell_of: Callable[[Any], Any]) -> Any:
        """Return the value between two values."""
        low, high, place = picked
        if low == high:
            return float(cell_of(low))
        return (math.ceil(place) - place) * float(cell_of(low)) + (place - math.floor(place)) * float(
            cell_of(high)
        )


class _Middle:
    """Finds the value at a place among sorted values by going on from the one that was found before."""

    def __init__(self, counts: dict[Any, int], bound: Mapping[str, Any] | None, share: float) -> None:
        self.counts, self._share = counts, share
        self._values = sorted(counts)
        known = bound or {"below": 0, "rows": sum(counts.values()), "low": None, "high": None}
        self._below, self._rows, self._low, self._high = (
            known[name] for name in ("below", "rows", "low", "high")
        )
        self._at, self._before = 0, self._below  # a value, and how many rows have a lesser one

    def take(self, value: Any, before: int, after: int) -> None:
        before, after = max(before, 0), max(after, 0)
        self._rows += after - before
        if self._high is not None and value > self._high:
            return
        if self._low is not None and value < self._low:
            self._below += after - before
            self._before += after - before
            return
        place = bisect_left(self._values, value)
        if place < self._at:
            self._before += after - before
        if before == 0 and after:
            self._values.insert(place, value)
            self._at += place < self._at
        elif before and after == 0:
            del self._values[place]
            self._at -= place < self._at
        if after:
            self.counts[value] = after
        else:
            self.counts.pop(value, None)

    def pick(self) -> Any:
        if self._rows == 0:
            return None
        place = self._share * (self._rows - 1)
        low, high = self._value(math.floor(place)), self._value(math.ceil(place))
        return SHORT if low is None or high is None else (low, high, place)

    def _value(self, place: int) -> Any:
        """The value of the row at a place; None if it is not known."""
        while self._at and self._before > place:
            self._at -= 1
            self._before -= self.counts[self._values[self._at]]
        while self._at < len(self._values) and self._before + self.counts[self._values[self._at]] <= place:
            self._before += self.counts[self._values[self._at]]
            self._at += 1
        is_known = self._before <= place and self._at < len(self._values)
        return self._values[self._at] if is_known else None

    def bound(self, most: int) -> Mapping[str, Any]:
        if len(self._values) > 2 * most:
            begin = max(0, min(self._at - most // 2, len(self._values) - most))
            dropped = self._values[:begin]
            self._below += sum(self.counts[value] for value in dropped)
            end = begin + most
            self._low = self._values[begin] if begin else self._low
            self._high = self._values[end - 1] if end < len(self._values) else self._high
            self._values = self._values[begin:end]
            self.counts = {value: self.counts[value] for value in self._values}
        return {"below": self._below, "rows": self._rows, "low": self._low, "high": self._high}
