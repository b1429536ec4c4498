"""Tables read from the state of a query: as its changes left them, now, earlier, and as of a time."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from typer.testing import CliRunner

import tablestream as ts
from tablestream import functions as tf
from tablestream.cli import app
from tablestream.errors import (
    ArgumentError,
    ColumnCollisionError,
    NotVersionedError,
    StateError,
)
from tablestream.spark import local_spark, state_reader
from tests.cli.programs import done as program_done
from tests.conftest import in_partitions
from tests.spark.change_logs import ALL, START, ChangeLog, run
from tests.spark.test_types import COLUMNS, KEYS, VALUES, canonical, shown, stream

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "kind string, k string, to string, v int, x double, at bigint"


def at(
    kind: str, key: str, time: int, value: int | None, to: str = "a", x: float | None = None
) -> dict[str, Any]:
    return {"kind": kind, "k": key, "to": to, "v": value, "x": x, "at": START + time}


def rows(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Some columns, times from the start, in order."""

    def plain(value: Any) -> Any:
        return round(value.timestamp()) - START if isinstance(value, datetime) else value

    wanted = columns or frame.columns
    return sorted((tuple(plain(row[name]) for name in wanted) for row in frame.collect()), key=repr)


class Query:
    """A query whose micro-batches are files of one log, told apart by their kind."""

    def __init__(self, spark: SparkSession, path: Path, name: str) -> None:
        self.spark, self.log, self.name = spark, ChangeLog(path / "log", SCHEMA), name
        self.checkpoint = path / "checkpoint"

    def frame(self, kind: str) -> DataFrame:
        return self.log.read(self.spark).where(F.col("kind") == kind)

    def table(self, kind: str, name: str, make: Any = ts.table, **options: Any) -> Any:
        times = {"timestamp": F.timestamp_seconds("at"), "apply_as_deletes": "v is null"}
        return make(self.frame(kind), "k", name=name, columns=["to", "v", "x"], **times, **options)

    def run(self, *tables: Any, shards: int = 3) -> None:
        outputs = [one.to(ts.to_memory(f"{self.name} {one.name}")) for one in tables]
        run(*outputs, checkpoint=self.checkpoint, shards=shards)

    def read(self, table: str, *columns: str, **options: Any) -> list[tuple[Any, ...]]:
        return rows(ts.read_state(self.spark, self.checkpoint, table, **options), *columns)


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Query:
    return Query(spark, tmp_path, request.node.name)


def test_what_operators_remember_is_read_as_the_tables_it_is_of(query: Query) -> None:
    query.log.add(
        [at("L", "a", 1, 1, "a", 0.1), at("L", "b", 2, 2, "b", 0.2), at("L", "c", 2, 9), at("R", "a", 3, 10)],
        [at("L", "b", 5, 3, "a", 0.2), at("L", "c", 6, None), at("R", "b", 7, 20), at("R", "c", 8, None)],
    )
    left, right = query.table("L", "left"), query.table("R", "right")
    small, looked_up = query.table("R", "small", ts.global_table), query.table("R", "looked up")
    groups = left.group_by("to").agg(n=tf.count(), sum=tf.sum("x"), all=tf.collect_list("v"), name="groups")
    folded = left.group_by("to", value=["v"]).aggregate(
        lambda: 0, lambda _, row, total: total + row.v, lambda _, row, total: total - row.v, "total int", name="folded"
    )  # fmt: skip
    pointing = left.join(right, on="to", how="left", suffixes=("", "_r"), name="pointing")
    copied = left.join(small, on="to", suffixes=("", "_s"), name="copied")
    star = left.join_many(
        ts.lookup(looked_up, on="to", how="left", select=lambda one, other: [one.v, other.v.alias("w")])
    )
    kept = right.filter("v > 10").materialize(name="kept")
    query.run(groups, folded, pointing, copied, star, kept)

    assert query.read("left") == [("a", "a", 1, 0.1, 1), ("b", "a", 3, 0.2, 5)]
    for name in ("right", "small", "looked up"):
        assert query.read(name) == [("a", "a", 10, None, 3), ("b", "a", 20, None, 7)]
    assert query.read("groups") == [("a", 2, 0.1 + 0.2, [1, 3], 6)]
    assert query.read("folded") == [("a", 4, 6)]
    assert query.read("kept") == [("b", "a", 20, None, 7)]
    assert query.read("left", batch_id=0) == [
        ("a", "a", 1, 0.1, 1), ("b", "b", 2, 0.2, 2), ("c", "a", 9, None, 2),
    ]  # fmt: skip
    told = ts.read_state(query.spark, query.checkpoint, "groups").schema
    assert {one.name: one.dataType.simpleString() for one in told} == {
        "to": "string", "n": "bigint", "sum": "double", "all": "array<int>", "_timestamp": "timestamp",
    }  # fmt: skip
    with pytest.raises(
        ArgumentError, match=r"does not have the rows.*materialize\(\).*groups, .*left, .*kept"
    ):
        query.read("pointing")
    with pytest.raises(ArgumentError, match=r"has no table 'lift'.*left"):
        query.read("lift")


