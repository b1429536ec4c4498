"""Joins with a global table through Spark: the distributed join's changes, in one round."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import tablestream as ts
from tablestream.errors import ArgumentError
from tablestream.spark import round_worker
from tests.spark.change_logs import START, ChangeLog, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.exhaustive
def test_the_changes_are_those_of_the_distributed_join(spark: SparkSession, tmp_path: Path) -> None:
    schema = "id int, to int, v int, ts bigint"
    log = ChangeLog(tmp_path / "log", schema)

    def rows(number: int) -> list[dict[str, Any]]:
        return [{"id": n, "to": (n * number) % 4, "v": n * number, "ts": START + n} for n in range(6)]

    log.add(rows(1), rows(2))
    found = {}
    for make in (ts.table, ts.global_table):
        sink = ts.to_memory(f"copies {make.__name__}")

        def go(make: Any = make, sink: Any = sink) -> None:
            times: dict[str, Any] = {"timestamp": F.timestamp_seconds("ts"), "except_columns": ["ts"]}
            left = ts.table(log.read(spark), "id", name="left", **times)
            right = make(log.read(spark), "id", name="right", **times)
            joined = left.join(
                right, on="to", how="left", select=lambda mine, other: [mine.v, other.v.alias("w")]
            )
            run(joined.to(sink), checkpoint=tmp_path / make.__name__)

        go()
        log.add(rows(3))
        go()
        in_order = [(one.id, one.v, one.w, one["_change_type"], one["_timestamp"]) for one in sink.rows()]
        found[make] = sorted(in_order, key=lambda one: one[0])  # of each key in its order
        log.path.joinpath("0002.json").unlink()
        log.files = 2
    assert found[ts.table] == found[ts.global_table]
    assert len(found[ts.table]) > 18


def test_a_global_table_is_joined_by_foreign_key_only(spark: SparkSession, tmp_path: Path) -> None:
    frame = ChangeLog(tmp_path / "log", "id int, to int").read(spark)
    table, copied = ts.table(frame, "id", order_by="to"), ts.global_table(frame, "id", order_by="to")
    assert repr(copied).startswith("Global")
    with pytest.raises(ArgumentError, match="needs on="):
        table.join(copied)
    with pytest.raises(ArgumentError, match="how='outer'"):
        table.join(copied, on="to", how="outer")


def test_a_worker_warns_once_of_a_copy_that_is_larger_than_64_mb(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(round_worker, "_warned", set())
    join: Any = SimpleNamespace(name="prices", copy_trace="copy", inputs=(1, 2))

    def report(size_bytes: int, arrived: int) -> int:
        state: Any = SimpleNamespace(sizes=lambda _: (None, SimpleNamespace(size_bytes=size_bytes)))
        return len(list(round_worker._copied(join, 0, {arrived}, state)))

    assert [report(64 << 20, 2), report(65 << 20, 1), caplog.records] == [1, 0, []]
    assert [report(65 << 20, 2), report(70 << 20, 2)] == [1, 1]
    (told,) = caplog.messages
    assert told.startswith("prices: a shard's copy of the global table has 65 MB")
