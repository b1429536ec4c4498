"""Stages that work as ever and damage what they wrote: the state that Spark then keeps is not what was written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tablestream.spark.unpacking import micro_batch_id
from tablestream.state.manifest import decode
from tablestream.state.run import RunInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tablestream.spark.store import SparkStore
    from tests.faults.followed import FollowedProcessor


def flipped(data: bytes | None) -> bytes:
    """Flip one bit in the middle."""
    assert data is not None
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :]


def _chunks(store: SparkStore) -> Iterator[tuple[int, RunInfo]]:
    """The newest run of each trace; a trace's number is its place among those of the round."""
    data = store.read_manifest()
    assert data is not None
    runs = {runs[-1].number: runs[-1] for runs in decode(data).traces.values()}
    for trace in range(20):
        for number, run in runs.items():
            if store.read_chunk(trace, number, 0) is not None:
                yield trace, run


def _remove_chunks(store: SparkStore) -> None:
    for trace, run in _chunks(store):
        store.remove_chunk(trace, run.number, 0)


def _flip_chunks(store: SparkStore) -> None:
    for trace, run in _chunks(store):
        store.write_chunk(trace, run.number, 0, flipped(store.read_chunk(trace, run.number, 0)))


def _flip_manifest(store: SparkStore) -> None:
    store.write_manifest(flipped(store.read_manifest()))


def _remove_manifest(store: SparkStore) -> None:
    store._manifest.clear()


def _remove_everything(store: SparkStore) -> None:
    store._manifest.clear()
    store._runs.clear()


#: What is done to the state of a shard, and what a reader of it is told.
DAMAGE: dict[str, tuple[Callable[[SparkStore], None], str]] = {
    "chunks removed": (_remove_chunks, r"Chunk 0 of run \d+ of trace '\S.*' is missing from the state"),
    "a bit of chunks flipped": (_flip_chunks, r"Chunk 0 of run \d+ of trace '\S.*' is not what was written"),
    "a bit of the manifest flipped": (_flip_manifest, r"The manifest in the state of record cannot be read"),
    "everything of one shard removed": (
        _remove_everything,
        r"The whole state of shard 0 of round 1 is gone|The manifest of a shard is missing",
    ),
    "everything removed": (
        _remove_everything,
        r"The whole state of shard \d+ of round 1 is gone|The manifest of a shard is missing",
    ),
    "manifest removed": (_remove_manifest, r"The manifest of a shard is missing from the state"),
}


def damage(how: str, micro_batch: int, stage: FollowedProcessor) -> None:
    """Damage the state of a shard, or of shard 0 alone, when a micro-batch is worked off.

    What was cached of it is taken away, too.

    Parameters
    ----------
    how
        Of `DAMAGE`.
    micro_batch
        The number of the micro-batch.
    stage
        What worked it off.
    """
    data = stage.store.read_manifest()
    if "one shard" in how and stage.shard != 0:
        return
    if data is not None and micro_batch_id() == micro_batch:
        DAMAGE[how][0](stage.store)
        cache = stage.worker.cache
        for run in (run for runs in decode(data).traces.values() for run in runs):
            for chunk in run.chunks:
                cache.discard(chunk.checksum)
