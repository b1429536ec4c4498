"""A table that starts from a batch of rows: rows a second from the query's start until an output has them all."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import tablestream as ts
from benchmarks.results import MicroBatch, Run
from benchmarks.workload import ITEM_SCHEMA
from tablestream.connectors.files.source import from_files
from tablestream.connectors.sink import KeyedSink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.launch import Task

ROWS = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CountingSink(KeyedSink):
    """Counts the changes, and keeps none."""

    counts: list[int] = field(default_factory=list)
    target: str = "a count"
    needs_final: bool = False

    def check(self, spark: SparkSession, columns: Sequence[str]) -> None:
        """Every session will do."""

    def write(self, changes: DataFrame, micro_batch_id: int, query_id: str, output_name: str) -> None:  # noqa: ARG002 (the contract's)
        """Count the changes of a micro-batch."""
        self.counts.append(changes.count())


def bootstrap(spark: SparkSession, task: Task) -> Run:
    """Start several queries, each with the same rows and a checkpoint of its own; the first pays for the start."""
    rows = Path(task.work) / "rows"
    columns = (
        "id AS item_id",
        "id % 50000 AS customer_id",
        "concat('item-', id) AS item",
        "rand(7) * 100 AS amount",
    )
    made = spark.range(ROWS).selectExpr(*columns).withColumn("ts", F.timestamp_micros("item_id"))
    made.write.parquet(str(rows))
    (Path(task.work) / "log").mkdir()
    runs = [_run_once(spark, task, rows, number) for number in range(task.repeats)]
    if {one.changes_out for one in runs} != {ROWS}:
        raise RuntimeError(f"not all of {ROWS:,} rows came, and once: {[one.changes_out for one in runs]}")
    return Run(task.contestant, sum(one.seconds for one in runs), runs)


def _run_once(spark: SparkSession, task: Task, rows: Path, number: int) -> MicroBatch:
    log = from_files(spark, Path(task.work) / "log", "parquet", ITEM_SCHEMA)
    started_s, start = time.time(), time.perf_counter()
    table = ts.table(log, "item_id", timestamp="ts", name="items", bootstrap=spark.read.parquet(str(rows)))
    sink = CountingSink()
    query = ts.start(
        table.to(sink),
        checkpoint=Path(task.work) / f"checkpoint {number}",
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    return MicroBatch(number, started_s, time.perf_counter() - start, ROWS, sum(sink.counts))
