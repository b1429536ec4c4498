"""Join of n tables on their own key: one operator for any number of tables.

An event is a change of one input. ``other`` is the current row of the other side, ``none`` means that there is no row.
The result's time is ``max(event's time, other row's time)``, tombstones included.

=====  ===========  =====================================  =======================================
how    event on     emits nothing when                     otherwise
=====  ===========  =====================================  =======================================
inner  either       other is none                          row, or a tombstone when new is none
left   left         other, new and old are all none        row, or a tombstone when new is none
left   right        left row is none                       row (its right part may be none)
outer  either       other, new and old are all none        row when a side exists, else a tombstone
right  --           the mirror image of left
=====  ===========  =====================================  =======================================

A key with a null has no match: rows with such a key are joined with nothing, each on its own, as in SQL (``nulls``).
Not so in an outer join: both rows would have one key in the result, so they are one row of it.

A tree of such joins is evaluated bottom-up for each event. An inner node that emits is an event for the node above
it. One that does not emit is the ``other`` of that node, with the largest time of its rows.

Steps
    ``atomic``: all changes of one step are applied first. Then the key emits at most once, when the result exists
    after the step or did before, with the largest time of the changes. Otherwise each change is its own event.
    Inputs that share a store (``stores``) are then updated together before the first of them is answered, as Kafka
    Streams does for a table joined to itself. Inputs that are sources (``early``) are updated before any change of
    the step is answered.

References
----------
Kafka Streams ``KTable.join/leftJoin/outerJoin``; ``docs/semantics/key-join.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import polars as pl

from tablestream.operators.arrangement import Arrangement, TableRows, table_rows
from tablestream.operators.events import (
    NEVER,
    bools,
    ends,
    existing,
    ints,
    latest,
    pick,
    previous,
    repeats,
    run_end,
    run_start,
)
from tablestream.operators.operator import (
    PARENT,
    CanBeThin,
    Context,
    Emission,
    keyed_rows,
    rows_trace,
    timed_changes,
)
from tablestream.state.changes import KEY_HASH, LIVE, ROW_TS, SEQ, STEP, TS
from tablestream.state.positions import Bools, Ints, gather, put_back, starts
from tablestream.state.trace_spec import TraceSpec

How = Literal["inner", "left", "right", "outer"]


@dataclass(frozen=True)
class Branch:
    """A join of two sides, each an input's number or another join.

    With `own_times` the result of a change has the change's own time, whatever the time of the other row.
    """

    left: Branch | int
    right: Branch | int
    how: How
    own_times: bool = False


@dataclass(frozen=True)
class KeyJoin(CanBeThin):
    """N tables joined on one key.

    Output 0 has ``_kh``, the key columns, ``_ts``, ``_row_ts``, ``_live`` and a value column ``v0``, ``v1``, ...
    per input, null where that input has no row. Cost: proportional to the changes and the rows of their keys.
    """

    tree: Branch
    """Which inputs are joined, and how."""
    keys: pl.Schema
    """The key columns and their dtypes."""
    values: tuple[pl.DataType, ...]
    """The dtype of each input's value."""
    stores: tuple[int, ...]
    """Inputs with the same number share one store; used only when not `atomic`."""
    early: tuple[bool, ...]
    """Per input, whether it is updated before any change of the step is answered; used only when not `atomic`."""
    minimal: tuple[bool, ...]
    """Per input, whether to ignore tombstones for absent rows (a filter upstream makes such tombstones)."""
    atomic: bool = True
    """Whether a step emits once per key."""
    nulls: tuple[int, ...] = ()
    """A number per input: keys with a null are equal among inputs with the same number only. Default: among all."""
    needed: tuple[tuple[str, ...], ...] | None = None
    """Per input, the columns that readers need of its value: a row that is written again with the same ones is
    remembered, but is no event and keeps its time. None: every change is an event."""

    parameters = ("tree", "final", "thin")
    keeps_shard = True
    takes_last = True

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        return tuple(timed_changes(self.keys, value) for value in self.values)

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        values = {f"v{number}": value for number, value in enumerate(self.values)}
        return (pl.Schema({**keyed_rows(self.keys, values), ROW_TS: pl.Int64()}),)

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return tuple(
            rows_trace(f"input {number}", self.keys, {"v": value}) for number, value in enumerate(self.values)
        )

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        traces = [context.trace(spec.name) for spec in self.traces]
        tables, _ = table_rows(list(zip(traces, inputs, strict=True)))
        events = _Events.of_tables(tables, self._nulls_apart(tables)).without_idle_tombstones(self.minimal)
        repeated = self._repeated(events, tables)
        if repeated.any():
            events, tables = _with_older_times(events, repeated, tables)
        sides = _evaluate(self.tree, self._leaves(events, repeated))
        at, chosen = self._emitting(events), np.flatnonzero(sides.emits)
        if self.final or self.thin:
            last, there = ends(events.key[at[chosen]]), sides.now[chosen]
            kept = last & (there | self._stood(events, at[chosen])) if self.final else last | ~there
            chosen = chosen[kept]
        yield Emission(0, self._rows(events, at[chosen], sides, chosen, tables))
        for trace, table in zip(traces, tables, strict=True):
            table.remember(trace)

    def _nulls_apart(self, tables: Sequence[TableRows]) -> list[Ints]:
        """Give a key with a null another number on each input that may not meet it on the others."""
        columns = [table.rows[name] for table in tables for name in self.keys]
        if not self.nulls or not any(column.null_count() for column in columns):
            return [table.key for table in tables]
        distinct = 1 + max(int(table.key.max(initial=-1)) for table in tables)
        null = pl.any_horizontal(pl.col(list(self.keys)).is_null())
        return [
            table.key + bools(table.rows.select(null).to_series()) * (distinct * (1 + number))
            for table, number in zip(tables, self.nulls, strict=True)
        ]

    def _emitting(self, events: _Events) -> Ints:
        """The events that may emit: each change, or the last of each step."""
        arrived = events.seq > 0
        return np.flatnonzero(arrived & ends(events.key, events.step) if self.atomic else arrived)

    def _stood(self, events: _Events, at: Ints) -> Bools:
        """Whether the result had a row for each event's key when the micro-batch began."""
        begin = events.last_stored[at]
        last = (pick(events.last_of(j), begin, -1) for j in range(len(self.values)))
        return _combined(self.tree, [pick(events.live, row, False) for row in last])

    def _repeated(self, events: _Events, tables: Sequence[TableRows]) -> Bools:
        """Which events change nothing that readers need."""
        repeated = np.zeros(len(events.key), dtype=bool)
        for j, columns in enumerate(self.needed or ()):
            at = np.flatnonzero((events.input == j) & (events.seq > 0) & events.live[events.row])
            before = existing(events.before_each(events.last_of(j))[at], events.live)
            now, before = events.row[at] - events.offsets[j], before - events.offsets[j]
            repeated[at] = repeats(tables[j].rows["v"], columns, now, before)
        if self.needed is not None and has_own_times(self.tree):
            # Of a star's change, all rows that are looked up lend their times.
            step = np.cumsum(starts(events.key, events.step)) - 1
            changes = np.bincount(step, ~repeated & (events.seq > 0)) > 0
            repeated &= ~changes[step] if len(step) else repeated
        return repeated

    def _leaves(self, events: _Events, repeated: Bools) -> list[_Side]:
        """What each emitting event finds on each input: whether the input changed, and its row before and after."""
        at = self._emitting(events)
        first = events.step_start[at] if self.atomic else at
        leaves = []
        for j in range(len(self.values)):
            last = events.last_of(j)
            after = last[self._seen(events, at, j)]
            before = events.before_each(last)[first]
            now, was = (pick(events.live, row, False) for row in (after, before))
            touched = events.input[at] == j
            if self.atomic:
                changed = latest((events.input == j) & ~repeated, events.begins)
                touched = changed[events.step_end[at]] >= first
            leaves.append(
                _Side(
                    emits=touched,
                    now=now,
                    was=np.where(touched, was, now),
                    row_ts=np.where(now, events.row_ts[after], NEVER),
                    event_ts=np.where(touched, events.ts[after if self.atomic else events.row[at]], NEVER),
                    row=np.where(now, after - events.offsets[j], -1),
                )
            )
        return leaves

    def _seen(self, events: _Events, at: Ints, j: int) -> Ints:
        """The position up to which each emitting event sees the changes of an input."""
        if self.atomic or self.early[j]:
            return events.step_end[at]
        if self.stores.count(self.stores[j]) == 1:
            return at
        shares = np.array([i != j and store == self.stores[j] for i, store in enumerate(self.stores)])
        return np.where(shares[events.input[at]], np.maximum(at, events.same_turn(j)[at]), at)

    def _rows(
        self, events: _Events, at: Ints, sides: _Side, chosen: Ints, tables: Sequence[TableRows]
    ) -> pl.DataFrame:
        """Gather the payload once."""
        live = sides.now[chosen]
        keys = pl.concat([table.rows.select(KEY_HASH, *self.keys) for table in tables], rechunk=False)
        head = pl.DataFrame(
            {
                PARENT: events.seq[at],
                TS: sides.event_ts[chosen],
                ROW_TS: np.where(live, sides.row_ts[chosen], sides.event_ts[chosen]),
                LIVE: live,
            }
        )
        values = [
            gather(table.rows["v"], np.where(live, leaf[chosen], -1)).alias(f"v{j}")
            for j, (table, leaf) in enumerate(zip(tables, _leaf_rows(sides), strict=True))
        ]
        return head.hstack(keys[events.row[at]]).hstack(values)


