"""Aggregates that need the rows of their group: the least and the greatest value, first and last, lists and sets.

=====================  ===========================================================================
function               result
=====================  ===========================================================================
``MIN``, ``MAX``       the least, the greatest value that is not null; null if there is none
``FIRST``, ``LAST``    the value of the row that arrived first, last; it may be null
``COLLECT_LIST``       the values that are not null, in the order in which their rows arrived
``COLLECT_SET``        the same without repetitions
``MIN_BY``             the value of the row with the least ``by`` that is not null, the first such row
``MAX_BY``             the value of the row with the greatest ``by`` that is not null, the last such row
``STRING_AGG``         the texts that are not null, joined, ordered by ``by``, nulls last, or by arrival
=====================  ===========================================================================

A row that changes counts as newly arrived: it becomes the last one.

Lists, sets and joined texts contain all rows of a group. The other functions show the first row in an order, and of a
large group read only its `heads`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
import polars as pl

from tablestream.operators.cells import cells, column
from tablestream.operators.events import bools, ints
from tablestream.operators.operator import pointing_trace
from tablestream.operators.reduce.collected import Collected, Kind
from tablestream.operators.reduce.groups import ROWS, GroupEvents
from tablestream.operators.reduce.heads import are_large, most_heads
from tablestream.operators.reduce.ranking import Order, Ranking
from tablestream.operators.reduce.regroup import IS
from tablestream.operators.reduce.row_versions import TURN, RowVersions, group_numbers
from tablestream.state.changes import FOREIGN_HASH, LIVE, SEQ, last_by
from tablestream.state.positions import Bools, Ints, gather
from tablestream.state.trace import Trace
from tablestream.state.trace_spec import TraceSpec

#: The trace of the rows of all groups.
ROWS_OF_GROUPS = "rows of groups"
#: Whether a group has heads.
HAS_HEADS = "_has_heads"
_T = TypeVar("_T")


@dataclass(frozen=True)
class GroupRows:
    """The remembered rows of groups."""

    keys: pl.Schema
    group_keys: pl.Schema
    value: pl.DataType
    """The columns and dtypes of the table's key, of the group's, and of the remembered part of a row."""
    orders: tuple[Order, ...]
    """The orders in which first rows are shown."""
    shown: int | None = 1
    """How many rows are shown at most. None: all, so no heads are kept."""

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        """The rows of each group with their arrival numbers, and their heads in each order."""
        return (self._trace(ROWS_OF_GROUPS), *(self.heads(one) for one in self.orders_with_heads))

    @property
    def state(self) -> dict[str, pl.DataType]:
        """What is remembered of a group: the arrival number of its last row, whether it has heads, and their bounds."""
        bounds = {_bound(number): self.bound for number in range(len(self.orders_with_heads))}
        return {TURN: pl.Int64(), **({HAS_HEADS: pl.Boolean(), **bounds} if bounds else {})}

    @property
    def orders_with_heads(self) -> tuple[Order, ...]:
        """The orders for which heads are kept; empty if all rows of a group are read anyway."""
        return () if self.shown is None else self.orders

    @property
    def bound(self) -> pl.DataType:
        """The dtype of a bound."""
        return pl.Struct({TURN: pl.Int64(), "v": self.value})

    def have_heads(self, groups: pl.DataFrame) -> Bools:
        """Whether some groups have heads, from what is remembered of them."""
        if not self.orders_with_heads:
            return np.zeros(groups.height, dtype=bool)
        return bools(groups[HAS_HEADS].fill_null(value=False))

    def recalled(
        self, groups: pl.DataFrame, trace: Callable[[str], Trace]
    ) -> dict[Order, tuple[pl.DataFrame, Ints]]:
        """Return the remembered rows of some groups in each order, or their heads, and the group of each one."""
        has_heads = pl.Series(self.have_heads(groups))
        of_group = groups.select(FOREIGN_HASH, *self.group_keys)
        rows = trace(self.traces[0].name).lookup(of_group.filter(~has_heads))
        found = {}
        for order in self.orders:
            known = rows
            if has_heads.any():
                known = pl.concat([rows, trace(self.heads(order).name).lookup(of_group.filter(has_heads))])
            positions = order.positions(known)
            group = group_numbers(of_group, known, list(self.group_keys))
            found[order] = known[positions], group[positions]
        return found

    def heads(self, order: Order) -> TraceSpec:
        """The trace of the heads in an order."""
        return self._trace(f"heads by {order}")

    def _trace(self, name: str) -> TraceSpec:
        columns = {LIVE: pl.Boolean(), TURN: pl.Int64(), "v": self.value}
        return pointing_trace(name, self.group_keys, self.keys, columns)


@dataclass(frozen=True)
class Members:
    """The rows of groups, and aggregates of them."""

    keys: pl.Schema
    group_keys: pl.Schema
    value: pl.DataType
    """The columns and dtypes of the table's key, of the group's, and of the aggregated part of a row."""
    functions: tuple[Collected, ...]
    """The aggregates."""

    @cached_property
    def _rows(self) -> GroupRows:
        orders = tuple(dict.fromkeys(one.order for one in self.functions))
        shown = None if any(one.is_list for one in self.functions) else 1
        return GroupRows(self.keys, self.group_keys, self.value, orders, shown)

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        """The traces of the rows."""
        return self._rows.traces

    @property
    def state(self) -> dict[str, pl.DataType]:
        """The dtypes of what is remembered of a group."""
        return self._rows.state

    def run(
        self, events: GroupEvents, shown: Ints, trace: Callable[[str], Trace]
    ) -> tuple[list[pl.Series], dict[str, pl.Series]]:
        """Return the aggregates at some messages, one series per function, and what to remember of each group."""
        work = GroupWork(self._rows, events, trace)
        shows = events.mask(shown)
        passes = work.ranked(lambda ranking: ranking.first(events, shows))
        results = [_shown(one, passes, events, shows) for one in self.functions]
        return results, work.remember()

    def recalled(self, groups: pl.DataFrame, trace: Callable[[str], Trace]) -> list[pl.Series]:
        """Return the remembered aggregates of some groups, one series per function."""
        known = self._rows.recalled(groups, trace)
        found = []
        for function in self.functions:
            rows, group = known[function.order]
            found.append(_recalled(function, rows["v"], group, groups.height))
        return found


def _bound(number: int) -> str:
    """The column with the bound of the heads in an order."""
    return f"_bound{number}"


def _recalled(function: Collected, rows: pl.Series, group: Ints, groups: int) -> pl.Series:
    """Compute an aggregate from the rows of groups, which come in its order."""
    values = rows.struct.field(function.column)
    if not function.is_list:
        numbers, first = np.unique(group, return_index=True)
        place = np.full(groups, -1, dtype=np.int64)
        place[numbers] = first
        return _result(function, [gather(values, place)])
    of_group: list[list[Any]] = [[] for _ in range(groups)]
    for number, value in zip(group.tolist(), cells(values), strict=True):
        of_group[number].append(value)
    return column(list(map(function.of_all, of_group)), function.result)


def _result(function: Collected, found: Sequence[pl.Series]) -> pl.Series:
    """The result from the values of first rows: those that are not null are equal."""
    value = pl.select(pl.coalesce(found)).to_series() if len(found) > 1 else found[0]
    if function.kind in {Kind.MIN, Kind.MAX} and value.dtype.is_float():
        # Turn -0.0 into 0.0. Adding 0.0 would not help: Polars optimises such sums away.
        zero, own = pl.lit(0.0, value.dtype), pl.lit(value)
        value = pl.select(pl.when(own == zero).then(zero).otherwise(own)).to_series()
    return value if value.dtype == function.result else value.cast(function.result)


def _lists(function: Collected, ranking: Ranking, events: GroupEvents, shows: Bools) -> pl.Series:
    """The results of all rows that exist at each message that emits."""
    values = cells(gather(ranking.rows["v"].struct.field(function.column), ranking.by_rank))
    found = []
    for group in ranking.by_group(events, shows):
        there = {rank: values[rank] for rank in group.stored}
        for taken, brought, is_shown, _ in group.changes:
            there.pop(taken, None)
            if brought >= 0:
                there[brought] = values[brought]
            if is_shown:
                found.append(function.of_all(there[rank] for rank in sorted(there)))
    return column(found, function.result)


def _shown(function: Collected, passes: Sequence[Pass[Ints]], events: GroupEvents, shows: Bools) -> pl.Series:
    """The results of a function at the messages that emit."""
    order = function.order
    if function.is_list:
        return _lists(function, passes[0].rankings[order], events, shows)
    return _result(
        function,
        [
            gather(
                one.rankings[order].versions.rows["v"].struct.field(function.column), one.found[order][shows]
            )
            for one in passes
        ],
    )


@dataclass(frozen=True)
class Pass(Generic[_T]):
    """Rankings of some groups, what was found in them, and the groups for which this result is valid.

    `by_heads`: the stored rows in them are heads.
    """

    rankings: dict[Order, Ranking]
    found: dict[Order, _T]
    groups: Bools
    by_heads: bool


class GroupWork:
    """Ranks groups by their heads, then those without heads, or whose heads ran out, by their rows."""

    def __init__(self, rows: GroupRows, events: GroupEvents, trace: Callable[[str], Trace]) -> None:
        self._of, self._events, self._trace = rows, events, trace
        self._arrived = self._with_turns()
        self._groups = events.messages[events.first].select(FOREIGN_HASH, *rows.group_keys)
        self._rows = events.rows[events.last]
        self._most = most_heads(self._rows) + (rows.shown or 1) - 1
        self._passes: Sequence[Pass[Any]] = ()

    def _with_turns(self) -> pl.DataFrame:
        """The rows that messages add, as rows of the trace."""
        events = self._events
        turn = events.remembered(TURN)[events.group] + ints(events.messages[SEQ])
        rows = events.messages.with_columns(pl.col(IS).alias(LIVE), pl.Series(TURN, turn, dtype=pl.Int64))
        return rows.select(list(self._of.traces[0].schema))

    def ranked(self, find: Callable[[Ranking], tuple[_T, Ints]]) -> list[Pass[_T]]:
        """Find something in each order; `find` also returns the groups for which it needs more than their heads."""
        whole, passes = ~self._of.have_heads(self._events.groups), []
        if not whole.all():
            rankings = self._by_heads(~whole)
            found = {order: find(ranking) for order, ranking in rankings.items()}
            whole[np.concatenate([short for _, short in found.values()])] = True
            in_heads = {order: one for order, (one, _) in found.items()}
            passes.append(Pass(rankings, in_heads, ~whole, by_heads=True))
        if whole.any() or not passes:
            rankings = self._by_rows(whole)
            in_rows = {order: find(ranking)[0] for order, ranking in rankings.items()}
            passes.append(Pass(rankings, in_rows, whole, by_heads=False))
        self._passes = passes
        return passes

    def _by_heads(self, groups: Bools) -> dict[Order, Ranking]:
        """Rank the heads of some groups, and the rows that their messages add."""
        keys, made = self._groups.filter(pl.Series(groups)), {}
        for number, order in enumerate(self._of.orders):
            heads = self._trace(self._of.heads(order).name).lookup(keys)
            bounds = self._events.groups[_bound(number)]
            bounded = np.flatnonzero(bounds.is_not_null().to_numpy())
            versions = self._versions(groups, heads, self._numbers(heads))
            made[order] = Ranking(
                order, versions, bounds.gather(bounded).struct.unnest(), bounded, len(self._rows)
            )
        return made

    def _by_rows(self, groups: Bools) -> dict[Order, Ranking]:
        """Rank the rows of some groups, and those that messages add; of a large group only as many as can matter."""
        stored = self._trace(self._of.traces[0].name).lookup(self._groups.filter(pl.Series(groups)))
        numbers = self._numbers(stored)
        enough = self._enough()
        rows = self._events.remembered(ROWS)
        large = (are_large(rows) & (rows > enough))[numbers]
        every, made = None, {}
        for order in self._of.orders:
            if self._of.orders_with_heads and large.any():
                some = _first_rows(order, stored, numbers, large, enough)
                versions = self._versions(groups, stored[some], numbers[some])
            else:
                versions = every = every or self._versions(groups, stored, numbers)
            unbounded = versions.rows.select(TURN, "v").clear()
            made[order] = Ranking(order, versions, unbounded, np.empty(0, dtype=np.int64), len(self._rows))
        return made

    def _numbers(self, stored: pl.DataFrame) -> Ints:
        return group_numbers(self._groups, stored, list(self._of.group_keys))

    def _enough(self) -> Ints:
        """How many of the first rows of each group leave enough heads, whichever rows the messages remove."""
        removes = np.bincount(self._events.group[self._events.removes], minlength=len(self._rows))
        return 2 * self._most + 1 + removes

    def _versions(self, groups: Bools, stored: pl.DataFrame, numbers: Ints) -> RowVersions:
        at = np.flatnonzero(groups[self._events.group])
        return RowVersions.of(self._events, self._arrived, at, stored, numbers, list(self._of.keys))

    def remember(self) -> dict[str, pl.Series]:
        """Remember the rows that are left, and the heads; return the columns of `GroupRows.state`."""
        events = self._events
        rows = last_by(self._arrived, events.group, self._of.keys)
        self._trace(self._of.traces[0].name).insert(rows)
        turn = events.remembered(TURN) + ints(events.messages[SEQ])[events.last]
        state = {TURN: pl.Series(turn, dtype=pl.Int64)}
        if self._of.orders_with_heads:
            keeps = np.zeros(len(self._rows), dtype=bool)
            for one in self._passes:
                keeps |= one.groups & (self._rows > 0 if one.by_heads else are_large(self._rows))
            state[HAS_HEADS] = pl.Series(keeps, dtype=pl.Boolean)
            for number, order in enumerate(self._of.orders):
                state[_bound(number)] = self._keep_heads(order, keeps)
        return state

    def _keep_heads(self, order: Order, keeps: Bools) -> pl.Series:
        """Remember the heads in an order where they changed; return the bounds."""
        if not (keeps.any() or self._passes[0].by_heads):
            return pl.Series([None], dtype=self._of.bound).new_from_index(0, len(keeps))
        gone, came, bounds = [], [], []
        for one in self._passes:
            ranking = one.rankings[order]
            versions = ranking.versions
            heads = ranking.heads(keeps & one.groups, self._most)
            known = versions.stored if one.by_heads else 0
            gone.append(versions.part(np.setdiff1d(np.arange(known), heads.versions)))
            came.append(versions.part(heads.versions[heads.versions >= known]))
            bounds.append(gather(order.compared(ranking.rows).to_struct(), heads.bound))
        changed = [(_tombstones(rows), group) for rows, group in gone] + came
        rows = pl.concat([rows for rows, _ in changed])
        group = np.concatenate([group for _, group in changed])
        self._trace(self._of.heads(order).name).insert(last_by(rows, group, self._of.keys))
        return pl.select(pl.coalesce(bounds)).to_series()


def _first_rows(order: Order, rows: pl.DataFrame, group: Ints, large: Bools, most: Ints) -> Ints:
    """The positions of all rows of small groups, and of the first ones of each large group, at most `most`."""
    places = np.flatnonzero(large)
    first = order.first(rows.select(TURN, "v")[places], group[places], most)
    return np.concatenate([np.flatnonzero(~large), places[first]])


def _tombstones(rows: pl.DataFrame) -> pl.DataFrame:
    nothing = (pl.lit(None, rows.schema[name]).alias(name) for name in (TURN, "v"))
    return rows.with_columns(pl.lit(value=False).alias(LIVE), *nothing)
