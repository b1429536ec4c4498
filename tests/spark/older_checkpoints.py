"""Queries that older versions have begun: their checkpoints and targets, as they wrote them.

``PYTHONPATH=OLD/src:. python -m tests.spark.older_checkpoints /srv/shop [evolvable]`` lets a version write them.
``tar --sort=name -cJf tests/golden/checkpoints/COMMIT-NAME.tar.xz -C /srv shop`` packs them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import tablestream as ts
from tablestream import functions as tf

FOLDER = Path(__file__).parent.parent / "golden" / "checkpoints"
ORDERS, CUSTOMERS = (
    "id int, customer int, amount int, at timestamp",
    "customer int, name string, at timestamp",
)


def write(shop: Path, log: str, file: str, *lines: str) -> None:
    """Add a file to a log."""
    (shop / "logs" / log).mkdir(parents=True, exist_ok=True)
    (shop / "logs" / log / file).write_text("\n".join(lines) + "\n")


def plan(spark: SparkSession, shop: Path, *, more: bool = False) -> list[ts.OutputRequest]:
    """A foreign-key join and groups of it; with `more` also other groups."""
    logs = {"orders": ORDERS, "customers": CUSTOMERS}
    read = {
        name: ts.from_files(spark, str(shop / "logs" / name), "csv", schema) for name, schema in logs.items()
    }
    orders = ts.table(read["orders"], "id", timestamp="at", columns=["customer", "amount"], name="orders")
    customers = ts.table(read["customers"], "customer", timestamp="at", columns=["name"], name="customers")
    joined = orders.join(customers, on="customer", how="left", name="joined")
    totals = joined.group_by("name").agg(total=tf.sum("amount"), name="per_name")
    made = [
        joined.to(ts.to_files(str(shop / "out/joined"))),
        totals.to(ts.to_delta(str(shop / "out/per_name"))),
    ]
    per_customer = orders.group_by("customer").count(name="per_customer")
    return [*made, per_customer.to(ts.to_delta(str(shop / "out/per_customer")))] if more else made


def run(outputs: list[ts.OutputRequest], shop: Path, **options: Any) -> None:
    """Read all that is there."""
    trigger = {"availableNow": True}
    ts.start(*outputs, checkpoint=str(shop / "out/checkpoint"), trigger=trigger, **options).awaitTermination()


def _main(shop: Path, *, evolvable: bool) -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    write(
        shop,
        "orders",
        "1.csv",
        "1,7,2,2024-01-02 09:00:00",
        "2,8,1,2024-01-02 09:01:00",
        "3,9,4,2024-01-02 09:02:00",
    )
    write(shop, "customers", "1.csv", "7,Ada,2024-01-01 00:00:00", "8,Bob,2024-01-01 00:00:00")
    run(plan(spark, shop), shop, shards=2, **{"evolvable": True} if evolvable else {})


if __name__ == "__main__":
    _main(Path(sys.argv[1]), evolvable="evolvable" in sys.argv[2:])
