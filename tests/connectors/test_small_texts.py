"""Small texts on this machine are read and written without Spark, as Spark would."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

from tablestream.connectors import small_texts, spark_place
from tablestream.connectors.place import Place
from tablestream.connectors.small_texts import documents, first_line, small_lines, write_line
from tablestream.connectors.spark_place import on_this_machine
from tablestream.errors import DamagedStateError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_small_files_of_this_machine_are_read_as_spark_reads_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {
        "b/part-1": "two\nthree\n",
        "a/part-0": "one\ntwo\n",
        "a/other": "four\n",
        "a/ends": "five\r\nsix\rseven\n\neight",
        "a/within": "nine\u2028ten\u0085eleven\x0btwelve\x1cthirteen\n",
        "a/empty": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(text.encode())
    patterns = ["*/part-*", "a/part-0", "a/none-*", "c/part-0", "a/ends", "a/within", "a/empty"]
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(small_texts, "on_this_machine", lambda *_: None)
        theirs = [small_lines(spark, str(tmp_path), one) for one in patterns]
    mine = [small_lines(spark, str(tmp_path), one) for one in patterns]
    monkeypatch.setattr(type(spark), "read", None)
    assert [small_lines(spark, f"file:{tmp_path}", one) for one in patterns] == mine
    assert mine == [
        ["one", "two", "three"],
        ["one", "two"],
        [],
        [],
        ["five", "six", "seven", "", "eight"],
        [texts["a/within"].rstrip("\n")],
        [],
    ]
    assert [sorted(lines) for lines in theirs] == [sorted(lines) for lines in mine]


def test_only_the_pattern_of_small_files_is_a_pattern(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory of the user may be called `run[1]`, and `what?` is not `what1`."""
    for number, name in enumerate(("run[1]", "run1", "what?", "what1", "{a,b}", "a", "back\\slash", "*")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part-0").write_text(f"{number}\n")
    names = ("run[1]", "what?", "{a,b}", "*")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(small_texts, "on_this_machine", lambda *_: None)
        theirs = [small_lines(spark, f"{tmp_path}/{one}", "part-*") for one in names]
    mine = [small_lines(spark, f"{tmp_path}/{one}", "part-*") for one in names]
    assert mine == theirs == [["0"], ["2"], ["4"], ["7"]]


LINES = ["first", "second: \u2028 \xe9"]


@pytest.mark.parametrize("is_here", [True, False])
def test_lines_are_added_or_take_the_place_of_all(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_here: bool
) -> None:
    if is_here:
        monkeypatch.setattr(type(spark), "createDataFrame", None)
    else:
        monkeypatch.setattr(small_texts, "on_this_machine", lambda *_: None)
    place = tmp_path / "new" / "of it"
    for line in LINES:
        write_line(spark, str(place), line, mode="append")
    assert sorted(small_lines(spark, str(place), "part-*")) == LINES
    assert sorted(row[0] for row in spark.read.text(str(place)).collect()) == LINES
    if is_here:
        assert len(list(place.iterdir())) == len(LINES)
    (place / "below").mkdir()
    write_line(spark, str(place), "third", mode="overwrite")
    assert small_lines(spark, str(place), "part-*") == ["third"]
    assert first_line(spark, str(place), "part-*") == "third"
    assert not (place / "below").exists()


def test_what_spark_wrote_is_read_and_replaced(spark: SparkSession, tmp_path: Path) -> None:
    """Older versions wrote all small texts as jobs, which leave checksums and a file that says that they succeeded."""
    place = tmp_path / "tablestream"
    facts = spark.range(1).coalesce(1).selectExpr("'two\nlines' AS value", "'{}' AS session")
    facts.write.json(str(place))
    assert documents(spark, str(place), "part-*") == [{"value": "two\nlines", "session": "{}"}]
    assert len(list(place.glob(".*.crc"))) == 2
    write_line(spark, str(place), '{"value": "one"}', mode="overwrite")
    assert documents(spark, str(place), "part-*") == [{"value": "one"}]
    assert [row.value for row in spark.read.json(str(place)).collect()] == ["one"]


def test_a_line_that_is_half_written_is_said(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id": "3e6e')
    with pytest.raises(
        DamagedStateError, match=r"/metadata has a line that is not a JSON object: '\{\"id\": \"3e6e'"
    ):
        documents(spark, str(tmp_path), "metadata")


@pytest.mark.parametrize("at", ["", "shards", "shards/part-0"])
def test_what_cannot_be_read_is_not_taken_for_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """A plan that seems to be missing would be written anew."""
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "part-0").write_text("line\n")

    def failing(read: Callable[..., Any]) -> Callable[..., Any]:
        def called(path: Path, **options: Any) -> Any:
            if str(path) == str(tmp_path / at):
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
            return read(path, **options)

        return called

    monkeypatch.setattr(os, "listdir", failing(os.listdir))
    monkeypatch.setattr(type(tmp_path), "read_text", failing(type(tmp_path).read_text))
    with pytest.raises(OSError, match="Input/output error"):
        small_lines(spark, f"file:{tmp_path}", "shards/part-*")


def test_a_path_of_the_default_file_system_is_here_only_if_that_is(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert on_this_machine(spark, str(tmp_path)) == tmp_path
    assert on_this_machine(spark, f"file://{tmp_path}") == tmp_path
    for other in ("s3a://bucket/path", f"file://host{tmp_path}", "file:relative"):
        assert on_this_machine(spark, other) is None
    monkeypatch.setattr(spark_place, "full_path", lambda _, path: f"hdfs://host{path}")
    assert on_this_machine(spark, str(tmp_path)) is None
    monkeypatch.setattr(spark_place, "is_local", lambda _: False)
    assert on_this_machine(spark, f"file:{tmp_path}") is None


@pytest.mark.parametrize(
    "path", ["/a b/x", "/out", "/out/", "out", "./out/x.y", "../out", "/out/a..b", "file:/out", "a/./b//c", "."]
)  # fmt: skip
def test_the_place_of_a_path_is_the_one_that_spark_says(spark: SparkSession, path: str) -> None:
    """Spark is asked once for all plain paths."""
    asked = spark_place._asked(spark, path)
    found = spark_place.full_path(spark, path)
    assert (found and Place.of(found)) == (asked and Place.of(asked))
