"""Joins of a table with a versioned table, as of a time of each row."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tablestream.runtime.slices import SLICE_ROWS
from tablestream.state.trace import Found, Trace
from tests.marks import quick_first
from tests.plans.catalogue import KEPT, by_key, has_a
from tests.plans.comparing import assert_like_twin, sources_of
from tests.plans.engine import Engine, Output, stable_hash
from tests.plans.logs import random_cuts, random_log
from tests.plans.tables import (
    Change,
    Record,
    as_of_join,
    counted,
    filtered,
    foreign_key_join,
    key_join,
    materialized,
    points,
    source,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tablestream.state.positions import Ints
    from tablestream.topology.nodes import How, Node, Source
    from tests.plans.engine import Hasher

FOREVER = 1_000_000


def logged(left: Source, right: Source, seed: int, size: int, late: int) -> Iterator[Record]:
    """Make a log of orders, which name a key and a time, and of versions that come up to `late` after their time."""
    rng, now = random.Random(seed), 20
    for _ in range(size):
        now += rng.choice((0, 0, 1, 2))
        if rng.random() < 0.5:
            value = None if rng.random() < 0.25 else rng.choice("ab")
            yield Record(right, rng.choice("xyz"), value, now - rng.randint(0, late))
            continue
        pointer = rng.choice(("|x", "|y", "|z", "|z", ""))
        time = rng.choice(("@", *(f"@{now + rng.randint(-late - 3, 3)}" for _ in range(5))))
        value = None if rng.random() < 0.25 else rng.choice("ab") + pointer + time
        yield Record(left, rng.choice("pqrs"), value, now)


def joined(
    how: How, history: int, *, forward: bool = False, strict: bool = False
) -> tuple[Source, Source, Node]:
    left, right = source("L"), source("R")
    return left, right, as_of_join(left, materialized(right, history), how, forward=forward, strict=strict)


kinds = pytest.mark.parametrize("how", KEPT)
ways = pytest.mark.parametrize("forward", [False, True], ids=["backward", "forward"])


@kinds
@ways
@pytest.mark.parametrize("history", quick_first([6, 0, 20, FOREVER]))
def test_every_change_is_that_of_the_reference(how: How, history: int, *, forward: bool) -> None:
    for seed in range(2):
        left, right, node = joined(how, history, forward=forward, strict=seed % 2 == 1)
        log = list(logged(left, right, seed, 120, late=12))
        assert_like_twin([node], [log], shards=1, ordered=True)
        assert_like_twin([node], random_cuts(log, seed, 4), shards=3, restarts=True)


@ways
@pytest.mark.parametrize(
    ("slice_rows", "hasher"),
    quick_first(
        [pytest.param(11, stable_hash, id="slices"), pytest.param(SLICE_ROWS, lambda _: 7, id="one hash")]
    ),
)
def test_neither_slices_nor_equal_hashes_show(slice_rows: int, hasher: Hasher, *, forward: bool) -> None:
    left, right, node = joined("left", 8, forward=forward)
    pieces = random_cuts(list(logged(left, right, 5, 120, late=12)), 5, 3)
    assert_like_twin([node], pieces, slice_rows=slice_rows, hasher=hasher, restarts=True)


@ways
def test_a_right_change_reads_the_left_rows_of_its_time_alone(
    monkeypatch: pytest.MonkeyPatch, *, forward: bool
) -> None:
    second, read, find = 1_000_000, list[int](), Trace.find_between
    left, right, node = joined("left", FOREVER * second, forward=forward)

    def counting(trace: Trace, low: Ints, high: Ints) -> Found:
        found = find(trace, low, high)
        read.append(found.rows.height)
        return found

    engine = Engine([Output(node)], shards=1)
    for number in range(20):  # several runs
        times = [(30 * number + one) * 10 * second for one in range(30)]
        engine.run([Record(left, f"o{time}", f"a|x@{time}", time) for time in times])
    engine.run([Record(right, "x", "first", 0), Record(right, "x", "last", 6000 * second)])
    monkeypatch.setattr(Trace, "find_between", counting)
    (told,) = engine.run([Record(right, "x", "p", 300 * second), Record(right, "x", "q", 330 * second)])
    reached = {
        change.key[0] for change in told if change.value is not None and change.value.endswith((",p)", ",q)"))
    }
    wanted = range(1, 34) if forward else range(30, 600)
    assert reached == {f"o{time * 10 * second}" for time in wanted}
    near = 2  # in the half seconds in which the span begins and ends
    assert len(wanted) <= read.pop() <= len(wanted) + near
    (told,) = engine.run([Record(right, "x", "p'", 300 * second)])
    assert len(told) == (30 if forward else 3)
    assert len(told) <= read.pop() <= len(told) + near


def _with_itself(how: How, *, forward: bool) -> tuple[Node, ...]:
    table = materialized(source("A"), 30)
    return (as_of_join(table, table, how, forward=forward),)


def _both_sides_in_one_step(how: How, *, forward: bool) -> tuple[Node, ...]:
    a = source("A")
    prices = materialized(foreign_key_join(a, source("B"), "left"), 60)
    joined = as_of_join(a, prices, how, points(1), forward=forward)
    return (counted(joined, by_key), joined)


def _several_versions_in_one_step(how: How, *, forward: bool) -> tuple[Node, ...]:
    history = key_join(
        materialized(source("A"), FOREVER), materialized(source("B"), FOREVER), "left", complete_history=True
    )
    return (as_of_join(source("C"), filtered(history, has_a), how, forward=forward),)


@ways
@kinds
def test_a_step_answers_each_left_row_once(how: How, *, forward: bool) -> None:
    for build in (_with_itself, _both_sides_in_one_step):
        nodes = build(how, forward=forward)
        log = random_log(sources_of(nodes), seed=3, size=100)
        assert_like_twin(nodes, random_cuts(log, 2, 3), shards=1, restarts=True)


@ways
@kinds
def test_versions_that_come_in_one_step_change_a_left_row_once(how: How, *, forward: bool) -> None:
    """No twin has joins of histories: the rows are those of a join that gets all versions before the left rows."""
    nodes = _several_versions_in_one_step(how, forward=forward)
    *_, left = sources = sorted(sources_of(nodes), key=lambda one: one.name)
    log = random_log(sources, seed=4, size=150)
    steps = Engine([Output(nodes[0])], shards=1).steps(log)[0]
    assert len({(step.number, step.change.key) for step in steps}) == len(steps)
    last = sorted(log, key=lambda record: record.source is left)
    other = Engine([Output(nodes[0])], shards=1).run(last)[0]
    assert rows_of([step.change for step in steps]) == rows_of(other)


def rows_of(changes: Sequence[Change]) -> dict[object, object]:
    """Keep the last row of each key."""
    rows = {change.key: change.value for change in changes}
    return {key: value for key, value in rows.items() if value is not None}


# What the rules say, case by case


class Told:
    """A join that records are piped into, one by one; each tells what it changes."""

    def __init__(
        self, how: How = "left", history: int = 10, *, forward: bool = False, strict: bool = False
    ) -> None:
        self.left, self.right, node = joined(how, history, forward=forward, strict=strict)
        self.engine = Engine([Output(node)], shards=1)

    def order(self, key: str, value: str | None, ts: int) -> list[tuple[str | None, str | None, int]]:
        return self._run(Record(self.left, key, value, ts))

    def price(self, key: str, value: str | None, ts: int) -> list[tuple[str | None, str | None, int]]:
        return self._run(Record(self.right, key, value, ts))

    def _run(self, record: Record) -> list[tuple[str | None, str | None, int]]:
        self.engine = self.engine.restarted()
        return [(change.key[0], change.value, change.ts) for change in self.engine.run([record])[0]]

    def counted(self, reason: str) -> int:
        return sum(count for (_, why), count in self.engine.dropped.items() if why == reason)


def test_updates_keep_the_version_of_their_time_and_deletes_delete() -> None:
    told = Told()
    assert told.price("x", "dear", 1) == []
    assert told.order("o", "a|x@2", 2) == [("o", "(a|x@2,dear)", 2)]
    assert told.price("x", "cheap", 5) == []
    assert told.order("o", "b|x@2", 6) == [("o", "(b|x@2,dear)", 6)]
    assert told.order("o", None, 7) == [("o", None, 7)]
    assert told.price("x", "late", 2) == []


def test_an_order_that_is_late_finds_the_version_of_its_time() -> None:
    told = Told()
    for ts, value in ((1, "dear"), (5, "cheap")):
        told.price("x", value, ts)
    assert told.order("o", "a|x@4", 9) == [("o", "(a|x@4,dear)", 9)]


def test_a_late_version_a_correction_and_a_withdrawal_change_the_rows_of_their_time_alone() -> None:
    told = Told()
    told.price("x", "p1", 1)
    for time in (2, 4, 6):
        told.order(f"o{time}", f"a|x@{time}", 8)
    assert told.price("x", "p3", 3) == [("o4", "(a|x@4,p3)", 8), ("o6", "(a|x@6,p3)", 8)]
    assert told.price("x", "p5", 5) == [("o6", "(a|x@6,p5)", 8)]
    assert told.price("x", "p3'", 3) == [("o4", "(a|x@4,p3')", 8)]
    assert told.price("x", None, 3) == [("o4", "(a|x@4,null)", 8)]
    assert told.price("x", None, 4) == []


def test_a_withdrawn_version_deletes_the_rows_of_an_inner_join() -> None:
    told = Told("inner")
    assert told.order("o", "a|x@4", 4) == []
    assert told.price("x", "p", 3) == [("o", "(a|x@4,p)", 4)]
    assert told.price("x", None, 4) == [("o", None, 4)]


def test_another_time_is_like_another_foreign_key() -> None:
    told = Told("inner")
    told.price("x", "p", 3)
    assert told.order("o", "a|x@4", 4) == [("o", "(a|x@4,p)", 4)]
    assert told.order("o", "a|x@2", 5) == [("o", None, 5)]
    assert told.order("o", "a|x@3", 6) == [("o", "(a|x@3,p)", 6)]
    assert told.order("o", "a|x@", 7) == [("o", None, 7)]
    assert told.counted("null-foreign-key") == 1


def test_strict_and_forward() -> None:
    told = Told(strict=True)
    told.price("x", "p3", 3)
    assert told.order("o", "a|x@3", 4) == [("o", "(a|x@3,null)", 4)]
    told = Told(forward=True)
    told.price("x", "p3", 3)
    assert told.order("o", "a|x@3", 4) == [("o", "(a|x@3,p3)", 4)]
    assert told.order("q", "a|x@4", 4) == [("q", "(a|x@4,null)", 4)]
    assert told.price("x", "p9", 9) == [("q", "(a|x@4,p9)", 4)]
    assert told.price("x", None, 3) == [("o", "(a|x@3,p9)", 4)]
    told = Told(forward=True, strict=True)
    told.price("x", "p3", 3)
    assert told.order("o", "a|x@3", 4) == [("o", "(a|x@3,null)", 4)]
    assert told.price("x", "p4", 4) == [("o", "(a|x@3,p4)", 4)]


def test_a_row_older_than_the_history_keeps_what_it_has_and_a_new_one_finds_what_is_known() -> None:
    told = Told(history=10)
    for ts, value in ((1, "p1"), (5, "p5"), (50, "p50")):
        told.price("x", value, ts)
        told.order(f"o{ts}", f"a|x@{ts}", ts)
        if ts == 1:
            assert told.price("x", "p1'", 1) == [("o1", "(a|x@1,p1')", 1)]
    assert told.order("o1", "b|x@1", 51) == [("o1", "(b|x@1,p1')", 51)]
    assert told.counted("before-history") == 0
    assert told.order("new", "a|x@5", 52) == [("new", "(a|x@5,p5)", 52)]  # it was valid at the bound
    assert told.order("older", "a|x@4", 53) == [("older", "(a|x@4,null)", 53)]
    assert told.counted("before-history") == 1
    assert told.price("x", "p39", 39) == []
    assert told.counted("expired") == 1
    assert told.order("o1", "b|x@4", 54) == [("o1", "(b|x@4,null)", 54)]  # it asks anew
    assert told.counted("before-history") == 2


@ways
def test_a_row_keeps_what_it_has_within_one_micro_batch_too(*, forward: bool) -> None:
    left, right, node = joined("inner", 5, forward=forward)
    log = [
        Record(right, "x", "p", 10),
        Record(left, "o", "a|x@10", 10),
        Record(right, "x", "p'", 10),
        Record(right, "x", "q", 30),
        Record(right, "x", "r", 60),
        Record(left, "o", "b|x@10", 61),
        Record(left, "o", "c|x@10", 62),
    ]
    assert_like_twin([node], [log], shards=1, ordered=True)
    (told,) = Engine([Output(node)], shards=1).run(log)
    assert [change.value for change in told][-2:] == ["(b|x@10,p')", "(c|x@10,p')"]


@pytest.mark.slow
def test_the_versions_are_bounded_by_the_history_and_not_by_the_rows() -> None:
    left, right, node = joined("left", 5)
    engine, sizes = Engine([Output(node)], shards=1), []
    for now in range(90):
        log = [Record(right, key, f"{now}", now) for key in "xyz"]
        engine.steps([*log, Record(left, "o", f"a|x@{now}", now)])
        sizes.append(sum(len(blob) for store in engine.stores.values() for blob in store.chunks.values()))
    assert max(sizes[60:]) <= 1.1 * max(sizes[20:60])


def test_the_right_table_can_be_read_as_of_a_time() -> None:
    left, right, node = joined("left", 50)
    engine = Engine([Output(node)], shards=2)
    engine.run([Record(right, "x", "p", 1), Record(right, "x", "q", 5), Record(left, "o", "a|x@2", 6)])
    assert [row.value for row in engine.read("R_kept", as_of=2)] == ["p"]
