"""Queries that read Delta tables evolve: the rows that are appended go on, and a change feed is refused by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import tablestream as ts
from tablestream import functions as tf
from tablestream.errors import PlanChangedError
from tests.spark.change_logs import run
from tests.spark.test_change_feed import Orders
from tests.spark.test_evolve import delta

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tablestream.spark.requests import OutputRequest


def log(place: Path) -> list[tuple[Any, ...]]:
    with duckdb.connect() as database:
        files = database.from_query("FROM read_parquet(?)", params=[f"{place}/*/*.parquet"])
        return files.order("micro_batch, _order").project("id, amount, _change_type").fetchall()


def test_a_query_over_appended_rows_goes_on_behind_the_last_version_that_it_read(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    """What is appended meanwhile is read once. No file is read again, nor passed over."""
    orders, checkpoint = Orders(delta_spark, tmp_path), tmp_path / "checkpoint"

    def plan(least: int) -> list[OutputRequest]:
        reader = delta_spark.readStream.format("delta").option("maxFilesPerTrigger", 1)
        frame = reader.load(str(tmp_path / "orders"))
        table = ts.table(frame, "id", order_by="amount", name="orders")
        large = table.filter(f"amount >= {least}")
        sums = large.group_by("customer").agg(n=tf.count(), total=tf.sum("amount"), name="sums")
        return [
            table.to(ts.to_files(tmp_path / "all"), name="all"),
            sums.to(ts.to_delta(tmp_path / "sums")),
        ]

    orders.say("INSERT INTO {orders} VALUES (1, 'Ada', 1), (2, 'Bob', 2)")
    orders.say(
        "INSERT INTO {orders} SELECT /*+ REPARTITION(3) */ * FROM VALUES (1, 'Ada', 3), (2, 'Bob', 4), (3, 'Bob', 5)"
    )
    run(*plan(0), checkpoint=checkpoint, evolvable=True)
    before = log(tmp_path / "all")
    orders.say(
        "INSERT INTO {orders} SELECT /*+ REPARTITION(3) */ * FROM VALUES (1, 'Cleo', 6), (4, 'Ada', 7), (5, 'Ada', 8)"
    )
    found = ts.evolve(*plan(4), checkpoint=checkpoint)
    assert {one.name: one.fate for one in found.parts if one.part != "operator"} == {
        "orders": "kept", "all": "silent", "sums": "brought over",
    }  # fmt: skip
    assert delta(tmp_path / "sums") == {("Bob", 2, 9)}
    assert log(tmp_path / "all") == before
    orders.say("INSERT INTO {orders} VALUES (3, 'Ada', 9)")
    run(*plan(4), checkpoint=checkpoint)
    assert len(before) == 5
    assert sorted(log(tmp_path / "all")) == sorted(
        [*before, (1, 6, "upsert"), (4, 7, "upsert"), (5, 8, "upsert"), (3, 9, "upsert")]
    )
    assert delta(tmp_path / "sums") == {("Cleo", 1, 6), ("Ada", 3, 24), ("Bob", 1, 4)}


def test_a_query_over_a_change_feed_is_refused_by_its_name_and_goes_on(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    orders, checkpoint = Orders(delta_spark, tmp_path), tmp_path / "checkpoint"

    def plan(least: int) -> list[OutputRequest]:
        table = ts.from_change_feed(orders.feed(), "id", name="orders")
        large = table.filter(f"amount >= {least}").select("amount")
        return [
            table.to(ts.to_files(tmp_path / "all"), name="all"),
            large.to(ts.to_delta(tmp_path / "large")),
        ]

    orders.say("INSERT INTO {orders} VALUES (1, 'Ada', 1), (2, 'Bob', 5)")
    run(*plan(0), checkpoint=checkpoint, evolvable=True)
    with pytest.raises(PlanChangedError, match=r"(?s)orders.*places in a log"):
        ts.evolve(*plan(4), checkpoint=checkpoint)
    orders.say("UPDATE {orders} SET amount = 9 WHERE id = 1")
    run(*plan(0), checkpoint=checkpoint)
    assert sorted(log(tmp_path / "all")) == [(1, 1, "upsert"), (1, 9, "upsert"), (2, 5, "upsert")]
    assert delta(tmp_path / "large") == {(1, 9), (2, 5)}
