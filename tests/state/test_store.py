"""The memory store: what the operators' tests stand on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tablestream.state.store import MemoryStore

if TYPE_CHECKING:
    from tablestream.state.store import StateStore


def test_it_keeps_what_a_state_of_record_keeps() -> None:
    store: StateStore = MemoryStore()
    assert (store.read_manifest(), store.read_plan(), store.read_chunk(0, 0, 0)) == (None, None, None)
    store.write_manifest(b"m")
    store.write_plan("p")
    store.write_chunk(1, 2, 3, b"c")
    assert (store.read_manifest(), store.read_plan(), store.read_chunk(1, 2, 3)) == (b"m", "p", b"c")
    store.remove_chunk(1, 2, 3)
    store.remove_chunk(1, 2, 3)
    assert store.read_chunk(1, 2, 3) is None


def test_it_counts_calls_and_bytes() -> None:
    store = MemoryStore()
    store.write_manifest(b"four")
    store.write_plan("plan")
    store.write_chunk(0, 0, 0, b"chunk")
    store.read_chunk(0, 0, 0)
    store.read_chunk(0, 0, 1)
    store.read_manifest()
    store.read_plan()
    store.remove_chunk(0, 0, 0)
    assert (store.writes, store.written_bytes, store.reads, store.read_bytes, store.removals) == (
        3,
        9,
        4,
        9,
        1,
    )


def test_a_copy_is_a_checkpoint() -> None:
    store = MemoryStore()
    store.write_manifest(b"old")
    store.write_chunk(0, 0, 0, b"old")
    checkpoint = store.copy()
    store.write_manifest(b"new")
    store.write_chunk(0, 0, 0, b"new")
    store.write_chunk(0, 1, 0, b"new")
    assert (checkpoint.manifest, checkpoint.chunks, checkpoint.writes) == (b"old", {(0, 0, 0): b"old"}, 0)
