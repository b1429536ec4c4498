"""The columnar operators of groups, in whole plans without Spark, against what Kafka Streams did."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conformance.test_operators import every_run, unversioned
from tests.conformance.vectors import Sequence, added, group, subtracted
from tests.plans.engine import Engine, Output, Step
from tests.plans.logs import random_cuts
from tests.plans.tables import Change, Record, aggregated, counts, grouped, source

if TYPE_CHECKING:
    from collections.abc import Callable

    from tablestream.topology.nodes import Node, Source
    from tests.plans.engine import Hasher


def selected(value: str, key: object) -> str | None:
    """Select the group; a row whose item is null counts in none."""
    name, item = group(value, key)
    return None if item is None else name


def item_of(value: str) -> str | None:
    return group(value)[1]


def plus(_: str, item: str, aggregate: str) -> str:
    return added(aggregate, item)


def minus(_: str, item: str, aggregate: str) -> str:
    return subtracted(aggregate, item)


OPERATORS: dict[str, Callable[[Source], Node]] = {
    "groupby_aggregate": lambda table: grouped(
        table, selected, aggregated(lambda: "0", plus, minus), of=item_of
    ),
    "groupby_count": lambda table: counts(table, selected),
    "groupby_reduce": lambda table: grouped(table, selected, aggregated(None, plus, minus), of=item_of),
}


def as_text(step: Step) -> Step:
    value = step.change.value
    return step._replace(change=step.change._replace(value=None if value is None else str(value)))


@every_run
@pytest.mark.parametrize("sequence", unversioned("groupby_aggregate", *OPERATORS))
def test_groups_give_the_recorded_outputs(
    sequence: Sequence, shards: int, hasher: Hasher, seed: int | None
) -> None:
    table = source("T")
    records = [Record(table, event.key, event.value, event.ts) for event in sequence.events]
    pieces = [records] if seed is None else random_cuts(records, seed, 4)
    engine = Engine([Output(OPERATORS[sequence.op](table))], compat=True, shards=shards, hasher=hasher)
    got: list[Step] = []
    for piece in pieces:
        got += map(as_text, engine.steps(piece)[0])
        engine = engine.restarted()
    assert got == [
        Step(number, Change((out.key,), out.value, out.ts))
        for number, event in enumerate(sequence.events, start=1)
        for out in event.outputs
    ]
    assert sum(engine.dropped.values()) == sequence.dropped
