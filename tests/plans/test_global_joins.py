"""A join with a table that every shard has: its changes are those of the foreign-key join."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plans.engine import Engine, Output, Step
from tests.plans.logs import random_cuts
from tests.plans.tables import HISTORY, Record, foreign_key_join, grouped, points, source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tablestream.topology.nodes import Node, Source

EVENTS = st.lists(
    st.tuples(
        st.booleans(),
        st.sampled_from(["a", "b", "c", "x", "y"]),
        st.none() | st.sampled_from(["1|a", "2|b", "3|x", "4", "5|y"]),
        st.integers(0, 9),
    ),
    max_size=30,
)


def changes(
    node: Node, records: Sequence[Record], seed: int, *, final: bool = False, **options: Any
) -> list[Step]:
    """Work off records in random micro-batches, starting anew before each."""
    engine, found = Engine([Output(node, final=final)], **options), []
    for piece in random_cuts(records, seed, 4):
        found += engine.steps(piece)[0]
        engine = engine.restarted()
    return found


def joined(how: Any, *, copied: bool, chained: bool) -> tuple[Node, Source, Source]:
    left, right = source("L"), source("R")
    node = replace(foreign_key_join(left, right, how), copied=copied)
    if chained:  # the right table's changes come from a round before
        inner = foreign_key_join(right, source("X"), "left")
        node = replace(foreign_key_join(left, inner, how), copied=copied)
    return node, left, right


@pytest.mark.parametrize("compat", [False, True])
@pytest.mark.parametrize("how", ["inner", "left"])
@given(
    events=EVENTS,
    seed=st.integers(0, 99),
    shards=st.integers(1, 3),
    chained=st.booleans(),
    final=st.booleans(),
)
def test_copied_and_distributed_joins_give_the_same(
    events: list[tuple[bool, str, str | None, int]],
    seed: int,
    shards: int,
    chained: bool,
    final: bool,
    how: str,
    *,
    compat: bool,
) -> None:
    found = []
    for copied in (True, False):
        node, left, right = joined(how, copied=copied, chained=chained)
        records = [Record(left if to_left else right, key, value, ts) for to_left, key, value, ts in events]
        steps = changes(node, records, seed, final=final, shards=shards, compat=compat)
        found.append([(step.number, step.change.key, step.change.value, step.change.ts) for step in steps])
    assert found[0] == found[1]


def test_every_shard_remembers_the_right_rows_and_one_round_is_enough() -> None:
    node, left, right = joined("left", copied=True, chained=False)
    engine = Engine([Output(node)], shards=3)
    engine.run([Record(right, "a", "A", 1), Record(left, "k", "1|a", 2)])
    assert len(engine.plan.rounds) == 1
    assert {shard for _, shard in engine.stores} == {0, 1, 2}


@pytest.mark.parametrize("compat", [False, True], ids=["default", "compat"])
def test_what_every_shard_answers_has_one_order(*, compat: bool) -> None:
    found = set()
    for delivery in range(20):
        left, right = source("A"), source("B")
        joined = foreign_key_join(left, right, "inner", copied=True)
        engine = Engine([Output(grouped(joined, points(0), HISTORY))], compat, shards=3)
        engine._random.seed(delivery)
        log = [Record(left, key, f"a{key}|x", 1) for key in "abcdefgh"]
        found.add(str(engine.run([*log, Record(right, "x", "X", 2)])))
    assert len(found) == 1
