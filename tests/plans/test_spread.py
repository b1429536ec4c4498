"""A foreign-key join whose left rows are spread over shards gives the changes of one that is not spread."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tablestream.errors import PlanChangedError, PlanError
from tablestream.planner.explain import explained
from tablestream.planner.physical_plan import Align
from tablestream.runtime.measures import STATE_ROWS
from tests.conformance.vectors import Event, Sequence, foreign_key, joined, sequences
from tests.marks import quick_each
from tests.plans import catalogue
from tests.plans.catalogue import COMPOSED, KEPT, SINGLE
from tests.plans.comparing import assert_like_twin, by_step_and_key, sources_of
from tests.plans.engine import Engine, Output, Step
from tests.plans.logs import random_cuts, random_log
from tests.plans.tables import HISTORY, Change, Record, foreign_key_join, grouped, points, source

if TYPE_CHECKING:
    from collections.abc import Sequence as Several

    from tablestream.topology.nodes import ForeignKeyJoin, Node

#: The plans of the catalogue with a join that can be spread.
PLANS = [name for name in SINGLE | COMPOSED if "foreign key" in name]
SIZE = 120


def spread_if_possible(
    left: Node, right: Node, how: Any = "inner", *arguments: Any, spread: int, **options: Any
) -> ForeignKeyJoin:
    able = how in KEPT and not options.get("copied")
    return foreign_key_join(left, right, how, *arguments, spread=spread if able else None, **options)


@pytest.mark.parametrize("name", quick_each(PLANS))
def test_a_plan_with_spread_joins_gives_what_its_reference_operators_give(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "foreign_key_join", partial(spread_if_possible, spread=3))
    nodes = (SINGLE | COMPOSED)[name]()
    log = random_log(sources_of(nodes), seed=len(name), size=SIZE)
    assert_like_twin(nodes, random_cuts(log, len(name), 3), shards=4, restarts=True)


#: Of a foreign-key join of two tables. Those of a self-join are in compat mode alone: its steps differ.
RECORDED = [one for one in sequences("fk_join") if one.op == "fk_join" and not one.versioned]


@pytest.mark.parametrize("sequence", RECORDED, ids=str)
def test_a_spread_join_gives_the_recorded_outputs(sequence: Sequence) -> None:
    how: Any = sequence.params["join"]
    left, right = source("L"), source("R")
    node = foreign_key_join(left, right, how, foreign_key, joined, spread=3)
    tables = {"L": left, "R": right}
    records = [Record(tables[one.topic], one.key, one.value, one.ts) for one in sequence.events]
    got, repeated = changes(node, random_cuts(records, 1, 4), shards=5), repeats(sequence.events)
    assert by_step_and_key(got) == by_step_and_key(
        [
            Step(number, Change((out.key,), out.value, out.ts))
            for number, event in enumerate(sequence.events, start=1)
            for out in event.outputs
            if number not in repeated
        ]
    )


def repeats(events: Several[Event]) -> set[int]:
    """The numbers of the events that write a right row again, which says nothing by default."""
    rows: dict[Any, Any] = {}
    found = set()
    for number, event in enumerate(events, start=1):
        if event.topic == "R":
            if event.value is not None and rows.get(event.key) == event.value:
                found.add(number)
            rows[event.key] = event.value
    return found


def changes(node: Node, pieces: Several[Several[Record]], seed: int = 0, **options: Any) -> list[Step]:
    """Work off micro-batches, starting anew before each."""
    engine, found = Engine([Output(node)], **options), []
    for piece in pieces:
        engine = engine.restarted()
        engine._random.seed(seed)  # messages arrive in another order
        found += engine.steps(piece)[0]
    return found


def one_hot_key(spread: int | None) -> tuple[Node, list[Record]]:
    """Groups that show the order of the answers, and a log in which a right row reaches many left rows."""
    left, right = source("A"), source("B")
    node = grouped(foreign_key_join(left, right, "left", spread=spread), points(0), HISTORY)
    keys = [f"{number:02d}" for number in range(40)]
    log = [Record(left, key, f"a{key}|x", 1) for key in keys]
    log += [Record(left, key, f"b{key}|y", 2) for key in keys[::3]]
    log += [Record(right, "x", "X", 3), Record(right, "y", "Y", 4)]
    log += [Record(left, key, f"c{key}|x", 5) for key in keys[::5]]
    log += [Record(right, "y", "Z", 6), Record(right, "x", None, 7), Record(right, "x", "V", 7)]
    return node, log


def test_law_1_the_order_of_arrival_and_cuts_do_not_show_in_spread_joins() -> None:
    node, log = one_hot_key(3)
    whole = changes(node, [log], shards=4)
    for seed in range(1, 8):
        assert changes(node, [log], seed, shards=4) == whole
        assert changes(node, random_cuts(log, seed, 5), seed, shards=4) == whole


@pytest.mark.parametrize("final", [False, True])
def test_the_answers_to_one_change_have_places_of_their_own(*, final: bool) -> None:
    node, log = one_hot_key(3)
    (join,) = node.parents
    engine = Engine([Output(join, final=final)], shards=4)
    places: list[tuple[Any, ...]] = []
    own = engine._change

    def noted(ending: Any, row: dict[str, Any]) -> Change:
        places.append(tuple(row[name] for name in ("_t", "_p", "_o", "_h0", "_h1", "_h2")))
        return own(ending, row)

    engine._change = noted  # type: ignore[method-assign]
    engine.steps(log)
    assert len(places) >= 40
    assert len(set(places)) == len(places)


def test_a_fan_out_in_several_emissions_is_numbered_through(monkeypatch: pytest.MonkeyPatch) -> None:
    node, log = one_hot_key(3)
    whole = changes(node, [log], shards=4)
    monkeypatch.setattr("tablestream.operators.joins.foreign_key_answer.FAN_OUT_ROWS", 5)
    assert changes(node, [log], shards=4) == whole
    monkeypatch.setattr("tablestream.operators.joins.subscriptions.PART_ROWS", 3)
    assert changes(node, [log], shards=4) == whole


def test_law_3_the_changes_of_a_key_come_in_order() -> None:
    found = []
    for spread in (None, 3):
        node, log = one_hot_key(spread)
        (join,) = node.parents
        steps = changes(join, random_cuts(log, 5, 3), shards=4)
        found.append(
            {one.change.key: [each for each in steps if each.change.key == one.change.key] for one in steps}
        )
    assert found[0] == found[1]


@pytest.mark.parametrize(("spread", "copies"), [(None, 1), (2, 2), (3, 3), (9, 4)])
def test_left_rows_live_in_several_shards_and_right_rows_in_each_of_these(
    spread: int | None, copies: int
) -> None:
    node, log = one_hot_key(spread)
    (join,) = node.parents
    engine = Engine([Output(join)], shards=4)
    engine.steps(log)
    assert engine.measures["A_B/answer", STATE_ROWS] == 40 + 2 * copies
    shards = [shard for round_, shard in engine.stores if round_ == 2]
    assert len(shards) >= copies


@pytest.mark.parametrize("spread", [None, 2, 3, 9])
def test_a_reader_of_the_state_finds_every_right_row_once(spread: int | None) -> None:
    left, right = source("A"), source("B")
    join = foreign_key_join(left, right, "left", spread=spread)
    engine = Engine([Output(join)], shards=4)
    engine.steps([Record(left, "k", "a|x", 1)])
    engine.steps([Record(right, f"r{number}", "R", 2) for number in range(30)])
    engine.steps([Record(right, f"r{number}", None, 3) for number in range(9)])
    assert sorted(row.key for row in engine.read("B")) == sorted((f"r{number}",) for number in range(9, 30))


def test_a_spread_belongs_to_the_plan_and_none_leaves_the_plan_as_it_was() -> None:
    plans, log = {}, list[Record]()
    for spread in (None, 2, 3):
        node, log = one_hot_key(spread)
        plans[spread] = Engine([Output(node)], shards=4)
        plans[spread].steps(log)
    assert "spread" not in plans[None].plan.text
    assert "spread over 3 shards" in plans[3].plan.text
    assert all('"copies"' not in (store.tables or "") for store in plans[None].stores.values())
    assert all('"copies"' in (store.tables or "") for store in plans[3].stores.values())
    changed = Engine(plans[3].outputs, shards=4, stores=plans[2].stores)
    with pytest.raises(PlanChangedError, match="spread over"):
        changed.steps(log)


def test_explain_says_over_how_many_shards() -> None:
    node, _ = one_hot_key(3)
    text = explained(Engine([Output(node)], shards=4).plan)
    assert "Source B (key k0) -> A_B[right] in 3 shards" in text
    assert "ForeignKeyAnswer (keep_left, spread=3)" in text
    few = explained(Engine([Output(node)], shards=2).plan)
    assert "A_B[right] in 2 shards" in few
    one = explained(Engine([Output(node)], shards=1).plan)
    assert "shards ->" not in one
    assert "spread" not in one


def test_compat_refuses_a_spread() -> None:
    node, _ = one_hot_key(3)
    with pytest.raises(PlanError, match="spread="):
        Engine([Output(node)], compat=True)


def test_records_that_wait_for_each_other_reach_every_shard_of_a_spread_join() -> None:
    found = []
    for spread in (None, 3):
        node, log = one_hot_key(spread)
        (join,) = node.parents
        engine = Engine([Output(join)], shards=4, align=Align())
        found.append(by_step_and_key(engine.steps(log[:56])[0]) + by_step_and_key(engine.steps(log[56:])[0]))
    assert len(found[0]) > 80
    assert found[0] == found[1]
