"""Retention: against its twin, whole, cut and restarted; the rule table by hand; and a state that stays small."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import duckdb
import pytest

from tablestream.errors import PlanError
from tablestream.state.cache import NoCache
from tablestream.state.shard import ShardState
from tests.marks import quick_first
from tests.plans.catalogue import by_letter, has_a, own_key, without_b
from tests.plans.comparing import assert_like_twin, sources_of
from tests.plans.engine import TICK, Engine, Output, Step
from tests.plans.logs import random_cuts, random_log
from tests.plans.tables import (
    Change,
    Key,
    Record,
    counted,
    filtered,
    foreign_key_join,
    frozen,
    grouped,
    kept,
    key_join,
    mapped,
    named_time,
    source,
    stream,
    suppressed,
    to_stream,
    to_table,
    topped,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tablestream.topology.nodes import Keep, Node

SIZE = 150

PLANS: dict[str, Callable[[], tuple[Node, ...]]] = {
    "kept": lambda: (kept(source("A"), 6),),
    "kept by a column": lambda: (kept(source("A"), 3, named_time),),
    "only the newest": lambda: (kept(source("A"), 0), kept(source("A"), 0, named_time)),
    "of two keys": lambda: (kept(source("A", width=2), 4, named_time),),
    "views": lambda: (
        kept(filtered(source("A"), has_a), 5),
        kept(mapped(source("B"), without_b), 3, named_time),
    ),
    "then views": lambda: (mapped(filtered(kept(source("A"), 5), has_a), without_b),),
    "of a join": lambda: (kept(foreign_key_join(source("A"), source("B"), "left"), 8),),
    "of a join by a column": lambda: (
        kept(foreign_key_join(source("A"), source("B"), "outer"), 4, named_time),
    ),
    "of a key join": lambda: (kept(key_join(source("A"), source("B"), "outer"), 6),),
    "of groups": lambda: (kept(grouped(source("A")), 5, named_time),),
    "of a top": lambda: (kept(topped(source("A")), 7),),
    "of a stream": lambda: (kept(to_table(stream("S")), 6),),
    "joined": lambda: (foreign_key_join(kept(source("A"), 6), kept(source("B"), 9), "outer"),),
    "joined with all": lambda: (_with_all(),),
    "counted": lambda: (counted(kept(source("A"), 5, named_time), by_letter),),
    "as a stream": lambda: (to_stream(kept(source("A"), 5)),),
    "held": lambda: (suppressed(kept(source("A"), 5), 3), kept(suppressed(source("A"), 3), 5)),
    "frozen": lambda: (frozen(source("A"), 4, named_time),),
    "a join that freezes": lambda: (
        frozen(foreign_key_join(source("A"), source("B"), "left"), 5, named_time),
    ),
    "frozen, and counted": lambda: (counted(frozen(filtered(source("A"), has_a), 3, named_time), by_letter),),
    "twice": lambda: (kept(kept(source("A"), 9), 2, named_time),),
}


def _with_all() -> Node:
    """Join a table with what is kept of it: both change in a step."""
    table = source("A")
    return foreign_key_join(table, kept(table, 5), "left", own_key)


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("pieces", quick_first([6, 1, 40]))
def test_a_table_that_forgets_is_its_twin(name: str, pieces: int) -> None:
    nodes = PLANS[name]()
    log = random_log(sources_of(nodes), seed=pieces, size=SIZE)
    assert_like_twin(nodes, random_cuts(log, pieces, 3), shards=3, restarts=pieces > 1)


@pytest.mark.parametrize("name", ["kept", "kept by a column", "counted"])
def test_keys_are_told_apart_though_all_hashes_are_equal(name: str) -> None:
    nodes = PLANS[name]()
    log = random_log(sources_of(nodes), seed=2, size=SIZE)
    assert_like_twin(nodes, random_cuts(log, 3, 3), hasher=lambda _: -7)


@pytest.mark.parametrize("name", PLANS)
def test_slices_do_not_show(name: str) -> None:
    nodes = PLANS[name]()
    log = random_log(sources_of(nodes), seed=4, size=SIZE)
    assert_like_twin(nodes, [log], shards=1, slice_rows=13)


def told(steps: list[Step]) -> list[str]:
    """Changes as text: key=value@time, a tombstone as ~, and behind a step's number."""
    return [f"{one.number}: {one.change.key[0]}={one.change.value or '~'}@{one.change.ts}" for one in steps]


