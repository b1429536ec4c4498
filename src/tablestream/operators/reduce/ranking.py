"""The best row of a group at each of its messages, or its first rows, in an order of its rows.

A ranking need not know all rows of a group. It may know some, its *heads*, and a *bound*: every other row of the group
ranks after the bound.

====================================  =================================================
the best row that is known            the best row of the group
====================================  =================================================
ranks at the bound or before it       that row
ranks after it, or there is none      unknown: the heads have run out
any, and there is no bound            that row
====================================  =================================================

The same holds for the first n rows: the last of them decides. If a group has fewer than n rows, all must be known.

Ranks are numbers, which Polars finds by sorting: no value becomes a Python object. Any two versions of rows of a group
have different ranks.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from itertools import zip_longest
from typing import TypeAlias

import numpy as np
import polars as pl

from tablestream.operators.events import ints, pick, run_start
from tablestream.operators.reduce.groups import GroupEvents
from tablestream.operators.reduce.row_versions import TURN, RowVersions
from tablestream.state.positions import Bools, Ints, starts

#: The rank after all others.
_END = 1 << 62


@dataclass(frozen=True)
class Order:
    """An order of the rows of a group."""

    columns: tuple[str, ...]
    """The fields of ``v`` that rows are sorted by; NaN is the greatest value."""
    descending: tuple[bool, ...]
    """Per field, whether the greatest value comes first."""
    newest_first: bool
    """Whether, of rows with equal values, the one that arrived last is first."""
    keeps_nulls: bool = False
    """Whether nulls come last; if not, rows with a null are left out."""

    def __str__(self) -> str:
        """The order, as text for people."""
        columns = list(zip(self.columns, self.descending, strict=True)) or [("arrival", self.newest_first)]
        return ", ".join(f"{name} {'descending' if down else 'ascending'}" for name, down in columns)

    def first(self, rows: pl.DataFrame, group: Ints, most: Ints) -> Ints:
        """Return the positions of the first rows of each group, in any order: at most ``most[g]`` of group g."""
        keys, by, down = self._keys(rows)
        keys = keys.with_columns(pl.Series("_group", group[ints(keys[_AT])]))
        found = [np.empty(0, dtype=np.int64)]
        for (number, *_), of_group in keys.partition_by("_group", as_dict=True).items():
            # Nulls are last, even in reversed order.
            first = of_group.bottom_k(int(most[number]), by=by, reverse=down)
            found.append(ints(first[_AT]))
        return np.concatenate(found)

    def positions(self, rows: pl.DataFrame) -> Ints:
        """Return the positions of all rows that are not left out, the first row first; equal rows keep their order."""
        keys, by, down = self._keys(rows)
        ranked = keys.sort(by, descending=down, nulls_last=True, maintain_order=True)
        return ints(ranked[_AT])

    def compared(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return ``_turn`` and ``v`` of rows, without the values that the order does not compare."""
        kinds = pl.Schema(rows["v"].struct.schema)
        others = set(kinds).difference(self.columns)
        if not others:
            return rows
        fields = (
            pl.lit(None, kind).alias(name) if name in others else pl.col("v").struct.field(name)
            for name, kind in kinds.items()
        )
        return rows.select(TURN, pl.struct(fields).alias("v"))

    def _keys(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, list[str], list[bool]]:
        """The rows that are not left out, with the columns to sort by, their names, and which are sorted downwards."""
        values = [rows["v"].struct.field(name) for name in self.columns]
        compared = [
            part
            for value, down in zip(values, self.descending, strict=True)
            for part in sorted_by(value, down)
        ]
        names = [f"_value{number}" for number in range(len(compared))]
        at = pl.int_range(pl.len(), dtype=pl.Int64).alias(_AT)
        columns = [part.alias(name) for (part, _), name in zip(compared, names, strict=True)]
        keys = rows.select(TURN, at).with_columns(columns)
        if not self.keeps_nulls and any(value.null_count() for value in values):
            keys = keys.filter(pl.all_horizontal(pl.lit(value.is_not_null()) for value in values))
        return keys, [*names, TURN], [*(down for _, down in compared), self.newest_first]


_AT = "_at"


