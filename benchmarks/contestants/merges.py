"""The join as people write it by hand: a ``foreachBatch`` that keeps three Delta tables right, by Spark or delta-rs.

It upserts the changed items and customers, joins the rows that they touch, and upserts the result. So it gives the
last state of each micro-batch, as a maintained table does, and not every change.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from pyspark.sql import Window
from pyspark.sql import functions as F

from benchmarks.contestants.targets import fingerprint, merge, target_of
from benchmarks.results import MicroBatch, Run, micro_batches_of
from benchmarks.workload import CUSTOMER_SCHEMA, ITEM_SCHEMA, copy_log, read_stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.launch import Task

    Merge = Callable[[SparkSession, Path, DataFrame, str], None]

_SIDES = {"items": ITEM_SCHEMA, "customers": CUSTOMER_SCHEMA}
_KEYS = {"items": "item_id", "customers": "customer_id"}


def by_hand(spark: SparkSession, task: Task) -> Run:
    """The tables merged by Spark."""
    return _kept(spark, task, merge)


def by_delta_rs(spark: SparkSession, task: Task) -> Run:
    """The tables merged by delta-rs, which gets the changed rows from memory."""
    return _kept(spark, task, _merge_by_delta_rs)


def _kept(spark: SparkSession, task: Task, merged: Merge) -> Run:
    """Run to the end of the logs; then, from the same checkpoint, the small micro-batches."""
    logs = Path(task.work) / "logs"
    for side, schema in _SIDES.items():
        kept = schema.removesuffix(", ts timestamp")
        spark.createDataFrame([], kept).write.format("delta").save(str(_table(task, side)))
    columns = "item_id bigint, customer_id bigint, item string, amount double, customer string, score double"
    spark.createDataFrame([], columns).write.format("delta").save(str(target_of(task)))
    copy_log(Path(task.folder), logs)
    wall_s, micro_batches = _run_to_end(spark, task, logs, merged)
    run = Run(task.contestant, wall_s, micro_batches)
    copy_log(Path(task.folder), logs, prefix="small-")
    _, run.small_micro_batches = _run_to_end(spark, task, logs, merged)
    run.facts = fingerprint(spark, task)
    return run


def _run_to_end(spark: SparkSession, task: Task, logs: Path, merged: Merge) -> tuple[float, list[MicroBatch]]:
    tagged = [read_stream(spark, logs, side).withColumn("side", F.lit(side)) for side in _SIDES]
    both = tagged[0].unionByName(tagged[1], allowMissingColumns=True)
    start = time.perf_counter()
    query = (
        both.writeStream.foreachBatch(lambda rows, _: _maintain(rows, task, merged))
        .option("checkpointLocation", str(Path(task.work) / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return time.perf_counter() - start, micro_batches_of(query)


def _maintain(rows: DataFrame, task: Task, merged: Merge) -> None:
    spark = rows.sparkSession
    into = partial(merged, spark)
    rows.persist()
    changed = {side: _last(rows, side).persist() for side in _SIDES}
    for side, last in changed.items():
        into(_table(task, side), last, _KEYS[side])
    items, customers = (spark.read.format("delta").load(str(_table(task, side))) for side in _SIDES)
    moved = items.join(changed["items"].select("item_id"), "item_id", "left_semi")
    fanned_out = items.join(changed["customers"].select("customer_id"), "customer_id", "left_semi")
    touched = moved.unionByName(fanned_out).distinct()
    into(target_of(task), touched.join(customers, "customer_id", "left"), "item_id")
    for frame in (rows, *changed.values()):
        frame.unpersist()


def _merge_by_delta_rs(_: SparkSession, path: Path, rows: DataFrame, key: str) -> None:
    """Upsert rows into a Delta table, as people write it."""
    merging = DeltaTable(str(path)).merge(
        rows.toArrow(), f"t.{key} = r.{key}", source_alias="r", target_alias="t"
    )
    merging.when_matched_update_all().when_not_matched_insert_all().execute()


def _last(rows: DataFrame, side: str) -> DataFrame:
    """The last change of each key."""
    columns = [column.split()[0] for column in _SIDES[side].removesuffix(", ts timestamp").split(", ")]
    by_key = Window.partitionBy(_KEYS[side]).orderBy(F.col("ts").desc())
    ranked = rows.where(F.col("side") == side).withColumn("rank", F.row_number().over(by_key))
    return ranked.where("rank = 1").select(columns)


def _table(task: Task, side: str) -> Path:
    return Path(task.work) / f"kept-{side}"
