"""Columns that no output needs: their changes are left out by default, and only there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import tablestream as ts
from tablestream import functions as tf
from tests.marks import quick_first
from tests.spark.change_logs import ChangeLog, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

CLIENTS = "id int, name string, city string, visits int, notes map<string, string>"


@pytest.mark.parametrize("compat", quick_first([None, "kafka-streams"]))
def test_an_update_of_a_column_that_no_result_has_changes_nothing(
    spark: SparkSession, tmp_path: Path, compat: Any
) -> None:
    """The first micro-batch has the rows, the second updates other columns alone, the third also needed ones."""
    clients, orders = (
        ChangeLog(tmp_path / "clients", CLIENTS),
        ChangeLog(tmp_path / "orders", "id int, client int, amount int, note string"),
    )
    visited = [{"id": 1, "name": "Ann", "city": "Ulm", "visits": n, "notes": {"n": f"{n}"}} for n in (1, 2)]
    clients.add([visited[0]], [visited[1]], [visited[1] | {"name": "Zoe"}])
    orders.add([{"id": n, "client": 1, "amount": n, "note": "a"} for n in (1, 2)], [], [])
    client, order = (
        ts.table(
            log.read(spark), key="id", name=log.path.name, timestamp=F.lit("2024-01-01").cast("timestamp")
        )
        for log in (clients, orders)
    )
    shown = order.join(
        client,
        on="client",
        how="left",
        select=lambda left, right: [left.amount, F.upper(right.name).alias("name")],
    )
    pairs = order.join(client, select=lambda left, right: [left.amount, right.name])
    sums = shown.group_by("name").agg(amount=tf.sum("amount"), first=tf.min("amount"))
    whole = order.join(client, on="client", select=lambda _, right: [right.notes])
    outputs: dict[str, Any] = {"shown": shown, "pairs": pairs, "sums": sums, "whole": whole}
    sinks = {name: ts.to_memory(f"needed {name}") for name in outputs}
    run(
        *(table.to(sinks[name], name=name) for name, table in outputs.items()),
        checkpoint=tmp_path / "checkpoint",
        compat=compat,
        shards=2,
    )
    changes = {name: [0, 0, 0] for name in sinks}
    for name, sink in sinks.items():
        for one in sink.rows():
            changes[name][one["_order"]["micro_batch"]] += 1
    assert changes["whole"] == [2, 2, 0 if compat is None else 2]
    if compat is None:
        assert changes == {"shown": [2, 0, 2], "pairs": [1, 0, 1], "sums": [2, 0, 2], "whole": [2, 2, 0]}
    else:
        assert changes["shown"][1:] == [2, 2]
        assert changes["pairs"][1:] == [1, 1]
