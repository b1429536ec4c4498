"""Aggregates, of groups and of windows, have the values that Spark computes of all rows at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sql.world import changes, check_as_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOWS = {
    "spread": """
        SELECT id, stddev(age) OVER (PARTITION BY city) AS a, var_pop(paid) OVER (PARTITION BY city ORDER BY id) AS b,
            stddev_pop(age) OVER (ORDER BY age, id ROWS 2 PRECEDING) AS c, variance(age) OVER (ORDER BY age) AS d
        FROM people
    """,
    "middle": """
        SELECT id, median(age) OVER (PARTITION BY boss) AS a, percentile(age, 0.3) OVER (PARTITION BY city) AS b,
            percentile_cont(0.25) WITHIN GROUP (ORDER BY age) OVER (PARTITION BY city) AS c FROM people
    """,
    "others": """
        SELECT id, max_by(age, id) OVER (ORDER BY id ROWS BETWEEN 2 FOLLOWING AND 3 FOLLOWING) AS a,
            min_by(city, id) OVER (PARTITION BY boss ORDER BY id) AS b, mode(id % 1) OVER (PARTITION BY city) AS c,
            every(age > 20) OVER (PARTITION BY city ORDER BY id) AS d, any(boss = 2) OVER (ORDER BY age) AS e
        FROM people
    """,
    "lists": """
        SELECT id, collect_list(age) OVER (PARTITION BY city ORDER BY id) AS a, array_agg(boss) OVER (ORDER BY id ROWS 1
            PRECEDING) AS b, sort_array(collect_set(age) OVER (PARTITION BY boss)) AS c, size(collect_list(city) OVER (
            ORDER BY id ROWS BETWEEN 3 FOLLOWING AND 4 FOLLOWING)) AS d FROM people
    """,
    "of groups": """
        SELECT city, stddev(count(*)) OVER (ORDER BY city) AS a, median(sum(age)) OVER () AS b FROM people GROUP BY city
    """,
}


def test_aggregates_over_windows_give_what_batch_spark_gives(spark: SparkSession) -> None:
    check_as_spark(spark, WINDOWS, changes(8, 3))
