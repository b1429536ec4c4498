"""TPC-H's queries, kept up to date with one change per row and micro-batch, and held to DuckDB."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import tablestream as ts
from benchmarks.contestants.compared import compared
from benchmarks.in_duckdb import differing_rows, last_rows, opened
from benchmarks.tpch.logs import KEYS
from benchmarks.tpch.queries import QUERIES, from_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from benchmarks.launch import Task
    from benchmarks.results import Run


def _measured(name: str, spark: SparkSession, task: Task, *, by_sql: bool = False) -> Run:
    """Run a query to its end; afterwards compare its final rows with the SQL over the final tables."""
    query, folder = QUERIES[name], Path(task.folder)
    logs = from_folder(spark, folder)
    tables = {kind: logs.whole(kind) for kind in KEYS} if by_sql else {}
    result = ts.sql(query.sql, **tables) if by_sql else query.result(query.groups(logs))
    assert isinstance(result, ts.Table)

    def compare(log: Path) -> tuple[int, int]:
        with opened(folder, KEYS) as database:
            return differing_rows(database, last_rows(log, result.key_columns), query.result_sql)

    return compared(task, result.changes(emit="final"), compare, judge="DuckDB", unit="changes")


q3, q5, q10 = (partial(_measured, name) for name in QUERIES)
q5_sql = partial(_measured, "q5", by_sql=True)