@dataclass(frozen=True)
class _Events(Arrangement):
    """The rows of all inputs, one input after the other, sorted by key and place."""

    seq: Ints
    step: Ints
    input: Ints
    """Of each event: its place, its step, both 0 for a row of the state, and the number of its input."""
    live: Bools
    ts: Ints
    row_ts: Ints
    """Of each row, where it came from: whether it is not a tombstone; the time of the change and of the row."""
    offsets: Ints
    """The position of the first row of each input."""

    @classmethod
    def of_tables(cls, tables: Sequence[TableRows], keys: Sequence[Ints]) -> _Events:
        """Sort the rows of all inputs. Of one key, those of the state come in the order of the inputs."""
        columns = pl.concat([table.rows.select(SEQ, STEP, TS, ROW_TS, LIVE) for table in tables])
        seq, step, ts, row_ts = (ints(columns[name]) for name in (SEQ, STEP, TS, ROW_TS))
        of = Arrangement.of(np.concatenate(keys), seq)
        heights = [table.rows.height for table in tables]
        number = np.repeat(np.arange(len(tables)), heights)
        offsets = np.cumsum([0, *heights[:-1]])
        at = of.row
        return cls(of.key, at, seq[at], step[at], number[at], bools(columns[LIVE]), ts, row_ts, offsets)

    def without_idle_tombstones(self, minimal: Sequence[bool]) -> _Events:
        """Leave out tombstones for absent rows, on the inputs marked minimal."""
        keep = np.ones(len(self.key), dtype=bool)
        for number, is_minimal in enumerate(minimal):
            if is_minimal:
                had = pick(self.live, self.before_each(self.last_of(number)), False)
                keep &= (self.input != number) | self.live[self.row] | had
        if keep.all():
            return self
        fields = ("key", "row", "seq", "step", "input")
        return replace(self, **{name: getattr(self, name)[keep] for name in fields})

    @cached_property
    def step_start(self) -> Ints:
        """The position of the first event of the same key and step."""
        return run_start(starts(self.key, self.step))

    @cached_property
    def step_end(self) -> Ints:
        """The position of the last event of the same key and step."""
        return run_end(starts(self.key, self.step))

    @cached_property
    def last_stored(self) -> Ints:
        """The position of the last event of the state with the same key; -1 if there is none."""
        return latest(self.seq == 0, self.begins)

    def last_of(self, number: int) -> Ints:
        """The last row of input `number` up to each event of its key; -1 if there is none."""
        return self.latest(self.input == number)

    def before_each(self, last: Ints) -> Ints:
        """What `last_of` gives for the event before each one of its key; -1 if there is none."""
        return previous(last, self.begins, -1)

    def same_turn(self, number: int) -> Ints:
        """The position of the event of input `number` with the same key, step and turn; -1 if there is none.

        The first change of a key in a step at each input has turn 0, the second has turn 1, and so on.
        """
        at = np.arange(len(self.key), dtype=np.int64)
        order = np.lexsort((at, self.input, self.step, self.key))
        turn = put_back(at - run_start(starts(self.key[order], self.step[order], self.input[order])), order)
        _, group = np.unique(np.stack([self.key, self.step, turn]), axis=1, return_inverse=True)
        found = np.full(len(at), -1, dtype=np.int64)
        mine = self.input == number
        found[group[mine]] = at[mine]
        return found[group]


