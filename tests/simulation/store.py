"""The state of record by version, as Spark keeps it: an attempt writes a copy, which counts only if it is chosen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from tablestream.state import manifest as manifests
from tablestream.state.store import MemoryStore

Place: TypeAlias = tuple[int, int]
"""(round, shard)"""
Chunk: TypeAlias = tuple[int, int, int]
"""(trace, run, chunk)"""
#: So many versions of a shard are kept.
_KEPT_VERSIONS = 3


class AttemptFailed(Exception):  # noqa: N818 - an event of the simulation
    """A task's attempt ends: its process dies, or it raises."""


class AttemptStore(MemoryStore):
    """What one attempt reads and writes: a copy of a version.

    Attributes
    ----------
    lost
        What a read of a chunk gives instead of its bytes; None: the chunk is missing. Damage of the stored files.
    lost_manifest
        The same for the manifest, as a list of one, or empty.
    is_gone
        Whether attempts find nothing at all. Timers stay: without them, only a message would show the loss.
    timers_ms
        The timers that are registered with Spark, which belong to the version, too.
    writes_left
        After so many writes the attempt fails.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lost: dict[Chunk, bytes | None] = {}
        self.lost_manifest: list[bytes | None] = []
        self.is_gone = False
        self.timers_ms: set[int] = set()
        self.writes_left: int | None = None

    def copy(self) -> AttemptStore:
        """Return the start of an attempt on this version."""
        twin = AttemptStore()
        twin.timers_ms = set(self.timers_ms)
        if self.is_gone:
            return twin
        twin.manifest, twin.plan, twin.tables = self.manifest, self.plan, self.tables
        twin.chunks = dict(self.chunks)
        twin.lost, twin.lost_manifest = dict(self.lost), list(self.lost_manifest)
        return twin

    def read_manifest(self) -> bytes | None:
        """See `StateStore`."""
        return self.lost_manifest[0] if self.lost_manifest else super().read_manifest()

    def write_manifest(self, data: bytes) -> None:
        """See `StateStore`."""
        super().write_manifest(data)
        self.lost_manifest.clear()

    def read_chunk(self, trace: int, run: int, chunk: int) -> bytes | None:
        """See `StateStore`."""
        key = (trace, run, chunk)
        return self.lost[key] if key in self.lost else super().read_chunk(trace, run, chunk)

    def _count_write(self, size_bytes: int) -> None:
        if self.writes_left is not None:
            self.writes_left -= 1
            if self.writes_left < 0:
                raise AttemptFailed
        super()._count_write(size_bytes)

    # The timers of a shard, as `StatefulProcessorHandle` has them

    def listTimers(self) -> Iterator[int]:  # noqa: N802 - Spark's name
        """Yield the registered times."""
        yield from sorted(self.timers_ms)

    def registerTimer(self, time_ms: int) -> None:  # noqa: N802 - Spark's name
        """Ask for a call at a time."""
        self.timers_ms.add(time_ms)

    def deleteTimer(self, time_ms: int) -> None:  # noqa: N802 - Spark's name
        """Cancel a call."""
        self.timers_ms.discard(time_ms)


@dataclass
class StateOfRecord:
    """All shards of a query, by version. Version n is what micro-batch n starts from."""

    versions: dict[Place, dict[int, AttemptStore]] = field(default_factory=dict)

    def open(self, place: Place, version: int) -> AttemptStore:
        """Return a copy of a shard's version for an attempt."""
        return self.at(place, version).copy()

    def at(self, place: Place, version: int) -> AttemptStore:
        """Return a shard's version, or an empty one."""
        known = self.versions.get(place, {})
        older = [number for number in known if number <= version]
        return known[max(older)] if older else AttemptStore()

    def publish(self, place: Place, version: int, store: AttemptStore) -> None:
        """Make what an attempt wrote a version, and forget old versions."""
        store.writes_left = None
        known = self.versions.setdefault(place, {})
        known[version] = store
        for number in sorted(known)[:-_KEPT_VERSIONS]:
            del known[number]

    def forget(self, version: int, kept: set[Place]) -> None:
        """Forget a version of all shards but some."""
        for place, known in self.versions.items():
            if place not in kept:
                known.pop(version, None)

    def restore(self) -> bool:
        """Bring the good copy of all damaged files back; say whether there was damage."""
        damaged = False
        for store in (store for known in self.versions.values() for store in known.values()):
            damaged |= bool(store.lost or store.lost_manifest or store.is_gone)
            store.is_gone = False
            store.lost.clear()
            store.lost_manifest.clear()
        return damaged


def listed_chunks(store: MemoryStore, numbers: dict[str, int]) -> set[Chunk]:
    """Return the chunks that a manifest lists; `numbers` are those of the traces."""
    if store.manifest is None:
        return set()
    traces = manifests.decode(store.manifest).traces
    return {
        (numbers[name], run.number, index)
        for name, runs in traces.items()
        for run in runs
        for index in range(len(run.chunks))
    }
