"""A query that is killed again and again: ``python -m tests.faults.victim DIRECTORY CACHE (local|cluster)``.

It works off the change logs in a directory, a file a micro-batch, from where its checkpoint has it. The changes are
written by foreign key and by groups, as a log and as a maintained table.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import tablestream as ts
from tests.spark.change_logs import START, ChangeLog, run
from tests.spark.deployment import CLUSTER, cluster_session, configured

ORDERS = "id int, customer string, amount int, deleted boolean, ts bigint"
CUSTOMERS = "code string, name string, ts bigint"


def write_logs(directory: Path, micro_batches: int) -> None:
    """Write random orders and customers: rows appear, point elsewhere, change and go."""
    rng = random.Random(11)
    orders, customers = ChangeLog(directory / "orders", ORDERS), ChangeLog(directory / "customers", CUSTOMERS)
    for number in range(micro_batches):
        at = START + 10 * number
        orders.add(
            [
                {
                    "id": rng.randrange(40),
                    "customer": rng.choice("abcdef"),
                    "amount": rng.randrange(100),
                    "deleted": rng.random() < 0.2,
                    "ts": at + rng.randrange(10),
                }
                for _ in range(30)
            ]
        )
        customers.add([{"code": rng.choice("abcde"), "name": f"{number}", "ts": at + rng.randrange(10)}])


def reveal(directory: Path, everything: Path, count: int) -> None:
    """Show a query the first files of the logs."""
    for log in ("orders", "customers"):
        (directory / log).mkdir(parents=True, exist_ok=True)
        for file in sorted((everything / log).glob("*.json"))[:count]:
            shutil.copy2(file, directory / log / file.name)


def sold_orders(spark: SparkSession, directory: Path) -> ts.Table:
    """Orders with the names of their customers."""
    said: dict[str, Any] = {"timestamp": F.timestamp_seconds("ts")}
    orders = ts.table(
        ChangeLog(directory / "orders", ORDERS).read(spark), "id", apply_as_deletes="deleted",
        except_columns=["deleted", "ts"], name="orders", **said,
    )  # fmt: skip
    customers = ts.table(
        ChangeLog(directory / "customers", CUSTOMERS).read(spark), "code", columns=["name"], name="customers",
        **said,
    )  # fmt: skip
    return orders.join(customers, on="customer", how="left", name="sold")


def work_off(spark: SparkSession, directory: Path, checkpoint: str = "checkpoint") -> None:
    """Run the query until all is worked off."""
    sold = sold_orders(spark, directory)
    amounts = sold.group_by("name").agg(n=ts.functions.count(), amount=ts.functions.sum("amount"))
    run(
        sold.to(ts.to_files(directory / "sold", "json")),
        amounts.to(ts.to_files(directory / "amounts", "json"), name="amounts"),
        checkpoint=directory / checkpoint,
        shards=4,
    )


def main(directory: str, cache: str, deployment: str) -> None:
    """Make a session, and work off what is there."""
    os.environ["TABLESTREAM_CACHE_DIR"] = cache
    scratch = Path(directory) / f"scratch-{os.getpid()}"
    scratch.mkdir()
    spark = (
        cluster_session(scratch)
        if deployment == CLUSTER
        else configured(SparkSession.builder.master("local[2,4]"), {}, scratch)
    )
    try:
        work_off(spark, Path(directory))
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
