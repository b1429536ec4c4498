"""The records of a stream, each with the version of a row that was valid at the record's time.

What becomes of a record that has no value, points at nothing, or finds no row is as in `stream_table_join`. With
``grace_us`` records wait for versions that are late. ``buffered`` is the largest time of the records that waited.

==================================================  ============================================================
record                                              is joined
==================================================  ============================================================
without grace, or it points at nothing              at once
its time is before ``buffered - grace``             at once: it is too late to wait; counted, and not dropped
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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from tablestream.operators.events import Ints, gather, ints
from tablestream.operators.operator import NUMBER, PARENT, Context, Emission
from tablestream.operators.stream_table_join import NULL, joinable, last_places, stream_table_inputs
from tablestream.operators.versions import OpenVersions, Versions
from tablestream.operators.waiting import ARRIVAL, ARRIVALS, ARRIVED, LATE, Waiting, with_waiting
from tablestream.state.changes import FOREIGN_HASH, KEY_HASH, LATEST, LIVE, SEQ, STEP, TS
from tablestream.state.trace import TraceSpec

OBSERVED, BUFFERED = "observed", "buffered"


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
    Inputs and output as those of `StreamTableJoin`; input 1 has ``_latest``, too. Time is each shard's own, so a copied
    table gives versions that are late beyond the history here, and were not where they came from. Cost: the records
    and versions that come, and the versions of their keys; with grace also all that waits.
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
        records, rows = stream_table_inputs(self.keys, self.foreign_keys, self.value, self.right_value)
        return records, pl.Schema({**rows, LATEST: pl.Boolean()})

    @property
    def splits_steps(self) -> bool:
        """Whether each record that waited is a step of its own when it is joined, as when it had not."""
        return self.atomic and self.grace_us is not None

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
        return (NULL,) if self.grace_us is None else (NULL, LATE)

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        """Join the records whose time has come, and remember versions and those who wait."""
        arrived, puts = inputs
        new = joinable(arrived, context, keep_left=self.keep_left)
        records = new
        if self.grace_us is not None:
            records = with_waiting(new, context.trace(self._waiting.name), context)
        trace = context.trace(self._versions.trace.name)
        versions = self._versions.opened(trace, puts, records)
        timeline = _Timeline(self, versions, context, records)
        timeline.work(puts, last_places([puts, new]) if self.atomic else None)
        joined = self._joined(records, timeline, versions.payload)
        if self.table_advances:  # a version of a global table comes to every shard
            joined = joined.with_columns(context.among_shards(pl.col(NUMBER)).alias(NUMBER))
        yield Emission(0, joined)
        versions.remember(trace, context.marks.get(OBSERVED))
        if self.grace_us is not None:
            context.trace(self._waiting.name).insert(timeline.waiting.changed(self._waiting))

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
    rows: pl.DataFrame
    records: list[int] = field(default_factory=list)
    found: list[int] = field(default_factory=list)
    causes: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Take over who waits."""
        self._times = self.rows[TS].to_list()
        self._points = self.rows[FOREIGN_HASH].is_not_null().to_list()
        self.waiting = Waiting(self.rows, self._times, list(self.join.keys))

    def work(self, puts: pl.DataFrame, last: Ints | None) -> None:
        """Go through versions and records in their order; `last`: records come behind all of their step."""
        first = self.waiting.stored
        own, written = ints(self.rows[SEQ])[first:], ints(puts[SEQ])
        places = own if last is None else last[ints(self.rows[STEP])[first:]]
        is_record = np.repeat([0, 1], [len(written), len(own)])
        seqs = np.concatenate([written, own])
        order = np.lexsort((seqs, is_record, np.concatenate([written, places])))
        times, live, latest = (puts[name].to_list() for name in (TS, LIVE, LATEST))
        for event, seq in zip(order.tolist(), seqs[order].tolist(), strict=True):
            if event < len(times):
                self.versions.put(event, times[event], exists=live[event], latest=latest[event])
                self._advance(times[event], seq)
            else:
                self._come(event - len(times) + first, seq)
        clock = self.context.clock
        if clock is not None and self.join.wall_clock_us is not None:
            for number, record in enumerate(self.waiting.overdue(clock, self.join.wall_clock_us)):
                self._look_up(record, clock.tick or 0, number)

    def _advance(self, time: int, seq: int) -> None:
        """Take note of a version's time."""
        self._move(OBSERVED, time)
        if self.join.table_advances and self.join.grace_us is not None:
            self._move(BUFFERED, time)
            self._let_go(seq, self.join.grace_us)

    def _come(self, record: int, seq: int) -> None:
        """Join a record at once, or let it wait."""
        time, grace_us = self._times[record], self.join.grace_us
        buffered = self.context.marks.get(BUFFERED)
        if grace_us is None or not self._points[record]:
            self._look_up(record, seq, 0)
            return
        if buffered is not None and time < buffered - grace_us:
            self.context.dropped[LATE] += 1
            self._look_up(record, seq, 0)
            return
        self.waiting.hold(record)
        self._move(BUFFERED, time)
        self._let_go(seq, grace_us)

    def _let_go(self, cause: int, grace_us: int) -> None:
        """Join those whose time has come."""
        for number, record in enumerate(self.waiting.due(self.context.marks[BUFFERED] - grace_us)):
            self._look_up(record, cause, number)

    def _look_up(self, record: int, cause: int, number: int) -> None:
        observed = self.context.marks.get(OBSERVED)
        row = self.versions.as_of(record, self._times[record], observed) if self._points[record] else -1
        self.records.append(record)
        self.found.append(row)
        self.causes.append(cause)
        self.numbers.append(number)

    def _move(self, mark: str, time: int) -> None:
        self.context.marks[mark] = max(self.context.marks.get(mark, time), time)
