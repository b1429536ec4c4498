"""A shard's manifest and chunks are held to each other: what a commit left is whole, each kind of damage is told."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tablestream.state import manifest as manifests
from tablestream.state.cache import NoCache
from tablestream.state.checks import facts_of
from tablestream.state.sealed import seal
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore
from tests.state import tables
from tests.state.tables import SPECS, fill

if TYPE_CHECKING:
    from collections.abc import Callable

    from tablestream.state.manifest import Manifest
    from tablestream.state.run import ChunkInfo, RunInfo


@pytest.fixture
def store() -> MemoryStore:
    """A shard with runs of several chunks in both traces."""
    store = MemoryStore()
    for rows in (500, 40):
        state = ShardState(store, NoCache(), SPECS, "f00d", chunk_size_bytes=3000)
        for spec in SPECS:
            fill(state.trace(spec.name), rows)
        state.commit()
    return store


def faults(store: MemoryStore, manifest: Manifest | None = None) -> list[tuple[str, str]]:
    return [(one.trace, one.what) for one in tables.faults(store, manifest)]


def changed(store: MemoryStore, change: Callable[[RunInfo], RunInfo]) -> Manifest:
    """A manifest that says something else of the first run of a trace."""
    assert store.manifest is not None
    found = manifests.decode(store.manifest)
    first, *others = found.runs("left")
    return found.with_runs("left", (change(first), *others))


def with_chunk(change: Callable[[ChunkInfo], ChunkInfo]) -> Callable[[RunInfo], RunInfo]:
    return lambda run: replace(run, chunks=(run.chunks[0], change(run.chunks[1]), *run.chunks[2:]))


def test_what_was_committed_is_whole(store: MemoryStore) -> None:
    assert faults(store) == []


def test_a_chunk_is_missing_or_another_one(store: MemoryStore) -> None:
    place = next(place for place in store.chunks if place[0] == SPECS[0].number and place[2] == 1)
    data = store.chunks.pop(place)
    name = f"chunk 1 of run {place[1]}"
    assert faults(store) == [("left", f"{name} is missing")]
    for number in (0, len(data) // 2, len(data) - 1):
        store.chunks[place] = data[:number] + bytes([data[number] ^ 4]) + data[number + 1 :]
        assert faults(store) == [("left", f"{name} is not what was written: its checksum differs")]
    assert facts_of(0, 0, 0, data[: len(data) // 2]).problem


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (with_chunk(lambda one: replace(one, size_bytes=one.size_bytes + 1)), "bytes, and the manifest says"),
        (with_chunk(lambda one: replace(one, max_hash=one.max_hash - 1)), "is not sorted by a hash from"),
        (lambda run: replace(run, rows=run.rows + 1), "rows in its chunks, and the manifest says"),
        (lambda run: replace(run, dead=run.dead + 1), "tombstones, and the manifest says"),
        (lambda run: replace(run, number=run.number + 1000), "are not different ones below"),
    ],
)
def test_a_manifest_that_says_something_else_is_told(
    store: MemoryStore, change: Callable[[RunInfo], RunInfo], why: str
) -> None:
    assert any(why in what for _, what in faults(store, changed(store, change)))


def test_runs_are_sorted_across_their_chunks(store: MemoryStore) -> None:
    assert store.manifest is not None
    first = manifests.decode(store.manifest).runs("left")[0]
    turned = changed(store, lambda run: replace(run, chunks=run.chunks[::-1]))
    assert ("left", f"run {first.number} is not sorted: the hashes of its chunks overlap") in faults(
        store, turned
    )


def test_the_texts_of_a_shard_have_checksums_too() -> None:
    assert not facts_of(-1, 0, 0, seal("a plan").encode()).problem
    assert "was altered" in facts_of(-1, 0, 0, seal("a plan").encode() + b" ").problem