def test_what_waits_in_a_buffer_is_read_as_the_changes_that_it_will_be(query: Query) -> None:
    query.log.add(
        [at("L", "a", 10, 1), at("L", "b", 11, 2), at("S", "s", 10, 5, "x"), at("T", "x", 1, 7, "x")],
        [at("L", "a", 12, 3), at("L", "b", 13, None), at("S", "s", 12, 6, "x"), at("S", "u", 11, 8, "y")],
    )
    held = query.table("L", "left").suppress("1 minute", name="held")
    prices = query.table("T", "prices", history="1 hour")
    records, sorted_ones = (
        query.table("S", "records", ts.stream),
        query.table("L", "sorted", reorder="20 seconds"),
    )
    joined = records.join(prices, on="to", suffixes=("", "_t"), grace="1 minute", name="joined")
    query.run(held, joined, sorted_ones.select("v", name="shown"))

    assert query.read("held.waiting", "k", "v", "_timestamp", "_change_type") == [
        ("a", 3, 12, "upsert"),
        ("b", None, 13, "delete"),
    ]
    assert query.read("held.waiting", "v", batch_id=0) == [(1,), (2,)]
    assert query.read("held.waiting", "v", key="a") == [(3,)]
    assert query.read("joined.waiting", "k", "to", "v", "_timestamp") == [
        ("s", "x", 5, 10), ("s", "x", 6, 12), ("u", "y", 8, 11),
    ]  # fmt: skip
    assert query.read("joined.waiting", "v", key={"k": "s"}) == [(5,), (6,)]
    assert query.read("sorted.waiting", "k", "v", "_change_type") == [
        ("a", 1, "upsert"), ("a", 3, "upsert"), ("b", 2, "upsert"), ("b", None, "delete"),
    ]  # fmt: skip
    with pytest.raises(NotVersionedError, match=r"held\.waiting"):
        query.read("held.waiting", as_of="2024-01-01")
    with pytest.raises(ArgumentError, match=r"rows of 'held'.*held\.waiting.*joined\.waiting"):
        query.read("held")


def test_a_materialized_table_and_an_output_are_found_by_their_names(query: Query) -> None:
    query.log.add([at("L", "a", 1, 1), at("R", "a", 2, 10)])
    left, right = query.table("L", "left"), query.table("R", "right")
    priced = left.join(right, on="to", suffixes=("", "_r"), name="priced").materialize()
    shown = right.select("v", name="large").materialize(name="kept")
    output = shown.to(ts.to_memory(f"{query.name} kept"), name="shown")
    run(priced.to(ts.to_memory(f"{query.name} priced")), output, checkpoint=query.checkpoint, shards=2)

    for name in ("priced", "priced_materialized"):
        assert query.read(name, "k", "v", "v_r") == [("a", 1, 10)]
    for name in ("kept", "large", "shown"):
        assert query.read(name, "k", "v", key="a") == [("a", 10)]


