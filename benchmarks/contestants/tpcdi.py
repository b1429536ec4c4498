"""A load like TPC-DI's: trades with the dimensions of their time, late versions included, and held to DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.contestants.compared import compared
from benchmarks.in_duckdb import differing_rows, last_rows
from benchmarks.tpcdi.query import SQL, from_folder, opened_logs, trades_of_their_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from benchmarks.launch import Task
    from benchmarks.results import Run


def trades(spark: SparkSession, task: Task) -> Run:
    """Run with every change; afterwards compare the final rows with ASOF joins of the versions."""
    folder = Path(task.folder)
    result = trades_of_their_time(from_folder(spark, folder))

    def compare(log: Path) -> tuple[int, int]:
        with opened_logs(folder) as database:
            return differing_rows(database, last_rows(log, result.key_columns), SQL)

    return compared(task, result.changes(), compare, judge="DuckDB", unit="changes")
