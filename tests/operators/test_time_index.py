"""A time index is a sorted list, however it is inserted into, cut and restarted; and it reads no more than is due."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablestream.operators.buffer.time_index import BEGIN, END, TimeIndex, by_time, latest
from tablestream.state.cache import NoCache
from tablestream.state.run import CHUNK_SIZE_BYTES
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tablestream.state.trace import Trace

SPEC = by_time("waiting", "_ts", {"n": pl.Int64(), "v": pl.String()}, ["n"], "n")

#: A row's time, its number among those of the time, and its value.
Row = tuple[int, int, str]
Key = tuple[int, int]


@dataclass
class Shard:
    """An index in a shard, as it is opened in each micro-batch."""

    chunk_size_bytes: int = CHUNK_SIZE_BYTES
    store: MemoryStore = field(default_factory=MemoryStore)
    marks: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Open the state."""
        options: Any = {"chunk_size_bytes": self.chunk_size_bytes}
        self.state = ShardState(self.store, NoCache(), [SPEC], "", **options)
        self.index = TimeIndex(self.trace, self.marks, "waiting")

    @property
    def trace(self) -> Trace:
        return self.state.trace("waiting")

    @property
    def fetches(self) -> int:
        return self.state.use("waiting").fetches

    def restarted(self) -> Shard:
        self.state.commit()
        return Shard(self.chunk_size_bytes, self.store.copy(), dict(self.marks))


def frame(rows: Iterable[tuple[int, int, str | None, bool]]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), ["_ts", "n", "v", "_live"], orient="row").cast(SPEC.schema)


def keys(rows: pl.DataFrame) -> list[Key]:
    return sorted(rows.select("_ts", "n").iter_rows())


def live(rows: pl.DataFrame) -> list[Row]:
    assert rows["_live"].all()
    return sorted(rows.select("_ts", "n", "v").iter_rows())


ROWS = st.dictionaries(st.tuples(st.integers(-9, 30), st.integers(0, 2)), st.sampled_from("xyz"), max_size=12)
MICRO_BATCHES = st.lists(
    st.tuples(ROWS, st.integers(-9, 30), st.integers(1, 5), st.randoms(use_true_random=False), st.booleans()),
    min_size=1,
    max_size=10,
)


@given(micro_batches=MICRO_BATCHES, chunk_size_bytes=st.sampled_from([1, 900, CHUNK_SIZE_BYTES]))
def test_an_index_is_a_sorted_list(
    micro_batches: list[tuple[dict[Key, str], int, int, Any, bool]], chunk_size_bytes: int
) -> None:
    """Due rows leave together, some rows leave early, and what comes may be earlier than all that has left."""
    shard, model = Shard(chunk_size_bytes), dict[Key, str]()
    for came, bound, count, rng, restart in micro_batches:
        in_order = sorted((*key, value) for key, value in model.items())
        due = [row for row in in_order if row[0] <= bound]
        assert live(shard.index.until(bound)) == due
        first = live(shard.index.first(count))
        assert first == in_order[: len(first)]
        assert len(first) >= min(count, len(in_order))
        early = [row for row in in_order[len(due) :] if rng.random() < 0.3]
        left = {row[:2] for row in (*due, *early)} - set(came)
        tombstones = [(*key, None, False) for key in sorted(left)]
        shard.index.update(
            frame([*((*key, value, True) for key, value in came.items()), *tombstones]), bound + 1
        )
        model = {key: value for key, value in {**model, **came}.items() if key not in left}
        assert shard.index.start <= min((time for time, _ in model), default=END)
        if restart:
            shard = shard.restarted()
    assert live(shard.index.until(END)) == sorted((*key, value) for key, value in model.items())


def full(rows: int, chunk_size_bytes: int = 10_000) -> Shard:
    """An index in which a row waits at each time from 0."""
    shard = Shard(chunk_size_bytes)
    shard.index.update(frame((time, time, f"a text of its own {time}", True) for time in range(rows)))
    return shard.restarted()


def test_only_the_chunks_that_are_due_are_read() -> None:
    shard = full(10_000)
    (run,) = shard.trace.runs
    assert len(run.chunks) > 20
    last = [chunk.max_hash for chunk in run.chunks]
    assert keys(shard.index.until(-1)) == []
    assert shard.fetches == 0
    assert len(keys(shard.index.until(last[0]))) == last[0] + 1
    assert shard.fetches == 1
    shard.index.until(last[4] + 1)
    assert shard.fetches == 1 + 6
    shard.index.first(10)
    assert shard.fetches == 7 + 2  # where they end, and what they are


@pytest.mark.parametrize("tombstones", [True, False], ids=["one by one", "all at once"])
def test_what_has_left_is_not_read_again(*, tombstones: bool) -> None:
    shard = full(10_000)
    (run,) = shard.trace.runs
    left = run.chunks[8].max_hash
    if tombstones:
        for end in range(left // 10, left + 1, left // 10):
            due = shard.index.until(end)
            shard.index.update(due.with_columns(pl.lit(value=False).alias("_live")), end + 1)
    else:
        due = shard.index.until(left)
        shard.index.update(due.with_columns(pl.lit(value=False).alias("_live")), left + 1)
    assert run in shard.trace.runs  # with the rows that have left
    shard = shard.restarted()
    due = shard.index.until(left + 10)
    assert keys(due)[-1] == (left + 10, left + 10)
    assert shard.fetches <= 1 + len(shard.trace.runs[1:])


def test_rows_that_leave_out_of_order_are_passed_over_once() -> None:
    shard = full(5_000)
    gone = shard.index.until(2_999).with_columns(pl.lit(value=False).alias("_live"))
    shard.index.update(gone)
    assert shard.index.start == 0
    assert keys(shard.index.first(1))[0] == (3_000, 3_000)
    assert shard.index.start == 3_000
    shard = shard.restarted()
    assert keys(shard.index.first(1))[0] == (3_000, 3_000)
    assert shard.fetches <= 2 * len(shard.trace.runs)


def test_the_first_rows_come_with_all_of_their_time() -> None:
    shard = Shard()
    shard.index.update(frame((number // 4, number, "x", True) for number in range(12)))
    assert len(keys(shard.index.first(5))) == 8
    assert len(keys(shard.index.first(100))) == 12


def test_the_earliest_time_is_found_in_a_row_of_each_run() -> None:
    shard = full(5_000)
    gone = shard.index.until(99).with_columns(pl.lit(value=False).alias("_live"))
    shard.index.update(gone)
    assert shard.index.bound() == 0
    shard.index.update(frame([]), over=100)
    shard = shard.restarted()
    assert shard.index.bound() == 100
    assert shard.fetches == 1
    assert Shard().index.bound() is None


def test_an_index_in_which_nothing_waits_has_no_start() -> None:
    shard = Shard()
    assert shard.index.first(1).is_empty()
    assert shard.index.start == END
    shard.index.update(frame([(5, 1, "x", True)]))
    shard.index.update(frame([(5, 1, None, False)]))
    assert shard.index.first(1).is_empty()
    shard.index.update(frame([(-7, 1, "x", True)]))
    assert shard.index.start == -7


def test_the_largest_of_no_times_is_before_all() -> None:
    none, some = pl.Series([], dtype=pl.Int64), pl.Series([3, 8])
    assert latest(None, none) == BEGIN
    assert (latest(9, none), latest(9, some), latest(None, some)) == (9, 9, 8)