def test_versions_are_read_in_their_history_and_as_of_a_time(query: Query) -> None:
    query.log.add(
        [at("T", "a", 10, 1), at("T", "a", 20, 2), at("T", "b", 5, 7), at("S", "a", 12, 0)],
        [at("T", "a", 14, 3), at("T", "b", 22, None), at("T", "a", 30, 4)],
    )
    table = query.table("T", "prices", history="15 seconds")
    flat = table.select("v", name="flat")
    records = query.table("S", "records", ts.stream)
    query.run(
        flat.join(query.table("S", "other"), name="flat joined", suffixes=("", "_o")),
        records.join(table, name="found", how="left", suffixes=("", "_t")),
        shards=1,
    )
    columns = ("k", "v", "_timestamp", "valid_from", "valid_to")
    assert query.read("prices", *columns) == [
        ("a", 1, 10, 10, 14), ("a", 2, 20, 20, 30), ("a", 3, 14, 14, 20), ("a", 4, 30, 30, None),
        ("b", 7, 5, 5, 22),
    ][1:]  # fmt: skip
    early = datetime.fromtimestamp(START + 18, UTC)
    text = early.strftime("%Y-%m-%d %H:%M:%S")
    for as_of in (early, f"{text} UTC"):
        assert query.read("prices", *columns, as_of=as_of) == [("a", 3, 14, 14, 20), ("b", 7, 5, 5, 22)]
    assert query.read("prices", *columns, as_of=text, batch_id=0) == [
        ("a", 1, 10, 10, 20),
        ("b", 7, 5, 5, None),
    ]
    assert query.read("prices", "v", as_of="2100-01-01") == [(4,)]
    begin = datetime.fromtimestamp(START + 15, UTC).strftime("%Y-%m-%d %H:%M:%S")
    with pytest.raises(
        ArgumentError, match=f"does not reach back to that time: its history begins at {begin}"
    ):
        query.read("prices", as_of="2000-01-01")
    for nothing in ("yesterday evening", 7, datetime):
        with pytest.raises(ArgumentError, match="is not a time"):
            query.read("prices", as_of=nothing)
    assert query.read("flat") == [("a", 4, 30)]
    with pytest.raises(NotVersionedError, match=r"'flat'.*only the latest"):
        query.read("flat", as_of=text)

    query.spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        assert query.read("prices", "v", as_of=text) == [(4,)]
    finally:
        query.spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_a_versioned_table_with_columns_of_these_names_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = ChangeLog(tmp_path / "log", "id int, Valid_From int, at bigint")
    log.add([{"id": 1, "Valid_From": 2, "at": START}])
    times: dict[str, Any] = {"timestamp": F.timestamp_seconds("at")}
    plain = ts.table(log.read(spark), "id", name="plain", **times)
    versioned = ts.table(log.read(spark), "id", history="1 second", name="versioned", **times)
    outputs = plain.materialize(name="kept").to(ts.to_memory("kept")), versioned.to(ts.to_memory("versioned"))
    run(*outputs, checkpoint=tmp_path / "checkpoint")
    assert rows(ts.read_state(spark, tmp_path / "checkpoint", "kept")) == [(1, 2, START, 0)]
    with pytest.raises(ColumnCollisionError, match="'versioned' has a column Valid_From"):
        ts.read_state(spark, tmp_path / "checkpoint", "versioned")


def test_values_of_all_types_survive(spark: SparkSession, tmp_path: Path) -> None:
    """Also as of a query that Spark itself writes, and with the row before a change."""
    values = [(None,) * len(VALUES), *zip_longest(*VALUES.values())]
    schema = ", ".join(["id int", *(f"{name} {kind}" for name, kind in COLUMNS.items())])
    frame = stream(spark, tmp_path / "in", [(n, *row) for n, row in enumerate(values)], schema)
    table = ts.table(frame, "id", timestamp=F.timestamp_seconds("id"), name="table")
    changes = table.changes(before=True).writeStream.format("noop").trigger(**ALL)
    changes.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    read = ts.read_state(spark, tmp_path / "checkpoint", "table")
    given = spark.read.schema(schema).parquet(str(tmp_path / "in"))
    assert [(one.name, one.dataType) for one in read.drop("_timestamp").schema] == [
        (one.name, one.dataType) for one in given.schema
    ]
    names = ["id", *COLUMNS]
    assert sorted(shown(row, names) for row in read.collect()) == sorted(
        shown(row, names) for row in given.collect()
    )


