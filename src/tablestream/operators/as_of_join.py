"""The records of a stream, each with the version of a row that was valid at the record's time.

What becomes of a record that has no value, points at nothing, or finds no row is as in `stream_table_join`. With
``grace_us`` records wait for versions that are late. ``buffered`` is the largest time of the records that waited.

==================================================  ============================================================
record                                              is joined
==================================================  ============================================================
without grace, or it points at nothing              at once
its time is before ``buffered - grace``             at once: it is too late to wait
any other                                           when ``buffered - grace`` has come to its time; those that
                                                    go together in the order of (time, key, arrival)
it has waited for ``wall_clock_us`` on the clock    then
==================================================  ============================================================

What is joined meets the versions that are known at that moment. ``table_advances``: the times of versions move
``buffered``, too, so that a stream that falls silent does not wait.

References
----------
KIP-914, KIP-923; ``docs/semantics.md``.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from tablestream.operators.events import Ints, gather, ints
from tablestream.operators.operator import NUMBER, PARENT, Context, Emission, WallClock
from tablestream.operators.stream_table_join import NULL, last_places, stream_table_inputs
from tablestream.operators.versions import OpenVersions, Versions
from tablestream.state.changes import FOREIGN_HASH, KEY_HASH, LIVE, SEQ, STEP, TS
from tablestream.state.trace import TraceSpec

#: Of a record that waits: its number among all that ever waited here, and when it came, on the wall clock.
ARRIVAL, ARRIVED = "_arrival", "_arrived"
OBSERVED, BUFFERED, ARRIVALS = "observed", "buffered", "arrivals"


@dataclass(frozen=True)
class AsOfJoin:
    """Look up, for every record, the version of its time.

    Parameters
    ----------
    keys, foreign_keys
        The columns and dtypes of the stream's key and of what records point at, the table's key.
    value, right_value
        The dtypes of a record's value and of a row's.
    history_us
        How far back versions are kept, in microseconds.
    keep_left
        Whether a record without a row stays.
    forgetful
        As `versions` says.
    atomic
        Whether the table's changes of a step come before its records.
    grace_us
        How long records wait, in microseconds of their times; None: they do not.
    table_advances
        Whether the times of versions move the records that wait.
    wall_clock_us
        How long they wait at most on the wall clock; None: however long.

    Notes
    -----
    Inputs and output as those of `StreamTableJoin`. Cost: the records and versions that come, and the versions of
    their keys; with grace also all that waits.
    """

    keys: pl.Schema
    foreign_keys: pl.Schema
    value: pl.DataType
    right_value: pl.DataType
    history_us: int
    keep_left: bool = False
    forgetful: bool = False
    atomic: bool = True
    grace_us: int | None = None
    table_advances: bool = False
    wall_clock_us: int | None = None

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        return stream_table_inputs(self.keys, self.foreign_keys, self.value, self.right_value)

    @property
    def marks(self) -> tuple[str, ...]:
        """The times and counters that it keeps."""
        return (OBSERVED, BUFFERED, ARRIVALS) if self.grace_us is not None else (OBSERVED,)

    @property
    def _versions(self) -> Versions:
        return Versions(FOREIGN_HASH, self.foreign_keys, self.right_value, self.history_us, self.forgetful)

    @property
    def _waiting(self) -> TraceSpec:
        columns = {FOREIGN_HASH: pl.Int64(), **self.foreign_keys, KEY_HASH: pl.Int64(), **self.keys}
        columns |= {TS: pl.Int64(), ARRIVAL: pl.Int64(), ARRIVED: pl.Int64(), LIVE: pl.Boolean()}
        return TraceSpec(
            name="waiting",
            number=1,
            hash=FOREIGN_HASH,
            key=tuple(self.foreign_keys),
            unique=(ARRIVAL,),
            schema=pl.Schema({**columns, "v": self.value}),
        )

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        versions = self._versions.trace
        return (versions,) if self.grace_us is None else (self._waiting, versions)

    @property
    def reasons(self) -> tuple[str, ...]:
        return (NULL,)

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        """Join the records whose time has come, and remember versions and those who wait."""
        arrived, puts = inputs
        kept = pl.col(LIVE) if self.keep_left else pl.col(LIVE) & pl.col(FOREIGN_HASH).is_not_null()
        new = arrived.filter(kept)
        context.dropped[NULL] += arrived.height - new.height
        records = self._records(new, context)
        trace = context.trace(self._versions.trace.name)
        versions = self._versions.opened(trace, puts, records)
        timeline = _Timeline(self, versions, context, self._ranks(records), records)
        timeline.work(records, puts, last_places([puts, new]) if self.atomic else None)
        joined = self._joined(records, timeline, versions.payload)
        if self.table_advances:  # a version of a global table comes to every shard
            joined = joined.with_columns(context.among_shards(pl.col(NUMBER)).alias(NUMBER))
        yield Emission(0, joined)
        versions.remember(trace, context.marks.get(OBSERVED))
        if self.grace_us is not None:
            context.trace(self._waiting.name).insert(timeline.changed(records, self._waiting))

    def _records(self, new: pl.DataFrame, context: Context) -> pl.DataFrame:
        """Those who wait, then those who come."""
        now = 0 if context.clock is None else context.clock.now_us
        first = context.marks.get(ARRIVALS, 0)
        numbers = pl.int_range(first, first + new.height, dtype=pl.Int64, eager=True)
        columns = [SEQ, STEP, *self._waiting.schema]
        new = new.with_columns(numbers.alias(ARRIVAL), pl.lit(now, pl.Int64).alias(ARRIVED)).select(columns)
        if self.grace_us is None:
            return new
        context.marks[ARRIVALS] = first + new.height
        zero = pl.lit(0, pl.Int64)
        stored = context.trace(self._waiting.name).scan().sort(ARRIVAL)
        return pl.concat([stored.with_columns(zero.alias(SEQ), zero.alias(STEP)).select(columns), new])

    def _ranks(self, records: pl.DataFrame) -> list[int]:
        """The place of each record's key among the keys."""
        if self.grace_us is None or not self.keys:
            return [0] * records.height
        return records.select(pl.struct(*self.keys).rank("dense").cast(pl.Int64)).to_series().to_list()

    def _joined(self, records: pl.DataFrame, timeline: _Timeline, payload: pl.Series) -> pl.DataFrame:
        """Put records and rows together."""
        found = np.array(timeline.found, dtype=np.int64)
        chosen = np.arange(len(found)) if self.keep_left else np.flatnonzero(found >= 0)
        position, cause, number = (
            np.array(column, dtype=np.int64)[chosen]
            for column in (timeline.records, timeline.causes, timeline.numbers)
        )
        rows: pl.DataFrame = records[position].select(
            KEY_HASH, *self.keys, TS, pl.lit(value=True).alias(LIVE), pl.col("v").alias("v0")
        )
        return rows.with_columns(
            pl.Series(PARENT, cause, dtype=pl.Int64),
            pl.Series(NUMBER, number, dtype=pl.Int64),
            gather(payload, found[chosen]).alias("v1"),
        )


