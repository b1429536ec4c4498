"""PIVOT and UNPIVOT have the columns and the rows that Spark computes of all rows at once, after each micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import tablestream as ts
from tests.sql.world import changes, check_as_spark, tables_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PEOPLE = "FROM (SELECT city, boss, age, paid FROM people)"
PIVOTS = {
    "one": f"SELECT * {PEOPLE} PIVOT (sum(age) AS total FOR boss IN (1, 2 AS two, NULL))",
    "several": f"""
        SELECT * {PEOPLE} PIVOT (sum(age), max(age) AS m, avg(paid) FILTER (WHERE age > 20) AS mean
        FOR city IN ('Rome', 'Oslo' AS o))
    """,
    "counts": f"SELECT * {PEOPLE} PIVOT (count(paid) AS n, count(*) AS rows FOR boss IN (1, 2))",
    "counts of pairs": f"SELECT * {PEOPLE} PIVOT (regr_count(age, paid) FOR boss IN (1, 2))",
    "counts beside texts": f"""
        SELECT `1_n` AS n, `2_n`, `1_least`, sort_array(`2_ages`) AS ages
        {PEOPLE} PIVOT (count(paid) AS n, min(city) AS least, collect_set(age) AS ages FOR boss IN (1, 2))
    """,
    "distinct": f"""
        SELECT * {PEOPLE} PIVOT (sum(DISTINCT age) AS s, count(DISTINCT paid) FOR boss IN (1L AS x, 3))
    """,
    "columns": f"""
        SELECT * {PEOPLE} PIVOT (max(paid) AS m, min(paid)
        FOR (city, boss) IN (('Rome', 1) AS r, ('Oslo', NULL), (NULL, 2)))
    """,
    "all rows": "SELECT * FROM (SELECT boss, age FROM people) PIVOT (sum(age) FOR boss IN (1, 2))",
    "counts of all rows": """
        SELECT `1_n`, `-2_n`, `1_m`, sort_array(`1_l`) AS a, size(`-2_l`) AS b
        FROM (SELECT boss, city, age FROM people)
        PIVOT (count(city) AS n, max(city) AS m, collect_list(age) AS l FOR boss IN (1, -2))
    """,
    "a table": "SELECT id, `20`, `30` FROM people PIVOT (max(boss) FOR age IN (20, 30)) WHERE `20` > 1 OR id > 2",
    "by floats": "SELECT * FROM visits PIVOT (max(day) FOR spent IN (1.5BD AS a, 3 AS b, -2 AS c, 2.25D AS d))",
    "an alias": "SELECT p.city, p.boss, `30` + 1 AS n FROM people p PIVOT (sum(id) FOR age IN (30)) WHERE paid > 1",
    "then joined": """
        SELECT city, country, a FROM (SELECT city, age, boss FROM people) PIVOT (sum(age) FOR boss IN (1 AS a))
        JOIN cities USING (city)
    """,
    "of a pivot": f"""
        SELECT * {PEOPLE} PIVOT (sum(age) AS s, max(paid) AS m FOR boss IN (1 AS x, 2 AS y))
        UNPIVOT ((s, m) FOR boss IN ((x_s, x_m) AS one, (y_s, y_m)))
    """,
}
UNPIVOTS = {
    "one": "SELECT * FROM people UNPIVOT (number FOR what IN (age, boss AS chief))",
    "with nulls": "SELECT * FROM people UNPIVOT INCLUDE NULLS (number FOR what IN (AGE, boss, id)) AS u",
    "of unlike types": "SELECT u.what, u.number FROM people UNPIVOT EXCLUDE NULLS (number FOR what IN (age, paid)) u",
    "rows": "SELECT * FROM (SELECT id, boss, age FROM people) UNPIVOT ((a, b) FOR w IN ((age, boss), (boss, id) AS x))",
    "floats": """
        SELECT * FROM (SELECT id, age, 16777217 AS large, CAST(boss AS FLOAT) AS f FROM people)
        UNPIVOT ((v, w) FOR k IN ((age, large), (f, f)))
    """,
    "texts": "SELECT v, count(*) AS n FROM cities UNPIVOT (v FOR k IN (city, country)) GROUP BY v",
}
REFUSED = {
    "SELECT * FROM people PIVOT (first(age) FOR boss IN (1))": "The aggregate first is not maintained in this form.",
    "SELECT * FROM people PIVOT (sum(age) FOR paid IN (1.5))": "This value has no name.",
    "SELECT * FROM people PIVOT (sum(age) FOR boss IN (1, 1 AS a))": "It has this value twice.",
    "SELECT * FROM people PIVOT (sum(age) FOR boss IN (id))": "A value has to be a constant for each column",
    "SELECT * FROM people PIVOT (sum(age) FOR (boss, city) IN (1))": "A value has to be a constant for each column",
    "SELECT * FROM visits PIVOT (count(*) FOR spent IN (-double('NaN') AS x))": "Spark finds no row by NaN",
    "SELECT * FROM people PIVOT (sum(age) FOR boss IN ('x'))": "It is no value of boss: [CAST_INVALID_INPUT]",
    "SELECT * FROM people PIVOT (upper(city) FOR boss IN (1))": "It computes something else than an aggregate.",
    "SELECT * FROM people PIVOT (sum(age) FOR nope IN (1))": "There is no column nope.",
    "SELECT * FROM people PIVOT (sum(age) FOR boss IN (SELECT 1))": "It is maintained in Spark's form",
    "SELECT * FROM people p JOIN wages PIVOT (sum(age) FOR boss IN (1))": "Whether the join is meant",
    "SELECT * FROM people p, wages PIVOT (sum(age) FOR boss IN (1))": "Whether the join is meant",
    "SELECT * FROM people UNPIVOT (v FOR k IN (age, city))": "Its columns age, city have no common type.",
    "SELECT * FROM people UNPIVOT ((v, w) FOR k IN (age, boss))": "It needs a name of its own for each column",
    "SELECT * FROM people UNPIVOT (v FOR v IN (age, boss))": "It needs a name of its own for each column",
}


@pytest.mark.parametrize("queries", [PIVOTS, UNPIVOTS], ids=["pivot", "unpivot"])
def test_pivots_give_what_batch_spark_gives(spark: SparkSession, queries: dict[str, str]) -> None:
    check_as_spark(spark, queries, changes(7, 3))


@pytest.mark.parametrize("query", REFUSED)
def test_what_is_no_pivot_is_refused(spark: SparkSession, query: str) -> None:
    with pytest.raises(ts.errors.SqlRefusedError) as refused:
        ts.sql(query, **tables_of(spark))
    assert REFUSED[query] in str(refused.value)
