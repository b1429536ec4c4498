"""Skew: half of the items on one customer; and all items on one customer, which changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.contestants.maintained_join import joined, logs_of
from benchmarks.contestants.running import run_to_end
from benchmarks.results import Run
from benchmarks.workload import copy_log, drawn, timestamps, write_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from benchmarks.launch import Task

#: Over how many shards the items of a customer are spread.
SPREAD = 4
#: How many items point at a customer where the load is even.
_ITEMS_OF_A_CUSTOMER = 20
#: Micro-batches that change every customer, after those that bring the items.
_FAN_OUTS = 3
_ROWS_OF_A_FILE = 1_000_000


def one_hot_key(spark: SparkSession, task: Task) -> Run:
    """Run the join of `maintained_join`; half of the item changes point at one customer."""
    copy_log(Path(task.folder), logs_of(task))
    return _run(spark, task)


def one_hot_key_spread(spark: SparkSession, task: Task) -> Run:
    """Run the same; each customer's items are spread over shards."""
    copy_log(Path(task.folder), logs_of(task))
    return _run(spark, task, SPREAD)


def even_fan_out(spark: SparkSession, task: Task) -> Run:
    """Change all customers at once; each has a few items."""
    _write_logs(task, customers=task.hot_rows // _ITEMS_OF_A_CUSTOMER)
    return _run(spark, task)


def fan_out(spark: SparkSession, task: Task) -> Run:
    """Change the one customer of all items."""
    _write_logs(task, customers=1)
    return _run(spark, task)


def fan_out_spread(spark: SparkSession, task: Task) -> Run:
    """Change the one customer of all items, which are spread over shards."""
    _write_logs(task, customers=1)
    return _run(spark, task, SPREAD)


def _run(spark: SparkSession, task: Task, spread: int | None = None) -> Run:
    wall_s, micro_batches = run_to_end(joined(spark, task, spread).changes(), task, "_timestamp")
    return Run(task.contestant, wall_s, micro_batches)


def _write_logs(task: Task, customers: int) -> None:
    """Write the items, a file a micro-batch, then micro-batches in which every customer changes, and no item."""
    logs, starts = logs_of(task), range(0, task.hot_rows, _ROWS_OF_A_FILE)
    for side in ("items", "customers"):
        (logs / side).mkdir(parents=True)
    items, owners = np.arange(task.hot_rows), np.arange(customers)
    for number in range(len(starts) + _FAN_OUTS):
        there = number < len(starts)
        mine = items[starts[number] :][:_ROWS_OF_A_FILE] if there else items[:0]
        write_file(logs / "items", number, _items(mine, customers))
        changed = owners if not number or not there else owners[:0]
        write_file(logs / "customers", number, _customers(changed, number, task.hot_rows * (number + 1)))


def _items(numbers: np.ndarray[tuple[int], np.dtype[np.int64]], customers: int) -> pa.Table:
    return pa.table(
        {
            "item_id": numbers,
            "customer_id": numbers % customers,
            "item": pc.binary_join_element_wise("item-", pc.cast(pa.array(numbers), pa.string()), ""),
            "amount": drawn(2).random(len(numbers)) * 100,
            "ts": timestamps(numbers),
        }
    )


def _customers(numbers: np.ndarray[tuple[int], np.dtype[np.int64]], version: int, offset_us: int) -> pa.Table:
    return pa.table(
        {
            "customer_id": numbers,
            "customer": pa.array([f"customer-{version}"] * len(numbers), pa.string()),
            "score": drawn(4).random(len(numbers)) * 100,
            "ts": timestamps(offset_us + numbers),
        }
    )
