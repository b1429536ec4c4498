"""Paths in a checkpoint's metadata, without Spark."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, cast

import pytest
from typer.testing import CliRunner

from tablestream.cli import app
from tablestream.errors import ArgumentError, CheckpointMovedError
from tablestream.spark import relocation
from tablestream.spark.relocation import check_place, is_same_place, relocate_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint of two stages that was made elsewhere: what is rewritten of it, and what is beside."""
    for stage in range(2):
        folder = tmp_path / "state" / str(stage) / "_metadata" / "v2"
        folder.mkdir(parents=True)
        paths = [f"hdfs://host/old/state/{stage}/_stateSchema/default/0_schema"]
        document = {
            "operatorInfo": {"operatorId": stage},
            "stateStoreInfo": [{"stateSchemaFilePaths": paths}],
        }
        (folder / "0").write_text(f"v2\n{json.dumps(document)}")
        (folder / ".0.crc").write_bytes(b"crc")
    return tmp_path


def paths(checkpoint: Path) -> list[str]:
    files = sorted(checkpoint.glob("state/*/_metadata/v2/0"))
    documents = [json.loads(file.read_text().split("\n")[1]) for file in files]
    return [path for one in documents for path in one["stateStoreInfo"][0]["stateSchemaFilePaths"]]


def test_every_path_names_the_new_place(checkpoint: Path) -> None:
    assert relocate_checkpoint(checkpoint) == 2
    assert paths(checkpoint) == [
        f"file:{checkpoint}/state/{stage}/_stateSchema/default/0_schema" for stage in range(2)
    ]
    # Hadoop would refuse the file for the checksum of the old one.
    assert sorted(one.name for one in checkpoint.glob("state/0/_metadata/v2/*")) == ["0"]
    assert (checkpoint / "state/0/_metadata/v2/0").read_text().startswith("v2\n{")
    assert relocate_checkpoint(f"file://{checkpoint}") == 0


def test_the_command_says_what_it_did(checkpoint: Path) -> None:
    said = [CliRunner().invoke(app, ["relocate", str(checkpoint)]) for _ in range(2)]
    assert [one.exit_code for one in said] == [0, 0]
    assert "Rewrote 2 files" in said[0].output
    assert "nothing to do" in said[1].output
    told = CliRunner().invoke(app, ["relocate", str(checkpoint), "--json"])
    assert json.loads(told.output) == {"checkpoint": str(checkpoint), "rewritten": 0}


def test_what_is_no_checkpoint_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentError, match="is not a checkpoint with state"):
        relocate_checkpoint(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArgumentError, match=rf" out \({tmp_path}/out\) is not a checkpoint with state"):
        relocate_checkpoint("out")
    assert CliRunner().invoke(app, ["relocate", str(tmp_path)]).exit_code == 2


@pytest.mark.parametrize("name", ["a/state/b", "state", "run#2", "what?"])
def test_any_name_of_a_directory_will_do(checkpoint: Path, tmp_path: Path, name: str) -> None:
    place = tmp_path / "beside" / name
    shutil.copytree(checkpoint / "state", place / "state")
    assert relocate_checkpoint(place) == 2
    expected = [f"file:{place}/state/{stage}/_stateSchema/default/0_schema" for stage in range(2)]
    assert paths(place) == expected
    shutil.move(place, tmp_path / "moved")
    assert relocate_checkpoint(tmp_path / "moved") == 2
    assert paths(tmp_path / "moved")[1] == f"file:{tmp_path}/moved/state/1/_stateSchema/default/0_schema"


def test_after_an_evolution_the_whole_checkpoint_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The active generation has the paths; what was moved, and is relocated, is the directory around it."""
    store = {
        "stateSchemaFilePaths": ["file:/old/tablestream-generations/g1/state/0/_stateSchema/default/0_schema"]
    }
    line = json.dumps({"stateStoreInfo": [store]})
    monkeypatch.setattr(relocation, "small_lines", lambda *_: ["v2", line])
    with pytest.raises(CheckpointMovedError) as caught:
        check_place(cast("SparkSession", None), "/new place/tablestream-generations/g1")
    assert "The checkpoint /new place was moved or copied from file:/old, where" in str(caught.value)
    assert "Run `tablestream relocate '/new place'` or" in str(caught.value)


def test_a_file_system_that_cannot_be_opened_is_named() -> None:
    with pytest.raises(ArgumentError, match=r"dbfs:/a cannot be opened.* Arrow opens local paths"):
        relocate_checkpoint("dbfs:/a")


@pytest.mark.parametrize(
    ("stored", "given", "same"),
    [
        ("file:/a/b", "/a/b", True),
        ("file:/a/b", "file:///a/b/", True),
        ("file:/a/b", "/a/c", False),
        ("s3a://bucket/a", "s3://bucket/a/", True),
        ("s3a://bucket/a", "s3a://other/a", False),
        ("hdfs://host/user/me/a", "a", True),
        ("hdfs://host/user/me/a", "/user/me/a", True),
        ("hdfs://host/user/me/a", "/user/me/b", False),
        ("hdfs://host/user/me/a", "/me/a", False),
        ("hdfs://host/a", "hdfs:///a", True),
        ("file:/a/b", "s3a://bucket/a/b", False),
        ("s3a://bucket/a/b", "file:/a/b", False),
        ("file:/a/run#1", "/a/run#2", False),
        ("file:/mnt/state/a", "/mnt/state/a", True),
    ],
)
def test_places_are_compared_whatever_their_scheme_is_called(stored: str, given: str, same: bool) -> None:
    assert is_same_place(stored, given) is same
