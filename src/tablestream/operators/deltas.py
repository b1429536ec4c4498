"""Deltas: the changes of a table, each with the row that it replaces.

A *turn* is what counts as one change of a key:

===========  ================================  ==============================================================
turn         messages of one key in it         used for
===========  ================================  ==============================================================
MESSAGE      one                               every change, and compat mode
STEP         all that have the same root       operators that emit once per key and step
MICRO_BATCH  all                               final changes
===========  ================================  ==============================================================

The delta of a turn has the row after its last message, and the row before its first one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np
import polars as pl

from tablestream.operators.events import bools, by_key, ints, pick, previous
from tablestream.state.changes import LIVE, SEQ, STEP
from tablestream.state.positions import Bools, Ints, starts


class Turn(Enum):
    """Which messages of a key count as one change."""

    MESSAGE = "message"
    STEP = "step"
    MICRO_BATCH = "micro-batch"

    def numbers(self, rows: pl.DataFrame) -> Ints:
        """The number of each row's turn, among the rows of its key. A row of the state has turn 0."""
        if self is Turn.MICRO_BATCH:
            return (ints(rows[SEQ]) > 0).astype(np.int64)
        return ints(rows[STEP if self is Turn.STEP else SEQ])


@dataclass(frozen=True)
class Deltas:
    """The changes of a table in a micro-batch, sorted by key and, within it, by place.

    Attributes
    ----------
    rows
        The rows of the state, then the messages. A row's place is 0 if it is of the state.
    first, now, before
        Positions in `rows`: the first and the last message of each turn, and the row before it; -1: there is none.
    """

    rows: pl.DataFrame
    first: Ints
    now: Ints
    before: Ints

    @classmethod
    def of(cls, rows: pl.DataFrame, kid: pl.Series, turn: Turn, *, minimal: bool = False) -> Deltas:
        """Pair each turn of a key with the row before it.

        Parameters
        ----------
        rows, kid
            The rows of the state, then the messages; the number of each row's key.
        turn
            What counts as one change.
        minimal
            Whether to leave out tombstones for absent rows.
        """
        seq = ints(rows[SEQ])
        order = by_key(ints(kid), seq)
        key = ints(kid)[order]
        if minimal:
            live = bools(rows[LIVE])[order]
            changes = live | previous(live, starts(key), np.False_)
            if not changes.all():
                order, key = order[changes], key[changes]
        before = previous(order, starts(key), np.int64(-1))
        first = np.flatnonzero(starts(key, turn.numbers(rows)[order]))
        last = np.append(first[1:], len(order))[: len(first)] - 1
        arrived = seq[order[first]] > 0
        first, last = first[arrived], last[arrived]
        return cls(rows, order[first], order[last], before[first])

    @cached_property
    def live(self) -> Bools:
        """Whether the row exists after each turn."""
        return bools(self.rows[LIVE])[self.now]

    @cached_property
    def was(self) -> Bools:
        """Whether the row existed before each turn."""
        return pick(bools(self.rows[LIVE]), self.before, np.False_)
