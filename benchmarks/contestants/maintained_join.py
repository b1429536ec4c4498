"""The library: a left foreign-key join of two tables, kept up to date."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import tablestream as ts
from benchmarks.contestants.running import run_to_end
from benchmarks.results import Run
from benchmarks.workload import CUSTOMER_SCHEMA, ITEM_SCHEMA, copy_log
from tablestream.connectors.files.source import from_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.launch import Task
    from tablestream.spark.options import Emit


def every_change(spark: SparkSession, task: Task) -> Run:
    """Run with every change, then, from the same checkpoint, the small micro-batches on the filled tables."""
    run = _filled(spark, task, "every")
    copy_log(Path(task.folder), logs_of(task), prefix="small-")
    _, run.small_micro_batches = run_to_end(_changes(spark, task, "every"), task, "_timestamp")
    return run


def final_changes(spark: SparkSession, task: Task) -> Run:
    """Run with one change per key and micro-batch."""
    return _filled(spark, task, "final")


def many_to_many(spark: SparkSession, task: Task) -> Run:
    """Run with every change of the join of the same pairs that does not know that one side has a key."""
    copy_log(Path(task.folder), logs_of(task))
    items, customers = _tables(spark, task)
    pairs = items.join(customers, on="customer_id", right_on=F.expr("customer_id + 0L"))
    wall_s, micro_batches = run_to_end(pairs.changes(), task, "_timestamp")
    return Run(task.contestant, wall_s, micro_batches)


def many_micro_batches(spark: SparkSession, task: Task) -> Run:
    """Run with every change; its workload is cut into more micro-batches, to see memory over time."""
    return _filled(spark, task, "every")


def _filled(spark: SparkSession, task: Task, emit: Emit) -> Run:
    copy_log(Path(task.folder), logs_of(task))
    wall_s, micro_batches = run_to_end(_changes(spark, task, emit), task, "_timestamp")
    return Run(task.contestant, wall_s, micro_batches)


def _changes(spark: SparkSession, task: Task, emit: Emit) -> DataFrame:
    return joined(spark, task).changes(emit=emit)


def joined(spark: SparkSession, task: Task, spread: int | None = None) -> ts.Table:
    """Join the items that are in the run's own folder with their customers."""
    items, customers = _tables(spark, task)
    return items.join(customers, on="customer_id", how="left", spread=spread)


def _tables(spark: SparkSession, task: Task) -> tuple[ts.Table, ts.Table]:
    """The items and their customers."""
    items = _table(spark, task, "items", ITEM_SCHEMA, key="item_id")
    return items, _table(spark, task, "customers", CUSTOMER_SCHEMA, key="customer_id")


def _table(spark: SparkSession, task: Task, name: str, schema: str, key: str) -> ts.Table:
    log = from_files(spark, logs_of(task) / name, "parquet", schema, max_files_per_trigger=1)
    return ts.table(log, key, timestamp="ts", except_columns=["ts"], name=name)


def logs_of(task: Task) -> Path:
    """The run's own folder for both logs."""
    return Path(task.work) / "logs"
