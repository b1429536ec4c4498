"""Reads the topic back when the soak is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import tablestream as ts
from benchmarks.soak.query import JOINED

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


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
