"""A plan of many outputs with many columns and a few rows: what it takes to build, before any row is read."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import tablestream as ts
from benchmarks.processes import jvm_seconds
from benchmarks.results import Run, micro_batches_of

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from benchmarks.launch import Task
    from tablestream.spark.requests import OutputRequest

OUTPUTS, COLUMNS = 30, 200
#: Of outputs, which take turns.
_KINDS = 4
_ROWS = 100
_NAMES = [f"c{number}" for number in range(COLUMNS)]


def build(spark: SparkSession, task: Task) -> Run:
    """Declare the outputs and start the query; ``wall_s`` is that, the first micro-batch stands beside it."""
    logs = Path(task.work) / "logs"
    schema = _write_logs(spark, logs)
    run = Run(task.contestant)
    load, start, processor = os.getloadavg()[0], time.perf_counter(), _processor_seconds()
    outputs = _outputs(Path(task.work), *(_table(spark, logs / name, schema) for name in ("left", "right")))
    declared = time.perf_counter()
    query = ts.start(*outputs, checkpoint=f"{task.work}/checkpoint", trigger={"availableNow": True})
    run.wall_s = time.perf_counter() - start
    spent = _processor_seconds() - processor
    query.awaitTermination()
    own = _seconds_of_own_expressions()
    run.micro_batches = micro_batches_of(query)
    run.facts = {
        "plan": f"{OUTPUTS} outputs of {COLUMNS} columns",
        "seconds to declare the tables": round(declared - start, 2),
        "seconds of the program's own expressions": round(own, 2),
        "seconds in ts.start": round(run.wall_s - (declared - start), 2),
        "processor seconds of both, driver with JVM": round(spent, 2),
        "load before": round(load, 1),
        "seconds to plan the first micro-batch": run.micro_batches[0].durations_ms["queryPlanning"] / 1000,
    }
    return run


def _processor_seconds() -> float:
    return time.process_time() + jvm_seconds(os.getpid())


def _write_logs(spark: SparkSession, logs: Path) -> str:
    """Write both logs; return their schema."""
    columns = [(F.col("id") + number).alias(name) for number, name in enumerate(_NAMES)]
    at = F.timestamp_seconds("id").alias("ts")
    rows = spark.range(_ROWS).select("id", F.pmod("id", F.lit(10)).alias("points_at"), at, *columns)
    for name in ("left", "right"):
        rows.write.parquet(str(logs / name))
    return ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in rows.schema)


def _table(spark: SparkSession, log: Path, schema: str) -> ts.Table:
    frame = spark.readStream.schema(schema).parquet(str(log))
    return ts.table(frame, "id", timestamp="ts", columns=["points_at", *_NAMES], name=log.name)


def _computed(number: int) -> list[Column]:
    return [(F.col(name) + number).alias(name) for name in _NAMES]


def _seconds_of_own_expressions() -> float:
    """How long the program's own Columns take to make, without the library: a part of the time to declare."""
    start = time.perf_counter()
    for number in range(1, OUTPUTS, _KINDS):  # as `_outputs` does for the second of its kinds
        _computed(number)
    return time.perf_counter() - start


def _outputs(work: Path, left: ts.Table, right: ts.Table) -> list[OutputRequest]:
    """Views and joins in turn, each with all columns, into logs of Parquet files."""

    def both(mine: ts.Row, other: ts.Row) -> list[Column]:
        return [(other if number % 2 else mine)[name] for number, name in enumerate(_NAMES)]

    made = (
        lambda number: left.filter(F.col("c0") > number),
        lambda number: left.select(*_computed(number)),
        lambda number: left.join(right, on="points_at", select=both, name=f"pointing_{number}"),
        lambda number: left.join(right, how="left", select=both, name=f"beside_{number}"),
    )
    tables = [made[number % _KINDS](number) for number in range(OUTPUTS)]
    return [
        table.to(ts.to_files(work / f"wide_{number}"), name=f"wide_{number}")
        for number, table in enumerate(tables)
    ]
