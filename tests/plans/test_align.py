"""Records that wait for each other: the order hangs on no cut."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tablestream.plan.line import Align
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


@pytest.mark.parametrize("name", plans())
@pytest.mark.parametrize(
    "compat", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["default", "compat"]
)
def test_no_output_hangs_on_the_cuts(name: str, *, compat: bool) -> None:
    sources, node = plans()[name]
    for seed in range(2):
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
