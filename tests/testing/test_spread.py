"""A spread join in a driver: packers, rounds and the reader of the state are those of a query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import tablestream as ts
from tablestream.errors import PlanChangedError
from tablestream.testing import Driver, frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def joined(spark: SparkSession, spread: int | None) -> ts.Table:
    said: dict[str, Any] = {
        "timestamp": F.timestamp_seconds("at"),
        "except_columns": ["at"],
        "apply_as_deletes": "v is null",
    }
    left = ts.table(frame(spark, "id int, to int, v int, at bigint"), "id", name="left", **said)
    right = ts.table(frame(spark, "id int, v int, at bigint"), "id", name="right", **said)
    return left.join(
        right, on="to", how="left", select=lambda mine, other: [mine.v, other.v.alias("w")], spread=spread
    )


def driven(spark: SparkSession, spread: int | None) -> Driver:
    driver = Driver(joined(spark, spread), shards=8)
    driver.pipe("left", [(one, one % 2, one, one) for one in range(40)])
    driver.pipe("right", [(one, 10 * one, 100) for one in range(3)])
    driver.run()
    driver = driver.restarted()
    driver.pipe("right", [(0, 7, 200), (1, None, 201), (2, 8, 202)])
    driver.pipe("left", [(5, 0, 55, 203), (6, 1, None, 204)])
    driver.run()
    return driver


def test_a_spread_join_gives_the_same_in_a_driver(spark: SparkSession) -> None:
    found = []
    for spread in (None, 3, 100):
        driver = driven(spark, spread)
        changes = sorted(driver.changes(), key=lambda one: one.id)  # of each key in its order
        found.append([(one.id, one.v, one.w, one["_change_type"], one["_timestamp"]) for one in changes])
        assert [(one.id, one.v) for one in driver.state("right")] == [(0, 7), (2, 8)]
    assert len(found[0]) > 40
    assert found[0] == found[1] == found[2]


def test_another_spread_is_another_plan(spark: SparkSession) -> None:
    driver = driven(spark, 3).restarted(joined(spark, 4))
    driver.pipe("right", [(0, 7, 200)])
    with pytest.raises(PlanChangedError, match="spread over 3 shards"):
        driver.run()