def sorted_by(value: pl.Series, down: bool) -> list[tuple[pl.Series, bool]]:
    """The columns by which a column is sorted, each with whether downwards. Nulls are last, in a column of any order.

    Structs are sorted by their fields, one after the other. In a field a null is the least, as in Spark.
    """
    if not isinstance(value.dtype, pl.Struct):
        return [(value, down)]
    fields = [value.struct.field(one.name) for one in value.dtype.fields]
    parts = [part for field in fields for part in ((field.is_not_null(), down), *sorted_by(field, down))]
    return [(value.is_null(), False), *parts]


@dataclass(frozen=True)
class Heads:
    """Rows to remember as heads."""

    versions: Ints
    """The versions that become heads."""
    bound: Ints
    """Per group, the position of its bound in `Ranking.rows`; -1: it has none."""


Change: TypeAlias = tuple[int, int, bool, int]
"""For a message: the rank that it removes, the rank that it adds (-1: none), whether it emits, and how many rows its
group has after it.
"""


@dataclass(frozen=True)
class GroupRanks:
    """A group in a ranking: its number, the positions of its messages, the ranks that are stored, and what changes."""

    group: int
    at: Ints
    stored: list[int]
    changes: list[Change]


@dataclass(frozen=True)
class Moves:
    """Changes in the first rows of groups: places that now have a different version."""

    at: Ints
    """The position of the message; it rises within a group."""
    place: Ints
    """The place among the first rows, from 0; it rises within a message."""
    before: Ints
    after: Ints
    """The versions; -1: none."""


@dataclass(frozen=True)
class Ranking:
    """Versions of rows in an order."""

    order: Order
    versions: RowVersions
    """The known versions of the rows of some groups."""
    bounds: pl.DataFrame
    bounded: Ints
    """The bounds, ``_turn`` and ``v``, and the numbers of the groups that have them."""
    groups: int
    """How many groups have messages."""

    @cached_property
    def rows(self) -> pl.DataFrame:
        """The versions, then the bounds: ``_turn`` and ``v``."""
        return pl.concat([self.versions.rows.select(TURN, "v"), self.bounds])

    @cached_property
    def by_rank(self) -> Ints:
        """The positions of `rows` by rank; rows that are left out are missing."""
        return self.order.positions(self.rows)

    @cached_property
    def rank(self) -> Ints:
        """The rank of each of `rows`; -1 if it is left out."""
        rank = np.full(self.rows.height, -1, dtype=np.int64)
        rank[self.by_rank] = np.arange(len(self.by_rank))
        return rank

    @property
    def _count(self) -> int:
        return self.versions.rows.height

    @cached_property
    def _bound(self) -> Ints:
        """The rank of each group's bound."""
        bound = np.full(self.groups, _END, dtype=np.int64)
        bound[self.bounded] = self.rank[self._count :]
        return bound

    def first(self, events: GroupEvents, shows: Bools) -> tuple[Ints, Ints]:
        """Find the best version at each message that emits.

        Returns: the version at each message, -1 if there is none; and the groups whose heads have run out, for which
        `best` is not valid.
        """
        ranks, short = np.full(len(events), -1, dtype=np.int64), []
        for one in self.by_group(events, shows):
            found = _bests(one.stored, int(self._bound[one.group]), one.changes)
            if found is None:
                short.append(one.group)
            else:
                ranks[one.at[shows[one.at]]] = found
        best = pick(self.by_rank, np.where(ranks < _END, ranks, -1), -1)
        return best, np.array(short, dtype=np.int64)

    def first_rows(self, events: GroupEvents, shows: Bools, most: int) -> tuple[Moves, Ints]:
        """Find how the first rows change from one message that emits to the next, starting from the stored rows.

        Returns: the changes; and the groups whose heads have run out, for which `moves` has none.
        """
        found: list[tuple[int, ...]] = []
        short = []
        for one in self.by_group(events, shows):
            moves = _moves(one.stored, most, int(self._bound[one.group]), one.changes)
            if moves is None:
                short.append(one.group)
            else:
                found += [(int(one.at[number]), place, *ranks) for number, place, *ranks in moves]
        at, place, before, after = np.array(found, dtype=np.int64).reshape(-1, 4).T
        versions = (pick(self.by_rank, ranks, -1) for ranks in (before, after))
        return Moves(at, place, *versions), np.array(short, dtype=np.int64)

    def by_group(self, events: GroupEvents, shows: Bools) -> Iterator[GroupRanks]:
        """Iterate over the groups that have messages here."""
        at = self.versions.at
        group = events.group[at]
        changes = self._changes(at, shows, events.rows)
        begins = np.flatnonzero(starts(group))
        ends = np.append(begins, len(at))[1:]
        stored = self._stored_ranks(group[begins])
        for begin, end, ranks in zip(begins.tolist(), ends.tolist(), stored, strict=True):
            yield GroupRanks(int(group[begin]), at[begin:end], ranks, changes[begin:end])

    def _changes(self, at: Ints, shows: Bools, rows: Ints) -> list[Change]:
        ranks = np.append(self.rank[: self._count], -1)
        columns = ranks[self.versions.taken], ranks[self.versions.brought], shows[at], rows[at]
        return list(zip(*(one.tolist() for one in columns), strict=True))

    def _stored_ranks(self, groups: Ints) -> list[list[int]]:
        """The ranks of the stored versions of each of some groups, sorted."""
        stored = self.by_rank[self.by_rank < self.versions.stored]
        group = self.versions.group[stored]
        order = np.argsort(group, kind="stable")
        ranks, group = self.rank[stored[order]].tolist(), group[order]
        low, high = (np.searchsorted(group, groups, side).tolist() for side in ("left", "right"))
        return [ranks[begin:end] for begin, end in zip(low, high, strict=True)]

    def heads(self, keeps: Bools, most: Ints) -> Heads:
        """Choose the heads of the groups that are to have some, after the last message.

        A group with more than twice the wanted number of heads is cut down to that number.

        `keeps`: whether a group is to have heads. `most`: how many.
        """
        rank, group = self.rank[: self._count], self.versions.group
        there = self.versions.is_left & (rank >= 0) & (rank <= self._bound[group]) & keeps[group]
        heads = np.flatnonzero(there)
        heads = heads[np.lexsort((rank[heads], group[heads]))]
        group = group[heads]
        place = np.arange(len(heads)) - run_start(starts(group))
        trimmed = (np.bincount(group, minlength=self.groups) > 2 * most)[group]
        last = trimmed & (place == most[group] - 1)
        bound = np.full(self.groups, -1, dtype=np.int64)
        bound[self.bounded] = self._count + np.arange(len(self.bounded))
        bound[group[last]] = heads[last]
        bound[~keeps] = -1
        return Heads(heads[~trimmed | (place < most[group])], bound)


