"""Messages sorted by group: what all aggregations have in common.

A *turn* is what emits at once: one message or, if a step is processed as a whole, all messages of a step to one group.
Whether the group exists before and after a turn decides what is emitted, and its time:

================  ===============  ==================================================
exists before     exists after     time
================  ===============  ==================================================
yes               any              max(the turn's messages, the group's time)
no                any              max(the turn's messages)
================  ===============  ==================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from tablestream.base.data_text import cut_text
from tablestream.operators.arrangement import Arrangement
from tablestream.operators.cells import as_json, cells
from tablestream.operators.events import NEVER, bools, ends, ints, places, previous, stored_rows
from tablestream.operators.operator import PARENT, keyed_rows
from tablestream.operators.reduce.regroup import IS, OLD, WAS
from tablestream.state.changes import (
    FOREIGN_HASH,
    KEY_HASH,
    LIVE,
    SEQ,
    STEP,
    TS,
    key_columns,
    number_keys,
)
from tablestream.state.positions import Bools, Ints, gather, starts
from tablestream.state.trace import Trace
from tablestream.state.trace_spec import TraceSpec

#: How many rows a group has.
ROWS = "_rows"
#: Whether a stored group exists.
EXISTS = pl.col(LIVE)


@dataclass(frozen=True)
class GroupEvents:
    """Messages to groups, sorted by group and, within it, by place."""

    messages: pl.DataFrame
    """The sorted messages."""
    groups: pl.DataFrame
    """What is remembered of each group that has messages: one row per group, in the order of their numbers; null if
    nothing is."""
    arranged: Arrangement
    """The number of each message's group, from 0, and its position among those that arrived."""
    atomic: bool
    """Whether a turn is a step."""
    keep_empty: bool = False
    """Whether a group without rows exists."""

    @classmethod
    def of(
        cls,
        arrived: pl.DataFrame,
        trace: Trace,
        group_keys: Sequence[str],
        *,
        atomic: bool,
        keep_empty: bool = False,
        exists: pl.Expr = EXISTS,
    ) -> GroupEvents:
        """Sort messages, and look up what is stored of their groups.

        `exists`: whether a stored group exists.
        """
        stored = stored_rows(trace, arrived).with_columns(exists.alias(LIVE))
        ids, stored_ids = number_keys(FOREIGN_HASH, group_keys, [arrived, stored])
        arranged = Arrangement.of(ids, ints(arrived[SEQ]))
        found = places(stored_ids, arranged.key[arranged.begins])
        groups = pl.DataFrame([gather(column, found) for column in stored])
        return cls(arrived[arranged.row], groups, arranged.dense(), atomic, keep_empty)

    def __len__(self) -> int:
        return len(self.group)

    @property
    def group(self) -> Ints:
        """The number of each message's group, from 0."""
        return self.arranged.key

    @cached_property
    def first(self) -> Ints:
        """The position of each group's first message."""
        return np.flatnonzero(self.arranged.begins)

    @cached_property
    def last(self) -> Ints:
        """The position of each group's last message."""
        return np.flatnonzero(ends(self.group))

    @cached_property
    def _turns(self) -> tuple[Ints, Ints]:
        return self.arranged.turns(ints(self.messages[STEP if self.atomic else SEQ]))

    @property
    def turn_start(self) -> Ints:
        """The position of each turn's first message."""
        return self._turns[0]

    @property
    def turn_end(self) -> Ints:
        """The position of each turn's last message."""
        return self._turns[1]

    def mask(self, some: Ints | Sequence[int]) -> Bools:
        """Whether each message is one of some, which are given by their positions."""
        found = np.zeros(len(self), dtype=bool)
        found[some] = True
        return found

    @cached_property
    def removes(self) -> Bools:
        """Whether a message removes a row."""
        return bools(self.messages[WAS])

    @cached_property
    def adds(self) -> Bools:
        """Whether a message adds a row."""
        return bools(self.messages[IS])

    def old(self, column: str) -> pl.Series:
        """A column of the removed rows; null if none is removed."""
        return self.messages[OLD].struct.field(column)

    def new(self, column: str) -> pl.Series:
        """A column of the added rows; null if none is added."""
        return self.messages["v"].struct.field(column)

    @cached_property
    def existed(self) -> Bools:
        """Whether each group exists before the micro-batch."""
        return bools(self.groups[LIVE].fill_null(value=False))

    def remembered(self, column: str, default: int = 0) -> Ints:
        """What is remembered of each group, or a default."""
        return ints(self.groups[column].fill_null(default))

    def group_shown(self, at: int) -> str:
        """The group of a message, as text for people."""
        keys = self.messages[at].select(pl.col("^_f\\d+$"))
        return cut_text(f"({', '.join(as_json(cells(part)[0], part.dtype) for part in keys)})")

    def running(self, moves: Ints, base: Ints) -> Ints:
        """Running sum of changes within each group, starting from what was remembered; integers of any kind."""
        total = np.cumsum(moves)
        before = (total - moves)[self.first]
        return np.asarray(total + (base - before)[self.group])

    @cached_property
    def rows(self) -> Ints:
        """How many rows the group has after each message."""
        return self.running(self.adds.astype(np.int64) - self.removes, self.remembered(ROWS))

    @cached_property
    def deletes(self) -> Bools:
        """Whether a message is the last of a turn that leaves no rows, and so deletes its group."""
        return self.mask(self.turn_end[(self.rows[self.turn_end] <= 0) & (not self.keep_empty)])

    def before(self, after: Bools) -> Bools:
        """Whether groups exist before each turn, from whether they exist after it."""
        group = self.group[self.turn_start]
        return previous(after, starts(group), self.existed[group])

    def final_turns(self, after: Bools) -> Ints:
        """The last turn of each group that exists after it, or did before the micro-batch."""
        group = self.group[self.turn_end]
        return np.flatnonzero(ends(group) & (after | self.existed[group]))

    def thin_turns(self, after: Bools) -> Ints:
        """The last turn of each group, and those after which a group does not exist."""
        return np.flatnonzero(ends(self.group[self.turn_end]) | ~after)

    def answered(
        self, after: Bools, group_keys: Sequence[str], *, final: bool = False, thin: bool = False
    ) -> Answered:
        """What to emit and to remember of groups, given whether they exist after each turn."""
        time = self.times(self.before(after))
        every = np.arange(len(after), dtype=np.int64)
        turns = self.final_turns(after) if final else self.thin_turns(after) if thin else every
        last = np.searchsorted(self.turn_end, self.last)
        key = pl.col(FOREIGN_HASH), *map(pl.col, group_keys)
        names = (KEY_HASH, *key_columns(len(group_keys)))
        emitted = self.messages[self.turn_end[turns]].select(
            pl.col(SEQ).alias(PARENT), *(part.alias(name) for part, name in zip(key, names, strict=True))
        )
        kept = self.messages[self.last].select(key)
        rows = self.rows[self.last]
        return Answered(
            turns=turns,
            last=last,
            emitted=_timed(emitted, time[turns], after[turns]),
            kept=_timed(kept, time[last], after[last] | (rows > 0)).with_columns(pl.Series(ROWS, rows)),
        )

    def times(self, before: Bools) -> Ints:
        """Return the time of each turn; `before` says whether its group exists before it."""
        if not len(self):
            return np.empty(0, dtype=np.int64)
        time = np.maximum.reduceat(ints(self.messages[TS]), self.turn_start)
        group = self.group[self.turn_start]
        first = starts(group)
        known = np.where(before, self.remembered(TS)[group], NEVER)
        time = np.where(first, np.maximum(time, known), time)
        distinct, rank = np.unique(time, return_inverse=True)
        life = np.cumsum(first | ~before)
        highest = np.maximum.accumulate(life * len(distinct) + rank)
        return np.asarray(distinct[highest - life * len(distinct)])


