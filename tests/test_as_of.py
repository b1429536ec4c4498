"""A join as of a time through the public API: what is refused, and what a driver shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import tablestream as ts
from tablestream.errors import (
    ArgumentError,
    KeyMismatchError,
    NotVersionedError,
    PlanError,
    TablestreamError,
)
from tablestream.testing import Driver, assert_changes_equal, frame
from tests.test_table import refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

ORDERS = "id int, product string, n int, placed timestamp, local timestamp_ntz, at timestamp, op string"
PRICES = "product string, price int, since timestamp"


def orders_of(spark: SparkSession, read: Callable[..., Any] = ts.table, key: str = "id") -> Any:
    log = frame(spark, ORDERS)
    options = {
        "timestamp": "at",
        "apply_as_deletes": "op = 'd'",
        "except_columns": ["op", "at"],
        "name": "orders",
    }
    return read(log, key, **options)


def prices_of(spark: SparkSession, read: Callable[..., Any] = ts.table, **options: Any) -> Any:
    deletes = {"apply_as_deletes": "price IS NULL", "except_columns": "since"}
    return read(frame(spark, PRICES), "product", timestamp="since", name="prices", **deletes, **options)


def test_an_as_of_is_refused_where_it_means_nothing(spark: SparkSession) -> None:
    orders, prices = orders_of(spark), prices_of(spark, history="1 hour")
    copies = prices_of(spark, ts.global_table, history="1 hour")

    def check(
        kind: type[TablestreamError], words: str, right: Any = prices, left: Any = orders, **said: Any
    ) -> None:
        named = {"on": "product", "as_of": "placed", "name": "priced", **said}
        refused(lambda: left.join(right, **named), kind, words, operator="priced")

    check(NotVersionedError, "as_of= needs a versioned table, and 'prices' has no history", prices_of(spark))
    check(ArgumentError, "as_of= is of type int, and not a timestamp", as_of="n")
    check(ArgumentError, "as_of= is of type date", as_of="CAST(placed AS date)")
    check(PlanError, "cannot be resolved", as_of="price_at")
    check(ArgumentError, "how='outer' is not known", how="outer")
    check(ArgumentError, "as_of= cannot be used with a global table", copies)
    check(ArgumentError, "as_of= cannot be used with spread=", spread=4)
    check(KeyMismatchError, "", on="placed")
    kept, whole = orders.materialize(history="1 hour"), "as_of= cannot be used with complete_history="
    check(ArgumentError, whole, left=kept, complete_history=True)
    refused(lambda: orders.join(prices, on="product", as_of=7), ArgumentError, "7 is not a column")
    with pytest.raises(ArgumentError, match="direction='nearest' is not known"):
        ts.as_of("placed", "nearest")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="strict="):
        ts.as_of("placed", strict="yes")  # type: ignore[arg-type]


def test_a_table_of_joined_records_that_lost_their_deletes_is_refused(spark: SparkSession) -> None:
    records, prices = orders_of(spark, ts.stream), prices_of(spark, history="1 hour")
    joined = records.select("product", "n").join(prices, on="product", how="left").filter("n > 0")
    with pytest.raises(PlanError, match="would keep rows that records of 'orders' delete"):
        Driver(joined.to_table())
    Driver(joined.to_table(), compat="kafka-streams")
    Driver(
        records.filter("n IS NOT NULL").join(prices, on="product").to_table(name="filtered"),
        records.to_table(name="not joined"),
        joined.group_by("product").count(),
    )


def test_a_driver_follows_changes_of_both_sides(spark: SparkSession) -> None:
    orders, prices = orders_of(spark), prices_of(spark, history="30 days")

    def joined(name: str, as_of: Any, how: Any = "left") -> Any:
        return orders.join(
            prices,
            on="product",
            how=how,
            as_of=as_of,
            name=name,
            select=lambda o, p: [o.n, (o.n * p.price).alias("w")],
        )

    driver = Driver(
        joined("backward", "placed"),
        joined("local", F.col("local"), "inner"),
        joined("next", ts.as_of("placed", "forward", strict=True)),
        shards=3,
    )
    driver.pipe("prices", "product|price|since \n tea|4|2024-01-01 00:00 \n tea|5|2024-01-03 00:00")
    driver.pipe("orders", """
        id | product | n | placed           | local            | at               | op
        1  | tea     | 2 | 2024-01-02 00:00 | 2024-01-04 00:00 | 2024-01-02 00:00 |
        2  | tea     | 1 | 2024-01-03 00:00 | 2024-01-03 00:00 | 2024-01-03 00:00 |
        3  | tea     | 7 |                  |                  | 2024-01-03 00:00 |
        4  | salt    | 7 | 2024-01-03 00:00 | 2024-01-03 00:00 | 2024-01-03 00:00 |
    """)  # fmt: skip
    driver.run()
    assert_changes_equal(driver.table("backward"), "id|n|w \n 1|2|8 \n 2|1|5 \n 3|7| \n 4|7|")
    assert_changes_equal(driver.table("local"), "id|n|w \n 1|2|10 \n 2|1|5")
    assert_changes_equal(driver.table("next"), "id|n|w \n 1|2|10 \n 2|1| \n 3|7| \n 4|7|")
    driver = driver.restarted()
    driver.pipe("orders", "id|op|at \n 2|d|2024-01-05 00:00")
    driver.pipe(
        "orders", "id|product|n|placed|local|at \n 1|tea|3|2024-01-02 00:00|2024-01-04 00:00|2024-01-05 00:00"
    )
    driver.pipe("prices", "product|price|since \n tea|6|2024-01-01 12:00 \n tea||2024-01-04 00:00")
    assert_changes_equal(
        driver.run(),
        """
        id | n | w  | _change_type | _timestamp
        1  | 2 | 12 | upsert       | 2024-01-02 00:00:00
        2  |   |    | delete       | 2024-01-05 00:00:00
        1  | 3 | 18 | upsert       | 2024-01-05 00:00:00
        """,
    )
    assert_changes_equal(driver.table("backward"), "id|n|w \n 1|3|18 \n 3|7| \n 4|7|")
    assert len(driver.table("local")) == 0
    assert_changes_equal(driver.table("next"), "id|n|w \n 1|3|15 \n 3|7| \n 4|7|")
    assert_changes_equal(driver.state("prices", as_of="2024-01-02 00:00"), "product | price \n tea | 6")
    assert driver.counts["local/subscribe: null-foreign-key"] == 1


def test_tables_of_one_key_need_no_on(spark: SparkSession) -> None:
    orders, prices = orders_of(spark, key="product"), prices_of(spark, history="30 days")
    joined = orders.join(prices, as_of="placed", how="inner", select=lambda o, p: [o.n, p.price])
    assert joined.key_columns == ["product"]
    assert " as of placed (backward); " in joined._node.meaning  # so that another time is another plan
    driver = Driver(joined)
    driver.pipe("prices", "product|price|since \n tea|4|2024-01-01 00:00")
    driver.pipe("orders", "product|n|placed|at \n tea|2|2024-01-02 00:00|2024-01-02 00:00")
    assert_changes_equal(driver.run(), "product|n|price \n tea|2|4")
