"""What leaves by the wall clock, though nothing comes: in its place behind the micro-batch's own changes."""

from __future__ import annotations

import polars as pl
import pytest

from tablestream.operators.operator import WallClock
from tablestream.runtime.measures import Counts
from tablestream.runtime.run_round import run_round
from tablestream.state.cache import NoCache
from tablestream.state.changes import KEY_HASH, LIVE, PARTITION, POSITION, TIME, TS
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore
from tests.plans.engine import TICK, Change, Engine, Output, Step
from tests.plans.tables import Key, Record, counts, filtered, foreign_key_join, source, suppressed

both_modes = pytest.mark.parametrize("compat", [False, True], ids=["default", "compat"])


@both_modes
def test_what_is_held_leaves_when_the_clock_says_so(*, compat: bool) -> None:
    table = source("A")
    engine = Engine([Output(suppressed(table, 100, wall_clock=10))], compat, shards=1)
    assert engine.steps([Record(table, "b", "1", 3), Record(table, "a", "1", 3)], now=1000) == [[]]
    assert engine.steps([Record(table, "b", "2", 4), Record(table, "c", "3", 5)], now=1005) == [[]]
    engine = engine.restarted()
    # "a" and "b" came at 1000, in the order of their keys; "c" came later.
    assert engine.steps([], now=1009) == [[]]
    assert engine.steps([], now=1010) == [
        [Step(TICK, Change(("a",), "1", 3)), Step(TICK, Change(("b",), "2", 4))]
    ]
    assert engine.steps([], now=1010) == [[]]
    # What comes again waits anew.
    assert engine.steps([Record(table, "a", None, 6)], now=1015) == [[Step(TICK, Change(("c",), "3", 5))]]
    assert engine.restarted().steps([], now=1025) == [[Step(TICK, Change(("a",), None, 6))]]


def test_what_leaves_by_the_clock_comes_behind_what_a_change_lets_through() -> None:
    table = source("A")
    engine = Engine([Output(suppressed(table, 100, wall_clock=10))], shards=1)
    engine.steps([Record(table, "a", "1", 0), Record(table, "b", "1", 50)], now=0)
    assert engine.steps([Record(table, "c", "1", 120)], now=20) == [
        [Step(3, Change(("a",), "1", 0)), Step(TICK, Change(("b",), "1", 50))]
    ]


def test_what_leaves_by_the_clock_goes_through_the_rest_of_the_plan() -> None:
    table, other = source("A"), source("B")
    held = suppressed(table, 100, wall_clock=10)
    joined = foreign_key_join(held, other, "left")
    engine = Engine([Output(joined), Output(counts(joined, second_letter))], shards=3)
    log = [Record(other, "x", "X", 1), Record(table, "k", "a|x", 2), Record(table, "l", "a|y", 2)]
    assert engine.run(log, now=0) == [[], []]
    left, counted = engine.run([Record(other, "y", "Y", 9)], now=10)
    assert sorted(left) == [Change(("k",), "(a|x,X)", 2), Change(("l",), "(a|y,Y)", 9)]
    assert counted[-1] == Change(("a",), 2, 9)


def second_letter(value: str, key: Key) -> str:
    del key
    return value[1]


@both_modes
def test_what_is_held_behind_a_filter_leaves_by_the_clock(*, compat: bool) -> None:
    """At its turn nothing comes, and nothing is left out."""
    table = source("A")
    held = suppressed(filtered(table, lambda value: value == "y"), 100, wall_clock=10)
    engine = Engine([Output(held)], compat, shards=1)
    log = [Record(table, "a", "y", 3), Record(table, "b", "n", 3), Record(table, "b", None, 4)]
    assert engine.run(log, now=0) == [[]]
    assert engine.restarted().run([], now=10) == [[Change(("a",), "y", 3)]]


def test_the_clock_wakes_until_nobody_waits() -> None:
    """When "c" comes, "a" and "b" leave before their turn."""
    (work,) = Engine([Output(suppressed(source("A"), 5, wall_clock=10))], shards=1).plan.rounds
    (port,), store, found = work.ports, MemoryStore(), list[tuple[int, int | None]]()
    rows = {0: ("a", 0), 3: ("b", 3), 4: ("c", 30)}
    for now in (0, 3, 4, 10, 13, 14):
        inbox = {port: [message(*rows[now], now)]} if now in rows else {}
        state, clock = ShardState(store, NoCache(), work.traces, work.fingerprint), WallClock(now)
        left = sum(frame.height for _, frame in run_round(work, [inbox], state, Counts(), clock))
        state.commit()
        found.append((left, clock.wake_us))
    assert found == [(0, 10), (0, 10), (2, 14), (0, 14), (0, 14), (1, None)]


def message(key: str, ts: int, position: int) -> pl.DataFrame:
    place = {TIME: ts, PARTITION: "p", POSITION: position, "_h0": 0}
    row = {KEY_HASH: ord(key), "_k0": key, TS: ts, LIVE: True, "v": {"c0": key}}
    return pl.DataFrame([place | row])


def test_slices_let_through_at_the_end() -> None:
    table = source("A")
    engine = Engine([Output(suppressed(table, 1000, wall_clock=0))], shards=1, slice_rows=2)
    records = [Record(table, f"{number}", "1", number) for number in range(9)]
    (steps,) = engine.steps(records, now=7)
    assert [step.change.key[0] for step in steps] == [f"{number}" for number in range(9)]
    assert {step.number for step in steps} == {TICK}
