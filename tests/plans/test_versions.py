"""Versioned tables in plans: grace by clock and by the table, state that the history bounds, late changes by mode."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tablestream.state.cache import NoCache
from tablestream.state.shard import ShardState
from tablestream.topology.nodes import Source
from tablestream.topology.streams import Grace
from tests.marks import quick_first
from tests.plans.engine import TICK, Change, Engine, Output, Step
from tests.plans.logs import random_cuts
from tests.plans.tables import (
    HISTORY,
    Record,
    counts,
    foreign_key_join,
    grouped,
    key_join,
    looked_up,
    materialized,
    merged,
    points,
    reordered,
    source,
    stream,
    to_table,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tablestream.topology.nodes import Node
    from tests.plans.tables import Key, Value

both_modes = pytest.mark.parametrize("compat", [False, True], ids=["default", "compat"])


def own_key(value: str, key: Key) -> str | None:
    del value
    return key[0]


@dataclass
class ByHand:
    """As-of lookups by looking at every version that ever came."""

    history: int
    observed: int | None = None
    versions: dict[str, dict[int, Value]] = field(default_factory=dict)

    def put(self, key: str, value: Value, ts: int) -> None:
        if self.observed is not None and ts < self.observed - self.history:
            return
        self.observed = ts if self.observed is None else max(self.observed, ts)
        self.versions.setdefault(key, {})[ts] = value

    def as_of(self, key: str, ts: int) -> Value:
        known = self.versions.get(key, {})
        if self.observed is not None and ts < self.observed - self.history:
            newest = max(known, default=None)
            return known[newest] if newest is not None and newest <= ts else None
        valid = [time for time in known if time <= ts]
        return known[max(valid)] if valid else None


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("history", [0, 3, 20, 10_000])
def test_a_record_meets_the_version_of_its_time(history: int, seed: int) -> None:
    rng = random.Random(seed)
    records, table = stream("S"), source("T")
    log, now = [], 0
    for number in range(400):
        now += rng.choice((0, 1, 2))
        ts, key = max(0, now - rng.choice((0, 0, 1, 3, 9))), rng.choice("abc")
        value = None if rng.random() < 0.2 else f"{number}"
        log.append(Record(table if rng.random() < 0.6 else records, key, value, ts))
    engine = Engine([Output(looked_up(records, materialized(table, history), "left", own_key))], shards=1)
    hand, wanted = ByHand(history), []
    for number, (where, at, value, ts, _) in enumerate(log, 1):
        key = str(at)
        if where is table:
            hand.put(key, value, ts)
        elif value is not None:
            found = hand.as_of(key, ts)
            wanted.append(Step(number, Change((key,), f"({value},{found or 'null'})", ts)))
    got: list[Step] = []
    for piece in random_cuts(log, seed, 5):
        got += engine.steps(piece)[0]
        engine = engine.restarted()
    assert got == wanted


def joined(grace: Grace | None, *, compat: bool = False) -> tuple[Engine, object, object]:
    records, table = stream("S"), source("T")
    node = looked_up(records, materialized(table, 100), "left", own_key, grace=grace)
    return Engine([Output(node)], compat, shards=1), records, table


@both_modes
def test_records_wait_for_versions_that_are_late(*, compat: bool) -> None:
    engine, records, table = joined(Grace(5), compat=compat)
    early = [Record(table, "k", "old", 1), Record(records, "k", "r", 8)]  # type: ignore[arg-type]
    assert engine.steps(early) == [[]]
    late = [Record(table, "k", "late", 7), Record(records, "k", "s", 13)]  # type: ignore[arg-type]
    assert engine.restarted().steps(late) == [[Step(4, Change(("k",), "(r,late)", 8))]]


@both_modes
def test_a_record_that_is_too_late_to_wait_is_joined_at_once_and_counted(*, compat: bool) -> None:
    engine, records, table = joined(Grace(5), compat=compat)
    log = [
        Record(table, "k", "v", 1),  # type: ignore[arg-type]
        Record(records, "k", "r", 20),  # type: ignore[arg-type]
        Record(records, "k", "late", 14),  # type: ignore[arg-type]
        Record(records, "k", "not late", 15),  # type: ignore[arg-type]
    ]
    assert engine.steps(log) == [
        [Step(3, Change(("k",), "(late,v)", 14)), Step(4, Change(("k",), "(not late,v)", 15))]
    ]
    assert engine.dropped == ({} if compat else {("S_T_kept", "late"): 1})
    assert engine.lost == 0


@both_modes
@pytest.mark.parametrize("grace", [None, Grace(5)])
def test_a_record_before_the_history_that_finds_nothing_is_counted_by_default(
    grace: Grace | None, *, compat: bool
) -> None:
    """The history is 100 long: a record finds the newest version if it was valid then, however old the record is."""
    engine, records, table = joined(grace, compat=compat)
    log = [
        Record(table, "old", "v", 10),  # type: ignore[arg-type]
        Record(table, "k", "v", 300),  # type: ignore[arg-type]
        Record(records, "old", "finds the newest", 20),  # type: ignore[arg-type]
        Record(records, "k", "too old", 199),  # type: ignore[arg-type]
        Record(records, "k", "no version yet", 200),  # type: ignore[arg-type]
        Record(records, "k", "last", 400),  # type: ignore[arg-type]
    ]
    engine.steps(log)
    assert +engine.dropped == ({} if compat else {("S_T_kept", "before-history"): 1})
    assert engine.lost == (not compat)


def test_the_clock_lets_records_go_that_nothing_follows() -> None:
    engine, records, table = joined(Grace(50, wall_clock_us=10))
    log = [Record(table, "k", "v", 1), Record(records, "b", "1", 5), Record(records, "k", "2", 3)]  # type: ignore[arg-type]
    assert engine.steps(log, now=100) == [[]]
    engine = engine.restarted()
    assert engine.steps([], now=109) == [[]]
    assert engine.steps([], now=110) == [
        [Step(TICK, Change(("k",), "(2,v)", 3)), Step(TICK, Change(("b",), "(1,null)", 5))]
    ]
    assert engine.steps([], now=500) == [[]]


def test_versions_let_records_go_where_they_are_asked_to() -> None:
    for advances in (False, True):
        engine, records, table = joined(Grace(5, table_advances=advances))
        log = [Record(records, "k", "r", 8), Record(table, "k", "v", 7), Record(table, "x", "w", 13)]  # type: ignore[arg-type]
        (got,) = engine.steps(log)
        assert got == ([Step(3, Change(("k",), "(r,v)", 8))] if advances else [])


def test_the_state_is_bounded_by_the_history() -> None:
    table = source("T")
    node = materialized(table, 10)
    engine = Engine([Output(node)], shards=1)
    keys, sizes = [f"k{number}" for number in range(50)], []
    for round_number in range(120):
        engine.steps([Record(table, key, f"{round_number}", round_number) for key in keys])
        (store,) = engine.stores.values()
        (work,) = engine.plan.rounds
        state = ShardState(store, NoCache(), work.traces, work.fingerprint, work.text)
        sizes.append(sum(run.rows - run.dead for run in state.trace(work.traces[0].name).runs))
    # In the history of ten there are eleven versions of a key, and the one valid at its begin.
    assert max(sizes[40:]) <= 2 * 12 * len(keys)
    assert min(sizes[40:]) <= 1.5 * 12 * len(keys)


@both_modes
def test_a_tombstone_at_the_newest_version_s_time(*, compat: bool) -> None:
    table = source("T")
    versions = materialized(table, 10)
    other = source("O")
    engine = Engine([Output(versions), Output(key_join(versions, other, "left"))], compat, shards=1)
    log = [Record(table, "k", "v", 5), Record(table, "k", None, 5), Record(table, "k", "old", 3)]
    told, latest = engine.run(log)
    assert [change.value for change in told] == ["v", None, "old"]
    assert [change.value for change in latest] == ["(v,null)", None, *(["(old,null)"] if compat else [])]
    assert engine.dropped["T_kept_O", "out-of-order"] == (0 if compat else 1)


@both_modes
def test_a_join_that_is_part_of_another_counts_late_changes_once(*, compat: bool) -> None:
    versions, other = materialized(source("T"), 10), source("O")
    inner = key_join(versions, other, "left")
    outer, twice = key_join(inner, source("P"), "left"), key_join(inner, inner)
    for outputs in ([outer], [inner, outer], [outer, inner], [twice], [twice, inner]):
        engine = Engine([Output(node) for node in outputs], compat)
        table = versions.parent
        assert isinstance(table, Source)
        engine.steps([Record(table, "k", "v", 5), Record(table, "k", "late", 3)])
        assert engine.dropped == {(inner.name, "out-of-order"): 1}


@both_modes
def test_versions_joined_with_themselves_count_late_changes_at_both_sides(*, compat: bool) -> None:
    table = source("T")
    versions = materialized(table, 10)
    node = key_join(key_join(versions, versions), source("O"))
    engine = Engine([Output(node)], compat)
    engine.steps([Record(table, "k", "v", 5), Record(table, "k", "late", 3)])
    assert engine.lost == 2


@both_modes
def test_a_record_with_a_null_key_does_not_wait(*, compat: bool) -> None:
    engine, records, _ = joined(Grace(5), compat=compat)
    assert engine.steps([Record(records, None, "r", 8)]) == [[Step(1, Change((None,), "(r,null)", 8))]]  # type: ignore[arg-type]


@both_modes
def test_a_table_kept_without_a_history_takes_late_changes_as_the_latest(*, compat: bool) -> None:
    table, other = source("T"), source("O")
    flat = materialized(materialized(table, 10))
    engine = Engine([Output(key_join(flat, other, "left"))], compat, shards=1)
    (told,) = engine.run(
        [Record(table, "k", "v", 5), Record(table, "k", "late", 3), Record(table, "k", "x", -9)]
    )
    assert [change.value for change in told] == ["(v,null)", "(late,null)"]
    assert engine.dropped["T_kept", "expired"] == 1


@pytest.mark.parametrize("seed", quick_first(range(12), 3))
@pytest.mark.parametrize("make", ["grace", "reorder"])
def test_cuts_do_not_show_where_records_that_waited_meet_others(make: str, seed: int) -> None:
    rng = random.Random(seed)
    records = stream("S")
    if make == "grace":
        waited: Node = looked_up(
            records, materialized(to_table(records), 50), "left", own_key, grace=Grace(2)
        )
    else:
        waited = reordered(records, 2)
    plan = to_table(merged(records, waited))
    # Every fourth record has a time of its own: the others share theirs, as running maxima do.
    log = [Record(records, rng.choice("kl"), f"{number}", number // 3) for number in range(40)]
    whole = Engine([Output(plan), Output(counts(waited, own_key))], shards=1).steps(log)
    engine = Engine([Output(plan), Output(counts(waited, own_key))], shards=1)
    cut: list[list[Step]] = [[], []]
    for piece in random_cuts(log, seed, 6):
        for told, new in zip(cut, engine.steps(piece), strict=True):
            told.extend(new)
        engine = engine.restarted()
    assert cut == whole


def test_records_that_waited_are_steps_of_their_own_in_every_shard() -> None:
    records, table = stream("S"), source("T")
    found = []
    for shards in (1, 2, 5):
        waited = looked_up(records, materialized(table, 50), "left", own_key, grace=Grace(2))
        engine = Engine([Output(counts(waited, lambda *_: "all"))], shards=shards)
        log = [Record(records, key, "r", ts) for ts, key in enumerate("abcdefgh")]
        late = [Record(records, key, "end", 99) for key in "abcdefgh"]
        (told,) = engine.run([*log, *late])
        found.append([change.value for change in told])
    assert found == [list(range(1, 9))] * 3


def test_a_deleted_row_is_forgotten_with_its_history() -> None:
    table = source("T")
    engine = Engine([Output(materialized(table, 10))], shards=1)
    sizes = []
    for number in range(200):
        log = [Record(table, f"{number}", "v", number), Record(table, f"{number}", None, number)]
        engine.steps(log)
        (store,) = engine.stores.values()
        (work,) = engine.plan.rounds
        state = ShardState(store, NoCache(), work.traces, work.fingerprint, work.text)
        sizes.append(sum(run.rows for run in state.trace(work.traces[0].name).runs))
    assert max(sizes) < 60


@pytest.mark.parametrize("shards", quick_first([2, 1, 5]))
def test_a_late_version_behind_a_forgotten_tombstone_is_none_in_any_shard(shards: int) -> None:
    """Another key's time has gone on in every copy, but not in each shard that the late versions come from."""
    keys = "abcd"
    found = []
    for copied in (False, True):
        records, table = stream("S"), source("T")
        node = looked_up(records, materialized(table, 10), "left", own_key, copied=copied)
        engine = Engine([Output(node)], shards=shards)
        gone = [Record(table, key, value, ts) for value, ts in [("v", 4), (None, 5)] for key in keys]
        engine.steps(gone)
        for number in range(20):
            engine = engine.restarted()
            engine.steps([Record(table, "z", "on", 100 + number)])
        engine.steps([Record(table, key, "late", 3) for key in keys])
        (told,) = engine.run([Record(records, key, "r", 120) for key in keys])
        found.append([change.value for change in told])
    assert found == [["(r,null)"] * len(keys)] * 2


