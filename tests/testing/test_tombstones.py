"""A delete that lacks what an expression wants deletes: its time, its order, its sequence; or the plan is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import tablestream as ts
from tablestream.errors import ArgumentError
from tablestream.testing import Driver, assert_changes_equal, frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OF_QUOTES = "key string, p double, at timestamp, n int"
UPSERTS = "key | p | at | n\nA | 1 | 2020-01-01 | 5\nB | 2 | 2020-01-02 | 6"
TOMBSTONE = "key\nA"
NEXT = "key | p | at | n\nC | 3 | 2020-01-03 | 7"


def quotes(spark: SparkSession, name: str = "quotes", **said: Any) -> ts.Table:
    """A topic whose times, order and sequence are columns of the value."""
    return ts.table(frame(spark, OF_QUOTES, like="kafka"), "key", columns=["p"], name=name, **said)


def keys_after(table: ts.Table, *micro_batches: str, now: str = "2026-01-01") -> list[str]:
    """The keys that a table has at the end. None of its records was dropped."""
    driver = Driver(table, now=now, shards=1)
    for rows in micro_batches:
        driver.pipe("quotes", rows)
        driver.run()
    reasons = ("null", "expired", "late", "superseded", "out-of-order")
    assert not {name: n for name, n in driver.counts.items() if n and any(one in name for one in reasons)}
    return [row.key for row in driver.table()]


@pytest.mark.parametrize(
    "said",
    [
        {"timestamp": "at", "history": "30 days"},
        {"timestamp": "at", "reorder": "0 seconds"},
        {"timestamp": "at", "sequence_by": "struct(n, at)", "tombstone_retention": "1 hour"},
        {"order_by": "date_format(at, 'yyyy')", "timestamp": "at"},
        {"order_by": "struct(n, at)"},
    ],
    ids=str,
)
def test_a_tombstone_deletes_whatever_its_value_would_have_said(
    spark: SparkSession, said: dict[str, Any]
) -> None:
    """The records are from 2020 and read in 2026: the time of a tombstone's record makes no other record late."""
    table = quotes(spark, **said)
    assert keys_after(table, UPSERTS, TOMBSTONE, NEXT) == ["B", "C"]
    assert keys_after(table, f"{UPSERTS}\nA | | |\nC | 3 | 2020-01-03 | 7") == ["B", "C"]


def test_the_time_of_a_tombstone_is_the_largest_before_it_or_at_an_output_that_of_its_record(
    spark: SparkSession,
) -> None:
    table = quotes(spark, timestamp="at")
    own, kept = (
        table.to(ts.to_memory("own"), name="own"),
        table.materialize().to(ts.to_memory("kept"), name="kept"),
    )
    driver = Driver(own, kept, now="2026-01-01", shards=1)
    for rows in (TOMBSTONE, UPSERTS, TOMBSTONE):
        driver.pipe("quotes", rows)
        driver.run()
    for output, first, last in (("own", "2026-01-01", "2026-01-01"), ("kept", "1970-01-01", "2020-01-02")):
        assert_changes_equal(
            driver.changes(output),
            f"""
            key | p | _change_type | _timestamp
            A   |   | delete       | {first} 00:00:00
            A   | 1 | upsert       | 2020-01-01 00:00:00
            B   | 2 | upsert       | 2020-01-02 00:00:00
            A   |   | delete       | {last} 00:00:00
            """,
        )


