"""Queries of Nexmark, with their changes written to Parquet, and held to the same query in batch SQL."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.contestants.running import run_to_end
from benchmarks.nexmark.queries import QUERIES, Logs, batch_result, differing_rows, final_rows
from benchmarks.processes import Watch
from benchmarks.results import Run
from benchmarks.spark_session import CORES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from benchmarks.launch import Task


def _measured(name: str, spark: SparkSession, task: Task) -> Run:
    """Run a query to its end; afterwards, when the clock has stopped, compare its final rows."""
    result = QUERIES[name].program(Logs(spark, Path(task.folder)))
    log = Path(task.work) / "changes"
    with Watch(os.getpid(), interval_s=0.5) as watch:
        counted_only = replace(task, verify=False)  # the final rows are compared, whatever was asked for
        wall_s, micro_batches = run_to_end(result.changes(), counted_only, "_timestamp", into=log)
    run = Run(task.contestant, wall_s, micro_batches)
    expected = batch_result(spark, Path(task.folder), QUERIES[name])
    found = final_rows(spark.read.parquet(str(log)), result.key_columns)
    wrong = differing_rows(found, expected)
    run.facts = {
        "events/s per core": f"{run.rate / CORES:,.0f} over all, {run.steady_rate / CORES:,.0f} steady",
        "events per core-second": _per_core_second(run, watch),
        "rows of the final table": found.count(),
        "equal to batch SQL": f"NO: {wrong} rows differ" if wrong else "yes",
    }
    return run


def _per_core_second(run: Run, watch: Watch) -> str:
    """Events over the processor time of JVM and workers: what other work on the machine changes least."""
    if watch.used_s is None:
        return "not sampled (no /proc here)"
    used_s = sum(watch.used_s)
    return f"{run.rows_in / used_s:,.0f}, in {used_s:.0f} core-seconds"


q3, q4, q9, q20, q20_stream = (partial(_measured, name) for name in QUERIES)
