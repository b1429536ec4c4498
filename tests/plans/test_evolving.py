"""Queries that evolve: a plan goes on from the rows that another plan's state has of the sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tablestream.planner.evolution import not_rebuilt
from tablestream.topology.graph import ancestors
from tablestream.topology.nodes import Aggregate
from tests.marks import quick_each
from tests.plans.catalogue import COMPOSED, SINGLE
from tests.plans.comparing import by_step_and_key, sources_of
from tests.plans.engine import Engine, Output, Step
from tests.plans.logs import random_cuts, random_log
from tests.plans.tables import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tablestream.topology.nodes import Node, Source

SIZE = 120


def evolves(nodes: Sequence[Node]) -> bool:
    """Whether rows say what a plan remembers. The functions of groups here note down every row that came and went."""
    own = (isinstance(one, Aggregate) and one.functions is not None for one in ancestors(*nodes))
    return not any(own) and not any(not_rebuilt(one) or one.is_stream for one in ancestors(*nodes))


PLANS = {name: make for name, make in (SINGLE | COMPOSED).items() if evolves(make())}


def names_of(nodes: Sequence[Node]) -> set[tuple[str, int]]:
    return {(one.name, len(one.key)) for one in sources_of(nodes)}


def partner(name: str) -> str:
    """Another plan that reads at least the tables of a plan."""
    names = list(PLANS)
    start, wanted = names.index(name), names_of(PLANS[name]())
    around = names[start + 7 :] + names[: start + 7]
    return next(one for one in around if names_of(PLANS[one]()) >= wanted)


def of_plan(records: Sequence[Record], sources: Sequence[Source]) -> list[Record]:
    """The records as those of another plan's sources; what it does not read stays as it is."""
    named = {one.name: one for one in sources}
    return [one._replace(source=named.get(one.source.name, one.source)) for one in records]


def kept_rows(engine: Engine, sources: Sequence[Source]) -> list[Record]:
    """What the state has of sources, as rows that the next plan starts with."""
    assert {one.name for one in engine.plan.whole} >= {one.name for one in sources}
    return [Record(one, row.key, row.value, row.ts) for one in sources for row in engine.read(one.name)]


Told = list[list[tuple[int, Any, Any]]]


def run(engine: Engine, pieces: Sequence[Sequence[Record]]) -> tuple[Engine, Told]:
    """Restart after each piece: the engine at the end, and the changes of each output, by step and key.

    A rebuilt row has the time of the rows that are there, so times are left out.
    """
    steps: list[list[Step]] = [[] for _ in engine.outputs]
    for piece in pieces:
        for number, new in enumerate(engine.steps(piece)):
            steps[number] += new
        engine = engine.restarted()
    told = [[(one.number, one.change.key, one.change.value) for one in by_step_and_key(of)] for of in steps]
    return engine, told


@pytest.mark.parametrize("name", quick_each(list(PLANS), 6))
def test_a_plan_that_evolves_goes_on_as_if_it_had_run_from_the_start(name: str) -> None:
    old_nodes, nodes, seed = PLANS[partner(name)](), PLANS[name](), len(name)
    log = random_log(sources_of(old_nodes), seed, SIZE)
    outputs, sources = [Output(node) for node in nodes], sources_of(nodes)
    first, rest = log[: SIZE // 2], of_plan(log[SIZE // 2 :], sources)
    old = Engine([Output(node) for node in old_nodes], shards=2, evolvable=True)
    old, _ = run(old, random_cuts(first, seed, 3))
    always, _ = run(Engine(outputs), random_cuts(of_plan(first, sources), seed, 2))
    new = Engine(outputs, shards=3, position=SIZE // 2)
    new.steps([], bootstrap=kept_rows(old, sources))
    _, told = run(new, random_cuts(rest, seed, 3))
    assert told == run(always, random_cuts(rest, seed, 2))[1]


@pytest.mark.parametrize("compat", [False, True])
def test_only_tables_that_no_operator_keeps_whole_are_kept_once_more(compat: bool) -> None:
    nodes = SINGLE["foreign key left"]()
    kept = Engine([Output(node) for node in nodes], compat, evolvable=True).plan
    names = [
        placed.name for work in kept.rounds for placed in work.operators if placed.name.startswith("kept")
    ]
    assert names == ["kept A"]  # the right side's operator has B
    assert {one.name for one in kept.whole} == {"A", "B"}
