"""How far a query is behind its sources: files, a topic and a Delta table, and what is not known."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F
from typer.testing import CliRunner

import tablestream as ts
from tablestream.cli import app
from tablestream.cli.exit_codes import ExitCode
from tablestream.connectors import file_log
from tablestream.connectors.delta import lag as of_delta
from tablestream.errors import StateError
from tests.kafka.topics import Topics, record
from tests.spark.change_logs import START, ChangeLog, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def work_off(frame: DataFrame, checkpoint: Path, name: str = "rows") -> None:
    table = ts.table(frame, "id", name=name, order_by="id")
    run(table.to(ts.to_memory(f"behind {checkpoint}")), checkpoint=checkpoint)


def said(checkpoint: Path, *options: str, code: int = ExitCode.OK) -> str:
    result = CliRunner().invoke(app, ["lag", str(checkpoint), *options])
    assert result.exit_code == code, result.output
    return result.stdout if code == ExitCode.OK else result.stderr


def row(number: int) -> dict[str, int]:
    return {"id": number}


def test_files_that_are_not_in_the_source_s_log_are_behind(spark: SparkSession, tmp_path: Path) -> None:
    """Two sources with equal offsets are two; a file's time is that of its last change."""
    one, other = (ChangeLog(tmp_path / name, "id int") for name in ("o n%e", "other"))
    for log in (one, other):
        log.add([row(1)], [row(2)])
    checkpoint = tmp_path / "checkpoint"
    frames = [log.read(spark) for log in (one, other)]
    tables = [
        ts.table(frame, "id", name=name, timestamp=F.timestamp_seconds(F.col("id") + START))
        for name, frame in zip(("left", "right"), frames, strict=True)
    ]
    outputs = [table.to(ts.to_memory(f"{table.name} of files")) for table in tables]
    run(*outputs, checkpoint=checkpoint)
    whole = ts.lag(spark, checkpoint)
    assert [(found.system, found.count, found.records, found.time_s) for found in whole.sources] == [
        ("files", 0, 0, 0.0), ("files", 0, 0, 0.0),
    ]  # fmt: skip
    assert whole.micro_batch == 1
    other.add([row(3)])
    assert "1 file " in said(checkpoint)
    other.add([row(4)])
    left, right = ts.lag(spark, checkpoint).sources
    assert (left.number, left.sources, left.count) == (0, ("left",), 0)
    assert (right.sources, right.count, right.unit, right.records) == (("right",), 2, "files", None)
    assert right.time_s == 2.0
    lines = str(ts.lag(spark, checkpoint)).splitlines()
    assert lines == [
        "Behind after micro-batch 1:",
        "left (files): 0 files, 0.0 s",
        "right (files): 2 files, 2.0 s",
    ]

    documents = [json.loads(line) for line in said(checkpoint, "--json").splitlines()]
    assert [(one["micro_batch"], one["count"]) for one in documents] == [(1, 0), (1, 2)]
    text = said(checkpoint)
    assert text.startswith("Behind after micro-batch 1\n")
    assert "2 files" in text
    shutil.rmtree(other.path)
    gone = ts.lag(spark, checkpoint).sources[1]
    assert gone.count is None
    assert "a directory of files that were read is gone" in gone.why
    assert "unknown" in said(checkpoint)


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_files_that_count_their_records_are_behind_by_records(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    files, checkpoint = tmp_path / "o n%e", tmp_path / "checkpoint"

    def add(*numbers: int) -> None:
        rows = spark.createDataFrame([(number,) for number in numbers], "id int").coalesce(1)
        rows.write.format(kind).mode("append").save(str(files))

    add(1)
    work_off(spark.readStream.format(kind).schema("id int").load(str(files)), checkpoint, f"of {kind}")
    add(2, 3)
    add(4)
    (found,) = ts.lag(spark, checkpoint).sources
    assert (found.count, found.unit, found.records) == (2, "files", 3)
    assert "2 files, 3 records" in said(checkpoint)
    with monkeypatch.context() as patched:
        patched.setattr(file_log, "_MOST_OPENED", 1)
        assert ts.lag(spark, checkpoint).sources[0].records is None
    (files / f"broken.{kind}").write_bytes(b"none")
    (found,) = ts.lag(spark, checkpoint).sources
    assert (found.count, found.records) == (3, None)


def test_records_of_a_topic_are_behind_by_offset_and_by_time(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.make("behind", 2)
    frame = ts.from_kafka(spark, topic, key="string", value="id int", bootstrap_servers=topics.servers)

    def send(partition: int, *seconds: int) -> None:
        topics.send(
            topic, [record(str(one), {"id": one}, partition, (START + one) * 1000) for one in seconds]
        )

    checkpoint = tmp_path / "checkpoint"
    send(0, 1, 2)
    send(1, 3)
    table = ts.table(frame, "key", name="topic")
    run(table.to(ts.to_memory("behind a topic")), checkpoint=checkpoint)

    def found() -> tuple[object, ...]:
        (one,) = ts.lag(spark, checkpoint, bootstrap_servers=topics.servers).sources
        return one.system, one.sources, one.count, one.unit, one.records, one.time_s

    assert found() == ("kafka", (), 0, "records", 0, 0.0)
    send(0, 4, 9)
    send(1, 5)
    assert found() == ("kafka", (), 3, "records", 3, 7.0)
    (line,) = said(checkpoint, "--bootstrap-servers", topics.servers, "--json").splitlines()
    assert json.loads(line)["records"] == 3
    assert "source 0: give the servers, bootstrap_servers= or --bootstrap-servers." in said(checkpoint)
    topics.remake(topic)
    (anew,) = ts.lag(spark, checkpoint, bootstrap_servers=topics.servers).sources
    assert anew.count is None
    assert anew.why == f"{topic}-0, {topic}-1 ends before what was read: the topic was made anew"
    no_server = {f"kafka.{name}.timeout.ms": 1000 for name in ("default.api", "request")}
    (nobody,) = ts.lag(spark, checkpoint, bootstrap_servers="127.0.0.1:1", options=no_server).sources
    assert nobody.why.startswith("Kafka does not say where the topics end: ")
    error = said(checkpoint, "--option", "x", code=ExitCode.COULD_NOT_RUN)
    assert "--option x is not a name with a value." in error


def test_versions_of_a_delta_table_are_behind(
    delta_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark, path = delta_spark, str(tmp_path / "rows")

    def append(*numbers: int) -> None:
        spark.createDataFrame([(one,) for one in numbers], "id int").coalesce(1).write.format("delta").mode(
            "append"
        ).save(path)

    append(1, 2)
    append(3)
    checkpoint = tmp_path / "checkpoint"
    work_off(spark.readStream.format("delta").load(path), checkpoint)

    def found(*paths: str) -> tuple[object, ...]:
        (one,) = ts.lag(spark, checkpoint, delta=paths).sources
        return one.system, one.count, one.unit, one.records

    assert found(path) == ("delta", 0, "versions", 0)
    append(4, 5, 6)
    append(7)
    other = str(tmp_path / "other")
    spark.range(1).write.format("delta").save(other)
    assert found(other, path) == ("delta", 2, "versions", 4)
    (one,) = ts.lag(spark, checkpoint, delta=path).sources
    assert one.time_s is not None
    assert one.time_s > 0
    monkeypatch.setattr(of_delta, "lacking", lambda _: ["all"])
    assert found(path) == ("delta", 2, "versions", 4)  # by delta-rs
    assert found(other)[1] is None
    (unknown,) = ts.lag(spark, checkpoint).sources
    assert unknown.why == "give the path of the table, delta= or --delta"
    assert "2 versions, 4 records" in said(checkpoint, "--delta", path)
    work_off(spark.readStream.format("delta").load(path), checkpoint)
    assert found(path) == ("delta", 0, "versions", 0)
    last = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    last.write_text(
        last.read_text().replace('"reservoirVersion":4,"index":-1', '"reservoirVersion":3,"index":0')
    )
    (part,) = ts.lag(spark, checkpoint, delta=path).sources
    assert (part.count, part.records, part.why) == (1, None, "version 3 is read in part")


def test_what_is_no_source_of_ours_is_unknown_and_what_is_no_checkpoint_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    for name, text in (
        ("offsets/0", "v1\n{}\n17\n-\n17"),
        ("commits/0", "v1\n{}"),
        ("metadata", '{"id":"q"}'),
    ):
        (checkpoint / name).parent.mkdir(exist_ok=True, parents=True)
        (checkpoint / name).write_text(text)
    found = ts.lag(spark, checkpoint).sources
    assert [(one.system, one.count, one.time_s) for one in found] == [("unknown", None, None)] * 3
    assert [one.why for one in found[:2]] == [
        "Spark's source is none of Kafka, files and Delta Lake", "it has no offset yet",
    ]  # fmt: skip
    assert "source 1: it has no offset yet." in said(checkpoint)
    (tmp_path / "empty").mkdir()
    with pytest.raises(StateError, match="is not the checkpoint of a query"):
        ts.lag(spark, tmp_path / "empty")
    shutil.rmtree(checkpoint / "commits")
    with pytest.raises(StateError, match="has not completed a micro-batch"):
        ts.lag(spark, checkpoint)
    error = said(tmp_path / "missing", code=ExitCode.COULD_NOT_RUN)
    assert error.startswith("Error TABLESTREAM_ARGUMENT: There is no directory")
