"""The SQL that the benchmark holds the library to gives what a record-at-a-time left join gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.contestants.batch_sql import changes
from benchmarks.workload import Workload, prepare

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import Row, SparkSession


def record_at_a_time(items: Sequence[Row], customers: Sequence[Row]) -> Iterator[tuple[Any, ...]]:
    current: dict[int, Row] = {}
    known: dict[int, Row] = {}
    for row in sorted([*items, *customers], key=lambda row: row.ts):
        if "item_id" in row:
            current[row.item_id] = row
            reached = [row]
        else:
            known[row.customer_id] = row
            reached = [item for item in current.values() if item.customer_id == row.customer_id]
        for item in reached:
            customer = known.get(item.customer_id)
            side = (customer.customer, customer.score) if customer else (None, None)
            yield (item.item_id, item.customer_id, item.item, item.amount, *side, row.ts)


def test_the_sql_gives_every_change_of_the_join(spark: SparkSession, tmp_path: Path) -> None:
    folder = prepare(Workload(600, 40, 60, 12, micro_batches=2), tmp_path)
    items, customers = (spark.read.parquet(str(folder / side)) for side in ("items", "customers"))
    found = sorted(map(tuple, changes(items, customers).collect()), key=repr)
    expected = sorted(record_at_a_time(items.collect(), customers.collect()), key=repr)
    assert found == expected
    assert any(row[4] is None for row in expected)
    assert len(expected) > 660
