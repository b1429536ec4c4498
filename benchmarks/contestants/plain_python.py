"""What a user writes first: one Python ``transformWithState`` by foreign key, a state call per record.

It joins upserts and fans a customer's change out to the items that it remembers. It does not see that an
item has moved to another customer, and has no deletes: that takes a second stage and is slower still. So its
log has no item that moves.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks.contestants.running import run_to_end
from benchmarks.results import Run
from benchmarks.workload import copy_log, read_stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.launch import Task

_RESULT = """
    item_id bigint, customer_id bigint, item string, amount double, customer string, score double,
    ts timestamp
"""


class RememberBothSides(StatefulProcessor):
    """Keeps a customer's row and the items that point at it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the two memories."""
        self._items = handle.getMapState("items", "item_id bigint", "item string, amount double")
        self._customer = handle.getValueState("customer", "customer string, score double")

    def handleInputRows(self, key: tuple[int], rows: Iterator[Row], _timers: object) -> Iterator[Row]:  # noqa: N802
        """Join one customer's changes, record by record."""
        for row in sorted(rows, key=lambda row: row.ts):
            if row.item_id is not None:
                self._items.updateValue((row.item_id,), (row.item, row.amount))
                customer = self._customer.get() or (None, None)
                yield _result(key, (row.item_id,), (row.item, row.amount), customer, row.ts)
            else:
                self._customer.update((row.customer, row.score))
                for item_id, item in self._items.iterator():
                    yield _result(key, item_id, item, (row.customer, row.score), row.ts)

    def close(self) -> None:
        """Nothing to close."""


def _result(
    key: tuple[int], item_id: tuple[int], item: tuple[object, ...], customer: tuple[object, ...], ts: object
) -> Row:
    return Row(
        item_id=item_id[0],
        customer_id=key[0],
        item=item[0],
        amount=item[1],
        customer=customer[0],
        score=customer[1],
        ts=ts,
    )


def per_record_state(spark: SparkSession, task: Task) -> Run:
    """Run the per-record join over a smaller part of the workload."""
    logs = Path(task.work) / "logs"
    copy_log(Path(task.folder), logs)
    items, customers = (read_stream(spark, logs, side) for side in ("items", "customers"))
    both = items.unionByName(customers, allowMissingColumns=True)
    wall_s, micro_batches = run_to_end(_joined(both), task, "ts")
    return Run(task.contestant, wall_s, micro_batches)


def _joined(both: DataFrame) -> DataFrame:
    return both.groupBy(F.col("customer_id")).transformWithState(
        statefulProcessor=RememberBothSides(),
        outputStructType=_RESULT,
        outputMode="Append",
        timeMode="None",
    )
