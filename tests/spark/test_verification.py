"""A checkpoint is verified: what is whole is said to be, each kind of damage is found, and nothing is changed."""

from __future__ import annotations

import contextlib
import json
import shutil
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from typer.testing import CliRunner

import tablestream as ts
from tablestream.cli import app
from tablestream.cli.exit_codes import ExitCode
from tablestream.errors import CheckpointMovedError, StateError
from tablestream.spark import exchange
from tests.conftest import in_partitions
from tests.faults.damaging import DAMAGE, damage
from tests.faults.followed import FollowedProcessor
from tests.spark.change_logs import START, ChangeLog, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def work_off(spark: SparkSession, directory: Path, micro_batches: int) -> None:
    """Group a table, in two rounds."""
    shutil.rmtree(directory / "log", ignore_errors=True)
    log = ChangeLog(directory / "log", "id int, v int, ts bigint")
    log.add(
        *([{"id": n, "v": n * at, "ts": START + at} for n in range(at, 30)] for at in range(micro_batches))
    )
    rows = ts.table(log.read(spark), "id", timestamp=F.timestamp_seconds("ts"), name="rows")
    kept = rows.materialize(name="kept")
    groups = kept.group_by((F.col("v") % 3).alias("rest")).count(name="groups")
    outputs = (one.to(ts.to_memory(f"verified {one.name}")) for one in (kept, groups))
    with in_partitions(spark, 2):
        run(*outputs, checkpoint=directory / "checkpoint", shards=4)


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A query after three micro-batches."""
    place = tmp_path_factory.mktemp("whole")
    work_off(spark, place, 3)
    return place


@pytest.fixture
def here(whole: Path, tmp_path: Path) -> Path:
    """A copy of it that one may damage."""
    shutil.copytree(whole / "checkpoint", tmp_path / "checkpoint")
    ts.relocate_checkpoint(tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def said(checkpoint: Path, *options: str, code: int) -> str:
    result = CliRunner().invoke(app, ["verify", str(checkpoint), *options])
    assert result.exit_code == code, result.output
    return result.stdout if code in {ExitCode.OK, ExitCode.DAMAGED} else result.stderr


def test_a_whole_checkpoint_is_whole_and_stays_as_it_is(spark: SparkSession, whole: Path) -> None:
    before = contents(whole)
    found = ts.verify(spark, whole / "checkpoint")
    assert found.ok
    assert (found.micro_batch, found.oldest) == (2, 0)
    of_kept = next(one for one in found.traces if one.tables == ("kept",))
    assert (of_kept.round, of_kept.operator, of_kept.faults) == (1, "kept", 0)
    assert 1 < of_kept.shards <= 4
    assert of_kept.rows >= 30
    assert of_kept.size_bytes > 100
    assert {1, 2} <= {one.round for one in found.traces}
    assert ts.verify(spark, whole / "checkpoint", batch_id=0).micro_batch == 0
    rows = sum(one.rows for one in found.traces)
    assert str(found) == f"The state after micro-batch 2 is whole: {rows} rows in {len(found.traces)} traces."

    text = said(whole / "checkpoint", code=ExitCode.OK)
    assert text.startswith("The state after micro-batch 2\n")
    assert text.endswith("All of it is whole.\n")
    about, *traces = map(json.loads, said(whole / "checkpoint", "--json", code=ExitCode.OK).splitlines())
    assert about["ok"]
    assert [one["rows"] for one in traces if one["tables"] == ["kept"]] == [of_kept.rows]
    assert contents(whole) == before


def test_damage_that_a_micro_batch_commits_is_found(
    spark: SparkSession, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {
        "a bit of chunks flipped": "checksum differs",
        "manifest removed": "manifest is missing",
        "everything of one shard removed": "whole state is gone",
    }
    assert words.keys() <= DAMAGE.keys()
    for how, why in words.items():
        place = tmp_path / how.replace(" ", "-")
        shutil.copytree(whole, place)
        ts.relocate_checkpoint(place / "checkpoint")
        with monkeypatch.context() as patching:
            patching.setattr(exchange, "RoundProcessor", partial(FollowedProcessor, partial(damage, how, 3)))
            with contextlib.suppress(PySparkException):
                work_off(spark, place, 4)
        found = ts.verify(spark, place / "checkpoint")
        assert found.micro_batch == 3
        assert not found.ok, how
        assert any(why in one.what for one in found.damage), (how, found.damage)
        assert all(one.shard is not None for one in found.damage)
        assert "after an earlier micro-batch, 0 to 2" in found.damage[0].rebuild
        assert f"{found.damage[0]}\n" in str(found)
        assert f"It can be rebuilt {found.damage[0].rebuild}." in str(found)
        assert ts.verify(spark, place / "checkpoint", batch_id=2).ok


@pytest.mark.parametrize("how", ["flipped", "removed"])
def test_a_damaged_file_of_spark_s_is_told_with_its_partition(
    spark: SparkSession, here: Path, how: str
) -> None:
    folder = here / "state" / "0" / "1"  # of the last round: Spark counts operators from the end
    for file in folder.rglob("*"):
        if file.suffix in {".changelog", ".zip", ".sst"}:
            data = bytearray(file.read_bytes())
            data[len(data) // 2] ^= 4
            file.unlink()
            if how == "flipped":
                file.write_bytes(data)
    for crc in folder.rglob(".*.crc"):
        crc.unlink()
    found = ts.verify(spark, here)
    assert not found.ok
    (lost, *others) = found.damage
    assert lost.what.startswith("Spark cannot read partition 1 of the state (shards ")
    assert lost.shard is None
    assert all(one.round == lost.round for one in others)
    assert {1, 2} <= {one.round for one in found.traces}
    text = said(here, code=ExitCode.DAMAGED)
    assert "damaged:" in text
    assert "It can be rebuilt from the state after an earlier micro-batch, 0 to 1" in text
    lines = [json.loads(line) for line in said(here, "--json", code=ExitCode.DAMAGED).splitlines()]
    assert not lines[0]["ok"]
    assert any("damage" in one and one["rebuild"] for one in lines)


def test_what_cannot_be_verified_is_told_why(spark: SparkSession, whole: Path, tmp_path: Path) -> None:
    def refused(kind: type[Exception], why: str, place: Path, **options: Any) -> None:
        with pytest.raises(kind, match=why):
            ts.verify(spark, place, **options)

    (tmp_path / "empty").mkdir()
    refused(StateError, "is not the checkpoint of a query", tmp_path / "empty")
    refused(
        StateError,
        "has the state after the micro-batches 0 to 2, not that after 9",
        whole / "checkpoint",
        batch_id=9,
    )
    (tmp_path / "unused").mkdir()
    (tmp_path / "unused" / "metadata").write_text('{"id":"7b0a7a1c-5a2c-4a5e-8d0f-000000000000"}')
    refused(StateError, "has no state of tables", tmp_path / "unused")
    shutil.copytree(whole / "checkpoint", tmp_path / "moved")
    refused(CheckpointMovedError, "was moved or copied", tmp_path / "moved")
    error = said(tmp_path / "missing", code=ExitCode.COULD_NOT_RUN)
    assert error.startswith("Error TABLESTREAM_ARGUMENT: There is no directory")
