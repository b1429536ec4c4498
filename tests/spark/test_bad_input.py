"""Records that are none: counted in the query's progress, kept apart where asked for, or the end of the query."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import tablestream as ts
from tablestream.errors import QueryFailedError
from tests.marks import quick_first
from tests.spark.change_logs import ALL, START, ChangeLog, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id int, part string, at timestamp, price decimal(5,2)"
GOOD = '{"id": 1, "part": "a", "at": "2024-01-01T00:00:00Z", "price": 1.5}'
NULL_KEY = '{"id": 2, "at": "2024-01-01T00:00:01Z", "price": 2.5}'
NULL_TIME = '{"id": 3, "part": "b", "price": 3.5}'
NEITHER = '{"part": "c"}'
MALFORMED = '{"id": 4, "part": "d", "at": "2024-01-01T00:00:02Z", "price": 99999}'
BROKEN = '{"id": 5, "part": "e'
LINES = [GOOD, NULL_KEY, NULL_TIME, NEITHER, MALFORMED, BROKEN, GOOD.replace("1.5", "1.6")]
CSV = [
    "1,a,2024-01-01T00:00:00Z,1.5",
    "2,,2024-01-01T00:00:01Z,2.5",
    "3,b,,3.5",
    ",c,,",
    "4,d,2024-01-01T00:00:02Z,99999",
    "5,e",
    "1,a,2024-01-01T00:00:00Z,1.6",
]


@pytest.fixture
def log(tmp_path: Path) -> ChangeLog:
    log = ChangeLog(tmp_path / "log", SCHEMA)
    log.add(LINES)
    return log


def parts(frame: DataFrame, name: str = "parts") -> ts.Table:
    return ts.table(frame, key=["id", "part"], timestamp="at", columns=["price"], name=name)


@pytest.mark.parametrize("mode", ["drop", "keep"])
def test_records_that_are_none_are_counted_and_told(
    spark: SparkSession, log: ChangeLog, tmp_path: Path, mode: str
) -> None:
    table = parts(log.read(spark, mode=mode))
    kept, apart = ts.to_memory("bad kept"), ts.to_memory("bad apart")
    outputs = [table.to(kept), table.rejected().to(apart)]
    counts = run(*outputs, checkpoint=tmp_path / "checkpoint")
    assert counts == {
        "changes": 2,
        "parts: null-key": 2,
        "parts: null-timestamp": 1,
        "parts: malformed": 2,
    }
    assert [(row.id, row.part, str(row.price)) for row in kept.rows()] == [(1, "a", "1.50"), (1, "a", "1.60")]
    rejected = apart.rows()
    assert rejected[0].asDict().keys() == {
        "operator", "reason", "source", "timestamp", "key", "record", "_order",
    }  # fmt: skip
    found = {(row.reason, row.record): row for row in rejected}
    told_malformed = {("malformed", MALFORMED), ("malformed", BROKEN)} if mode == "keep" else set()
    others = {reason for reason, _ in found} - {"malformed"}
    assert {entry for entry in found if entry[0] == "malformed"} == told_malformed
    assert others == {"null-key", "null-timestamp"}
    records = [
        (row.reason, json.loads(row.key), json.loads(row.record)) for row in rejected if row.reason in others
    ]
    assert records == [
        (
            "null-key",
            {"id": 2, "part": None},
            {"id": 2, "part": None, "at": "2024-01-01T00:00:01.000000Z", "price": 2.5},
        ),
        ("null-timestamp", {"id": 3, "part": "b"}, {"id": 3, "part": "b", "at": None, "price": 3.5}),
        ("null-key", {"id": None, "part": "c"}, {"id": None, "part": "c", "at": None, "price": None}),
    ]
    assert {row.operator for row in rejected} == {"parts"}
    assert all(row.source.startswith("0000\t") and "0000.json" in row.source for row in rejected)
    places = {row.record: row["_order"]["position"] for row in rejected}
    assert {LINES.index(text): place for text, place in places.items() if text in LINES} == {
        LINES.index(text): LINES.index(text) for _, text in told_malformed
    }


def test_csv_is_read_with_the_same_modes(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "1.csv").write_text("\n".join(CSV))
    table = parts(ts.from_files(spark, tmp_path / "log", "csv", SCHEMA, mode="keep"))
    kept, apart = ts.to_memory("csv kept"), ts.to_memory("csv apart")
    counts = run(table.to(kept), table.rejected().to(apart), checkpoint=tmp_path / "checkpoint")
    assert [str(row.price) for row in kept.rows()] == ["1.50", "1.60"]
    reasons = {reason: counts[f"parts: {reason}"] for reason in ("null-key", "null-timestamp", "malformed")}
    assert reasons == {"null-key": 2, "null-timestamp": 1, "malformed": 2}
    assert [row.record for row in apart.rows() if row.reason == "malformed"] == [CSV[4], CSV[5]]


@pytest.mark.parametrize("header", quick_first([False, True]))
def test_a_header_that_nobody_announced_is_the_first_malformed_row(
    spark: SparkSession, tmp_path: Path, header: bool
) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "1.csv").write_text("\n".join(["id,part,at,price", CSV[4]]))
    options = {"header": True} if header else None
    table = parts(ts.from_files(spark, tmp_path / "log", "csv", SCHEMA, options=options))
    with pytest.raises(StreamingQueryException, match="TABLESTREAM_MALFORMED_RECORD") as caught:
        run(table.to(ts.to_memory("csv header")), checkpoint=tmp_path / "checkpoint")
    assert ('options={"header": True}' in str(caught.value)) is not header


def test_a_malformed_row_ends_the_query(spark: SparkSession, log: ChangeLog, tmp_path: Path) -> None:
    table = parts(log.read(spark))
    with pytest.raises(StreamingQueryException) as caught:
        run(table.to(ts.to_memory("bad fail")), checkpoint=tmp_path / "checkpoint")
    text = str(caught.value)
    assert "[TABLESTREAM_MALFORMED_RECORD] A row cannot be read: " in text
    assert "99999" in text
    assert re.search(r"\(file:/[^ \\]*, row 4\)", text)
    assert "mode='keep'" in text
    assert ts.to_memory("bad fail").rows() == []


@pytest.mark.exhaustive
def test_an_empty_parquet_file_that_comes_later_ends_the_query_and_is_read_when_it_is_complete(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark alone does not open it, and never looks at it again."""
    directory, sink = tmp_path / "log", ts.to_memory("parquet")
    directory.mkdir()
    table = ts.table(ts.from_files(spark, directory, "parquet", "id int, n int"), key="id", name="parts")

    def write(name: str, n: int) -> None:
        pq.write_table(
            pa.table({"id": pa.array([n], pa.int32()), "n": pa.array([n], pa.int32())}), tmp_path / name
        )
        (tmp_path / name).rename(directory / name)

    def work() -> list[int]:
        run(table.to(sink), checkpoint=tmp_path / "checkpoint")
        return [row.n for row in sink.rows()]

    write("1.parquet", 1)
    assert work() == [1]
    (directory / "2.parquet").touch()
    message = r"TABLESTREAM_MALFORMED_RECORD\] The file \S*/log/2.parquet is empty, .* Move the complete file"
    for _ in range(2):
        with pytest.raises(QueryFailedError, match=message):
            work()
    write("2.parquet", 2)
    assert work() == [1, 2]


