"""Delta tables by delta-rs: in a session without Delta Lake, beside Spark's writer, and what is left to Spark."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyspark.sql.types import IntegerType, StructType

import tablestream as ts
from tablestream.connectors.delta import sink as delta
from tablestream.connectors.delta.by_delta_rs import RsTable
from tablestream.connectors.delta.by_spark import SparkTable
from tablestream.connectors.delta.marks import DeltaMark, last_mark
from tablestream.connectors.delta.sink import DeltaMode, DeltaSink, to_delta
from tablestream.errors import ArgumentError, PlanError, SessionSettingError
from tests.connectors.changes import KEY, changes
from tests.spark.change_logs import ChangeLog, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def plain(delta_spark: SparkSession) -> SparkSession:
    """A session that is not set up for Delta Lake."""
    other = delta_spark.newSession()
    other.conf.unset("spark.sql.catalog.spark_catalog")
    return other


def test_a_plain_session_maintains_a_table_that_every_reader_reads(
    plain: SparkSession, tmp_path: Path
) -> None:
    log, path = ChangeLog(tmp_path / "in", "id int, n int"), tmp_path / "table"
    log.add([{"id": one, "n": one} for one in range(4)])
    table = ts.table(log.read(plain, max_files_per_trigger=1), "id", name="ids")

    def follow() -> None:
        run(
            table.to(to_delta(path)),
            table.to(to_delta(tmp_path / "log", mode="changes"), name="log"),
            checkpoint=tmp_path / "checkpoint",
            shards=1,
        )

    follow()
    log.add([{"id": 1, "n": 10}, {"id": 9, "n": 90}])
    follow()
    wanted = [(0, 0), (1, 10), (2, 2), (3, 3), (9, 90)]
    assert sorted(pl.read_delta(str(path)).rows()) == wanted
    assert sorted(duckdb.from_arrow(DeltaTable(str(path)).to_pyarrow_table()).fetchall()) == wanted
    changed = pl.read_delta(str(tmp_path / "log")).sort("_order")
    assert changed.filter(pl.col("_order").struct["micro_batch"] > 0).rows() != []
    assert changed.height == 6


@pytest.mark.parametrize("mode", ["table", "changes"])
def test_workers_write_what_is_large_beside_the_table_and_leave_nothing_there(
    delta_spark: SparkSession, tmp_path: Path, mode: DeltaMode
) -> None:
    """Nor is there anything left of processes that ended before their commit, or behind it."""
    path = tmp_path / "table"
    sink = replace(to_delta(path, mode=mode, writer="delta-rs"), few_rows=1).keyed_by(KEY)

    def leave() -> None:
        left = path / "_tablestream" / "q" / "attempt"
        left.mkdir(parents=True)
        (left / "part.parquet").touch()

    zero = changes(delta_spark, 0, (1, "a", "x"), (2, None, "y"), (2, None, "z")).repartition(2)
    one = changes(delta_spark, 1, (1, "a", None), (3, "c", "w"), (3, "c", "v")).repartition(2)
    for frame, number in ((zero, 0), (one, 1), (one, 1)):
        leave()
        sink.write(frame, number, "q", "out")
        assert [file for file in path.glob("_tablestream/**/*") if file.is_file()] == []
    rows = delta_spark.read.format("delta").load(str(path)).select(*(f"`{one}`" for one in KEY), "v")
    wanted: Any = {(2, None, "z"), (3, "c", "v")}
    if mode == "changes":
        wanted |= {(1, "a", "x"), (2, None, "y"), (1, "a", None), (3, "c", "w")}
    assert {tuple(row) for row in rows.collect()} == wanted


#: Tables made by Spark: columns, what follows them, and what delta-rs does not write.
MADE = {
    "plain": ("", "", None),
    "partitions": ("", "PARTITIONED BY (v)", None),
    "times": ("t TIMESTAMP_NTZ,", "", None),
    "not null": ("k1 INT NOT NULL,", "", None),
    "clusters": ("", "CLUSTER BY (v)", "clustering"),
    "deletion vectors": ("", "TBLPROPERTIES (delta.enableDeletionVectors = true)", "deletionVectors"),
    "names": ("", "TBLPROPERTIES (delta.columnMapping.mode = 'name')", "columnMapping"),
    "feed": ("", "TBLPROPERTIES (delta.enableChangeDataFeed = true)", "changeDataFeed"),
    "tracked": ("", "TBLPROPERTIES (delta.enableRowTracking = true)", "domainMetadata"),
    "commit times": ("", "TBLPROPERTIES (delta.enableInCommitTimestamps = true)", "inCommitTimestamp"),
    "wider types": ("", "TBLPROPERTIES (delta.enableTypeWidening = true)", "typeWidening"),
    "checkpoints": ("", "TBLPROPERTIES (delta.checkpointPolicy = 'v2')", "v2Checkpoint"),
    "generated": ("k1 INT, g INT GENERATED ALWAYS AS (k1 * 2),", "", "generatedColumns"),
    "limited": ("g VARCHAR(3),", "", "'g', which is a text of limited length"),
}


@pytest.mark.parametrize("name", MADE)
def test_a_table_that_spark_made_is_maintained_by_turns(
    delta_spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """By delta-rs, then by Spark, then by delta-rs. What delta-rs does not write is left to Spark, or refused."""
    more, follows, refused = MADE[name]
    path = str(tmp_path / "table")
    key = "" if "k1" in more else "k1 INT,"
    delta_spark.sql(
        f"CREATE TABLE delta.`{path}` ({key} {more} `k.2` STRING, v STRING) USING delta {follows}"
    )
    sink = to_delta(path, writer="delta-rs" if refused is None else None).keyed_by(KEY)
    sink.write(changes(delta_spark, 0, (1, "a", "x"), (2, "b", "y")), 0, "q", "out")
    to_delta(path, writer="spark").keyed_by(KEY).write(
        changes(delta_spark, 1, (1, "a", "w"), (3, "c", "z")), 1, "q", "out"
    )
    for _ in range(2):
        sink.write(changes(delta_spark, 2, (2, "b", None), (3, "c", "u")), 2, "q", "out")
    rows = delta_spark.read.format("delta").load(path).select("k1", "`k.2`", "v").collect()
    assert sorted(map(tuple, rows)) == [(1, "a", "w"), (3, "c", "u")]
    writers = engines(delta_spark, sink)
    assert (len(writers) == 2) == (refused is None), writers
    if refused is not None:
        with pytest.raises(PlanError, match=refused):
            to_delta(path, writer="delta-rs").keyed_by(KEY).write(changes(delta_spark, 3), 3, "q", "out")


def engines(spark: SparkSession, sink: DeltaSink) -> set[str]:
    """Who has written to a table."""
    history = spark.sql(f"DESCRIBE HISTORY delta.`{sink.path}`").collect()
    return {row.engineInfo.split("/")[0] for row in history}


def test_without_a_choice_delta_rs_writes_unless_only_spark_can_or_is_set_up_to(
    delta_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeps = tmp_path / "keeps"
    delta_spark.sql(
        f"CREATE TABLE delta.`{keeps}` (k1 INT, `k.2` STRING, v STRING) USING delta"
        " TBLPROPERTIES (delta.autoOptimize.autoCompact = true)"
    )
    session = delta_spark.newSession()
    session.conf.set("spark.databricks.delta.properties.defaults.enableChangeDataFeed", "true")

    def written(spark: SparkSession, place: Path, mode: DeltaMode = "table") -> set[str]:
        sink = to_delta(place, mode=mode).keyed_by(KEY)
        for number in range(2):
            sink.write(changes(spark, number, (1, "a", "x")), number, "q", "out")
        return engines(spark, sink)

    (by_rs,) = written(delta_spark, tmp_path / "table")
    assert written(delta_spark, tmp_path / "log", "changes") == {by_rs}
    assert "delta-rs" in by_rs
    assert by_rs not in written(delta_spark, keeps)
    assert by_rs not in written(session, tmp_path / "feeds")
    small = replace(to_delta(tmp_path / "table"), most_bytes=1).keyed_by(KEY)
    small.write(changes(delta_spark, 2, (1, "a", "x")), 2, "q", "out")
    assert len(engines(delta_spark, small)) == 2
    monkeypatch.setattr(delta, "find_spec", lambda _: None)
    assert by_rs not in written(delta_spark, tmp_path / "without")


def test_a_place_that_delta_rs_does_not_know_is_refused_if_it_was_chosen(delta_spark: SparkSession) -> None:
    with pytest.raises(ArgumentError, match="delta-rs does not write to hdfs://host/table") as refused:
        to_delta("hdfs://host/table", writer="delta-rs").check(delta_spark, KEY)
    assert "Without writer=, Spark writes" in refused.value.hint


def test_a_plain_session_is_told_what_delta_rs_does_not_write(plain: SparkSession, tmp_path: Path) -> None:
    named = changes(plain, 0, (1, "a", "x")).withColumnRenamed("v", "unit price")
    with pytest.raises(PlanError, match="gets a name that needs column mapping") as refused:
        to_delta(tmp_path / "table").keyed_by(KEY).write(named, 0, "q", "out")
    assert "configure_spark_with_delta_pip" in refused.value.hint
    timed = changes(plain, 0, (1, "a", "x")).selectExpr("*", "INTERVAL '1' DAY AS i")
    with pytest.raises(PlanError, match="interval day"):
        to_delta(tmp_path / "table").keyed_by(KEY).write(timed, 0, "q", "out")
    with pytest.raises(SessionSettingError, match="lacks Delta Lake") as lacking:
        to_delta("hdfs://host/table").check(plain, KEY)
    assert "only to local paths" in lacking.value.hint


def test_constraints_and_odd_partitions_are_left_to_spark(delta_spark: SparkSession, tmp_path: Path) -> None:
    by_rs = to_delta(tmp_path / "table", writer="delta-rs").keyed_by(KEY)
    path = by_rs.path
    delta_spark.sql(f"CREATE TABLE delta.`{path}` (k1 INT, `k.2` STRING, v STRING) USING delta")
    delta_spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT good CHECK (k1 / 2 < 0.5)")
    with pytest.raises(PlanError, match="has constraints"):
        by_rs.write(changes(delta_spark, 0, (1, "a", "x")), 0, "q", "out")
    with pytest.raises(Exception, match="CHECK constraint"):
        to_delta(path).keyed_by(KEY).write(changes(delta_spark, 0, (1, "a", "x")), 0, "q", "out")
    timed = str(tmp_path / "timed")
    delta_spark.sql(f"CREATE TABLE delta.`{timed}` (k1 INT, t TIMESTAMP) USING delta PARTITIONED BY (t)")
    with pytest.raises(PlanError, match="is partitioned by a timestamp"):
        to_delta(timed, writer="delta-rs").check_types(delta_spark, StructType().add("k1", IntegerType()))


def test_every_type_comes_back_as_it_was(delta_spark: SparkSession, tmp_path: Path) -> None:
    """Also as a key, in a table that is made, and where the session's time zone is another one."""
    session = delta_spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    values = (
        "CAST(1 AS TINYINT) AS a; CAST(2 AS SMALLINT) AS b; true AS c; CAST('NaN' AS FLOAT) AS d; -0D AS e;"
        " CAST(1.5 AS DECIMAL(38, 18)) AS f; X'00FF' AS g; DATE'9999-12-31' AS h;"
        " TIMESTAMP'2024-03-31 03:30:00.123456' AS i; TIMESTAMP_NTZ'0001-01-01 00:00:00' AS j;"
        " array(named_struct('x', TIMESTAMP'2024-01-01 00:00:00')) AS k; map('a', array(1.25BD)) AS l"
    )
    frame = changes(session, 0, (1, "a", "x")).selectExpr("*", *values.split(";"))
    keyed = to_delta(tmp_path / "table", writer="delta-rs").keyed_by([*KEY, *"abcdefghij"])
    keyed.write(frame, 0, "q", "out")
    keyed.write(frame.withColumn("v", frame["v"]), 1, "q", "out")
    (row,) = session.read.format("delta").load(str(tmp_path / "table")).select(*"abcdefghijkl").collect()
    (given,) = frame.select(*"abcdefghijkl").collect()
    assert repr(row) == repr(given)
    assert row.f == Decimal("1.5")
    (same,) = pl.read_delta(str(tmp_path / "table"))["i"]
    assert same == datetime(2024, 3, 31, 1, 30, 0, 123456, tzinfo=UTC)


