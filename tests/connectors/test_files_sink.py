"""Change logs in files: every change once, in order, whatever is replayed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import duckdb
import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import StructType, TimestampType

from tablestream import start, table
from tablestream.connectors.files import sink as module
from tablestream.connectors.files.sink import OWNER, to_files
from tablestream.connectors.files.source import from_files
from tablestream.connectors.json_text import json_options
from tablestream.connectors.marks import Moment
from tablestream.errors import ArgumentError, PlanError, ReservedNameError
from tests.connectors.changes import START, changes

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.parametrize("format_", ["parquet", "json"])
def test_replayed_micro_batch_is_written_once(spark: SparkSession, tmp_path: Path, format_: str) -> None:
    sink = to_files(tmp_path / "log", format_)  # type: ignore[arg-type]
    zero = changes(spark, 0, (1, "a", "x"), (1, "a", None))
    one = changes(spark, 1, (2, "b", "y"))
    for frame, number in ((zero, 0), (zero, 0), (one, 1), (one, 1)):
        sink.write(frame, number, "query", "out")
    schema = "k1 INT, v STRING, _change_type STRING, _order STRUCT<number: BIGINT>, micro_batch INT"
    log = spark.read.format(format_).schema(schema).load(sink.path).orderBy("micro_batch", "_order")
    assert [(row.micro_batch, row.k1, row.v, row._change_type) for row in log.collect()] == [
        (0, 1, "x", "upsert"),
        (0, 1, None, "delete"),
        (1, 2, "y", "upsert"),
    ]


def test_micro_batch_that_was_left_in_part_is_replaced(spark: SparkSession, tmp_path: Path) -> None:
    part = tmp_path / "log" / "micro_batch=0"
    part.mkdir(parents=True)
    (part / "part-0.json").write_text('{"k1": 9}\n')
    to_files(tmp_path / "log", "json").write(changes(spark, 0, (1, "a", "x")), 0, "query", "out")
    assert [row.k1 for row in spark.read.json(str(part)).collect()] == [1]


def test_rows_stay_in_their_partitions_and_order(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(number % 7, "k", str(number)) for number in range(100)]
    frame = changes(spark, 0, *rows).repartition(3, "k1").sortWithinPartitions("_order")
    to_files(tmp_path / "log").write(frame, 0, "query", "out")
    expected = [[row.v for row in part] for part in frame.rdd.glom().collect() if part]
    written = [
        [value for (value,) in duckdb.connect().execute(f"SELECT v FROM '{file}'").fetchall()]
        for file in sorted((tmp_path / "log" / "micro_batch=0").glob("*.parquet"))
    ]
    assert [part for part in written if part] == expected


def test_json_sorts_by_its_order_as_spark_reads_it(spark: SparkSession, tmp_path: Path) -> None:
    """Spark reads the fields of JSON sorted by their names."""
    hops = ", ".join(f"{11 - at} AS hop_{at}" for at in range(12))
    order = f"struct(id AS micro_batch, 9 - id AS time, 'p' AS partition, 1 AS position, {hops}, 0 AS image) AS _order"
    log = spark.range(4).selectExpr("id", "'upsert' AS _change_type", order)
    sink = to_files(tmp_path / "log", "json")
    for number in range(2):
        sink.write(log.where(f"id % 2 = {number}"), number, "query", "out")
    read = spark.read.json(sink.path)
    assert [row.id for row in read.orderBy("_order").collect()] == [0, 1, 2, 3]
    names = read.select("_order.*").columns
    assert names[:4] == ["micro_batch", "observed_time", "partition", "position"]
    assert names[4:] == [*(f"position_{at:02}" for at in range(12)), "row_image"]


def test_json_keeps_microseconds_and_null_columns(spark: SparkSession, tmp_path: Path) -> None:
    sink = to_files(tmp_path / "log", "json")
    sink.write(changes(spark, 0, (1, "a", None)), 0, "query", "out")
    (row,) = spark.read.schema("_timestamp TIMESTAMP").json(sink.path).collect()
    assert row._timestamp == START.replace(tzinfo=None)
    assert spark.read.json(sink.path).columns[:4] == ["_change_type", "_order", "_timestamp", "k.2"]
    assert "v" in spark.read.json(sink.path).columns


@pytest.mark.parametrize(
    ("zone", "time", "written"),
    [
        ("America/New_York", "1850-06-01 12:00:00.5", "1850-06-01T12:00:00.500000-04:56:02"),
        ("America/New_York", "2024-06-01 12:00:00.5", "2024-06-01T12:00:00.500000-04:00"),
        ("UTC", "2024-06-01 12:00:00.5", "2024-06-01T12:00:00.500000Z"),
        ("Asia/Kolkata", "1900-06-01 12:00:00", "1900-06-01T12:00:00.000000+05:21:10"),
        ("Asia/Kolkata", "2024-06-01 12:00:00", "2024-06-01T12:00:00.000000+05:30"),
    ],
)
def test_json_keeps_the_seconds_of_a_zones_offset(
    spark: SparkSession, tmp_path: Path, zone: str, time: str, written: str
) -> None:
    """And of an offset without seconds it writes none."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        when = F.lit(time).cast(TimestampType())
        rows = changes(spark, 0, (1, "a", None)).withColumn("at", when)
        expected = rows.select(F.unix_micros("at")).collect()
        sink = to_files(tmp_path / "log", "json")
        sink.write(rows, 0, "query", "out")
        (text,) = spark.read.schema("at STRING").json(sink.path).collect()
        assert text.at == written
        again = spark.read.schema("at TIMESTAMP").json(sink.path)
        assert again.select(F.unix_micros("at")).collect() == expected
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))


