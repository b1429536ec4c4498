"""One right row that all left rows point at: it changes, and each of them is emitted anew."""

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


def fan_out(spark: SparkSession, task: Task) -> Run:
    """Fill the left table, then change the right row, once in each small micro-batch."""
    observed = {"items": F.sum("item_id"), "lowest": F.min("score"), "highest": F.max("score")}
    folder = Path(task.folder)
    copy_log(folder, logs_of(task))
    wall_s, micro_batches = run_to_end(joined(spark, task).changes(), task, "_timestamp", observed=observed)
    run = Run(task.contestant, wall_s, micro_batches)
    copy_log(folder, logs_of(task), prefix="small-")
    _, run.small_micro_batches = run_to_end(
        joined(spark, task).changes(), task, "_timestamp", observed=observed
    )
    rows = sum(one.rows_in for one in micro_batches) - 1
    wrong = [
        one
        for number, one in enumerate(run.small_micro_batches, 1)
        if not reached_every_row(one, rows, number)
    ]
    run.facts = {
        "left rows of the right row": rows,
        "each change reached every left row once": f"NO: {len(wrong)} did not" if wrong else "yes",
    }
    return run


def reached_every_row(micro_batch: MicroBatch, rows: int, score: int) -> bool:
    """Whether each left row was emitted once, with the new right row."""
    found = micro_batch.observed[OBSERVATION]
    sums = micro_batch.changes_out, found["items"]
    return sums == (rows, rows * (rows - 1) // 2) and found["lowest"] == found["highest"] == score
