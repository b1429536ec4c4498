"""The Spark session that every contestant gets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from tablestream.connectors.delta.by_spark import CATALOG, EXTENSION

if TYPE_CHECKING:
    from benchmarks.launch import Task

CORES = 2
_STATE = "spark.sql.streaming.stateStore"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(CORES),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.executorEnv.POLARS_MAX_THREADS": "1",
    f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}
#: For the contestants that write a Delta table.
DELTA_SETTINGS = {"spark.sql.extensions": EXTENSION, "spark.sql.catalog.spark_catalog": CATALOG}
_DELTA = {"delta-log", "delta-table", "delta-table-spark", "delta-rs-by-hand", "delta-merges"} | {
    "kafka-delta",
    "debezium",
}


def spark_session(task: Task) -> SparkSession:
    """Start Spark on two local cores with the settings that the documentation recommends."""
    builder = SparkSession.builder.master(f"local[{CORES}]").appName(f"benchmark {task.contestant}")
    builder = builder.config("spark.driver.memory", task.driver_memory)
    builder = builder.config("spark.sql.warehouse.dir", f"{task.work}/warehouse")
    builder = builder.config("spark.jars", ",".join(map(str, sorted(Path(task.jars).glob("*.jar")))))
    for name, value in (SETTINGS | (DELTA_SETTINGS if task.contestant in _DELTA else {})).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
