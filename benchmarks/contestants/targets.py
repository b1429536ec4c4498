"""The library's join into the targets that people keep: Parquet files, a Delta log, a maintained Delta table.

After the small micro-batches, a Delta target shows what Delta for Spark takes for as few rows: the last changes are
appended, or merged, once more, without a streaming query around them.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import tablestream as ts
from benchmarks.contestants.kafka import counted
from benchmarks.contestants.maintained_join import joined, logs_of
from benchmarks.contestants.running import RESULT_COLUMNS
from benchmarks.results import MicroBatch, Run, micro_batches_of
from benchmarks.workload import SMALL_ITEM_CHANGES, copy_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.launch import Task
    from tablestream.connectors.sink import Sink

_ALONE = 5
"""How often Delta's own write of a few rows is timed."""


def files(spark: SparkSession, task: Task) -> Run:
    """Every change as Parquet files."""
    return _kept(spark, task, ts.to_files(target_of(task)))


def delta_log(spark: SparkSession, task: Task) -> Run:
    """Every change, appended to a Delta table."""
    run = _kept(spark, task, ts.to_delta(target_of(task), mode="changes"))
    few = spark.read.format("delta").load(str(target_of(task))).limit(SMALL_ITEM_CHANGES).localCheckpoint()
    copy = str(Path(task.work) / "copy")
    run.facts["Delta's append of 100 rows alone, median seconds"] = _median_s(
        lambda: few.write.format("delta").mode("append").save(copy)
    )
    return run


def delta_table(spark: SparkSession, task: Task) -> Run:
    """The join as a Delta table with one row per key, which delta-rs writes."""
    run = _kept(spark, task, ts.to_delta(target_of(task)))
    run.facts = fingerprint(spark, task)
    return run


def delta_table_by_spark(spark: SparkSession, task: Task) -> Run:
    """The same, which Spark writes."""
    run = _kept(spark, task, ts.to_delta(target_of(task), writer="spark"))
    table = spark.read.format("delta").load(str(target_of(task)))
    run.facts = fingerprint(spark, task)
    few = table.limit(SMALL_ITEM_CHANGES).localCheckpoint()
    run.facts["Delta's MERGE of 100 rows alone, median seconds"] = _median_s(
        lambda: merge(spark, target_of(task), few, "item_id")
    )
    return run


def fingerprint(spark: SparkSession, task: Task) -> dict[str, object]:
    """Return what two contestants that keep the same table have in common."""
    table = spark.read.format("delta").load(str(target_of(task)))
    hashed = F.pmod(F.xxhash64(*(table[name] for name in RESULT_COLUMNS)), F.lit(1 << 31))
    rows, total = table.select(F.count("*"), F.sum(hashed)).first() or (0, 0)
    return {"rows of the table": rows, "hash of the table": total}


def merge(spark: SparkSession, path: Path, rows: DataFrame, key: str) -> None:
    """Upsert rows into a Delta table, as people write it."""
    spark.sql(
        f"MERGE INTO {{target}} AS t USING {{rows}} AS r ON t.{key} = r.{key}"
        " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        target=spark.read.format("delta").load(str(path)),
        rows=rows,
    )


def _median_s(write: Callable[[], object]) -> float:
    taken = []
    for _ in range(_ALONE):
        start = time.perf_counter()
        write()
        taken.append(time.perf_counter() - start)
    return round(median(taken), 3)


def _kept(spark: SparkSession, task: Task, sink: Sink) -> Run:
    """Run to the end of the logs; then, from the same checkpoint, the small micro-batches."""
    copy_log(Path(task.folder), logs_of(task))
    wall_s, micro_batches = _run_to_end(spark, task, sink)
    run = Run(task.contestant, wall_s, micro_batches)
    copy_log(Path(task.folder), logs_of(task), prefix="small-")
    _, run.small_micro_batches = _run_to_end(spark, task, sink)
    return run


def _run_to_end(spark: SparkSession, task: Task, sink: Sink) -> tuple[float, list[MicroBatch]]:
    start = time.perf_counter()
    query = ts.start(
        joined(spark, task).to(sink),
        checkpoint=Path(task.work) / "checkpoint",
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    return time.perf_counter() - start, [counted(one) for one in micro_batches_of(query)]


def target_of(task: Task) -> Path:
    """Where the join is kept."""
    return Path(task.work) / "target"