def test_a_delete_of_any_source_may_lack_its_time(spark: SparkSession) -> None:
    """A row of a file that `apply_as_deletes` marks, also where it waits, and in a stream and a global table."""
    said: dict[str, Any] = {
        "timestamp": "at",
        "apply_as_deletes": "op = 'd'",
        "columns": "p",
        "name": "quotes",
    }
    read = frame(spark, "key string, op string, p double, at timestamp")
    log = "key | op | p | at\nA | c | 1 | 2020-01-01\nB | c | 2 | 2020-01-02\nA | d | |"
    later = "key | op | p | at\nC | c | 3 | 2020-01-03"
    lookups = ts.table(frame(spark, "key string, q int"), "key", name="lookups")
    for table in (
        ts.table(read, "key", **said),
        ts.table(read, "key", **said).suppress("1 hour").filter("key < 'C'"),
        ts.stream(read, "key", **said).to_table("30 days"),
        ts.table(read, "key", **said).join(lookups, on=lambda row: row.p.cast("string"), how="left"),
    ):
        found = keys_after(table, log, later)
        assert [key for key in found if key < "C"] == ["B"]
    copied = lookups.join(ts.global_table(read, "key", **said), on="key")
    driver = Driver(copied)
    driver.pipe("lookups", "key | q\nA | 1\nB | 2")
    driver.pipe("quotes", log)
    driver.run()
    assert [row.key for row in driver.table()] == ["B"]


def test_a_tombstone_waits_with_the_records_before_it(spark: SparkSession) -> None:
    for said in ({"timestamp": "at"}, {"order_by": "n"}, {"order_by": "n / 2"}, {"order_by": "string(n)"}):
        driver = Driver(quotes(spark, **said), align=True, now="2026-01-01")
        found = []
        for rows in (UPSERTS, TOMBSTONE, NEXT):
            driver.pipe("quotes", rows)
            driver.run()
            found.append([row.key for row in driver.table()])
        assert found == [["A"], ["A"], ["B"]], said


def test_a_row_without_a_time_is_dropped_and_in_compat_a_tombstone_too(spark: SparkSession) -> None:
    for compat, deleted in ((None, ["B"]), ("kafka-streams", ["A", "B"])):
        driver = Driver(quotes(spark, timestamp="at"), compat=compat)  # type: ignore[arg-type]
        driver.pipe("quotes", f"{UPSERTS}\nA | | |\nC | 3 | |")
        driver.run()
        assert [row.key for row in driver.table()] == deleted
        assert driver.counts["quotes: null-timestamp"] == (1 if compat is None else 2)


def test_a_row_that_is_deleted_in_a_bootstrap_needs_no_time(spark: SparkSession) -> None:
    schema = "key string, op string, n int, at timestamp"
    rows = spark.createDataFrame([("A", "d", 5, None), ("B", "c", 5, None)], schema)
    table = ts.table(
        frame(spark, schema), "key", timestamp="at", apply_as_deletes="op = 'd'", sequence_by="n",
        tombstone_retention=None, bootstrap=rows, name="quotes",
    )  # fmt: skip
    driver = Driver(table)
    driver.pipe("quotes", "key | op | n | at\nA | c | 4 | 2020-01-01\nC | c | 4 | 2020-01-01")
    driver.run()
    assert [row.key for row in driver.table()] == ["C"]
    assert (driver.counts["quotes: null-timestamp"], driver.counts["quotes/sequenced: superseded"]) == (1, 1)


def test_a_table_whose_key_is_in_the_value_is_refused_unless_tombstones_mean_nothing(
    spark: SparkSession,
) -> None:
    def read(**said: Any) -> DataFrame:
        return ts.from_kafka(spark, "t", value="id int, p double", bootstrap_servers="localhost:9092", **said)

    keyed = read(key="string")
    for lost, key in (
        (read(), "id"),
        (keyed, "id"),
        (keyed, ["key", "id"]),
        (keyed.withColumn("twice", F.col("p") * 2), F.expr("id + 1").alias("id")),
    ):
        for make in (ts.table, ts.global_table, lambda df, key: ts.stream(df, key).to_table()):
            with pytest.raises(ArgumentError, match="comes from the records' value") as caught:
                make(lost, key)
            assert 'from_kafka(tombstones="drop")' in str(caught.value)
    for known, key in (
        (read(key="id int"), "id"),
        (read(tombstones="drop"), "id"),
        (keyed.withColumn("id", F.col("key").cast("int")), "id"),
        (keyed, F.expr("coalesce(id, int(key))").alias("id")),
    ):
        assert ts.table(known, key).key_columns == ["id"]
    assert ts.stream(keyed, "id").select_key("key").to_table().key_columns == ["key"]
    with pytest.raises(ArgumentError, match="tombstones='no'"):
        read(tombstones="no")
