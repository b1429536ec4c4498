"""A foreign-key join whose left table grows: what a micro-batch takes must not grow with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from benchmarks.contestants.maintained_join import joined, logs_of
from benchmarks.contestants.running import run_to_end
from benchmarks.results import OBSERVATION, MicroBatch, Run
from benchmarks.workload import copy_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from benchmarks.launch import Task


def growth(spark: SparkSession, task: Task) -> Run:
    """Run with every change. All customers are there first, so each change of an item emits one, which is matched."""
    copy_log(Path(task.folder), logs_of(task))
    observed = {"matched": F.count("customer"), "keys": F.max("item_id")}
    changes = joined(spark, task).changes()
    run = Run(task.contestant, *run_to_end(changes, task, "_timestamp", observed=observed))
    customers = spark.read.parquet(str(logs_of(task) / "customers")).count()
    wrong = [one for one in run.micro_batches if not answered_once(one, 0 if one.number else customers)]
    run.facts = {
        "rows of the left table": max(int(one.observed[OBSERVATION]["keys"]) for one in run.micro_batches)
        + 1,
        "every change is answered once": f"NO: not in {len(wrong)} micro-batches" if wrong else "yes",
    }
    return run


def answered_once(micro_batch: MicroBatch, customers: int) -> bool:
    """Whether a micro-batch with so many changes of customers emitted one matched row for each change of an item."""
    expected = micro_batch.rows_in - customers
    matched = int(micro_batch.observed[OBSERVATION]["matched"])
    return micro_batch.changes_out == matched == expected
