"""Messages to groups, side by side: what every way of aggregating a group shares.

A *turn* is what is answered at once: one message, or, if a step is answered as a whole, all messages of a step to
one group. Of each turn it has to be known whether the group exists before and after it, and its time:

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

from tablestream.operators.events import Bools, Ints, bools, gather, ints, never, starts
from tablestream.operators.operator import PARENT
from tablestream.operators.regroup import IS, OLD, WAS
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


@dataclass(frozen=True)
class GroupEvents:
    """Messages to groups, sorted by group and, within it, by place.

    Attributes
    ----------
    messages
        The messages, sorted so.
    groups
        What is remembered of each group that has messages, one row a group in the order of their numbers; null
        where nothing is.
    group
        The number of each message's group, from 0.
    atomic
        Whether a turn is a step.
    """

    messages: pl.DataFrame
    groups: pl.DataFrame
    group: Ints
    atomic: bool

    @classmethod
    def of(
        cls, arrived: pl.DataFrame, stored: pl.DataFrame, group_keys: Sequence[str], *, atomic: bool
    ) -> GroupEvents:
        """Sort messages and put what is stored of their groups beside them."""
        ids, stored_ids = (
            ints(one) for one in number_keys(FOREIGN_HASH, list(group_keys), [arrived, stored])
        )
        order = np.lexsort((ints(arrived[SEQ]), ids))
        ids = ids[order]
        place = np.full(int(max(ids.max(initial=-1), stored_ids.max(initial=-1))) + 1, -1, dtype=np.int64)
        place[stored_ids] = np.arange(len(stored_ids))
        begins = starts(ids)
        found = place[ids[begins]]
        groups = pl.DataFrame([gather(column, found) for column in stored])
        return cls(arrived[order], groups, np.asarray(np.cumsum(begins) - 1), atomic)

    def __len__(self) -> int:
        return len(self.group)

    @cached_property
    def first(self) -> Ints:
        """The position of each group's first message."""
        return np.flatnonzero(starts(self.group))

    @cached_property
    def last(self) -> Ints:
        """The position of each group's last message."""
        return np.append(self.first[1:], len(self))[: len(self.first)] - 1

    @cached_property
    def turn_start(self) -> Ints:
        """The position of each turn's first message."""
        if not self.atomic:
            return np.arange(len(self), dtype=np.int64)
        return np.flatnonzero(starts(self.group, ints(self.messages[STEP])))

    @cached_property
    def turn_end(self) -> Ints:
        """The position of each turn's last message."""
        return np.append(self.turn_start[1:], len(self))[: len(self.turn_start)] - 1

    @cached_property
    def removes(self) -> Bools:
        """Whether a message takes a row out."""
        return bools(self.messages[WAS])

    @cached_property
    def adds(self) -> Bools:
        """Whether a message puts a row in."""
        return bools(self.messages[IS])

    def old(self, column: str) -> pl.Series:
        """A column of the rows taken out; null where none is."""
        return self.messages[OLD].struct.field(column)

    def new(self, column: str) -> pl.Series:
        """A column of the rows put in; null where none is."""
        return self.messages["v"].struct.field(column)

    @cached_property
    def existed(self) -> Bools:
        """Whether each group exists before the micro-batch."""
        return bools(self.groups[LIVE].fill_null(value=False))

    def remembered(self, column: str, default: int = 0) -> Ints:
        """What is remembered of each group, or a default."""
        return ints(self.groups[column].fill_null(default))

    def running(self, moves: Ints, base: Ints) -> Ints:
        """Sum up moves within each group, from what was remembered; integers of any kind."""
        total = np.cumsum(moves)
        before = (total - moves)[self.first]
        return np.asarray(total - before[self.group] + base[self.group])

    def before(self, after: Bools) -> Bools:
        """From whether groups exist after each turn to whether they exist before it."""
        group = self.group[self.turn_start]
        return np.where(starts(group), self.existed[group], np.append(False, after)[:-1])

    def final_turns(self, after: Bools) -> Ints:
        """The last turn of each group that exists after it, or did before the micro-batch."""
        group = self.group[self.turn_end]
        last = np.append(group[1:] != group[:-1], True)[: len(group)]
        return np.flatnonzero(last & (after | self.existed[group]))

    def times(self, before: Bools) -> Ints:
        """Return the time of each turn; `before` says whether its group exists before it."""
        if not len(self):
            return np.empty(0, dtype=np.int64)
        time = np.maximum.reduceat(ints(self.messages[TS]), self.turn_start)
        group = self.group[self.turn_start]
        first = starts(group)
        known = np.where(before, self.remembered(TS)[group], never())
        time = np.where(first, np.maximum(time, known), time)
        distinct, rank = np.unique(time, return_inverse=True)
        life = np.cumsum(first | ~before)
        highest = np.maximum.accumulate(life * len(distinct) + rank)
        return np.asarray(distinct[highest - life * len(distinct)])


def message_schema(keys: pl.Schema, group_keys: pl.Schema, value: pl.DataType) -> pl.Schema:
    """The columns of the messages that `Regroup` sends."""
    head = {FOREIGN_HASH: pl.Int64(), **group_keys, KEY_HASH: pl.Int64(), **keys, TS: pl.Int64()}
    return pl.Schema({**head, WAS: pl.Boolean(), IS: pl.Boolean(), OLD: value, "v": value})


def place_of_rows(events: GroupEvents, turns: Ints, time: Ints, group_keys: pl.Schema) -> pl.DataFrame:
    """The columns of result rows but their values: cause, group key as the result's key, time."""
    renamed = zip(group_keys, key_columns(len(group_keys)), strict=True)
    rows: pl.DataFrame = events.messages[events.turn_end[turns]].select(
        pl.col(SEQ).alias(PARENT),
        pl.col(FOREIGN_HASH).alias(KEY_HASH),
        *(pl.col(name).alias(key) for name, key in renamed),
    )
    return rows.with_columns(pl.Series(TS, time[turns], dtype=pl.Int64))