@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut"])
@pytest.mark.parametrize(
    ("log", "wanted", "dropped"),
    [
        # A row at the bound stays; one before it is forgotten, at the time of the change that shows it.
        ([("a", "x", 1), ("b", "x", 11)], ["1: a=x@1", "2: b=x@11"], 0),
        ([("a", "x", 1), ("b", "x", 12)], ["1: a=x@1", "2: b=x@12", "2: a=~@12"], 0),
        # An update that moves its time forward keeps a row.
        ([("a", "x", 1), ("a", "y", 5), ("b", "x", 12)], ["1: a=x@1", "2: a=y@5", "3: b=x@12"], 0),
        # Rows go in the order of (time, key).
        (
            [("b", "x", 2), ("a", "x", 2), ("c", "x", 1), ("d", "x", 20)],
            ["1: b=x@2", "2: a=x@2", "3: c=x@1", "4: d=x@20", "4: c=~@20", "4: a=~@20", "4: b=~@20"],
            0,
        ),
        # A row that is late is dropped, whether its key was forgotten or is new; at the bound it is not late.
        ([("a", "x", 1), ("b", "x", 12), ("a", "y", 1)], ["1: a=x@1", "2: b=x@12", "2: a=~@12"], 1),
        ([("b", "x", 12), ("c", "x", 1), ("d", "x", 2)], ["1: b=x@12", "3: d=x@2"], 1),
        # A row that is late deletes that of its key.
        ([("a", "x", 5), ("b", "x", 12), ("a", "y", 1)], ["1: a=x@5", "2: b=x@12", "3: a=~@1"], 1),
        # A forgotten key comes back with a row that is not late, and goes again.
        (
            [("a", "x", 1), ("b", "x", 12), ("a", "y", 3), ("b", "y", 14)],
            ["1: a=x@1", "2: b=x@12", "2: a=~@12", "3: a=y@3", "4: b=y@14", "4: a=~@14"],
            0,
        ),
        # A tombstone deletes a row that is there, whatever its time, and moves no time on.
        ([("a", "x", 5), ("b", "x", 12), ("a", None, 1)], ["1: a=x@5", "2: b=x@12", "3: a=~@1"], 0),
        ([("a", "x", 1), ("b", "x", 2), ("b", None, 90)], ["1: a=x@1", "2: b=x@2", "3: b=~@90"], 0),
        ([("a", None, 5), ("b", "x", 90), ("a", None, 1)], ["2: b=x@90"], 0),
    ],
)
def test_rule_table(
    log: list[tuple[str, str | None, int]], wanted: list[str], dropped: int, *, cut: bool
) -> None:
    table = source("A")
    engine = Engine([Output(kept(table, 10))], shards=1)
    records = [Record(table, *one) for one in log]
    steps = [
        step
        for piece in ([[one] for one in records] if cut else [records])
        for step in engine.steps(piece)[0]
    ]
    assert told(steps) == wanted
    assert engine.dropped == ({("A_keep", "expired"): dropped} if dropped else {})


def test_the_time_of_a_column_counts_and_a_row_without_one_stays() -> None:
    table = source("A")
    engine = Engine([Output(kept(table, 10, named_time))], shards=1)
    values = [
        ("a", "open@"),
        ("b", "x@100"),
        ("c", "x@111"),
        ("a", "done@100"),
        ("c", "y@50"),
        ("a", "open@"),
    ]
    (steps,) = engine.steps([Record(table, key, value, at) for at, (key, value) in enumerate(values, 1)])
    assert told(steps) == [
        "1: a=open@@1", "2: b=x@100@2", "3: c=x@111@3", "3: b=~@3", "4: a=~@4", "5: c=~@5", "6: a=open@@6",
    ]  # fmt: skip
    assert engine.dropped == {("A_keep", "expired"): 2}


@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut"])
def test_a_row_that_is_frozen_stays_as_it_is(*, cut: bool) -> None:
    table = source("A")
    engine = Engine([Output(frozen(table, 10, named_time))], shards=1)
    log = [
        ("a", "x@1"), ("b", "x@11"), ("a", "y@1"), ("c", "x@12"),  # now "a" is frozen
        ("a", "z@1"), ("a", None), ("d", "x@1"), ("b", "y@1"), ("b", "z@20"),
        ("a", "new@13"), ("a", None), ("e", "open@"), ("e", "done@1"),
    ]  # fmt: skip
    records = [Record(table, key, value, at) for at, (key, value) in enumerate(log, 1)]
    steps = [
        step
        for piece in ([[one] for one in records] if cut else [records])
        for step in engine.steps(piece)[0]
    ]
    assert told(steps) == [
        "1: a=x@1@1", "2: b=x@11@2", "3: a=y@1@3", "4: c=x@12@4", "9: b=z@20@9", "10: a=new@13@10", "11: a=~@11",
        "12: e=open@@12",
    ]  # fmt: skip
    assert engine.dropped == {("A_freeze", "expired"): 4}


