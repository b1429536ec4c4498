"""What only Spark can show, in one query that starts again: the tests with Spark that `make check` runs.

Each part has tests of its own elsewhere: sources, types, shuffles, state, restarts, sinks and errors.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import tablestream as ts
from tests.spark.change_logs import START, ChangeLog, run
from tests.spark.test_restarts import forget_last_commit

if TYPE_CHECKING:
    from collections import Counter
    from pathlib import Path

    from pyspark.sql import Row, SparkSession

pytestmark = pytest.mark.smoke

ORDERS = "id int, customer string, amount decimal(8,2), day date, tags array<string>, gone boolean, ts bigint"
CUSTOMERS = "code string, name string, ts bigint"


def order(
    number: int | None, customer: str | None, amount: str, at: int, *, gone: bool = False
) -> dict[str, Any]:
    said = {"id": number, "customer": customer, "amount": amount, "day": "2024-02-29", "tags": ["é", None]}
    return {**said, "gone": gone, "ts": START + at}


def customer(code: str, name: str, at: int) -> dict[str, Any]:
    return {"code": code, "name": name, "ts": START + at}


class Shop:
    """Orders with their customers, and what each name ordered."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark, self.directory = spark, directory
        self.orders = ChangeLog(directory / "orders", ORDERS)
        self.customers = ChangeLog(directory / "customers", CUSTOMERS)
        self.totals = ts.to_memory(f"totals {directory}")

    def work_off(self) -> Counter[str]:
        times: dict[str, Any] = {"timestamp": F.timestamp_seconds("ts")}
        orders = ts.table(
            self.orders.read(self.spark), "id", apply_as_deletes="gone", except_columns=["gone", "ts"],
            name="orders", **times,
        )  # fmt: skip
        customers = ts.table(
            self.customers.read(self.spark), "code", columns=["name"], name="customers", **times
        )
        sold = orders.join(customers, on="customer", how="left", name="sold")
        totals = sold.group_by("name").agg(
            n=ts.functions.count(), total=ts.functions.sum("amount"), name="totals"
        )
        return run(
            sold.to(ts.to_files(self.directory / "sold", "parquet")),
            totals.to(self.totals),
            checkpoint=self.directory / "checkpoint",
            shards=3,
        )

    def sold(self) -> list[Row]:
        """The changes in their order."""
        return self.spark.read.parquet(str(self.directory / "sold")).orderBy("_order").collect()


@pytest.mark.usefixtures("as_users_have_it", "several_partitions")
def test_a_query_that_starts_again_goes_on_and_writes_no_micro_batch_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    shop = Shop(spark, tmp_path)
    shop.work_off()
    assert not (tmp_path / "sold").exists()  # of no records there is no micro-batch
    shop.orders.add([order(1, "a", "10.50", 1), order(2, "c", "1.25", 2), order(None, "a", "9.00", 3)])
    shop.customers.add([customer("a", "Ann", 4)])
    assert shop.work_off()["orders: null-key"] == 1
    forget_last_commit(tmp_path / "checkpoint")
    shop.orders.add(
        [order(1, "b", "10.50", 11), order(3, "a", "2.00", 12), order(2, "c", "1.25", 14, gone=True)]
    )
    shop.customers.add([customer("b", "Bob", 13)])
    shop.work_off()

    sold = shop.sold()
    assert [
        (row["_order"]["micro_batch"], row["_change_type"], row.id, row.amount, row.name) for row in sold
    ] == [
        (0, "upsert", 1, Decimal("10.50"), None),
        (0, "upsert", 2, Decimal("1.25"), None),
        (0, "upsert", 1, Decimal("10.50"), "Ann"),
        (1, "upsert", 1, Decimal("10.50"), None),
        (1, "upsert", 3, Decimal("2.00"), "Ann"),
        (1, "upsert", 1, Decimal("10.50"), "Bob"),
        (1, "delete", 2, None, None),
    ]
    assert [(row.day, row.tags) for row in sold[:-1]] == [(date(2024, 2, 29), ["é", None])] * 6
    totals = {
        row["name"]: (row.n, row.total) for row in shop.totals.rows() if row["_change_type"] == "upsert"
    }
    assert totals["Ann"] == (1, Decimal("2.00"))
    assert totals["Bob"] == (1, Decimal("10.50"))
    shop.totals.clear()


@pytest.mark.usefixtures("as_users_have_it", "several_partitions")
def test_what_a_users_function_raises_ends_the_query_and_is_shown(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = ChangeLog(tmp_path / "log", "id int, n int, ts bigint")
    log.add([{"id": 1, "n": 0, "ts": START}])
    table = ts.table(
        log.read(spark), "id", timestamp=F.timestamp_seconds("ts"), columns=["n"], name="numbers"
    )
    shares = table.group_by("id").aggregate(
        lambda: 0,
        lambda _, row, share: share + 1 // row.n,
        lambda _, row, share: share - 1 // row.n,
        "share int",
    )
    with pytest.raises(StreamingQueryException, match="ZeroDivisionError"):
        run(shares.to(ts.to_memory("shares")), checkpoint=tmp_path / "checkpoint", shards=1)