def test_keys_of_all_types_survive_and_are_found(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As parts of one key; types with few values repeat them."""
    most = max(map(len, KEYS.values()))
    values = [tuple(kind[n % len(kind)] for kind in KEYS.values()) for n in range(most)]
    names = [f"k{number}" for number in range(len(KEYS))]
    schema = ", ".join(["id int", *(f"{name} {kind}" for name, kind in zip(names, KEYS, strict=True))])
    frame = stream(spark, tmp_path / "in", [(n, *row) for n, row in enumerate(values)], schema)
    table = ts.table(frame, names, columns=["id"], order_by="id", name="table")
    run(table.materialize(name="kept").to(ts.to_memory("keys")), checkpoint=tmp_path / "checkpoint")
    read = ts.read_state(spark, tmp_path / "checkpoint", "kept")
    assert [one.dataType for one in read.schema][:-2] == [frame.schema[name].dataType for name in names]
    wanted = {canonical(row): n for n, row in enumerate(values)}
    rows_read = read.collect()
    assert {canonical(tuple(row)[:-2]): row["id"] for row in rows_read} == wanted
    monkeypatch.setattr(state_reader, "stored_frame", None)  # which looks for a key in all partitions
    for row in rows_read[::3]:
        key = {name: row[name] for name in names}
        (found,) = ts.read_state(spark, tmp_path / "checkpoint", "kept", key=key).collect()
        assert repr(found) == repr(row)


def tasks(spark: SparkSession, group: str) -> list[int]:
    """The number of tasks of each stage that ran for a group of jobs."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [job for number in tracker.getJobIdsForGroup(group) if (job := tracker.getJobInfo(number))]
    stages = [tracker.getStageInfo(one) for job in jobs for one in job.stageIds]
    return [one.numTasks for one in stages if one is not None]


def test_a_key_is_read_from_the_partition_of_its_shard(query: Query) -> None:
    spark, keys = query.spark, [f"k{number}" for number in range(30)]
    query.log.add([at("T", key, 1, number) for number, key in enumerate(keys)], [at("T", "k7", 5, 70)])
    table = query.table("T", "table", history="1 hour")
    with in_partitions(spark, 8):
        query.run(table, table.select("v", name="flat").materialize(name="kept"), shards=8)
    whole = dict(query.read("kept", "k", "v"))
    spark.sparkContext.setJobGroup("one key", "")
    try:
        for key in keys[::5]:
            assert query.read("kept", "k", "v", key=key) == [(key, whole[key])]
        assert query.read("table", "v", "valid_from", key={"k": "k7"}) == [(7, 1), (70, 5)]
        early = datetime.fromtimestamp(START + 3, UTC)
        assert query.read("table", "v", key="k7", as_of=early) == [(7,)]
        assert query.read("kept", "v", key="k7", batch_id=0) == [(7,)]
        assert max(tasks(spark, "one key")) <= 2  # Spark gives the rows that a frame holds to all cores
        query.read("kept")
        assert max(tasks(spark, "one key")) >= 8
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", "")
    for wrong in ({"v": 1}, {}, {"k": "a", "v": 1}):
        with pytest.raises(ArgumentError, match="The key of 'kept' has the columns k, not"):
            query.read("kept", key=wrong)


def test_a_key_that_is_compared_as_another_type_has_its_own(query: Query) -> None:
    log = query.log.read(query.spark)
    query.log.add([at("T", "7", 1, 1)])
    narrow = ts.table(log, F.expr("cast(k as int)").alias("k"), columns=["v"], name="narrow")
    wide = ts.table(log, F.expr("cast(k as decimal(20,2))").alias("k"), columns=["v"], name="wide")
    query.run(narrow.join(wide, suffixes=("", "_w"), name="both"))
    read = ts.read_state(query.spark, query.checkpoint, "narrow")
    assert read.schema["k"].dataType.simpleString() == "int"
    assert [row["k"] for row in read.collect()] == [7]


def test_what_is_no_state_is_told_from_what_is_not_there_any_more(query: Query, tmp_path: Path) -> None:
    spark, checkpoint = query.spark, query.checkpoint

    def refused(why: str, where: Any = checkpoint, table: Any = "kept", **options: Any) -> None:
        with pytest.raises((StateError, ArgumentError), match=why):
            ts.read_state(spark, where, table, **options)

    (tmp_path / "empty").mkdir()
    for nothing in ("missing", "empty"):
        refused("is not the checkpoint of a query.*Give the directory", tmp_path / nothing)
    refused(r" no/where \(file:/.+/no/where\) is not the checkpoint of a query.", "no/where")
    table = query.table("T", "table")
    query.log.add([at("X", "a", 1, 1)])
    plain = (
        query.frame("X").groupBy("k").count().writeStream.format("noop").outputMode("complete").trigger(**ALL)
    )
    plain.option("checkpointLocation", str(tmp_path / "plain")).start().awaitTermination()
    refused("has no state of tables", tmp_path / "plain")
    query.run(table.materialize(name="kept"))
    refused("has no rows of any table yet")
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "2")
    try:
        query.log.add(*([at("T", "a", time, time)] for time in range(6)))
        query.run(table.materialize(name="kept"))
    finally:
        spark.conf.unset("spark.sql.streaming.minBatchesToRetain")
    refused("has the state after the micro-batches 4 to 6, not that after 1", batch_id=1)
    refused("not that after 7", batch_id=7)
    assert [query.read("kept", "v", batch_id=number) for number in (4, 5, 6)] == [[(3,)], [(4,)], [(5,)]]
    refused("batch_id='6' is not the number", batch_id="6")
    refused("table=7 is not the name", table=7)
    refused("checkpoint=7 is not the path", where=7)
    line = r"\(called at test_read_state\.py:[0-9]+\)"  # who reads a state has built nothing
    refused(f"^.*The query has no table 'tabel'\\. {line} Tables that can be read: kept", table="tabel")
    refused(f"not that after 1\\. {line} Give batch_id=", batch_id=1)


