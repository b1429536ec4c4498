"""How an output gives its changes: ``final``, ``before`` and ``minimal`` against every change."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pytest

from tablestream.operators.joins.foreign_key_answer import ForeignKeyAnswer
from tablestream.operators.joins.foreign_key_subscribe import ForeignKeySubscribe
from tablestream.operators.joins.key_join import KeyJoin
from tablestream.operators.upsert import Upsert
from tests.marks import quick_each, quick_first
from tests.plans.catalogue import COMPOSED, SINGLE, has_a, without_b
from tests.plans.comparing import sources_of
from tests.plans.engine import Engine, Output, Step
from tests.plans.logs import random_cuts, random_log
from tests.plans.tables import (
    Change,
    Key,
    Record,
    Value,
    filtered,
    foreign_key_join,
    key_join,
    mapped,
    source,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tablestream.topology.nodes import Node

Table: TypeAlias = "dict[Key, Value]"

NATIVE = [
    "key inner",
    "key left",
    "key right",
    "key outer",
    "key (A left B) outer (C inner D), mapped within",
    "key self outer",
    "foreign key left",
    "foreign key left, both sides filtered",
    "foreign key left, both sides mapped",
    "foreign key self left",
    "A foreign key left (A key left B), mapped",
    "both foreign keys of A into B, each joined, then key join",
    "groups by pointer",
    "groups by pointer, counted",
    "groups that delete",
    "groups that stay when empty",
    "groups of A foreign key inner B, counted",
    "groups of groups that delete",
    "A by another key",
    "A by another key of two parts, in an order",
]
OTHER = [
    "foreign key inner",
    "foreign key outer",
    "foreign key left that deletes",
    "one to many left",
    "views of a source and of a join, asked for",
    "key outer that deletes",
]
WITH_BEFORE = [
    "foreign key left",
    "key outer",
    "one to many inner",
    "groups by pointer",
    "groups that delete",
    "groups, mapped and filtered",
    *OTHER[4:],
]
both_modes = pytest.mark.parametrize("compat", quick_first([False, True]), ids=["default", "compat"])


def final(steps: Sequence[Step], before: Table, after: Table) -> list[Step]:
    """Of each key the last change, left out where the key was and is absent."""
    last = {step.change.key: step for step in steps}
    return [step for key, step in last.items() if before.get(key) is not None or after.get(key) is not None]


def with_before(steps: Sequence[Step], before: Table, *, repeats: bool) -> list[Step]:
    """Each change beside the row that it replaces, but none from nothing to nothing; `repeats`: with equal ones."""
    table, found = dict(before), []
    for number, change in steps:
        old = table.get(change.key)
        table[change.key] = change.value
        if (old, change.value) != (None, None) and (repeats or old != change.value):
            found.append(Step(number, change._replace(value=(old, change.value))))
    return found


def applied(steps: Sequence[Step], before: Table) -> Table:
    return before | {step.change.key: step.change.value for step in steps}


def wanted(output: Output, every: Sequence[Step], before: Table, *, compat: bool) -> list[Step]:
    """What an output gives of one micro-batch."""
    steps = list(every)
    if output.minimal or output.before:
        kept = with_before(steps, before, repeats=True)
        steps = [Step(number, change._replace(value=change.value[1])) for number, change in kept]
    if output.final:
        steps = final(steps, before, applied(steps, before))
    return with_before(steps, before, repeats=compat) if output.before else steps


def check(outputs: Callable[[Node], list[Output]], plan: str, *, compat: bool) -> Engine:
    """Run a plan once for every change and once for the outputs, and compare each micro-batch."""
    nodes = (SINGLE | COMPOSED)[plan]()
    log = random_log(sources_of(nodes), seed=len(plan), size=150)
    asked = [(index, output) for index, node in enumerate(nodes) for output in outputs(node)]
    every = Engine([Output(node) for node in nodes], compat, shards=1)
    engine = Engine([output for _, output in asked], compat)
    tables: list[Table] = [{} for _ in nodes]
    for piece in random_cuts(log, len(plan), 4):
        all_steps, got = every.steps(piece), engine.steps(piece)
        for (index, output), steps in zip(asked, got, strict=True):
            assert sorted(steps, key=repr) == sorted(
                wanted(output, all_steps[index], tables[index], compat=compat), key=repr
            ), output
        tables = [applied(steps, table) for steps, table in zip(all_steps, tables, strict=True)]
        engine = engine.restarted()
    return engine


def operators(engine: Engine) -> list[type]:
    return [type(placed.operator) for work in engine.plan.rounds for placed in work.operators]


@both_modes
@pytest.mark.parametrize("plan", quick_each(NATIVE))
def test_final_changes_of_operators_that_leave_the_others_out(plan: str, *, compat: bool) -> None:
    engine = check(lambda node: [Output(node, final=True)], plan, compat=compat)
    assert Upsert not in operators(engine)
    assert not engine.plan.rounds[-1].can_be_sliced


@both_modes
@pytest.mark.parametrize("plan", OTHER)
def test_final_changes_through_a_memory_of_the_output(plan: str, *, compat: bool) -> None:
    engine = check(lambda node: [Output(node, final=True)], plan, compat=compat)
    assert Upsert in operators(engine)


@both_modes
@pytest.mark.parametrize("plan", quick_each(WITH_BEFORE))
def test_the_row_before_and_minimal_tombstones(plan: str, *, compat: bool) -> None:
    check(
        lambda node: [
            Output(node),
            Output(node, final=True),
            Output(node, before=True),
            Output(node, minimal=True),
            Output(node, final=True, before=True),
            Output(node, final=True, minimal=True),
        ],
        plan,
        compat=compat,
    )


def test_one_reader_that_wants_every_change_keeps_the_operator_from_leaving_any_out() -> None:
    join = foreign_key_join(source("A"), source("B"), "left")
    for others in ([Output(join)], [Output(key_join(join, source("C")))], [Output(join, before=True)]):
        plan = Engine([Output(join, final=True), *others]).plan
        placed = [one.operator for work in plan.rounds for one in work.operators]
        joins = [one for one in placed if isinstance(one, ForeignKeyAnswer | ForeignKeySubscribe | KeyJoin)]
        assert len(joins) >= 2
        assert not any(one.final for one in joins)


def outputs(
    output: Output, *pieces: Sequence[Record]
) -> list[list[tuple[str | None, Value | tuple[Value, Value], int]]]:
    engine = Engine([output], shards=1)
    return [[(change.key[0], change.value, change.ts) for change in engine.run(piece)[0]] for piece in pieces]


def test_final_keeps_what_is_there_and_leaves_out_what_never_was() -> None:
    """Same value again: kept. Came and went: nothing. Went: the tombstone, with the last change's time."""
    table = source("A")
    first = [Record(table, "same", "a", 1), Record(table, "goes", "a", 1)]
    second = [
        Record(table, "same", "a", 7),
        Record(table, "visits", "a", 8),
        Record(table, "visits", None, 9),
        Record(table, "goes", None, 9),
        Record(table, "goes", None, 5),
    ]
    assert outputs(Output(table, final=True), first, second) == [
        [("same", "a", 1), ("goes", "a", 1)],
        [("same", "a", 7), ("goes", None, 5)],
    ]


