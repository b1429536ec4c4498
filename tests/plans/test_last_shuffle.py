"""Plans without a last shuffle: the last round makes each change in the shard of its key.

The engine of these tests delivers messages by their hash. Where a plan says that it ends in place, the engine demands
that no message to an output leaves its shard.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tablestream.topology.nodes import Node
from tests.plans.catalogue import COMPOSED, SINGLE, by_letter, has_a
from tests.plans.comparing import sources_of
from tests.plans.engine import Engine, Output
from tests.plans.logs import random_cuts, random_log
from tests.plans.tables import (
    counted,
    filtered,
    foreign_key_join,
    key_join,
    one_to_many,
    points,
    source,
    suppressed,
    topped,
)

PLANS = SINGLE | COMPOSED
A, B = source("A"), source("B")
JOINED = foreign_key_join(A, B, "left")

IN_PLACE: dict[str, Callable[[], list[Output]]] = {
    "a join on the key": lambda: [Output(key_join(A, B, "outer"))],
    "groups": lambda: [Output(counted(A, by_letter))],
    "groups of a foreign-key join": lambda: [Output(counted(JOINED, by_letter))],
    "a view of groups": lambda: [Output(filtered(counted(A, by_letter), has_a))],
    "suppress": lambda: [Output(suppressed(JOINED, 3))],
    "rows before": lambda: [Output(JOINED, before=True)],
    "a foreign-key join, whose changes pass through a later round": lambda: [
        Output(JOINED),
        Output(JOINED, before=True),
    ],
    "two outputs": lambda: [Output(key_join(A, B, "inner")), Output(key_join(A, B, "left"), final=True)],
}
SHUFFLED: dict[str, Callable[[], list[Output]]] = {
    "a foreign-key join": lambda: [Output(JOINED)],
    "pairs": lambda: [Output(one_to_many(A, B, "inner", points(0)))],
    "ranks": lambda: [Output(topped(A, by_letter, 2))],
    "a source": lambda: [Output(A)],
    "a source beside groups": lambda: [Output(counted(A, by_letter)), Output(B)],
    "rejected records": lambda: [Output(counted(A, by_letter)), Output(A, rejected=True)],
}


def plan_of(outputs: list[Output]) -> bool:
    return Engine(outputs).plan.ends_in_place


@pytest.mark.parametrize("name", IN_PLACE)
def test_no_shuffle_follows_where_the_last_round_makes_changes_by_their_key(name: str) -> None:
    assert plan_of(IN_PLACE[name]())


@pytest.mark.parametrize("name", SHUFFLED)
def test_a_shuffle_follows_where_changes_of_a_key_may_come_from_several_shards(name: str) -> None:
    assert not plan_of(SHUFFLED[name]())


def test_a_shuffle_follows_a_round_that_timers_wake() -> None:
    assert not plan_of([Output(suppressed(A, 3, wall_clock=5))])


@pytest.mark.parametrize("plan", PLANS)
def test_changes_that_are_said_to_be_in_place_are(plan: str) -> None:
    nodes: list[Node] = list(PLANS[plan]())
    log = random_log(sources_of(nodes), seed=len(plan), size=60)
    for node in nodes:
        engine = Engine([Output(node)], shards=3)
        if engine.plan.ends_in_place:
            for piece in random_cuts(log, 2, 2):
                engine.run(piece)