@dataclass
class _Timeline:
    """Versions and records of a micro-batch, one after the other.

    Attributes
    ----------
    records, found, causes, numbers
        Of what was joined: the record, the row found (-1: none), the message that brought it about, its order there.
    """

    join: AsOfJoin
    versions: OpenVersions
    context: Context
    ranks: list[int]
    held: pl.DataFrame
    records: list[int] = field(default_factory=list)
    found: list[int] = field(default_factory=list)
    causes: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    _heap: list[tuple[int, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Take over who waits."""
        self._times = self.held[TS].to_list()
        self._points = self.held[FOREIGN_HASH].is_not_null().to_list()
        self._stored = int((self.held[SEQ] == 0).sum())
        for record in range(self._stored):
            heapq.heappush(self._heap, (self._times[record], self.ranks[record], record))

    def work(self, records: pl.DataFrame, puts: pl.DataFrame, last: Ints | None) -> None:
        """Go through versions and records in their order."""
        own = ints(records[SEQ])[self._stored :]
        put_places, places_of = ints(puts[SEQ]), own
        if last is not None:
            places_of = last[ints(records[STEP])[self._stored :]]
        kind = np.concatenate([np.zeros(len(put_places), dtype=np.int64), np.ones(len(own), dtype=np.int64)])
        every = np.concatenate([put_places, places_of])
        order = np.lexsort((np.concatenate([put_places, own]), kind, every)).tolist()
        times, live = puts[TS].to_list(), puts[LIVE].to_list()
        seqs = np.concatenate([put_places, own]).tolist()
        for event in order:
            if event < len(times):
                self._put(event, times[event], seqs[event], exists=live[event])
            else:
                self._come(event - len(times) + self._stored, seqs[event])
        if self.context.clock is not None and self.join.wall_clock_us is not None:
            self._let_go_by(self.context.clock, self.join.wall_clock_us)

    def _put(self, position: int, time: int, seq: int, *, exists: bool) -> None:
        self.versions.put(position, time, exists=exists)
        self._move(OBSERVED, time)
        if self.join.table_advances and self.join.grace_us is not None:
            self._move(BUFFERED, time)
            self._let_go(seq)

    def _come(self, record: int, seq: int) -> None:
        """Join a record at once, or let it wait."""
        time, grace = self._times[record], self.join.grace_us
        buffered = self.context.marks.get(BUFFERED)
        if grace is None or not self._points[record] or (buffered is not None and time < buffered - grace):
            self._look_up(record, seq, 0)
            return
        heapq.heappush(self._heap, (time, self.ranks[record], record))
        self._move(BUFFERED, time)
        self._let_go(seq)

    def _let_go(self, cause: int) -> None:
        """Join those whose time has come."""
        bound, number = self.context.marks[BUFFERED] - (self.join.grace_us or 0), 0
        while self._heap and self._heap[0][0] <= bound:
            self._look_up(heapq.heappop(self._heap)[2], cause, number)
            number += 1

    def _let_go_by(self, clock: WallClock, wait_us: int) -> None:
        """Join those who have waited long enough on the wall clock, and ask to be woken for the others."""
        arrived = self.held[ARRIVED].to_list()
        if clock.tick is not None:
            overdue = sorted(one for one in self._heap if arrived[one[2]] <= clock.now_us - wait_us)
            for number, (_, _, record) in enumerate(overdue):
                self._look_up(record, clock.tick, number)
            gone = {record for _, _, record in overdue}
            self._heap = [one for one in self._heap if one[2] not in gone]
            heapq.heapify(self._heap)
        if self._heap:
            clock.wake(min(arrived[record] for _, _, record in self._heap) + wait_us)

    def _look_up(self, record: int, cause: int, number: int) -> None:
        observed = self.context.marks.get(OBSERVED)
        row = self.versions.as_of(record, self._times[record], observed) if self._points[record] else -1
        self.records.append(record)
        self.found.append(row)
        self.causes.append(cause)
        self.numbers.append(number)

    def _move(self, mark: str, time: int) -> None:
        self.context.marks[mark] = max(self.context.marks.get(mark, time), time)

    def changed(self, records: pl.DataFrame, spec: TraceSpec) -> pl.DataFrame:
        """Who waits from now on, and, as tombstones, who waited and does no more."""
        waiting = np.zeros(records.height, dtype=bool)
        waiting[[record for _, _, record in self._heap]] = True
        stored = np.arange(records.height) < self._stored
        changed = np.flatnonzero(waiting != stored)
        rows: pl.DataFrame = records[changed].with_columns(pl.Series(LIVE, waiting[changed]))
        return rows.with_columns(pl.when(LIVE).then("v").alias("v")).select(list(spec.schema))