def _bests(heap: list[int], bound: int, changes: Sequence[Change]) -> list[int] | None:
    """Process the messages of a group: the best rank at each one that emits; None if the heads run out.

    `heap` is a heap of the ranks that exist before; it is consumed.
    """
    gone: set[int] = set()
    found = []
    for taken, brought, shows, rows in changes:
        if taken >= 0:
            gone.add(taken)
        if brought >= 0:
            heappush(heap, brought)
        if shows:
            while heap and heap[0] in gone:
                gone.remove(heappop(heap))
            best = heap[0] if heap else _END
            if best > bound and rows:
                return None
            found.append(best)
    return found


def _moves(
    stored: list[int], most: int, bound: int, changes: Sequence[Change]
) -> list[tuple[int, int, int, int]] | None:
    """Process the messages of a group: the changes in the first ranks at each one that emits; None if heads run out.

    `stored` are the ranks that exist before, sorted. A change is the message's number, the place, and the ranks
    before and after.
    """
    first, rest = stored[:most], stored[most:]
    gone: set[int] = set()
    shown, found = list(first), []
    for number, (taken, brought, shows, rows) in enumerate(changes):
        _apply(first, rest, gone, taken, brought, most)
        if shows:
            if len(first) < min(most, rows) or (first and first[-1] > bound):
                return None
            pairs = enumerate(zip_longest(shown, first, fillvalue=-1))
            found += [(number, place, before, after) for place, (before, after) in pairs if before != after]
            shown = list(first)
    return found


def _apply(first: list[int], rest: list[int], gone: set[int], taken: int, brought: int, most: int) -> None:
    """Remove a rank and add one: `first` are the least ones, sorted; `rest` is a heap of others, `gone` is removed."""
    if taken >= 0:
        if first and taken <= first[-1]:
            first.remove(taken)
        else:
            gone.add(taken)
    if brought >= 0:
        if first and brought < first[-1]:
            insort(first, brought)
        else:
            heappush(rest, brought)
    if len(first) > most:
        heappush(rest, first.pop())
    while len(first) < most and rest:
        rank = heappop(rest)
        if rank not in gone:
            first.append(rank)
