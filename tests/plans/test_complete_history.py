"""Joins of histories against a join of every moment, computed anew after each record."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from tablestream.topology.nodes import Source
from tests.marks import quick_first
from tests.plans.engine import Engine, Output, Step, stable_hash
from tests.plans.logs import random_cuts
from tests.plans.tables import (
    Record,
    filtered,
    foreign_key_join,
    key_join,
    looked_up,
    materialized,
    pair,
    points,
    source,
    stream,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tablestream.topology.nodes import How, Node
    from tests.plans.tables import Value

Times = dict[int, "Value"]
#: Longer than any log.
FOREVER = 1_000_000


def as_of(versions: Times, time: int) -> Value:
    """Look at a step function."""
    known = [begin for begin in versions if begin <= time]
    return versions[max(known)] if known else None


@dataclass
class Moments:
    """The join of two sides at any moment, from all versions that ever came."""

    how: How
    by_value: bool
    left: dict[str, Times] = field(default_factory=dict)
    right: dict[str, Times] = field(default_factory=dict)

    def at(self, key: str, time: int) -> Value:
        """Join what is valid at a time."""
        left, pointed = as_of(self.left.get(key, {}), time), str(key)
        if self.by_value:
            pointed = str(points(0)(left or "", (key,)))
        right = as_of(self.right.get(pointed, {}), time)
        exists = {
            "inner": left is not None and right is not None,
            "left": left is not None,
            "right": right is not None,
            "outer": left is not None or right is not None,
        }[self.how]
        return pair(left, right) if exists else None


def logged(sources: Sequence[Source], seed: int, size: int, late: int) -> Iterator[Record]:
    """Make a log whose records come up to `late` after their time, no two of one key and source at one time."""
    rng, now, seen = random.Random(seed), 10, set[tuple[Source, str, int]]()
    while len(seen) < size:
        now += rng.choice((0, 0, 1, 2))
        which, key = rng.choice(sources), rng.choice("xyz")
        time = now - rng.randint(0, late)
        if (which, key, time) in seen:
            continue
        seen.add((which, key, time))
        value = None if rng.random() < 0.25 else rng.choice("ab") + rng.choice(("|x", "|y", "|z", "|w", ""))
        yield Record(which, key, value, time)


def joined(how: How, *, by_value: bool, history: int) -> tuple[Source, Source, Node]:
    """Declare a join of two histories."""
    left, right = source("L"), source("R")
    sides = materialized(left, history), materialized(right, history)
    make: Callable[..., Node] = foreign_key_join if by_value else key_join
    return left, right, make(*sides, how, complete_history=True)


kinds = pytest.mark.parametrize(
    ("how", "by_value"),
    [*((how, False) for how in ("inner", "left", "right", "outer")), ("inner", True), ("left", True)],
    ids=lambda one: {True: "foreign", False: "key"}.get(one, one),
)


@kinds
@pytest.mark.parametrize("seed", quick_first(range(3)))
def test_every_change_is_right_when_it_is_made_and_all_of_them_make_the_history(
    how: How, seed: int, *, by_value: bool
) -> None:
    left, right, node = joined(how, by_value=by_value, history=FOREVER)
    log = list(logged((left, right), seed, 100, late=12))
    steps = Engine([Output(node)], shards=3).steps(log)[0]
    moments, shown = Moments(how, by_value), dict[str, Times]()
    for number, record in enumerate(log, 1):
        side = moments.left if record.source is left else moments.right
        side.setdefault(str(record.key), {})[record.ts] = record.value
        told = [step.change for step in steps if step.number == number]
        for change in told:
            (key,) = change.key
            assert key is not None
            assert change.value == moments.at(key, change.ts)
            assert change.value is not None or as_of(shown.get(key, {}), change.ts) is not None
            shown.setdefault(key, {})[change.ts] = change.value
        for key in "xyz":
            mine = [change.ts for change in told if change.key == (key,)]
            assert mine == sorted(set(mine))
            for time in range(-3, record.ts + 20):
                assert as_of(shown.get(key, {}), time) == moments.at(key, time), (number, key, time)


@kinds
def test_the_order_in_which_late_records_come_does_not_matter(how: How, *, by_value: bool) -> None:
    left, right, node = joined(how, by_value=by_value, history=FOREVER)
    log, functions = list(logged((left, right), 3, 60, late=20)), set()
    for seed in range(5):
        shown: dict[str, Times] = {}
        for change in Engine([Output(node)]).run(random.Random(seed).sample(log, len(log)))[0]:
            shown.setdefault(str(change.key[0]), {})[change.ts] = change.value
        functions.add(str([[as_of(shown.get(key, {}), time) for time in range(150)] for key in "xyz"]))
    assert len(functions) == 1


@kinds
@pytest.mark.parametrize("history", quick_first([3, 0, 15]))
def test_what_is_inside_the_history_is_right(how: How, history: int, *, by_value: bool) -> None:
    for seed in range(3):
        left, right, node = joined(how, by_value=by_value, history=history)
        log = list(logged((left, right), seed, 120, late=history))
        observed = max(record.ts for record in log)
        # All are inside the history when they come: none comes later than it after the latest of its time.
        moments, shown, latest = Moments(how, by_value), dict[str, Times](), -FOREVER
        kept = []
        for record in log:
            if record.ts >= latest - history:
                kept.append(record)
                side = moments.left if record.source is left else moments.right
                side.setdefault(str(record.key), {})[record.ts] = record.value
            latest = max(latest, record.ts)
        engine = Engine([Output(node)], shards=1)
        for change in engine.run(kept)[0]:
            shown.setdefault(str(change.key[0]), {})[change.ts] = change.value
        assert not engine.dropped["L_kept_R_kept", "expired"]
        for key in "xyz":
            for time in range(observed - history, observed + 3):
                assert as_of(shown.get(key, {}), time) == moments.at(key, time), (seed, key, time)


@kinds
@pytest.mark.parametrize(
    ("history", "hasher"),
    quick_first(
        [pytest.param(4, stable_hash), pytest.param(0, stable_hash), pytest.param(FOREVER, lambda _: 7)]
    ),
)
def test_cuts_and_restarts_do_not_show(
    how: How, history: int, hasher: Callable[..., int], *, by_value: bool
) -> None:
    for seed in range(2):
        left, right, node = joined(how, by_value=by_value, history=history)
        log = list(logged((left, right), seed, 100, late=9))
        whole = Engine([Output(node)], shards=2, hasher=hasher)
        steps = whole.steps(log)[0]
        engine, cut = Engine([Output(node)], shards=2, hasher=hasher), list[Step]()
        for piece in random_cuts(log, seed, 6):
            cut += engine.steps(piece)[0]
            engine = engine.restarted()
        assert cut == steps
        assert engine.dropped == whole.dropped


@kinds
def test_the_result_tells_its_latest_changes(how: How, *, by_value: bool) -> None:
    left, right, node = joined(how, by_value=by_value, history=FOREVER)
    other = source("O")
    plain = key_join(filtered(node, lambda _: True), other, "left")
    log = list(logged((left, right), 1, 200, late=12))
    engine = Engine([Output(plain), Output(node)])
    latest, every = engine.run(log)
    moments, last = Moments(how, by_value), {}
    for record in log:
        side = moments.left if record.source is left else moments.right
        side.setdefault(str(record.key), {})[record.ts] = record.value
    for change in latest:
        last[change.key[0]] = change.value
    assert {key: value for key, value in last.items() if value} == {
        key: pair(value, None) for key in "xyz" if (value := moments.at(key, FOREVER)) is not None
    }
    late = engine.dropped["L_kept_R_kept_filter_O", "out-of-order"]
    assert 0 < late < len(every)


@pytest.mark.slow
@pytest.mark.parametrize("by_value", [False, True], ids=["key", "foreign"])
def test_the_state_is_bounded_by_the_history(*, by_value: bool) -> None:
    left, right, node = joined("left", by_value=by_value, history=5)
    engine, sizes = Engine([Output(node)], shards=1), []
    for now in range(90):
        engine.steps([Record(side, key, f"{now}|x", now) for side in (left, right) for key in "xyz"])
        sizes.append(sum(len(blob) for store in engine.stores.values() for blob in store.chunks.values()))
    assert max(sizes[60:]) <= 1.1 * max(sizes[20:60])


def test_a_row_that_is_older_than_what_was_forgotten_is_shown_from_the_bound_on() -> None:
    left, right, node = joined("outer", by_value=False, history=5)
    log = [
        Record(right, "a", "r", 2),
        Record(right, "a", None, 4),
        Record(right, "b", "x", 10),
        Record(left, "a", "v", 3),
    ]
    (told,) = Engine([Output(node)], shards=1).run(log)
    assert [(change.value, change.ts) for change in told if change.key == ("a",)] == [
        ("(null,r)", 2), (None, 4), ("(v,null)", 5),
    ]  # fmt: skip


def test_a_record_meets_the_histories_version_of_its_time() -> None:
    left, right, node = joined("inner", by_value=False, history=100)
    records = stream("S")
    looked = looked_up(records, node, "left", lambda value, _: value)
    corrected = looked_up(records, node, "left", lambda value, _: value, corrections=True)
    engine = Engine([Output(looked), Output(corrected)])
    log = [Record(right, "a", "r1", 1), Record(right, "a", "r2", 9), Record(left, "a", "l", 2)]
    first, second = engine.run([*log, Record(records, "k", "a", 5)])
    assert [change.value for change in first] == ["(a,(l,r1))"]
    assert [change.value for change in second] == ["(a,(l,r1))"]
    # The row that is late ends where another one is known to: the record, at 12, has none all the while.
    log = [Record(right, "b", "r", 1), Record(left, "b", None, 9), Record(records, "k", "b", 12)]
    assert [change.value for change in engine.run(log)[1]] == ["(b,null)"]
    assert {change.value for change in engine.run([Record(left, "b", "late", 2)])[1]} <= {"(b,null)"}