def test_before_is_the_row_that_was_emitted_last() -> None:
    table = source("A")
    first = [Record(table, "k", None, 1), Record(table, "k", "a", 2), Record(table, "k", "b", 1)]
    second = [Record(table, "k", "c", 4), Record(table, "k", None, 4), Record(table, "k", None, 5)]
    assert outputs(Output(table, before=True), first, second) == [
        [("k", (None, "a"), 2), ("k", ("a", "b"), 1)],
        [("k", ("b", "c"), 4), ("k", ("c", None), 4)],
    ]
    assert outputs(Output(table, before=True, final=True), first, second) == [
        [("k", (None, "b"), 1)],
        [("k", ("b", None), 4)],
    ]


def test_minimal_tombstones_are_those_of_rows() -> None:
    left, right = source("L"), source("R")
    join = key_join(left, right)
    records = [Record(right, "k", "r", 1), Record(left, "k", None, 2), Record(left, "k", "l", 3)]
    records += [Record(left, "k", None, 4), Record(left, "k", None, 5)]
    assert outputs(Output(join), records) == [
        [("k", None, 2), ("k", "(l,r)", 3), ("k", None, 4), ("k", None, 5)]
    ]
    assert outputs(Output(join, minimal=True), records) == [[("k", "(l,r)", 3), ("k", None, 4)]]


def test_final_does_not_count_what_a_filter_leaves_out() -> None:
    """The tombstone is that of the change that took the row away, not of a later one that was filtered out."""
    table = source("A")
    records = [Record(table, "k", value, ts) for ts, value in enumerate(["b", "b", None], start=2)]
    node = filtered(table, has_a)
    assert outputs(Output(node, final=True), [Record(table, "k", "a", 1)], records) == [
        [("k", "a", 1)],
        [("k", None, 2)],
    ]


def test_a_filtered_output_knows_its_rows() -> None:
    """A filter in default mode is silent about rows that it does not have, a select that deletes is not."""
    table = source("A")
    records = [Record(table, "k", value, ts) for ts, value in enumerate(["c", "a", "b", None], start=1)]
    assert outputs(Output(filtered(table, has_a)), records) == [[("k", "a", 2), ("k", None, 3)]]
    mapping = mapped(table, without_b)
    assert outputs(Output(mapping), records) == [
        [("k", "c!", 1), ("k", "a!", 2), ("k", None, 3), ("k", None, 4)]
    ]
    both = mapped(filtered(table, has_a, negate=True), without_b)
    assert outputs(Output(both), records) == [[("k", "c!", 1), ("k", None, 2)]]


def test_change_is_what_a_test_says() -> None:
    table = source("A", width=2)
    engine = Engine([Output(table)], shards=1)
    assert engine.run([Record(table, ("x", "y"), "a", 1), Record(table, ("x", None), "a", 1)]) == [
        [Change(("x", "y"), "a", 1)]
    ]
    assert engine.dropped == {("A", "null-key"): 1}
