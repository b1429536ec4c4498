"""What the plan says of the clauses of a query in SQL."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tablestream.planner.explain import explained
from tablestream.planner.lower import lower
from tablestream.planner.physical_plan import Output, PlanOptions
from tablestream.topology.clauses import Clause, Clauses, made_for
from tablestream.topology.nodes import Node
from tests.plans.tables import (
    filtered,
    foreign_key_join,
    grouped,
    key_join,
    many_to_many,
    one_to_many,
    points,
    source,
    topped,
)
from tests.plans.test_explain import _types
from tests.simulation.recipes import WithName

QUERY = Clauses("q.py:3", (Clause("1:1", "FROM a"), Clause("2:1", "JOIN b"), Clause("3:1", "WHERE x")))
A, B = source("a"), source("b")
#: Nodes, and the lines about them that follow the name of the operator and what it remembers.
COSTS: dict[str, tuple[Callable[[], Node], list[str]]] = {
    "foreign-key join": (
        lambda: foreign_key_join(A, B, "left"),
        ["a change of a costs one lookup", "a change of b costs all rows of a with its key as {on}"],
    ),
    "one-to-many join": (
        lambda: one_to_many(A, B, "left"),
        ["a change of a costs all rows of b with its key as {on}", "a change of b costs one lookup"],
    ),
    "key join": (
        lambda: key_join(A, B, "left"),
        ["a change of a costs one lookup", "a change of b costs one lookup"],
    ),
    "group": (lambda: grouped(A), ["a change of a costs the changed rows of its group"]),
    "top": (lambda: topped(A, n=2), ["a change of a costs the first 2 rows of its group"]),
}


def lines(node: Node) -> list[str]:
    text = explained(lower([Output(node)], _types, PlanOptions()))
    return [line.strip() for line in text.partition("Query at q.py:3\n")[2].splitlines()]


@pytest.mark.parametrize("kind", COSTS)
def test_a_clause_says_what_it_became_and_what_a_change_costs(kind: str) -> None:
    make, costs = COSTS[kind]
    with made_for((QUERY, 1)):
        node = make()
    first, second, *others = lines(node)
    assert (first, second) == ("1:1 FROM a", "becomes nothing of its own")
    assert others[0] == "2:1 JOIN b"
    assert others[1].startswith(f"becomes {kind} ")
    assert others[2].startswith("remembers ")
    on = ", ".join(one.text for one in getattr(node, "on", ()))
    assert others[3:-2] == [one.format(on=on) for one in costs]


def test_a_product_has_nothing_in_common() -> None:
    everywhere = WithName("true", points(0))
    with made_for((QUERY, 1)):
        found = lines(many_to_many(A, B, everywhere, everywhere))
    assert "a change of a costs all rows of b" in found
    assert "a change of b costs all rows of a" in found


def test_the_rows_of_a_clause_are_called_by_its_place_and_views_remember_nothing() -> None:
    with made_for((QUERY, 1)):
        joined = foreign_key_join(A, B, "left")
    with made_for((QUERY, 2)):
        node = filtered(joined, bool)
        assert lines(node)[-2:] == ["3:1 WHERE x", "becomes filter: without state"]
        assert "a change of 2:1 costs the changed rows of its group" in lines(grouped(node))


def test_a_plan_without_sql_has_no_clauses() -> None:
    assert "Query" not in explained(lower([Output(key_join(A, B, "left"))], _types, PlanOptions()))
