"""What is declared and not asked for: a plan is made of what its outputs need, and of nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.plans.catalogue import has_a
from tests.plans.engine import Engine, Output
from tests.plans.logs import random_cuts, random_log
from tests.plans.tables import (
    filtered,
    foreign_key_join,
    grouped,
    key_join,
    source,
    stream,
    suppressed,
    to_stream,
    to_table,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tablestream.topology.nodes import Node

#: What makes Kafka Streams keep the rows of a source, so that a filter declared later knows them.
READERS: dict[str, Callable[[Node], Node]] = {
    "key join": lambda table: key_join(table, source("other")),
    "foreign-key join": lambda table: foreign_key_join(source("other"), table),
    "groups": grouped,
    "suppress": lambda table: suppressed(table, 5),
    "groups of a view": lambda table: grouped(filtered(table, has_a)),
}
each_reader = pytest.mark.parametrize("reader", READERS)


def engine(*nodes: Node) -> Engine:
    return Engine([Output(node) for node in nodes], compat=True)


def descriptions(one: Engine) -> list[tuple[str, ...]]:
    """What a restarted query is compared by."""
    return [work.description for work in one.plan.rounds]


@each_reader
def test_what_no_output_needs_changes_neither_outputs_nor_fingerprint(reader: str) -> None:
    table, alone = source("rows"), source("rows")
    READERS[reader](table)
    with_it, without = filtered(table, has_a), filtered(alone, has_a)
    log = random_log([table], seed=3, size=60)
    log_alone = [record._replace(source=alone) for record in log]
    one, other = engine(with_it), engine(without)
    assert descriptions(one) == descriptions(other)
    for piece, piece_alone in zip(random_cuts(log, 3, 3), random_cuts(log_alone, 3, 3), strict=True):
        assert one.run(piece) == other.run(piece_alone)


def test_what_no_output_needs_does_not_change_a_table_of_records() -> None:
    table = to_table(stream("rows"))
    grouped(table)
    assert descriptions(engine(filtered(table, has_a))) == descriptions(
        engine(filtered(to_table(stream("rows")), has_a))
    )


@each_reader
def test_a_filter_knows_the_rows_that_the_plan_keeps_before_it_is_declared(reader: str) -> None:
    table = source("rows")
    before = filtered(table, has_a)
    kept = READERS[reader](table)
    behind = filtered(table, has_a)
    rounds = engine(before, behind, kept).plan.rounds
    names = [placed.name for work in rounds for placed in work.operators]
    assert [name for name in names if name.startswith("output")] == ["output 2"]


def test_a_plan_is_another_one_where_its_filter_knows_more() -> None:
    def plan(*, filter_first: bool) -> Engine:
        table = source("rows")
        if filter_first:
            view = filtered(table, has_a)
            return engine(grouped(table), key_join(view, source("other")))
        groups = grouped(table)
        view = filtered(table, has_a)
        return engine(groups, key_join(view, source("other")))

    assert descriptions(plan(filter_first=True)) != descriptions(plan(filter_first=False))


def test_records_made_of_a_table_do_not_keep_its_rows() -> None:
    table = source("rows")
    groups = grouped(to_stream(table))
    rounds = engine(groups, filtered(table, has_a)).plan.rounds
    assert not any(placed.name.startswith("output") for work in rounds for placed in work.operators)
