"""Retention: a table forgets the rows that have become too old, each by a change of its own.

A row's time is its timestamp, or what a column says; a row without one is never too old. ``now`` is the largest time of
any row that the shard has seen, and ``bound`` is ``now - keep_us``. A step first moves ``now`` on:

===============================  ============================  ===========================
event                            its key has a row             its key has none
===============================  ============================  ===========================
row at or after the bound        replaces it                   is added
row before the bound             dropped, counted; the row     dropped, counted
.                                of its key gets a tombstone
tombstone                        deletes the row               nothing
after a step, a row is before    forgotten: a tombstone, at    -
the bound                        the largest timestamp of the
.                                step
not changed for                  forgotten: a tombstone, at    -
``wall_clock_us`` on the clock   ``now``; at the clock's time
.                                if no row had a time
===============================  ============================  ===========================

With `freezes` a row that is too old is forgotten without a tombstone, and a row before the bound leaves the row of its
key as it is. So readers keep what they have, and no change of the key reaches them but a row at or after the bound.
The bound is then that before the step: what comes in one step with newer rows is passed on, and frozen at once.

Tombstones never move ``now``. Rows are forgotten in the order of (time, key), after the changes of the step. The state
has the key and the time of each row that is there, and not its value.

References
----------
``docs/semantics/retention.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from tablestream.operators.buffer.time_index import BEGIN, END
from tablestream.operators.buffer.waiting import (
    ARRIVED,
    BY_ARRIVAL,
    WAITING,
    ReleaseRule,
    Waiting,
    changed,
    released,
    waiting_by_key,
)
from tablestream.operators.events import ends, ints, stored_rows
from tablestream.operators.operator import NUMBER, PARENT, Context, Emission, OfTable, keyed_rows
from tablestream.operators.reasons import EXPIRED
from tablestream.state.changes import (
    FOREIGN_HASH,
    KEY_HASH,
    LIVE,
    SEQ,
    STEP,
    TS,
    foreign_columns,
    number_keys,
)
from tablestream.state.trace_spec import TraceSpec

#: A row's time; `END`, after all bounds: it has none.
_DATED = "_dated"
#: The trace of the times of rows by key. The indexes store their keys: one by these times, one by arrival.
_ROWS = "rows"
#: The columns in which the time of a row arrives that is not its timestamp.
(_BY,) = foreign_columns(1)
_TIMED = {FOREIGN_HASH: pl.Int64(), _BY: pl.Int64()}


@dataclass(frozen=True)
class Expiry(OfTable):
    """Forget rows that are older than a length.

    Input: ``_kh``, key, ``_ts``, ``_live``, ``v``; with `by_column` also ``_fh`` and ``_f0``, the time. Output 0:
    ``_kh``, key, ``_ts``, ``_live``, ``v0``. Cost: the changes that arrive and the rows that are forgotten, each looked
    up by its key.
    """

    keep_us: int
    """How much older than the newest row a row may be, in microseconds."""
    by_column: bool = False
    """Whether a row's time arrives in a column, and is not its timestamp."""
    wall_clock_us: int | None = None
    """The longest time that a row stays unchanged on the wall clock, in microseconds. None: there is no such limit."""
    freezes: bool = False
    """Whether readers keep the rows that are forgotten."""

    parameters = ("keep_us", "by_column", "wall_clock_us", "freezes")
    marks = (WAITING, BY_ARRIVAL)
    reasons = (EXPIRED,)
    rejects = True
    keeps_shard = True

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        timed = _TIMED if self.by_column else {}
        return (pl.Schema({**super().inputs[0], **timed}),)

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        return (keyed_rows(self.keys, {"v0": self.value}),)

    @property
    def needs_clock(self) -> bool:
        return self.wall_clock_us is not None

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return waiting_by_key(_ROWS, _DATED, self.keys, {LIVE: pl.Boolean()}, clock=self.needs_clock)

    @property
    def _rule(self) -> ReleaseRule:
        """A row is due once it is before the bound, and not yet at it."""
        return ReleaseRule(self.keep_us + 1, self.wall_clock_us)

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        (arrived,) = inputs
        now = pl.lit(context.now_us, pl.Int64)
        dated = pl.when(LIVE).then(_BY if self.by_column else TS).fill_null(END)
        new = arrived.with_columns(dated.alias(_DATED), now.alias(ARRIVED))
        rows = context.trace(_ROWS)
        stored = self._stored(new, context).drop(LIVE)
        new = new.select(SEQ, STEP, *stored.columns)
        waiting = Waiting(self._rule, context, stored, new, _DATED, list(self.keys))
        (kid,) = number_keys(KEY_HASH, self.keys, [waiting.rows])
        work = _Work(self, waiting, arrived, kid.tolist())
        work.run()
        columns = KEY_HASH, *self.keys, TS, LIVE
        yield Emission(0, work.passed().select(PARENT, *columns, pl.col("v").alias("v0")))
        nothing = pl.lit(None, self.value).alias("v0")
        yield Emission(0, work.forgotten().select(PARENT, NUMBER, *columns, nothing))
        context.reject(EXPIRED, arrived[work.late])
        taken_in = changed(waiting.rows, waiting.stored, pl.Series(waiting.waits, dtype=pl.Boolean))
        rows.insert(taken_in.unique(list(self.keys), keep="last", maintain_order=True))
        waiting.remember()

    def _stored(self, new: pl.DataFrame, context: Context) -> pl.DataFrame:
        """Read the rows of the keys that change, and those that may be forgotten."""
        due = self._rule.due(context, new[_DATED].filter(new[_DATED] < END))
        return stored_rows(context.trace(_ROWS), new, due, *self._rule.overdue(context))


