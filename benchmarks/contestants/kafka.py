"""The library from topics to a topic: the same left foreign-key join, with a broker on the same machine."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

import tablestream as ts
from benchmarks.results import MicroBatch, Run, micro_batches_of
from benchmarks.workload import CUSTOMER_SCHEMA, ITEM_SCHEMA
from tests.broker.kafka_broker import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.launch import Task

PARTITIONS = 2
_TARGET = "joined"
SCHEMAS = {"items": ITEM_SCHEMA, "customers": CUSTOMER_SCHEMA}
_FORMATS: dict[str, Any] = {"key": "string", "value": "json"}
_COUNTS = "tablestream"


def every_change(spark: SparkSession, task: Task) -> Run:
    """Every change of the join from two topics into a third: the keys text, the values JSON.

    The topics are filled before the clock runs. Afterwards the records in the target are counted.
    """
    settings = {"num.partitions": str(PARTITIONS)}
    with KafkaBroker(Path(task.jars) / "broker", Path(task.work) / "broker", settings=settings) as broker:
        kafka: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
        sizes = {topic: filled(spark, task, topic, kafka) for topic in SCHEMAS}
        tables = {
            topic: table_of(spark, topic, -(-size // task.micro_batches), kafka)
            for topic, size in sizes.items()
        }
        joined = tables["items"].join(tables["customers"], on="customer_id", how="left", name=_TARGET)
        start = time.perf_counter()
        query = ts.start(
            joined.to(ts.to_kafka(_TARGET, **_FORMATS, **kafka)),
            checkpoint=Path(task.work) / "checkpoint",
            trigger={"availableNow": True},
        )
        query.awaitTermination()
        wall_s = time.perf_counter() - start
        micro_batches = [counted(one) for one in micro_batches_of(query)]
        run = Run(task.contestant, wall_s, micro_batches)
        written = spark.read.format("kafka").options(**spark_options(kafka), subscribe=_TARGET).load().count()
    run.facts = {
        "outputs a second, over all": round(run.changes_out / wall_s),
        "outputs a second, steady": round(
            sum(one.changes_out for one in micro_batches[1:])
            / max(sum(one.seconds for one in micro_batches[1:]), 1e-9)
        ),
        "records in the target": written,
    }
    return run


def filled(spark: SparkSession, task: Task, topic: str, kafka: dict[str, Any]) -> int:
    """Write a change log to its topic, in its order; return its length."""
    ordered = log_of(spark, task, topic)
    key, *value = ordered.columns
    row = F.struct(*value[:-1], F.unix_micros("ts").alias("ts_us"))
    records = ordered.select(
        F.col(key).cast("string").alias("key"), F.to_json(row).alias("value"), F.lit(topic).alias("topic")
    )
    records.write.format("kafka").options(**spark_options(kafka)).save()
    return ordered.count()


def log_of(spark: SparkSession, task: Task, topic: str) -> DataFrame:
    """Read a change log in its order."""
    log = spark.read.schema(SCHEMAS[topic]).parquet(str(Path(task.folder) / topic))
    return log.coalesce(1).sortWithinPartitions("ts")


def table_of(spark: SparkSession, topic: str, per_micro_batch: int, kafka: dict[str, Any]) -> ts.Table:
    """Read a topic as a table."""
    key, *value = SCHEMAS[topic].split(", ")
    limit = limited(per_micro_batch)
    fields = ", ".join([*value[:-1], "ts_us bigint"])
    frame = ts.from_kafka(spark, topic, key="string", value=fields, options=limit, **kafka)
    typed = F.col("key").cast("bigint").alias(key.split()[0])
    return ts.table(
        frame,
        typed,
        timestamp=F.timestamp_micros("ts_us"),
        except_columns=["key", "ts_us"],
        name=topic,
    )


def limited(per_micro_batch: int) -> dict[str, int]:
    """Limit what a micro-batch reads; to a little more, so that rounding leaves nothing for another one."""
    return {"maxOffsetsPerTrigger": per_micro_batch + PARTITIONS}


def spark_options(kafka: dict[str, Any]) -> dict[str, str]:
    """The broker, as Spark's Kafka connector wants it."""
    return {"kafka.bootstrap.servers": kafka["bootstrap_servers"]}


def counted(micro_batch: MicroBatch) -> MicroBatch:
    """The same, with the changes as the library counts them."""
    return replace(micro_batch, changes_out=int(micro_batch.observed[_COUNTS]["changes"]))
