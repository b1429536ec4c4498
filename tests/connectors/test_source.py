"""What a source says of its rows, with the frame alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import tablestream as ts
from tablestream.connectors.source import located, noted_origin, own_columns
from tablestream.errors import ArgumentError
from tablestream.spark.origins import origin_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORIGIN = ts.Origin(
    partition=("{}.log", "upper({}.log)"),
    position="{}.`at`",
    tombstone="{}.gone = 1",
    remedy="Ask.",
    continues=True,
)


def test_the_expressions_read_the_column_whatever_it_is_called() -> None:
    found = located(ORIGIN, "a `b`")
    assert found.partition == ("`a ``b```.log", "upper(`a ``b```.log)")
    assert (found.position, found.tombstone) == ("`a ``b```.`at`", "`a ``b```.gone = 1")
    assert (found.time, found.remedy, found.column) == (None, "Ask.", "a `b`")


def test_an_origin_stays_with_its_column(spark: SparkSession) -> None:
    rows = spark.range(1).select("id", F.struct(F.lit("x").alias("log")).alias("_mine"))
    frame = ts.with_origin(rows, "_mine", ORIGIN)
    assert own_columns(frame) == ["id"]
    assert noted_origin(frame.schema) == located(ORIGIN, "_mine")
    moved = frame.withColumnRenamed("_mine", "other").filter("id > 3").withColumn("n", F.lit(1))
    assert origin_of(moved) == located(ORIGIN, "other")
    assert noted_origin(frame.drop("_mine").schema) is None


def test_of_two_sources_in_a_frame_the_one_that_knows_the_places_counts(spark: SparkSession) -> None:
    texts = ts.Origin(malformed="{}", on_malformed="drop")
    rows = spark.range(1).select(F.lit("").alias("text"), F.struct(F.lit("x").alias("log")).alias("_mine"))
    both = ts.with_origin(ts.with_origin(rows, "text", texts), "_mine", ORIGIN)
    assert noted_origin(both.schema) == located(ORIGIN, "_mine")
    assert own_columns(both) == []


def test_a_source_may_know_no_places(spark: SparkSession) -> None:
    frame = ts.with_origin(spark.range(1).withColumn("_mine", F.lit(1)), "_mine", ts.Origin(partition=()))
    assert origin_of(frame) == ts.Origin(partition=(), column="_mine")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"position": "{}.at"}, "no partition in which it counts"),
        ({"on_malformed": "pass"}, "on_malformed='pass' is not known"),
    ],
)
def test_an_origin_that_contradicts_itself_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        ts.Origin(**given)
