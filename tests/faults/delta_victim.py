"""A query into Delta tables and files: ``python -m tests.faults.delta_victim DIRECTORY CACHE local``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import tablestream as ts
from tests.conftest import DELTA_SETTINGS
from tests.faults.victim import ORDERS
from tests.spark.change_logs import ChangeLog, run
from tests.spark.deployment import configured

if TYPE_CHECKING:
    from tablestream.spark.runner import OutputRequest

#: Those that are no Delta tables.
FORMATS = {"json": "json", "parquet": "parquet"}
OUTPUTS = ("table", "log", *FORMATS)


def work_off(spark: SparkSession, directory: Path) -> None:
    """Run the query until all is worked off: amounts by customer."""
    orders = ts.table(
        ChangeLog(directory / "orders", ORDERS).read(spark), "id", apply_as_deletes="deleted",
        timestamp=F.timestamp_seconds("ts"), except_columns=["deleted", "ts"], name="orders",
    )  # fmt: skip
    amounts = orders.group_by("customer").agg(n=ts.functions.count(), amount=ts.functions.sum("amount"))
    wanted: list[OutputRequest] = [
        amounts.to(ts.to_delta(directory / "table"), name="table"),
        amounts.to(ts.to_delta(directory / "log", mode="changes"), name="log"),
        amounts.to(ts.to_files(directory / "json", "json"), name="json"),
        amounts.to(ts.to_files(directory / "parquet"), name="parquet"),
    ]
    run(*wanted, checkpoint=directory / "checkpoint", shards=2)


def main(directory: str, cache: str) -> None:
    """Make a session, and work off what is there."""
    os.environ["TABLESTREAM_CACHE_DIR"] = cache
    scratch = Path(directory) / f"scratch-{os.getpid()}"
    scratch.mkdir()
    spark = configured(SparkSession.builder.master("local[2]"), DELTA_SETTINGS, scratch)
    try:
        work_off(spark, Path(directory))
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:3])
