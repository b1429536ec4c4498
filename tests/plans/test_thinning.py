"""What groups leave out for readers that need only the last change of each key, and what they do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from tablestream.operators.reduce import parts
from tablestream.runtime import slices
from tablestream.runtime.measures import ROWS_OUT
from tablestream.runtime.rounds import Round
from tablestream.spark import blobs, round_worker
from tablestream.state.changes import PARTITION, POSITION, TIME
from tests.marks import quick_each
from tests.plans.catalogue import COMPOSED, SINGLE
from tests.plans.comparing import sources_of
from tests.plans.engine import Engine, Output
from tests.plans.logs import random_cuts, random_log
from tests.plans.tables import (
    Record,
    counted,
    filtered,
    first_of_key,
    foreign_key_join,
    grouped,
    key_join,
    mapped,
    materialized,
    source,
    suppressed,
    topped,
)
from tests.plans.test_outputs import Table, applied, wanted

if TYPE_CHECKING:
    from collections.abc import Callable

    from tablestream.topology.nodes import Node

CHILDREN, PARENTS = source("children"), source("parents")
GROUPS = counted(CHILDREN)
ONWARD: dict[str, Callable[[], Node]] = {
    "filtered": lambda: filtered(GROUPS, lambda value: not value.endswith("3")),
    "mapped": lambda: mapped(GROUPS, lambda value: f"{value}!"),
    "joined on the key": lambda: key_join(PARENTS, GROUPS, "left"),
    "joined and grouped": lambda: counted(key_join(PARENTS, GROUPS), lambda value, _: value[1]),
    "pointed at": lambda: foreign_key_join(source("others"), GROUPS, "inner"),
    "pointing": lambda: foreign_key_join(GROUPS, PARENTS, "left", lambda value, _: value[0]),
    "ranked": lambda: topped(GROUPS, lambda value, _: value[-1]),
    "rekeyed": lambda: first_of_key(GROUPS, lambda value, _: value[-1]),
    "kept": lambda: materialized(GROUPS),
}


def emitted(outputs: list[Output], *, compat: bool = False) -> int:
    """How many rows the groups emit when all children of a parent come in one micro-batch."""
    engine = Engine(outputs, compat, shards=1)
    engine.run([Record(PARENTS, "p", "one", 1)])
    engine.run([Record(CHILDREN, f"c{number}", f"{number}|p", number) for number in range(50)])
    found = {name: rows for (name, measure), rows in engine.measures.items() if measure == ROWS_OUT}
    return next(rows for name, rows in found.items() if name.startswith("children_n/aggregate"))


@pytest.mark.parametrize("onward", ONWARD)
def test_a_group_answers_once_if_only_its_last_row_matters_to_all_readers(onward: str) -> None:
    node = ONWARD[onward]()
    assert emitted([Output(node, final=True)]) == 1
    assert emitted([Output(node, final=True, before=True)]) == 1
    assert emitted([Output(node, final=True), Output(GROUPS, final=True)]) == 1
    assert emitted([Output(node)]) == 50
    assert emitted([Output(node, final=True), Output(GROUPS)]) == 50
    assert emitted([Output(node, final=True)], compat=True) == 50


@pytest.mark.parametrize(
    "node",
    [
        lambda: grouped(GROUPS, lambda value, _: value[-1]),
        lambda: suppressed(GROUPS, 5),
        lambda: materialized(GROUPS, 100),
    ],
    ids=["functions", "suppress", "versions"],
)
def test_a_reader_to_which_every_change_matters_gets_every_change(node: Callable[[], Node]) -> None:
    assert emitted([Output(node(), final=True)]) == 50


def test_who_asks_for_rejected_records_gets_all_of_them() -> None:
    node = foreign_key_join(GROUPS, PARENTS, "inner")
    assert emitted([Output(node, final=True)]) == 1
    assert emitted([Output(node, final=True), Output(node, rejected=True)]) == 50


THINNED = [
    "groups, mapped and filtered",
    "A foreign key inner (groups of B)",
    "(groups of A) foreign key inner B",
    "A key inner (groups of A, counted)",
    "(groups of A) key inner (other groups of A)",
    "A foreign key left (top of A)",
    "groups of top, and top of groups of top",
]


@pytest.mark.parametrize("plan", quick_each(THINNED))
def test_final_changes_of_thinned_plans_are_those_of_every_change(plan: str) -> None:
    """The same rows; what is left out ends as it began."""
    nodes = (SINGLE | COMPOSED)[plan]()
    log = random_log(sources_of(nodes), seed=len(plan), size=150)
    every, engine = (Engine([Output(node, final=final) for node in nodes]) for final in (False, True))
    assert any(getattr(one.operator, "thin", False) for work in engine.plan.rounds for one in work.operators)
    tables: list[Table] = [{} for _ in nodes]
    for piece in random_cuts(log, len(plan), 4):
        steps, got = every.steps(piece), engine.steps(piece)
        for number, (node, table) in enumerate(zip(nodes, tables, strict=True)):
            told = {one.change.key: one.change.value for one in got[number]}
            due = {
                one.change.key: one.change.value
                for one in wanted(Output(node, final=True), steps[number], table, compat=False)
            }
            assert len(told) == len(got[number])
            assert told.items() <= due.items()
            assert all(value == table.get(key) for key, value in due.items() if key not in told)
        tables = [applied(one, table) for one, table in zip(steps, tables, strict=True)]
        engine = engine.restarted()


def test_large_messages_are_opened_in_slices_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few lists can be as large as many rows."""
    monkeypatch.setattr(round_worker, "SLICE_BYTES", 100_000)
    packed = round_worker.PackedInbox()
    for number in range(20):
        place = {TIME: number, PARTITION: "0000/a", POSITION: number, "_h0": 0, "v": [["x" * 1000] * 30]}
        packed.add(1, 1, blobs.encode(pl.DataFrame(place)))
    sizes = [sum(one.estimated_size() for one in opened[1]) for opened in packed.opened(Round(1, (), ()))]
    assert len(sizes) == 7
    assert max(sizes) < 120_000
    assert slices.SLICE_BYTES <= 8 * parts.PART_BYTES
