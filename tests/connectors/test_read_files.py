"""Change logs from files: which rows are malformed, what travels with the frame, what is refused."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from tablestream.connectors.files.source import from_files
from tablestream.connectors.source import CORRUPT_RECORD, noted_origin
from tablestream.errors import ArgumentError, PlanError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, Row, SparkSession

    Collect = Callable[[DataFrame], list[Row]]

JSON_SCHEMA = (
    "id INT, name STRING, at TIMESTAMP, inner STRUCT<x: INT>, many ARRAY<INT>, `a.b` MAP<STRING, INT>"
)
JSON_GOOD = (
    '{"id": 1, "name": "a", "at": "2024-01-01T00:00:00Z", "inner": {"x": 1}, "many": [1], "a.b": {"k": 1}}',
    '{"id": 2}',  # a missing field is null
    '{"id": 3, "other": 1}',  # an unknown one is ignored
    "{}",
    "",
)
JSON_MALFORMED = (
    '{"id": "x"}',
    '{"id": 1.5}',
    '{"id": 99999999999999999999}',
    '{"id": 4, "at": "noon"}',
    '{"id": 5, "inner": {"x": "q"}}',
    '{"id": 6, "many": [1, "q"]}',
    '{"id": 7, "a.b": {"k": "q"}}',
    '{"id": 8, "name": "broken',
    "null",
    "42",
    '{"id": 9, "many": [1',  # the end of a truncated file
)
CSV_SCHEMA = "id INT, name STRING, at TIMESTAMP, price DECIMAL(10,2)"
CSV_GOOD = ("1,a,2024-01-01T00:00:00Z,1.5", "2,,,", "")
CSV_MALFORMED = (
    "x,wrong type,,1",
    "3,too few",
    "4,too many,,1,more",
    "5,not a time,noon,1",
    "6,not a number,,abc",
    "7,out of range,,123456789.12",
    "8,cut off,2024-",
    '9,"open quote,,1',
)


def on_malformed(schema: StructType) -> tuple[str | None, str] | None:
    """The column with the texts of malformed rows, and the mode that `from_files` got."""
    origin = noted_origin(schema)
    return None if origin is None else (origin.column, origin.on_malformed)


@pytest.fixture
def collect(tmp_path: Path) -> Collect:
    """Run a stream over all that is there and give its rows."""

    def run(frame: DataFrame) -> list[Row]:
        rows: list[Row] = []
        writer = frame.writeStream.foreachBatch(lambda part, _: rows.extend(part.collect()))
        number = len(list(tmp_path.glob("checkpoint*")))
        started = writer.option("checkpointLocation", str(tmp_path / f"checkpoint{number}")).trigger(
            availableNow=True
        )
        started.start().awaitTermination()
        return rows

    return run


def log(directory: Path, *lines: str, name: str = "1.log", time_s: int = 0) -> Path:
    """Put a file into a log; it ends without a newline, as a truncated one would."""
    directory.mkdir(exist_ok=True)
    file = directory / name
    file.write_text("\n".join(lines), encoding="utf-8")
    if time_s:
        os.utime(file, (time_s, time_s))
    return directory


def malformed(rows: list[Row]) -> list[str]:
    return [row[CORRUPT_RECORD] for row in rows if row[CORRUPT_RECORD] is not None]


@pytest.mark.parametrize(
    "chosen", [["*"], ["name", CORRUPT_RECORD], [CORRUPT_RECORD], ["inner.x", CORRUPT_RECORD]]
)
def test_json_malformed_rows_are_seen_whatever_is_selected(
    spark: SparkSession, tmp_path: Path, collect: Collect, chosen: list[str]
) -> None:
    directory = log(tmp_path / "in", *JSON_GOOD, *JSON_MALFORMED)
    frame = from_files(spark, directory, "json", JSON_SCHEMA)
    rows = collect(frame.select(*chosen))
    assert malformed(rows) == list(JSON_MALFORMED)
    assert len(rows) == len(JSON_GOOD) - 1 + len(JSON_MALFORMED)  # the empty line is no row


@pytest.mark.parametrize("chosen", [["*"], ["name", CORRUPT_RECORD], [CORRUPT_RECORD]])
def test_csv_malformed_rows_are_seen_whatever_is_selected(
    spark: SparkSession, tmp_path: Path, collect: Collect, chosen: list[str]
) -> None:
    directory = log(tmp_path / "in", "id,name,at,price", *CSV_GOOD, *CSV_MALFORMED)
    frame = from_files(spark, directory, "csv", CSV_SCHEMA, options={"header": True})
    rows = collect(frame.select(*chosen))
    assert malformed(rows) == list(CSV_MALFORMED)
    assert len(rows) == len(CSV_GOOD) - 1 + len(CSV_MALFORMED)


def test_malformed_rows_can_be_filtered_before_and_after_other_columns_are_dropped(
    spark: SparkSession, tmp_path: Path, collect: Collect
) -> None:
    frame = from_files(spark, log(tmp_path / "in", *JSON_GOOD, *JSON_MALFORMED), "json", JSON_SCHEMA)
    bad = F.col(CORRUPT_RECORD).isNotNull()
    assert len(collect(frame.filter(bad).select(CORRUPT_RECORD))) == len(JSON_MALFORMED)
    assert len(collect(frame.select(CORRUPT_RECORD).filter(bad))) == len(JSON_MALFORMED)
    assert len(collect(frame.filter(~bad).select("name"))) == len(JSON_GOOD) - 1


def test_json_limits_of_sparks_parser(spark: SparkSession, tmp_path: Path, collect: Collect) -> None:
    """What the table in `from_files` says of text behind a record, of arrays and of repeated fields."""
    lines = ('{"id": 1} more', '{"id": 2}{"id": 3}', "[]", '[{"id": 4}, {"id": 5}]', '{"id": 6, "id": 7}')
    rows = collect(from_files(spark, log(tmp_path / "in", *lines), "json", "id INT"))
    assert [row.id for row in rows] == [1, 2, 4, 5, 7]
    assert malformed(rows) == []


def test_bytes_that_are_not_utf8(spark: SparkSession, tmp_path: Path, collect: Collect) -> None:
    for format_, good, bad in (
        ("json", b'{"n":"ok"}\n', b'{"n":"caf\xe9"}\n'),
        ("csv", b"ok\n", b"caf\xe9\n"),
    ):
        directory = tmp_path / format_
        directory.mkdir()
        (directory / "latin1").write_bytes(good + bad)
        rows = collect(from_files(spark, directory, format_, "n STRING"))  # type: ignore[arg-type]
        if format_ == "json":
            assert malformed(rows) == ['{"n":"caf\ufffd"}']
        else:
            assert [(row.n, row[CORRUPT_RECORD]) for row in rows] == [("ok", None), ("caf\ufffd", None)]


def test_other_encodings_byte_order_marks_and_compression(
    spark: SparkSession, tmp_path: Path, collect: Collect
) -> None:
    directory = log(tmp_path / "in", name="empty", time_s=1)
    (directory / "bom.csv").write_bytes(b"\xef\xbb\xbfid,n\n1,a\n")
    (directory / "z.csv.gz").write_bytes(gzip.compress(b"id,n\n2,b\n"))
    rows = collect(from_files(spark, directory, "csv", "id INT, n STRING", options={"header": True}))
    assert sorted(tuple(row) for row in rows) == [(1, "a", None), (2, "b", None)]

    latin = tmp_path / "latin"
    latin.mkdir()
    (latin / "1").write_bytes("1,caf\xe9\n".encode("latin-1"))
    frame = from_files(spark, latin, "csv", "id INT, n STRING", options={"encoding": "ISO-8859-1"})
    assert [row.n for row in collect(frame)] == ["caf\xe9"]


def test_csv_header_is_compared_with_the_schema(
    spark: SparkSession, tmp_path: Path, collect: Collect
) -> None:
    directory = log(tmp_path / "in", "name,id", "swapped,1")
    with pytest.raises(Exception, match="CSV header does not conform to the schema"):
        collect(
            from_files(spark, directory, "csv", "id INT, name STRING", options={"header": True}).select(
                "name"
            )
        )
    by_position = {"header": "true", "enforceSchema": "true"}
    rows = collect(from_files(spark, directory, "csv", "id INT, name STRING", options=by_position))
    assert malformed(rows) == ["swapped,1"]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda frame: frame, CORRUPT_RECORD),
        (lambda frame: frame.select("*"), CORRUPT_RECORD),
        (lambda frame: frame.select("id", CORRUPT_RECORD), CORRUPT_RECORD),
        (lambda frame: frame.filter("id > 1"), CORRUPT_RECORD),
        (lambda frame: frame.withColumn("more", F.lit(1)), CORRUPT_RECORD),
        (lambda frame: frame.drop("name"), CORRUPT_RECORD),
        (lambda frame: frame.alias("t"), CORRUPT_RECORD),
        (lambda frame: frame.withColumnRenamed(CORRUPT_RECORD, "bad"), "bad"),
        (lambda frame: frame.select("id", F.col(CORRUPT_RECORD).alias("bad")), "bad"),
    ],
)
def test_mode_and_place_stay_with_the_frame(
    spark: SparkSession, tmp_path: Path, collect: Collect, change: Callable[[DataFrame], DataFrame], name: str
) -> None:
    directory = log(tmp_path / "in", '{"id": 2, "name": "a"}')
    frame = change(from_files(spark, directory, "json", "id INT, name STRING", mode="drop"))
    assert on_malformed(frame.schema) == (name, "drop")
    (row,) = collect(frame.select("id", "_metadata.file_name", "_metadata.file_block_start"))
    assert tuple(row) == (2, "1.log", 0)


def test_mode_goes_with_its_column(spark: SparkSession, tmp_path: Path) -> None:
    frame = from_files(spark, log(tmp_path / "in"), "json", "id INT")
    assert on_malformed(frame.schema) == (CORRUPT_RECORD, "fail")
    assert on_malformed(frame.drop(CORRUPT_RECORD).schema) is None


def test_parquet_rows_have_a_number_and_no_corrupt_record(
    spark: SparkSession, tmp_path: Path, collect: Collect
) -> None:
    spark.range(20).coalesce(1).write.parquet(str(tmp_path / "in"))
    frame = from_files(spark, tmp_path / "in", "parquet", "id BIGINT, absent STRING")
    assert frame.columns == ["id", "absent"]
    assert on_malformed(frame.schema) is None
    rows = collect(frame.filter("id > 17").withColumn("more", F.lit(0)).select("id", "_metadata.row_index"))
    assert [tuple(row) for row in rows] == [(18, 18), (19, 19)]


def test_a_file_is_read_however_much_older_than_others_it_is(spark: SparkSession, tmp_path: Path) -> None:
    """Spark passes over files that are a week older than the newest, unless it is told another age."""
    seen: list[list[int]] = []
    day_s = 86_400
    for number, age_days in enumerate((0, 8, 9_000)):
        log(
            tmp_path / "in",
            f'{{"id": {number}}}',
            name=f"{number}.json",
            time_s=1_700_000_000 - age_days * day_s,
        )
        frame = from_files(spark, tmp_path / "in", "json", "id INT")
        writer = frame.writeStream.foreachBatch(
            lambda part, _: seen.append([row.id for row in part.collect()])
        )
        checkpoint = str(tmp_path / "checkpoint")
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    assert seen == [[0], [1], [2]]


def test_max_files_per_trigger_cuts_by_modification_time(spark: SparkSession, tmp_path: Path) -> None:
    for number in (3, 1, 4, 2):
        log(tmp_path / "in", f'{{"id": {number}}}', name=f"{9 - number}.json", time_s=1_700_000_000 + number)
    frame = from_files(spark, tmp_path / "in", "json", "id INT", max_files_per_trigger=2)
    seen: list[list[int]] = []
    writer = frame.writeStream.foreachBatch(
        lambda part, _: seen.append(sorted(row.id for row in part.collect()))
    )
    checkpoint = str(tmp_path / "checkpoint")
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    assert seen == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"format": "xml"}, "xml"),
        ({"mode": "ignore"}, "ignore"),
        ({"format": "parquet", "mode": "drop"}, "no malformed rows"),
        ({"schema": "id INTEGRAL"}, "cannot be parsed"),
        ({"schema": "id INT, _corrupt_record INT"}, CORRUPT_RECORD),
        ({"options": {"Mode": "PERMISSIVE"}}, "mode="),
        ({"options": {"columnNameOfCorruptRecord": "bad"}}, "mode="),
        ({"options": {"latestFirst": True}}, "latestFirst"),
        ({"options": {"maxFilesPerTrigger": 3}}, "max_files_per_trigger="),
        ({"max_files_per_trigger": 0}, "max_files_per_trigger"),
    ],
)
def test_arguments_that_are_refused(
    spark: SparkSession, tmp_path: Path, arguments: dict[str, object], said: str
) -> None:
    with pytest.raises(ArgumentError, match=said):
        from_files(spark, tmp_path, **({"format": "json", "schema": "id INT"} | arguments))  # type: ignore[arg-type]


def test_schema_may_be_a_struct_and_may_name_the_corrupt_record(spark: SparkSession, tmp_path: Path) -> None:
    named = from_files(spark, tmp_path, "json", "_corrupt_record STRING, id INT", mode="keep")
    assert named.columns == [CORRUPT_RECORD, "id"]
    again = from_files(spark, tmp_path, "json", named.schema, mode="drop")
    assert on_malformed(again.schema) == (CORRUPT_RECORD, "drop")


def test_missing_directory_is_a_plan_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"There is no directory .*absent") as caught:
        from_files(spark, tmp_path / "absent", "csv", "id INT")
    assert "Create it first" in str(caught.value)


@pytest.mark.parametrize("form", ["{path}", "file:{path}", "{relative}"])
def test_a_file_is_refused_where_a_directory_is_needed(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    """Spark takes it, and ends the query. A pattern may match files."""
    file = tmp_path / "1.csv"
    file.write_text("1\n")
    path = form.format(path=file, relative=os.path.relpath(file))
    with pytest.raises(ArgumentError, match=r"reads a directory, and .*1\.csv is a file") as raised:
        from_files(spark, path, "csv", "id INT")
    assert raised.value.hint == f"Give its directory: {os.path.dirname(path)}."  # noqa: PTH120 - keeps the scheme
    assert from_files(spark, f"{tmp_path}/*.csv", "csv", "id INT").isStreaming


def test_an_error_about_a_relative_path_says_where_spark_looked(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the directory in which Spark was started, wherever the program has gone."""
    started_in = Path.cwd()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PlanError) as caught:
        from_files(spark, "logs/absent", "csv", "id INT")
    assert caught.value.reason == (
        f"There is no directory logs/absent (file:{started_in}/logs/absent) to read."
    )
    for complete in (f"{tmp_path}/absent", f"file:{tmp_path}/absent"):
        with pytest.raises(PlanError) as caught:
            from_files(spark, complete, "csv", "id INT")
        assert caught.value.reason == f"There is no directory {complete} to read."


def test_a_schema_can_be_used_again(spark: SparkSession, tmp_path: Path) -> None:
    schema = StructType([StructField("id", IntegerType())])
    for _ in range(2):
        assert from_files(spark, tmp_path, "json", schema).columns == ["id", CORRUPT_RECORD]
        assert schema.names == schema.fieldNames() == ["id"]
        assert len(schema.fields) == 1
