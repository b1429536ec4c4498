"""Versioned tables, reordered and sequenced sources through Spark, over micro-batches and a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import tablestream as ts
from tests.spark.change_logs import START, ChangeLog, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Row, SparkSession

SCHEMA = "kind string, k string, v int, at bigint, lsn int"


def at(kind: str, key: str, value: int | None, time: int, lsn: int = 0) -> dict[str, Any]:
    return {"kind": kind, "k": key, "v": value, "at": START + time, "lsn": lsn}


def seen(rows: list[Row], *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of the changes, in order, with the time from the start."""
    times = [round(row["_timestamp"].timestamp()) - START for row in rows]
    return [(*(row[name] for name in columns), time) for row, time in zip(rows, times, strict=True)]


@pytest.mark.timeout(600)
def test_versions_grace_order_and_sequences(spark: SparkSession, tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "log", SCHEMA)
    sinks = {
        name: ts.memory(f"versions {name}")
        for name in ("table", "as of", "everywhere", "waiting", "filtered", "in order", "highest")
    }

    def go() -> dict[str, int]:
        def frame(kind: str) -> Any:
            return log.read(spark).where(F.col("kind") == kind)

        said: dict[str, Any] = {"timestamp": F.timestamp_seconds("at"), "columns": ["v"]}
        table = ts.table(
            frame("T"), "k", apply_as_deletes="v is null", history="20 seconds", name="table", **said
        )
        everywhere = ts.global_table(
            frame("T"), "k", apply_as_deletes="v is null", history="20 seconds", name="everywhere", **said
        )
        rows = ts.table(frame("T"), "k", apply_as_deletes="v is null", name="rows", **said)
        records = ts.stream(frame("S"), "k", name="records", **said)
        pair: Any = {"how": "left", "select": lambda record, row: [record.v, row.v.alias("found")]}
        ordered = ts.table(frame("T"), "k", reorder="5 seconds", name="ordered", **said)
        highest = ts.table(frame("T"), "k", sequence_by="lsn", name="highest", **said)
        return run(
            table.to(sinks["table"]),
            records.join(table, **pair, name="as of").to(sinks["as of"]),
            records.join(everywhere, on="k", **pair, name="of copies").to(sinks["everywhere"]),
            records.join(table, grace="5 seconds", **pair, name="waiting").to(sinks["waiting"]),
            rows.filter("v > 2").materialize(history="20 seconds").to(sinks["filtered"]),
            ordered.to(sinks["in order"]),
            highest.to(sinks["highest"]),
            checkpoint=tmp_path / "checkpoint",
            shards=1,
        )

    log.add(
        [at("T", "a", 1, 10, lsn=3), at("T", "a", 2, 20, lsn=1), at("S", "a", 100, 12)],
        [at("T", "a", 3, 14, lsn=3), at("S", "a", 101, 17)],
    )
    counts = dict(go())
    log.add(
        [at("T", "a", None, 16, lsn=9), at("S", "a", 102, 40), at("S", "a", 103, 15)],
        [at("T", "a", 9, 1), at("T", "a", 10, 41)],
    )
    counts = {name: counts.get(name, 0) + count for name, count in go().items()}

    told = sinks["table"].rows()
    assert seen(told, "v", "_change_type", "_is_latest") == [
        (1, "upsert", True, 10), (2, "upsert", True, 20), (3, "upsert", False, 14),
        (None, "delete", False, 16), (9, "upsert", False, 1), (10, "upsert", True, 41),
    ]  # fmt: skip
    for name in ("as of", "everywhere"):
        assert [(one.v, one.found) for one in sinks[name].rows()] == [(100, 1), (101, 3), (102, 2), (103, 3)]
    # What is filtered out, and was no row before, is no version.
    assert seen(sinks["filtered"].rows(), "v", "_change_type", "_is_latest") == [
        (3, "upsert", True, 14), (None, "delete", True, 16), (9, "upsert", False, 1), (10, "upsert", True, 41),
    ]  # fmt: skip
    # The first waits for one at 17, the second and the third for one at 22 and 45; the last is too late to wait.
    assert [(one.v, one.found) for one in sinks["waiting"].rows()] == [(100, 1), (101, None), (103, 3)]
    assert seen(sinks["in order"].rows(), "v") == [(1, 10), (3, 14), (9, 1), (None, 16), (2, 20)]
    assert [one.v for one in sinks["highest"].rows()] == [1, 3, None]
    assert counts["ordered/reordered: late"] == 2
    assert counts["waiting: late"] == 1
    assert counts["highest/sequenced: superseded"] == 3
