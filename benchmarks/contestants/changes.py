"""A query of 1,000,000 orders, changed in ten ways: what becomes of its parts, and the seconds of each."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import tablestream as ts
from benchmarks.results import MicroBatch, Run
from benchmarks.ten_changes import CHANGES, KEYS, SCHEMAS, Tables, fates, first_plan, requests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from benchmarks.launch import Task

#: The rows of each table, and how its columns follow from their number.
_ROWS = {
    "orders": (1_000_000, ("id % 100000 AS customer", "id % 1000 AS item", "id % 97 AS amount")),
    "customers": (100_000, ("concat('customer-', id) AS name", "id % 500 AS city")),
    "items": (1_000, ("concat('item-', id) AS title",)),
    "cities": (500, ("concat('city-', id) AS place",)),
}


def changes(spark: SparkSession, task: Task) -> Run:
    """Start the query, and let it evolve into each plan from the same checkpoint and the same targets."""
    work = Path(task.work)
    written, copy = work / "written", work / "copy"
    for name, (rows, columns) in _ROWS.items():
        made = spark.range(rows).selectExpr(f"id AS {KEYS[name]}", *columns, "false AS gone")
        made.write.parquet(str(work / name))
    plan = requests(first_plan(_tables(spark, work)), written)
    query = ts.start(*plan, checkpoint=written / "checkpoint", trigger={"availableNow": True}, evolvable=True)
    query.awaitTermination()
    shutil.copytree(written, copy)
    run = Run(task.contestant)
    for number, (name, change) in enumerate(CHANGES.items()):
        shutil.rmtree(written)
        shutil.copytree(copy, written)
        plan = requests(change.plan(_tables(spark, work)), written)
        started_s, start = time.time(), time.perf_counter()
        done = ts.evolve(*plan, checkpoint=written / "checkpoint", shards=change.shards)
        seconds = time.perf_counter() - start
        if fates(done) != change.fates:
            raise RuntimeError(f"{name}: {fates(done)} instead of {change.fates}")
        run.micro_batches.append(MicroBatch(number, started_s, seconds, _ROWS["orders"][0], 0))
        others = ", ".join(f"{part} {fate}" for part, fate in change.fates.items()) or "all as before"
        run.facts[name] = f"{others}; {seconds:.1f} s"
    run.wall_s = sum(one.seconds for one in run.micro_batches)
    return run


def _tables(spark: SparkSession, work: Path) -> Tables:
    def table(name: str) -> ts.Table:
        log = ts.from_files(spark, work / name, "parquet", SCHEMAS[name])
        return ts.table(log, KEYS[name], apply_as_deletes="gone", except_columns=["gone"], name=name)

    return Tables(**{name: table(name) for name in SCHEMAS})
