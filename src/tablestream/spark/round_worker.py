"""The work of a round on one shard in a Spark worker: unpack messages, run the operators, pack what they emit.

Messages are opened whole, or slice by slice if they are many.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Protocol

from tablestream.operators.operator import WallClock
from tablestream.runtime.drops import ONLY_COUNTED, DropRules
from tablestream.runtime.measures import Counts
from tablestream.runtime.ports import METRICS
from tablestream.runtime.rounds import Placed, Round, copied_name
from tablestream.runtime.run_round import run_round
from tablestream.runtime.slices import RECORD, SLICE_BYTES, SLICE_ROWS, Inbox, slice_numbers
from tablestream.spark import blobs
from tablestream.state.births import NewShard
from tablestream.state.cache import ChunkCache, RunCache
from tablestream.state.shard import ShardState
from tablestream.state.store import StateStore

if TYPE_CHECKING:
    import pandas as pd

    from tablestream.runtime.rounds import Round
    from tablestream.state.positions import Bools

#: Blobs are collected until they are this large: handing a frame over costs as much as 100 kB of it.
_HELD_BYTES = 4 << 20
#: The size above which a shard's copy of a global table is worth a warning; in the state it is compressed.
_LARGE_COPY_BYTES = 64 << 20

_log = logging.getLogger(__name__)
_warned: set[str] = set()
#: One per process and directory, kept as long as Spark keeps the worker.
_cache = cache(RunCache)


class Timers(Protocol):
    """The part of Spark's handle by which a shard asks to be called again."""

    def listTimers(self) -> Iterator[int]:  # noqa: N802 - Spark's name
        """Return the times in milliseconds."""

    def registerTimer(self, due_ms: int, /) -> None:  # noqa: N802 - Spark's name
        """Add one."""

    def deleteTimer(self, due_ms: int, /) -> None:  # noqa: N802 - Spark's name
        """Remove one."""


class TimerValues(Protocol):
    """The wall clock of a micro-batch, as Spark hands it over."""

    def getCurrentProcessingTimeInMs(self) -> int:  # noqa: N802 - Spark's name
        """Return the time."""


@dataclass(frozen=True)
class Settings:
    """Settings of the workers: where runs are cached, and how large the cache may become."""

    cache_directory: str
    cache_bytes: int


@dataclass(frozen=True)
class RoundWorker:
    """Processes the messages of one shard in one round."""

    work: Round
    """The round."""
    shards: int
    """How many shards there are."""
    settings: Settings
    """Of the cache of decoded runs on the worker."""
    rules: DropRules = ONLY_COUNTED
    """What the query does about dropped records."""

    @cached_property
    def cache(self) -> ChunkCache:
        """The runs that this process has decoded."""
        return _cache(self.settings.cache_directory, self.settings.cache_bytes)

    def run(
        self,
        shard: int,
        rows: Iterable[pd.DataFrame],
        store: StateStore,
        handle: Timers,
        timer_values: TimerValues,
    ) -> Iterator[pd.DataFrame]:
        """Read all messages of a shard, then yield blobs as operators emit. Blobs of later rounds pass through."""
        inbox = PackedInbox()
        mine = self.work.ports
        for frame in rows:
            passing = ~frame[blobs.PORT].isin(mine)
            if passing.any():
                yield frame[passing]
            arrived = frame[~passing]
            for port, count, blob in zip(
                arrived[blobs.PORT], arrived[blobs.ROWS], arrived[blobs.BLOB], strict=True
            ):
                inbox.add(int(port), int(count), blob)
        if inbox.ports:
            yield from self._run(shard, inbox, store, handle, timer_values)

    def wake(
        self, shard: int, store: StateStore, handle: Timers, timer_values: TimerValues
    ) -> Iterator[pd.DataFrame]:
        """Do the same for a shard without messages, in which something has waited long enough."""
        yield from self._run(shard, PackedInbox(), store, handle, timer_values)

    def _run(
        self,
        shard: int,
        inbox: PackedInbox,
        store: StateStore,
        handle: Timers,
        timer_values: TimerValues,
    ) -> Iterator[pd.DataFrame]:
        """Run the operators over a shard's messages, and commit their state."""
        self.rules.begin()
        work = self.work
        state = work.open_state(store, self.cache)
        counts = Counts(rules=self.rules)
        clock = WallClock(timer_values.getCurrentProcessingTimeInMs() * 1000) if work.needs_clock else None
        held: list[blobs.Blob] = []
        place = (blobs.shard_names(self.shards).index(shard), self.shards)
        ports = frozenset(inbox.ports)
        for port, messages in run_round(work, inbox.opened(work), state, counts, clock, place):
            held += blobs.pack(port, messages, self.shards)
            if sum(len(one.blob) for one in held) > _HELD_BYTES:
                yield blobs.data_frame(held)
                held = []
        measures = counts.measures(work, state)
        was_new = state.is_new
        state.commit()
        if clock is not None:
            _set_timer(handle, clock.wake_us)
        held += blobs.counters(shard, counts.dropped)
        held.append(blobs.measures(shard, work.number, measures.values()))
        held += blobs.notices(shard, counts.drops)
        held += [one for placed in work.operators for one in _copied(placed, shard, ports, state)]
        if was_new:
            held.append(blobs.report(NewShard(work.number, shard, is_born=not state.is_new), self.shards))
        if held:
            yield blobs.data_frame(held)


