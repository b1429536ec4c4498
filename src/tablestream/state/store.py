"""The interface of a shard's state of record, the only storage that operators use."""

from __future__ import annotations

from typing import Protocol


class StateStore(Protocol):
    """The state of record of one shard of one round.

    It promises three things. The next micro-batch reads back what was written, byte for byte. A micro-batch's writes
    become visible to later ones all together or not at all. Within a micro-batch, a read sees the writes before it.
    Speed is not promised: expect some tens of megabytes a second.
    """

    def read_manifest(self) -> bytes | None:
        """Return the manifest as it was last written, or None for a shard without state."""

    def write_manifest(self, data: bytes) -> None:
        """Replace the manifest."""

    def read_plan(self) -> str | None:
        """Return the text of the plan that made this state, or None."""

    def write_plan(self, text: str) -> None:
        """Replace the text of the plan."""

    def write_tables(self, text: str) -> None:
        """Replace the description of the state's tables, for readers outside the query."""

    def read_chunk(self, trace: int, run: int, chunk: int) -> bytes | None:
        """Return one chunk of a run, or None if it does not exist."""

    def write_chunk(self, trace: int, run: int, chunk: int, data: bytes) -> None:
        """Write one chunk of a run; a chunk is written once and never changed."""

    def remove_chunk(self, trace: int, run: int, chunk: int) -> None:
        """Remove one chunk; do nothing if it does not exist."""


class MemoryStore:
    """A state of record in dictionaries, which counts its calls; for readers of a checkpoint, and for tests.

    `manifest`, `plan`, `tables`, `chunks`: what is stored; a test may damage it. `reads`, `writes`, `removals`: calls
    so far, of the manifest, the plan and the chunks together. `read_bytes`, `written_bytes`: bytes of manifests and
    chunks that were read and written.

    Examples
    --------
    >>> store = MemoryStore()
    >>> store.write_chunk(0, 1, 0, b"rows")
    >>> store.copy().read_chunk(0, 1, 0), store.writes, store.written_bytes
    (b'rows', 1, 4)
    """

    def __init__(self) -> None:
        self.manifest: bytes | None = None
        self.plan: str | None = None
        self.tables: str | None = None
        self.chunks: dict[tuple[int, int, int], bytes] = {}
        self.reads = self.writes = self.removals = 0
        self.read_bytes = self.written_bytes = 0

    def copy(self) -> MemoryStore:
        """Return a checkpoint: a store with the same content and counters at zero."""
        twin = MemoryStore()
        twin.manifest, twin.plan, twin.tables = self.manifest, self.plan, self.tables
        twin.chunks = dict(self.chunks)
        return twin

    def read_manifest(self) -> bytes | None:
        return self._counted_read(self.manifest)

    def write_manifest(self, data: bytes) -> None:
        self._count_write(len(data))
        self.manifest = data

    def read_plan(self) -> str | None:
        self.reads += 1
        return self.plan

    def write_plan(self, text: str) -> None:
        self._count_write(0)
        self.plan = text

    def write_tables(self, text: str) -> None:
        self._count_write(0)
        self.tables = text

    def read_chunk(self, trace: int, run: int, chunk: int) -> bytes | None:
        return self._counted_read(self.chunks.get((trace, run, chunk)))

    def write_chunk(self, trace: int, run: int, chunk: int, data: bytes) -> None:
        self._count_write(len(data))
        self.chunks[trace, run, chunk] = data

    def remove_chunk(self, trace: int, run: int, chunk: int) -> None:
        self.removals += 1
        self.chunks.pop((trace, run, chunk), None)

    def _counted_read(self, data: bytes | None) -> bytes | None:
        self.reads += 1
        self.read_bytes += len(data or b"")
        return data

    def _count_write(self, size_bytes: int) -> None:
        self.writes += 1
        self.written_bytes += size_bytes
