"""Second half of a grouping: the first n rows of each group in an order of its rows, by rank.

Rows are ranked from 1. Of rows with equal values, the one that arrived first ranks first; a row that is written again
counts as newly arrived. Nulls are last, NaN is the greatest.

Without ``ranked``, each group shows its first row under the key of the group alone.

A *turn* is one message, or with ``atomic`` all messages of a step to one group. Each turn emits, by rank rising, at the
time that `groups` gives:

===================================  =======================
rank, compared with the turn before  emits
===================================  =======================
shows another key or value           that row
shows the same                       nothing
shows nothing any more               a tombstone
===================================  =======================

References
----------
SQL's ``row_number() OVER (PARTITION BY ... ORDER BY ...) <= n``; ``docs/semantics/top.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tablestream.operators.events import run_start, same_rows
from tablestream.operators.operator import NUMBER, Context, Emission, keyed_rows
from tablestream.operators.reduce.groups import ROWS, GroupEvents, groups_trace
from tablestream.operators.reduce.members import GroupRows, GroupWork, Pass
from tablestream.operators.reduce.parts import OfGroups
from tablestream.operators.reduce.ranking import Moves, Order
from tablestream.state.changes import FOREIGN_HASH, LIVE, TS, key_columns
from tablestream.state.positions import gather, starts
from tablestream.state.trace import Trace
from tablestream.state.trace_spec import TraceSpec

#: The rank, where ranks are read from the state.
RANK = "rank"
#: More rows than a group can have.
_MOST_ROWS = 2**32
#: About what it takes to compare the rows of a rank before and after a turn. With a few ranks it is not much.
_MOVE_BYTES, _FEW_RANKS = 200, 100
#: The number of the group of a change.
_GROUP = "_group"


@dataclass(frozen=True)
class Top(OfGroups):
    """Maintain the first rows of groups.

    Output 0: ``_kh``, group key as ``_k0``, ..., then the rank if `ranked`, ``_ts``,
    ``_live``, ``v0``. Cost: the messages, the cost that `members` gives for n rows, and the ranks that change: a row
    that becomes the first one moves all others.
    """

    result: pl.DataType
    """The dtype of the value in the result: the first fields of `value`. Those that rows are ranked by follow."""
    order: Order
    n: int
    """How many rows a group shows; 1 without `ranked`."""
    ranked: bool = True
    """Whether the rank is part of the key."""

    needs_row_keys = True
    takes_last = True

    @property
    def parameters(self) -> tuple[str, ...]:
        return ("n", "order", *super().parameters)

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        kinds = (*self.group_keys.values(), *([pl.Int64()] if self.ranked else []))
        keys = pl.Schema(dict(zip(key_columns(len(kinds)), kinds, strict=True)))
        return (keyed_rows(keys, {"v0": self.result}),)

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return (self._groups, *self._rows.traces)

    @property
    def _rank(self) -> str:
        return key_columns(len(self.group_keys) + 1)[-1]

    @property
    def _groups(self) -> TraceSpec:
        return groups_trace(self.group_keys, self._rows.state)

    @property
    def _rows(self) -> GroupRows:
        return GroupRows(self.keys, self.group_keys, self.value, (self.order,), min(self.n, _MOST_ROWS))

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        (arrived,) = inputs
        events = self._events(arrived, context)
        rows = events.remembered(ROWS)
        largest = min(self.n, int(rows.max(initial=0)) + len(events))
        parts = self._parts(events, largest * _MOVE_BYTES if largest > _FEW_RANKS else None, context)
        held: pl.DataFrame | None = None
        for begin, part in parts:
            changes, moves = self._applied(part, context)
            parts.made(moves * _MOVE_BYTES)
            if not (self.final or self.thin):
                yield Emission(0, changes.drop(_GROUP))
                continue
            changes = changes.with_columns(pl.col(_GROUP) + events.group[begin : begin + 1].sum())
            held = self._last(changes if held is None else pl.concat([held, changes]))
        if held is not None:
            was = pl.Series(rows)[held[_GROUP]] >= held[NUMBER]
            shown = held.filter(held[LIVE] | was) if self.final else held
            yield Emission(0, shown.drop(_GROUP))

    def _applied(self, events: GroupEvents, context: Context) -> tuple[pl.DataFrame, int]:
        """Apply messages and remember the rows; return the ranks that each turn changes, and how many were compared."""
        work = GroupWork(self._rows, events, context.trace)
        shows = events.mask(events.turn_end)
        passes = work.ranked(lambda ranking: ranking.first_rows(events, shows, self.n))
        answer = events.answered(events.rows[events.turn_end] > 0, list(self.group_keys))
        changes = pl.concat(self._moved(one, events, answer.emitted) for one in passes)
        context.trace(self._groups.name).insert(answer.kept.with_columns(**work.remember()))
        return changes, sum(len(one.found[self.order].at) for one in passes)

    def _last(self, changes: pl.DataFrame) -> pl.DataFrame:
        """The last change of each rank; with `thin` also those that end one."""
        last = changes.select(pl.struct(_GROUP, NUMBER).is_last_distinct()).to_series()
        return changes.filter(last | ~changes[LIVE] if self.thin else last)

    def recalled(self, trace: Callable[[str], Trace], hashed: int | None = None) -> Iterator[pl.DataFrame]:
        """Read the ranks from the state, in frames of bounded size: ``_fh``, group key, `RANK`, ``_ts``, ``v``.

        The time is that of the group's last change: what is stored has no time of a rank.

        `trace`: returns a trace that the operator declared, by name. `hashed`: only the groups of this hash.
        """
        for groups in trace(self._groups.name).frames(hashed):
            rows, group = self._rows.recalled(groups, trace)[self.order]
            order = np.argsort(group, kind="stable")
            place = np.arange(len(order)) - run_start(starts(group[order]))
            shown = place < self.n
            chosen = order[shown]
            yield groups.select(FOREIGN_HASH, *self.group_keys, TS)[group[chosen]].with_columns(
                pl.Series(RANK, place[shown] + 1, dtype=pl.Int64), self._values(rows["v"])[chosen].alias("v")
            )

    def _moved(self, found: Pass[Moves], events: GroupEvents, turns: pl.DataFrame) -> pl.DataFrame:
        """The rows to emit for the ranks that change: `turns` has the group and the time of each turn."""
        moves = found.found[self.order]
        rows = found.rankings[self.order].versions.rows
        values = self._values(rows["v"])
        seen = rows.select(*self.keys, values.alias("v0"))
        changed = ~same_rows(seen, moves.before, moves.after)
        at, rank, after = (one[changed] for one in (moves.at, moves.place + 1, moves.after))
        number = pl.Series(rank, dtype=pl.Int64)
        return turns[np.searchsorted(events.turn_end, at)].with_columns(
            *([number.alias(self._rank)] if self.ranked else []),
            number.alias(NUMBER),
            pl.Series(_GROUP, events.group[at], dtype=pl.Int64),
            pl.Series(LIVE, after >= 0, dtype=pl.Boolean),
            gather(values, after).alias("v0"),
        )

    def _values(self, rows: pl.Series) -> pl.Series:
        """The values in the result, from the remembered parts of rows."""
        fields = (
            rows.struct.field(name) if name in rows.struct.fields else pl.lit(None, kind).alias(name)
            for name, kind in pl.Series(dtype=self.result).struct.schema.items()
        )
        return pl.select(pl.struct(fields)).to_series()
