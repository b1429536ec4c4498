"""Queries that evolve, with faults, from seeds; `docs/simulation.md` says what is checked."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from unittest import mock

import pytest

from tablestream.connectors import marks
from tablestream.planner import evolution
from tablestream.spark import generations
from tablestream.spark.generations import next_generation
from tests.marks import quick_first
from tests.plans.evolving import kept_rows
from tests.simulation import evolving
from tests.simulation.evolving import run_life
from tests.simulation.lives import Ends, Life, make_life


def short(seed: int) -> Life:
    return make_life(seed, micro_batches=2)


@pytest.mark.parametrize("seed", range(8))
def test_a_query_that_evolves_says_what_it_would_have_said_with_its_plan_from_the_start(seed: int) -> None:
    result = run_life(short(seed))
    assert result.problem is None, f"{short(seed)}\n{result.problem}"


@pytest.mark.parametrize("seed", [1401, 1483])
def test_a_query_that_once_failed_holds(seed: int) -> None:
    """1483: rows of keys with one hash stood in the state in another order each time."""
    result = run_life(make_life(seed))
    assert result.problem is None, f"{make_life(seed)}\n{result.problem}"


@pytest.mark.exhaustive
def test_a_hundred_evolving_queries_hold_and_end_everywhere() -> None:
    points = Counter[str]()
    for seed in range(8, 108):
        result = run_life(short(seed))
        assert result.problem is None, f"{short(seed)}\n{result.problem}"
        points.update(result.points)
    ends = {name.removeprefix("attempt to evolve ends ") for name in +points if name.startswith("attempt")}
    assert ends == {one.value for one in Ends if one is not Ends.SWITCH}
    assert all(points[f"output {fate}"] for fate in ("silent", "new", "brought over", "removed"))
    assert points["source kept"]
    assert points["source read again"]
    assert points["old plan goes on after an attempt"]
    assert points["old plan refused after its target was brought over"]


of_outputs = evolution._of_outputs

#: What is replaced, by what, and the seed whose query shows it.
PLANTED = {
    "all outputs mean the same": (evolution, "_meaning", lambda *_: "", 1),
    "all operators are rebuilt": (evolution, "not_rebuilt", lambda _: "", 20),
    "targets written by an evolution are strangers": (generations, "_rebuilt", lambda *_: frozenset(), 1),
    "rows of the earlier plan stay": (marks, "_is_replaced", lambda *_: False, 1),
    "an earlier generation is forgotten": (
        evolving,
        "next_generation",
        lambda *given: replace(next_generation(*given), earlier=()),
        130,
    ),
    "a row of a source is lost": (evolving, "kept_rows", lambda *given: kept_rows(*given)[1:], 2),
    "tables that are read again are silent": (
        evolution,
        "_of_outputs",
        lambda *given, **named: of_outputs(*given, **named | {"refill": False}),
        0,
    ),
}


@pytest.mark.parametrize("name", quick_first(PLANTED, 2))
def test_a_planted_fault_of_evolving_is_found(name: str) -> None:
    owner, function, broken, seed = PLANTED[name]
    assert run_life(short(seed)).problem is None
    with mock.patch.object(owner, function, broken):
        assert run_life(short(seed)).problem is not None
