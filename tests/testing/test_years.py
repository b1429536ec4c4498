"""Times that Python does not have come as texts: years before 1 and after 9999, and the edges in some zones."""

from __future__ import annotations

import os
import time
from datetime import date, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import tablestream as ts
from tablestream.base.time_zones import rows_of
from tablestream.connectors.memory.collected import TimeText, collected
from tablestream.connectors.memory.sink import sortable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

YEARS = ("-0044-03-15", "0001-01-01", "2024-01-02", "9999-12-31", "+12024-01-02")


@pytest.fixture(params=["UTC", "America/New_York", "Asia/Tokyo"])
def zone(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    """Let session and process be in a zone."""
    before = spark.conf.get("spark.sql.session.timeZone"), os.environ["TZ"]
    try:
        spark.conf.set("spark.sql.session.timeZone", request.param)
        os.environ["TZ"] = request.param
        time.tzset()
        yield request.param
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before[0]))
        os.environ["TZ"] = before[1]
        time.tzset()


def test_a_driver_shows_times_of_all_years_in_keys_and_values_and_nested(
    spark: SparkSession, zone: str
) -> None:
    """One table has all of them: dates, timestamps with and without a zone, in arrays, structs and maps."""
    columns = "day date, at timestamp, local timestamp_ntz"
    rows = ts.table(ts.testing.frame(spark, f"{columns}, n int"), ["day", "at", "local"], name="rows")
    nested = {
        "many": "array(at, local)", "parts": "named_struct('day', day, 'deep', array(named_struct('at', at)))",
        "by": "map(day, at)", "n": "n",
    }  # fmt: skip
    counted = rows.with_columns(**nested).group_by("day", "at", "local").count()
    driver = ts.testing.Driver(rows.with_columns(**nested), counted)
    driver.pipe("rows", [{"day": one, "at": one, "local": one, "n": n} for n, one in enumerate(YEARS)])
    changes = driver.run()
    assert [row.n for row in changes] == [0, 1, 2, 3, 4]
    assert [str(row.day) for row in changes] == list(YEARS)
    last = changes[4]
    assert last.at == last.local == last.many[0] == "+12024-01-02 00:00:00"
    assert (last.parts.day, last.parts.deep[0].at, last.by) == (YEARS[4], last.at, {YEARS[4]: last.at})
    assert isinstance(last.at, TimeText)
    usual = changes[2]
    assert (usual.day, usual.at, usual.many[1]) == (
        date(2024, 1, 2),
        datetime(2024, 1, 2),
        datetime(2024, 1, 2),
    )
    assert str(changes).count("+12024-01-02") == 3 + 2 + 2 + 1  # JSON has the days of a key
    assert [str(row.day) for row in driver.table()] == list(YEARS), zone
    assert [row["count"] for row in driver.table("rows_select_agg")] == [1] * 5
    ts.testing.assert_changes_equal(driver.table("rows_select_agg"), driver.table("rows_select_agg"))


def test_a_driver_tells_hours_apart_that_clocks_show_twice(spark: SparkSession, zone: str) -> None:
    rows = ts.table(ts.testing.frame(spark, "at timestamp, n int"), "at", name="rows")
    driver = ts.testing.Driver(rows)
    driver.pipe("rows", [{"at": f"2024-11-03T0{hour}:30:00Z", "n": hour} for hour in (5, 6)])  # in New York
    driver.run()
    assert sorted(row.n for row in driver.table()) == [5, 6], zone


def test_times_that_python_lacks_sort_before_and_after_all_others() -> None:
    before, after = TimeText.of("-0044-03-15", -735_900), TimeText.of("+12024-01-02", 3_672_000)
    later = TimeText.of("+12025-01-02", 3_672_366)
    given = [later, date(1, 1, 1), None, after, float("nan"), before, date(9999, 12, 31)]
    assert [str(one) for one in sorted(given, key=sortable)] == [
        "None", "-0044-03-15", "0001-01-01", "9999-12-31", "+12024-01-02", "+12025-01-02", "nan",
    ]  # fmt: skip


def test_rows_of_arrow_have_texts_for_such_times() -> None:
    days = pa.array([19_724, 3_672_000], pa.int32()).cast(pa.date32())
    table = pa.table(
        {
            "day": days,
            "many": pa.array([[0], [317_257_056_000_000_000]], pa.list_(pa.timestamp("us"))),
            "n": [1, 2],
        }
    )
    first, second = rows_of(table)
    assert first == {"day": date(2024, 1, 2), "many": [datetime(1970, 1, 1)], "n": 1}
    assert second == {"day": "12023-08-06", "many": ["12023-06-23 16:00:00.000000"], "n": 2}


def test_null_and_plain_rows_are_collected_as_spark_does(spark: SparkSession) -> None:
    frame = spark.sql(
        "SELECT DATE'+12024-01-02' AS day, CAST(NULL AS timestamp) AS at, map(1, 'a') AS by, X'00' AS raw,"
        " CAST(NULL AS struct<at: timestamp>) AS inner"
    )
    (row,) = collected(frame)
    assert row.asDict() == {"day": "+12024-01-02", "at": None, "by": {1: "a"}, "raw": b"\x00", "inner": None}