def groups_changes(group_keys: pl.Schema, value: pl.DataType) -> pl.Schema:
    """The columns of the changes of groups: `Answered.emitted`, and the value."""
    names = key_columns(len(group_keys))
    return keyed_rows(pl.Schema(dict(zip(names, group_keys.values(), strict=True))), {"v0": value})


@dataclass(frozen=True)
class Answered:
    """What turns emit and what is remembered, without the aggregates."""

    turns: Ints
    """The turns that emit."""
    last: Ints
    """The last turn of each group."""
    emitted: pl.DataFrame
    """Per turn that emits: ``_parent``, ``_kh``, group key as ``_k0``, ..., ``_ts``, ``_live``."""
    kept: pl.DataFrame
    """What is remembered per group: ``_fh``, group key, ``_ts``, ``_live``, ``_rows``. A group that a function deleted
    is there for its number of rows."""


def groups_trace(group_keys: pl.Schema, aggregates: dict[str, pl.DataType]) -> TraceSpec:
    """The trace of groups: the columns of `Answered.kept`, and the aggregates."""
    columns = {FOREIGN_HASH: pl.Int64(), **group_keys, TS: pl.Int64(), LIVE: pl.Boolean(), ROWS: pl.Int64()}
    return TraceSpec(
        name="groups",
        hash=FOREIGN_HASH,
        key=tuple(group_keys),
        schema=pl.Schema({**columns, **aggregates}),
    )


def _timed(rows: pl.DataFrame, time: Ints, live: Bools) -> pl.DataFrame:
    return rows.with_columns(pl.Series(TS, time, dtype=pl.Int64), pl.Series(LIVE, live, dtype=pl.Boolean))
