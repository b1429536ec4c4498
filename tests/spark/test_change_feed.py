"""A Delta table that follows another through its change data feed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

import tablestream as ts
from tablestream import functions as tf
from tablestream.errors import ArgumentError, PlanChangedError
from tests.spark.change_logs import ChangeLog, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tablestream.spark.requests import OutputRequest


class Orders:
    """A Delta table, and the one that follows it."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark, self.directory = spark, directory
        self.name = f"delta.`{directory / 'orders'}`"
        self.sink = ts.to_memory(f"orders {directory}")
        columns, feed = "id int, customer string, amount int", "delta.enableChangeDataFeed = true"
        spark.sql(f"CREATE TABLE {self.name} ({columns}) USING delta TBLPROPERTIES ({feed})")

    def say(self, statement: str) -> None:
        self.spark.sql(statement.format(orders=self.name))

    def feed(self) -> DataFrame:
        reader = self.spark.readStream.format("delta").option("readChangeFeed", "true")
        return reader.option("startingVersion", 0).load(str(self.directory / "orders"))

    def follow(self, *, check_preimages: bool = False) -> list[tuple[object, ...]]:
        """Read what is new; return all changes so far, as key, customer and amount."""
        table = ts.from_change_feed(self.feed(), "id", name="orders", check_preimages=check_preimages)
        run(table.to(self.sink), checkpoint=self.directory / "checkpoint")
        return [
            (row["id"], row["customer"], None if row["_change_type"] == "delete" else row["amount"])
            for row in self.sink.rows()
        ]


def test_a_table_follows_a_delta_table(delta_spark: SparkSession, tmp_path: Path) -> None:
    orders = Orders(delta_spark, tmp_path)
    orders.say("INSERT INTO {orders} VALUES (1, 'Ada', 10), (2, 'Bob', 20), (3, 'Cleo', 30)")
    orders.say("UPDATE {orders} SET amount = 11 WHERE id = 1")
    first = orders.follow()
    assert sorted(first[:3], key=repr) == [(1, "Ada", 10), (2, "Bob", 20), (3, "Cleo", 30)]
    assert first[3:] == [(1, "Ada", 11)]
    orders.say("INSERT OVERWRITE {orders} VALUES (1, 'Ada', 11), (2, 'Bob', 20), (3, 'Cleo', 33)")
    assert orders.follow(check_preimages=True)[4:] == [
        (3, "Cleo", 33)
    ]  # a restart may add the check, and omit it
    orders.say("UPDATE {orders} SET id = 4 WHERE id = 2")
    orders.say("DELETE FROM {orders} WHERE id = 1")
    last = orders.follow()[5:]
    assert {one[0]: one[2] for one in last} == {2: None, 4: 20, 1: None}
    assert len(last) == 3


def test_a_preimage_that_is_not_the_row_of_the_table_ends_the_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    columns = "id int, n int, at timestamp, _change_type string, _commit_version bigint, _commit_timestamp timestamp"
    log, moment = ChangeLog(tmp_path / "log", columns), "2024-02-29T12:00:00"

    def row(version: int, kind: str, n: int) -> dict[str, object]:
        said = {"_change_type": kind, "_commit_version": version, "_commit_timestamp": moment}
        return {"id": 1, "n": n, "at": moment, **said}

    def follow() -> None:
        feed = log.read(spark, mode="fail")
        table = ts.from_change_feed(feed, "id", name="feed", check_preimages=True)
        run(table.to(ts.to_memory(f"preimages {tmp_path}")), checkpoint=tmp_path / "checkpoint")

    log.add([row(1, "insert", 1), row(2, "update_preimage", 1), row(2, "update_postimage", 2)])
    follow()
    log.add([row(3, "delete", 3)])
    with pytest.raises(
        StreamingQueryException, match=r"Version 3 .* key 1, .* n was 3 in the feed and is 2 in the"
    ):
        follow()


@pytest.mark.exhaustive
def test_a_change_of_an_unknown_type_or_without_a_time_ends_the_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    columns = "id int, n int, _change_type string, _commit_version bigint, _commit_timestamp timestamp"
    said = {"_commit_version": 1, "_commit_timestamp": "2024-02-29T12:00:00"}
    for name, bad, told in (
        ("type", {"id": 2, "_change_type": "merge", **said}, "_change_type: merge _commit_version: 1"),
        (
            "time",
            {"id": 1, "_change_type": "delete", "_commit_version": 2},
            "delete _commit_version: 2 _commit_times",
        ),
    ):
        log = ChangeLog(tmp_path / name, columns)
        log.add([{"id": 1, "n": 1, "_change_type": "insert", **said}, bad])
        table = ts.from_change_feed(log.read(spark, mode="fail"), "id", name="feed")
        with pytest.raises(StreamingQueryException, match=told):
            run(table.to(ts.to_memory(f"feed {tmp_path}")), checkpoint=tmp_path / f"checkpoint {name}")


def test_a_frame_without_the_columns_of_a_feed_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ArgumentError, match="_change_type"):
        ts.from_change_feed(spark.readStream.format("rate").load(), "value")


def test_a_feed_is_not_read_again_as_a_query_evolves(delta_spark: SparkSession, tmp_path: Path) -> None:
    """Without startingVersion, which a checkpoint does not show, Spark would begin with a late snapshot."""
    orders, checkpoint = Orders(delta_spark, tmp_path), tmp_path / "checkpoint"
    orders.say("INSERT INTO {orders} VALUES (1, 'Ada', 10), (2, 'Bob', 20)")
    orders.say("UPDATE {orders} SET amount = 11 WHERE id = 1")

    def plan() -> tuple[OutputRequest, OutputRequest]:
        table = ts.from_change_feed(orders.feed(), "id", name="orders")
        sums = table.group_by("customer").agg(total=tf.sum("amount"), name="sums")
        return sums.to(ts.to_files(tmp_path / "sums")), table.to(ts.to_delta(tmp_path / "copy"))

    run(plan()[0], checkpoint=checkpoint)
    with pytest.raises(PlanChangedError, match="source orders: it is a Delta table"):
        ts.evolve(*plan(), checkpoint=checkpoint, refill=True)
    found = ts.check(*plan(), checkpoint=checkpoint)
    assert found.refused
    assert "refill" not in str(found)
