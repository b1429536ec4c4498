"""A trace is a dictionary, however it is inserted into, cut, restarted, cached and damaged."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tablestream.errors import DamagedStateError, PlanChangedError
from tablestream.state.cache import ChunkCache, MemoryCache, NoCache, RunCache
from tablestream.state.run import CHUNK_SIZE_BYTES, RunStorage
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore
from tablestream.state.trace import Found
from tablestream.state.trace_spec import TraceSpec
from tests.state import tables
from tests.state.tables import HASHES, ONE_ROW_PER_KEY, SCHEMA, SPECS, fill, frame, keys, versions

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYS = [None, *"abcdefgh"]
DAMAGES = ("none", "delete", "truncate", "empty", "flip", "delete directory", "swap", "other process")


def open_state(store: MemoryStore, cache: ChunkCache | None = None, **options: Any) -> ShardState:
    return ShardState(store, cache or NoCache(), SPECS, "f00d", "a plan", **options)


def damage(directory: Path, how: str, place: int) -> None:
    """Do to the cache what disks and users do."""
    files = sorted(directory.glob("*.chunk"))
    if how == "delete directory":
        shutil.rmtree(directory, ignore_errors=True)  # it may be gone already
    for file in files if how in {"delete", "truncate", "empty", "flip"} else ():
        data = bytearray(file.read_bytes())
        if not data:
            continue
        if how == "delete":
            file.unlink()
        elif how == "truncate":
            file.write_bytes(data[: place % len(data)])
        elif how == "empty":
            file.write_bytes(b"")
        else:
            data[place % len(data)] ^= 1 << place % 8
            file.write_bytes(data)
    if how == "swap" and len(files) > 1:
        files[0].replace(files[1])


def whole(found: Found) -> pl.DataFrame:
    """Gather the columns that `Trace.find` leaves where they are."""
    return pl.DataFrame([found.column(name).gather(found.rows["_row"]) for name in SCHEMA])


rows = st.dictionaries(
    st.tuples(st.sampled_from(KEYS), st.integers(0, 2)), st.one_of(st.none(), st.integers(0, 99)), max_size=9
)
steps = st.lists(
    st.tuples(
        rows,
        st.sets(st.sampled_from([*KEYS, "absent"])),
        st.booleans(),
        st.sampled_from(DAMAGES),
        st.integers(0, 10_000),
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
@pytest.mark.parametrize("hashed", HASHES)
@settings(max_examples=settings().max_examples // 4)  # of each of the nine
@given(steps=steps, chunk_size_bytes=st.sampled_from([1, 1500, CHUNK_SIZE_BYTES]))
def test_a_trace_is_a_dictionary(
    spec: TraceSpec, hashed: str, steps: list[Any], chunk_size_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        cache = RunCache(Path(directory) / "cache")
        store, model = MemoryStore(), dict[tables.Row, int]()
        state = open_state(store, cache, chunk_size_bytes=chunk_size_bytes)
        for changes, asked, restart, how, place in steps:
            if not spec.unique:
                changes = {(key, 0): version for (key, _), version in changes.items()}  # noqa: PLW2901
            trace = state.trace(spec.name)
            trace.insert(frame(changes, hashed))
            model = {row: version for row, version in {**model, **changes}.items() if version is not None}
            damage(Path(directory) / "cache", how, place)
            if how == "other process":
                cache = RunCache(Path(directory) / "cache")
            expected = {row: version for row, version in model.items() if row[0] in asked}
            assert versions(trace.lookup(keys(sorted(asked, key=str), hashed))) == expected
            assert versions(whole(trace.find(keys(sorted(asked, key=str), hashed)))) == expected
            assert versions(trace.scan()) == model
            if restart:
                state.commit()
                store = store.copy()
                state = open_state(store, cache, chunk_size_bytes=chunk_size_bytes)


def many(count: int) -> Iterator[tuple[tables.Row, int]]:
    yield from (((f"k{n % 50}", n), n) for n in range(count))


@pytest.mark.parametrize("chunk_size_bytes", [3000, CHUNK_SIZE_BYTES])
@pytest.mark.parametrize("asked", [1, 49, 200], ids=["search", "some", "hash join"])
@pytest.mark.parametrize("spec", SPECS[1:], ids=lambda spec: spec.name)
def test_a_key_with_many_rows_is_found_whole(spec: TraceSpec, asked: int, chunk_size_bytes: int) -> None:
    state = open_state(MemoryStore(), chunk_size_bytes=chunk_size_bytes)
    trace = state.trace(spec.name)
    trace.insert(frame(dict(many(2000))))
    trace.insert(frame({("k0", 0): None, ("k1", 1): 7}))
    assert len(trace.runs) == 2
    expected = {**dict(many(2000)), ("k1", 1): 7}
    del expected["k0", 0]
    names = [f"k{n}" for n in range(asked)]
    found = versions(trace.lookup(keys(names)))
    assert found == {row: version for row, version in expected.items() if row[0] in names}


def test_equal_hashes_are_not_equal_keys() -> None:
    trace = open_state(MemoryStore()).trace("left")
    trace.insert(frame({("a", 0): 1}, "constant"))
    assert versions(trace.lookup(keys(["b"], "constant"))) == {}


def test_an_insert_of_no_rows_is_nothing() -> None:
    store = MemoryStore()
    state = open_state(store)
    state.trace("left").insert(frame({}))
    state.commit()
    assert (store.writes, store.manifest, state.trace("left").runs) == (0, None, ())


def test_a_tombstone_of_nothing_is_nothing() -> None:
    store = MemoryStore()
    state = open_state(store)
    state.trace("left").insert(frame({("a", 0): None}))
    state.commit()
    assert (store.writes, state.trace("left").runs) == (0, ())


def test_tombstones_stay_while_an_older_run_may_hold_the_row_and_go_with_the_oldest_run() -> None:
    state = open_state(MemoryStore())
    trace = state.trace("left")
    fill(trace, 8)
    trace.insert(frame({("k0", 0): None, ("x", 0): 1}))
    assert [(run.rows, run.dead) for run in trace.runs] == [(8, 0), (2, 1)]
    trace.insert(frame({(f"k{n}", 0): None for n in range(1, 4)}))
    assert [(run.rows, run.dead) for run in trace.runs] == [(5, 0)]


def test_columns_of_nulls_get_their_type() -> None:
    trace = open_state(MemoryStore()).trace("left")
    trace.insert(frame({("a", 0): 1, (None, 0): 2}))
    untyped = pl.DataFrame({"v": [None], "_live": [False], "_ts": [None], "_u0": [None], "_uh": [None]})
    trace.insert(
        untyped.with_columns(frame({(None, 0): 0}).select("_kh", "_k0")).select(reversed(list(SCHEMA)))
    )
    assert versions(trace.scan()) == {("a", 0): 1}
    null_key = pl.DataFrame({"_k0": [None], "_kh": frame({(None, 0): 0})["_kh"]})
    assert versions(trace.lookup(null_key)) == {}


def test_keys_are_equal_as_spark_has_it() -> None:
    nan, zero = float("nan"), 0.0
    key = {"f": pl.Float64(), "s": pl.Struct({"a": pl.List(pl.Int64())}), "b": pl.Binary()}
    schema = pl.Schema({"_kh": pl.Int64(), **key, "_live": pl.Boolean()})
    stored = [
        (1, nan, {"a": [1, None]}, b"", True),
        (2, -zero, {"a": None}, b"\x00", True),
        (3, None, None, None, True),
    ]
    state = ShardState(MemoryStore(), NoCache(), [TraceSpec("t", schema, key=tuple(key))], "f00d")
    state.trace("t").insert(pl.DataFrame(stored, schema=schema, orient="row"))
    asked = [
        (1, nan, {"a": [1, None]}, b""),
        (2, zero, {"a": None}, b"\x00"),
        (3, None, None, None),
        (4, None, {"a": None}, None),
    ]
    for same_hash in (False, True):  # two keys of one hash take another way
        again = [*asked, (1, 1.0, None, b"")] if same_hash else asked
        wanted = pl.DataFrame(again, schema=pl.Schema({"_kh": pl.Int64(), **key}), orient="row")
        assert sorted(state.trace("t").lookup(wanted)["_kh"]) == [1, 2, 3]


def test_results_do_not_hang_on_cached_files(tmp_path: Path) -> None:
    cache = RunCache(tmp_path)
    trace = open_state(MemoryStore(), cache).trace("left")
    fill(trace, 2000)
    found = trace.lookup(keys([f"k{n}" for n in range(30)]))
    for file in tmp_path.iterdir():
        file.write_bytes(b"")  # would end the process, were the strings still there
    assert len(versions(found)) == 30
    # Arrow's writers write whole buffers: a result that dragged the run along would be as large as the run.
    assert found.to_arrow(compat_level=pl.CompatLevel.newest()).get_total_buffer_size() < 10_000


def test_a_commit_writes_once_and_removes_what_was_merged() -> None:
    store = MemoryStore()
    state = open_state(store)
    fill(state.trace("left"), 4)
    state.commit()
    assert (store.writes, list(store.chunks)) == (4, [(0, 0, 0)])  # chunk, manifest, plan, tables
    fill(state.trace("left"), 3, first=4)
    assert list(store.chunks) == [(0, 0, 0), (0, 1, 0)]
    state.commit()
    assert (store.writes, list(store.chunks)) == (6, [(0, 1, 0)])
    state.commit()
    assert store.writes == 6


def test_a_commit_removes_what_was_merged_from_the_cache_too(tmp_path: Path) -> None:
    state = open_state(MemoryStore(), RunCache(tmp_path))
    for first in (0, 4):
        fill(state.trace("left"), 4, first)
        state.commit()
    (run,) = state.trace("left").runs
    assert [file.stem for file in tmp_path.iterdir()] == [chunk.checksum for chunk in run.chunks]


def test_looking_changes_nothing_and_asking_for_nothing_reads_nothing() -> None:
    store = MemoryStore()
    open_state(store).commit()
    assert store.reads == 0
    state = open_state(store)
    assert versions(state.trace("left").lookup(keys(["a"]))) == {}
    state.commit()
    assert (store.reads, store.writes) == (2, 0)  # the manifest, and the plan that would tell of a lost one


def test_a_lookup_in_a_run_of_many_chunks_reads_those_that_can_hold_the_key() -> None:
    store = MemoryStore()
    state = open_state(store, chunk_size_bytes=3000)
    fill(state.trace("left"), 500)
    assert len(state.trace("left").runs[0].chunks) > 9
    before = store.reads
    found = state.trace("left").lookup(keys(["k7"]))
    assert len(versions(found)) == 1
    assert store.reads - before <= 2
    before = store.reads
    (hashed,) = set(found["_kh"])
    rows = pl.concat(state.trace("left").frames(hashed))
    assert "k7" in rows["_k0"]
    assert set(rows["_kh"]) == {hashed}
    assert store.reads - before <= 2


@given(
    inserts=st.lists(st.dictionaries(st.integers(0, 40), st.booleans(), max_size=12), min_size=1, max_size=6),
    ranges=st.lists(st.tuples(st.integers(-2, 42), st.integers(-1, 9)), max_size=4),
    chunk_size_bytes=st.sampled_from([1, 1500, CHUNK_SIZE_BYTES]),
)
def test_rows_are_found_between_hashes(
    inserts: list[dict[int, bool]], ranges: list[tuple[int, int]], chunk_size_bytes: int
) -> None:
    """With hashes that rise with the keys, of which two share each; a range may be empty, or overlap another."""
    trace = open_state(MemoryStore(), chunk_size_bytes=chunk_size_bytes).trace("hashed")
    there: dict[tables.Row, int] = {}
    for version, changed in enumerate(inserts):
        rows: dict[tables.Row, int | None] = {
            (f"{key:02}", 0): version if live else None for key, live in changed.items()
        }
        there = {row: kept for row, kept in {**there, **rows}.items() if kept is not None}
        hashes = [int(str(key)) // 2 for key, _ in rows]
        trace.insert(frame(rows).with_columns(pl.Series("_kh", hashes, dtype=pl.Int64)))
    low = np.array([begin for begin, _ in ranges], dtype=np.int64)
    high = low + np.array([length for _, length in ranges], dtype=np.int64)
    wanted = {
        row: version
        for row, version in there.items()
        if any(begin <= int(str(row[0])) // 2 <= begin + length for begin, length in ranges)
    }
    assert versions(whole(trace.find_between(low, high))) == wanted


def test_what_lies_between_hashes_is_read_alone() -> None:
    store = MemoryStore()
    trace = open_state(store, chunk_size_bytes=3000).trace("left")
    fill(trace, 500)
    chunks = trace.runs[0].chunks
    before = store.reads
    found = trace.find_between(np.array([chunks[4].min_hash]), np.array([chunks[4].max_hash]))
    assert (found.rows.height, store.reads - before) == (
        chunks[4].rows,
        2,
    )  # found, and then kept for its columns


def test_a_null_hash_has_no_rows_and_hides_none() -> None:
    """A record that points at nothing asks with such a hash."""
    trace = open_state(MemoryStore(), chunk_size_bytes=3000).trace("left")
    fill(trace, 500)
    nothing = pl.DataFrame({"_kh": [None], "_k0": [None]}, keys([]).schema)
    asked = pl.concat([keys(f"k{n}" for n in range(0, 500, 7)), nothing])
    assert versions(trace.lookup(asked)) == versions(trace.lookup(asked[:-1]))
    assert len(versions(trace.lookup(asked))) == 72
    assert trace.lookup(nothing).is_empty()
    assert trace.find(nothing).rows.is_empty()
    store = MemoryStore()
    trace = open_state(store).trace("left")
    fill(trace, 8)
    assert trace.lookup(nothing).is_empty()
    assert store.reads == 2  # the manifest, and the plan that would tell of a lost one: no chunk


def test_a_retried_micro_batch_writes_the_same_state() -> None:
    store = MemoryStore()
    state = open_state(store)
    fill(state.trace("left"), 4)
    state.commit()
    attempts = [store.copy(), store.copy()]
    for attempt in attempts:
        state = open_state(attempt)
        fill(state.trace("left"), 3, first=2)
        state.set_clock("left", 9)
        state.commit()
    assert (attempts[0].manifest, attempts[0].chunks) == (attempts[1].manifest, attempts[1].chunks)


def test_run_numbers_are_never_used_again() -> None:
    store = MemoryStore()
    numbers = []
    for _ in range(4):
        state = open_state(store)
        state.trace("left").insert(frame({("a", 0): 1}))
        state.commit()
        numbers.append(state.trace("left").runs[-1].number)
    assert numbers == [0, 1, 2, 3]


def test_clocks_are_kept() -> None:
    store = MemoryStore()
    state = open_state(store)
    assert state.clock("left") is None
    state.set_clock("left", -5)
    state.commit()
    assert open_state(store).clock("left") == -5


def test_another_plan_is_refused_with_what_changed() -> None:
    store = MemoryStore()
    state = ShardState(store, NoCache(), SPECS, "f00d", "source a\njoin a b inner")
    fill(state.trace("left"), 1)
    state.commit()
    other = ShardState(store, NoCache(), SPECS, "beef", "source a\njoin a b left")
    for _ in range(2):
        with pytest.raises(PlanChangedError) as caught:
            other.trace("left")
        for part in ("-join a b inner\n+join a b left", "new checkpoint"):
            assert part in str(caught.value)
    assert store.copy().manifest == store.manifest


@pytest.mark.parametrize(
    ("how", "words"), [("missing", "is missing from"), ("changed", "is not what was written to")]
)
def test_damage_to_the_state_of_record_names_trace_run_and_way_out(how: str, words: str) -> None:
    store = MemoryStore()
    state = open_state(store)
    fill(state.trace("left"), 4)
    state.commit()
    if how == "missing":
        store.chunks.clear()
    else:
        store.chunks[0, 0, 0] = store.chunks[0, 0, 0][:-1] + b"x"
    with pytest.raises(DamagedStateError) as caught:
        open_state(store).trace("left").lookup(keys(["k0"]))
    for part in (f"Chunk 0 of run 0 of trace 'left' {words} the state of record", "complete checkpoint"):
        assert part in str(caught.value)


def test_a_manifest_that_is_gone_is_no_new_shard() -> None:
    store = MemoryStore()
    state = open_state(store)
    fill(state.trace("left"), 4)
    state.commit()
    store.manifest = None
    with pytest.raises(DamagedStateError, match=r"manifest of a shard is missing.*complete checkpoint"):
        open_state(store).trace("left")


def test_a_chunk_with_other_columns_is_refused() -> None:
    store = MemoryStore()
    state = open_state(store)
    fill(state.trace("left"), 4)
    run = state.trace("left").runs[0]
    narrow = TraceSpec(
        "left", pl.Schema({"_kh": pl.Int64, "_k0": pl.Int64, "_live": pl.Boolean}), key=("_k0",)
    )
    with pytest.raises(DamagedStateError, match="Run 0 of trace 'left' has the columns"):
        RunStorage(narrow, store, MemoryCache()).read(run, 0)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"key": ("absent",)}, "absent"),
        ({"key": ("_k0",), "unique": ("gone",)}, "gone"),
        ({"key": ()}, "needs a key"),
        ({"key": ("_k0",), "hash": "_k0"}, "_k0"),
        ({"key": ("_k0",), "unique_hash": "v"}, "v"),
    ],
)
def test_a_spec_without_its_columns_cannot_be_made(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        TraceSpec("left", SCHEMA, **options)


def test_traces_of_a_shard_have_names_and_numbers_of_their_own() -> None:
    with pytest.raises(ValueError, match="share a name or a number"):
        ShardState(MemoryStore(), NoCache(), [ONE_ROW_PER_KEY, ONE_ROW_PER_KEY], "f00d")
