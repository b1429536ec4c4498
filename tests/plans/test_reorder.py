"""What is held back and put in order: within the bound the order of arrival does not show."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.plans.engine import Change, Engine, Output, Step
from tests.plans.logs import random_cuts
from tests.plans.tables import Record, key_join, materialized, reordered, source, stream

if TYPE_CHECKING:
    from tablestream.topology.nodes import Source

both_modes = pytest.mark.parametrize("compat", [False, True], ids=["default", "compat"])
BOUND = 10


def log_of(given: Source, seed: int, size: int) -> list[Record]:
    """Records in the order of their times, then one that lets all go."""
    rng = random.Random(seed)
    values = [None if rng.random() < 0.2 else f"{number}" for number in range(size)]
    records = [Record(given, rng.choice("abc"), value, number) for number, value in enumerate(values)]
    return [*records, Record(given, "z", "end", size + 10 * BOUND)]


def mixed(records: list[Record], seed: int) -> list[Record]:
    """The same, none later than the bound."""
    rng = random.Random(seed)
    return sorted(records, key=lambda record: record.ts + rng.randint(0, BOUND - 1))


@both_modes
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("make", [source, stream], ids=["table", "stream"])
def test_within_the_bound_the_order_of_arrival_does_not_show(make: type, seed: int, *, compat: bool) -> None:
    given = make("A")
    log = log_of(given, seed, 150)
    engine = Engine([Output(reordered(given, BOUND))], compat, shards=1)
    got: list[Change] = []
    for piece in random_cuts(mixed(log, seed), seed, 6):
        got += engine.run(piece)[0]
        engine = engine.restarted()
    assert got == [Change((str(record.key),), record.value, record.ts) for record in log[:-1]]
    assert not any(engine.dropped.values())


def test_no_version_behind_it_is_out_of_order() -> None:
    table, other = source("A"), source("B")
    log = log_of(table, 3, 200)
    found = []
    for records in (log, mixed(log, 9)):
        joined = key_join(materialized(reordered(table, BOUND), 5), other, "left")
        engine = Engine([Output(joined)], shards=1)
        found.append(engine.run(records))
        assert not any(engine.dropped.values())
    assert found[0] == found[1]


@both_modes
def test_what_is_later_than_the_bound_goes_on_at_once(*, compat: bool) -> None:
    table = source("A")
    engine = Engine([Output(reordered(table, 10))], compat, shards=1)
    log = [Record(table, "a", "1", 100), Record(table, "b", "late", 89), Record(table, "b", "not late", 90)]
    assert engine.steps(log) == [
        [Step(2, Change(("b",), "late", 89)), Step(3, Change(("b",), "not late", 90))]
    ]
    assert engine.dropped["A_reordered", "late"] == 1
    assert engine.restarted().steps([Record(table, "c", None, 110)]) == [[Step(4, Change(("a",), "1", 100))]]


def test_equal_times_leave_by_key_then_arrival() -> None:
    table = source("A")
    engine = Engine([Output(reordered(table, 0))], shards=1)
    log = [Record(table, key, f"{number}", 5) for number, key in enumerate(["b", "a", "b", "a10", "a1"])]
    engine.run([])
    waiting = Engine([Output(reordered(table, 5))], shards=1)
    assert waiting.run(log) == [[]]
    (told,) = waiting.run([Record(table, "z", "end", 20)])
    assert [(change.key[0], change.value) for change in told] == [
        ("a", "1"), ("a1", "4"), ("a10", "3"), ("b", "0"), ("b", "2"),
    ]  # fmt: skip
