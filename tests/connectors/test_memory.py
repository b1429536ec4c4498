"""The sink for tests: rows by name, micro-batch by micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from pyspark.sql import functions as F

from tablestream.connectors.memory.sink import MemorySink, to_memory
from tablestream.errors import ArgumentError, PlanError
from tests.connectors.changes import KEY, changes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture
def sink() -> Iterator[MemorySink]:
    made = to_memory("test_memory")
    yield made
    made.clear()


def values(sink: MemorySink) -> list[str]:
    return [row.v for row in sink.rows()]


def test_micro_batches_follow_each_other_and_replays_replace(spark: SparkSession, sink: MemorySink) -> None:
    sink.write(changes(spark, 0, (1, "a", "x")), 0, "query", "out")
    sink.write(changes(spark, 1, (1, "a", "y")), 1, "query", "out")
    sink.write(changes(spark, 0, (1, "a", "z")), 0, "query", "out")
    assert values(sink) == ["z", "y"]
    assert values(to_memory("test_memory").keyed_by(KEY)) == ["z", "y"]


def test_rows_are_sorted_unless_asked_for_as_written(spark: SparkSession, sink: MemorySink) -> None:
    frame = changes(spark, 0, (1, "a", "1"), (2, "b", "2"), (3, "c", "3")).coalesce(1)
    sink.write(frame.sortWithinPartitions(F.col("_order").desc()), 0, "query", "out")
    assert values(sink) == ["1", "2", "3"]
    assert [row.v for row in sink.rows(as_written=True)] == ["3", "2", "1"]


def test_rows_without_a_time_come_first(spark: SparkSession, sink: MemorySink) -> None:
    """As of records that were rejected: an order that is no number has no place for them."""
    times = [("b",), (None,), ("a",)]
    frame = spark.createDataFrame(
        [(f"{time}", (0, time and (time, [None, 1]), 7)) for (time,) in times],
        "v string, _order struct<micro_batch: bigint, time: struct<s: string, a: array<int>>, position: bigint>",
    )
    sink.write(frame, 0, "query", "out")
    assert values(sink) == ["None", "a", "b"]


def test_a_time_that_is_no_number_comes_last(spark: SparkSession, sink: MemorySink) -> None:
    """As Spark sorts: behind infinity."""
    times = [2.0, float("nan"), 1.0, float("nan"), 0.5, float("inf"), 0.1]
    frame = spark.createDataFrame(
        [(str(time), (0, time, number)) for number, time in enumerate(times)],
        "v string, _order struct<micro_batch: bigint, time: double, position: bigint>",
    )
    sink.write(frame, 0, "query", "out")
    assert values(sink) == ["0.1", "0.5", "1.0", "2.0", "inf", "nan", "nan"]
    assert values(sink) == [row.v for row in frame.orderBy("_order").collect()]


def test_another_query_starts_afresh(spark: SparkSession, sink: MemorySink) -> None:
    sink.write(changes(spark, 0, (1, "a", "x")), 0, "query", "out")
    sink.write(changes(spark, 0, (1, "a", "y")), 3, "another", "out")
    assert values(sink) == ["y"]


def test_a_session_of_spark_connect_is_refused(sink: MemorySink) -> None:
    with pytest.raises(PlanError, match="cannot be read under Spark Connect"):
        sink.check(cast("SparkSession", object()), KEY)  # it has no SparkContext


def test_clear_forgets(spark: SparkSession, sink: MemorySink) -> None:
    sink.write(changes(spark, 0, (1, "a", "x")), 0, "query", "out")
    sink.clear()
    assert sink.rows() == []


def test_frames_without_an_order_stay_as_they_are(spark: SparkSession, sink: MemorySink) -> None:
    sink.write(changes(spark, 0, (2, "b", "x"), (1, "a", "y")).drop("_order").coalesce(1), 0, "query", "out")
    assert values(sink) == ["x", "y"]


def test_name_may_not_be_empty() -> None:
    with pytest.raises(ArgumentError):
        to_memory("")
