"""Queries of Nexmark, with their changes written to Parquet, and held to the same query in batch SQL."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.contestants.compared import compared
from benchmarks.nexmark.queries import QUERIES, Logs, batch_result, differing_rows, final_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from benchmarks.launch import Task
    from benchmarks.results import Run


def _measured(name: str, spark: SparkSession, task: Task) -> Run:
    """Run a query to its end; afterwards, when the clock has stopped, compare its final rows."""
    result = QUERIES[name].program(Logs(spark, Path(task.folder)))

    def compare(log: Path) -> tuple[int, int]:
        expected = batch_result(spark, Path(task.folder), QUERIES[name])
        found = final_rows(spark.read.parquet(str(log)), result.key_columns)
        return found.count(), differing_rows(found, expected)

    return compared(task, result.changes(), compare, judge="batch SQL", unit="events")


q3, q4, q9, q20, q20_stream = (partial(_measured, name) for name in QUERIES)
