"""Tables that forget old rows, as users write them: by which times, in what a test driver runs, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import tablestream as ts
from tablestream.errors import ArgumentError, PlanError
from tests.test_table import refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

SCHEMA = "id int, city string, day date, opened timestamp, local timestamp_ntz, changed timestamp, op string"


@pytest.fixture
def orders(spark: SparkSession) -> Iterator[ts.Table]:
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", "Europe/Oslo")
    frame = ts.testing.frame(spark, SCHEMA)
    yield ts.table(
        frame, "id", timestamp="changed", apply_as_deletes="op = 'd'", except_columns=["op"], name="orders"
    )
    spark.conf.set("spark.sql.session.timeZone", zone)


def test_the_time_of_a_row_is_a_timestamp_or_a_date(orders: ts.Table) -> None:
    """Between both days the clocks are put back: the midnights are thirty days and an hour apart."""
    tables = {
        "timestamp": orders.keep("30 days"),
        "column": orders.keep("30 days", by="opened"),
        "local": orders.keep(timedelta(days=30), by=F.col("local")),
        "date": orders.keep("30 days", by="day", name="by day"),
        "expression": orders.keep("720 hours", by="date_add(day, 1)", name="by tomorrow"),
        "frozen": orders.freeze("30 days", by="day"),
        "day": orders.select_key("day", order_by="id").keep("30 days", by="day"),
    }
    counted = tables["date"].group_by("city").count(name="per city")
    outputs = [table.to(ts.to_memory(name), name=name) for name, table in tables.items()]
    driver = ts.testing.Driver(*outputs, counted, shards=1)
    driver.pipe("orders", """
        id | city | day        | opened           | local            | changed             | op
        1  | Oslo | 2024-10-25 | 2024-10-25 23:00 | 2024-10-25 23:00 | 2024-10-25 23:59:59 |
        2  | Oslo | 2024-10-26 | 2024-10-26 00:00 | 2024-10-26 00:00 | 2024-10-26 00:00    |
        3  | Rome |            |                  |                  | 2024-10-26 00:00    |
        4  | Rome | 2024-11-25 | 2024-11-25 00:00 | 2024-11-25 00:00 | 2024-11-25 00:00    |
    """)  # fmt: skip
    driver.run()
    ids = {name: sorted(row["id"] for row in driver.table(name)) for name in tables}
    assert ids.pop("timestamp") == [4]
    assert ids.pop("column") == ids.pop("local") == [3, 4]
    assert ids.pop("frozen") == [1, 2, 3, 4]
    assert ids == {name: [2, 3, 4] for name in ("date", "expression", "day")}
    ts.testing.assert_changes_equal(driver.table("per city"), "city | count \n Oslo | 1 \n Rome | 2")
    driver.pipe("orders", "id | city | day | changed \n 2 | Oslo | 2024-02-01 | 2024-11-25 01:00")
    driver.run()
    ts.testing.assert_changes_equal(driver.table("per city"), "city | count \n Rome | 2")
    assert driver.counts["by day: expired"] == 1
    assert [row["id"] for row in driver.table("date")] == [3, 4]


def test_what_keep_cannot_be_given(orders: ts.Table) -> None:
    given: Any = None
    refused(lambda: orders.keep("soon"), ArgumentError, "is not a duration", operator="orders_keep")
    refused(lambda: orders.keep(given), ArgumentError, "None is not a duration", operator="orders_keep")
    refused(lambda: orders.keep("1 day", by="city"), ArgumentError, "string", "CAST", operator="orders_keep")
    refused(lambda: orders.keep("1 day", by="nothing"), PlanError, "nothing", operator="orders_keep")
    refused(lambda: orders.freeze("1 day", by=given), ArgumentError, "by=None", operator="orders_freeze")
    refused(
        lambda: orders.freeze("soon", by="day"), ArgumentError, "not a duration", operator="orders_freeze"
    )
    refused(
        lambda: orders.keep("1 day").filter("city is not null").materialize(history="1 hour"),
        PlanError,
        "has no history",
        operator="orders_keep_filter_materialized",
    )
    past = orders.materialize(history="1 day")
    refused(
        lambda: past.keep("1 day"),
        PlanError,
        "keep() cannot",
        "materialize()",
        operator="orders_materialized_keep",
    )


def test_a_source_is_kept_as_a_table_is(spark: SparkSession) -> None:
    frame = ts.testing.frame(spark, "id int, city string, changed timestamp")
    table = ts.table(frame, "id", timestamp="changed", keep="30 days", name="orders")
    records = ts.stream(frame, "id", timestamp="changed", name="records").to_table(
        keep="30 days", name="last"
    )
    driver = ts.testing.Driver(
        table.to(ts.to_memory("a"), name="a"), records.to(ts.to_memory("b"), name="b"), shards=1
    )
    for name in ("orders", "records"):
        driver.pipe(name, """
            id | city | changed
            1  | Oslo | 2024-10-25 00:00
            2  | Rome | 2024-11-20 00:00
            3  | Rome | 2024-11-25 00:00
        """)  # fmt: skip
    driver.run()
    assert [[row["id"] for row in driver.table(name)] for name in ("a", "b")] == [[2, 3], [2, 3]]
    with pytest.raises(PlanError, match="versioned"):
        ts.table(frame, "id", timestamp="changed", keep="30 days", history="1 day")