@pytest.mark.parametrize("time", ["1850-06-01 12:00:00.123456", "2024-06-01 12:00:00.123456"])
def test_json_keeps_times_under_the_legacy_time_parser(
    spark: SparkSession, tmp_path: Path, time: str
) -> None:
    """It does not know the pattern for offsets with seconds."""
    legacy = {"spark.sql.session.timeZone": "America/New_York", "spark.sql.legacy.timeParserPolicy": "LEGACY"}
    before = {name: str(spark.conf.get(name)) for name in legacy}
    try:
        for name, value in legacy.items():
            spark.conf.set(name, value)
        rows = changes(spark, 0, (1, "a", None)).withColumn("at", F.lit(time).cast(TimestampType()))
        sink = to_files(tmp_path / "log", "json")
        sink.write(rows, 0, "query", "out")
        written = spark.read.schema("at TIMESTAMP").options(**json_options()).json(sink.path)
        shown = written.select(F.to_json(F.struct("at"), json_options()).alias("text"))
        read = shown.select(F.from_json("text", "at TIMESTAMP", json_options()).at.alias("at"))
        expected = rows.select(F.unix_micros("at")).collect()
        assert read.select(F.unix_micros("at")).collect() == expected
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


@pytest.mark.parametrize("name", ["micro_batch", "Micro_Batch"])
def test_a_column_that_is_called_like_the_directories_is_refused(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """It would be read as their number. Before the query starts, and whether it is of the key or of the value."""
    (tmp_path / "in").mkdir()
    log = from_files(spark, tmp_path / "in", "json", f"id int, {name} int")
    for key in ("id", name):
        output = table(log, key, order_by="id", name="numbers").to(to_files(tmp_path / "log"))
        with pytest.raises(
            ReservedNameError, match=f"have a column {name}: it would be read as their number"
        ):
            start(output, checkpoint=str(tmp_path / "checkpoint"))
    assert not (tmp_path / "checkpoint").exists()


def test_log_is_read_by_others_and_again_by_read_files(spark: SparkSession, tmp_path: Path) -> None:
    sink = to_files(tmp_path / "log")
    for number in (0, 1):
        sink.write(changes(spark, number, (number, "a", "x")), number, "query", "out")
    found = (
        duckdb.connect()
        .execute(f"SELECT micro_batch, k1 FROM '{sink.path}/*/*.parquet' ORDER BY 1")
        .fetchall()
    )
    assert found == [(0, 0), (1, 1)]
    frame = from_files(spark, sink.path, "parquet", "k1 INT, v STRING")
    rows: list[int] = []
    writer = frame.writeStream.foreachBatch(lambda part, _: rows.extend(row.k1 for row in part.collect()))
    writer.option("checkpointLocation", str(tmp_path / "c")).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert sorted(rows) == [0, 1]


def test_empty_micro_batch_can_be_read(spark: SparkSession, tmp_path: Path) -> None:
    sink = to_files(tmp_path / "log")
    sink.write(changes(spark, 0), 0, "query", "out")
    assert spark.read.parquet(sink.path).count() == 0


def test_log_of_another_query_is_not_mixed_in(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = to_files(tmp_path / "log")
    sink.write(changes(spark, 0, (1, "a", "x")), 0, "query", "out")
    with pytest.raises(PlanError, match=r"another query \(query\)"):
        sink.write(changes(spark, 0, (2, "b", "y")), 0, "another", "out")
    relative = os.path.relpath(tmp_path / "log")
    with pytest.raises(PlanError, match=rf" {relative} \(file:{tmp_path}/log\) holds the changelog"):
        to_files(relative).write(changes(spark, 0, (2, "b", "y")), 0, "another", "out")
    monkeypatch.setattr(module, "_OWNERS", {})  # as after a restart of the process
    sink.write(changes(spark, 1, (3, "c", "z")), 1, "query", "renamed")
    assert sorted(row.k1 for row in spark.read.parquet(sink.path).collect()) == [1, 3]


@pytest.mark.parametrize("mark", ["query", "query/out"])  # older versions added the output's name
def test_the_owner_of_a_log_is_known_before_the_query_starts(
    spark: SparkSession, tmp_path: Path, mark: str
) -> None:
    def settle(query_id: str) -> None:
        to_files(tmp_path / "log").at(Moment(0, query_id)).settle(spark, StructType(), lambda: spark.range(0))

    settle("")
    (tmp_path / "log" / OWNER).mkdir(parents=True)
    (tmp_path / "log" / OWNER / "part-0.txt").write_text(f"{mark}\n")
    settle("query")
    for other in ("", "another"):
        with pytest.raises(PlanError, match=r"another query \(query\)"):
            settle(other)


def test_options_are_sparks(spark: SparkSession, tmp_path: Path) -> None:
    sink = to_files(tmp_path / "log", "json", options={"compression": "gzip", "ignoreNullFields": True})
    sink.write(changes(spark, 0, (1, "a", None)), 0, "query", "out")
    assert list((tmp_path / "log").glob("*/*.json.gz"))
    assert "v" not in spark.read.json(sink.path).columns


def test_arguments_that_are_refused() -> None:
    with pytest.raises(ArgumentError, match="csv"):
        to_files("out", "csv")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="empty"):
        to_files("")
