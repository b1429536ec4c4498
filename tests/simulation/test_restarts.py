"""What may be different when a query starts again, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tablestream.errors import PlanChangedError
from tests.marks import quick_first
from tests.plans.engine import Engine, Output
from tests.simulation.order import STARTS, WRITES, Event
from tests.simulation.plans import CASES
from tests.simulation.refusals import OtherPlan, other_plans
from tests.simulation.run import Result, described, run_world
from tests.simulation.setup import Setup, used_variants
from tests.simulation.variants import variants
from tests.simulation.world import FAULTS, RESTARTS, Fault, Kind, make_world

MODES = [(name, compat) for name, case in CASES.items() for compat in case.modes]
#: Differences that each plan has, and those that only some have.
ALWAYS = {"a source's name", "alignment"}
SOMETIMES = {
    "the mode",
    "an operator's name",
    "the order of the sources",
    "an expression",
    "a number",
    "how it joins",
    "what an output remembers",
    "a select on what waits",
}


def engine(name: str, outputs: tuple[Output, ...], *, compat: bool, **options: Any) -> Engine:
    return Engine(outputs, compat, 2, **{"align": CASES[name].align, **options})


@pytest.mark.parametrize(("name", "compat"), MODES)
def test_no_state_depends_on_which_outputs_a_query_has(name: str, *, compat: bool) -> None:
    at_first, *others = variants(CASES[name])
    plan = engine(name, at_first.outputs, compat=compat).plan
    for other in others:
        engine(name, other.outputs, compat=compat).plan.check_same(plan.text)


def test_the_plans_have_outputs_of_every_kind_to_change_to() -> None:
    names = {one.name for case in CASES.values() for one in variants(case)}
    assert names == {
        "as at first", "behind a select", "one more", "a source as well", "the last changes", "without the first"
    }  # fmt: skip


@pytest.mark.parametrize(("name", "compat"), MODES)
def test_a_plan_with_any_difference_is_refused(name: str, *, compat: bool) -> None:
    plan = engine(name, CASES[name].outputs(), compat=compat).plan
    for other in other_plans(CASES[name], compat=compat):
        with pytest.raises(PlanChangedError):
            engine(name, other.outputs, compat=other.compat, align=other.align).plan.check_same(plan.text)


def test_the_plans_have_every_difference() -> None:
    found: list[list[OtherPlan]] = [other_plans(CASES[name], compat=compat) for name, compat in MODES]
    differences = [{one.difference for one in plans} for plans in found]
    assert set.intersection(*differences) == ALWAYS
    assert set.union(*differences) == ALWAYS | SOMETIMES


def with_restart(kind: Kind, turn: int) -> Result:
    """Run a world in which only this happens, in micro-batch 4."""
    for seed in range(60):
        world = make_world(seed, micro_batches=6)
        fault = Fault(kind, 4, turn, 1 + 2 * seed)
        if len(world.micro_batches) <= 4 or not world.micro_batches[4]:
            continue
        world = replace(world, faults=(fault,))
        result = run_world(world)
        assert result.problem is None, described(world, result)
        if result.faults[kind]:
            return result
    raise AssertionError(f"{kind} does not happen")


@pytest.mark.parametrize("turn", [0, 1, 2])
@pytest.mark.parametrize("kind", quick_first(RESTARTS, 2))
def test_a_query_starts_again_before_a_micro_batch_and_where_its_sinks_were_written(
    kind: Kind, turn: int
) -> None:
    result = with_restart(kind, turn)
    written = result.order.count(Event(WRITES, 4))
    assert written == (2 if turn == 2 else 1)
    assert result.order.count(Event(STARTS)) >= 2


def test_a_world_is_the_same_each_time() -> None:
    world = next(
        world
        for world in (make_world(seed, micro_batches=6) for seed in range(100))
        if len({fault.kind for fault in world.faults}.intersection(RESTARTS)) > 2
    )
    one, other = run_world(world), run_world(world)
    assert one.events == other.events
    assert one.order == other.order


def test_later_kinds_of_faults_leave_the_rest_of_a_world_as_it_was() -> None:
    """Restarts and lost outputs have a source of chance each: the worlds of seeds that were found before stay."""
    worlds = [make_world(seed) for seed in range(200)]
    some = [world for world in worlds if any(fault.kind in RESTARTS for fault in world.faults)]
    assert 60 < len(some) < 140
    assert {fault.kind for world in worlds for fault in world.faults} == set(Kind)
    first = make_world(0)
    assert (first.plan, first.compat) == ("a filtered table as a stream", True)
    assert [fault for fault in first.faults if fault.kind in FAULTS] == [
        Fault(Kind.ATTEMPT_FAILS_AFTER, 2, 0, 327),
        Fault(Kind.CACHE_SWAPPED, 5, 0, 822),
        Fault(Kind.SINK_FAILS_BEFORE_MARK, 17, 0, 195),
        Fault(Kind.ATTEMPT_FAILS_AFTER, 20, 0, 249),
    ]


def test_what_is_different_is_decided_by_the_world() -> None:
    world = replace(make_world(3, plan="foreign key left"), shards=4)
    fault = Fault(Kind.OTHER_OUTPUTS, 2, 0, 7)
    assert Setup.of(world).changed(fault, world) == Setup.of(world).changed(fault, world)
    found = [used_variants(replace(world, faults=(fault._replace(where=where),))) for where in range(40)]
    assert set.union(*found) == set(range(len(variants(world.case))))
