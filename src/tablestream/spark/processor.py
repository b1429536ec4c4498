"""The stateful stage of a round: Spark calls it once per shard and micro-batch."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from tablestream.operators.operator import WallClock
from tablestream.plan.measures import Counts
from tablestream.plan.rounds import METRICS, Placed, Round, copied_name
from tablestream.plan.work import work_off
from tablestream.spark import blobs
from tablestream.spark.caching import worker_cache
from tablestream.spark.quiet import quieten
from tablestream.spark.store import SparkStore
from tablestream.state.shard import ShardState

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


#: Blobs leave together until they are that large: handing a frame over costs as much as 100 kB of it.
_HELD_BYTES = 4 << 20
#: A copy of a global table in a shard that is worth a warning; in the state it is compressed.
_LARGE_COPY_BYTES = 64 << 20

_log = logging.getLogger(__name__)
_warned: set[str] = set()


class RoundProcessor(StatefulProcessor):
    """Processes the messages of one shard in one round.

    Parameters
    ----------
    work
        The round.
    shards
        The number of shards.
    cache_directory, cache_bytes
        The directory for decoded runs on the worker, and its maximum size.
    """

    def __init__(self, work: Round, shards: int, cache_directory: str, cache_bytes: int) -> None:
        self._work, self._shards = work, shards
        self._cache_directory, self._cache_bytes = cache_directory, cache_bytes

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        quieten()

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Create the state variables."""
        self._handle, self._store = handle, SparkStore(handle, self._work.number)

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        """Run the round for one shard: read all of its messages, then yield blobs as operators emit."""
        packed: dict[int, list[bytes]] = {}
        mine = self._work.ports
        for frame in rows:
            passing = ~frame[blobs.PORT].isin(mine)
            if passing.any():
                yield frame[passing]
            for port, blob in zip(frame[blobs.PORT][~passing], frame[blobs.BLOB][~passing], strict=True):
                packed.setdefault(int(port), []).append(blob)
        if packed:
            inbox = {port: blobs.decode(packed.pop(port)) for port in list(packed)}
            yield from self._work_off(int(key[0]), inbox, timerValues)

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: Any,
        timerValues: Any,  # noqa: N803 - Spark's name
        expiredTimerInfo: Any,  # noqa: N803, ARG002 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        """Run the round for a shard without input, in which something has waited long enough."""
        yield from self._work_off(int(key[0]), {}, timerValues)

    def _work_off(
        self, shard: int, inbox: dict[int, list[pl.DataFrame]], timer_values: Any
    ) -> Iterator[pd.DataFrame]:
        cache = worker_cache(self._cache_directory, self._cache_bytes)
        work = self._work
        state = ShardState(self._store, cache, work.traces, work.fingerprint, work.text, tables=work.tables)
        counts = Counts()
        clock = None
        if self._work.needs_clock:
            clock = WallClock(timer_values.getCurrentProcessingTimeInMs() * 1000)
        held: list[blobs.Blob] = []
        place = (blobs.shard_names(self._shards).index(shard), self._shards)
        for port, messages in work_off(self._work, inbox, state, counts, clock=clock, shard=place):
            held += blobs.pack(port, messages, self._shards)
            if sum(len(one.blob) for one in held) > _HELD_BYTES:
                yield blobs.data_frame(held)
                held = []
        measures = counts.measures(work, state)
        state.commit()
        if clock is not None:
            self._set_timer(clock.wake_us)
        held += blobs.counters(shard, {**counts.dropped, **measures})
        held += [one for placed in self._work.operators for one in _copied(placed, shard, inbox, state)]
        if held:
            yield blobs.data_frame(held)

    def _set_timer(self, wake_us: int | None) -> None:
        """Ask Spark for one more call, and cancel what an earlier micro-batch asked for."""
        wake_ms = None if wake_us is None else -(-wake_us // 1000)
        timers = list(self._handle.listTimers())
        for timer_ms in timers:
            if timer_ms != wake_ms:
                self._handle.deleteTimer(timer_ms)
        if wake_ms is not None and wake_ms not in timers:
            self._handle.registerTimer(wake_ms)

    def close(self) -> None:
        """Nothing to close: runs are mapped files that go with the process."""


def _copied(
    placed: Placed, shard: int, inbox: Mapping[int, object], state: ShardState
) -> Iterator[blobs.Blob]:
    """Report the size of a shard's copy of a global table that changed, and warn if it is large."""
    trace = placed.copy_trace
    if trace is None or placed.inputs[-1] not in inbox:
        return
    size_bytes = state.sizes(trace)[1].size_bytes
    if size_bytes > _LARGE_COPY_BYTES and placed.name not in _warned:
        _warned.add(placed.name)
        _log.warning(
            "%s: a shard's copy of the global table has %d MB, and every shard has one. Use"
            " tablestream.table instead, whose rows are kept once.",
            placed.name,
            size_bytes >> 20,
        )
    yield blobs.Blob(shard, METRICS, size_bytes, copied_name(placed.name).encode())
