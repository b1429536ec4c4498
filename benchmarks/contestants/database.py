"""The library from topics into a Delta table: tables of a database as Debezium writes them, and plain ones.

Both read the same changes, with a broker on the same machine: JSON without schemas, the row alone or in an envelope.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

import tablestream as ts
from benchmarks.contestants.kafka import (
    PARTITIONS,
    SCHEMAS,
    counted,
    filled,
    limited,
    log_of,
    made,
    spark_options,
    table_of,
)
from benchmarks.results import Run, micro_batches_of
from tests.broker.kafka_broker import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from benchmarks.launch import Task

_PREFIX = "db"


def from_kafka(spark: SparkSession, task: Task) -> Run:
    """Join two plain topics into a Delta table."""
    return _joined(spark, task, filled, table_of)


def from_debezium(spark: SparkSession, task: Task) -> Run:
    """Join two tables of a database into a Delta table."""
    return _joined(spark, task, _captured, _captured_table)


def _joined(spark: SparkSession, task: Task, fill: Callable[..., int], table: Callable[..., ts.Table]) -> Run:
    """Fill the topics before the clock runs; afterwards count the rows of the table."""
    settings = {"num.partitions": str(PARTITIONS)}
    target = Path(task.work) / "joined"
    with KafkaBroker(Path(task.jars) / "broker", Path(task.work) / "broker", settings=settings) as broker:
        kafka: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
        sizes = {topic: fill(spark, task, topic, kafka) for topic in SCHEMAS}
        tables = {
            topic: table(spark, topic, -(-size // task.micro_batches), kafka) for topic, size in sizes.items()
        }
        joined = tables["items"].join(tables["customers"], on="customer_id", how="left", name="joined")
        start = time.perf_counter()
        query = ts.start(
            joined.to(ts.to_delta(target)),
            checkpoint=Path(task.work) / "checkpoint",
            trigger={"availableNow": True},
        )
        query.awaitTermination()
        wall_s = time.perf_counter() - start
        run = Run(task.contestant, wall_s, [counted(one) for one in micro_batches_of(query)])
    run.facts = {"rows of the table": spark.read.format("delta").load(str(target)).count()}
    return run


def _captured(spark: SparkSession, task: Task, table: str, kafka: dict[str, Any]) -> int:
    """Write a change log as Debezium does; return its length."""
    made(f"{_PREFIX}.{table}", kafka)
    log = log_of(spark, task, table)
    key, *_ = log.columns
    changed = F.unix_micros("ts")
    place = F.concat(F.lit('["'), changed, F.lit('","'), changed, F.lit('"]'))
    source = F.struct(
        F.lit("postgresql").alias("connector"),
        changed.alias("ts_us"),
        F.lit("false").alias("snapshot"),
        place.alias("sequence"),
    )
    row = F.struct(*(name for name in log.columns if name != "ts"))
    envelope = F.struct(row.alias("after"), source.alias("source"), F.lit("u").alias("op"))
    records = log.select(
        F.to_json(F.struct(key)).alias("key"),
        F.to_json(envelope).alias("value"),
        F.lit(f"{_PREFIX}.{table}").alias("topic"),
    )
    records.write.format("kafka").options(**spark_options(kafka)).save()
    return log.count()


def _captured_table(spark: SparkSession, table: str, per_micro_batch: int, kafka: dict[str, Any]) -> ts.Table:
    database = ts.from_debezium(spark, _PREFIX, options=limited(per_micro_batch), **kafka)
    columns = SCHEMAS[table].removesuffix(", ts timestamp")
    return database.table(table, columns.split()[0], columns, follow_moves=False)
