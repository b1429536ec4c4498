"""Paths: how they are shortened, compared and refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tablestream as ts
from tablestream.connectors.place import Place
from tablestream.errors import ArgumentError
from tablestream.spark.outputs import check_apart, check_outputs


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("./out//x/", "out/x"),
        ("/", "/"),
        ("//a//b", "//a/b"),
        ("file:///a/b/", "file:/a/b"),
        ("s3a://bucket/", "s3a://bucket/"),
        ("s3a://bucket", "s3a://bucket"),
        ("hdfs:///a", "hdfs:/a"),
        ("dbfs:/a/../b", "dbfs:/b"),
        ("/a/run#2?", "/a/run#2?"),
    ],
)
def test_a_path_is_as_short_as_it_can_be_said(text: str, shown: str) -> None:
    assert str(Place.of(text)) == shown
    assert Place.of(shown) == Place.of(text)


@pytest.mark.parametrize("other", ["./out/x", "out//x/", f"{Path.cwd()}/out/x", f"file:{Path.cwd()}/out/x"])
def test_one_place_written_in_two_ways_is_one_target(other: str) -> None:
    """A repeated micro-batch is recognised by its target, so two outputs must not have the same."""
    sinks = [ts.to_delta(path, mode="changes") for path in ("out/x", other)]
    with pytest.raises(ArgumentError, match="Two outputs have the target"):
        check_outputs(["first", "second"], sinks)


def test_a_message_says_where_a_relative_path_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Place.of("./out//x").in_full == f"out/x ({tmp_path}/out/x)"
    for complete in ("/out/x", "file:/out/x", "s3a://bucket/x"):
        assert Place.of(complete).in_full == complete


def test_one_topic_is_one_target_unless_its_brokers_are_named_differently() -> None:
    """Two outputs would be one writer to a reader that leaves repeats out."""
    (one, two, other) = (
        ts.to_kafka("t", bootstrap_servers=servers) for servers in ("h:9092", "h:9092", "h:9092,i:9092")
    )
    with pytest.raises(ArgumentError, match="Two outputs have the target"):
        check_outputs(["a", "b"], [one, two])
    check_outputs(["a", "c"], [one, other])


def test_two_places_are_two_targets() -> None:
    check_outputs(["a", "b"], [ts.to_delta("out/x"), ts.to_delta("out/y")])
    check_outputs(["a", "b"], [ts.to_memory("x"), ts.to_memory("y")])


@pytest.mark.parametrize(
    ("output", "checkpoint", "apart"),
    [
        ("s3a://bucket/out", "s3a://bucket/out/", False),
        ("s3a://bucket/out", "s3a://bucket/out/c", False),
        ("s3a://bucket/c/out", "s3a://bucket/c", True),
        ("s3a://bucket/out", "s3a://bucket/out/_checkpoints/c", True),
        ("s3a://bucket/out", "s3a://bucket/out2", True),
        ("s3a://bucket/out", "s3a://other/out", True),
        ("s3a://bucket/out", "/out", True),
        ("out/../out", f"file:{Path.cwd()}/out", False),
    ],
)
def test_a_checkpoint_is_not_in_the_directory_of_an_output(
    output: str, checkpoint: str, *, apart: bool
) -> None:
    sinks: list[Any] = [ts.to_files(output), ts.to_memory("out")]
    if apart:
        check_apart(checkpoint, sinks)
        return
    with pytest.raises(ArgumentError, match="is in the directory of the output"):
        check_apart(checkpoint, sinks)


def test_outputs_and_the_checkpoint_of_a_delta_table_have_their_own_directories() -> None:
    """Readers of a directory find all files in it, and VACUUM deletes those that Delta does not know."""
    files, delta = ts.to_files("out/log"), ts.to_delta("out")
    refused: tuple[tuple[list[Any], str, str], ...] = (
        ([delta], "out/checkpoint", "The checkpoint out/checkpoint"),
        ([delta, files], "c", "The output 'files out/log'"),
        ([ts.to_files("out"), ts.to_delta("out")], "c", "The output 'files out'"),
        ([files, ts.to_files("out/log/late")], "c", "The output 'files out/log/late'"),
    )
    for sinks, checkpoint, what in refused:
        with pytest.raises(ArgumentError, match=f"{what} is in the directory of the output"):
            check_apart(checkpoint, sinks)
    apart: list[Any] = [files, ts.to_delta("out2"), ts.to_delta("out/log/_delta"), ts.to_memory("m")]
    check_apart("out/_checkpoint", apart)
