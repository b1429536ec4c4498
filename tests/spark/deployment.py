"""One plan over change logs, and the deployments of Spark that need a process of their own to run it.

``python -m tests.spark.deployment (connect|standalone) DIRECTORY``
"""

from __future__ import annotations

import json
import socket
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import tablestream as ts
from tests.conftest import KEPT_CLASSES, QUICK_JAVA, SPARK_SETTINGS
from tests.spark.change_logs import START, ChangeLog, run
from tests.spark.standalone import standalone

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMAS = {
    "orders": "id int, customer string, amount int, deleted boolean, ts bigint",
    "customers": "code string, name string, ts bigint",
    "parcels": "id bigint, state string, deleted boolean, ts bigint",
}

_SMALL = {
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": f"{QUICK_JAVA} {KEPT_CLASSES}",
}


def joined(logs: dict[str, ChangeLog], spark: SparkSession) -> tuple[ts.Table, ts.Table]:
    """Join orders with their customers by foreign key, and with their parcels on the common key."""

    def table(name: str, key: str, **options: Any) -> ts.Table:
        return ts.table(
            logs[name].read(spark), key, timestamp=F.timestamp_seconds("ts"), name=name, **options
        )

    gone: dict[str, Any] = {"apply_as_deletes": "deleted", "except_columns": ["deleted", "ts"]}
    orders, parcels = table("orders", "id", **gone), table("parcels", "id", **gone)
    customers = table("customers", "code", columns=[F.upper("name").alias("name")])
    sold = orders.join(
        customers,
        on=lambda order: F.lower(order.customer),
        how="left",
        select=lambda order, customer: [order.customer, order.amount, customer.name],
        name="sold",
    )
    return sold, orders.join(parcels.filter("state != 'lost'"), how="outer", name="sent")


def pieces() -> Iterator[dict[str, list[dict[str, Any]]]]:
    """Yield the records that each micro-batch reads: rows that appear, point elsewhere, change and go."""
    for number in range(3):
        records: dict[str, list[dict[str, Any]]] = {
            "orders": [
                {"id": n, "customer": "ABCD"[(n + number) % 4], "amount": 10 * n, "deleted": n + 1 == number}
                for n in range(8)
            ],
            "customers": [{"code": code, "name": f"{code}{number}"} for code in "abc"[: number + 1]],
            "parcels": [
                {"id": n, "state": ("packed", "sent", "lost")[(n + number) % 3], "deleted": n == 3 + number}
                for n in range(number, 10, 2)
            ],
        }
        for place, listed in enumerate(records.values()):
            for n, record in enumerate(listed):
                record["ts"] = START + 100 * number + 3 * n + place  # the three logs take turns
        yield records


def run_plan(spark: SparkSession, directory: Path) -> None:
    """Write changes into ``sold`` and ``sent``; the query starts twice.

    What was counted goes into ``counts.json``, and orders as the state has them at the end into ``orders.json``.
    """
    logs = {name: ChangeLog(directory / "logs" / name, schema) for name, schema in SCHEMAS.items()}
    *before, after = pieces()
    counts = []
    for written in (before, [after]):
        for records in written:
            for name, log in logs.items():
                log.add(records[name])
        outputs = [table.to(ts.to_files(directory / table.name, "json")) for table in joined(logs, spark)]
        counts.append(run(*outputs, checkpoint=directory / "checkpoint", shards=2))
    (directory / "counts.json").write_text(json.dumps(counts), encoding="utf-8")
    rows = ts.read_state(spark, directory / "checkpoint", "orders").orderBy("id").collect()
    assert ts.read_state(spark, directory / "checkpoint", "orders", key=rows[-1]["id"]).collect() == rows[-1:]
    assert ts.verify(spark, directory / "checkpoint").ok
    orders = [[str(value) for value in row] for row in rows]
    (directory / "orders.json").write_text(json.dumps(orders), encoding="utf-8")


#: What runs a plan: threads of one process, a server apart, or a master and two workers.
LOCAL, CONNECT, STANDALONE = "local", "connect", "standalone"


def connect_session(directory: Path) -> SparkSession:
    """Start a Spark Connect server in this process, and a session that knows only the server."""
    from pyspark.sql.connect.client import DefaultChannelBuilder

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # The server of "local" listens where it is told to, but its client looks for it at the default port.
    DefaultChannelBuilder.default_port = staticmethod(lambda: port)  # type: ignore[method-assign]
    builder = SparkSession.builder.remote("local[2]")
    return configured(
        builder,
        {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port)},
        directory,
    )


def configured(builder: SparkSession.Builder, settings: dict[str, str], directory: Path) -> SparkSession:
    """Make a session as the tests need it, whose files are in a directory."""
    places = {"spark.sql.warehouse.dir": directory / "warehouse", "spark.local.dir": directory / "scratch"}
    for name, value in (SPARK_SETTINGS | _SMALL | settings | places).items():
        builder = builder.config(name, str(value))
    return builder.getOrCreate()


@contextmanager
def session(
    deployment: str, directory: Path, settings: dict[str, str] | None = None
) -> Iterator[SparkSession]:
    """Start a deployment, and stop it."""
    with ExitStack() as around:
        if deployment == STANDALONE:
            address = around.enter_context(standalone(directory))
            spark = configured(SparkSession.builder.master(address), settings or {}, directory)
        else:
            spark = connect_session(directory)
        try:
            yield spark
        finally:
            spark.stop()


def main(deployment: str, directory: str) -> None:
    """Run the plan in a deployment."""
    with session(deployment, Path(directory)) as spark:
        run_plan(spark, Path(directory))


if __name__ == "__main__":
    main(*sys.argv[1:])
