"""Captured tables through Spark: what is dropped is counted and shown, and what is refused says why."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession

import tablestream as ts
from tablestream.errors import ArgumentError, CaptureError, MalformedRecordError
from tests.cdc.recording import Record
from tests.cdc.rows import wrapped
from tests.cdc.test_join import read, write
from tests.spark.change_logs import counted, run

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.spark

UNKNOWN = "__debezium_unavailable_value"
COLUMNS = "id int, n int, note string"


def record(
    offset: int,
    op: str,
    row: dict[str, Any] | None,
    *,
    partition: int = 0,
    key: int | None = None,
    **source: Any,
) -> Record:
    """A record of the table ``t`` of the database ``db``."""
    said = {"connector": "postgresql", "ts_us": 1_700_000_000_000_000 + offset, "snapshot": "false"} | source
    before = None if op != "d" else {"id": key, "n": None, "note": None}
    value = {"op": op, "before": before, "after": row, "source": said}
    key = key if row is None else row["id"]
    text = None if op == "t" else json.dumps({"id": key})
    return Record("db.s.t", partition, offset, 1_700_000_000_000, text, json.dumps(value), [])


def moved(offset: int, old: int, new: int) -> list[Record]:
    """A row that was moved to another key, and nothing is known of it."""
    at = '["70", "70"]'
    gone = record(offset, "d", None, key=old, sequence=at)
    here = record(offset + 1, "c", {"id": new, "n": 1, "note": UNKNOWN}, sequence=at)
    return [
        gone._replace(headers=[["__debezium.newkey", json.dumps({"id": new})]]),
        here._replace(headers=[["__debezium.oldkey", json.dumps({"id": old})]]),
    ]


def test_drops_are_counted_and_shown(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        record(0, "u", {"id": 1, "n": 1, "note": UNKNOWN}),
        record(1, "c", {"id": 2, "n": 1, "note": "two"}),
        record(2, "u", {"id": 2, "n": 2, "note": UNKNOWN}),
        record(3, "u", {"id": 2, "n": 2, "note": "two", "more": 1}),
        record(4, "m", None, key=5),
        *moved(5, 7, 8),
        Record("db.s.t", 0, 7, 0, '{"id": 9}', "not json", []),
    ]
    write(tmp_path / "log", [rows])
    db = ts.from_debezium(read(spark, tmp_path / "log"), "db", on_error="drop")
    table = db.table("s.t", "id", COLUMNS)
    sink, rejected = ts.to_memory("cdc rows"), ts.to_memory("cdc rejected")
    counts = run(table.to(sink), table.rejected().to(rejected), checkpoint=tmp_path / "checkpoint", shards=2)
    found = [(one["id"], one["n"], one["note"], one["_change_type"]) for one in sink.rows()]
    assert found == [(2, 1, "two", "upsert"), (2, 2, "two", "upsert")]
    shown = [(one["operator"], one["reason"], one["key"]) for one in rejected.rows()]
    assert sorted(shown) == [
        ("s.t", "malformed", '{"id":null}'),
        ("s.t/captured", "unknown-value", '{"id":1}'),
        ("s.t/captured/moved", "unknown-value", '{"id":8}'),
    ]
    records = {one["reason"]: json.loads(one["record"]) for one in rejected.rows()}
    assert records["malformed"]["value"] == "not json"
    assert records["unknown-value"] == {"id": 8, "n": 1, "note": None}
    wanted = {"unknown-value": 2, "added-column": 1, "filled note": 1, "malformed": 1}
    found_counts: dict[str, int] = {}
    for name, count in counts.items():
        if ": " in name and count:
            reason = name.split(": ")[1]
            found_counts[reason] = found_counts.get(reason, 0) + count
    assert found_counts == wanted


def test_an_added_column_that_cannot_be_null_ends_the_query_and_nothing_is_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What was read before stays; a query that knows the column reads every row."""
    fields: dict[str, Any] = {"id": {"type": "int32"}, "n": {"type": "int32"}, "note": {"type": "string"}}
    added = fields | {"size": {"type": "int32", "optional": False}}
    rows: list[dict[str, Any]] = [{"id": 1, "n": 1, "note": "a"}, {"id": 2, "n": 2, "note": "b", "size": 3}]
    batches = [
        [Record("db.s.t", 0, at, 0, json.dumps({"id": row["id"]}), wrapped(kinds, row).decode(), [])]
        for at, (row, kinds) in enumerate(zip(rows, (fields, added), strict=True))
    ]
    write(tmp_path / "log", batches)
    db = ts.from_debezium(read(spark, tmp_path / "log"), "db")
    sink = ts.to_memory("cdc added")
    with pytest.raises(Exception, match=f"{MalformedRecordError.code}.*no column for .*size.*cannot be null"):
        run(db.table("s.t", "id", COLUMNS).to(sink), checkpoint=tmp_path / "first", shards=1)
    assert [one["id"] for one in sink.rows()] == [1]
    knows, leaves_out = ts.to_memory("cdc added knows"), ts.to_memory("cdc added leaves out")
    tables = [
        db.table("s.t", "id", f"{COLUMNS}, size int"),
        db.table("s.t", "id", COLUMNS, except_columns="size"),
    ]
    for table, again in zip(tables, (knows, leaves_out), strict=True):
        counts = run(table.to(again), checkpoint=tmp_path / again.name, shards=1)
        assert sum(count for name, count in counts.items() if "added-column" in name) == 0
    assert [(one["id"], one["note"], one["size"]) for one in knows.rows()] == [(1, "a", None), (2, "b", 3)]
    assert [(one["id"], one["note"]) for one in leaves_out.rows()] == [(1, "a"), (2, "b")]


