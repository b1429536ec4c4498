"""The stages of a plan in this process: the same packers, rounds and unpackers that Spark's workers run.

Only expressions are evaluated by Spark, in small batch jobs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.connectors.sink import quoted
from tablestream.connectors.spark_types import arrow_schema, nullable
from tablestream.runtime.drops import DropRules
from tablestream.runtime.ports import METRICS, NOTICES
from tablestream.runtime.rounds import Round
from tablestream.spark import blobs
from tablestream.spark.exchange import Batches, Observations
from tablestream.spark.round_worker import RoundWorker, Settings
from tablestream.spark.row_frames import frame_of
from tablestream.spark.unpacking import OutputUnpacker
from tablestream.state.cache import ChunkCache, MemoryCache
from tablestream.state.store import MemoryStore

StoreId = tuple[int, int]
"""Names a state store, as Spark's operator and partition do: a round, and a shard in it."""
_MILLISECOND_US = 1000
_BLOBS = arrow_schema(blobs.FIELDS)


def _with_nulls(frame: DataFrame) -> DataFrame:
    """The same rows in types whose fields can all be null, as PySpark needs them where a whole struct is null."""
    kinds = {one.name: (one.dataType, nullable(one.dataType)) for one in frame.schema}
    changed = {name: F.col(quoted(name)).cast(new) for name, (old, new) in kinds.items() if new != old}
    return frame.withColumns(changed) if changed else frame


@dataclass
class MemoryTimers:
    """The timers of a shard, as Spark's handle has them."""

    due_ms: set[int] = field(default_factory=set)

    def listTimers(self) -> Iterator[int]:  # noqa: N802 - Spark's name
        """Return the times at which the shard is called."""
        return iter(sorted(self.due_ms))

    def registerTimer(self, due_ms: int, /) -> None:  # noqa: N802 - Spark's name
        """Call the shard at a time."""
        self.due_ms.add(due_ms)

    def deleteTimer(self, due_ms: int, /) -> None:  # noqa: N802 - Spark's name
        """Do not call it at that time."""
        self.due_ms.discard(due_ms)


@dataclass
class State:
    """What a checkpoint would have: the state and the timers of every shard."""

    stores: defaultdict[StoreId, MemoryStore] = field(default_factory=lambda: defaultdict(MemoryStore))
    timers: defaultdict[StoreId, MemoryTimers] = field(default_factory=lambda: defaultdict(MemoryTimers))

    def copy(self) -> State:
        """Return a twin, which changes on its own."""
        twin = State()
        twin.stores.update({place: store.copy() for place, store in self.stores.items()})
        twin.timers.update({place: MemoryTimers(set(timers.due_ms)) for place, timers in self.timers.items()})
        return twin


@dataclass(frozen=True)
class _Worker(RoundWorker):
    """A round's worker with a cache of its own, in memory."""

    kept: MemoryCache = field(kw_only=True)

    @property
    def cache(self) -> ChunkCache:
        return self.kept


@dataclass(frozen=True)
class _Clock:
    """The wall clock, as Spark's timer values have it."""

    now_us: int

    def getCurrentProcessingTimeInMs(self) -> int:  # noqa: N802 - Spark's name
        return self.now_us // _MILLISECOND_US


@dataclass
class InProcess:
    """One micro-batch in this process."""

    spark: SparkSession
    """Evaluates expressions."""
    state: State
    """The state before the micro-batch; afterwards, that behind it."""
    cache: MemoryCache
    """Decoded chunks of the state."""
    now_us: int
    """The wall clock, in microseconds since 1970."""
    number: int
    """The number of the micro-batch."""
    counts: Counter[str] = field(default_factory=Counter)
    """What operators and sources counted, by the names in a query's progress."""
    notices: list[str] = field(default_factory=list)
    """What tasks say about drops."""
    observes_drops: bool = False
    reads_notices: bool = False
    ports: set[int] = field(default_factory=set)
    """The outputs that have rows."""

    @property
    def now(self) -> str:
        """The wall clock."""
        return f"timestamp_micros({self.now_us}L)"

    def pack(self, frame: DataFrame, packer: Batches) -> list[pa.RecordBatch]:
        return list(packer(_with_nulls(frame).toArrow().to_batches()))

    def union(self, streams: Sequence[list[pa.RecordBatch]]) -> list[pa.RecordBatch]:
        return [batch for stream in streams for batch in stream]

    def run_round(
        self, stream: list[pa.RecordBatch], work: Round, shards: int, rules: DropRules
    ) -> list[pa.RecordBatch]:
        """Run a round on every shard with blobs, then on those whose timer is due, as Spark does."""
        worker = _Worker(work, shards, Settings("", 0), rules, kept=self.cache)
        clock, emitted = _Clock(self.now_us), list[pd.DataFrame]()
        for shard, frames in _by_shard(stream).items():
            place = work.number, shard
            emitted += worker.run(shard, frames, self.state.stores[place], self.state.timers[place], clock)
        for place, due_ms in self._due(work.number, clock.getCurrentProcessingTimeInMs()):
            timers = self.state.timers[place]
            emitted += worker.wake(place[1], self.state.stores[place], timers, clock)
            timers.deleteTimer(due_ms)
        return [pa.RecordBatch.from_pandas(frame, _BLOBS, preserve_index=False) for frame in emitted]

    def _due(self, number: int, now_ms: int) -> list[tuple[StoreId, int]]:
        """The shards of a round whose timer is due."""
        return [
            (place, due_ms)
            for place, timers in sorted(self.state.timers.items())
            for due_ms in timers.listTimers()
            if place[0] == number and due_ms <= now_ms
        ]

    def unpack(self, stream: list[pa.RecordBatch], unpacker: Batches, schema: T.StructType) -> DataFrame:
        return frame_of(self.spark, unpacker(stream), schema)

    def finish(
        self,
        stream: list[pa.RecordBatch],
        unpacker: OutputUnpacker,
        schema: T.StructType,
        observations: Observations,  # noqa: ARG002 - counted here
        *,
        in_place: bool,
    ) -> DataFrame:
        table = pa.Table.from_batches(stream, _BLOBS)
        ports = table[blobs.PORT].to_numpy()
        counters = table.filter(pa.array(ports == METRICS))
        for name, count in zip(
            counters[blobs.BLOB].to_pylist(), counters[blobs.ROWS].to_pylist(), strict=True
        ):
            if not name.startswith(b"\0"):  # or it is a round's measures
                self.counts[name.decode()] += count
        told = table.filter(pa.array(ports == NOTICES))
        texts = zip(told[blobs.ROWS].to_pylist(), told[blobs.BLOB].to_pylist(), strict=True)
        self.notices += [f"{count}\0{text.decode()}" for count, text in texts]
        changes = table.filter(pa.array(ports >= 0))
        if not in_place:
            changes = changes.take(np.argsort(changes[blobs.SHARD].to_numpy(), kind="stable"))
        self.ports = set(changes[blobs.PORT].to_pylist())
        numbered = replace(unpacker, micro_batch=self.number)
        return frame_of(self.spark, numbered(changes.to_batches()), schema)


def _by_shard(stream: list[pa.RecordBatch]) -> dict[int, list[pd.DataFrame]]:
    """The blobs of each shard, as Spark hands them over."""
    found: dict[int, list[pd.DataFrame]] = {}
    for batch in stream:
        for shard, part in batch.to_pandas().groupby(blobs.SHARD):
            found.setdefault(int(shard), []).append(part)
    return dict(sorted(found.items()))
