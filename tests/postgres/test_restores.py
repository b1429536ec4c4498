"""Targets and checkpoints that were restored: nothing is missing, nothing is there twice, and nothing is guessed."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as T

import tablestream as ts
from tablestream.connectors.marks import MarkedSink, Moment
from tablestream.errors import TargetError
from tablestream.spark.generations import Generation, id_of_query, next_moment
from tests.spark.change_logs import ChangeLog, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.postgres.database import Database

KINDS = ("files", "log", "table", "postgres")


class Restored:
    """A query into every kind of target that keeps marks."""

    def __init__(self, spark: SparkSession, database: Database, directory: Path) -> None:
        self.spark, self.database, self.directory = spark, database, directory
        self.log = ChangeLog(directory / "in", "id int, n bigint")
        self.checkpoint = directory / "checkpoint"
        self.sinks: dict[str, Any] = {
            "files": ts.to_files(directory / "files"),
            "log": ts.to_delta(directory / "log", mode="changes"),
            "table": ts.to_delta(directory / "table"),
            "postgres": ts.to_postgres("out", database.conninfo, create=True),
        }

    def work_off(self, **on_mismatch: str) -> None:
        source = self.log.read(self.spark, max_files_per_trigger=10)
        table = ts.table(source, "id", name="ids").materialize()
        outputs = [
            table.to(replace(sink, on_mismatch=on_mismatch.get(kind, "refuse")), name=kind, emit="every")
            for kind, sink in self.sinks.items()
        ]
        run(*outputs, checkpoint=self.checkpoint, shards=1)

    def add(self, identity: int) -> None:
        self.log.add([{"id": identity, "n": 1}])

    def ids(self) -> dict[str, list[int]]:
        """What each target has, with repeats."""
        read = self.spark.read
        found = {
            "files": read.parquet(self.sinks["files"].path),
            "log": read.format("delta").load(self.sinks["log"].path),
            "table": read.format("delta").load(self.sinks["table"].path),
        }
        ids = {kind: sorted(row.id for row in frame.collect()) for kind, frame in found.items()}
        return ids | {"postgres": [row[0] for row in self.database.rows("SELECT id FROM out")]}

    def moment(self) -> Moment:
        place = Generation(0, str(self.checkpoint))
        return next_moment(self.spark, place, id_of_query(self.spark, place.path))

    def said(self, kind: str) -> str:
        """What a target says to a start; empty if it fits."""
        sink = self.sinks[kind].keyed_by(["id"])
        if kind == "postgres":
            sink = sink.shaped(
                T.StructType().add("id", "integer"), T.StructType().add("n", "long"), records=False
            )
        assert isinstance(sink, MarkedSink)
        try:
            sink.at(self.moment()).settle(self.spark, T.StructType(), None)  # type: ignore[arg-type]
        except TargetError as error:
            return error.reason
        return ""

    def keep(self, name: str) -> None:
        """Make a backup of checkpoint and targets."""
        for place in ("checkpoint", "files", "log", "table"):
            shutil.copytree(self.directory / place, self.directory / name / place)
        self.database.run(
            *(f"CREATE TABLE {name}_{table} AS TABLE {table}" for table in ("out", "tablestream_marks"))
        )

    def restore(self, name: str, *places: str) -> None:
        """Restore some of them."""
        for place in places:
            if place == "postgres":
                for table in ("out", "tablestream_marks"):
                    self.database.run(f"DELETE FROM {table}", f"INSERT INTO {table} TABLE {name}_{table}")
            else:
                shutil.rmtree(self.directory / place)
                shutil.copytree(self.directory / name / place, self.directory / place)


def everywhere(*ids: int) -> dict[str, list[int]]:
    return {kind: list(ids) for kind in KINDS}


@pytest.mark.exhaustive
def test_a_checkpoint_or_targets_that_were_restored_are_refused_until_they_are_settled(
    delta_spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    query = Restored(delta_spark, database, tmp_path)
    query.add(1)
    query.work_off()
    query.keep("backup")
    for identity in (2, 3):
        query.add(identity)
        query.work_off()
    assert query.ids() == everywhere(1, 2, 3)

    # An older checkpoint: every target is ahead. What is done again is cut otherwise.
    query.restore("backup", "checkpoint")
    query.add(4)
    for kind in KINDS:
        assert "has the micro-batches up to 2, and the checkpoint the micro-batches up to 0" in query.said(
            kind
        )
    with pytest.raises(TargetError, match="after an older checkpoint was restored"):
        query.work_off()
    query.work_off(**dict.fromkeys(KINDS, "rebuild"))
    assert query.ids() == everywhere(1, 2, 3, 4)
    query.add(5)
    query.work_off()
    assert query.ids() == everywhere(1, 2, 3, 4, 5)

    # Older targets: they are behind. A log lacks what the state does not have either.
    query.restore("backup", *KINDS)
    for kind in KINDS:
        assert "has the micro-batches up to 0, and the checkpoint the micro-batches up to 2" in query.said(
            kind
        )
    query.add(6)
    with pytest.raises(TargetError, match=r"files.* cannot be rebuilt"):
        query.work_off(**dict.fromkeys(KINDS, "rebuild"))
    query.work_off(files="accept", log="accept", table="rebuild", postgres="rebuild")
    whole, gap = [1, 2, 3, 4, 5, 6], [1, 6]
    assert query.ids() == {"files": gap, "log": gap, "table": whole, "postgres": whole}

    # Both of one moment fit.
    query.restore("backup", "checkpoint", *KINDS)
    assert [query.said(kind) for kind in KINDS] == [""] * 4
