"""Whole queries with faults, from seeds; `docs/simulation.md` says what is checked."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import cycle, product
from typing import TYPE_CHECKING, Any

import pytest

from tests.marks import repeat
from tests.simulation.checks import Undisturbed
from tests.simulation.plans import CLASSES
from tests.simulation.points import POINTS
from tests.simulation.run import described, run_world
from tests.simulation.world import Kind, World, make_world

if TYPE_CHECKING:
    from collections.abc import Callable

#: Shorter than those of `make simulate`.
SHORT = 8


@pytest.mark.parametrize("seed", range(20))
def test_a_disturbed_query_gives_what_an_undisturbed_one_gives(seed: int) -> None:
    world = make_world(seed, micro_batches=5)
    result = run_world(world)
    assert result.problem is None, described(world, result)


@pytest.mark.exhaustive
def test_a_hundred_seeds_hold_and_reach_every_point_and_fault() -> None:
    faults, points = Counter[Kind](), Counter[str]()
    for seed in range(20, 120):
        world = make_world(seed, micro_batches=SHORT)
        result = run_world(world)
        assert result.problem is None, described(world, result)
        faults.update(result.faults)
        points.update(result.points)
    assert set(+faults) == set(Kind)
    assert set(+points) == {point.name for point in POINTS}


@pytest.mark.slow
def test_the_command_runs_seeds_in_two_processes() -> None:
    command = [sys.executable, "-m", "tests.simulation", "--seeds", "2", "--processes", "2"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed.startswith("2 seeds, ")
    assert printed.endswith("Failed: none\n")


@pytest.fixture(scope="module")
def undisturbed_of() -> Callable[[World], Undisturbed]:
    """Worlds of one seed and one plan differ in their faults only: one undisturbed run is right for all of them."""
    known: dict[tuple[int, str], tuple[World, Undisturbed]] = {}

    def find(world: World) -> Undisturbed:
        place = world.seed, world.plan
        if place not in known:
            known[place] = world, Undisturbed(world)
        first, undisturbed = known[place]
        assert replace(world, faults=()) == replace(first, faults=())
        undisturbed.run_variants(world)
        return undisturbed

    return find


def with_fault(operators: str, kind: Kind, undisturbed_of: Callable[[World], Undisturbed]) -> World | None:
    """Find a world of a class of operators in which a kind of fault happens."""
    for seed, plan in enumerate(list(CLASSES[operators]) * 20):
        world = make_world(seed, plan=plan, kind=kind, micro_batches=6)
        result = run_world(world, undisturbed_of)
        assert result.problem is None, described(world, result)
        if result.faults[kind]:
            return world
    return None


def pairs() -> list[Any]:
    """Every class of operators with every kind of fault; before `make test-all` each kind meets one class."""
    chosen = set(zip(cycle(CLASSES), Kind, strict=False))
    return [
        pytest.param(*pair) if pair in chosen else repeat(pytest.param(*pair))
        for pair in product(CLASSES, Kind)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("operators", "kind"), pairs())
def test_every_class_of_operators_stands_every_fault(
    operators: str, kind: Kind, undisturbed_of: Callable[[World], Undisturbed]
) -> None:
    assert with_fault(operators, kind, undisturbed_of) is not None
