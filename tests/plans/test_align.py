"""Records that wait for each other: the order hangs on no cut."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tablestream.operators.cells import column
from tablestream.operators.operator import Context, keyed_changes
from tablestream.planner.physical_plan import Align
from tablestream.runtime.alignment import TIMED, Alignment, Held, _indexed, progress_of
from tablestream.runtime.ports import EVERY_SHARD, Port
from tablestream.state.cache import NoCache
from tablestream.state.changes import KEY_HASH, LIVE, PARTITION, POSITION, TIME, TS
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore
from tablestream.state.trace_spec import numbered_traces
from tests.marks import quick_each, quick_first
from tests.plans.engine import Engine, Output, Step
from tests.plans.logs import random_cuts, random_log
from tests.plans.tables import (
    Record,
    foreign_key_join,
    grouped,
    key_join,
    looked_up,
    materialized,
    merged,
    source,
    stream,
    to_table,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tablestream.topology.nodes import Node, Source

LANES = Align()


def plans() -> dict[str, tuple[list[Source], Node]]:
    left, right, records = source("L"), source("R"), stream("S")
    tables = [left, right]
    return {
        "source": ([left], left),
        "join": (tables, key_join(left, right, "outer")),
        "foreign": (tables, grouped(foreign_key_join(left, right, "left"))),
        "self": ([left], foreign_key_join(left, left, "left")),
        "as of": ([records, right], looked_up(records, materialized(right, 5), "left")),
        "merged": ([records, right], to_table(merged(records, looked_up(records, right, "left")))),
        "copied": (tables, foreign_key_join(left, right, "left", copied=True)),
    }


@pytest.mark.parametrize("name", quick_each(plans(), 2))
@pytest.mark.parametrize("seed", quick_first(range(2)))
@pytest.mark.parametrize("compat", quick_first([False, True]), ids=["default", "compat"])
def test_no_output_hangs_on_the_cuts(name: str, seed: int, *, compat: bool) -> None:
    sources, node = plans()[name]
    log = random_log(sources, seed, 80)
    found = []
    for pieces in (1, 3, 12):
        engine, told = Engine([Output(node)], compat, align=LANES), list[Step]()
        for piece in random_cuts(log, seed + pieces, pieces):
            told += engine.steps(piece)[0]
            engine = engine.restarted()
        found.append(told)
    assert found[0]
    assert found[0] == found[1] == found[2]


def test_records_go_in_the_order_of_running_maxima_when_all_have_passed() -> None:
    left, right = source("L"), source("R")
    engine = Engine([Output(key_join(left, right, "outer"))], shards=3, align=LANES)

    def told(*log: Record) -> list[int]:
        return [step.number for step in engine.steps(log)[0]]

    assert told(Record(left, "a", "1", 5), Record(left, "b", "2", 3), Record(left, "c", "3", 8)) == []
    assert told(Record(right, "a", "4", 6)) == [1, 2]  # 2 has the time of 1, and 5 is before 6
    engine = engine.restarted()
    assert told(Record(right, "a", "5", 1)) == []  # it waits at 6
    assert told(Record(left, "d", "6", 7)) == []  # 8
    assert told(Record(right, "a", "7", 9)) == [4, 5]
    assert told(Record(left, "d", "8", 20)) == [3, 6]


def test_who_is_silent_is_not_waited_for() -> None:
    left, right = source("L"), source("R")
    engine = Engine([Output(key_join(left, right, "outer"))], align=Align(idle_us=10))
    first = [Record(left, "a", "1", 5), Record(right, "b", "2", 1)]
    assert engine.run(first, now=100) == [[]]
    assert engine.run([Record(left, "a", "3", 50)], now=110) == [[]]
    engine = engine.restarted()
    assert [step.number for step in engine.steps([Record(left, "a", "4", 60)], now=111)[0]] == [2, 1, 3]
    # What it tells now is late, and goes at once.
    assert [step.number for step in engine.steps([Record(right, "b", "5", 2)], now=112)[0]] == []
    assert [step.number for step in engine.steps([Record(right, "b", "6", 55)], now=113)[0]] == [5]


def test_what_waits_stays_in_the_state() -> None:
    left, right = source("L"), source("R")
    engine = Engine([Output(left), Output(right)], align=LANES)
    rng = random.Random(0)
    log = [Record(rng.choice((left, right)), "k", f"{number}", number) for number in range(60)]
    told: list[Step] = []
    for piece in random_cuts(log, 0, 9):
        one, other = engine.steps(piece)
        told += sorted(one + other)
        engine = engine.restarted()
    assert [step.number for step in told] == list(range(1, len(told) + 1))
    assert 0 < len(log) - len(told) < 10


def test_what_is_copied_goes_to_every_shard_once() -> None:
    left, right = source("L"), source("R")
    node = foreign_key_join(left, right, "left", copied=True)
    log = [Record(left, f"k{number}", "a|r", 1) for number in range(9)]
    log += [Record(right, "r", "x", 2), Record(left, "k0", "b|r", 9), Record(right, "s", "y", 9)]
    (told,) = Engine([Output(node)], shards=3, align=LANES).run(log)
    (wanted,) = Engine([Output(node)], shards=3).run(log[:-2])
    assert sorted(told) == sorted(wanted)


def test_streams_that_are_merged_wait_each_for_itself() -> None:
    one, other = stream("A"), stream("B")
    engine = Engine([Output(to_table(merged(one, other)))], align=LANES)
    log = [
        Record(one, "k", "1", 5),
        Record(other, "k", "2", 3),
        Record(one, "k", "3", 9),
        Record(other, "k", "4", 9),
    ]
    assert [step.number for step in engine.steps(log)[0]] == [2, 1]


def test_an_order_by_times_beyond_the_years_of_python_goes_on() -> None:
    end, kind = 253402318799_000_000, pl.Datetime("us", "UTC")  # the end of the year 9999 in New York
    told, port = Port(1, 0, 1, "*", "told"), Port(2, 0, 2, "_kh", "rows")
    held = Held(
        3, port, pl.Schema({"_kh": pl.Int64(), "_live": pl.Boolean(), "v": pl.String()}), ordered=True
    )
    alignment, store = Alignment(told, (held,), 1, kind, None), MemoryStore()
    gone: list[int] = []
    marks: dict[str, int] = {}
    for time in (end, end + 1):
        place = {"_t": column([time], kind), "_p": ["p"], "_o": [1], "_h0": [0]}
        heard = pl.DataFrame({**place, "_lane": ["l"], "_heard": [1], "_timed": [True]})
        message = pl.DataFrame({**place, "_kh": [1], "_live": [True], "v": ["row"]})
        state = ShardState(store, NoCache(), numbered_traces(alignment.traces), "plan")
        context = Context(state.trace, Counter(), marks=marks)
        gone += [rows.height for _, rows in alignment.release({1: [heard], 3: [message]}, context)]
        state.commit()
    assert gone == [1]


#: Times of an order_by by their dtype, each rising with a number.
TIMES: list[tuple[pl.DataType, Callable[[int], Any]]] = [
    (pl.Int64(), lambda number: number - 20),
    (pl.Int8(), lambda number: number - 20),
    (pl.Float64(), lambda number: (number - 20) / 4),
    (pl.Decimal(38, 18), lambda number: Decimal(number - 20) / 4),
    (pl.Date(), lambda number: date(1969, 12, 20) + timedelta(days=number)),
    (
        pl.Datetime("us", "UTC"),
        lambda number: datetime(1969, 12, 31, 23, 59, 40, tzinfo=UTC) + timedelta(seconds=number),
    ),
    (pl.String(), lambda number: f"{number:04d}"),
    (pl.Boolean(), lambda number: number > 20),
]
of_each_kind = pytest.mark.parametrize(("kind", "time"), TIMES, ids=[str(kind) for kind, _ in TIMES])


def numbered(records: list[int], times: pl.Series) -> pl.DataFrame:
    """Messages whose key and value are a number."""
    number, zero = pl.Series("_k0", records, dtype=pl.Int64), pl.lit(0, pl.Int64)
    return pl.DataFrame([times.alias(TIME), number]).with_columns(
        pl.lit("a").alias(PARTITION), number.alias(POSITION), zero.alias("_h0"), zero.alias(KEY_HASH),
        number.alias(TS), pl.lit(value=True).alias(LIVE), number.alias("c0").to_frame().to_struct("v"),
    )  # fmt: skip


@of_each_kind
def test_records_wait_in_the_order_of_any_plain_type(kind: pl.DataType, time: Callable[[int], Any]) -> None:
    """Two lanes, of which each may be the one behind; a lane's records may be older than what it had told."""
    rng, target = random.Random(5), Port(9, 9, 2, KEY_HASH, "target")
    held = Held(
        1, target, keyed_changes(pl.Schema({"_k0": pl.Int64()}), pl.Struct({"c0": pl.Int64()})), ordered=True
    )
    alignment = Alignment(Port(2, 0, 1, EVERY_SHARD, "told"), (held,), 2, kind, None)
    store, marks = MemoryStore(), dict[str, int]()
    waiting, lanes = Counter[int](), {"a": 0, "b": 0}
    for step in range(40):
        records = [rng.randint(0, step) for _ in range(rng.randrange(4))]
        for lane in rng.choice([["a"], ["b"], ["a", "b"]]):
            lanes[lane] = rng.randint(lanes[lane], step)
        places = pl.DataFrame(
            {TIME: [time(at) for at in lanes.values()], PARTITION: list(lanes), POSITION: [0, 0]}
        ).cast({TIME: kind})
        messages = numbered(records, pl.Series([time(at) for at in records], dtype=kind))
        state = ShardState(store, NoCache(), numbered_traces(alignment.traces), "", chunk_size_bytes=2000)
        told = progress_of(places, pl.col(PARTITION), 0)
        context = Context(state.trace, Counter(), marks=marks)
        gone = [frame["_k0"] for _, frame in alignment.release({1: [messages], 2: [told]}, context)]
        state.commit()
        waiting.update(records)
        behind = min(time(at) for at in lanes.values())
        due = Counter({number: count for number, count in waiting.items() if time(number) < behind})
        assert Counter(number for frame in gone for number in frame) == due
        waiting -= due
    assert waiting.total() < 40