def test_answers_of_every_shard_do_not_hang_on_the_cuts() -> None:
    left, right = source("A"), source("B")
    found = set()
    for pieces in (1, 9):
        joined_everywhere = foreign_key_join(left, right, "inner", points(0), copied=True)
        plan = grouped(joined_everywhere, lambda *_: "all", HISTORY)
        log = [Record(left, f"k{number}", f"a{number}|x", 1) for number in range(6)]
        log += [Record(right, "x", f"X{number}", 2) for number in range(3)]
        engine, told = Engine([Output(plan)], shards=4), []
        size = -(-len(log) // pieces)
        for start in range(0, len(log), size):
            told += engine.run(log[start : start + size])[0]
        found.add(str(told))
    assert len(found) == 1


def late_log(seed: int, table: Source) -> list[Record]:
    rng = random.Random(seed)
    values = (None, None, "a", "b", "c")
    return [
        Record(table, rng.choice("xy"), rng.choice(values), number // 3 - rng.choice((0, 0, 2, 5)))
        for number in range(20, 140)
    ]


def valid(versions: dict[int, Value], time: int) -> Value:
    """Look at the versions of a key as of a time."""
    known = [begin for begin in versions if begin <= time]
    return versions[max(known)] if known else None


def shows(told: Sequence[Change], shown: dict[str, dict[int, Value]], *, images: bool) -> None:
    """Take changes in; with `images`, each says what was shown before it, or before the time at which it ends a row."""
    for change in told:
        versions = shown.setdefault(str(change.key[0]), {})
        new = change.value
        if images:
            old, new = change.value
            befores = {valid(versions, change.ts), *([valid(versions, change.ts - 1)] if new is None else [])}
            assert old in befores
            assert (old, new) != (None, None)
        versions[change.ts] = new


@both_modes
@pytest.mark.parametrize("final", [False, True], ids=["every", "final"])
@pytest.mark.parametrize("seed", quick_first(range(6)))
def test_outputs_of_a_versioned_table_make_its_history(seed: int, *, final: bool, compat: bool) -> None:
    table = source("T")
    node = materialized(table, 1000)
    outputs = [Output(node, final=final, before=True), Output(node, final=final, minimal=True)]
    log = late_log(seed, table)
    if compat:  # which forgets tombstones at the newest version's time
        log = [one._replace(ts=number * 7 - 11 * (one.ts % 3)) for number, one in enumerate(log)]
    engine, known = Engine(outputs, compat, shards=2), dict[str, dict[int, Any]]()
    shown: list[dict[str, dict[int, Value]]] = [{}, {}]
    for piece in random_cuts(log, seed, 8):
        for told, found, images in zip(engine.run(piece), shown, (True, False), strict=True):
            if images and final:  # what was before is that of the micro-batch's start
                shows([one._replace(value=one.value[1]) for one in told], found, images=False)
            else:
                shows(told, found, images=images)
            assert not final or len({(change.key, change.ts) for change in told}) == len(told)
        engine = engine.restarted()
        for record in piece:
            known.setdefault(str(record.key), {})[record.ts] = record.value
        for key, versions in known.items():
            for time in range(min(versions), max(versions) + 2):
                assert {valid(found.get(key, {}), time) for found in shown} == {valid(versions, time)}


def test_a_row_and_its_end_in_one_micro_batch() -> None:
    table = source("T")
    for compat in (False, True):
        engine = Engine([Output(materialized(table, 10), final=True)], compat, shards=1)
        log = [Record(table, "a", "v", 3), Record(table, "a", None, 5), Record(table, "b", "x", 5)]
        assert engine.run([*log, Record(table, "b", None, 5)])[0] == [
            Change(("a",), "v", 3), Change(("a",), None, 5),
        ]  # fmt: skip


def test_a_maintained_table_is_told_the_latest_only() -> None:
    table = source("T")
    node = materialized(table, 1000)
    log = [Record(table, "x", "a", 5), Record(table, "x", "late", 3), Record(table, "y", None, 4)]
    assert Engine([Output(node, final=True, latest_only=True)]).run(log)[0] == [Change(("x",), "a", 5)]