@dataclass
class _Work:
    """The changes of a micro-batch, while they are worked off."""

    rules: Expiry
    """The operator."""
    waiting: Waiting
    """The stored rows that may change, and those that arrive: those that wait are there."""
    arrived: pl.DataFrame
    """The changes."""
    keys: list[int]
    """The number of the key of each of these rows."""
    late: list[int] = field(default_factory=list)
    """The positions of the changes that are too old."""
    #: The changes that are passed on, by position, and whether each is a row.
    _passed: list[tuple[int, bool]] = field(default_factory=list)
    #: The rows that are forgotten, with the messages that caused it, their order there, and their times.
    _forgotten: list[tuple[int, int, int]] = field(default_factory=list)
    _times: list[int] = field(default_factory=list)

    def run(self) -> None:
        """Work off the changes, step by step, and forget what is too old."""
        first = self.waiting.stored
        self._there = {self.keys[row]: row for row in range(first)}
        self._live, self._dated = self.arrived[LIVE].to_list(), self.waiting.rows[_DATED].to_list()
        begin, seqs, times = 0, self.arrived[SEQ].to_list(), self.arrived[TS].to_list()
        for end in (np.flatnonzero(ends(ints(self.arrived[STEP]))) + 1).tolist():
            before = self.waiting.now
            for time in self._dated[first + begin : first + end]:
                if time < END:
                    self.waiting.advance(time)
            bound = (before if self.rules.freezes else self.waiting.now) - self.rules.keep_us
            for at in range(begin, end):
                self._change(at, bound)
            self._forget(self.waiting.due(), seqs[end - 1], max(times[begin:end]))
            begin = end
        clock = self.waiting.context.clock
        if clock is not None:
            time = self.waiting.now if self.waiting.now > BEGIN else clock.now_us
            self._forget(iter(self.waiting.overdue()), clock.tick or 0, time)

    def _change(self, at: int, bound: int) -> None:
        row = self.waiting.stored + at
        is_late = self._dated[row] < bound
        if is_late:
            self.late.append(at)
            if self.rules.freezes:
                return
        before = self._there.pop(self.keys[row], None)
        if before is not None:
            self.waiting.waits[before] = False
        stays = self._live[at] and not is_late
        if stays:
            self._there[self.keys[row]] = row
            self.waiting.hold(row)
        if stays or before is not None:
            self._passed.append((at, stays))

    def _forget(self, rows: Iterator[int], cause: int, time: int) -> None:
        for number, row in enumerate(rows, 1):
            del self._there[self.keys[row]]
            if not self.rules.freezes:
                self._forgotten.append((row, cause, number))
                self._times.append(time)

    def passed(self) -> pl.DataFrame:
        """The changes that are passed on."""
        positions, live = zip(*self._passed, strict=True) if self._passed else ((), ())
        rows = self.arrived[list(positions)].with_columns(pl.Series(LIVE, live, dtype=pl.Boolean))
        return rows.with_columns(pl.col(SEQ).alias(PARENT), pl.when(LIVE).then("v").alias("v"))

    def forgotten(self) -> pl.DataFrame:
        """The tombstones of the rows that are forgotten."""
        times = pl.Series(TS, self._times, dtype=pl.Int64)
        return released(self.waiting.rows, self._forgotten).with_columns(
            times, pl.lit(value=False).alias(LIVE)
        )
