"""What the names of files and directories may be: each record is read once, and names are no values."""

from __future__ import annotations

import json
import os
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

import pytest

import tablestream as ts
from tablestream.connectors.files.source import from_files
from tablestream.errors import ArgumentError, QueryFailedError
from tests.marks import quick_first

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    Ran = Callable[[DataFrame], list[tuple[Any, ...]]]

SIGNS = (
    "weird_[x]",
    "weird_x",
    "a*",
    "ab",
    "b{c,d}",
    "bc",
    "q?",
    "qq",
    "back\\slash",
    "[",
    "plain",
    "p%20q",
    "a b",
)


@pytest.fixture
def ran(tmp_path: Path) -> Ran:
    """Run a stream over all that is there; its rows, sorted."""
    numbers = count()

    def run(frame: DataFrame) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        writer = frame.writeStream.foreachBatch(lambda part, _: rows.extend(map(tuple, part.collect())))
        place = str(tmp_path / f"checkpoint{next(numbers)}")
        writer.option("checkpointLocation", place).trigger(availableNow=True).start().awaitTermination()
        return sorted(rows)

    return run


@pytest.mark.parametrize("format_", quick_first(["json", "csv", "parquet"]))
def test_each_record_is_read_once_whatever_its_file_and_directory_are_called(
    spark: SparkSession, tmp_path: Path, ran: Ran, format_: Literal["json", "csv", "parquet"]
) -> None:
    """Spark takes the path of a file for a pattern, and then reads the files beside it twice."""
    logs, numbers, wanted = tmp_path / "logs", count(), []
    spark.range(1).coalesce(1).write.parquet(str(tmp_path / "one"))
    parquet = next((tmp_path / "one").glob("*.parquet")).read_bytes()
    for directory in (logs, logs / "d[1]", logs / "d1", logs / "k={2}", logs / "e*"):
        directory.mkdir()
        for name in (*SIGNS, "empty[1]"):
            number = 0 if format_ == "parquet" else next(numbers)
            content = {
                "json": f'{{"id": {number}}}\n'.encode(),
                "csv": f"{number}\n".encode(),
                "parquet": parquet,
            }
            is_empty = name.startswith("empty") and format_ != "parquet"
            (directory / f"{name}.{format_}").write_bytes(b"" if is_empty else content[format_])
            wanted += [] if is_empty else [(number,)]
    assert ran(from_files(spark, logs, format_, "id bigint").select("id")) == sorted(wanted)


def test_a_directory_that_is_called_like_a_pattern_needs_backslashes(
    spark: SparkSession, tmp_path: Path, ran: Ran
) -> None:
    for number, name in enumerate(("d[1]", "d1", "k*", "ka")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.json").write_text(f'{{"id": {number}}}\n')
        (tmp_path / name / "[2].json").write_text(f'{{"id": {number}}}\n')
    for number, name, escaped in ((0, "d[1]", r"d\[1\]"), (2, "k*", r"k\*")):
        with pytest.raises(
            ArgumentError, match="is a directory, and Spark reads the directories that match"
        ) as raised:
            from_files(spark, tmp_path / name, "json", "id int")
        assert raised.value.hint.endswith(escaped)
        assert (
            ran(from_files(spark, f"{tmp_path}/{escaped}", "json", "id int").select("id")) == [(number,)] * 2
        )


def test_the_name_of_a_directory_never_replaces_a_column_of_its_files(
    spark: SparkSession, tmp_path: Path, ran: Ran
) -> None:
    logs = tmp_path / "logs"
    (logs / "id=7").mkdir(parents=True)
    (logs / "id=7" / "1.json").write_text('{"id": 1, "v": 2}\n')
    assert ran(from_files(spark, logs, "json", "id int, v int").select("id", "v")) == [(1, 2)]
    with pytest.raises(
        ArgumentError, match=r"Spark takes the name of a directory such as id=7 for the column"
    ):
        from_files(spark, logs, "json", "id int", options={"recursiveFileLookup": False})
    parquet = tmp_path / "parquet"
    spark.range(2).coalesce(1).write.parquet(str(parquet / "Day=3"))
    frame = from_files(spark, parquet, "parquet", "id bigint, day int")
    table = ts.table(frame, "id", name="days")
    query = ts.start(
        table.to(ts.to_memory("days")), checkpoint=tmp_path / "checkpoint", trigger={"availableNow": True}
    )
    with pytest.raises(QueryFailedError) as raised:
        query.awaitTermination()
    assert raised.value.code == "TABLESTREAM_MALFORMED_RECORD"
    assert "has no value for the column day, and a directory is called day=" in str(raised.value)
    of_name = "int(regexp_extract(_metadata.file_path, '/Day=([^/]*)/', 1)) AS day"
    taken = from_files(spark, parquet, "parquet", "id bigint").selectExpr("id", of_name)
    assert ran(taken) == [(0, 3), (1, 3)]


def test_an_empty_parquet_file_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Spark passes over it, and never reads it again. Files of other formats may be empty."""
    logs = tmp_path / "logs"
    (logs / "_hidden").mkdir(parents=True)
    (logs / "_hidden" / "1.parquet").touch()
    (logs / "_SUCCESS").touch()
    assert from_files(spark, logs, "parquet", "id int").isStreaming
    (logs / "day=1").mkdir()
    (logs / "day=1" / "1.parquet").touch()
    with pytest.raises(ArgumentError, match=r"The file .*1\.parquet is empty, so it is no Parquet file"):
        from_files(spark, logs, "parquet", "id int")


def test_files_of_one_time_are_ordered_by_their_names(spark: SparkSession, tmp_path: Path) -> None:
    r"""Not by the names in URIs, where a space is ``%20``, which comes before ``+`` and after ``!``."""
    logs = tmp_path / "logs"
    logs.mkdir()
    names = ["a b.json", "a!b.json", "a%b.json", "a+b.json", "aé.json"]
    for name in reversed(names):
        (logs / name).write_text(json.dumps({"id": 1, "name": name}) + "\n")
        os.utime(logs / name, (1_700_000_000, 1_700_000_000))
    sink = ts.to_memory("names")
    sink.clear()
    table = ts.table(from_files(spark, logs, "json", "id int, name string"), "id", name="names")
    ts.start(table.to(sink), checkpoint=tmp_path / "c", trigger={"availableNow": True}).awaitTermination()
    assert [row.name for row in sink.rows()] == names
