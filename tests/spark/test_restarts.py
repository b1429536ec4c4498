"""A query that starts again: with another plan it is refused, and what it does again it does alike."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import tablestream as ts
from tablestream.connectors.memory.sink import MemorySink
from tablestream.errors import ArgumentError, CheckpointMovedError, PlanChangedError, SessionSettingError
from tests.spark.change_logs import ALL, START, ChangeLog, run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

SCHEMA = "id int, to int, v int, ts bigint"


@pytest.fixture
def log(tmp_path: Path) -> ChangeLog:
    log = ChangeLog(tmp_path / "log", SCHEMA)
    log.add(rows(1), rows(2))
    return log


def rows(number: int) -> list[dict[str, Any]]:
    return [{"id": n, "to": (n + number) % 5, "v": n * number, "ts": START + n} for n in range(5)]


def joined(
    log: ChangeLog, spark: SparkSession, *, how: Any = "left", view: str = "v >= 0", name: str = "pointing"
) -> ts.Table:
    table = ts.table(log.read(spark), "id", timestamp=F.timestamp_seconds("ts"), name="rows")
    other = table.filter(view).select(F.col("v").alias("found"))
    return table.join(other, on="to", how=how, name=name)


SHARDS: dict[str, Any] = {"shards": 3}
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]] = {
    "kind of join": ({"how": "inner"}, {}, ("inner join of rows", "left join of rows")),
    "expression": ({"view": "v > 0"}, {}, ("filter v > 0", "filter v >= 0")),
    "name": ({"name": "renamed"}, {}, ("operator renamed/subscribe",)),
    "shards": ({}, {"shards": 5}, ("shards: 5", "shards: 3")),
    "compat": ({}, {"compat": "kafka-streams"}, ("compat: kafka-streams",)),
}


class Asked(MemorySink):
    """A target that nobody may ask before the plan is known to fit."""

    def check(self, spark: SparkSession, columns: Sequence[str]) -> None:  # noqa: ARG002 (the contract's)
        raise AssertionError("the target was asked before the plan")


def test_a_changed_plan_is_refused(spark: SparkSession, log: ChangeLog, tmp_path: Path) -> None:
    """By `start` before the query starts, and by the workers for a frame that Spark starts: it says what changed."""
    sink, options = ts.to_memory("restarts"), SHARDS
    run(joined(log, spark).to(sink), checkpoint=tmp_path / "started", **options)
    offsets = sorted((tmp_path / "started" / "offsets").iterdir())
    writer = joined(log, spark).changes(**options).writeStream.format("noop")
    writer.option("checkpointLocation", str(tmp_path / "written")).trigger(**ALL).start().awaitTermination()
    for what, (plan, other, words) in CHANGES.items():
        with pytest.raises(PlanChangedError) as refused:
            run(
                joined(log, spark, **plan).to(Asked("asked")),
                checkpoint=tmp_path / "started",
                **options | other,
            )
        assert all(word in str(refused.value) for word in words), (what, str(refused.value))
    assert sorted((tmp_path / "started" / "offsets").iterdir()) == offsets

    log.add(rows(3))
    plan, other, words = CHANGES["expression"]
    writer = joined(log, spark, **plan).changes(**options | other).writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path / "written")).trigger(**ALL).start()
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination()
    assert "[TABLESTREAM_PLAN_CHANGED]" in str(caught.value)
    assert all(word in str(caught.value) for word in words)

    run(joined(log, spark).to(sink), checkpoint=tmp_path / "started", **options)
    assert {row["_order"]["micro_batch"] for row in sink.rows()} == {0, 1, 2}


def test_a_session_that_computes_other_values_is_refused(
    spark: SparkSession, log: ChangeLog, tmp_path: Path
) -> None:
    """Else rows that do not change would keep the former values: the result would be a mix."""
    sink = ts.to_memory("zones")
    morning = F.hour(F.timestamp_seconds("ts") - F.expr("interval 1 hour")) < 12

    def start() -> None:
        source = ts.table(log.read(spark), "id", timestamp=F.timestamp_seconds("ts"), name="rows")
        other = source.select(F.col("v").alias("found"))
        morning_rows = source.join(other, on="to", name="joined").filter(morning)
        run(morning_rows.to(sink), checkpoint=tmp_path / "checkpoint")

    start()
    log.add(rows(3))
    for name, value in (("spark.sql.session.timeZone", "Asia/Tokyo"), ("spark.sql.ansi.enabled", "false")):
        before = str(spark.conf.get(name))
        spark.conf.set(name, value)
        try:
            with pytest.raises(SessionSettingError, match=f"{name}={before}") as refused:
                start()
        finally:
            spark.conf.set(name, before)
        assert f'spark.conf.set("{name}", "{before}")' in str(refused.value)
    spark.conf.set("spark.sql.session.timeZone", "Etc/UTC")
    try:
        start()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_what_holds_no_state_may_change(spark: SparkSession, log: ChangeLog, tmp_path: Path) -> None:
    """An expression behind the last operator, an output's name and sink, and the path to the same checkpoint.

    Settings of the session are not compared where they were not stored, as in a checkpoint of an older version.
    """
    one, other, checkpoint = (
        ts.to_memory("restarts one"),
        ts.to_memory("restarts other"),
        tmp_path / "checkpoint",
    )
    run(joined(log, spark).to(one), checkpoint=checkpoint)
    (stored,) = (checkpoint / "tablestream").glob("part-*")
    facts = json.loads(stored.read_text())
    del facts["session"]
    stored.write_text(json.dumps(facts))
    (tmp_path / "link").symlink_to(checkpoint)
    log.add(rows(3))
    changed = joined(log, spark).select((F.col("v") + 1).alias("more"))
    run(changed.to(other, name="other"), checkpoint=tmp_path / "link")
    assert {row.id: row.more for row in other.rows()} == {n: n * 3 + 1 for n in range(5)}
    assert {row["_order"]["micro_batch"] for row in other.rows()} == {2}


@pytest.mark.exhaustive
def test_what_waits_for_an_output_is_part_of_the_plan(
    spark: SparkSession, log: ChangeLog, tmp_path: Path
) -> None:
    """Records wait as a view computed them, so another is refused. Older checkpoints lack it; shards add it."""
    table = ts.table(log.read(spark), "id", timestamp=F.timestamp_seconds("ts"), name="rows")
    sink, checkpoint = ts.to_memory("restarts waiting"), tmp_path / "checkpoint"

    def start(view: str) -> None:
        run(table.select(F.expr(view).alias("w")).to(sink), checkpoint=checkpoint, align=True)

    start("v + 1")
    with pytest.raises(PlanChangedError, match=r"select w = [^\n]*2"):
        start("v + 2")
    (note,) = (checkpoint / "tablestream").glob("part-*")
    text = json.loads(note.read_text())["value"]
    lines = [line for line in text.split("\n") if not line.startswith("  rows")]
    note.write_text(json.dumps({"value": "\n".join(lines)}) + "\n")
    start("v + 1")
    assert json.loads(note.read_text())["value"] == "\n".join(lines) != text
    log.add(rows(3))
    with pytest.raises(StreamingQueryException, match="TABLESTREAM_PLAN_CHANGED"):
        start("v + 2")  # by the workers


def test_a_plan_that_never_ran_binds_nobody(spark: SparkSession, log: ChangeLog, tmp_path: Path) -> None:
    trigger = {"processingTime": "never"}
    with pytest.raises(ArgumentError, match="never"):
        ts.start(joined(log, spark).to(ts.to_memory("x")), checkpoint=tmp_path / "c", trigger=trigger)
    assert (tmp_path / "c" / "tablestream").exists()
    run(joined(log, spark, how="inner").to(ts.to_memory("restarts")), checkpoint=tmp_path / "c")


def forget_last_commit(checkpoint: Path) -> None:
    """As if the query had ended before the last micro-batch was done, but after its sinks were written."""
    commits = sorted(
        (path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()),
        key=lambda p: int(p.name),
    )
    commits[-1].unlink()
    (checkpoint / "commits" / f".{commits[-1].name}.crc").unlink(missing_ok=True)


@pytest.mark.usefixtures("several_partitions")
def test_a_micro_batch_that_is_done_again_gives_the_same(
    spark: SparkSession, log: ChangeLog, tmp_path: Path
) -> None:
    """With and without the cache of the workers; the sink holds each change once.

    The join is the one that keeps both sides. `tests/simulation` repeats micro-batches of all operators.
    """
    how = "outer"
    sink = ts.to_memory("restarts again")
    run(joined(log, spark, how=how).to(sink), checkpoint=tmp_path / "checkpoint")
    before = sink.rows()
    forget_last_commit(tmp_path / "checkpoint")
    log.add(rows(3))
    run(joined(log, spark, how=how).to(sink), checkpoint=tmp_path / "checkpoint")
    after = sink.rows()
    assert after[: len(before)] == before
    assert {row["_order"]["micro_batch"] for row in after[len(before) :]} == {2}
    whole = ts.to_memory("restarts whole")
    run(joined(log, spark, how=how).to(whole), checkpoint=tmp_path / "afresh")
    assert whole.rows() == after


def test_a_moved_checkpoint_is_refused_until_it_is_relocated(
    spark: SparkSession, log: ChangeLog, tmp_path: Path
) -> None:
    sink, old, new = ts.to_memory("moved"), tmp_path / "old", tmp_path / "new"
    run(joined(log, spark).to(sink), checkpoint=old, **SHARDS)
    assert ts.relocate_checkpoint(old) == 0
    shutil.copytree(old, new)
    log.add(rows(3))
    for original_is_gone in (False, True):
        if original_is_gone:
            shutil.rmtree(old)
        with pytest.raises(CheckpointMovedError, match=f"copied from file:{old}"):
            run(joined(log, spark).to(sink), checkpoint=new, **SHARDS)

    assert ts.relocate_checkpoint(new) == 2
    assert ts.relocate_checkpoint(new) == 0
    run(joined(log, spark).to(sink), checkpoint=new, **SHARDS)
    assert {row["_order"]["micro_batch"] for row in sink.rows()} == {0, 1, 2}
    assert ts.read_state(spark, new, "rows_filter_select").count() == 5
