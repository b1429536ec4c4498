"""A query with 10,000,000 rows that evolves: seconds to add an output, and to change the number of shards."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import tablestream as ts
from benchmarks.contestants.bootstrap import CountingSink
from benchmarks.results import MicroBatch, Run
from tablestream import functions as tf
from tablestream.connectors.files.source import from_files

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from benchmarks.launch import Task

ROWS, CUSTOMERS = 10_000_000, 100_000
_SHARDS = 32


def evolve(spark: SparkSession, task: Task) -> Run:
    """Start a join from a bootstrap; let it evolve into the join and groups, then into more shards."""
    work, checkpoint = Path(task.work), Path(task.work) / "checkpoint"
    _write_rows(spark, work)
    joined, grouped = CountingSink(target="joined"), CountingSink(target="grouped")

    def outputs(*, more: bool) -> list[ts.OutputRequest]:
        items, customers = _table(spark, work, "items"), _table(spark, work, "customers")
        made = [items.join(customers, on="customer_id", how="left", name="joined").to(joined)]
        groups = items.group_by("customer_id").agg(n=tf.count(), total=tf.sum("amount"), name="groups")
        return [*made, groups.to(grouped)] if more else made

    query = ts.start(
        *outputs(more=False), checkpoint=checkpoint, trigger={"availableNow": True}, evolvable=True
    )
    query.awaitTermination()
    before = _bytes(checkpoint)
    first = _timed(0, lambda: ts.evolve(*outputs(more=True), checkpoint=checkpoint))
    second = _timed(1, lambda: ts.evolve(*outputs(more=True), checkpoint=checkpoint, shards=_SHARDS))
    out = [sum(joined.counts), sum(grouped.counts)]
    if out != [ROWS, CUSTOMERS]:
        raise RuntimeError(f"the join is silent, and the groups come once: {out}")
    run = Run(task.contestant, first.seconds + second.seconds, [first, replace(second, changes_out=0)])
    run.facts = {
        "rows": f"{ROWS:,} and {CUSTOMERS:,}",
        "seconds to evolve into a plan with one output more": round(first.seconds, 1),
        f"seconds to evolve into {_SHARDS} shards": round(second.seconds, 1),
        "megabytes of the checkpoint before": round(before / 1e6),
        "megabytes with three generations": round(_bytes(checkpoint) / 1e6),
    }
    return run


def _write_rows(spark: SparkSession, work: Path) -> None:
    items = spark.range(ROWS).selectExpr(
        "id AS item_id",
        f"id % {CUSTOMERS} AS customer_id",
        "concat('item-', id) AS item",
        "rand(7) * 100 AS amount",
    )
    customers = spark.range(CUSTOMERS).selectExpr("id AS customer_id", "concat('customer-', id) AS name")
    for name, rows in (("items", items), ("customers", customers)):
        rows.withColumn("ts", F.timestamp_micros(F.lit(0))).write.parquet(str(work / name))
        (work / f"{name} log").mkdir()


def _table(spark: SparkSession, work: Path, name: str) -> ts.Table:
    rows = spark.read.parquet(str(work / name))
    schema = ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in rows.schema)
    log = from_files(spark, work / f"{name} log", "parquet", schema)
    columns = [one for one in rows.columns[1:] if one != "ts"]
    return ts.table(log, rows.columns[0], timestamp="ts", columns=columns, name=name, bootstrap=rows)


def _timed(number: int, act: Callable[[], object]) -> MicroBatch:
    started_s, start = time.time(), time.perf_counter()
    act()
    return MicroBatch(number, started_s, time.perf_counter() - start, ROWS, CUSTOMERS)


def _bytes(directory: Path) -> int:
    return sum(one.stat().st_size for one in directory.rglob("*") if one.is_file())
