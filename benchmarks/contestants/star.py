"""Four right tables: joined as a star, and one after the other."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import tablestream as ts
from benchmarks.contestants.running import run_to_end
from benchmarks.results import Run
from benchmarks.workload import CUSTOMER_SCHEMA, ITEM_SCHEMA, copy_log
from tablestream.connectors.files.source import from_files

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from benchmarks.launch import Task

TABLES = 4


def star(spark: SparkSession, task: Task) -> Run:
    """One star join."""
    items, rights = _tables(spark, task)
    lookups = [
        ts.lookup(right, on=partial(_pointer, number), how="left") for number, right in enumerate(rights)
    ]
    return _run(task, items.join_many(*lookups))


def chain(spark: SparkSession, task: Task) -> Run:
    """A join for each table, on the result of the one before."""
    table, rights = _tables(spark, task)
    for number, right in enumerate(rights):
        table = table.join(right, on=partial(_pointer, number), how="left")
    return _run(task, table)


def _run(task: Task, table: ts.Table) -> Run:
    wall_s, micro_batches = run_to_end(table.changes(), task, "_timestamp")
    return Run(task.contestant, wall_s, micro_batches)


def _pointer(number: int, row: ts.Row) -> Column:
    """What an item points at in the table of a number: another customer in each."""
    return F.pmod(row.customer_id * (2 * number + 1) + number, F.lit(_CUSTOMERS))


#: Fewer than the workload has: every item finds a row in each table after a while.
_CUSTOMERS = 5_000


def _tables(spark: SparkSession, task: Task) -> tuple[ts.Table, list[ts.Table]]:
    logs = Path(task.work) / "logs"
    copy_log(Path(task.folder), logs)
    log = from_files(spark, logs / "items", "parquet", ITEM_SCHEMA, max_files_per_trigger=1)
    items = ts.table(log, "item_id", timestamp="ts", except_columns=["ts"], name="items")
    rights = []
    for number in range(TABLES):
        log = from_files(spark, logs / "customers", "parquet", CUSTOMER_SCHEMA, max_files_per_trigger=1)
        columns = [F.col("customer").alias(f"customer_{number}"), F.col("score").alias(f"score_{number}")]
        right = ts.table(log, "customer_id", timestamp="ts", columns=columns, name=f"customers_{number}")
        rights.append(right)
    return items, rights
