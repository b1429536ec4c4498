"""Queries over small tables give what DuckDB gives over their rows, after each micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pytest

from tests.sql.world import changes, check

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Queries: TypeAlias = "dict[str, str | tuple[str, str]]"
ONE_TABLE: Queries = {
    "all": "SELECT * FROM people",
    "columns": "SELECT id, city FROM people",
    "no key": "SELECT city, age + 1 AS older FROM people",
    "renamed key": "SELECT id AS person, city AS id FROM people",
    "key twice": "SELECT id AS a, id AS b FROM people",
    "another id": "SELECT age AS id FROM people WHERE age > 20",
    "filtered": "SELECT p.id, P.CITY FROM people AS p WHERE p.age >= 30 AND (city = 'Rome' OR boss IS NULL)",
    "case": "SELECT id, CASE WHEN age > 25 THEN 'old' ELSE city END AS kind FROM people",
    "cast": "SELECT id, CAST(age AS BIGINT) * 2 AS n, coalesce(city, 'none') AS c FROM people -- so",
    "in list": "SELECT id FROM people WHERE city IN ('Rome', 'Lima') AND age NOT IN (20)",
    "between": "SELECT id FROM people WHERE age BETWEEN 20 AND 30 AND city LIKE 'R%' OR NOT id = 2",
    "subquery": "SELECT s.n FROM (SELECT id + 1 AS n, age FROM people) s WHERE s.age = 30",
    "with": "WITH a AS (SELECT id, age FROM people), b AS (SELECT age AS x, id FROM a) SELECT x FROM b WHERE id > 1",
    "with names": "WITH a(n, m) AS (SELECT id, age FROM people) SELECT n, m FROM a",
}

JOINS: Queries = {
    "to key": "SELECT p.id, p.city, c.country FROM people p JOIN cities c ON p.city = c.city",
    "left to key": "SELECT p.id, c.city, c.size FROM people p LEFT JOIN cities c ON p.city = c.city",
    "right to key": "SELECT p.id, c.city, p.city AS mine FROM people p RIGHT JOIN cities c ON p.city = c.city",
    "full to key": "SELECT p.id, p.age, c.city, c.size FROM people p FULL JOIN cities c ON p.city = c.city",
    "from key": "SELECT c.city, p.id FROM cities c JOIN people p ON c.city = p.city",
    "left from key": "SELECT c.city, c.size, p.id, p.city AS mine FROM cities c LEFT JOIN people p ON c.city = p.city",
    "right from key": "SELECT c.city, p.id FROM cities c RIGHT JOIN people p ON c.city = p.city",
    "full from key": "SELECT c.city, c.size, p.id FROM cities c FULL OUTER JOIN people p ON c.city = p.city",
    "keys": "SELECT p.id, w.id AS wid, age, wage FROM people p JOIN wages w ON p.id = w.id",
    "left keys": "SELECT p.id, w.id AS wid, age, wage FROM people p LEFT JOIN wages w ON p.id = w.id",
    "right keys": "SELECT p.id, w.id AS wid, age, wage FROM people p RIGHT JOIN wages w ON p.id = w.id",
    "full keys": "SELECT p.id, w.id AS wid, age, wage FROM people p FULL JOIN wages w ON w.id = p.id",
    "using": "SELECT id, age, wage FROM people JOIN wages USING (id)",
    "left using": "SELECT id, age, wage FROM people LEFT JOIN wages USING (id)",
    "right using": "SELECT id, age, wage FROM people RIGHT JOIN wages USING (id)",
    "full using": "SELECT id, age, wage FROM people FULL JOIN wages USING (id)",
    "natural": "SELECT * FROM people NATURAL JOIN wages",
    "star using": "SELECT * FROM people JOIN wages USING (id)",
    "stars": "SELECT p.*, c.country FROM people p JOIN cities c ON p.city = c.city WHERE c.size > 1",
    "self": "SELECT p.id, b.id AS boss, b.age FROM people p JOIN people b ON p.boss = b.id",
    "self left": "SELECT p.id, b.id AS boss, b.age FROM people p LEFT JOIN people b ON p.boss = b.id AND b.age > p.age",
    "comma": "SELECT p.id, c.size FROM people p, cities c WHERE p.city = c.city AND c.size > 1 AND p.age < 40",
    "comma chain": """
        SELECT n.note, p.id, c.country, b.age FROM cities c, people p, notes n, people b
        WHERE n.who = p.id AND c.city = p.city AND b.id = p.boss AND (b.age > p.age OR n.stars = 3)
    """,
    "composite": "SELECT n.note, v.spent FROM notes n JOIN visits v ON v.who = n.who AND v.day = n.stars",
    "left with right condition": "SELECT p.id, c.size FROM people p LEFT JOIN cities c ON p.city = c.city AND c.size > 1",
    "left with left condition": "SELECT p.id, c.size FROM people p LEFT JOIN cities c ON p.city = c.city AND p.age > 20",
    "left with both": "SELECT p.id, c.size FROM people p LEFT JOIN cities c ON p.city = c.city AND p.age > c.size * 10",
    "left then where": "SELECT p.id, c.size FROM people p LEFT JOIN cities c ON p.city = c.city WHERE c.size IS NULL",
    "left then inner": """
        SELECT p.id, c.size, w.wage FROM people p LEFT JOIN cities c ON p.city = c.city JOIN wages w ON w.id = p.id
        WHERE w.wage = 2 AND coalesce(c.size, 0) < 30
    """,
    "left twice": """
        SELECT p.id, c.size, b.age, d.size AS other FROM people p LEFT JOIN people b ON p.boss = b.id
        LEFT JOIN cities c ON p.city = c.city LEFT JOIN cities d ON b.city = d.city
    """,
    "or of ands": """
        SELECT p.id, c.size FROM people p, cities c
        WHERE (p.city = c.city AND c.size = 1 AND p.age = 30) OR (p.city = c.city AND p.age > 30 AND c.size > 1)
    """,
    "on expression": "SELECT n.note, p.age FROM notes n JOIN people p ON n.stars + 1 = p.id",
    "one row": "SELECT p.id, m.most FROM people p CROSS JOIN (SELECT max(size) AS most FROM cities) m",
}
GROUPS: Queries = {
    "by city": "SELECT city, count(*) AS n, sum(age) AS total FROM people GROUP BY city",
    "unnamed": (
        "SELECT city, count(*), sum(age), min(p.id) FROM people p GROUP BY city",
        'SELECT city, count(*) AS "count(1)", sum(age) AS "sum(age)", min(id) AS "min(id)" FROM people GROUP BY city',
    ),
    "by ordinal": "SELECT age + 1, city, max(paid) AS m FROM people GROUP BY 1, 2",
    "by alias": "SELECT upper(city) AS big, count(id) AS n FROM people GROUP BY big",
    "not selected": "SELECT count(*) AS n FROM people GROUP BY city",
    "expression of aggregates": "SELECT city, sum(age) / count(*) + 1 AS a, max(age) - min(age) AS d FROM people GROUP BY city",
    "expression of groups": "SELECT age * 2 + 1 AS x, count(*) AS n FROM people GROUP BY age * 2",
    "having": "SELECT city, count(*) AS n FROM people GROUP BY city HAVING count(*) > 1 AND max(age) >= 30",
    "having alias": "SELECT city, count(*) AS n FROM people GROUP BY city HAVING n = 1",
    "distinct": "SELECT count(DISTINCT city) AS n, count(DISTINCT age) AS m FROM people",
    "count of columns": (
        "SELECT city, count(paid) AS n, count(DISTINCT age, boss) AS d FROM people GROUP BY city",
        """
        SELECT city, count(paid) AS n, count(DISTINCT (age, boss)) FILTER (age IS NOT NULL AND boss IS NOT NULL) AS d
        FROM people GROUP BY city
        """,
    ),
    "filter": """
        SELECT city, count(*) FILTER (WHERE age > 20) AS n, sum(paid) FILTER (WHERE boss IS NOT NULL) AS s FROM people
        GROUP BY city
    """,
    "global": "SELECT count(*) AS n, sum(paid) AS s, avg(age) AS a FROM people",
    "global of few": "SELECT count(*) AS n, sum(age) + 1 AS s FROM people WHERE age > 100",
    "select distinct": "SELECT DISTINCT city, age FROM people",
    "distinct expression": "SELECT DISTINCT age > 20 AS old FROM people",
    "join then group": """
        SELECT c.country, count(*) AS n, sum(p.paid) AS s FROM people p JOIN cities c ON p.city = c.city GROUP BY c.country
    """,
    "group then join": """
        SELECT c.city, g.n FROM cities c LEFT JOIN (SELECT city, count(*) AS n FROM people GROUP BY city) g ON g.city = c.city
    """,
    "group of group": """
        SELECT n, count(*) AS cities FROM (SELECT city, count(*) AS n FROM people GROUP BY city) GROUP BY n
    """,
    "views": """
        WITH rich AS (SELECT id, city FROM people WHERE paid > 10), each AS (SELECT city, count(*) AS n FROM rich GROUP BY city)
        SELECT r.id, e.n FROM rich r JOIN each e ON r.city = e.city
    """,
    "statistics": """
        SELECT place, stddev(spent) AS a, var_pop(spent) AS b, median(spent) AS c, min_by(day, spent) IS NULL AS d,
            bool_or(spent > 2) AS e FROM visits GROUP BY place
    """,
}


def parts(queries: Queries) -> list[Queries]:
    """A few queries each: a driver of all would be slow."""
    names = sorted(queries)
    return [{name: queries[name] for name in names[at : at + 8]} for at in range(0, len(names), 8)]


@pytest.mark.parametrize("queries", parts(ONE_TABLE))
def test_queries_of_one_table(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(1))


@pytest.mark.parametrize("queries", parts(JOINS))
def test_joins(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(2))


@pytest.mark.parametrize("queries", parts(GROUPS))
def test_groups(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(3))
