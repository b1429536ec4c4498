"""Flat maps of tables: each against its twin, whole, cut and restarted; and the rows of whole tables by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tablestream.errors import PlanError
from tests.marks import quick_first
from tests.plans.catalogue import by_key, by_letter, has_a
from tests.plans.comparing import assert_like_twin, sources_of
from tests.plans.engine import Engine, Output
from tests.plans.logs import random_cuts, random_log
from tests.plans.tables import (
    Key,
    Record,
    counted,
    filtered,
    foreign_key_join,
    grouped,
    materialized,
    pointers,
    source,
    suppressed,
    unfolded,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tablestream.topology.nodes import Node

SIZE = 150


def of_joined(value: str) -> list[str | None]:
    """Take a joined row apart."""
    return [one for one in value.strip("()").split(",") if one]


PLANS: dict[str, Callable[[], tuple[Node, ...]]] = {
    "a table": lambda: (unfolded(source("A"), pointers),),
    "a table of two keys": lambda: (unfolded(source("A", width=2), pointers),),
    "a filtered table": lambda: (unfolded(filtered(source("A"), has_a), pointers),),
    "a table with a history": lambda: (unfolded(materialized(source("A"), 5), pointers),),
    "groups": lambda: (unfolded(grouped(source("A")), pointers),),
    "a table, grouped": lambda: (counted(unfolded(source("A"), pointers), lambda value, _: value),),
    "a table, joined": lambda: (foreign_key_join(unfolded(source("A"), pointers), source("B"), "left"),),
    "a join, and grouped again": lambda: (
        counted(unfolded(foreign_key_join(source("A"), source("B"), "left"), of_joined), by_letter),
    ),
    "a table twice": lambda: (
        unfolded(unfolded(source("A"), lambda value: [value, f"{value}|x"]), pointers),
        suppressed(unfolded(source("A"), pointers), 5),
    ),
}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("pieces", quick_first([6, 1, 60]))
def test_a_flat_map_is_its_twin(name: str, pieces: int) -> None:
    nodes = PLANS[name]()
    log = random_log(sources_of(nodes), seed=pieces, size=SIZE)
    assert_like_twin(nodes, random_cuts(log, pieces, 3), shards=3, restarts=pieces > 1)


@pytest.mark.parametrize("final", [False, True], ids=["every", "final"])
def test_the_rows_are_those_of_the_last_arrays(*, final: bool) -> None:
    table = source("A")
    log = random_log([table], seed=11, size=SIZE)
    engine, rows = Engine([Output(unfolded(table, pointers), final=final)]), dict[Key, str]()
    for piece in random_cuts(log, 7, 2):
        (changes,) = engine.run(piece)
        assert not final or len({change.key for change in changes}) == len(changes)
        for change in changes:
            assert rows.pop(change.key, None) != change.value
            if change.value is not None:
                rows[change.key] = change.value
        engine = engine.restarted()
    last = {record.parts: record.value for record in log if record.parts is not None}
    assert rows == {
        (*key, position): element
        for key, value in last.items()
        for position, element in enumerate(pointers(value) if value else [])
    }


def test_only_the_elements_that_changed_are_emitted() -> None:
    table = source("A")
    engine = Engine([Output(unfolded(table, pointers))])
    values = ["a|x|y|z", "b|x|y|z", "b|x|w", None, None, "b"]
    (changes,) = engine.run([Record(table, "k", value, at) for at, value in enumerate(values, 1)])
    expected: list[tuple[object, ...]] = [
        (0, "|x", 1),
        (1, "|y", 1),
        (2, "|z", 1),
        (1, "|w", 3),
        (2, None, 3),
        (0, None, 4),
        (1, None, 4),
    ]
    assert [(change.key[-1], change.value, change.ts) for change in changes] == expected


def test_kafka_streams_has_none() -> None:
    with pytest.raises(PlanError, match="has no flat_map of a table"):
        Engine([Output(counted(unfolded(source("A"), pointers), by_key))], compat=True)
