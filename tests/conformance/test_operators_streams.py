"""Streams on the columnar operators, in whole plans without Spark, against what Kafka Streams did."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conformance.test_operators import (
    VIEWS,
    every_run,
    has_y,
    reproduces,
    unversioned,
    without_n2,
)
from tests.conformance.vectors import foreign_key, joined
from tests.marks import quick_first
from tests.plans.engine import stable_hash
from tests.plans.tables import (
    filtered,
    looked_up,
    mapped,
    materialized,
    source,
    stream,
    to_stream,
    to_table,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tablestream.topology.nodes import Node
    from tests.conformance.vectors import Sequence
    from tests.plans.engine import Hasher
    from tests.plans.tables import Key


def own_key(value: str, key: Key) -> str | None:
    del value
    return key[0]


@every_run
@pytest.mark.parametrize("copied", [True, False], ids=["global", "distributed"])
@pytest.mark.parametrize("sequence", unversioned("stream_global_table_join", "stream_global_table_join"))
def test_stream_global_table_join_gives_the_recorded_outputs(
    sequence: Sequence, copied: bool, shards: int, hasher: Hasher, seed: int | None
) -> None:
    records, table = stream("S"), source("G")
    node = looked_up(records, table, sequence.params["join"], foreign_key, joined, copied=copied)
    topics = {event.topic for event in sequence.events}
    (global_topic,) = topics - {"S"}
    reproduces(sequence, {"S": records, global_topic: table}, node, shards, hasher, seed)


@every_run
@pytest.mark.parametrize("sequence", unversioned("stream_table_join", "stream_table_join"))
def test_stream_table_join_gives_the_recorded_outputs(
    sequence: Sequence, shards: int, hasher: Hasher, seed: int | None
) -> None:
    records, table = stream("S"), source("T")
    node = looked_up(records, table, sequence.params["join"], own_key, joined)
    reproduces(sequence, {"S": records, "T": table}, node, shards, hasher, seed)


VIEWS_AS_STREAMS: dict[str, Callable[[Node], Node]] = {
    "table_to_stream": to_stream,
    "filter_y": lambda table: to_stream(filtered(table, has_y)),
    "filter_not_y": lambda table: to_stream(filtered(table, has_y, negate=True)),
    "map_values_n2_to_null": lambda table: to_stream(mapped(table, without_n2)),
}


@pytest.mark.parametrize(
    "through_a_table", quick_first([False, True]), ids=["a table", "a stream as a table"]
)
@pytest.mark.parametrize("sequence", unversioned("table_ops", *VIEWS))
def test_views_as_streams_give_the_recorded_outputs(sequence: Sequence, through_a_table: bool) -> None:
    given = stream("T") if through_a_table else source("T")
    table: Node = to_table(given) if through_a_table else given
    if sequence.params["source_materialized"]:
        table = materialized(table)
    reproduces(sequence, {"T": given}, VIEWS_AS_STREAMS[sequence.op](table), 5, stable_hash, 1)
