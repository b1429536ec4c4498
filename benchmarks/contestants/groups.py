"""Groups: items by customer modulo 10,000, their number and the sum of their amounts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import tablestream as ts
from benchmarks.contestants.running import run_to_end
from benchmarks.results import Run
from benchmarks.workload import ITEM_SCHEMA, copy_log, read_stream
from tablestream.connectors.files.source import from_files

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from benchmarks.launch import Task
    from tablestream.spark.options import Emit

GROUPS = 10_000


def every_change(spark: SparkSession, task: Task) -> Run:
    """The library, every change of every group."""
    return _run(task, _maintained(spark, task, "every"))


def final_changes(spark: SparkSession, task: Task) -> Run:
    """The library, one change per group and micro-batch."""
    return _run(task, _maintained(spark, task, "final"))


def python_functions(spark: SparkSession, task: Task) -> Run:
    """The library, every change of every group, by Python functions instead of declared aggregates."""
    grouped = _items(spark, task).group_by(_group().alias("customer_group"), value=["amount"])
    totals = grouped.aggregate(
        lambda: (0, 0.0),
        lambda _, row, total: (total.items + 1, total.amount + (row.amount or 0.0)),
        lambda _, row, total: (total.items - 1, total.amount - (row.amount or 0.0)),
        "items bigint, amount double",
    )
    return _run(task, totals.changes())


def native(spark: SparkSession, task: Task) -> Run:
    """Spark's own streaming aggregation of the same records; it cannot take a row away again."""
    copy_log(Path(task.folder), _logs(task))
    grouped = read_stream(spark, _logs(task), "items").groupBy(_group().alias("customer_group"))
    totals = grouped.agg(F.count("*").alias("items"), F.sum("amount").alias("amount"))
    wall_s, micro_batches = run_to_end(totals, task, "amount", output_mode="update")
    return Run(task.contestant, wall_s, micro_batches)


def _items(spark: SparkSession, task: Task) -> ts.Table:
    copy_log(Path(task.folder), _logs(task))
    log = from_files(spark, _logs(task) / "items", "parquet", ITEM_SCHEMA, max_files_per_trigger=1)
    return ts.table(log, "item_id", timestamp="ts", columns=["customer_id", "amount"], name="items")


def _maintained(spark: SparkSession, task: Task, emit: Emit) -> DataFrame:
    grouped = _items(spark, task).group_by(_group().alias("customer_group"))
    return grouped.agg(items=ts.functions.count(), amount=ts.functions.sum("amount")).changes(emit=emit)


def _run(task: Task, changes: DataFrame) -> Run:
    wall_s, micro_batches = run_to_end(changes, task, "_timestamp")
    return Run(task.contestant, wall_s, micro_batches)


def _group() -> Column:
    return F.col("customer_id") % GROUPS


def _logs(task: Task) -> Path:
    return Path(task.work) / "logs"
