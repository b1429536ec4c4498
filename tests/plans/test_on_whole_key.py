"""A join whose foreign key is the whole key of the left table: by default it is a join on the key."""

from __future__ import annotations

import pytest

from tablestream.topology.nodes import How, Node
from tests.marks import quick_first
from tests.plans.catalogue import has_a
from tests.plans.engine import Change, Engine, Output, Record
from tests.plans.logs import random_cuts, random_log
from tests.plans.tables import Key, filtered, foreign_key_join, key_join, source


def own_key(_: str, key: Key) -> Key:
    """Point at the row of the other table that has the same key."""
    return key


def outputs(node: Node, log: list[Record], pieces: int, *, compat: bool, final: bool) -> list[Change]:
    engine = Engine([Output(node, final=final)], compat=compat)
    found: list[Change] = []
    for piece in random_cuts(log, pieces, 5):
        (changes,) = engine.run(piece)
        found += changes
        engine = engine.restarted()
    return found


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("is_filtered", [False, True], ids=["tables", "a filtered table"])
@pytest.mark.parametrize("final", [False, True], ids=["every", "final"])
@pytest.mark.parametrize("pieces", quick_first([4, 1]))
def test_by_default_its_outputs_are_those_of_the_join_on_the_key(
    how: How, is_filtered: bool, final: bool, pieces: int
) -> None:
    left, right = source("left"), source("right")
    other = filtered(right, has_a) if is_filtered else right
    log = random_log([left, right], seed=7, size=80)
    by_on = foreign_key_join(left, other, how, own_key, on_key=True)
    by_key = key_join(left, other, how)
    found = outputs(by_on, log, pieces, compat=False, final=final)
    assert found
    assert found == outputs(by_key, log, pieces, compat=False, final=final)
    assert len(Engine([Output(by_on)]).plan.rounds) == 1


@pytest.mark.parametrize("how", ["inner", "left"])
def test_in_compat_mode_it_is_a_join_by_a_foreign_key(how: How) -> None:
    left, right = source("left"), source("right")
    log = random_log([left, right], seed=7, size=80)
    marked, plain = (foreign_key_join(left, right, how, own_key, on_key=one) for one in (True, False))
    found = outputs(marked, log, 3, compat=True, final=False)
    assert found == outputs(plain, log, 3, compat=True, final=False)


@pytest.mark.parametrize(("compat", "rounds"), [(False, 0), (True, 2)], ids=["default", "compat"])
def test_for_its_rejected_records_it_is_placed_where_it_can_reject_some(*, compat: bool, rounds: int) -> None:
    joined = foreign_key_join(source("left"), source("right"), "inner", own_key, on_key=True)
    assert len(Engine([Output(joined, rejected=True)], compat=compat).plan.rounds) == rounds