def test_a_fact_that_is_frozen_keeps_the_dimension_that_it_had() -> None:
    facts, dimension = source("F"), source("D")
    joined = frozen(foreign_key_join(facts, dimension, "left"), 10, fact_time)
    engine = Engine([Output(joined), Output(counted(joined, by_letter))], shards=1)
    log = [Record(dimension, "d", "red", 1), Record(facts, "f", "5|d", 2), Record(facts, "g", "6|d", 3)]
    log += [
        Record(dimension, "d", "green", 4),
        Record(facts, "h", "16|d", 5),
        Record(dimension, "d", "blue", 6),
    ]
    log += [Record(dimension, "d", None, 7), Record(facts, "f", None, 8)]
    rows, _ = engine.steps(log)
    assert told(rows) == [
        "2: f=(5|d,red)@2", "3: g=(6|d,red)@3", "4: f=(5|d,green)@4", "4: g=(6|d,green)@4",
        "5: h=(16|d,green)@5", "6: g=(6|d,blue)@6", "6: h=(16|d,blue)@6", "7: g=(6|d,null)@7", "7: h=(16|d,null)@7",
    ]  # fmt: skip


def test_of_a_join_a_row_that_is_written_again_keeps_its_time() -> None:
    left, right = source("A"), source("B")
    engine = Engine([Output(kept(key_join(left, right, "left"), 10))], shards=1)
    log = [("a", "x", 1), ("a", "x", 9), ("b", "x", 12)]
    (steps,) = engine.steps([Record(left, *one) for one in log])
    assert told(steps) == ["1: a=(x,null)@1", "3: b=(x,null)@12", "3: a=~@12"]


def test_what_was_dropped_can_be_read() -> None:
    table = source("A")
    forgetful = kept(table, 10, named_time)
    engine = Engine([Output(counted(forgetful), rejected=True)], shards=1)
    log = [Record(table, "a", "x@50", 1), Record(table, "b", "y@39", 2), Record(table, "a", "z@1", 3)]
    (changes,) = engine.run(log)
    assert [(one.key, one.value, one.ts) for one in changes] == [
        (("A_keep", "expired"), '{"k0":"b","v":"y@39"}', 2),
        (("A_keep", "expired"), '{"k0":"a","v":"z@1"}', 3),
    ]


def test_the_rows_of_a_bootstrap_are_one_step() -> None:
    """The newest of them says which are too old; these never show."""
    table = replace(source("A"), bootstrapped=True)
    engine = Engine([Output(kept(table, 10))], shards=1)
    rows = [Record(table, "a", "x", 5), Record(table, "b", "x", 90), Record(table, "c", "x", 80)]
    (steps,) = engine.steps([Record(table, "d", "x", 91)], bootstrap=rows)
    assert sorted(told(steps)) == ["0: b=x@90", "0: c=x@80", "1: c=~@91", "1: d=x@91"]
    assert engine.dropped == {("A_keep", "expired"): 1}


def test_old_rows_of_a_bootstrap_are_frozen_and_not_lost() -> None:
    """The bound of a step is the one before it: nothing was newer yet when they came."""
    table = replace(source("A"), bootstrapped=True)
    engine = Engine([Output(frozen(table, 10, lambda value, key: int(value)))], shards=1)  # noqa: ARG005
    rows = [Record(table, "a", "5", 1), Record(table, "b", "90", 1)]
    late = [Record(table, "a", "6", 2), Record(table, "a", "85", 3)]
    (steps,) = engine.steps(late, bootstrap=rows)
    assert sorted(told(steps)) == ["0: a=5@1", "0: b=90@1", "2: a=85@3"]
    assert engine.dropped == {("A_freeze", "expired"): 1}


