"""Runs a query with its changes as Parquet files, and compares what they leave when the clock has stopped."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.contestants.running import run_to_end
from benchmarks.processes import Watch
from benchmarks.results import Run
from benchmarks.spark_session import CORES

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from benchmarks.launch import Task


def compared(
    task: Task, changes: DataFrame, compare: Callable[[Path], tuple[int, int]], *, judge: str, unit: str
) -> Run:
    """Run a query to its end and compare its result.

    Parameters
    ----------
    compare
        Gets the folder of the changes; returns the number of rows that they leave, and of those that differ.
    judge
        What the result is compared with.
    unit
        What the input is counted in.
    """
    log = Path(task.work) / "changes"
    watch = Watch(os.getpid(), interval_s=0.5)
    watch.start()
    try:
        counted_only = replace(task, verify=False)  # the final rows are compared, whatever was asked for
        wall_s, micro_batches = run_to_end(changes, counted_only, "_timestamp", into=log)
    finally:
        watch.stop()
    run = Run(task.contestant, wall_s, micro_batches)
    rows, wrong = compare(log)
    run.facts = {
        f"{unit}/s per core": f"{run.rate / CORES:,.0f} over all, {run.steady_rate / CORES:,.0f} steady",
        f"{unit} per core-second": _per_core_second(run, watch),
        "rows of the final table": rows,
        f"equal to {judge}": f"NO: {wrong} rows differ" if wrong else "yes",
    }
    return run


def _per_core_second(run: Run, watch: Watch) -> str:
    """Input over the processor time of JVM and workers: what other work on the machine changes least."""
    if len(watch.samples) < 2:
        return "not sampled (no /proc here, or too short)"
    first, last = watch.samples[0], watch.samples[-1]
    used_s = last.jvm_cpu_s + last.workers_cpu_s - first.jvm_cpu_s - first.workers_cpu_s
    return f"{run.rows_in / used_s:,.0f}, in {used_s:.0f} core-seconds"
