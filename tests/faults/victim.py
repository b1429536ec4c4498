"""A query into all targets, whose processes are killed.

``python -m tests.faults.victim DEPLOYMENT SERVERS TOPIC CONNINFO`` works off the change logs in the current directory,
a file a micro-batch, from where its checkpoint has it. The changes are those of a join by foreign key and of groups.
On a cluster tasks fail in the first new micro-batch, and stand still in the next one (`tests.faults.attempts`). The
process itself stands still where the variable `STANDS` of its environment says.
"""

from __future__ import annotations

import os
import random
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
from deltalake.table import TableMerger
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import tablestream as ts
from tests.conftest import DELTA_SETTINGS, LESS_WORK
from tests.faults.attempts import SPECULATION, disturb_all
from tests.spark.change_logs import START, ChangeLog, run
from tests.spark.deployment import STANDALONE, configured, session

if TYPE_CHECKING:
    from collections.abc import Callable

    from tablestream.spark.requests import OutputRequest

ORDERS = "id int, customer string, amount int, deleted boolean, ts bigint"
CUSTOMERS = "code string, name string, ts bigint"


#: The variable with one of the places where a process can stand still, until it is killed.
STANDS = "VICTIM_STANDS"
#: A table is there, without its first rows; rows are beside it, and not in it; they are in it, and still beside it.
CREATED, STAGED, APPENDED = "created", "staged", "appended"
#: Longer than a test takes.
SECONDS = 3600
#: On this machine, whose workers cannot write a byte to any disk.
FULL_DISK = "full disk"


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


def work_off(spark: SparkSession, directory: Path, *places: str) -> None:
    """Run the query until all is worked off; into all targets, if it is said where the servers have theirs."""
    sold = sold_orders(spark, directory)
    amounts = sold.group_by("name").agg(n=ts.functions.count(), amount=ts.functions.sum("amount"))
    wanted: list[OutputRequest] = [
        sold.to(ts.to_files(directory / "sold", "json")),
        amounts.to(ts.to_files(directory / "amounts", "parquet" if places else "json"), name="amounts"),
    ]
    if places:
        wanted += further(sold, amounts, directory, *places)
    run(*wanted, checkpoint=directory / "checkpoint", shards=4)


def further(
    sold: ts.Table, amounts: ts.Table, directory: Path, servers: str, topic: str, conninfo: str
) -> list[OutputRequest]:
    """Every other kind of target; PostgreSQL's tables once by way of the driver, and once by staging tables.

    What delta-rs writes comes by way of files beside its tables.
    """
    small, large = (ts.to_postgres(name, conninfo, create=True) for name in ("small", "large"))
    by_rs = {
        "rs_table": ts.to_delta(directory / "rs_table", writer="delta-rs"),
        "rs_log": ts.to_delta(directory / "rs_log", mode="changes", writer="delta-rs"),
    }
    return [
        sold.to(ts.to_delta(directory / "table", writer="spark"), name="table"),
        amounts.to(ts.to_delta(directory / "log", mode="changes", writer="spark"), name="log"),
        sold.to(replace(by_rs["rs_table"], few_rows=0), name="rs_table"),
        amounts.to(replace(by_rs["rs_log"], few_rows=0), name="rs_log"),
        sold.to(ts.to_kafka(topic, bootstrap_servers=servers), name="topic"),
        sold.to(small, name="small"),
        sold.to(replace(large, inline_bytes=0), name="large"),
    ]


def micro_batches(directory: Path) -> int:
    """How many micro-batches a query has begun."""
    return sum(file.name.isdigit() for file in (directory / "checkpoint" / "offsets").iterdir())


def stand_still(where: str, here: Path) -> None:
    """Let the process stand still before or behind a call of delta-rs, and tell it by a file of that name."""
    owner, name, is_before = {
        CREATED: (deltalake.DeltaTable, "create", False),
        STAGED: (TableMerger, "execute", True),
        APPENDED: (deltalake.DeltaTable, "create_write_transaction", False),
    }[where]
    call: Callable[..., Any] = getattr(owner, name)

    def standing(*given: Any, **named: Any) -> Any:
        if not is_before:
            call(*given, **named)
        (here / where).touch()
        time.sleep(SECONDS)

    setattr(owner, name, standing)


def full_disk(directory: Path) -> str:
    """Write a program that runs Python, which cannot write a byte to any disk."""
    python = directory / "python"
    python.write_text(f'#!/bin/sh\nulimit -f 0\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    python.chmod(0o700)
    return str(python)


def main(deployment: str, *places: str) -> None:
    """Make a session, and work off what is there."""
    here = Path.cwd()
    os.environ["TABLESTREAM_CACHE_DIR"] = str(here / "cache")
    scratch = here / f"scratch-{os.getpid()}"
    scratch.mkdir()
    if STANDS in os.environ:
        stand_still(os.environ[STANDS], here)
    if deployment == STANDALONE:
        disturb_all(micro_batches(here), here / "marks")
        with session(STANDALONE, scratch, DELTA_SETTINGS | SPECULATION) as spark:
            work_off(spark, here, *places)
    else:
        if deployment == FULL_DISK:
            os.environ["PYSPARK_PYTHON"] = full_disk(scratch)
        spark = configured(SparkSession.builder.master("local[2,4]"), DELTA_SETTINGS | LESS_WORK, scratch)
        work_off(spark, here, *places)
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