def test_a_truncate_between_partitions_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        record(0, "c", {"id": 1, "n": 1, "note": "a"}),
        record(0, "c", {"id": 2, "n": 1, "note": "b"}, partition=1),
        record(1, "t", None),
    ]
    write(tmp_path / "log", [rows])
    db = ts.from_debezium(read(spark, tmp_path / "log"), "db")
    with pytest.raises(Exception, match=CaptureError.code):
        run(
            db.table("s.t", "id", COLUMNS).to(ts.to_memory("cdc fail")),
            checkpoint=tmp_path / "fail",
            shards=1,
        )
    sink = ts.to_memory("cdc apply")
    table = db.table("s.t", "id", COLUMNS, truncates="apply")
    run(table.to(sink), checkpoint=tmp_path / "apply", shards=1)
    assert [one["_change_type"] for one in sink.rows()] == ["upsert", "upsert", "delete", "delete"]


def test_an_undecodable_record_of_the_transaction_topic_ends_the_query_or_is_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its transaction may be waited for until the timeout, so that it is not passed over in silence."""
    rows = [
        record(0, "c", {"id": 1, "n": 1, "note": "a"}),
        Record("db.transaction", 0, 0, 0, None, '{"status": "BEGIN", "id": "5:1"}', []),
        Record("db.transaction", 0, 1, 0, None, '{"status": "END"}', []),
    ]
    write(tmp_path / "log", [rows])
    frame = read(spark, tmp_path / "log")
    db = ts.from_debezium(frame, "db", transactions=True, transaction_timeout=None)
    with pytest.raises(Exception, match=MalformedRecordError.code):
        run(
            db.table("s.t", "id", COLUMNS).to(ts.to_memory("ends fail")),
            checkpoint=tmp_path / "fail",
            shards=1,
        )
    table = ts.from_debezium(frame, "db", transactions=True, on_error="drop").table("s.t", "id", COLUMNS)
    query = ts.start(table.to(ts.to_memory("ends drop")), checkpoint=str(tmp_path / "drop"), shards=1)
    for _ in range(1200):
        if counted(query)["db.transaction: malformed"] == 1:
            break
        time.sleep(0.1)
    assert counted(query)["db.transaction: malformed"] == 1
    assert query.exception() is None


def test_each_source_begins_at_the_offsets_of_its_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark refuses offsets of a topic that a source does not read."""
    begins: dict[str, Any] = {}

    def raw(_: Any, topics: list[str], __: str, offsets: Any, *_rest: Any, **_more: Any) -> None:
        begins[topics[0]] = offsets

    monkeypatch.setattr("tablestream.databases.debezium.raw_records", raw)
    offsets = {"db.s.t": {0: 4}, "db.s.u": {0: 7}}
    for given in (offsets, "latest"):
        db = ts.from_debezium(
            object.__new__(SparkSession), "db", bootstrap_servers="host:9092", starting_offsets=given
        )
        for topic in ("db.s.t", "db.s.u", "db.transaction"):
            db._records(topic)
        if given == "latest":
            assert begins == dict.fromkeys(("db.s.t", "db.s.u", "db.transaction"), "latest")
        else:
            wanted: dict[str, Any] = {topic: {topic: parts} for topic, parts in offsets.items()}
            assert begins == {**wanted, "db.transaction": "earliest"}
            with pytest.raises(ArgumentError, match="does not name 'db"):
                ts.from_debezium(
                    object.__new__(SparkSession),
                    "db",
                    bootstrap_servers="host:9092",
                    starting_offsets=given,
                    transactions=True,
                )