def test_a_lane_whose_records_have_no_time_of_their_own_is_silent() -> None:
    """Such as one in which only tombstones of a database's table arrive: it would be waited for without end."""
    held = Held(
        1,
        Port(9, 9, 2, KEY_HASH, "target"),
        keyed_changes(pl.Schema({"_k0": pl.Int64()}), pl.Struct({"c0": pl.Int64()})),
        ordered=False,
    )
    alignment = Alignment(Port(2, 0, 1, EVERY_SHARD, "told"), (held,), 2, pl.Int64(), 10)
    store, marks = MemoryStore(), dict[str, int]()

    def released(now: int, timeless: int, *, has_time: bool = False) -> list[int]:
        """Of a record in "a" that is as new as the clock, and one in "b" at a time."""
        places = pl.DataFrame({TIME: [now, timeless], PARTITION: ["a", "b"], POSITION: [0, 0]})
        told = progress_of(places.with_columns(pl.Series(TIMED, [True, has_time])), pl.col(PARTITION), now)
        state = ShardState(store, NoCache(), numbered_traces(alignment.traces), "")
        context = Context(state.trace, Counter(), marks=marks)
        messages = numbered([now], pl.Series([now], dtype=pl.Int64))
        gone = [frame["_k0"] for _, frame in alignment.release({1: [messages], 2: [told]}, context)]
        state.commit()
        return sorted(number for frame in gone for number in frame)

    assert released(100, 0) == released(110, 0) == []  # "b" is waited for
    assert released(111, 0) == [100, 110]
    assert released(112, 106, has_time=True) == []
    assert released(122, 106) == []
    assert released(123, 106) == [111, 112, 122]


@of_each_kind
def test_where_a_time_rises_its_place_in_the_index_does_not_fall(
    kind: pl.DataType, time: Callable[[int], Any]
) -> None:
    times = pl.DataFrame({TIME: pl.Series([time(number) for number in range(60)], dtype=kind)})
    assert times.select(_indexed(pl.col(TIME), kind)).to_series().is_sorted()


def test_numbers_without_bounds_have_a_place_in_the_index() -> None:
    numbers = pl.Series([float("-inf"), -1e300, -1.0, 0.5, 1e300, float("inf"), float("nan")])
    places = pl.DataFrame({TIME: numbers}).select(_indexed(pl.col(TIME), pl.Float64())).to_series()
    assert places.is_sorted()
    assert not places.has_nulls()
