"""A query into PostgreSQL that is killed: ``python -m tests.postgres.victim DIRECTORY CACHE CONNINFO``.

Amounts by customer go to the table ``small`` by way of the driver, and to ``large`` through a staging table of each
task.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import tablestream as ts
from tests.faults.victim import ORDERS
from tests.spark.change_logs import ChangeLog, run
from tests.spark.deployment import configured

if TYPE_CHECKING:
    from tablestream.spark.runner import OutputRequest

TABLES = ("small", "large")


def amounts(spark: SparkSession, directory: Path) -> ts.Table:
    """Number and sum of the orders of each customer."""
    orders = ts.table(
        ChangeLog(directory / "orders", ORDERS).read(spark), "id", apply_as_deletes="deleted",
        timestamp=F.timestamp_seconds("ts"), except_columns=["deleted", "ts"], name="orders",
    )  # fmt: skip
    return orders.group_by("customer").agg(n=ts.functions.count(), amount=ts.functions.sum("amount"))


def work_off(spark: SparkSession, directory: Path, conninfo: str) -> None:
    """Run the query until all is worked off."""
    table = amounts(spark, directory)
    small, large = (ts.to_postgres(name, conninfo, create=True) for name in TABLES)
    wanted: list[OutputRequest] = [table.to(small), table.to(replace(large, inline_bytes=0), name="large")]
    run(*wanted, checkpoint=directory / "checkpoint", shards=2)


def expected(directory: Path) -> list[tuple[str, int, int]]:
    """The rows of the table, worked out from the change log one by one."""
    orders: dict[int, tuple[str, int]] = {}
    for file in sorted((directory / "orders").glob("*.json")):
        for one in map(json.loads, file.read_text().splitlines()):
            orders.pop(one["id"], None)
            if not one["deleted"]:
                orders[one["id"]] = (one["customer"], one["amount"])
    groups: dict[str, list[int]] = defaultdict(list)
    for customer, amount in orders.values():
        groups[customer].append(amount)
    return sorted((customer, len(found), sum(found)) for customer, found in groups.items())


def main(directory: str, cache: str, conninfo: str) -> None:
    """Make a session, and work off what is there."""
    os.environ["TABLESTREAM_CACHE_DIR"] = cache
    scratch = Path(directory) / f"scratch-{os.getpid()}"
    scratch.mkdir()
    spark = configured(SparkSession.builder.master("local[2]"), {}, scratch)
    try:
        work_off(spark, Path(directory), conninfo)
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:4])
