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
from typing import Literal

import numpy as np
import polars as pl

from tablestream.operators.events import (
    Events,
    ints,
    latest,
    never,
    newest,
    pick,
    repeats,
    touched_keys,
    with_state,
)
from tablestream.operators.operator import PARENT, CanBeThin, Context, Emission, keyed_rows, rows_trace
from tablestream.state.changes import KEY_HASH, LIVE, ROW_TS, TS, number_keys
from tablestream.state.positions import Bools, Ints, gather, starts
from tablestream.state.trace import TraceSpec

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

    Parameters
    ----------
    tree
        Which inputs are joined, and how.
    keys
        The key columns and their dtypes.
    values
        The dtype of each input's value.
    stores
        Inputs with the same number share one store; used only when not `atomic`.
    early
        Per input, whether it is updated before any change of the step is answered; used only when not `atomic`.
    minimal
        Per input, whether to ignore tombstones for absent rows (a filter upstream makes such tombstones).
    atomic
        Whether a step emits once per key.
    nulls
        A number per input: keys with a null are equal among inputs with the same number only. Default: among all.
    needed
        Per input, the columns that readers need of its value: a row that is written again with the same ones is
        remembered, but is no event and keeps its time. None: every change is an event.
    final, thin
        Which changes to emit.

    Notes
    -----
    Output 0 has ``_kh``, the key columns, ``_ts``, ``_row_ts``, ``_live`` and a value column ``v0``, ``v1``, ...
    per input, null where that input has no row. Cost: proportional to the changes and the rows of their keys.
    """

    tree: Branch
    keys: pl.Schema
    values: tuple[pl.DataType, ...]
    stores: tuple[int, ...]
    early: tuple[bool, ...]
    minimal: tuple[bool, ...]
    atomic: bool = True
    nulls: tuple[int, ...] = ()
    needed: tuple[tuple[str, ...], ...] | None = None

    parameters = ("tree", "final", "thin")
    keeps_shard = True
    takes_last = True

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        head = {KEY_HASH: pl.Int64(), **self.keys, TS: pl.Int64(), ROW_TS: pl.Int64(), LIVE: pl.Boolean()}
        return tuple(pl.Schema({**head, "v": value}) for value in self.values)

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        values = {f"v{number}": value for number, value in enumerate(self.values)}
        return (pl.Schema({**keyed_rows(self.keys, values), ROW_TS: pl.Int64()}),)

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return tuple(
            rows_trace(f"input {number}", self.keys, {"v": value}, number=number)
            for number, value in enumerate(self.values)
        )

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        """Emit what each step of the micro-batch changes, and remember the last row of each key."""
        columns = [KEY_HASH, *self.keys]
        touched = touched_keys([frame.select(columns) for frame in inputs])
        rows = [
            with_state(context.trace(spec.name).lookup(touched), frame)
            for spec, frame in zip(self.traces, inputs, strict=True)
        ]
        kids = number_keys(KEY_HASH, list(self.keys), rows)
        events = Events.of(rows, self._nulls_apart(rows, kids)).without_idle_tombstones(self.minimal)
        repeated = self._repeated(events, rows)
        if repeated.any():
            events, rows = _with_older_times(events, repeated, rows)
        sides = _evaluate(self.tree, self._leaves(events, repeated))
        at, chosen = self._emitting(events), np.flatnonzero(sides.emits)
        if self.final or self.thin:
            last, there = np.diff(events.kid[at[chosen]], append=-1) != 0, sides.now[chosen]
            kept = last & (there | self._stood(events, at[chosen])) if self.final else last | ~there
            chosen = chosen[kept]
        yield Emission(0, self._rows(events, at[chosen], sides, chosen, rows))
        for spec, frame, kid in zip(self.traces, rows, kids, strict=True):
            context.trace(spec.name).insert(newest(frame, kid, spec.schema))

    def _nulls_apart(self, rows: Sequence[pl.DataFrame], kids: list[pl.Series]) -> list[pl.Series]:
        """Give a key with a null another number on each input that may not meet it on the others."""
        columns = [frame[name] for frame in rows for name in self.keys]
        if not self.nulls or not any(column.null_count() for column in columns):
            return kids
        distinct = 1 + max(int(kid.to_numpy().max()) for kid in kids if len(kid))
        null = pl.any_horizontal(pl.col(list(self.keys)).is_null()).cast(pl.Int64)
        return [
            kid + frame.select(null).to_series() * (distinct * (1 + number))
            for frame, kid, number in zip(rows, kids, self.nulls, strict=True)
        ]

    def _emitting(self, events: Events) -> Ints:
        """The events that may emit: each change, or the last of each step."""
        arrived = events.seq > 0
        return np.flatnonzero(arrived & (events.step_end == events.at) if self.atomic else arrived)

    def _stood(self, events: Events, at: Ints) -> Bools:
        """Whether the result had a row for each event's key when the micro-batch began."""
        begin = events.last_stored[at]
        last = (pick(events.last_of(j), begin, np.int64(-1)) for j in range(len(self.values)))
        return _combined(self.tree, [pick(events.live, row, np.False_) for row in last])

    def _repeated(self, events: Events, rows: Sequence[pl.DataFrame]) -> Bools:
        """Which events change nothing that readers need."""
        repeated = np.zeros(len(events.at), dtype=bool)
        for j, columns in enumerate(self.needed or ()):
            at = np.flatnonzero((events.input == j) & (events.seq > 0) & events.live)
            before = events.before(events.last_of(j), at)
            before = np.where(
                pick(events.live, before, np.False_), pick(events.row, before, np.int64(-1)), -1
            )
            repeated[at] = repeats(rows[j]["v"], columns, events.row[at], before)
        if self.needed is not None and _has_own_times(self.tree):
            # Of a star's change, all rows that are looked up lend their times.
            step = np.cumsum(starts(events.kid, events.step)) - 1
            changes = np.bincount(step, ~repeated & (events.seq > 0)) > 0
            repeated &= ~changes[step] if len(step) else repeated
        return repeated

    def _leaves(self, events: Events, repeated: Bools) -> list[_Side]:
        """What each emitting event finds on each input: whether the input changed, and its row before and after."""
        at = self._emitting(events)
        first = events.step_start[at] if self.atomic else at
        leaves = []
        for j in range(len(self.values)):
            last = events.last_of(j)
            after = last[self._seen(events, at, j)]
            before = events.before(last, first)
            now, was = (pick(events.live, row, np.False_) for row in (after, before))
            touched = events.input[at] == j
            if self.atomic:
                changed = latest((events.input == j) & ~repeated, events.key_start == events.at)
                touched = changed[events.step_end[at]] >= first
            leaves.append(
                _Side(
                    emits=touched,
                    now=now,
                    was=np.where(touched, was, now),
                    row_ts=np.where(now, events.row_ts[after], never()),
                    event_ts=np.where(touched, events.ts[after if self.atomic else at], never()),
                    row=np.where(now, events.row[after], -1),
                )
            )
        return leaves

    def _seen(self, events: Events, at: Ints, j: int) -> Ints:
        """The position up to which each emitting event sees the changes of an input."""
        if self.atomic or self.early[j]:
            return events.step_end[at]
        if self.stores.count(self.stores[j]) == 1:
            return at
        shares = np.array([i != j and store == self.stores[j] for i, store in enumerate(self.stores)])
        return np.where(shares[events.input[at]], np.maximum(at, events.same_turn(j)[at]), at)

    def _rows(
        self, events: Events, at: Ints, sides: _Side, chosen: Ints, rows: Sequence[pl.DataFrame]
    ) -> pl.DataFrame:
        """Gather the payload once."""
        live = sides.now[chosen]
        keys = pl.concat([frame.select(KEY_HASH, *self.keys) for frame in rows], rechunk=False)
        offsets = np.cumsum([0, *(frame.height for frame in rows[:-1])])
        head = pl.DataFrame(
            {
                PARENT: events.seq[at],
                TS: sides.event_ts[chosen],
                ROW_TS: np.where(live, sides.row_ts[chosen], sides.event_ts[chosen]),
                LIVE: live,
            }
        )
        values = [
            gather(frame.get_column("v"), np.where(live, leaf[chosen], -1)).alias(f"v{j}")
            for j, (frame, leaf) in enumerate(zip(rows, _leaf_rows(sides), strict=True))
        ]
        return head.hstack(keys[events.row[at] + offsets[events.input[at]]]).hstack(values)


