"""Changes held back, through Spark: time is the records', and it survives a restart."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import tablestream as ts
from tablestream.errors import ArgumentError
from tablestream.spark import runner
from tests.spark.change_logs import START, ChangeLog, run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession


def row(key: str, value: int | None, at: int) -> dict[str, Any]:
    return {"key": key, "value": value, "at": START + at}


def table(log: ChangeLog, spark: SparkSession) -> ts.Table:
    return ts.table(
        log.read(spark),
        "key",
        timestamp=F.timestamp_seconds("at"),
        apply_as_deletes="value is null",
        columns=["value"],
        name="rows",
    )


def test_the_last_change_of_each_key_leaves_when_its_time_has_come(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = ChangeLog(tmp_path / "log", "key string, value int, at bigint")
    log.add([row("a", 1, 0), row("b", 1, 2), row("a", 2, 3)], [row("c", 1, 4), row("d", 9, 5)])
    sink = ts.to_memory("suppressed")

    def go() -> None:
        held = table(log, spark).suppress("5 seconds")
        run(held.to(sink), checkpoint=tmp_path / "checkpoint", shards=1)

    go()
    assert [(one.key, one.value) for one in sink.rows()] == [("a", 2)]
    log.add([row("a", 3, 6), row("a", None, 7)], [row("e", 9, 12)])
    go()
    assert [(one.key, one.value, int(one["_timestamp"].timestamp()) - START) for one in sink.rows()] == [
        ("a", 2, 3),
        ("b", 1, 2),
        ("c", 1, 4),
        ("d", 9, 5),
        ("a", None, 7),
    ]


def test_bad_limits_are_refused_when_the_plan_is_built(spark: SparkSession, tmp_path: Path) -> None:
    rows = table(ChangeLog(tmp_path / "log", "key string, value int, at bigint"), spark)
    assert rows.suppress(timedelta(minutes=5), max_records=10).columns == rows.columns
    for until in ("soon", "-1 second", 5, None):
        with pytest.raises(ArgumentError, match="not a duration"):
            rows.suppress(until)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="max_records=0"):
        rows.suppress("1 hour", max_records=0)
    with pytest.raises(ArgumentError, match="on_full"):
        rows.suppress("1 hour", on_full="wait")  # type: ignore[arg-type]


def test_the_wall_clock_releases_what_an_idle_input_left(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = ChangeLog(tmp_path / "log", "key string, value int, at bigint")
    # After the last record nothing but the clock wakes its shard.
    log.add(*([row("a", 1, 0), row("b", 1, 2), row("a", 2, 3)] for _ in range(8)), [row("c", 3, 4)])
    sink = ts.to_memory("by the clock")
    held = table(log, spark).suppress("1 hour", wall_clock="2 seconds").group_by("value").count()
    with pytest.raises(ArgumentError, match="availableNow"):
        ts.start(held.to(sink), checkpoint=tmp_path / "checkpoint", trigger={"availableNow": True})
    triggers = []
    triggered = runner._triggered

    def noted(writer: Any, trigger: Mapping[str, Any]) -> Any:
        triggers.append(trigger)
        return triggered(writer, trigger)

    monkeypatch.setattr(runner, "_triggered", noted)
    query = ts.start(held.to(sink), checkpoint=tmp_path / "checkpoint", shards=2)
    assert triggers == [{"processingTime": "1 second"}]
    try:
        deadline = time.monotonic() + 600
        while all(one.value != 3 for one in sink.rows()) and time.monotonic() < deadline:
            time.sleep(0.1)
            assert query.exception() is None
    finally:
        query.stop()
    assert {one.value: one["count"] for one in sink.rows()} == {1: 1, 2: 1, 3: 1}
    assert {one["_order"]["partition"] for one in sink.rows()} == {"~"}
    # A shard tells its size once in a micro-batch, whatever it was woken for.
    told = [one.observedMetrics["tablestream_operators"]["measures"] for one in query.recentProgress]
    shards = [count for one in told for name, count in one.items() if name.endswith(": shards")]
    assert max(shards) == 2
