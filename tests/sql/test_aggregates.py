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
PAIRS = """
    covar_pop({y}, {x}) AS a, covar_samp({y}, {x}) AS b, regr_count({y}, {x}) AS c, regr_avgx({y}, {x}) AS d,
    regr_avgy({y}, {x}) AS e, regr_sxx({y}, {x}) AS f, regr_syy({y}, {x}) AS g, regr_sxy({y}, {x}) AS h,
    regr_slope({y}, {x}) AS i, regr_intercept({y}, {x}) AS j, regr_r2({y}, {x}) AS k
"""
GROUPS = {
    "pairs": f"SELECT city, {PAIRS.format(y='age', x='boss')} FROM people GROUP BY city",
    "pairs of decimals": f"SELECT boss, {PAIRS.format(y='paid', x='age + 1')} FROM people GROUP BY boss",
    "pairs of floats": f"SELECT who, {PAIRS.format(y='spent', x='day')} FROM visits GROUP BY who",
    "filtered": """
        SELECT boss, covar_pop(age, id) FILTER (WHERE paid > 1) AS a, regr_slope(age, id) + 1 AS b FROM people
        GROUP BY boss
    """,
    "all rows": "SELECT corr(id, id * 2) AS a, skewness(id) AS b, kurtosis(id) AS c FROM people",
    "shape": """
        SELECT boss, skewness(age) AS a, kurtosis(paid) AS b, skewness(id * 1.5D) AS c, kurtosis(id) AS d FROM people
        GROUP BY boss
    """,
    "bits": """
        SELECT city, bit_and(age) AS a, bit_or(-boss) AS b, bit_xor(CAST(id - 3 AS TINYINT)) AS c,
            bit_xor(boss * 5000000000) AS d, bit_and(DISTINCT boss) AS e FROM people GROUP BY city
    """,
    "no rows": """
        SELECT regr_count(age, id) AS a, count_if(age > 1) AS b, approx_count_distinct(age) AS c, bit_or(age) AS d
        FROM people WHERE age > 100
    """,
    "others": "SELECT city, count_if(age > 20) AS a, approx_count_distinct(age) AS b FROM people GROUP BY city",
    "over": """
        SELECT id, regr_slope(age, id) OVER (PARTITION BY city) AS a, bit_xor(id) OVER (ORDER BY id) AS b,
            kurtosis(age) OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING) AS c FROM people
    """,
}


def test_aggregates_of_groups_give_what_batch_spark_gives(spark: SparkSession) -> None:
    check_as_spark(spark, GROUPS, changes(9, 4))


def test_aggregates_over_windows_give_what_batch_spark_gives(spark: SparkSession) -> None:
    check_as_spark(spark, WINDOWS, changes(8, 3))
