"""TPC-H's 22 queries as the views of one file: seconds to start it, and of micro-batches that change all tables."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import tablestream as ts
from benchmarks.in_duckdb import last_rows
from benchmarks.results import Run, micro_batches_of
from tests.sql.tpch import QUERIES, TABLES, changes
from tests.sql.world import World, counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from benchmarks.launch import Task
    from tests.sql.world import MicroBatch

#: The load, and refreshes that change about a seventh of the rows of each table.
_SEED, _MICRO_BATCHES = 12, 8


def views(spark: SparkSession, task: Task) -> Run:
    """Start the file, let it read one micro-batch after the other, and hold every view to DuckDB."""
    work, world = Path(task.work), World(TABLES)
    load, *refreshes = changes(_SEED, _MICRO_BATCHES)
    _write(spark, work, load, world, 0)
    (work / "views.sql").write_text(_statements(work), encoding="utf-8")
    start = time.perf_counter()
    outputs = ts.sql_file(spark, work / "views.sql")
    declared = time.perf_counter()
    query = ts.start(*outputs, checkpoint=work / "checkpoint")
    started = time.perf_counter()
    query.processAllAvailable()
    for number, refresh in enumerate(refreshes, start=1):
        _write(spark, work, refresh, world, number)
        query.processAllAvailable()
    run = Run(task.contestant, time.perf_counter() - start, micro_batches_of(query))
    query.stop()
    run.facts = {
        "views": len(outputs),
        "rounds": ts.plan_text(*outputs).splitlines()[0],
        "seconds to declare the views": round(declared - start, 1),
        "seconds in ts.start": round(started - declared, 1),
        "median of the later micro-batches, seconds": round(
            median(one.seconds for one in run.micro_batches[1:]), 1
        ),
        "views that are not equal to DuckDB's": _different(outputs, work, world) or "none",
    }
    return run


def _write(spark: SparkSession, work: Path, batch: MicroBatch, world: World, number: int) -> None:
    """Append the changes of a micro-batch to the logs, a file each, and to the world."""
    world.apply(batch)
    for name, rows in batch.items():
        if rows:
            columns = TABLES[name].columns
            values = [tuple(row[column] for column in [*TABLES[name].names, "gone"]) for row in rows]
            frame = spark.createDataFrame(values, f"{columns}, gone boolean").coalesce(1)
            stamped = frame.selectExpr("*", f"timestamp_seconds({number}) AS changed_at")
            stamped.write.mode("append").parquet(str(work / "logs" / name))


def _statements(work: Path) -> str:
    tables = [
        f"CREATE TABLE {name} ({one.columns}, gone boolean, changed_at timestamp, PRIMARY KEY ({', '.join(one.key)}))"
        f" USING parquet LOCATION '{work}/logs/{name}'"
        " OPTIONS (timestamp 'changed_at', deletes 'gone', except_columns ('gone', 'changed_at'));\n"
        for name, one in TABLES.items()
    ]
    queries = [
        f"CREATE MATERIALIZED VIEW {name} USING parquet LOCATION '{work}/out/{name}' AS {query};\n"
        for name, query in QUERIES.items()
    ]
    return "".join([*tables, *queries])


def _different(outputs: list[ts.OutputRequest], work: Path, world: World) -> str:
    """Name the views whose rows DuckDB does not compute over the final tables."""
    found = []
    with world.database() as database:
        for one in outputs:
            expected = database.execute(QUERIES[one.name])
            columns = ", ".join(column[0] for column in expected.description or ())
            rows = counted(expected.fetchall())
            key = [column.name for column in one.output.node.key]
            last = last_rows(work / "out" / one.name, key)
            if counted(database.execute(f"SELECT {columns} FROM ({last})").fetchall()) != rows:
                found.append(one.name)
    return ", ".join(found)
