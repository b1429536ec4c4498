"""What `ts.start` and the methods before it refuse, in one sentence and before a query runs."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import pytest

import tablestream as ts
from tablestream.errors import ArgumentError, PlanError
from tests.spark.change_logs import ChangeLog

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SCHEMA = "id int, op string, n int"


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> ts.Table:
    return ts.table(ChangeLog(tmp_path / "log", SCHEMA).read(spark), "id", name="rows")


@pytest.mark.parametrize(
    ("trigger", "said"),
    [
        ("1 second", "is not a mapping"),
        ({"every": "1 second"}, "is not made of availableNow, continuous"),
        ({"processingTime": "1 sekunde"}, "refused by Spark.*sekunde"),
    ],
)
def test_a_trigger_that_spark_does_not_know(table: ts.Table, tmp_path: Path, trigger: Any, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        ts.start(table.to(ts.to_memory("refused")), checkpoint=tmp_path / "checkpoint", trigger=trigger)


@pytest.mark.parametrize("checkpoint", ["/proc/nowhere/checkpoint", "s3://bucket/checkpoint"])
def test_a_checkpoint_that_cannot_be_written(table: ts.Table, checkpoint: str) -> None:
    with pytest.raises(
        ArgumentError, match=f"The checkpoint {checkpoint} cannot be read or written"
    ) as raised:
        ts.start(table.to(ts.to_memory("refused")), checkpoint=checkpoint)
    assert "test_start_refused.py" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_checkpoint_below_a_file(table: ts.Table, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ArgumentError, match=r"cannot be read or written: .*/file is not a directory\."):
        ts.start(table.to(ts.to_memory("refused")), checkpoint=tmp_path / "file" / "checkpoint")


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """Places where nothing can be created, and why not."""
    (tmp_path / "file").touch()
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    return {
        "/proc/nowhere/out": r"nothing can be created in /proc \(No such file or directory\)\.",
        "file:/proc/out": r"nothing can be created in /proc \(No such file or directory\)\.",
        f"{tmp_path}/file": f"{tmp_path}/file is not a directory.",
        f"{tmp_path}/file/deep/out": f"{tmp_path}/file is not a directory.",
        os.path.relpath(tmp_path / "file" / "out"): f"{tmp_path}/file is not a directory.",
        f"{tmp_path}/nowhere/out": f"{tmp_path}/nowhere is not a directory.",
    }


@pytest.mark.usefixtures("delta_spark")
@pytest.mark.parametrize("kind", ["files", "delta"])
def test_a_sink_in_a_place_where_nothing_can_be_created(
    table: ts.Table, places: dict[str, str], tmp_path: Path, kind: str
) -> None:
    """The query would end in its first micro-batch, with an error of Java."""
    for path, why in places.items():
        sink: ts.Sink = ts.to_files(path) if kind == "files" else ts.to_delta(path)
        with pytest.raises(
            ArgumentError, match=f"^[^\n]*{re.escape(path)} cannot be written: {why}"
        ) as raised:
            ts.start(table.to(sink), checkpoint=tmp_path / "checkpoint")
        assert "test_start_refused.py" in str(raised.value)
    assert not (tmp_path / "checkpoint").exists()


def test_a_checkpoint_in_a_place_where_nothing_can_be_created(
    table: ts.Table, places: dict[str, str]
) -> None:
    for path, why in places.items():
        with pytest.raises(ArgumentError, match=f"{re.escape(path)} cannot be read or written: {why}"):
            ts.start(table.to(ts.to_memory("refused")), checkpoint=path)


def test_a_checkpoint_and_a_sink_in_one_directory(table: ts.Table, tmp_path: Path) -> None:
    """Readers of the sink would find the query's own files."""
    here = os.path.relpath(tmp_path)
    pairs = [
        (f"{tmp_path}/out", f"{tmp_path}/out"),
        (f"{here}/out", f"{tmp_path}/./out/"),
        (f"file:{tmp_path}/out", f"{tmp_path}/out"),
        (f"{tmp_path}/out", f"{tmp_path}/out/checkpoint"),
    ]
    for path, checkpoint in pairs:
        said = r"^[^\n]*The checkpoint .* is in the directory of the output 'files .* of its own"
        with pytest.raises(ArgumentError, match=said) as raised:
            ts.start(table.to(ts.to_files(path)), checkpoint=checkpoint)
        assert "test_start_refused.py" in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_a_sink_in_the_directory_of_another_query(table: ts.Table, tmp_path: Path) -> None:
    """A new checkpoint is another query, and the one that wrote the log goes on."""
    ChangeLog(tmp_path / "log", SCHEMA).add([{"id": 1, "op": "upsert", "n": 1}])
    output = table.to(ts.to_files(tmp_path / "changes"))
    for _ in range(2):
        ts.start(
            output, checkpoint=tmp_path / "checkpoint", trigger={"availableNow": True}
        ).awaitTermination()
    with pytest.raises(PlanError, match=r"/changes holds the changelog of another query") as raised:
        ts.start(output, checkpoint=tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert "test_start_refused.py" in str(raised.value)


def test_a_sink_whose_file_system_is_not_there(table: ts.Table, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"The target files s3://bucket/changes cannot be read") as raised:
        ts.start(table.to(ts.to_files("s3://bucket/changes")), checkpoint=tmp_path / "new")
    assert "test_start_refused.py" in str(raised.value)
    assert not (tmp_path / "new").exists()


def test_a_checkpoint_beside_a_sink_or_hidden_in_it_is_no_mistake(table: ts.Table, tmp_path: Path) -> None:
    """Readers pass over directories that begin with an underscore or a dot."""
    for number, checkpoint in enumerate(["out2", "out/_checkpoint", "checkpoint", "."]):
        path = tmp_path / str(number)
        query = ts.start(table.to(ts.to_files(path / "out")), checkpoint=path / checkpoint)
        query.stop()


def test_to_find_out_whether_a_directory_can_be_written_leaves_nothing_in_it(
    table: ts.Table, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(ArgumentError, match="is not a directory"):
        ts.start(table.to(ts.to_files(out / "deep" / "log")), checkpoint=tmp_path / "file")
    assert list(out.iterdir()) == []


def test_the_name_of_a_query_that_runs(table: ts.Table, tmp_path: Path) -> None:
    query = ts.start(table.to(ts.to_memory("first")), checkpoint=tmp_path / "first", name="shop")
    try:
        with pytest.raises(ArgumentError, match="A query of the name 'shop' runs in this session"):
            ts.start(table.to(ts.to_memory("second")), checkpoint=tmp_path / "second", name="shop")
    finally:
        query.stop()


def test_a_second_start_on_a_checkpoint_says_that_it_stops_the_first(
    table: ts.Table, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As when a cell of a notebook is run again. Spark says so in Java's log alone."""
    checkpoint = str(tmp_path / "checkpoint")

    def warnings() -> list[str]:
        return [one.getMessage() for one in caplog.records if one.name.startswith("tablestream")]

    first = ts.start(table.to(ts.to_memory("first")), checkpoint=checkpoint)
    first.processAllAvailable()
    assert warnings() == []
    second = ts.start(table.to(ts.to_memory("first")), checkpoint=checkpoint)
    assert (first.isActive, second.isActive) == (False, True)
    (said,) = warnings()
    assert said.startswith(f"A run of the query was active on the checkpoint {checkpoint}, and was stopped")
    second.stop()
    ts.start(table.to(ts.to_memory("first")), checkpoint=checkpoint).stop()
    assert len(warnings()) == 1


def test_a_condition_that_is_not_boolean(spark: SparkSession, table: ts.Table, tmp_path: Path) -> None:
    """As Spark's own filter: 'd' is not a truth value, and a query would end at the first row."""
    with pytest.raises(PlanError, match="The condition n is of type int, and not boolean"):
        table.filter("n")
    log = ChangeLog(tmp_path / "other", SCHEMA).read(spark)
    with pytest.raises(PlanError, match=r"The condition op is of type string.*op = 'd'"):
        ts.table(log, "id", apply_as_deletes="op", name="rows")


@pytest.mark.parametrize(
    ("path", "said"), [(None, "is no path: None"), ("", "is empty"), (b"out", "is no path")]
)
def test_a_path_that_is_none(path: Any, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        ts.to_files(path)
