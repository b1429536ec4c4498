"""A listener hears of a query's micro-batches, what its operators did and what they hold."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import tablestream as ts
from tests.spark.change_logs import ALL, START, ChangeLog

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.usefixtures("several_partitions")
def test_a_listener_hears_of_every_micro_batch(spark: SparkSession, tmp_path: Path) -> None:
    orders = ChangeLog(tmp_path / "orders", "id int, customer string, ts bigint")
    customers = ChangeLog(tmp_path / "customers", "customer string, name string, ts bigint")
    names = [{"customer": str(number), "name": "x", "ts": START} for number in range(50)]
    customers.add(names, [{"customer": "7", "name": "y", "ts": START + 2}])
    orders.add(
        [
            *({"id": number, "customer": str(number % 50), "ts": START + 1} for number in range(200)),
            {"id": None, "customer": "1", "ts": START + 1},
        ],
        [],
    )
    tables = [
        ts.table(log.read(spark), key, timestamp=F.timestamp_seconds("ts"), except_columns=["ts"], name=name)
        for log, key, name in ((orders, "id", "orders"), (customers, "customer", "customers"))
    ]
    joined = tables[0].join(tables[1], on="customer", how="left", name="joined")
    heard: list[ts.QueryMetrics] = []
    listener = ts.MetricsListener(heard.append)
    spark.streams.addListener(listener)
    try:
        output = joined.to(ts.to_files(tmp_path / "out", "json"))
        query = ts.start(output, checkpoint=tmp_path / "c", trigger=ALL, shards=4)
        query.awaitTermination()
        end = time.monotonic() + 600
        while len(heard) < 2 and time.monotonic() < end:
            time.sleep(0.05)  # Spark tells its listeners in its own time
    finally:
        spark.streams.removeListener(listener)
    first, second = heard
    assert [one.micro_batch for one in heard] == [0, 1]
    assert (first.rows_in, first.changes_out, first.query_id) == (251, 200, str(query.id))
    assert first.dropped["orders", "null-key"] == 1
    subscribe, answer = (first.operators[f"joined/{name}"] for name in ("subscribe", "answer"))
    assert (subscribe.rows_in, subscribe.state_rows) == (200, 200)
    assert answer.rows_in == 250
    assert answer.state_rows == 250  # who points at whom, and the customers
    assert answer.state_bytes is not None
    assert answer.state_bytes > 0
    # One customer changes: of three shards nothing is heard, and all that they hold is known.
    assert (second.rows_in, second.changes_out) == (1, 4)
    answer = second.operators["joined/answer"]
    assert (answer.rows_in, answer.rows_out, answer.state_rows) == (1, 4, 251)
    assert answer.cache_hits + answer.fetches > 0
    assert second.operators["joined/subscribe"].state_rows == 200
    # The same figures on the picture of the query.
    mermaid = ts.diagram(output, shards=4, metrics=heard).mermaid
    assert "2 micro-batches: 252 records in, 204 changes out" in mermaid
    assert "251 rows in, " in mermaid
    assert "state: 251 rows, " in mermaid
    assert "1 dropped: null-key" in mermaid
