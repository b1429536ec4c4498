"""What a source says of its rows, with the frame alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import tablestream as ts
from tablestream.connectors.source import carrying, located, noted_origin, own_columns
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


def test_of_two_sources_in_a_frame_one_knows_the_places_and_each_its_bad_rows(spark: SparkSession) -> None:
    texts = ts.Origin(malformed="{}", on_malformed="drop")
    rows = spark.range(1).select(
        "id", F.lit("").alias("text"), F.struct(F.lit("x").alias("log")).alias("_mine")
    )
    both = ts.with_origin(ts.with_origin(rows, "text", texts), "_mine", ORIGIN)
    found = noted_origin(both.schema)
    assert found == replace(
        located(ORIGIN, "_mine"), malformed="`text`", on_malformed="drop", remedy=texts.remedy
    )
    assert own_columns(both) == ["id"]
    assert carrying(both.schema) == ["text", "_mine"]
    placed = ts.Origin(partition=("{}.log",))
    other = ts.with_origin(both.withColumn("_other", F.struct(F.lit("y").alias("log"))), "_other", placed)
    with pytest.raises(ArgumentError, match="'_mine' and '_other' both say where the rows come from"):
        noted_origin(other.schema)


def test_what_a_user_says_of_times_counts_before_what_spark_knows(spark: SparkSession) -> None:
    topic = spark.range(1).selectExpr(
        "'t' AS topic", "0 AS partition", "id AS offset", "current_timestamp() AS timestamp", "id AS n"
    )  # fmt: skip
    said = origin_of(ts.with_origin(topic, "n", ts.Origin(time="timestamp_micros({})", written_at="{}")))
    assert (said.time, said.written_at, said.position) == ("timestamp_micros(`n`)", "`n`", "`offset`")


def test_an_origin_of_a_column_that_is_not_there_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ArgumentError, match="no column '_mine'"):
        ts.with_origin(spark.range(1), "_mine", ORIGIN)


def test_a_source_may_know_no_places(spark: SparkSession) -> None:
    frame = ts.with_origin(spark.range(1).withColumn("_mine", F.lit(1)), "_mine", ts.Origin(partition=()))
    assert origin_of(frame) == ts.Origin(partition=(), column="_mine")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"position": "{}.at"}, "no partition in which it counts"),
        ({"partition": "{}.log"}, "is no tuple of expressions"),
        ({"on_malformed": "pass"}, "on_malformed='pass' is not known"),
    ],
)
def test_an_origin_that_contradicts_itself_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        ts.Origin(**given)
