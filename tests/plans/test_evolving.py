"""Queries that evolve: a plan goes on from the rows that another plan's state has of the sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tablestream.planner.evolution import Facts, fates
from tests.marks import quick_each
from tests.plans.catalogue import COMPOSED, SINGLE, has_a
from tests.plans.comparing import sources_of
from tests.plans.engine import Engine, Output
from tests.plans.evolving import assert_evolves, evolves
from tests.plans.logs import random_cuts, random_log
from tests.plans.tables import counts, filtered, key_join, source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tablestream.planner.physical_plan import PhysicalPlan
    from tablestream.topology.nodes import Node

SIZE = 120


PLANS = {name: make for name, make in (SINGLE | COMPOSED).items() if evolves(make())}


def names_of(nodes: Sequence[Node]) -> set[tuple[str, int]]:
    return {(one.name, len(one.key)) for one in sources_of(nodes)}


def partner(name: str) -> str:
    """Another plan that reads at least the tables of a plan."""
    names = list(PLANS)
    start, wanted = names.index(name), names_of(PLANS[name]())
    around = names[start + 7 :] + names[: start + 7]
    return next(one for one in around if names_of(PLANS[one]()) >= wanted)


@pytest.mark.parametrize("name", quick_each(list(PLANS), 6))
def test_a_plan_that_evolves_goes_on_as_if_it_had_run_from_the_start(name: str) -> None:
    before, after, seed = PLANS[partner(name)](), PLANS[name](), len(name)
    log = random_log(sources_of(before), seed, SIZE)
    first, rest = random_cuts(log[: SIZE // 2], seed, 3), random_cuts(log[SIZE // 2 :], seed, 3)
    assert_evolves(before, after, first, rest)


@pytest.mark.parametrize("compat", [False, True])
def test_only_tables_that_no_operator_keeps_whole_are_kept_once_more(compat: bool) -> None:
    nodes = SINGLE["foreign key left"]()
    kept = Engine([Output(node) for node in nodes], compat, evolvable=True).plan
    names = [
        placed.name for work in kept.rounds for placed in work.operators if placed.name.startswith("kept")
    ]
    assert names == ["kept A"]  # the right side's operator has B
    assert {one.name for one in kept.whole} == {"A", "B"}


def facts(nodes: Sequence[Node]) -> tuple[Facts, PhysicalPlan]:
    plan = Engine([Output(node) for node in nodes], evolvable=True).plan
    return Facts.of(plan, {f"o{number}": f"target {number}" for number in range(len(nodes))}), plan


def refusals(old: Sequence[Node], new: Sequence[Node]) -> list[str]:
    before, (after, plan) = facts(old)[0], facts(new)
    return [
        one.why for one in fates(before, after, plan, ()) if one.fate == "refused" and one.part == "source"
    ]


def test_tables_that_are_called_the_same_do_not_evolve_into_other_ones() -> None:
    """Which of them is which cannot be told: the rows of one would become those of another."""
    first, second, other = source("A"), source("A"), source("B")
    both = [counts(first), counts(second)]
    assert not refusals(both, [counts(source("A")), counts(source("A"))])
    (why,) = refusals(both, [counts(second)])
    assert "several tables are called so" in why
    assert any(
        "several tables are called so" in why for why in refusals([counts(first), other], [*both, other])
    )


def test_an_output_means_the_same_whatever_other_outputs_there_are_and_what_is_declared_first() -> None:
    a, b = source("A"), source("B")
    old = facts([key_join(a, b, "left")])[0].outputs["target 0"]
    b, a = source("B"), source("A")
    new = facts([key_join(filtered(a, has_a), b, "left"), key_join(a, b, "left")])[0].outputs["target 1"]
    assert old.meaning == new.meaning
    assert old.meaning != facts([key_join(b, a, "left")])[0].outputs["target 0"].meaning
