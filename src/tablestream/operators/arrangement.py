"""Arrangements: what was there before a change. Rows are sorted by key and, within a key, by place.

An operator looks up the rows of the state that its messages concern, puts the messages behind them, and numbers their
keys. The arrangement of these numbers and places says, for each row, which one its key had before, which of some marked
ones came last, and where a turn begins and ends. A *turn* is what counts as one change of a key:

===========  ================================  ==============================================================
turn         messages of one key in it         used for
===========  ================================  ==============================================================
MESSAGE      one                               every change, and compat mode
STEP         all that have the same root       operators that emit once per key and step
MICRO_BATCH  all                               final changes
===========  ================================  ==============================================================

The *delta* of a turn has the row after its last message, and the row before its first one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np
import polars as pl

from tablestream.operators.events import bools, by_key, ints, latest, pick, previous, touched_keys
from tablestream.state.changes import LIVE, ROW_TS, SEQ, STEP, TS, last_rows, number_keys
from tablestream.state.positions import Bools, Ints, put_back, stable_order, starts
from tablestream.state.trace import Trace


@dataclass(frozen=True)
class Arrangement:
    """Rows sorted by key and, within it, by place."""

    key: Ints
    """The number of each row's key, which rises."""
    row: Ints
    """The position of each row where it came from."""

    @classmethod
    def of(cls, key: Ints, place: Ints | None = None) -> Arrangement:
        """Sort rows; of one key, those at one place keep their order. None: they come in the order of places."""
        row = stable_order(key) if place is None else by_key(key, place)
        return cls(key[row], row)

    def only(self, some: Bools) -> Arrangement:
        """The arrangement of some rows."""
        return self if some.all() else Arrangement(self.key[some], self.row[some])

    def dense(self) -> Arrangement:
        """The same with keys that are numbered from 0 without gaps."""
        return Arrangement(np.asarray(np.cumsum(self.begins) - 1), self.row)

    @cached_property
    def begins(self) -> Bools:
        """Whether each row is the first of its key."""
        return starts(self.key)

    @cached_property
    def before(self) -> Ints:
        """The row before each one, of its key; -1: there is none."""
        return previous(self.row, self.begins, -1)

    def latest(self, marked: Bools) -> Ints:
        """The last marked row up to each one, of its key; -1: there is none."""
        return pick(self.row, latest(marked, self.begins), -1)

    def turns(self, number: Ints) -> tuple[Ints, Ints]:
        """Where each turn begins and ends. `number`: that of each row's turn, among the rows of its key."""
        first = np.flatnonzero(starts(self.key, number))
        return first, np.append(first[1:], len(self.key))[: len(first)] - 1

    def by_row(self, values: Ints) -> Ints:
        """Put values of the arranged rows where the rows came from."""
        return put_back(values, self.row)


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
    """The changes of a table in a micro-batch, sorted by key and, within it, by place."""

    rows: pl.DataFrame
    """The rows of the state, then the messages. A row's place is 0 if it is of the state."""
    first: Ints
    now: Ints
    before: Ints
    """Positions in `rows`: the first and the last message of each turn, and the row before it; -1: there is none."""

    @cached_property
    def live(self) -> Bools:
        """Whether the row exists after each turn."""
        return bools(self.rows[LIVE])[self.now]

    @cached_property
    def was(self) -> Bools:
        """Whether the row existed before each turn."""
        return pick(bools(self.rows[LIVE]), self.before, False)


@dataclass(frozen=True)
class TableRows:
    """The rows of a table whose keys a micro-batch concerns: those of the state, then the messages."""

    rows: pl.DataFrame
    """A row's place is 0 if it is of the state."""
    key: Ints
    """The number of each row's key."""

    @classmethod
    def of(cls, trace: Trace, arrived: pl.DataFrame) -> TableRows:
        """Put messages after the rows that the state has of their keys."""
        ((found,), _) = table_rows([(trace, arrived)])
        return found

    def deltas(self, turn: Turn, *, minimal: bool = False) -> Deltas:
        """Pair each turn of a key with the row before it. `minimal`: leave out tombstones for absent rows."""
        seq = ints(self.rows[SEQ])
        arranged = Arrangement.of(self.key, seq)
        if minimal:
            live = bools(self.rows[LIVE])[arranged.row]
            arranged = arranged.only(live | previous(live, arranged.begins, False))
        first, last = arranged.turns(turn.numbers(self.rows)[arranged.row])
        arrived = seq[arranged.row[first]] > 0
        first, last = first[arrived], last[arrived]
        return Deltas(self.rows, arranged.row[first], arranged.row[last], arranged.before[first])

    def remember(self, trace: Trace) -> None:
        """Write the last row of each key that changed, at the row's own time."""
        last = last_rows(self.key)
        last = last[ints(self.rows[SEQ])[last] > 0]
        own = ROW_TS if ROW_TS in self.rows.columns else TS
        found = self.rows[[own if name == TS else name for name in trace.spec.schema]][pl.Series(last)]
        found.columns = list(trace.spec.schema)
        trace.insert(found)


def table_rows(
    tables: Sequence[tuple[Trace, pl.DataFrame]], asking: Sequence[pl.DataFrame] = ()
) -> tuple[list[TableRows], list[Ints]]:
    """Read of some tables the rows of all keys that their messages have, or that other frames ask for.

    `tables`: the trace of each table, and its messages. The keys of all have the same columns. `asking`: other frames
    with these columns. Returns: the rows of each table, and the number of each key that is asked for.
    """
    spec = tables[0][0].spec
    touched = touched_keys(tables[0][0], *(arrived for _, arrived in tables), *asking)
    rows = [with_state(trace.lookup(touched), arrived) for trace, arrived in tables]
    keys = number_keys(spec.hash, spec.key, [*rows, *asking])
    found = [TableRows(*one) for one in zip(rows, keys[: len(rows)], strict=True)]
    return found, keys[len(rows) :]


def with_state(stored: pl.DataFrame, arrived: pl.DataFrame) -> pl.DataFrame:
    """Put the messages after the rows of the state, which get place 0, step 0 and, if they have no time, time 0.

    If messages have ``_row_ts``, all rows have it afterwards. Other columns that the state does not have are null in
    its rows.
    """
    if ROW_TS in arrived.columns:
        stored = stored.with_columns(pl.col(TS).alias(ROW_TS))
        arrived = arrived.with_columns(pl.coalesce(ROW_TS, TS).alias(ROW_TS))
    zeros = pl.zeros(stored.height, pl.Int64, eager=True)
    lacking = (name for name in arrived.columns if name not in stored.columns)
    stored = stored.hstack(
        [
            zeros.alias(name) if name in {SEQ, STEP, TS} else arrived[name].clear(stored.height)
            for name in lacking
        ]
    )
    return pl.concat([stored[arrived.columns], arrived], rechunk=False)
