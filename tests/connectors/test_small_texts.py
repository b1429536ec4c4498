"""Small texts on this machine are read and written without Spark, as Spark would."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tablestream.connectors import small_texts, spark_place
from tablestream.connectors.small_texts import first_line, small_lines, write_line
from tablestream.connectors.spark_place import on_this_machine

if TYPE_CHECKING:
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


@pytest.mark.parametrize("is_here", [True, False])
def test_lines_are_added_or_take_the_place_of_all(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_here: bool
) -> None:
    if not is_here:
        monkeypatch.setattr(small_texts, "on_this_machine", lambda *_: None)
    directory = str(tmp_path / "new" / "of it")
    write_line(spark, directory, "first", mode="append")
    write_line(spark, directory, "second: \u2028 \xe9", mode="append")
    assert sorted(small_lines(spark, directory, "part-*")) == ["first", "second: \u2028 \xe9"]
    assert sorted(row[0] for row in spark.read.text(directory).collect()) == ["first", "second: \u2028 \xe9"]
    (tmp_path / "new" / "of it" / "below").mkdir()
    write_line(spark, directory, "third", mode="overwrite")
    assert small_lines(spark, directory, "part-*") == ["third"]
    assert first_line(spark, directory, "part-*") == "third"
    assert not (tmp_path / "new" / "of it" / "below").exists()


def test_a_path_of_the_default_file_system_is_here_only_if_that_is(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert on_this_machine(spark, str(tmp_path)) == tmp_path
    assert on_this_machine(spark, f"file://{tmp_path}") == tmp_path
    assert on_this_machine(spark, "s3a://bucket/path") is None
    monkeypatch.setattr(spark_place, "full_path", lambda _, path: f"hdfs://host{path}")
    assert on_this_machine(spark, str(tmp_path)) is None
    monkeypatch.setattr(spark_place, "is_local", lambda _: False)
    assert on_this_machine(spark, f"file:{tmp_path}") is None