def test_storage_options_that_are_no_mapping_are_refused() -> None:
    with pytest.raises(ArgumentError, match="storage_options= is a str, not a mapping"):
        to_delta("out/table", storage_options="eu-west-1")  # type: ignore[arg-type]


def test_credentials_of_a_store_are_never_shown() -> None:
    sink = to_delta("s3a://bucket/table", storage_options={"AWS_SECRET_ACCESS_KEY": "hidden"})
    assert "hidden" not in repr(sink) + str(sink) + sink.target


def test_writers_that_are_none_are_refused() -> None:
    with pytest.raises(ArgumentError, match="writer='merge' is not known"):
        to_delta("out", writer="merge")  # type: ignore[arg-type]


def test_a_table_that_is_not_there_has_no_columns_and_no_history(tmp_path: Path) -> None:
    table = RsTable(str(tmp_path / "none"), {})
    assert (table.columns, table.is_empty(), table.commits(), table.last_version("q")) == (
        None,
        True,
        [],
        None,
    )


@pytest.mark.parametrize(
    ("path", "options", "lacks", "uri"),
    [
        ("file:/out/table", None, False, "/out/table"),
        ("file:/out/table", None, True, "/out/table"),
        ("file:/out/a[1]", None, True, None),
        ("s3a://bucket/table", None, False, None),
        ("s3a://bucket/table", None, True, "s3://bucket/table"),
        ("s3a://bucket/table", {"AWS_REGION": "x"}, False, "s3://bucket/table"),
        (
            "abfss://box@account.dfs.core.windows.net/t",
            {},
            False,
            "abfss://box@account.dfs.core.windows.net/t",
        ),
        ("hdfs://host/table", {}, True, None),
    ],
)
def test_the_place_for_delta_rs(
    monkeypatch: pytest.MonkeyPatch, path: str, options: dict[str, str] | None, lacks: bool, uri: str | None
) -> None:
    monkeypatch.setattr(delta, "full_path", lambda _spark, given: given)
    monkeypatch.setattr(delta, "has_context", lambda _spark: True)
    monkeypatch.setattr(delta, "lacking", lambda _spark: ["setting"] if lacks else [])
    assert to_delta(path, storage_options=options)._uri(None) == uri  # type: ignore[arg-type]
    assert to_delta(path, writer="spark", storage_options=options)._uri(None) is None  # type: ignore[arg-type]


