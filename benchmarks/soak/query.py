"""The query under test, its session, and who reads its topic afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import tablestream as ts
from benchmarks.soak.load import CUSTOMERS, ITEMS
from benchmarks.spark_session import SETTINGS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql.streaming.query import StreamingQuery

JOINED = "joined"
#: After a failure the next micro-batches are not larger than that.
_RECORDS_PER_TRIGGER = 150_000
_SETTINGS = {
    # Executors are killed for as long as the soak lasts.
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.task.maxFailures": "20",
    "spark.executor.memory": "1g",
    "spark.driver.memory": "2g",
}


def session(jars: Path, work: Path) -> SparkSession:
    """Start Spark with two executors, each a process of its own."""
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("soak")
    settings = SETTINGS | _SETTINGS
    settings["spark.jars"] = ",".join(map(str, sorted(jars.glob("*.jar"))))
    settings["spark.sql.warehouse.dir"] = str(work / "warehouse")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def start(spark: SparkSession, servers: str, work: Path) -> StreamingQuery:
    """Start the join, from where its checkpoint has it."""
    kafka: dict[str, Any] = {
        "bootstrap_servers": servers,
        "options": {"maxOffsetsPerTrigger": _RECORDS_PER_TRIGGER},
    }
    items, customers = (
        ts.table(ts.from_kafka(spark, topic, key="string", value=value, **kafka), "key", name=topic)
        for topic, value in ((ITEMS, "customer string, number bigint"), (CUSTOMERS, "name string"))
    )
    joined = items.join(customers, on="customer", how="left", name=JOINED)
    sink = ts.to_kafka(JOINED, bootstrap_servers=servers, key="string", value="json")
    return ts.start(joined.to(sink), checkpoint=work / "checkpoint", name=JOINED)


def changes_written(spark: SparkSession, servers: str) -> int:
    """Count the changes in the topic by their headers, which a repeat has in common with what it repeats."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": JOINED, "includeHeaders": "true"}
    records = spark.read.format("kafka").options(**options).load()
    return int(records.select("key", F.col("headers")[0]["value"]).distinct().count())


def read_back(spark: SparkSession, servers: str, work: Path) -> tuple[Path, int]:
    """Read the topic without its repeats into Parquet files; return where they are, and how many repeats there were."""
    value = "customer string, number bigint, name string"
    frame = ts.from_kafka(
        spark, JOINED, key="string", value=value, bootstrap_servers=servers, deduplicate=True
    )
    records = ts.stream(frame, "key", name=JOINED)
    query = ts.start(
        records.to(ts.to_files(work / "read back")),
        checkpoint=work / "read back checkpoint",
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    repeated = f"{JOINED}/deduplicated: repeated"
    counts = [progress.observedMetrics["tablestream"].asDict() for progress in query.recentProgress]
    return work / "read back", sum(count[repeated] for count in counts)