def test_the_command_prints_a_table(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    query.log.add([at("T", key, time, time) for time, key in enumerate("abc")])
    query.run(query.table("T", "table", history="1 hour"))
    monkeypatch.setattr(local_spark, "local_spark", lambda *_, **__: contextlib.nullcontext(query.spark))

    def said(*options: str) -> list[str]:
        result = CliRunner().invoke(app, ["state", str(query.checkpoint), "table", *options])
        assert result.exit_code == 0, result.output
        return result.stdout.splitlines()

    lines = sorted(map(json.loads, said("--json")), key=lambda row: str(row["k"]))
    assert [(line["k"], line["v"], line["x"], line["valid_to"]) for line in lines] == [
        ("a", 0, None, None), ("b", 1, None, None), ("c", 2, None, None),
    ]  # fmt: skip
    assert lines[1]["_timestamp"] == lines[1]["valid_from"] == "2023-11-14T22:13:21.000000Z"
    assert said()[0].strip() == "table: 3 rows"
    assert said("--limit", "2")[0].strip() == "table: the first 2 rows"
    (one,) = said("--json", "--as-of", "2023-11-14 22:13:20", "--batch-id", "0")
    assert json.loads(one)["k"] == "a"
    result = CliRunner().invoke(app, ["state", str(query.checkpoint), "tables"])
    assert result.exit_code == 2
    assert "TABLESTREAM_ARGUMENT: The query has no table 'tables'." in result.stderr
    assert "Tables that can be read: table." in result.stderr


@pytest.mark.exhaustive
def test_the_command_starts_a_spark_of_its_own(query: Query) -> None:
    query.log.add([at("T", "a", 1, 1)])
    query.run(query.table("T", "table").materialize(name="kept"))
    done = program_done("-m", "tablestream", "state", str(query.checkpoint), "kept", "--json")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["k"] for line in done.stdout.splitlines()] == ["a"]