def mark(micro_batch: int) -> DeltaMark:
    return DeltaMark("q", micro_batch, f"p{micro_batch}", "tablestream/q")


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64())})


def test_of_two_processes_that_create_the_table_one_fails(tmp_path: Path) -> None:
    """Both have seen that there is none."""
    first, second = RsTable(str(tmp_path / "t"), {}), RsTable(str(tmp_path / "t"), {})
    first._write(rows(1), mark(0))
    with pytest.raises(CommitFailedError, match="Concurrent"):
        second._write(rows(1), mark(0))
    seen, late = RsTable(first.uri, {}), RsTable(first.uri, {})
    seen._write(rows(2), mark(1))
    with pytest.raises(CommitFailedError, match="Concurrent"):
        late._write(rows(2), mark(1))
    table = RsTable(first.uri, {})
    assert sorted(DeltaTable(first.uri).to_pyarrow_table()["k"].to_pylist()) == [1, 2]
    assert last_mark(table, "q") == mark(1)


def test_a_merge_that_changes_nothing_leaves_its_mark(delta_spark: SparkSession, tmp_path: Path) -> None:
    sink = to_delta(tmp_path / "table", writer="delta-rs").keyed_by(KEY)
    sink.write(changes(delta_spark, 0, (1, "a", "x")), 0, "q", "out")
    sink.write(changes(delta_spark, 1, (9, "z", None)), 1, "q", "out")
    assert last_mark(RsTable(sink.path, {}), "q") == DeltaMark("q", 1, "", "tablestream/q")
    keys = to_delta(tmp_path / "keys", writer="delta-rs").keyed_by(KEY)
    for number in range(3):
        keys.write(changes(delta_spark, number, (1, "a", "x")).drop("v"), number, "q", "out")
        assert last_mark(RsTable(keys.path, {}), "q") == DeltaMark("q", number, "", "tablestream/q")