def _with_older_times(
    events: _Events, repeated: Bools, tables: Sequence[TableRows]
) -> tuple[_Events, list[TableRows]]:
    """Give rows that are written again the time of the row before."""
    row_ts, found = events.row_ts.copy(), []
    for j, (table, first) in enumerate(zip(tables, events.offsets.tolist(), strict=True)):
        mine = events.input == j
        row_ts[events.row[mine]] = events.row_ts[events.latest(mine & ~repeated)[mine]]
        times = pl.Series(ROW_TS, row_ts[first : first + table.rows.height])
        found.append(replace(table, rows=table.rows.with_columns(times)))
    return replace(events, row_ts=row_ts), found


@dataclass(frozen=True)
class _Side:
    """One side of a join, as each emitting event finds it: columns of the same length.

    ``emits``: it changes; ``now``, ``was``: a row exists after and before; ``row_ts``, ``event_ts``: times of the
    row and of the change (`NEVER` where there is none); ``row``: for an input, the position of its row or -1.
    """

    emits: Bools
    now: Bools
    was: Bools
    row_ts: Ints
    event_ts: Ints
    row: Ints | None = None
    parts: tuple[_Side, ...] = ()


def _evaluate(tree: Branch | int, leaves: Sequence[_Side]) -> _Side:
    """Apply the rule table at every node of the tree, from the leaves up."""
    if isinstance(tree, int):
        return leaves[tree]
    left, right = _evaluate(tree.left, leaves), _evaluate(tree.right, leaves)
    # Both sides change, or one of them alone.
    cases = [left.emits & right.emits, left.emits, right.emits]
    left_was = np.where(left.emits, left.was, left.now)
    right_was = np.where(right.emits, right.was, right.now)
    now = exists(tree.how, left.now, right.now)
    was = exists(tree.how, left_was, right_was)
    other = NEVER if tree.own_times else np.select(cases, [NEVER, right.row_ts, left.row_ts], NEVER)
    return _Side(
        emits=np.select(cases, [now | was, *_emits_alone(tree.how, left, right)], default=False),
        now=now,
        was=was,
        row_ts=np.where(now, np.maximum(left.row_ts, right.row_ts), NEVER),
        event_ts=np.maximum(np.maximum(left.event_ts, right.event_ts), other),
        parts=(left, right),
    )