def _with_older_times(
    events: Events, repeated: Bools, rows: Sequence[pl.DataFrame]
) -> tuple[Events, list[pl.DataFrame]]:
    """Give rows that are written again the time of the row before."""
    row_ts, found = events.row_ts.copy(), []
    for j, frame in enumerate(rows):
        mine = np.flatnonzero(events.input == j)
        last = latest((events.input == j) & ~repeated, events.key_start == events.at)[mine]
        row_ts[mine] = events.row_ts[last]
        times = ints(frame[ROW_TS]).copy()
        times[events.row[mine]] = row_ts[mine]
        found.append(frame.with_columns(pl.Series(ROW_TS, times)))
    return replace(events, row_ts=row_ts), found


@dataclass(frozen=True)
class _Side:
    """One side of a join, as each emitting event finds it: columns of the same length.

    ``emits``: it changes; ``now``, ``was``: a row exists after and before; ``row_ts``, ``event_ts``: times of the
    row and of the change (`never()` where there is none); ``row``: for an input, the position of its row or -1.
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
    other = never() if tree.own_times else np.select(cases, [never(), right.row_ts, left.row_ts], never())
    return _Side(
        emits=np.select(cases, [now | was, *_emits_alone(tree.how, left, right)], default=False),
        now=now,
        was=was,
        row_ts=np.where(now, np.maximum(left.row_ts, right.row_ts), never()),
        event_ts=np.maximum(np.maximum(left.event_ts, right.event_ts), other),
        parts=(left, right),
    )


def exists(how: How, left: Bools, right: Bools) -> Bools:
    """Return whether a join has a row, given whether each side has one."""
    return {"inner": left & right, "left": left, "right": right, "outer": left | right}[how]


def _has_own_times(tree: Branch | int) -> bool:
    """Whether the changes of some join of a tree keep their own times."""
    return not isinstance(tree, int) and (tree.own_times or any(map(_has_own_times, (tree.left, tree.right))))


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