@pytest.mark.exhaustive
def test_a_frame_of_another_reader_tells_malformed_rows_by_sparks_column(
    spark: SparkSession, log: ChangeLog, tmp_path: Path
) -> None:
    """Else such a row would be a row of nulls; who wants that drops the column."""
    frame = spark.readStream.schema(f"{SCHEMA}, _corrupt_record string").json(str(log.path))
    with pytest.raises(StreamingQueryException, match=r"TABLESTREAM_MALFORMED_RECORD.*99999"):
        run(parts(frame).to(ts.to_memory("bad others")), checkpoint=tmp_path / "told")
    kept = ts.to_memory("bad others")
    counts = run(parts(frame.drop("_corrupt_record")).to(kept), checkpoint=tmp_path / "untold")
    assert counts["parts: malformed"] == 0
    assert (4, "d", None) in [(row.id, row.part, row.price) for row in kept.rows()]


@pytest.mark.exhaustive
def test_a_renamed_column_of_malformed_rows_keeps_its_mode(
    spark: SparkSession, log: ChangeLog, tmp_path: Path
) -> None:
    frame = log.read(spark, mode="drop").withColumnRenamed("_corrupt_record", "unreadable")
    table = ts.table(frame, key=["id", "part"], timestamp="at", name="parts")
    assert table.columns == ["id", "part", "at", "price"]
    kept = ts.to_memory("bad renamed")
    counts = run(table.to(kept), checkpoint=tmp_path / "checkpoint")
    assert counts["parts: malformed"] == 2
    assert len(kept.rows()) == 2


