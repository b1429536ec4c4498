"""The records of a stream, each with the version of a row that was valid at the record's time.

Records without a value, a foreign key or a matching row are handled as in `stream_table_join`. With ``grace_us``,
records wait for late versions. ``buffered`` is the largest time of the records that have waited.

==================================================  ============================================================
record                                              is joined
==================================================  ============================================================
without grace, or it points at nothing              at once
its time is before ``buffered - grace``             at once: it is too late to wait; counted, but not dropped
any other                                           when ``buffered - grace`` reaches its time; records that
                                                    are joined together: in the order of (time, key, arrival)
it has waited for ``wall_clock_us`` on the clock    then
==================================================  ============================================================

A record is joined with the versions that are known when it is joined. A record that finds none, and is older than the
history, is counted by default; compat does not count it. ``table_advances``: the times of versions move
``buffered``, too, so that the records of a silent stream do not wait forever.

``corrections``: the result is a table with a row for each record, identified by the record's number. Versions that
arrive after the records of their time correct it. ``observed`` is the largest time of a version.

=======================================================  =================================================
a version arrives, valid from ``t`` until the next one   emitted for each record joined before at a time there
=======================================================  =================================================
a row                                                    the record with this row
a tombstone, and there was a row                         left: the record alone; inner: a tombstone
a tombstone, and there was none                          nothing
=======================================================  =================================================

Records are remembered until ``newest - history`` has passed their time. ``newest`` is the largest time of a version or
of a record that was joined. ``atomic``: a step corrects each record once.

References
----------
KIP-914, KIP-923; ``docs/semantics/as-of-joins.md``.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from tablestream.operators.buffer.time_index import by_time
from tablestream.operators.buffer.waiting import (
    ARRIVAL,
    ARRIVALS,
    ARRIVED,
    BY_ARRIVAL,
    WAITING,
    ReleaseRule,
    Waiting,
    numbered,
    released,
)
from tablestream.operators.events import ints, stored_rows
from tablestream.operators.joins.stream_table_join import joinable, last_places, stream_table_inputs
from tablestream.operators.operator import NUMBER, PARENT, Context, Emission, Pointing, keyed_rows
from tablestream.operators.reasons import BEFORE_HISTORY, LATE, NULL_KEY_OR_VALUE
from tablestream.operators.versions import OpenVersions, Versions
from tablestream.state.changes import FOREIGN_HASH, KEY_HASH, LATEST, LIVE, SEQ, STEP, TS, key_columns
from tablestream.state.positions import Ints, gather
from tablestream.state.trace_spec import TraceSpec

OBSERVED, BUFFERED, NEWEST = "observed", "buffered", "newest"


@dataclass(frozen=True)
class AsOfJoin(Pointing):
    """Look up, for every record, the version that was valid at its time.

    Inputs and output are those of `StreamTableJoin`. Input 1 also has ``_latest``. With `corrections`, the record's
    number is the last column of the output's key. Each shard has its own time. So a version of a copied table may be
    late beyond the history here, though it was not late in the shard that it came from. Cost: the arriving records and
    versions, and the versions of their keys; with grace also the records that are released; with corrections also the
    records remembered for the keys whose versions arrive.
    """

    history_us: int
    """How far back versions are kept, in microseconds."""
    keep_left: bool = False
    """Whether an unmatched record is emitted."""
    forgetful: bool = False
    """See `versions`."""
    atomic: bool = True
    """Whether the table's changes of a step come before its records."""
    grace_us: int | None = None
    """How long records wait, in microseconds of stream time. None: they do not wait."""
    table_advances: bool = False
    """Whether the times of versions also release records that wait."""
    wall_clock_us: int | None = None
    """The longest time that a record waits on the wall clock. None: there is no such limit."""
    corrections: bool = False
    """Whether late versions correct results that were emitted before."""

    parameters = ("keep_left", "history_us", "grace_us", "table_advances", "wall_clock_us")
    rejects = True

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        records, rows = stream_table_inputs(self.keys, self.foreign_keys, self.value, self.right_value)
        return records, pl.Schema({**rows, LATEST: pl.Boolean()})

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        *_, number = key_columns(len(self.keys) + 1)
        keys = {**self.keys, number: pl.Int64()} if self.corrections else self.keys
        return (keyed_rows(pl.Schema(keys), {"v0": self.value, "v1": self.right_value}),)

    @property
    def splits_steps(self) -> bool:
        """Whether a record that waited is a step of its own when it is joined, as if it had not waited."""
        return self.atomic and self.grace_us is not None

    @property
    def needs_clock(self) -> bool:
        return self.wall_clock_us is not None

    @property
    def marks(self) -> tuple[str, ...]:
        buffered = () if self.grace_us is None else (BUFFERED, ARRIVALS, WAITING, BY_ARRIVAL)
        return (OBSERVED, *buffered, *((NEWEST, ARRIVALS) if self.corrections else ()))

    @property
    def _versions(self) -> Versions:
        return Versions(FOREIGN_HASH, self.foreign_keys, self.right_value, self.history_us, self.forgetful)

    @property
    def _joined(self) -> TraceSpec:
        """Records that were joined and may still be corrected."""
        columns = {FOREIGN_HASH: pl.Int64(), **self.foreign_keys, KEY_HASH: pl.Int64(), **self.keys}
        columns |= {TS: pl.Int64(), ARRIVAL: pl.Int64(), ARRIVED: pl.Int64(), LIVE: pl.Boolean()}
        return TraceSpec(
            name="joined",
            hash=FOREIGN_HASH,
            key=tuple(self.foreign_keys),
            unique=(ARRIVAL,),
            schema=pl.Schema({**columns, "v": self.value}),
            expires=TS,
        )

    @property
    def _waiting(self) -> tuple[TraceSpec, ...]:
        """Records that wait, by their times; and their times, by when they arrived on the wall clock."""
        if self.grace_us is None:
            return ()
        waiting = by_time(WAITING, TS, dict(self._joined.schema), [ARRIVAL], ARRIVAL)
        columns = {TS: pl.Int64(), ARRIVAL: pl.Int64()}
        arrived = by_time(BY_ARRIVAL, ARRIVED, columns, [ARRIVAL], ARRIVAL)
        return (waiting,) if self.wall_clock_us is None else (waiting, arrived)

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return (*self._waiting, *((self._joined,) if self.corrections else ()), self._versions.trace)

    @property
    def versions_emit(self) -> bool:
        """Whether a version emits something: records that it releases or corrects."""
        return self.table_advances or self.corrections

    @property
    def reasons(self) -> tuple[str, ...]:
        late = () if self.grace_us is None else (LATE,)
        return (NULL_KEY_OR_VALUE, *late, *((BEFORE_HISTORY,) if self.atomic else ()))

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        """Join the records that are due, and remember versions and the records that still wait."""
        arrived, puts = inputs
        new = joinable(arrived, context, keep_left=self.keep_left)
        if self.grace_us is not None or self.corrections:
            new = numbered(new, list(self._joined.schema), context)
        waiting = None if self.grace_us is None else self._opened(new, puts, context)
        records = new if waiting is None else waiting.rows
        rows = records if not self.corrections else pl.concat([records, self._correctable(puts, context)])
        trace = context.trace(self._versions.trace.name)
        versions = self._versions.opened(trace, puts, rows)
        timeline = _Timeline(self, versions, context, rows, records.height, waiting)
        timeline.work(puts, last_places([puts, new]) if self.atomic else None)
        emitted = self._rows(rows, timeline, versions.payload, context)
        if self.versions_emit:  # a version of a global table goes to every shard
            emitted = emitted.with_columns(context.among_shards(pl.col(NUMBER)).alias(NUMBER))
        yield Emission(0, emitted)
        observed = context.marks.get(OBSERVED)
        versions.remember(trace, observed)
        if waiting is not None:
            waiting.remember()
        if self.corrections:
            self._remember(rows[timeline.joined], context)

    def _opened(self, new: pl.DataFrame, puts: pl.DataFrame, context: Context) -> Waiting:
        """The waiting records that may be due, and the arriving ones."""
        late = LATE if self.atomic else None  # Kafka Streams does not count these
        rule = ReleaseRule(self.grace_us or 0, self.wall_clock_us, mark=BUFFERED, late=late)
        pointing = new.filter(pl.col(FOREIGN_HASH).is_not_null())
        due = rule.due(context, pointing[TS], *([puts[TS]] if self.table_advances else []))
        for by_clock in rule.overdue(context):
            times = by_clock.select(TS).unique()
            found = context.trace(WAITING).lookup(times).join(by_clock, on=ARRIVAL, how="semi")
            due = pl.concat([due, found]).unique(ARRIVAL)
        return Waiting(rule, context, due.sort(ARRIVAL), new, TS, list(self.keys))

    def _remember(self, joined: pl.DataFrame, context: Context) -> None:
        """Remember joined records for as long as versions of their time may arrive."""
        newest = context.marks.get(NEWEST)
        over = None if newest is None else newest - self.history_us - 1
        context.trace(self._joined.name).insert(joined, expired_before=over)

    def _correctable(self, puts: pl.DataFrame, context: Context) -> pl.DataFrame:
        """The joined records of the keys whose versions arrive."""
        none = pl.lit(-1, pl.Int64)
        joined = stored_rows(context.trace(self._joined.name), puts).sort(ARRIVAL)
        return joined.select(none.alias(SEQ), none.alias(STEP), *self._joined.schema)

    def _rows(
        self, rows: pl.DataFrame, timeline: _Timeline, payload: pl.Series, context: Context
    ) -> pl.DataFrame:
        """Combine records with the rows found for them."""
        found = np.array(timeline.found, dtype=np.int64)
        keys, records = [pl.col(KEY_HASH), *map(pl.col, self.keys)], released(rows, timeline.left)
        if self.corrections:
            *_, number = key_columns(len(self.keys) + 1)
            keys.append(context.among_shards(pl.col(ARRIVAL)).alias(number))
        live = pl.lit(pl.Series((found >= 0) | self.keep_left, dtype=pl.Boolean))
        return records.select(
            *keys, TS, live.alias(LIVE), pl.when(live).then("v").alias("v0"), PARENT, NUMBER,
            pl.lit(gather(payload, found)).alias("v1"),
        )  # fmt: skip


