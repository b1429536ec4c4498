"""Packing: records of a source, or changes between two rounds, become messages in blobs.

Runs in `mapInArrow` on Spark's workers. A source's records get their place in the total order here: only in Spark's
source tasks do the rows of one source partition arrive together and in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import polars as pl
import pyarrow as pa
from pyspark import TaskContext

from tablestream.base.time_zones import in_utc
from tablestream.connectors.source import Origin, marks_of
from tablestream.errors import MalformedRecordError, OrderError
from tablestream.operators.calendar import FIRST_US, LAST_US
from tablestream.operators.events import bools, ints
from tablestream.operators.reasons import FAILED, MALFORMED, NULL_KEY, NULL_TIME, OUT_OF_ORDER
from tablestream.runtime.alignment import TIMED, progress_of
from tablestream.runtime.drops import (
    ONLY_COUNTED,
    SEPARATOR,
    DropRules,
    Drops,
    example_text,
    place_text,
    unread_text,
)
from tablestream.runtime.order import lowest
from tablestream.runtime.ports import RANKS, Port
from tablestream.runtime.rejections import REASON, Shown, rejections
from tablestream.spark import blobs
from tablestream.spark.failed_rows import FailedRecords, FailedRows
from tablestream.spark.texts import checked_texts
from tablestream.state.changes import (
    BOOTSTRAP,
    LIVE,
    NOTHING,
    PARTITION,
    POSITION,
    ROOT,
    TIME,
    TS,
    hop_columns,
)
from tablestream.state.positions import Ints, frame_of

#: Rows that are packed together: blobs should be large, whatever the size of the session's Arrow record batches.
ROWS = 100_000

#: Whether a tombstone lacks its time or, in the user's order, what orders it.
_LACKS = "_lacks"
#: A later time would stay the latest one forever, and arithmetic with it would overflow 64 bits.
_TIME_THERE_IS = pl.when(pl.col("__ts").is_between(FIRST_US, LAST_US)).then("__ts").alias("__ts")
#: The number of a record among those with the same place, if a source's row was exploded.
_ELEMENT = "__element"
#: More rows than one record of a topic yields: the new number is the writer's number times this, plus the element.
_ELEMENTS = 1 << 30
_FIRST_HOP = hop_columns(1)[0]


@dataclass(frozen=True)
class Consumer:
    """A port that receives a table's changes, and the columns of its messages."""

    port: Port
    columns: tuple[str, ...]
    """The names of the messages' columns; those of the record batches have `prefix` before them."""
    value: tuple[str, ...]
    """The columns of the record batches that are the value's ``c0``, ``c1``, ...; other ports may read them, too."""
    counted_by: str | None = None
    """The operator that drops and counts late changes of a versioned table; `late` then marks them."""
    rejecting: tuple[Port, ...] = ()
    """The ports that receive the dropped changes."""
    shown: Shown | None = None
    """The columns of its messages under the names that users know."""
    own_time: bool = False
    """Whether a tombstone without a time goes there with the record's own: an output has no operator that gives it one
    (`runtime.run_round`)."""
    of_each: tuple[str, ...] = ()
    """The columns that tell rows apart which one record became."""

    @property
    def prefix(self) -> str:
        """The prefix of the port's columns; merged streams have the same number."""
        return f"__to{self.port.rank}_"

    @property
    def names(self) -> list[str]:
        """The columns of the record batches."""
        counted = [] if self.counted_by is None else [self.late]
        return [*(self.prefix + name for name in self.columns), *counted, *self.value]

    @property
    def late(self) -> str:
        """The column that marks late changes."""
        return f"{self.prefix}late"

    def key_text(self, row: pl.DataFrame) -> str:
        """The key of a row as JSON, for an example of dropped records."""
        if self.shown is None or not self.shown.columns:
            return ""
        return self.shown.key_text(
            row.select(pl.col(self.prefix + name).alias(name) for name in self.shown.columns)
        )

    def of(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows that are messages. The others are filtered-out records of a stream, or not changes at all."""
        live = self.prefix + LIVE
        return frame.filter(pl.col(live).is_not_null()) if frame[live].has_nulls() else frame

    def messages(self, frame: pl.DataFrame, *further: pl.Expr | str) -> pl.DataFrame:
        """Assemble the messages, with the value as one struct."""
        live = pl.col(self.prefix + LIVE)
        fields = [pl.col(name).alias(f"c{number}") for number, name in enumerate(self.value)]
        value = pl.struct(fields or pl.lit(None, pl.Boolean).alias(NOTHING))
        if not frame[self.prefix + LIVE].all():
            value = pl.when(live).then(value)
        columns = (pl.col(self.prefix + name).alias(name) for name in self.columns)
        return frame.select(*further, *columns, value.alias("v"))


@dataclass(frozen=True)
class SourcePacker:
    """Packs the records of one source.

    The record batches have the columns of `tablestream.spark.sources` that tell the place and the fate of a record, and
    those of every consumer.
    """

    name: str
    number: int
    """The source, and its place in the order of declaration."""
    origin: Origin
    """What the source says of its rows. Without partitions, the Spark task counts as one."""
    ordered: bool
    """Whether the user gave an order, which needs no running maximum."""
    consumers: tuple[Consumer, ...]
    shards: int
    """The receivers of messages, and the number of shards."""
    rejecting: tuple[Port, ...] = ()
    """Ports that receive every dropped record; the record batches then have ``__key_json`` and ``__record``, too."""
    refuse_negative_time: bool = False
    """Whether a time before 1970 ends the query, as in Kafka Streams."""
    progress: Port | None = None
    """The port that hears how far the source partitions have come, if records wait for each other; the record batches
    then have ``__now``, too."""
    bootstrap: bool = False
    """Whether these are the rows that the table starts with. The record batches then have ``__row``, their number, in
    place of a position."""
    rules: DropRules = ONLY_COUNTED
    """What the query does about dropped records."""
    failed: FailedRows | None = None
    """Handles the records for which an expression of a table fails."""
    failed_records: FailedRecords | None = None
    """Handles those for which an expression of the source itself fails, if any can."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pack all record batches of a task."""
        self.rules.begin()
        drops = Drops(self.rules)
        places: _FirstPlaces | _Places = _FirstPlaces(self.ordered)
        if not self.bootstrap:
            places = _Places(self.name, self.number, marks_of(self.origin), self.ordered)
        for table in _gathered(batches):
            checked = checked_texts(in_utc(table), self.name)
            frame = places.put(frame_of(checked).with_columns(_TIME_THERE_IS))
            frame = frame.with_columns(self._reason(frame.columns).alias(REASON))
            accepted, rejected = _split(frame)
            self._check(rejected)
            packed = list(self._failing(frame, accepted, drops))
            for reason, count in rejected[REASON].value_counts(sort=True).iter_rows():
                drops.add(self.name, reason, count, partial(self._example, rejected, reason))
            drops.accept(self.name, accepted.height)
            self._check_times(accepted)
            packed += [blob for port in self.rejecting for blob in self._tell(port, rejected)]
            packed += [blob for one in self.consumers for blob in self._pack(one, one.of(accepted))]
            has_place = pl.col(TIME).is_not_null()
            has_place |= pl.col(_LACKS) if _LACKS in frame.columns else False
            packed += self._pack_progress(frame.filter(has_place))
            yield from blobs.record_batches(packed)
        yield from blobs.record_batches([*blobs.counters(0, drops.counts), *blobs.notices(0, drops)])

    def _reason(self, columns: Sequence[str]) -> pl.Expr:
        """Why a record is dropped: it could not be read, or has no key or no time. Null otherwise."""
        malformed = pl.col("__malformed").is_not_null() if "__malformed" in columns else pl.lit(value=False)
        own = self.failed_records
        failed = pl.lit(value=False) if own is None else own.left_out(columns)
        has_no_time = pl.col(TS).is_null() | (pl.col(TIME).is_null() & (not self.bootstrap))
        if "__own" in columns:
            has_no_time &= pl.col("__own").is_null()  # a tombstone has a place without a time
        return (
            pl.when(malformed)
            .then(pl.lit(MALFORMED))
            .when(failed)
            .then(pl.lit(FAILED))
            .when("__null_key")
            .then(pl.lit(NULL_KEY))
            .when(has_no_time)
            .then(pl.lit(NULL_TIME))
        )

    def _example(self, rejected: pl.DataFrame, reason: str) -> str:
        """Say which record is one of those that were rejected for a reason."""
        row = rejected.filter(pl.col(REASON) == reason).head(1)
        partition, position = row[PARTITION].item(), row[POSITION].item()
        if reason == MALFORMED:
            return example_text(
                partition,
                position,
                unread=unread_text(row["__malformed"].item(), explained=self.origin.explained),
            )
        keys = (one.key_text(row) for one in self.consumers)
        return example_text(partition, position, next(filter(None, keys), ""))

    def _check(self, rejected: pl.DataFrame) -> None:
        """End the query at a row that cannot be read, in mode ``fail``."""
        broken = (
            rejected.filter(pl.col(REASON) == MALFORMED)
            if self.origin.on_malformed == "fail"
            else rejected.clear()
        )
        if broken.height:
            raise MalformedRecordError(
                f"A row cannot be read: {unread_text(broken['__malformed'][0], explained=self.origin.explained)}"
                f" ({place_text(broken[PARTITION][0], broken[POSITION][0])}).",
                hint=self.origin.remedy,
                operator=self.name,
            )

    def _failing(self, frame: pl.DataFrame, accepted: pl.DataFrame, drops: Drops) -> Iterator[blobs.Blob]:
        """Handle the records for which expressions fail, and that are not dropped for it."""
        if self.failed_records is not None:
            told = self.failed_records.handled(frame, drops, dropped=pl.col(REASON).is_not_null())
            for port in self.rejecting:
                yield from self._tell(port, told.with_columns(pl.lit(FAILED).alias(REASON)))
        if self.failed is None:
            return
        time = pl.coalesce(TS, "__own").alias(TS) if "__own" in frame.columns else pl.col(TS)
        hop = (pl.col(_ELEMENT) * RANKS).alias(_FIRST_HOP)
        for port, told in self.failed.handled(self.failed.of(accepted, *ROOT, hop, time), drops):
            ranked = told.with_columns(pl.col(_FIRST_HOP) + port.rank)
            yield from blobs.pack(port, ranked, self.shards)

    def _check_times(self, accepted: pl.DataFrame) -> None:
        if self.refuse_negative_time and bool((accepted[TS] < 0).any()):
            raise OrderError(
                "A record has a time before 1970, which compat='kafka-streams' refuses.",
                hint="Correct its timestamp, filter such records out, or omit compat=.",
                operator=self.name,
            )

    def _tell(self, port: Port, rejected: pl.DataFrame) -> Iterator[blobs.Blob]:
        """Messages about dropped records. Rows that could not be read are included only in mode ``keep``."""
        if self.origin.on_malformed == "drop":
            rejected = rejected.filter(pl.col(REASON) != MALFORMED)
        time = pl.col(TIME).fill_null(strategy="zero") if rejected.schema[TIME].is_integer() else TIME
        hop = (pl.col(_ELEMENT) * RANKS + port.rank).alias(_FIRST_HOP)
        told = (pl.col(REASON), pl.col("__key_json"), pl.col("__record"))
        messages = rejections(rejected, [time, PARTITION, POSITION, hop], self.name, *told)
        return blobs.pack(port, messages, self.shards)

    def _pack(self, consumer: Consumer, frame: pl.DataFrame) -> Iterator[blobs.Blob]:
        hop = (pl.col(_ELEMENT) * RANKS + consumer.port.rank).alias(_FIRST_HOP)
        if consumer.own_time and "__own" in frame.columns:
            frame = frame.with_columns(pl.coalesce(TS, "__own").alias(TS))
        messages = consumer.messages(frame, *ROOT, hop, TS)
        # A writer numbers records, and each may become several: a repeat has the same element, too.
        apart = [pl.col(name) * _ELEMENTS + frame[_ELEMENT] for name in consumer.of_each]
        return blobs.pack(consumer.port, messages.with_columns(apart), self.shards)

    def _pack_progress(self, timed: pl.DataFrame) -> Iterator[blobs.Blob]:
        """If records wait for each other: how far the source partitions have come, from the records with a place."""
        if self.progress is None or timed.is_empty():
            return
        lane = pl.col(PARTITION) if self.origin.continues else pl.lit(f"{self.number:04d}")
        marked = next((name for name in ("__timeless", _LACKS) if name in timed.columns), None)
        own = [] if marked is None else [~pl.col(marked).alias(TIMED)]
        progress = progress_of(timed.select(*ROOT, *own), lane, timed["__now"][0])
        yield from blobs.pack(self.progress, progress, self.shards)


def _split(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The accepted and the rejected records. Most often all are accepted; filtering them would copy every column."""
    reason = frame[REASON]
    if reason.null_count() == frame.height:
        return frame, frame.clear()
    return frame.filter(reason.is_null()), frame.filter(reason.is_not_null())


@dataclass(frozen=True)
class _FirstPlaces:
    """Gives the rows of a bootstrap their place: before all records, by their time, then as they are numbered.

    In this order a versioned table does not take a row for a late one because another row is newer.
    """

    ordered: bool

    def put(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Add the order columns."""
        kind = frame.schema["__time"] if self.ordered else pl.Int64()
        return frame.with_columns(
            lowest(kind).alias(TIME),
            pl.lit(BOOTSTRAP).alias(PARTITION),
            pl.col("__ts").fill_null(0).alias(POSITION),
            pl.col("__row").alias(_ELEMENT),
            pl.col("__ts").alias(TS),
        )


@dataclass
class _Places:
    """Gives the records of one task their place: running maximum of the time, source partition, position.

    Consecutive rows with the same position are the elements of one row of the source: they are numbered.

    A tombstone that lacks what orders it is behind everything that came before it in its partition. If nothing of the
    micro-batch did, it is before everything else: what it deletes came with an earlier micro-batch.
    """

    name: str
    source: int
    marks: tuple[str, ...]
    ordered: bool
    _latest: dict[str, int] = field(default_factory=dict)
    _counted: dict[str, int] = field(default_factory=dict)
    _last: dict[str, tuple[int, int]] = field(default_factory=dict)
    _highest: dict[str, pl.Series] = field(default_factory=dict)

    def put(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Add the order columns; the rows of each partition come in order, across calls too."""
        time = pl.col("__time" if self.ordered else "__ts")
        if "__timeless" in frame.columns:
            time = pl.when(~pl.col("__timeless")).then(time)
        if "__own" in frame.columns:
            frame = frame.with_columns((time.is_null() & pl.col("__own").is_not_null()).alias(_LACKS))
        names = self._partitions(frame)
        is_one = len(names) == 1
        partition = pl.lit(names[0] if is_one else names).alias(PARTITION)
        frame = frame.with_columns(partition, pl.col("__ts").alias(TS), time.alias(TIME))
        if is_one:
            return self._place(frame)
        # Spark reads one source partition after the other, but a frame may have been shuffled since.
        parts = frame.with_row_index("__row").partition_by(PARTITION, maintain_order=True)
        return pl.concat([self._place(part) for part in parts]).sort("__row").drop("__row")

    def _place(self, part: pl.DataFrame) -> pl.DataFrame:
        """Add the order columns to the rows of one source partition."""
        partition = str(part[PARTITION][0])
        time = part[TIME] if self.ordered else self._running_maximum(partition, part[TIME])
        if _LACKS in part.columns:
            time = self._behind(partition, time, part[_LACKS])
        # Nothing before it in this task has a time: it is behind a record of an earlier one.
        time = time.fill_null(0) if "__timeless" in part.columns else time
        if "__position" in part.columns:
            # A row that could not be read has no position of its own.
            last, _ = self._last.get(partition, (0, 0))
            position = part["__position"].fill_null(strategy="forward").fill_null(last).alias(POSITION)
            element = self._elements(partition, ints(position))
            return part.with_columns(position, time.alias(TIME), pl.Series(_ELEMENT, element))
        counted = self._counted.get(partition, 0)
        self._counted[partition] = counted + part.height
        counts = pl.int_range(counted, counted + part.height, dtype=pl.Int64).alias(POSITION)
        return part.with_columns(counts, time.alias(TIME), pl.lit(0, pl.Int64).alias(_ELEMENT))

    def _elements(self, partition: str, positions: Ints) -> Ints:
        """Number the rows of each position, from 0."""
        last, element = self._last.get(partition, (positions[0] - 1, -1))
        steps = np.diff(positions, prepend=last)
        if not self.ordered and (steps < 0).any():
            at = int(np.argmax(steps < 0))
            raise self._out_of_order(partition, int(positions[at]), int(positions[at] - steps[at]))
        elements = np.zeros(len(positions), dtype=np.int64)
        if not steps.all():
            rows = np.arange(len(positions))
            elements = rows - np.maximum.accumulate(np.where(steps != 0, rows, -1 - element))
        self._last[partition] = int(positions[-1]), int(elements[-1])
        return elements

    def _out_of_order(self, partition: str, position: int, last: int) -> OrderError:
        place = place_text(partition, position)
        return OrderError(
            f"The rows of '{self.name}' are not in the order of their source: {place} comes after {last}.",
            hint="Create it from the frame before its rows were mixed or sorted, or give order_by= a column that orders"
            " them.",
            operator=self.name,
        )

    def _running_maximum(self, partition: str, times: pl.Series) -> pl.Series:
        """The maximum up to each record, since the first record of the partition in this task."""
        latest = self._latest.get(partition)
        running = times.cum_max().forward_fill()
        if latest is not None:
            running = running.fill_null(latest).clip(lower_bound=latest)
        if len(running) and running[-1] is not None:
            self._latest[partition] = running[-1]
        return running

    def _behind(self, partition: str, times: pl.Series, lacks: pl.Series) -> pl.Series:
        """Give tombstones without an order the highest one before them in their partition, or else the lowest."""
        if self.ordered:
            known = pl.concat([self._highest.get(partition, times.clear()), times])
            ranks, rows = ints(known.rank("dense").fill_null(0)), np.arange(len(known))
            # The place of the highest value up to each row: itself, or where the value is that high already.
            at = np.maximum.accumulate(np.where(ranks == np.maximum.accumulate(ranks), rows, 0))
            self._highest[partition] = known[pl.Series(at[-1:])].drop_nulls()
            times = known[pl.Series(np.where(bools(lacks), at[-len(times) :], rows[-len(times) :]))]
        frame = pl.select(times.alias(TIME), lacks)
        kept = pl.col(TIME).is_not_null() | ~pl.col(_LACKS)
        return frame.select(pl.when(kept).then(TIME).otherwise(lowest(times.dtype)).alias(TIME)).to_series()

    def _partitions(self, frame: pl.DataFrame) -> pl.Series:
        """The source partition of every row, or only one if it is the same for all.

        It is text that sorts in the right order; numbers are padded.
        """
        if not self.marks:
            context = TaskContext.get()
            task = context.partitionId() if context is not None else 0
            return pl.Series([f"{self.source:04d}{SEPARATOR}{task:08d}"])
        marks = frame.select(self.marks)
        if all(marks.select(pl.all().eq_missing(pl.all().first()).all()).row(0)):
            return self._names(marks.head(1))
        distinct = marks.unique()
        named = distinct.with_columns(self._names(distinct))
        return marks.join(named, on=marks.columns, how="left", maintain_order="left")[PARTITION]

    def _names(self, marks: pl.DataFrame) -> pl.Series:
        parts = [
            pl.col(name) if dtype == pl.String else pl.col(name).cast(pl.String).str.zfill(20)
            for name, dtype in marks.schema.items()
        ]
        source = pl.lit(f"{self.source:04d}")
        return marks.select(pl.concat_str(source, *parts, separator=SEPARATOR).alias(PARTITION)).to_series()


@dataclass(frozen=True)
class ChangePacker:
    """Packs the changes of tables between two rounds, after their expressions were evaluated.

    The record batches have the columns of blobs that only pass through, and the columns of every
    consumer; its ``_live`` is null if the row is not one of its messages.
    """

    consumers: tuple[Consumer, ...]
    shards: int
    hop: int
    rules: DropRules = ONLY_COUNTED
    failed: tuple[tuple[FailedRows, str], ...] = ()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pack all record batches of a task."""
        self.rules.begin()
        drops = Drops(self.rules)
        for table in _gathered(batches):
            frame = frame_of(checked_texts(in_utc(table)))
            passing = frame.filter(pl.col(blobs.BLOB).is_not_null()).select(blobs.COLUMNS)
            packed = [blobs.Blob(*row) for row in passing.iter_rows()]
            for failed, prefix in self.failed:
                packed += self._failing(failed, prefix, frame, drops)
            for consumer in self.consumers:
                mine = consumer.of(frame)
                if consumer.counted_by is not None and (late := int(frame[consumer.late].sum())):
                    example = partial(self._example, consumer, frame)
                    drops.add(consumer.counted_by, OUT_OF_ORDER, late, example)
                    if consumer.rejecting:
                        packed += self._tell(consumer, mine.filter(consumer.late))
                        mine = mine.filter(pl.col(consumer.late).not_())
                packed += self._pack(consumer, mine)
            yield from blobs.record_batches(packed)
        yield from blobs.record_batches([*blobs.counters(0, drops.counts), *blobs.notices(0, drops)])

    def _failing(
        self, failed: FailedRows, prefix: str, frame: pl.DataFrame, drops: Drops
    ) -> Iterator[blobs.Blob]:
        """Handle the rows for which an expression fails; columns with a prefix say where they are."""
        place = [*ROOT, *hop_columns(self.hop + 1)]
        rows = failed.of(frame, *(pl.col(prefix + name).alias(name) for name in (*place, TS)))
        for port, told in failed.handled(rows, drops):
            ranked = told.with_columns(pl.col(place[-1]) + port.rank)
            yield from blobs.pack(port, ranked, self.shards)

    def _example(self, consumer: Consumer, frame: pl.DataFrame) -> str:
        """Say which change is one of those that come too late for a consumer."""
        row = frame.filter(consumer.late).head(1)
        partition, position = (row[consumer.prefix + name].item() for name in (PARTITION, POSITION))
        return example_text(partition, position, consumer.key_text(row))

    def _tell(self, consumer: Consumer, late: pl.DataFrame) -> Iterator[blobs.Blob]:
        """Messages about dropped changes."""
        assert consumer.shown is not None  # noqa: S101
        assert consumer.counted_by is not None  # noqa: S101
        place = [*ROOT, *hop_columns(self.hop + 1)]
        for port in consumer.rejecting:
            ranked = consumer.messages(late).with_columns(pl.col(place[-1]) + port.rank)
            yield from blobs.pack(
                port, consumer.shown.rejected(ranked, place, consumer.counted_by, OUT_OF_ORDER), self.shards
            )

    def _pack(self, consumer: Consumer, frame: pl.DataFrame) -> Iterator[blobs.Blob]:
        messages = consumer.messages(frame)
        last = hop_columns(self.hop + 1)[-1]
        ranked = messages.with_columns(pl.col(last) + consumer.port.rank)
        return blobs.pack(consumer.port, ranked, self.shards) if messages.height else iter(())


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Combine small record batches up to a number of rows and bytes."""
    held: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        held.append(batch)
        rows, size_bytes = rows + batch.num_rows, size_bytes + batch.nbytes
        if rows >= ROWS or size_bytes >= blobs.MAX_BYTES:
            yield pa.Table.from_batches(held)
            held, rows, size_bytes = [], 0, 0
    if rows:
        yield pa.Table.from_batches(held)