def exists(how: How, left: Bools, right: Bools) -> Bools:
    """Return whether a join has a row, given whether each side has one."""
    return {"inner": left & right, "left": left, "right": right, "outer": left | right}[how]


def has_own_times(tree: Branch | int) -> bool:
    """Whether the changes of some join of a tree keep their own times."""
    return not isinstance(tree, int) and (tree.own_times or any(map(has_own_times, (tree.left, tree.right))))


def _combined(tree: Branch | int, leaves: Sequence[Bools]) -> Bools:
    """Whether the tree has a row, given whether each input has one."""
    if isinstance(tree, int):
        return leaves[tree]
    return exists(tree.how, _combined(tree.left, leaves), _combined(tree.right, leaves))


def _emits_alone(how: How, left: _Side, right: _Side) -> tuple[Bools, Bools]:
    """Whether a change of the left side alone emits, and a change of the right side alone."""
    some_left, some_right = right.now | left.now | left.was, left.now | right.now | right.was
    return {
        "inner": (right.now, left.now),
        "left": (some_left, left.now),
        "right": (right.now, some_right),
        "outer": (some_left, some_right),
    }[how]


def _leaf_rows(side: _Side) -> list[Ints]:
    """The positions of the inputs' rows, in the order of the inputs."""
    if side.row is not None:
        return [side.row]
    return [row for part in side.parts for row in _leaf_rows(part)]