def test_a_table_that_delta_rs_restored_has_the_marks_of_that_time(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    for number, to in enumerate(("version", "time")):
        path = str(tmp_path / str(number))
        for micro_batch in range(3):
            RsTable(path, {})._write(rows(micro_batch), mark(micro_batch))
            time.sleep(0.05)
        table = DeltaTable(path)
        at = next(one["timestamp"] for one in table.history() if one["version"] == 1)
        table.restore(1 if to == "version" else datetime.fromtimestamp((at + 10) / 1000, UTC))
        assert last_mark(RsTable(path, {}), "q") == mark(0)
        assert last_mark(SparkTable(delta_spark, path), "q") == mark(0)


def test_readers_find_values_that_statistics_would_round(delta_spark: SparkSession, tmp_path: Path) -> None:
    sink = to_delta(tmp_path / "table", writer="delta-rs").keyed_by(KEY)
    long = "12345678901234567890123456789012345678"
    for number in range(2):  # appended, then merged
        frame = changes(delta_spark, number, (number, "a", "x"), (number + 10, "b", "y")).selectExpr(
            "*", f"CAST({long}BD AS DECIMAL(38, 0)) AS d", "IF(k1 > 9, 'NaN'::double, 1D) AS f",
            f"named_struct('d', {long}BD) AS s",
        )  # fmt: skip
        sink.write(frame, number, "q", "out")
    table = delta_spark.read.format("delta").load(sink.path)
    assert table.where(f"d = {long}BD").count() == table.where(f"s.d = {long}BD").count() == 4
    assert table.where("f > 5").count() == 2


def test_files_beside_a_table_in_a_store(delta_spark: SparkSession, tmp_path: Path) -> None:
    """A URI with ``file://`` takes the way of an object store."""
    (tmp_path / "table").mkdir()
    for micro_batch in range(2):
        table = RsTable(f"file://{tmp_path}/table", {})
        table.append(delta_spark.range(micro_batch, micro_batch + 1), mark(micro_batch))
    assert sorted(DeltaTable(str(tmp_path / "table")).to_pyarrow_table()["id"].to_pylist()) == [0, 1]