def test_a_delete_of_a_frame_without_timestamps_is_not_lost(spark: SparkSession, tmp_path: Path) -> None:
    """A tombstone has no time of its own: it has that of its micro-batch."""
    row = json.dumps({"id": 1, "n": 1, "note": "a"})
    rows = [Record("db.s.t", 0, at, 0, '{"id": 1}', value, []) for at, value in enumerate((row, None))]
    write(tmp_path / "log", [rows])
    frame = read(spark, tmp_path / "log").drop("timestamp")
    sink = ts.to_memory("cdc without timestamps")
    table = ts.from_debezium(frame, "db").table("s.t", "id", COLUMNS)
    run(table.to(sink, emit="every"), checkpoint=tmp_path / "checkpoint", shards=1)
    assert [one["_change_type"] for one in sink.rows()] == ["upsert", "delete"]


def test_the_time_of_a_tombstone_does_not_count_for_the_order(spark: SparkSession, tmp_path: Path) -> None:
    """It has Kafka's time, and the changes behind it, of this table and others, the database's."""
    row = {"id": 1, "n": 1, "note": "a"}
    tombstone = Record("db.s.t", 0, 2, 1_800_000_000_000, '{"id": 1}', None, [])
    rows = [record(0, "c", row), record(1, "d", None, key=1), tombstone, record(3, "c", row | {"id": 2})]
    write(tmp_path / "log", [rows])
    sink = ts.to_memory("cdc order")
    table = ts.from_debezium(read(spark, tmp_path / "log"), "db").table("s.t", "id", COLUMNS)
    run(table.to(sink), checkpoint=tmp_path / "checkpoint", shards=1)
    times = [one["_order"]["time"] - 1_700_000_000_000_000 for one in sink.rows()]
    assert times == [0, 1, 3]


def test_a_table_follows_moves_if_a_value_can_be_missing(spark: SparkSession, tmp_path: Path) -> None:
    """Those of a column that a database may keep apart from its row; the key is never missing."""
    write(tmp_path / "log", [[]])
    shop = ts.from_debezium(read(spark, tmp_path / "log"), "db")

    def follows(columns: str, **given: Any) -> bool:
        node: Any = shop.table("s.t", "id", columns, **given)._node
        return bool(node.follows_moves)

    for kind in ("string", "binary", "array<int>", "map<string,string>"):
        assert follows(f"id int, x {kind}")
        assert not follows(f"id int, x {kind}", follow_moves=False)
    assert not follows("id string, n bigint, at timestamp, d decimal(9,2), b boolean")
    assert follows("id int, n int", follow_moves=True)


def test_what_is_missing_is_said(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "log", [[]])
    frame = read(spark, tmp_path / "log")
    with pytest.raises(ArgumentError, match="bootstrap_servers= is missing"):
        ts.from_debezium(spark, "db")
    with pytest.raises(ArgumentError, match="on_error='skip' is not known"):
        ts.from_debezium(frame, "db", on_error="skip")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="no column offset"):
        ts.from_debezium(frame.drop("offset"), "db")
    with pytest.raises(ArgumentError, match="cannot be looked at"):
        ts.from_debezium(frame, "db").table("s.t")
    with pytest.raises(ArgumentError, match="are no columns with types"):
        ts.from_debezium(frame, "db").table("s.t", "id", "nonsense")
    with pytest.raises(ArgumentError, match="truncates='never'"):
        ts.from_debezium(frame, "db").table("s.t", "id", COLUMNS, truncates="never")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="snapshots='some'"):
        ts.from_debezium(frame, "db").table("s.t", "id", COLUMNS, snapshots="some")  # type: ignore[arg-type]
