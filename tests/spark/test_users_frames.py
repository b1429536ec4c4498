"""Frames and names as users bring them: zones, orders, columns that are called like the library's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import tablestream as ts
from tablestream.errors import ArgumentError
from tests.marks import quick_first
from tests.spark.change_logs import ChangeLog, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tablestream.connectors.memory.sink import MemorySink

SCHEMA = "id int, port int, shard string, blob string, at timestamp, seq int"
_ZONE = "spark.sql.session.timeZone"


@pytest.fixture
def log(tmp_path: Path) -> ChangeLog:
    log = ChangeLog(tmp_path / "log", SCHEMA)
    log.add(rows(1), rows(2))
    return log


@pytest.fixture(params=quick_first(["America/New_York", "UTC", "GMT+8"]))
def zone(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    before = spark.conf.get(_ZONE)
    spark.conf.set(_ZONE, request.param)
    yield request.param
    spark.conf.set(_ZONE, str(before))


def rows(number: int) -> list[dict[str, Any]]:
    at = f"2024-11-03T0{number}:30:00.000001Z"  # clocks go back in New York at 06:00
    return [
        {
            "id": n,
            "port": (n + number) % 3,
            "shard": f"s{n}",
            "blob": f"b{number}",
            "at": at,
            "seq": number * 10 + n,
        }
        for n in range(3)
    ]


def test_timestamps_are_the_same_in_every_zone(
    spark: SparkSession, log: ChangeLog, tmp_path: Path, zone: str
) -> None:
    table = ts.table(
        log.read(spark),
        ["id", "at"],
        timestamp="at",
        columns=["port", F.col("at").alias("seen")],
        name="seen",
    )
    joined = table.join(table.select("port", F.struct("seen").alias("in")), how="outer", suffixes=("", "_2"))
    sink = ts.to_memory(f"zones {zone}")
    run(joined.to(sink), checkpoint=tmp_path / "checkpoint")
    same = [row.at == row.seen == row["in"].seen for row in sink.rows()]
    assert same == [True] * 6
    assert {row["_timestamp"].isoformat() for row in sink.rows()} == {
        "2024-11-03T01:30:00.000001", "2024-11-03T02:30:00.000001",
    }  # fmt: skip


@pytest.fixture
def timestamps_without_zone(spark: SparkSession) -> Iterator[None]:
    """What SQL means by the word timestamp in this session."""
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    yield
    spark.conf.unset("spark.sql.timestampType")


@pytest.mark.usefixtures("timestamps_without_zone")
def test_the_word_timestamp_may_mean_one_without_a_zone(spark: SparkSession, tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "log", SCHEMA)
    log.add(*([one | {"at": one["at"].removesuffix("Z")} for one in rows(number)] for number in (1, 2)))
    frame = log.read(spark)
    assert dict(frame.dtypes)["at"] == "timestamp_ntz"
    table = ts.table(frame, "id", timestamp="at", columns=["port", "at"], history="1 day", name="seen")
    sink, rejected = ts.to_memory("no zone"), ts.to_memory("no zone, rejected")
    checkpoint = tmp_path / "checkpoint"
    far, delta = ts.to_memory("no zone, far"), ts.to_delta(tmp_path / "delta", writer="spark")
    later = table.with_columns(far=F.expr("timestamp_ntz'+20000-01-01 00:00:00'"))
    outputs = (
        table.to(sink, name="seen"), table.rejected().to(rejected, name="rejected"),
        later.to(far, name="far"), table.to(delta, name="delta"),
    )  # fmt: skip
    run(*outputs, checkpoint=checkpoint)
    assert [row["_timestamp"] == row.at for row in sink.rows()] == [True] * 6
    assert {row.far for row in far.rows()} == {"+20000-01-01 00:00:00"}
    assert spark.read.format("delta").load(str(tmp_path / "delta")).count() == 3
    read = ts.read_state(spark, checkpoint, "seen", as_of="2024-11-03 02:00:00")
    assert {kind for name, kind in read.dtypes if name.startswith(("_", "valid"))} == {"timestamp"}
    assert sorted(row.port for row in read.collect()) == [0, 1, 2]


def test_a_kafka_frame_whose_timestamp_is_no_time_asks_for_one(spark: SparkSession, tmp_path: Path) -> None:
    columns = "topic string, partition int, offset bigint, id int"
    for kind in ("bigint", "string"):
        log = ChangeLog(tmp_path / kind, f"{columns}, timestamp {kind}").read(spark)
        with pytest.raises(
            ArgumentError, match=f"column timestamp, which is .* has the type {kind}"
        ) as caught:
            ts.table(log, "id", name="records")
        assert "Give timestamp=" in caught.value.hint
        assert (caught.value.operator, caught.value.code) == ("records", ArgumentError.code)
        ts.table(log, "id", timestamp=F.timestamp_millis(F.col("timestamp").cast("bigint")))
    ts.table(ChangeLog(tmp_path / "ntz", f"{columns}, timestamp timestamp_ntz").read(spark), "id")


def test_an_order_that_is_no_bigint_with_one_side_empty(
    spark: SparkSession, log: ChangeLog, tmp_path: Path
) -> None:
    """In the second micro-batch only one of two tables has records."""
    other = ChangeLog(tmp_path / "other", SCHEMA)
    other.add(rows(1))
    left, right = (
        ts.table(one.read(spark), "id", timestamp="at", columns=["port"], order_by="seq", name=name)
        for one, name in ((log, "left"), (other, "right"))
    )
    sink = ts.to_memory("orders")
    run(left.join(right, suffixes=("", "_2")).to(sink), checkpoint=tmp_path / "checkpoint")
    assert [(row.id, row.port, row.port_2, row["_order"]["time"]) for row in sink.rows()] == [
        (n, (n + number) % 3, (n + 1) % 3, number * 10 + n) for number in (1, 2) for n in range(3)
    ]


def test_columns_may_be_called_as_on_the_way_between_rounds(
    spark: SparkSession, log: ChangeLog, tmp_path: Path
) -> None:
    ships = ts.table(log.read(spark), "id", timestamp="at", except_columns=["at", "seq"], name="ships")
    ports = ts.table(
        log.read(spark), "id", timestamp="at", columns=[F.col("shard").alias("place")], name="ports"
    )
    crews = ts.table(
        log.read(spark), "id", timestamp="at", columns=[F.col("blob").alias("crew")], name="crews"
    )
    sink = ts.to_memory("ports")
    run(ships.join(ports, on="port").join(crews).to(sink), checkpoint=tmp_path / "checkpoint")
    last = {row.id: (row.port, row.shard, row.blob, row.place, row.crew) for row in sink.rows()}
    assert last == {n: ((n + 2) % 3, f"s{n}", "b2", f"s{(n + 2) % 3}", "b2") for n in range(3)}


def test_a_struct_whose_parts_are_never_null_may_be_absent(
    spark: SparkSession, log: ChangeLog, tmp_path: Path
) -> None:
    table = ts.table(log.read(spark), "id", timestamp="at", columns=["port"], name="parts")
    made = table.select(F.struct(F.lit("x").alias("kind"), "port").alias("made"), delete_when="port = 0")
    sink = ts.to_memory("never null")
    run(table.join(made, how="left").to(sink), checkpoint=tmp_path / "checkpoint")
    last = {row.id: row.made and (row.made.kind, row.made.port) for row in sink.rows()}
    assert last == {0: ("x", 2), 1: None, 2: ("x", 1)}


def test_two_tables_of_one_name_are_counted_apart(
    spark: SparkSession, log: ChangeLog, tmp_path: Path
) -> None:
    log.add([{"at": "2024-11-03T05:00:00Z"}])
    tables = [
        ts.table(log.read(spark), "id", timestamp="at", columns=[F.col("port").alias(f"p{n}")])
        for n in range(2)
    ]
    counts = run(tables[0].join(tables[1]).to(ts.to_memory("twins")), checkpoint=tmp_path / "checkpoint")
    assert {name: counts[name] for name in ("table: null-key", "table_2: null-key")} == {
        "table: null-key": 1,
        "table_2: null-key": 1,
    }


# Rows that are not there


def left_in(sink: MemorySink) -> set[tuple[Any, ...]]:
    """The rows that the changes of a table with a key of one column have left."""
    last = {row[0]: row for row in sink.rows()}
    return {tuple(row)[:-3] for row in last.values() if row["_change_type"] == "upsert"}


#: Fails on a null, which is in no row.
SHARE = "cast(100 / coalesce(port, 0) as int)"


def test_what_points_is_evaluated_only_where_there_is_a_row(spark: SparkSession, tmp_path: Path) -> None:
    """Not at a delete, and not for a row without a partner; Spark would end the query."""
    log = ChangeLog(tmp_path / "log", SCHEMA)
    log.add([{"id": 1, "port": 50}, {"id": 2, "port": 5}, {"id": 3, "port": 1}, {"id": 2}, {"id": 9}])
    table = ts.table(log.read(spark), "id", columns=["port"], apply_as_deletes="port is null", name="table")
    others = table.select(F.col("port").alias("other"))
    paired = table.join(others.filter("other < 50"))
    pointing = paired.join(others, on=F.expr(SHARE), how="left", suffixes=("", "_2"))
    sink = ts.to_memory("pointing")
    run(pointing.to(sink), checkpoint=tmp_path / "checkpoint", shards=1)
    assert left_in(sink) == {(3, 1, 1, None)}


def test_an_expression_is_not_evaluated_on_a_record_that_could_not_be_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = ChangeLog(tmp_path / "log", SCHEMA)
    log.add([{"id": 1, "port": 50}], ["no record", {"id": 2, "port": 20}])
    share, sink = F.expr(SHARE), ts.to_memory("readable")
    table = ts.table(
        log.read(spark, mode="drop"),
        share.alias("key"),
        columns=[share.alias("value")],
        timestamp=F.timestamp_seconds(share),
        order_by=share,
        apply_as_deletes=share < 0,
        name="table",
    )
    counts = run(table.to(sink), checkpoint=tmp_path / "checkpoint")
    assert [(row.key, row.value) for row in sink.rows()] == [(2, 2), (5, 5)]
    assert counts["table: malformed"] == 1


def test_what_a_python_function_makes_of_no_row_is_thrown_away(spark: SparkSession, tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "log", SCHEMA)
    log.add([{"id": 1, "port": 1}, {"id": 2, "port": 1}, {"id": 2}, {"id": 9}])
    table = ts.table(log.read(spark), "id", columns=["port"], apply_as_deletes="port is null", name="table")
    same = F.udf(lambda port: 1 if port is None else port, "int")("port")
    outputs = {
        "filter": table.filter(same == 1),
        "select": table.select(same.alias("s")),
        "group": table.group_by(same.alias("g")).agg(n=ts.functions.count(), most=ts.functions.max(same)),
        "join": table.join(table.select(F.col("port").alias("other")), on=same),
    }
    sinks = {name: ts.to_memory(f"functions {name}") for name in outputs}
    run(
        *(one.to(sinks[name], name=name) for name, one in outputs.items()), checkpoint=tmp_path / "checkpoint"
    )
    rows = {name: left_in(sink) for name, sink in sinks.items()}
    assert rows == {"filter": {(1, 1)}, "select": {(1, 1)}, "group": {(1, 1, 1)}, "join": {(1, 1, 1)}}