def _set_timer(handle: Timers, wake_us: int | None) -> None:
    """Ask Spark to call again at a time, and cancel what an earlier micro-batch asked for."""
    wake_ms = None if wake_us is None else -(-wake_us // 1000)
    timers = list(handle.listTimers())
    for timer_ms in timers:
        if timer_ms != wake_ms:
            handle.deleteTimer(timer_ms)
    if wake_ms is not None and wake_ms not in timers:
        handle.registerTimer(wake_ms)


def _copied(placed: Placed, shard: int, arrived: Collection[int], state: ShardState) -> Iterator[blobs.Blob]:
    """Report the size of a shard's copy of a global table that changed, and warn if it is large."""
    trace = placed.copy_trace
    if trace is None or placed.inputs[-1] not in arrived:
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


@dataclass
class PackedInbox:
    """Blobs by port, how many messages they have, and about how many bytes these take; read once."""

    packed: dict[int, list[bytes]] = field(default_factory=dict)
    rows: int = 0
    size_bytes: int = 0

    @property
    def ports(self) -> Collection[int]:
        """The ports that messages have arrived at; ask before they are opened."""
        return self.packed.keys()

    def add(self, port: int, rows: int, blob: bytes) -> None:
        """Add a blob."""
        self.packed.setdefault(port, []).append(blob)
        self.rows += rows
        self.size_bytes += blobs.size_bytes(blob)

    @property
    def _slice_rows(self) -> int:
        """How many messages fit a slice, if they are equally large."""
        return min(SLICE_ROWS, max(1, self.rows * SLICE_BYTES // max(self.size_bytes, 1)))

    def opened(self, work: Round) -> Iterator[Inbox]:
        """Open the messages, slice by slice if they are too many or too large, and the round can be sliced.

        Of many messages, only the places are in memory at once. A blob is opened once for its places, and then for
        each slice that it has messages of: of one or two where a source is in order, of all where times are at random.
        """
        if not work.can_be_sliced or self.rows <= self._slice_rows:
            yield {port: blobs.decode(self.packed.pop(port)) for port in list(self.packed)}
            return
        every = [(port, blob) for port, mine in self.packed.items() for blob in mine]
        places = [blobs.decode_columns(blob, RECORD) for _, blob in every]
        numbers = slice_numbers(places, self._slice_rows)
        del places
        for number in range(1 + max(int(of_blob.max()) for of_blob in numbers)):
            taken: dict[int, list[tuple[bytes, Bools]]] = {}
            for (port, blob), of_blob in zip(every, numbers, strict=True):
                if (mine := of_blob == number).any():
                    taken.setdefault(port, []).append((blob, mine))
            yield {port: blobs.decode(*zip(*parts, strict=True)) for port, parts in taken.items()}
