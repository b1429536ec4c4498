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


@pytest.mark.exhaustive
def test_versions_grace_order_and_sequences(spark: SparkSession, tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "log", SCHEMA)
    sinks = {
        name: ts.to_memory(f"versions {name}")
        for name in (
            "table",
            "images",
            "as of",
            "everywhere",
            "waiting",
            "corrected",
            "filtered",
            "in order",
            "highest",
        )
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
            table.to(sinks["images"], before=True, name="images"),
            records.join(table, **pair, name="as of").to(sinks["as of"]),
            records.join(everywhere, on="k", **pair, name="of copies").to(sinks["everywhere"]),
            records.join(table, grace="5 seconds", **pair, name="waiting").to(sinks["waiting"]),
            records.join_as_table(table, **pair, name="corrected").to(sinks["corrected"]),
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
    assert seen(sinks["images"].rows(), "v", "_change_type", "_is_latest") == [
        (1, "insert", True, 10), (1, "update_preimage", True, 20), (2, "update_postimage", True, 20),
        (1, "update_preimage", False, 14), (3, "update_postimage", False, 14),
        (3, "delete", False, 16), (9, "insert", False, 1),
        (2, "update_preimage", True, 41), (10, "update_postimage", True, 41),
    ]  # fmt: skip
    for name in ("as of", "everywhere"):
        assert [(one.v, one.found) for one in sinks[name].rows()] == [(100, 1), (101, 3), (102, 2), (103, 3)]
    # What is filtered out, and was no row before, is no version.
    assert seen(sinks["filtered"].rows(), "v", "_change_type", "_is_latest") == [
        (3, "upsert", True, 14), (None, "delete", True, 16), (9, "upsert", False, 1), (10, "upsert", True, 41),
    ]  # fmt: skip
    # The first waits for one at 17, the second and the third for one at 22 and 45; the last is too late to wait.
    assert [(one.v, one.found) for one in sinks["waiting"].rows()] == [(100, 1), (101, None), (103, 3)]
    corrected = [(one.k, one.record_id, one.v, one.found) for one in sinks["corrected"].rows()]
    assert corrected == [
        ("a", 0, 100, 1), ("a", 1, 101, 3),
        # A tombstone at 16 takes the version of the second away.
        ("a", 1, 101, None), ("a", 2, 102, 2), ("a", 3, 103, 3),
    ]  # fmt: skip
    assert seen(sinks["in order"].rows(), "v") == [(1, 10), (3, 14), (9, 1), (None, 16), (2, 20)]
    assert [one.v for one in sinks["highest"].rows()] == [1, 3, None]
    assert counts["ordered/reordered: late"] == 2
    assert counts["waiting: late"] == 1
    assert counts["highest/sequenced: superseded"] == 3


@pytest.mark.exhaustive
def test_joins_of_histories(spark: SparkSession, tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "log", SCHEMA)
    by_key, pointing = ts.to_memory("histories by key"), ts.to_memory("histories pointing")

    def go() -> dict[str, int]:
        said: dict[str, Any] = {"timestamp": F.timestamp_seconds("at"), "history": "20 seconds"}
        said |= {"apply_as_deletes": "v is null", "columns": ["v"]}
        left, right = (
            ts.table(log.read(spark).where(F.col("kind") == kind), "k", name=kind, **said) for kind in "LR"
        )
        pair: Any = {"select": lambda one, other: [one.v, other.v.alias("other")], "complete_history": True}
        on = F.when(F.col("v") > 100, "a").when(F.col("v") > 10, "b")
        return run(
            left.join(right, how="outer", **pair, name="by key").to(by_key),
            left.join(right, on, "left", **pair, name="pointing").to(pointing),
            checkpoint=tmp_path / "checkpoint",
            shards=2,
        )

    log.add([at("R", "a", 1, 5), at("R", "b", 2, 5), at("L", "a", 20, 10), at("R", "b", 3, 15)])
    go()
    log.add([at("L", "a", 200, 12), at("R", "a", None, 14), at("L", "b", 4, 7), at("R", "b", 9, 11)])
    go()
    assert seen(by_key.rows(), "k", "v", "other", "_is_latest") == [
        ("a", None, 1, True, 5), ("b", None, 2, True, 5), ("a", 20, 1, True, 10), ("b", None, 3, True, 15),
        ("a", 200, 1, True, 12), ("b", 4, 2, False, 7), ("b", 4, 3, True, 15),
        ("a", 200, None, True, 14), ("b", 4, 9, False, 11),
    ]  # fmt: skip
    assert seen(pointing.rows(), "k", "v", "other", "_is_latest") == [
        ("a", 20, 2, True, 10), ("a", 20, 3, True, 15),
        # From 12 on the row points at another one: what was shown at 15 holds no longer.
        ("a", 200, 1, False, 12), ("a", 200, 1, True, 15), ("b", 4, None, True, 7),
        # That other one ends at 14, and until 12 it pointed at b.
        ("a", 200, None, False, 14), ("a", 200, None, True, 15), ("a", 20, 9, False, 11),
    ]  # fmt: skip


def test_what_operators_leave_out_is_an_output(spark: SparkSession, tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "log", SCHEMA)
    sink = ts.to_memory("left out")
    log.add(
        [at("T", "a", 1, 20), at("T", "a", 2, 15), at("T", "b", 3, 9), at("T", None, 4, 21)],  # type: ignore[arg-type]
        [at("T", "a", None, 16), at("L", "x", None, 1), at("L", "y", 7, 2)],
    )
    said: dict[str, Any] = {"timestamp": F.timestamp_seconds("at"), "columns": ["v"]}
    frame = log.read(spark)
    kept = ts.table(
        frame.where("kind = 'T'"),
        "k",
        apply_as_deletes="v is null",
        history="10 seconds",
        name="kept",
        **said,
    )
    left = ts.table(frame.where("kind = 'L'"), "k", name="left", **said)
    join = left.join(kept, F.when(F.col("v") > 0, "a"), select=lambda one, _: [one.v], name="join")
    counts = run(join.rejected().to(sink, name="out"), checkpoint=tmp_path / "checkpoint", shards=1)
    seconds = [round(row.timestamp.timestamp()) - START for row in sink.rows()]
    found = {
        (row.operator, row.reason, row.record, time) for row, time in zip(sink.rows(), seconds, strict=True)
    }
    assert found == {
        ("kept", "null-key", '{"kind":"T","k":null,"v":4,"at":1700000021,"lsn":0}', 21),
        ("kept/versions", "expired", '{"k":"b","v":3}', 9),
        ("join", "out-of-order", '{"k":"a","v":2}', 15),
        ("join", "out-of-order", '{"k":"a","v":null}', 16),
        ("join/subscribe", "null-foreign-key", '{"k":"x","v":null}', 1),
    }
    assert [row.key for row in sink.rows() if row.reason == "expired"] == ['{"k":"b"}']
    assert all(row.source.startswith("000") for row in sink.rows())
    assert all(counts[f"{operator}: {reason}"] for operator, reason, _, _ in found)
