"""The columnar operators of groups, in whole plans without Spark, against what Kafka Streams did."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conformance.test_operators import every_run, reproduces, unversioned
from tests.conformance.vectors import Sequence, added, group, subtracted
from tests.plans.tables import aggregated, counts, grouped, source

if TYPE_CHECKING:
    from collections.abc import Callable

    from tablestream.topology.nodes import Node
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


OPERATORS: dict[str, Callable[[Node], Node]] = {
    "groupby_aggregate": lambda table: grouped(
        table, selected, aggregated(lambda: "0", plus, minus), of=item_of
    ),
    "groupby_count": lambda table: counts(table, selected),
    "groupby_reduce": lambda table: grouped(table, selected, aggregated(None, plus, minus), of=item_of),
}


@every_run
@pytest.mark.parametrize("sequence", unversioned("groupby_aggregate", *OPERATORS))
def test_groups_give_the_recorded_outputs(
    sequence: Sequence, shards: int, hasher: Hasher, seed: int | None
) -> None:
    table = source("T")
    reproduces(sequence, {"T": table}, OPERATORS[sequence.op](table), shards, hasher, seed)
