"""A stream joined with the versions of a table: items, each with its customer as of the item's time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import tablestream as ts
from benchmarks.contestants.running import run_to_end
from benchmarks.results import Run
from benchmarks.workload import CUSTOMER_SCHEMA, ITEM_SCHEMA, copy_log
from tablestream.connectors.files.source import from_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from benchmarks.launch import Task

#: In the workload's time a tenth of all versions lies in it.
HISTORY = "400 milliseconds"


def as_of_join(spark: SparkSession, task: Task) -> Run:
    """The library: every record with the version of its time."""
    logs = Path(task.work) / "logs"
    copy_log(Path(task.folder), logs)
    log = from_files(spark, logs / "items", "parquet", ITEM_SCHEMA, max_files_per_trigger=1)
    items = ts.stream(log, "item_id", timestamp="ts", except_columns=["ts"], name="items")
    log = from_files(spark, logs / "customers", "parquet", CUSTOMER_SCHEMA, max_files_per_trigger=1)
    customers = ts.table(
        log, "customer_id", timestamp="ts", except_columns=["ts"], history=HISTORY, name="customers"
    )
    joined = items.join(customers, on="customer_id", how="left")
    wall_s, micro_batches = run_to_end(joined.changes(), task, "_timestamp")
    return Run(task.contestant, wall_s, micro_batches)
