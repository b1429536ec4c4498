"""Immutable runs: rows sorted by the hash of their key, in chunks, read through a cache.

Each chunk is an Arrow IPC stream, at most `CHUNK_SIZE_BYTES` long, and holds a contiguous range of the run's hashes;
rows of one hash may lie in two neighbouring chunks. So reading, checking, repairing, caching and merging a run need
memory for one chunk, whatever the size of the run. Only a single larger row makes a larger chunk.

Chunks are compressed with Zstandard at level 1 (tiny ones are not, see `ipc_stream`) and hold strings by offset, not as
views: for 35,000 rows with three strings each, 12 ms and 1.27 MB, where LZ4 needs 8 ms and 2.00 MB. The state of record
moves 40 to 50 MB/s, so the 0.73 MB cost 16 ms, and they would stay in the checkpoint for a hundred micro-batches.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from tablestream.errors import DamagedStateError
from tablestream.state.arrow import ipc_stream
from tablestream.state.changes import LIVE
from tablestream.state.positions import frame_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tablestream.state.cache import ChunkCache
    from tablestream.state.store import StateStore
    from tablestream.state.trace_spec import TraceSpec

CHUNK_SIZE_BYTES = 16 * 1024 * 1024

_WRITE = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=1), use_threads=False)
_READ = pa.ipc.IpcReadOptions(use_threads=False)
RESTORE_HINT = (
    "Restart from a complete checkpoint (a copy, or an earlier micro-batch of this one), "
    "or start with a new checkpoint and read the sources again."
)


@dataclass(frozen=True)
class ChunkInfo:
    """A chunk in the manifest; `checksum` is of the stored bytes, and names the cache file."""

    rows: int
    size_bytes: int
    checksum: str
    min_hash: int
    max_hash: int


@dataclass(frozen=True)
class RunInfo:
    """A run in the manifest: number, rows, how many of these are tombstones (`dead`), chunks in order."""

    number: int
    rows: int
    dead: int
    chunks: tuple[ChunkInfo, ...]

    @property
    def size_bytes(self) -> int:
        """The size of the run in the state of record."""
        return sum(chunk.size_bytes for chunk in self.chunks)

    @property
    def min_hash(self) -> int:
        """The smallest hash in the run."""
        return self.chunks[0].min_hash

    @property
    def max_hash(self) -> int:
        """The largest hash in the run."""
        return self.chunks[-1].max_hash


def checksum(data: bytes) -> str:
    """Name a chunk by its bytes: the first half of their SHA-256, for which processors have instructions."""
    return hashlib.sha256(data).hexdigest()[:32]


def encode(table: pa.Table) -> bytes:
    """Encode rows as a compressed Arrow IPC stream; `decode` restores every type and every null."""
    return bytes(ipc_stream(table, _WRITE))


def own_strings(frame: pl.DataFrame) -> pa.Table:
    """Return rows as a table with its own strings, by offset."""
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def decode(data: bytes) -> pl.DataFrame:
    """Decode what `encode` wrote."""
    return frame_of(pa.ipc.open_stream(data, options=_READ).read_all())


def compact(frame: pl.DataFrame) -> pl.DataFrame:
    """Copy strings and binaries out of shared buffers.

    Gathered strings are views into the buffers of the frame that they came from. They keep all of it alive, which
    may be a mapped file, and Arrow's writers write all of it.
    """
    if not any(dtype.is_nested() or dtype in {pl.String, pl.Binary} for dtype in frame.dtypes):
        return frame
    return frame_of(own_strings(frame))


def cut(frames: Iterable[pl.DataFrame], size_bytes: int) -> Iterator[pl.DataFrame]:
    """Regroup frames into frames of about `size_bytes` each, in order, assuming rows of average size."""
    pending: list[pl.DataFrame] = []
    pending_bytes = 0
    for frame in frames:
        if not frame.height:
            continue
        pending.append(frame)
        pending_bytes += int(frame.estimated_size())
        if pending_bytes > size_bytes:
            whole = pl.concat(pending)
            rows = max(1, whole.height * size_bytes // pending_bytes)
            *full, rest = whole.iter_slices(rows)
            yield from full
            pending, pending_bytes = [rest], int(rest.estimated_size())
    if pending:
        yield pl.concat(pending)


@dataclass
class RunUse:
    """How often the runs of a trace were used."""

    cache_hits: int = 0
    fetches: int = 0
    """Chunks read from the cache, and chunks decoded from the state of record."""
    merges: int = 0
    """Runs that were written to replace several others."""


class RunStorage:
    """Reads and writes the runs of one trace.

    Parameters
    ----------
    spec
        The trace; its number names the runs in the store.
    store
        The state of record.
    cache
        Where decoded chunks are kept.
    chunk_size_bytes
        The largest size of a chunk; smaller in tests.

    Attributes
    ----------
    use : RunUse
        How the runs were used since this object was made.
    """

    def __init__(
        self, spec: TraceSpec, store: StateStore, cache: ChunkCache, chunk_size_bytes: int = CHUNK_SIZE_BYTES
    ) -> None:
        self.spec = spec
        self._store = store
        self._cache = cache
        self._chunk_size_bytes = chunk_size_bytes
        self.use = RunUse()

    def read(self, run: RunInfo, index: int) -> pl.DataFrame:
        """Read one chunk of a run, sorted by hash; raise `DamagedStateError` if neither cache nor state has it whole.

        The frame may lie in a mapped file: gather from it at once, and do not keep it (see `compact`).
        """
        chunk = run.chunks[index]
        fetches = self.use.fetches
        frame = self._cache.open(chunk.checksum, lambda: self._fetch(run, index))
        self.use.cache_hits += self.use.fetches == fetches
        if frame.schema != self.spec.schema:
            raise DamagedStateError(
                f"Run {run.number} of trace '{self.spec.name}' has the columns {dict(frame.schema)}, "
                f"where the plan expects {dict(self.spec.schema)}.",
                hint=RESTORE_HINT,
            )
        return frame

    def _fetch(self, run: RunInfo, index: int) -> pl.DataFrame:
        """Read a chunk from the state of record, and trust it only if its checksum matches the manifest."""
        self.use.fetches += 1
        data = self._store.read_chunk(self.spec.number, run.number, index)
        found = "is missing from" if data is None else "is not what was written to"
        if data is None or checksum(data) != run.chunks[index].checksum:
            raise DamagedStateError(
                f"Chunk {index} of run {run.number} of trace '{self.spec.name}' {found} the state of record.",
                hint=RESTORE_HINT,
            )
        try:
            return decode(data)
        except (ValueError, OSError) as problem:  # pyarrow's format errors are among them
            raise DamagedStateError(
                f"Chunk {index} of run {run.number} of trace '{self.spec.name}' cannot be decoded: {problem}",
                hint=RESTORE_HINT,
            ) from problem

    def write(self, next_number: Callable[[], int], frames: Iterable[pl.DataFrame]) -> RunInfo | None:
        """Write frames, together sorted by hash, as a run; without any row, write nothing and return None."""
        chunks: list[ChunkInfo] = []
        number = dead = 0
        for frame in cut(frames, self._chunk_size_bytes):
            number = number if chunks else next_number()
            dead += frame.height - int(frame[LIVE].sum())
            for table, data in self._encode(own_strings(frame)):
                piece = frame_of(table)  # with its own strings, for the cache
                self._store.write_chunk(self.spec.number, number, len(chunks), data)
                chunks.append(self._describe(piece, data))
                self._cache.put(chunks[-1].checksum, piece)
        return RunInfo(number, sum(chunk.rows for chunk in chunks), dead, tuple(chunks)) if chunks else None

    def _encode(self, table: pa.Table) -> Iterator[tuple[pa.Table, bytes]]:
        """Encode a table; encode it in halves if uneven or incompressible rows make the result too large."""
        data = encode(table)
        if len(data) <= self._chunk_size_bytes or table.num_rows == 1:
            yield table, data
            return
        middle = table.num_rows // 2
        yield from self._encode(table.slice(0, middle))
        yield from self._encode(table.slice(middle))

    def _describe(self, piece: pl.DataFrame, data: bytes) -> ChunkInfo:
        hashes = piece[self.spec.hash]
        return ChunkInfo(piece.height, len(data), checksum(data), int(hashes[0]), int(hashes[-1]))

    def remove(self, run: RunInfo) -> None:
        """Remove a run from the state of record and from the cache."""
        for index, chunk in enumerate(run.chunks):
            self._store.remove_chunk(self.spec.number, run.number, index)
            self._cache.discard(chunk.checksum)