@pytest.mark.parametrize("compat", quick_first(["kafka-streams", None]))
def test_times_before_1970_are_refused_in_compat_only(
    spark: SparkSession, tmp_path: Path, compat: Any
) -> None:
    log = ChangeLog(tmp_path / "log", SCHEMA)
    log.add([GOOD, GOOD.replace("2024", "1969")])
    kept = ts.to_memory("bad negative")
    table = parts(log.read(spark))
    if compat is None:
        run(table.to(kept), checkpoint=tmp_path / "checkpoint")
        assert [row["_timestamp"].year for row in kept.rows()] == [2024, 1969]
        return
    with pytest.raises(StreamingQueryException, match=r"TABLESTREAM_ORDER.*before 1970"):
        run(table.to(kept), checkpoint=tmp_path / "checkpoint", compat=compat)


def test_null_foreign_keys_are_counted_at_the_join(spark: SparkSession, tmp_path: Path) -> None:
    """As Kafka Streams counts them: in an inner join, for a row that is there."""
    log = ChangeLog(tmp_path / "log", "id int, other int, at bigint, gone boolean")
    row = {"id": 1, "other": None, "at": START, "gone": False}
    log.add([row, {**row, "gone": True}, {**row, "id": 2, "other": 1}])
    frame = log.read(spark)
    table = ts.table(
        frame,
        "id",
        timestamp=F.timestamp_seconds("at"),
        apply_as_deletes="gone",
        columns=["other"],
        name="rows",
    )
    joins = {how: table.join(table.select(), on="other", how=how, name=how) for how in ("inner", "left")}
    outputs = [join.to(ts.to_memory(f"bad {how}")) for how, join in joins.items()]
    counts = run(*outputs, checkpoint=tmp_path / "checkpoint")
    assert {
        place: count for place, count in counts.items() if place.startswith(("inner", "left")) and count
    } == {"inner/subscribe: null-foreign-key": 1}
    assert [(row.id, row["_change_type"]) for row in ts.to_memory("bad left").rows()] == [
        (1, "upsert"),
        (1, "delete"),
        (2, "upsert"),
    ]


def test_rejected_records_as_a_frame(spark: SparkSession, log: ChangeLog, tmp_path: Path) -> None:
    """Without the tables: nothing else of the plan runs."""
    table = parts(log.read(spark, mode="keep"))
    joined = table.join(parts(log.read(spark, mode="drop"), "others").select())
    frame = joined.rejected().changes()
    writer = frame.writeStream.format("memory").queryName("rejected_records")
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
        **ALL
    ).start().awaitTermination()
    found = spark.table("rejected_records").groupBy("operator", "reason").count().collect()
    assert {(row.operator, row.reason): row["count"] for row in found} == {
        ("parts", "null-key"): 2,
        ("parts", "null-timestamp"): 1,
        ("parts", "malformed"): 2,
        ("others", "null-key"): 2,
        ("others", "null-timestamp"): 1,
    }