@dataclass
class _Timeline:
    """Processes the versions and records of a micro-batch one by one."""

    join: AsOfJoin
    versions: OpenVersions
    context: Context
    rows: pl.DataFrame
    """The records: those that wait, those that arrive and, from `known` on, those that were joined before."""
    known: int
    waiting: Waiting | None
    left: list[tuple[int, int, int]] = field(default_factory=list)
    found: list[int] = field(default_factory=list)
    """Per emission: the record, the message that caused it, and its order among that message's emissions; and the row
    found (-1: none)."""
    joined: list[int] = field(default_factory=list)
    """The records that late versions may correct."""

    def __post_init__(self) -> None:
        """Load the records that may be corrected."""
        self._times = self.rows[TS].to_list()
        self._points = self.rows[FOREIGN_HASH].is_not_null().to_list()
        self._correctable: dict[int, list[tuple[int, int, int]]] = {}
        self._corrected: dict[int, int] = {}  # in this step: the position of each record's correction
        if self.join.corrections:
            self._arrivals = self.rows[ARRIVAL].to_list()
            for record in range(self.known, self.rows.height):
                self._may_be_corrected(record)

    def work(self, puts: pl.DataFrame, last: Ints | None) -> None:
        """Process versions and records in their order.

        `last`: the last place of each step. Records then come after all versions of their step; if versions emit
        something, records emit at that place, too.
        """
        first = 0 if self.waiting is None else self.waiting.stored
        coming = self.rows[first : self.known]
        own, written = ints(coming[SEQ]), ints(puts[SEQ])
        places = own if last is None else last[ints(coming[STEP])]
        is_record = np.repeat([0, 1], [len(written), len(own)])
        order = np.lexsort((np.concatenate([written, own]), is_record, np.concatenate([written, places])))
        seqs = np.concatenate([written, places if self.join.versions_emit else own])
        times, live, latest, steps = (puts[name].to_list() for name in (TS, LIVE, LATEST, STEP))
        step = 0
        for event, seq in zip(order.tolist(), seqs[order].tolist(), strict=True):
            if event < len(times):
                if steps[event] != step:
                    self._corrected.clear()
                    step = steps[event]
                self._put(event, times[event], seq, exists=live[event], latest=latest[event])
            else:
                self._come(event - len(times) + first, seq)
        clock = self.context.clock
        if clock is not None and self.waiting is not None:
            self._look_up_all(self.waiting.overdue(), clock.tick or 0)

    def _put(self, position: int, time: int, seq: int, *, exists: bool, latest: bool) -> None:
        """Write a version, and correct the records that were joined without it."""
        history = self.versions.written(position)
        before, observed = history.as_of(time, None), self.context.marks.get(OBSERVED)
        known = self.versions.is_known(position, time, observed, latest=latest)
        if known:
            self.versions.put(position, time, exists=exists)
        self._move(OBSERVED, time)
        self._move(NEWEST, time)
        if known and self.join.corrections:
            self._correct(position, time, history.end(time), seq, replaces=before >= 0)
        if self.join.table_advances and self.waiting is not None:
            self.waiting.advance(time)
            self._look_up_all(self.waiting.due(), seq)

    def _correct(self, position: int, begin: int, end: int | None, seq: int, *, replaces: bool) -> None:
        """Correct the records in whose time a version is valid."""
        row = self.versions.written(position).as_of(begin, None)
        if row < 0 and not replaces:
            return
        records = self._correctable.get(self.versions.key(position), [])
        bound = self.context.marks[NEWEST] - self.join.history_us
        first = bisect_left(records, (max(begin, bound),))
        last = len(records) if end is None else bisect_left(records, (end,))
        for _, _, record in records[first:last]:
            if self.join.atomic and record in self._corrected:
                self.found[self._corrected[record]] = row
                continue
            self._corrected[record] = len(self.found)
            self._emit(record, row, seq)

    def _come(self, record: int, seq: int) -> None:
        """Join a record at once, or let it wait."""
        self._look_up_all(
            self.waiting.take(record) if self.waiting is not None and self._points[record] else (record,), seq
        )

    def _look_up_all(self, records: Iterable[int], cause: int) -> None:
        for record in records:
            self._look_up(record, cause)

    def _look_up(self, record: int, cause: int) -> None:
        """Join a record with the version that was valid at its time."""
        observed = self.context.marks.get(OBSERVED)
        row = self.versions.as_of(record, self._times[record], observed) if self._points[record] else -1
        if self.join.corrections and self._points[record]:
            self._move(NEWEST, self._times[record])
            self._may_be_corrected(record)
            self.joined.append(record)
        if row < 0 and self.join.atomic and self._is_before_history(record, observed):
            self.context.tell(BEFORE_HISTORY, 1, self.rows, record)
        if row >= 0 or self.join.keep_left:
            self._emit(record, row, cause)

    def _is_before_history(self, record: int, observed: int | None) -> bool:
        """Whether a record that looks a row up is older than the versions that are kept."""
        if observed is None or not self._points[record]:
            return False
        return bool(self._times[record] < observed - self.join.history_us)

    def _may_be_corrected(self, record: int) -> None:
        records = self._correctable.setdefault(self.versions.numbers[1][record], [])
        insort(records, (self._times[record], self._arrivals[record], record))

    def _emit(self, record: int, row: int, cause: int) -> None:
        """Add an emission; emissions with the same cause are numbered."""
        follows = bool(self.left) and self.left[-1][1] == cause
        self.left.append((record, cause, self.left[-1][2] + 1 if follows else 0))
        self.found.append(row)

    def _move(self, mark: str, time: int) -> None:
        if mark not in self.join.marks:
            return
        self.context.marks[mark] = max(self.context.marks.get(mark, time), time)
