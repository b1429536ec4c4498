"""The library from topics to a topic: the same left foreign-key join, with a broker on the same machine."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

import tablestream as ts
from benchmarks.contestants.running import RESULT_COLUMNS
from benchmarks.nexmark.queries import differing_rows
from benchmarks.processes import Watch
from benchmarks.results import MicroBatch, Run, micro_batches_of
from benchmarks.workload import CUSTOMER_SCHEMA, ITEM_SCHEMA
from tests.broker.kafka_broker import KafkaBroker
from tests.kafka.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.launch import Task

PARTITIONS = 2
TARGET = "joined"
SCHEMAS = {"customers": CUSTOMER_SCHEMA, "items": ITEM_SCHEMA}
"""By topic, in the order in which they are filled. Kafka Streams takes records in the order of the times at which they
were written, and emits more if the customers are older. The library goes by the times of the changes."""
RESULT_SCHEMA = "customer_id bigint, item string, amount double, customer string, score double"
_FORMATS: dict[str, Any] = {"key": "string", "value": "json"}
_COUNTS = "tablestream"


def every_change(spark: SparkSession, task: Task) -> Run:
    """Every change of the join from two topics into a third: the keys text, the values JSON.

    The topics are filled before the clock runs. Afterwards the records in the target are counted.
    """
    with topics_broker(task) as broker:
        kafka: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
        sizes = {topic: filled(spark, task, topic, kafka) for topic in SCHEMAS}
        made(TARGET, kafka)
        tables = {
            topic: table_of(spark, topic, -(-size // task.micro_batches), kafka)
            for topic, size in sizes.items()
        }
        joined = tables["items"].join(tables["customers"], on="customer_id", how="left", name=TARGET)
        with Watch(os.getpid(), interval_s=0.5) as watch:
            start = time.perf_counter()
            query = ts.start(
                joined.to(ts.to_kafka(TARGET, **_FORMATS, **kafka)),
                checkpoint=Path(task.work) / "checkpoint",
                trigger={"availableNow": True},
            )
            query.awaitTermination()
            wall_s = time.perf_counter() - start
        run = Run(task.contestant, wall_s, [counted(one) for one in micro_batches_of(query)])
        run.facts = facts_of(run, watch) | target_facts(spark, task, kafka)
    return run


def topics_broker(task: Task) -> KafkaBroker:
    """A broker for topics of a contestant's own; each gets `PARTITIONS` partitions."""
    settings = {"num.partitions": str(PARTITIONS)}
    return KafkaBroker(Path(task.jars) / "broker", Path(task.work) / "broker", settings=settings)


def facts_of(run: Run, watch: Watch) -> dict[str, object]:
    """Outputs a second, and the processor time of the run itself: without filling the topics, with the broker."""
    used = "not sampled (no /proc here)"
    if watch.used_s is not None:
        used = "JVMs {:.0f}, Python workers {:.0f}".format(*watch.used_s)
    return {
        "outputs a second, over all": round(run.output_rate),
        "outputs a second, steady": round(run.steady_output_rate),
        "core-seconds of the run, with the broker": used,
    }


def target_facts(spark: SparkSession, task: Task, kafka: dict[str, Any]) -> dict[str, object]:
    """Count the records of the target, and compare the last one of each key with batch SQL."""
    records = spark.read.format("kafka").options(**spark_options(kafka), subscribe=TARGET).load()
    last = last_values(records).localCheckpoint()
    wrong = differing_rows(last, final_join(spark, task))
    return {
        "records in the target": records.count(),
        "keys in the target": last.count(),
        "last values equal to batch SQL": f"NO: {wrong} rows differ" if wrong else "yes",
    }


def last_values(records: DataFrame) -> DataFrame:
    """Decode the last record of each key; a key has all its records in one partition, in their order."""
    last = records.groupBy("key").agg(F.max_by("value", "offset").alias("value"))
    key = F.col("key").cast("string").cast("bigint").alias("item_id")
    row = F.from_json(F.col("value").cast("string"), RESULT_SCHEMA).alias("row")
    return last.select(key, row).select("item_id", "row.*")


def final_join(spark: SparkSession, task: Task) -> DataFrame:
    """Join the last rows of both logs in batch SQL."""
    items, customers = _last_rows(spark, task, "items"), _last_rows(spark, task, "customers")
    return items.join(customers, "customer_id", "left").select(*RESULT_COLUMNS)


def _last_rows(spark: SparkSession, task: Task, topic: str) -> DataFrame:
    log = spark.read.schema(SCHEMAS[topic]).parquet(str(Path(task.folder) / topic))
    key, *_ = log.columns
    last = F.max_by(F.struct(*log.columns), "ts").alias("last")
    return log.groupBy(key).agg(last).select("last.*").drop("ts")


def filled(spark: SparkSession, task: Task, topic: str, kafka: dict[str, Any]) -> int:
    """Write a change log to its topic, in its order; return its length."""
    made(topic, kafka)
    ordered = log_of(spark, task, topic)
    key, *value = ordered.columns
    row = F.struct(*value[:-1], F.unix_micros("ts").alias("ts_us"))
    records = ordered.select(
        F.col(key).cast("string").alias("key"), F.to_json(row).alias("value"), F.lit(topic).alias("topic")
    )
    records.write.format("kafka").options(**spark_options(kafka)).save()
    return ordered.count()


def made(topic: str, kafka: dict[str, Any]) -> None:
    """Make a topic before its first record.

    A broker that makes it for a producer may take the producer's second batch first, and refuse the first one for ever.
    """
    Topics(kafka["bootstrap_servers"]).make(topic, PARTITIONS)


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