def test_by_the_clock_rows_are_forgotten_though_nothing_comes() -> None:
    table = source("A")
    engine = Engine(
        [Output(counted(kept(table, 100, wall_clock=10))), Output(kept(table, 100, wall_clock=10))]
    )
    engine.steps([Record(table, "a", "x", 3), Record(table, "b", "x", 3)], now=1000)
    engine.steps([Record(table, "a", "y", 3)], now=1005)
    engine = engine.restarted()
    assert engine.steps([], now=1009) == [[], []]
    groups, rows = engine.steps([], now=1010)
    assert rows == [Step(TICK, Change(("b",), None, 3))]
    assert [one.number for one in groups] == [TICK]
    assert engine.steps([], now=1014)[1] == []
    # What is changed waits anew.
    assert engine.steps([Record(table, "a", "z", 4)], now=1014)[1] == [Step(4, Change(("a",), "z", 4))]
    assert engine.steps([], now=1023)[1] == []
    assert engine.restarted().steps([], now=1024)[1] == [Step(TICK, Change(("a",), None, 4))]


@pytest.mark.parametrize("by", [None, named_time], ids=["timestamp", "column"])
def test_the_last_table_is_what_sql_makes_of_the_log(by: Callable[[str, Key], int | None] | None) -> None:
    """Of each key the last row, unless it is older than the newest row of all by more than the length."""
    table = source("A")
    node = kept(table, 4, by)
    engine, rows = Engine([Output(node)], shards=1), dict[Key, str]()
    log = random_log([table], seed=8, size=400)
    for piece in random_cuts(log, 8, 9):
        for change in engine.run(piece)[0]:
            rows.pop(change.key, None)
            if change.value is not None:
                rows[change.key] = change.value
        engine = engine.restarted()
    times = [one.ts if by is None or one.value is None else by(one.value, ()) for one in log]
    with duckdb.connect() as database:
        database.execute("CREATE TABLE log (n INT, k TEXT, v TEXT, t INT)")
        given = [
            (at, one.key, one.value, time) for at, (one, time) in enumerate(zip(log, times, strict=True))
        ]
        database.executemany("INSERT INTO log VALUES (?, ?, ?, ?)", [
            (at, one[0] if isinstance(one, tuple) else one, value, time) for at, one, value, time in given
        ])  # fmt: skip
        wanted = database.execute(
            """
            WITH log AS (FROM log WHERE k IS NOT NULL)
            SELECT k, v FROM log WHERE v IS NOT NULL
            AND (t IS NULL OR t >= (SELECT max(t) FROM log WHERE v IS NOT NULL) - 4)
            AND n = (SELECT max(n) FROM log AS same WHERE same.k = log.k)
            """
        ).fetchall()
    assert 0 < len(wanted) < 12
    assert rows == {(key,): value for key, value in wanted}


def fact_time(value: str, key: Key) -> int:
    """The time with which a fact begins, as in ``(5|d,red)``."""
    del key
    return int(value.strip("(").split("|")[0])


@pytest.mark.parametrize(
    "node",
    [kept(source("A"), 7), kept(source("A"), 7, named_time), frozen(source("A"), 7, named_time)],
    ids=["timestamp", "column", "frozen"],
)
def test_the_state_of_months_is_that_of_a_week(node: Keep) -> None:
    """Each day has new keys, and some rows of the day before are corrected or deleted."""
    (table,) = sources_of([node])
    engine, sizes = Engine([Output(node)], shards=1), []
    (work,) = engine.plan.rounds
    for day in range(120):
        log = [Record(table, f"{day} {number}", f"x@{day}", day) for number in range(20)]
        log += [Record(table, f"{day - 1} {number}", f"y@{day}", day) for number in range(3)]
        log += [Record(table, f"{day - 1} {number}", None, day) for number in range(3, 6)]
        engine.steps(log)
        (store,) = engine.stores.values()
        state = ShardState(store, NoCache(), work.traces, work.fingerprint, work.text)
        sizes.append([sum(run.rows for run in state.trace(spec.name).runs) for spec in work.traces])
    there = 8 * 20
    assert max(max(rows) for rows in sizes) <= 3 * there
    assert max(max(rows) for rows in sizes[-30:]) <= max(max(rows) for rows in sizes[30:60])


def test_kafka_streams_has_none() -> None:
    with pytest.raises(PlanError, match=r"compat='kafka-streams' has no keep\(\)"):
        Engine([Output(kept(source("A"), 5))], compat=True)
    with pytest.raises(PlanError, match=r"compat='kafka-streams' has no freeze\(\)"):
        Engine([Output(frozen(source("A"), 5, named_time))], compat=True)
