"""Runs stay few and rows are rewritten seldom, whatever the order of insertions."""

from __future__ import annotations

import itertools
import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablestream.state import merge as merging
from tablestream.state.cache import NoCache
from tablestream.state.merge import Piece, merge, newest_rows, runs_to_merge
from tablestream.state.run import CHUNK_SIZE_BYTES
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore
from tablestream.state.trace_spec import TraceSpec
from tests.state.tables import MANY_ROWS_HASHED, ONE_ROW_PER_KEY, SPECS, fill, frame


@pytest.mark.parametrize(
    ("rows", "merged"),
    [
        ([], 0),
        ([5], 1),
        ([10, 5], 1),
        ([9, 5], 2),
        ([30, 10, 5], 1),
        ([29, 9, 5], 2),
        ([27, 9, 5], 3),
        ([100, 1, 1], 2),
        ([1, 1000], 2),
    ],
)
def test_a_predecessor_is_merged_while_it_has_less_than_twice_the_rows(rows: list[int], merged: int) -> None:
    assert runs_to_merge(rows) == merged


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=200))
def test_runs_are_few_and_rewrites_are_few_for_rows_that_stay(inserted: list[int]) -> None:
    runs: list[int] = []
    written = 0
    for size in inserted:
        count = runs_to_merge([*runs, size])
        runs = [*runs[: len(runs) + 1 - count], sum([*runs, size][-count:])]
        written += runs[-1]
        assert all(older >= 2 * newer for older, newer in itertools.pairwise(runs))
    total = sum(inserted)
    assert len(runs) <= 1 + math.log2(total)
    assert written <= total * (1 + math.log(total, 1.5))


@given(st.lists(st.sets(st.integers(0, 99), min_size=1, max_size=40), min_size=1, max_size=100))
def test_rewrites_are_few_for_rows_that_are_replaced(inserted: list[set[int]]) -> None:
    runs: list[set[int]] = []
    written = 0
    for rows in inserted:
        count = runs_to_merge([*map(len, runs), len(rows)])
        merged = rows.union(*runs[len(runs) + 1 - count :])
        runs = [*runs[: len(runs) + 1 - count], merged]
        written += len(merged)
    total = sum(map(len, inserted))
    assert written <= total * (7 + math.log(100, 1.25))


def test_many_small_insertions_cost_what_the_policy_says() -> None:
    store = MemoryStore()
    state = ShardState(store, NoCache(), SPECS, "f00d")
    for first in range(64):
        fill(state.trace("left"), 1, first)
        assert len(state.trace("left").runs) <= 1 + math.log2(first + 1)
        state.commit()
    live = sum(run.size_bytes for run in state.trace("left").runs)
    assert sum(map(len, store.chunks.values())) == live


def pieces(*frames: pl.DataFrame) -> list[Piece]:
    return [Piece(part["_kh"][0], part["_kh"][-1], lambda part=part: part) for part in frames]  # type: ignore[misc]


def test_a_merge_takes_no_more_than_a_piece_of_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def counted(frames: list[pl.DataFrame], spec: TraceSpec) -> pl.DataFrame:
        taken.append(sum(part.height for part in frames))
        return newest_rows(frames, spec)

    monkeypatch.setattr(merging, "newest_rows", counted)
    old = frame({(f"k{n}", 0): n for n in range(1000)}).sort("_kh")
    new = frame({(f"k{n}", 0): -n for n in range(0, 1000, 2)}).sort("_kh")
    sources = [pieces(*new.iter_slices(70)), pieces(*old.iter_slices(100))]
    merged = pl.concat(list(merge(sources, ONE_ROW_PER_KEY, drop_tombstones=False)))
    assert merged["_kh"].is_sorted()
    assert max(taken) <= 170
    expected = {f"k{n}": n if n % 2 else -n for n in range(1000)}
    assert dict(zip(merged["_k0"], merged["_ts"], strict=True)) == expected


@pytest.mark.parametrize("spec", [ONE_ROW_PER_KEY, MANY_ROWS_HASHED], ids=lambda spec: spec.name)
def test_hashes_alone_decide_when_they_do_not_collide(
    spec: TraceSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = [frame({("a", 0): 2, ("b", 0): None}), frame({("a", 0): 1, ("c", 0): 1})]
    with monkeypatch.context() as patched:
        patched.setattr(merging, "_first_by_columns", None)  # not called
        merged = newest_rows(frames, spec)
    assert sorted(merged.select("_k0", "_ts").rows()) == [("a", 2), ("b", None), ("c", 1)]
    assert merged["_kh"].is_sorted()


def test_different_rows_of_one_hash_stay_two_rows() -> None:
    frames = [frame({("a", 0): 3}, "constant"), frame({("b", 0): 2, ("a", 0): 1}, "constant")]
    merged = newest_rows(frames, ONE_ROW_PER_KEY)
    assert sorted(merged.select("_k0", "_ts").rows()) == [("a", 3), ("b", 2)]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_the_newest_of_many_versions_of_many_rows_wins(spec: TraceSpec) -> None:
    frames = [frame({(f"k{n}", 0): version for n in range(2000)}) for version in (5, 4, 3, 2, 1)]
    merged = newest_rows(frames, spec)
    assert merged.height == 2000
    assert set(merged["_ts"]) == {5}
    assert merged["_kh"].is_sorted()


def test_a_chunk_holds_at_most_sixteen_mebibytes() -> None:
    assert CHUNK_SIZE_BYTES == 16 * 1024**2
