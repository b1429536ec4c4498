"""Queries over small tables give what DuckDB gives over their rows, after each micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

import tablestream as ts
from tablestream.sql import subqueries
from tests.marks import quick_first
from tests.sql.world import changes, check, tables_of

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
    "literals": (
        "SELECT id, 1L + 1.5BD AS a, 'it''s' AS b, transform(array(age), v -> v + id)[0] AS c FROM people -- all",
        "SELECT id, 2.5 AS a, 'it''s' AS b, age + id AS c FROM people",
    ),
    "function exists": (
        "SELECT id FROM people WHERE exists(array(age, id), v -> v = 3)",
        "SELECT id FROM people WHERE age = 3 OR id = 3",
    ),
    "quoted": (
        "SELECT q.`a b`, q.`c.d` FROM (SELECT id AS `a b`, city AS `c.d` FROM people) q WHERE q.`a b` > 1",
        """SELECT id AS "a b", city AS "c.d" FROM people WHERE id > 1""",
    ),
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
    "one key twice": """
        SELECT p.id, w.id AS wid, w.wage FROM people p FULL JOIN wages w ON p.boss = w.id AND p.id = w.id
        """,
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
    "right with two equalities": "SELECT w.wage, n.note FROM notes n RIGHT JOIN wages w ON n.who = w.id AND n.stars = w.wage",
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
    "rollup": "SELECT city, boss, count(*) AS n, sum(age) AS s FROM people GROUP BY ROLLUP (city, boss)",
    "sets": (
        """
        SELECT city AS c, age + 1 AS older, count(*) AS n, grouping(city) AS g, grouping_id() AS i FROM people
        GROUP BY GROUPING SETS ((city), (city, age + 1), ()) HAVING count(*) > 1
        """,
        """
        SELECT city AS c, age + 1 AS older, count(*) AS n, grouping(city) AS g, grouping(city, age + 1) AS i FROM people
        GROUP BY GROUPING SETS ((city), (city, age + 1), ()) HAVING count(*) > 1
        """,
    ),
    "cube": """
        SELECT p.city, c.country, max(p.age) AS m, p.boss FROM people p LEFT JOIN cities c ON p.city = c.city
        GROUP BY p.boss, CUBE (p.city, country)
        """,
    "named as the sets": """
        SELECT city AS grouping_set, boss AS grouped_by, max(age) AS m FROM people GROUP BY CUBE (city, boss) HAVING count(*) > 0
        """,
    "with rollup": (
        "SELECT age, sum(age) AS s FROM people GROUP BY age WITH ROLLUP",
        "SELECT age, sum(age) AS s FROM people GROUP BY ROLLUP (age)",
    ),
    "having alias": "SELECT city, count(*) AS n FROM people GROUP BY city HAVING n = 1",
    "distinct": "SELECT count(DISTINCT city) AS n, count(DISTINCT age) AS m FROM people",
    "sums of distinct": """
        SELECT boss, sum(DISTINCT age) AS a, avg(DISTINCT age) AS b, sum(DISTINCT paid) FILTER (WHERE age > 20) AS c,
            avg(DISTINCT age) + sum(DISTINCT age) AS d FROM people GROUP BY boss
    """,
    "sums of distinct in all rows": "SELECT sum(DISTINCT age) AS a, count(*) AS n FROM people WHERE age < 30",
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
    "percentile within": (
        "SELECT place, percentile_cont(0.25) WITHIN GROUP (ORDER BY spent) AS p FROM visits GROUP BY place",
        "SELECT place, quantile_cont(spent, 0.25) AS p FROM visits GROUP BY place",
    ),
    "statistics": """
        SELECT place, stddev(spent) AS a, var_pop(spent) AS b, median(spent) AS c, min_by(day, spent) IS NULL AS d,
            bool_or(spent > 2) AS e FROM visits GROUP BY place
    """,
}

UNEQUAL: Queries = {
    "in on": """
        SELECT p.id, n.note FROM people p JOIN notes n ON n.who = p.id
        AND n.stars = (SELECT max(m.stars) FROM notes m WHERE m.who = p.id) LEFT JOIN cities c ON c.city = p.city
    """,
    "value": """
        SELECT id, (SELECT max(day) FROM visits v WHERE v.who = p.id AND v.day * 10 < p.age) AS d,
            (SELECT count(*) + 1 FROM visits v WHERE v.who = p.id AND v.day * 10 < p.age) AS n FROM people p
    """,
    "value of nothing equal": "SELECT note, (SELECT sum(wage) FROM wages WHERE wage < stars) AS s FROM notes",
    "value by null": """
        SELECT city, (SELECT count(*) FROM visits v WHERE v.place IS NOT DISTINCT FROM g.city AND v.day >= g.n) AS m
        FROM (SELECT city, count(*) AS n FROM people GROUP BY city) g
    """,
    "value in where": """
        SELECT note FROM notes n WHERE n.stars = (SELECT max(m.stars) FROM notes m WHERE m.who = n.who AND m.note <= n.note)
    """,
    "value in having": """
        SELECT city, count(*) AS n FROM people p GROUP BY city
        HAVING count(*) > (SELECT count(*) FROM cities c WHERE c.city < p.city)
    """,
    "row": "SELECT id, (SELECT q.city FROM people q WHERE q.id = p.boss AND q.age > p.age) AS c FROM people p",
    "first row": """
        SELECT id, (SELECT note FROM notes n WHERE n.who = p.id ORDER BY stars DESC, n.note LIMIT 1) AS best,
            (SELECT day AS d FROM visits v WHERE v.who = p.boss AND v.day < p.id ORDER BY d DESC LIMIT 1) AS day FROM people p
    """,
    "first row of all": "SELECT id FROM people WHERE city < (SELECT city FROM cities ORDER BY city DESC LIMIT 1)",
    "row of the same names": """
        SELECT id, (SELECT age FROM people WHERE people.id = p.boss AND age > p.age) AS older FROM people p
    """,
    "exists or": """
        SELECT id FROM people p WHERE age = 20 OR EXISTS (SELECT 1 FROM visits v WHERE v.who = p.id AND v.day > p.boss)
    """,
    "exists as a column": """
        SELECT id, EXISTS (SELECT 1 FROM visits v WHERE v.who = p.boss AND v.day * 10 < p.age) AS there,
            CASE WHEN NOT EXISTS (SELECT 1 FROM notes n WHERE n.who < p.boss) THEN 1 ELSE 2 END AS kind FROM people p
    """,
    "in": "SELECT note FROM notes n WHERE who IN (SELECT who FROM visits v WHERE v.day < n.stars)",
    "in as a column": "SELECT note, who IN (SELECT who FROM visits v WHERE v.day < n.stars) AS there FROM notes n",
    "not in": "SELECT id FROM people p WHERE boss NOT IN (SELECT who FROM notes n WHERE n.stars < p.id)",
    "not in of equal": "SELECT id FROM people p WHERE boss NOT IN (SELECT stars FROM notes n WHERE n.who = p.id AND note < city)",
    "in a case": "SELECT id, CASE WHEN age / 10 IN (SELECT stars FROM notes) THEN 'a' ELSE 'b' END AS kind FROM people",
}
#: `EXISTS` with more than equalities, by the rounds that it takes.
EXISTS: dict[str, Queries] = {
    "4": {
        "unequal": "SELECT id FROM people p WHERE EXISTS (SELECT 1 FROM people o WHERE o.city = p.city AND o.id <> p.id)",
        "none at least": """
            SELECT id FROM people p WHERE NOT EXISTS (SELECT 1 FROM visits v WHERE p.boss <= v.who AND v.place = p.city)
        """,
        "of another type": """
            SELECT id FROM people p WHERE EXISTS (SELECT 1 FROM visits v WHERE v.who = p.boss AND v.spent < p.age - 28)
        """,
    },
    "3": {
        "by the whole key": """
            SELECT note FROM notes n
            WHERE NOT EXISTS (SELECT 1 FROM people p WHERE p.id = n.who AND p.age > n.stars * 10 AND p.boss <> n.stars)
        """,
        "by more than the whole key": """
            SELECT note FROM notes n WHERE EXISTS (SELECT 1 FROM people p WHERE p.id = n.who AND p.boss = n.stars)
        """,
        "by more than the whole key, and a comparison": """
            SELECT note FROM notes n
            WHERE NOT EXISTS (SELECT 1 FROM people p WHERE p.id = n.who AND p.boss IS NOT DISTINCT FROM n.stars - 1 AND p.age > n.stars * 10)
        """,
    },
    "5": {
        "two comparisons": """
            SELECT id FROM people p
            WHERE EXISTS (SELECT 1 FROM visits v WHERE v.who = p.boss AND v.day < p.id AND v.day + 2 > p.id)
        """,
        "an expression": """
            SELECT id FROM people p WHERE EXISTS (SELECT 1 FROM visits v WHERE v.who = p.boss AND v.spent + 28 < p.age)
        """,
    },
}
_NOTES = "SELECT id FROM people p WHERE {} (SELECT 1 FROM notes n WHERE n.who = p.id AND {})"
_TEXTS = "SELECT who, CASE WHEN who = 9 THEN note ELSE cast(stars * 10 AS string) END AS stars FROM notes"
_NUMBERS = "SELECT who, stars * 10 AS stars FROM notes"
_FLOATS = "SELECT who, CASE stars WHEN 3 THEN cast('NaN' AS double) ELSE stars END AS d FROM notes"
_FOUND = "SELECT id, EXISTS (SELECT 1 FROM ({}) n WHERE n.who = p.id AND {}) AS r FROM people p"
_SEMI = (
    "SELECT p.id FROM people p SEMI JOIN (SELECT id, city, {} AS a FROM people) o ON o.city = p.city AND {}"
)
#: Comparisons with any row of a subquery: no value may be computed for rows that do not meet, such as notes of 9, who
#: is nobody, and person 4, who has no notes.
WITH_ANY_ROW: Queries = {
    "a value that fails": (
        _NOTES.format("EXISTS", "p.age > 100 div (9 - n.who)"),
        _NOTES.format("EXISTS", "p.age > 100 // (9 - n.who)"),
    ),
    "none with a value that fails": (
        _NOTES.format("NOT EXISTS", "100 div (9 - n.who) < p.age"),
        _NOTES.format("NOT EXISTS", "100 // (9 - n.who) < p.age"),
    ),
    "a cast that fails": (
        f"SELECT id FROM people p WHERE EXISTS (SELECT 1 FROM ({_TEXTS}) n WHERE n.who = p.id AND p.age <= int(stars))",
        f"SELECT id FROM people p WHERE EXISTS (SELECT 1 FROM ({_NUMBERS}) n WHERE n.who = p.id AND p.age <= stars)",
    ),
    "a text and a number": (_FOUND.format(_TEXTS, "p.age <= n.stars"), _FOUND.format(_NUMBERS, "p.age <= n.stars")),
    "a text's order is none of numbers": (
        """
        SELECT id, EXISTS (SELECT 1 FROM (SELECT string(12 - stars) AS t FROM notes) n WHERE (p.id + 1) % 2 + 9 < n.t) AS r
        FROM people p
        """,
        "SELECT id, EXISTS (SELECT 1 FROM notes n WHERE (p.id + 1) % 2 + 9 < 12 - n.stars) AS r FROM people p",
    ),
    "a row whose value fails": (
        """
        SELECT id, EXISTS (
            SELECT 1 FROM people o WHERE o.id = p.boss AND o.age = nullif(p.age, 20) AND p.id > 5 div (o.age - 20)
        ) AS r FROM people p
        """,
        """
        SELECT id, EXISTS (
            SELECT 1 FROM people o WHERE o.id = p.boss AND o.age = nullif(p.age, 20) AND p.id > 5 // nullif(o.age - 20, 0)
        ) AS r FROM people p
        """,
    ),
    "nothing to compare with": _NOTES.format("EXISTS", "n.stars > 10 / (p.id - 4)"),
    "nothing but null": _NOTES.format("NOT EXISTS", "n.stars <> 10 / (p.id - 4)"),
    "any of nothing": (
        "SELECT id, 10 / (id - 4) < ANY (SELECT stars FROM notes n WHERE n.who = p.id) AS r FROM people p",
        "SELECT id, id <> 4 AND 10 / (id - 4) < ANY (SELECT stars FROM notes n WHERE n.who = p.id) AS r FROM people p",
    ),
    "more than NaN": _FOUND.format(_FLOATS, "n.d > p.age / 10"),
    "other than NaN": _FOUND.format(_FLOATS, "n.d <> (CASE p.age WHEN 20 THEN cast('NaN' AS double) ELSE 1 END)"),
    "less than NaN": _FOUND.format(_FLOATS, "n.d < (CASE p.age WHEN 20 THEN cast('NaN' AS double) ELSE 1 END)"),
    "texts": _FOUND.format("SELECT who, note FROM notes", "n.note < lower(p.city)"),
    "dates and times": (
        _FOUND.format("SELECT who, date'2024-01-01' + stars AS d FROM notes", "n.d > timestamp'2024-01-02 09:00:00'"),
        _FOUND.format("SELECT who, stars FROM notes", "n.stars > 1 AND p.id > 0"),
    ),
    "arrays": (_SEMI.format("array(age)", "o.a <> array(p.age)"), _SEMI.format("[age]", "o.a <> [p.age]")),
    "binary": (
        _SEMI.format("binary(string(age))", "o.a < binary(string(p.age))"),
        _SEMI.format("cast(age AS varchar)", "o.a < cast(p.age AS varchar)"),
    ),
    "a collation": (
        _NOTES.format("EXISTS", "p.city COLLATE UTF8_LCASE > n.note COLLATE UTF8_LCASE"),
        _NOTES.format("EXISTS", "lower(p.city) > n.note"),
    ),
    "months": (
        _SEMI.format("age", "make_ym_interval(0, o.a) < make_ym_interval(0, p.age)"),
        _SEMI.format("age", "o.a < p.age"),
    ),
    "rows with other names": (
        _NOTES.format("EXISTS", "(p.id, coalesce(p.age, 0)) < (n.who, coalesce(n.stars, 0) * 10)"),
        _NOTES.format("EXISTS", "coalesce(p.age, 0) < coalesce(n.stars, 0) * 10"),
    ),
    "structs with other names": (
        _SEMI.format("struct(id AS b)", "o.a <> struct(p.id AS c)"),
        _SEMI.format("id", "o.a <> p.id"),
    ),
}  # fmt: skip
#: `NOT IN` of rows, as the standard has it; DuckDB takes null in a row for equal to null.
ROWS_NOT_IN: Queries = {
    name: (
        f"SELECT id FROM people p WHERE (boss, age / 10) NOT IN (SELECT who, stars FROM notes n{where})",
        f"""
            SELECT id FROM people p WHERE NOT EXISTS (
                SELECT 1 FROM (SELECT who, stars FROM notes n{where}) n
                WHERE coalesce(p.boss = n.who, true) AND coalesce(p.age / 10 = n.stars, true)
            )
        """,
    )
    for name, where in {
        "all": "",
        "correlated": " WHERE n.note < p.city",
        "no rows": " WHERE n.stars > 9",
    }.items()
}
ROWS_NOT_IN["of one row"] = (
    "SELECT note FROM notes n WHERE (who, stars) NOT IN (SELECT boss, age / 10 FROM people p WHERE p.id = n.stars)",
    """
        SELECT note FROM notes n WHERE NOT EXISTS (
            SELECT 1 FROM people p
            WHERE p.id = n.stars AND coalesce(p.boss = n.who, true) AND coalesce(p.age / 10 = n.stars, true)
        )
    """,
)
ROWS_NOT_IN["column"] = (
    "SELECT note, (who, stars) IN (SELECT boss, id FROM people) AS there FROM notes",
    """
        SELECT note, CASE WHEN EXISTS (SELECT 1 FROM people WHERE boss = who AND id = stars) THEN true
            WHEN EXISTS (SELECT 1 FROM people WHERE coalesce(boss = who, true) AND coalesce(id = stars, true)) THEN NULL
            ELSE false END AS there FROM notes
    """,
)

MANY_TO_MANY: Queries = {
    "many": "SELECT n.note, v.spent, v.day FROM notes n JOIN visits v ON n.who = v.who",
    "many left": "SELECT n.note, v.who, v.day FROM notes n LEFT JOIN visits v ON n.who = v.who AND v.spent > n.stars",
    "many right": "SELECT n.note, n.who AS mine, v.who, v.day FROM notes n RIGHT JOIN visits v ON n.who = v.who",
    "many full": "SELECT n.note, n.stars, v.who, v.day FROM notes n FULL JOIN visits v ON n.stars = v.day",
    "many where": "SELECT p.id, q.id AS other FROM people p JOIN people q ON p.city = q.city AND p.id < q.id",
    "many guard": "SELECT n.note, v.day FROM notes n LEFT JOIN visits v ON n.who = v.who AND n.stars > 1",
    "one with condition": "SELECT c.city, p.id FROM cities c LEFT JOIN people p ON c.city = p.city AND p.age > c.size",
    "names of keys that meet": """
        SELECT v.who, n.stars, count(*) AS n FROM notes n LEFT JOIN visits u ON n.note = u.place AND u.who > n.who
        FULL JOIN notes m ON u.place = m.note JOIN visits v ON n.who = v.who GROUP BY v.who, n.stars
    """,
    "full where": "SELECT p.id, c.city FROM people p FULL JOIN cities c ON p.city = c.city AND p.age > c.size",
    "null finds null": "SELECT n.note, v.day FROM notes n JOIN visits v ON n.who IS NOT DISTINCT FROM v.who",
    "null finds null by places": """
        SELECT p.id, q.id AS other FROM people p LEFT JOIN people q ON p.city IS NOT DISTINCT FROM q.city AND p.age = q.age
    """,
    "null finds null on both sides": """
        SELECT p.city, p.n, q.place, q.n AS m FROM (SELECT city, count(*) AS n FROM people GROUP BY city) p
        FULL JOIN (SELECT place, count(*) AS n FROM visits GROUP BY place) q ON p.city IS NOT DISTINCT FROM q.place
    """,
    "null finds null in other words": """
        SELECT p.id, q.id AS other FROM people p LEFT JOIN people q
        ON ((q.city IS NULL) AND p.city IS NULL OR p.city = q.city) AND NOT (p.age IS DISTINCT FROM q.age)
    """,
    "null finds null where": (
        "SELECT p.id, w.wage FROM people p, wages w WHERE equal_null(p.boss, w.wage)",
        "SELECT p.id, w.wage FROM people p, wages w WHERE p.boss IS NOT DISTINCT FROM w.wage",
    ),
    "zero for null": "SELECT p.id, w.wage FROM people p FULL JOIN wages w ON coalesce(p.boss, 0) = coalesce(w.wage, 0)",
    "groups of null meet": """
        SELECT p.city, p.n, q.place, q.n AS m FROM (SELECT city, count(*) AS n FROM people GROUP BY city) p
        FULL JOIN (SELECT place, count(*) AS n FROM visits GROUP BY place) q ON p.city = q.place
    """,
    "groups of null meet by counts": """
        SELECT p.city, p.n, q.place, q.n AS m FROM (SELECT city, count(*) AS n FROM people GROUP BY city) p
        FULL JOIN (SELECT place, count(*) AS n FROM visits GROUP BY place) q ON p.n = q.n
    """,
    "groups of null are many": """
        SELECT w.id, q.place, q.n FROM wages w LEFT JOIN (SELECT place, count(*) AS n FROM visits GROUP BY place) q ON w.id = q.n
    """,
    "null finds no key": (
        "SELECT p.id, b.id AS other FROM people p LEFT JOIN people b ON b.id <=> p.boss AND b.age > 20",
        "SELECT p.id, b.id AS other FROM people p LEFT JOIN people b ON b.id = p.boss AND b.age > 20",
    ),
}
STAR_JOINS: Queries = {
    "three": """
        SELECT p.id, p.age, w.wage, c.country, n.stars, n.who FROM people p LEFT JOIN wages w ON p.boss = w.id
        LEFT JOIN cities c ON c.city = p.city LEFT JOIN notes n ON lower(substr(p.city, 2, 1)) = n.note
        """,
    "inner": """
        SELECT v.who, v.day, p.age, c.size FROM visits v JOIN people p ON v.who = p.id JOIN cities c ON v.place = c.city
        """,
    "inner with fewer rows": """
        SELECT v.who, v.day, p.age, c.size FROM visits v JOIN people p ON v.who = p.id
        JOIN cities c ON v.place = c.city WHERE c.size > 1
        """,
    "one table twice": """
        SELECT p.id, b.age AS a, b.city, g.age AS c, g.city AS d
        FROM people p LEFT JOIN people b ON b.id = p.boss LEFT JOIN people g ON g.id = p.id - 1
        """,
    "then a further one": """
        SELECT p.id, w.wage, c.size, u.wage AS other FROM people p LEFT JOIN wages w ON p.boss = w.id
        LEFT JOIN cities c ON c.city = p.city LEFT JOIN wages u ON u.id = c.size
        """,
    "conditions": """
        SELECT p.id, w.wage, c.country, u.wage AS other FROM people p
        LEFT JOIN wages w ON p.boss = w.id AND p.age > 20 AND w.wage > 1
        LEFT JOIN cities c ON c.city = p.city AND c.size < p.age LEFT JOIN wages u ON p.age / 10 - 1 = u.id
        WHERE w.wage IS NULL OR c.size > 1
        """,
    "grouped": """
        SELECT c.country, count(*) AS n, sum(w.wage) AS s FROM people p JOIN cities c ON p.city = c.city
        JOIN wages w ON p.boss = w.id GROUP BY c.country
        """,
}

PRODUCTS: Queries = {
    "cross": "SELECT p.id, c.city FROM people p CROSS JOIN cities c",
    "comma": "SELECT p.id, p.age, w.wage FROM people p, wages w WHERE p.age > w.wage * 15",
    "range": "SELECT p.id, n.note FROM people p JOIN notes n ON p.id BETWEEN n.stars AND n.stars + 1",
    "left": "SELECT p.id, w.id AS w, w.wage FROM people p LEFT JOIN wages w ON p.boss < w.id",
    "left without condition": "SELECT p.id, w.wage FROM people p LEFT JOIN wages w ON true",
    "right": "SELECT p.id, w.id AS w FROM people p RIGHT JOIN wages w ON p.boss > w.id + 1",
    "full": "SELECT p.id, p.age, w.id AS w, w.wage FROM people p FULL JOIN wages w ON p.boss + 1 < w.id",
    "three": "SELECT count(*) AS n, sum(w.wage) AS s FROM people p, cities c, wages w WHERE c.size < w.wage",
    "with itself": "SELECT a.id, b.id AS other FROM wages a, wages b WHERE a.wage < b.wage",
    "exists": "SELECT id FROM people p WHERE EXISTS (SELECT 1 FROM wages w WHERE w.id > p.boss)",
    "not exists": "SELECT id FROM people p WHERE NOT EXISTS (SELECT 1 FROM wages w WHERE w.id > p.boss + 1)",
    "semi": (
        "SELECT p.id FROM people p LEFT SEMI JOIN wages w ON w.wage > p.boss",
        "SELECT p.id FROM people p SEMI JOIN wages w ON w.wage > p.boss",
    ),
}

SUBQUERIES: Queries = {
    "a group by the name of another column": """
        SELECT p.boss AS age, p.age AS boss, (SELECT count(*) FROM visits v WHERE v.day * 10 > p.age) AS n
        FROM people p GROUP BY p.boss, p.age HAVING EXISTS (SELECT 1 FROM visits v WHERE v.day * 10 > p.age)
        """,
    "groups and inequalities": """
        SELECT p.city AS town, count(*) AS n FROM people p GROUP BY p.city
        HAVING count(*) > (SELECT count(*) - 3 FROM cities c WHERE c.city < p.city)
        """,
    "groups with a row": """
        SELECT p.city AS town, max(p.age) AS age FROM people p GROUP BY p.city
        HAVING EXISTS (SELECT 1 FROM wages w WHERE w.wage * 20 < max(p.age))
        """,
    "first by a column called subquery": """
        SELECT p.id, (SELECT v.d FROM (SELECT who, day AS d, spent AS subquery FROM visits) v WHERE v.who = p.id
        ORDER BY subquery, v.d LIMIT 1) AS x FROM people p
        """,
    "two single rows": """
        SELECT m.most, EXISTS (SELECT 1 FROM (SELECT min(id) AS low FROM wages) k WHERE k.low < m.most) AS y
        FROM (SELECT max(id) AS most FROM people) m
        """,
    "exists": "SELECT id FROM people p WHERE EXISTS (SELECT 1 FROM notes n WHERE n.who = p.id AND stars > 1)",
    "not exists": "SELECT id FROM people p WHERE NOT EXISTS (SELECT * FROM notes n WHERE n.who = p.id)",
    "exists with more": """
        SELECT n.note FROM notes n WHERE EXISTS (SELECT 1 FROM visits v WHERE v.who = n.who AND v.day > n.stars)
    """,
    "not exists with more": """
        SELECT n.note FROM notes n WHERE NOT EXISTS (SELECT 1 FROM visits v WHERE v.who = n.who AND v.day > n.stars)
    """,
    "exists uncorrelated": "SELECT id FROM people WHERE EXISTS (SELECT 1 FROM notes WHERE stars = 3)",
    "exists or": """
        SELECT id FROM people p WHERE age = 20 OR EXISTS (SELECT 1 FROM notes n WHERE n.who = p.id) AND age > 20
    """,
    "exists of key": "SELECT note FROM notes n WHERE EXISTS (SELECT 1 FROM people p WHERE p.id = n.who AND p.age > 20)",
    "in": "SELECT id FROM people WHERE id IN (SELECT who FROM notes)",
    "in key": "SELECT note FROM notes WHERE who IN (SELECT id FROM people WHERE age >= 30)",
    "in correlated": "SELECT id FROM people p WHERE age / 10 IN (SELECT stars FROM notes n WHERE n.who = p.id)",
    "in groups": "SELECT id FROM people WHERE city IN (SELECT city FROM people GROUP BY city HAVING count(*) > 1)",
    "not in": "SELECT id FROM people WHERE id NOT IN (SELECT who FROM notes)",
    "not in without nulls": "SELECT id FROM people WHERE id NOT IN (SELECT who FROM notes WHERE who IS NOT NULL)",
    "not in of null": "SELECT note FROM notes WHERE who NOT IN (SELECT id FROM people WHERE age = 30)",
    "not in keys": "SELECT id FROM people WHERE id NOT IN (SELECT id FROM wages WHERE wage = 2)",
    "in as a column": "SELECT note, who IN (SELECT boss FROM people) AS there FROM notes",
    "pairs in": "SELECT note FROM notes WHERE (who, stars) IN (SELECT who, day FROM visits)",
    "in of union": "SELECT id FROM people WHERE id IN (SELECT who FROM notes UNION SELECT boss FROM people)",
    "nested": """
        SELECT city FROM cities WHERE city IN (SELECT city FROM people WHERE id IN (SELECT who FROM notes WHERE stars = 3))
    """,
    "semi": "SELECT p.id FROM people p LEFT SEMI JOIN notes n ON p.id = n.who AND n.stars > 1",
    "scalar": "SELECT id FROM people WHERE age > (SELECT avg(age) FROM people)",
    "scalar column": "SELECT id, age - (SELECT min(age) FROM people) AS above, (SELECT count(*) FROM notes) AS n FROM people",
    "scalar correlated": "SELECT id FROM people p WHERE age > (SELECT avg(q.age) FROM people q WHERE q.city = p.city)",
    "scalar count": "SELECT id, (SELECT count(*) FROM notes n WHERE n.who = p.id) AS n FROM people p",
    "scalar expression": """
        SELECT id, (SELECT 2 * max(stars) + count(*) FROM notes n WHERE n.who = p.id) AS n FROM people p
    """,
    "scalar by key": "SELECT note, (SELECT age + 1 FROM people p WHERE p.id = n.who) AS age FROM notes n",
    "scalar having": """
        SELECT city, count(*) AS n FROM people GROUP BY city HAVING count(*) >= (SELECT avg(stars) FROM notes)
    """,
    "exists with nulls": """
        SELECT id FROM people p WHERE NOT EXISTS (
            SELECT note FROM notes n WHERE n.who IS NOT DISTINCT FROM p.boss AND n.stars > p.id ORDER BY note LIMIT 1
        )
    """,
    "exists with nulls in other words": """
        SELECT id FROM people p WHERE EXISTS (
            SELECT 1 FROM notes n WHERE n.who = p.boss OR (n.who IS NULL AND p.boss IS NULL)
        )
    """,
    "exists with a limit": "SELECT id FROM people p WHERE EXISTS (SELECT note FROM notes n WHERE n.who = p.id LIMIT 1)",
    "count with nulls": """
        SELECT id, (SELECT count(*) FROM notes n WHERE n.who IS NOT DISTINCT FROM p.boss) AS n FROM people p
    """,
    "scalar by more than the key": """
        SELECT note, (SELECT age FROM people p WHERE p.id = n.who AND p.boss = n.stars) AS age FROM notes n
    """,
    "subqueries in aggregates": """
        SELECT city, count(*) FILTER (WHERE id IN (SELECT who FROM notes)) AS n,
            sum((SELECT count(*) FROM notes n WHERE n.who = p.id)) AS m FROM people p GROUP BY city
    """,
    "subqueries in aggregates of subqueries": """
        SELECT id, (WITH w AS (SELECT id, wage FROM wages) SELECT max(n.stars + (SELECT max(w.wage) FROM w)) FROM notes n WHERE n.who = p.id) AS m,
            (SELECT count(*) FILTER (WHERE n.who IN (SELECT id FROM wages)) FROM notes n WHERE n.stars <= p.boss) AS c,
            (SELECT sum((SELECT w.wage FROM wages w WHERE w.id = n.who)) FROM notes n WHERE n.who = p.id GROUP BY n.who HAVING count(*) > 0) AS s
        FROM people p
    """,
    "group with exists": """
        SELECT city, count(*) AS n FROM people p WHERE EXISTS (SELECT 1 FROM notes n WHERE n.who = p.id) GROUP BY city
    """,
}
FIRST_OF_SUBQUERIES: Queries = {
    "second": """
        SELECT id, (SELECT note FROM notes n WHERE n.who = p.boss ORDER BY stars DESC, note LIMIT 1 OFFSET 1) AS x FROM people p
    """,
    "computed with both": """
        SELECT id, (SELECT n.stars + p.age FROM notes n WHERE n.who = p.boss ORDER BY abs(n.stars - p.id), n.note LIMIT 1) AS x
        FROM people p
    """,
    "of groups": """
        SELECT id, (SELECT place FROM visits v WHERE v.who = p.boss GROUP BY place
            ORDER BY count(*) DESC, place NULLS FIRST LIMIT 1) AS x FROM people p
    """,
    "of groups and inequalities": """
        SELECT id, (SELECT count(*) FROM visits v WHERE v.who = p.boss AND v.day <= p.id GROUP BY place
            ORDER BY count(*) DESC, place LIMIT 1 OFFSET 1) AS x FROM people p
    """,
    "second of distinct ones": """
        SELECT id, (SELECT DISTINCT stars FROM notes n WHERE n.who = p.boss ORDER BY stars DESC LIMIT 1 OFFSET 1) AS x FROM people p
    """,
    "by a window": """
        SELECT id, (SELECT day FROM visits v WHERE v.who = p.boss ORDER BY count(*) OVER (PARTITION BY place), day DESC LIMIT 1) AS x
        FROM people p
    """,
    "null is equal": """
        SELECT id, (SELECT note FROM notes n WHERE n.who IS NOT DISTINCT FROM p.boss ORDER BY note DESC LIMIT 1) AS x FROM people p
    """,
    "of an expression": """
        SELECT id FROM people p WHERE (SELECT day FROM visits v WHERE v.who + 1 = p.boss ORDER BY day LIMIT 1) < p.id
    """,
    "of groups around": """
        SELECT boss, count(*) AS n, (SELECT note FROM notes n WHERE n.who = p.boss AND n.stars <= count(p.id)
            ORDER BY note LIMIT 1) AS x FROM people p GROUP BY boss
    """,
    "with a join and a subquery": """
        SELECT id, (SELECT w.wage FROM notes n JOIN wages w ON w.id = n.stars WHERE n.who = p.boss
            AND n.stars IN (SELECT day FROM visits) ORDER BY w.wage DESC, n.note LIMIT 1) AS x FROM people p
    """,
    "of a union": "SELECT id, (SELECT id FROM wages UNION ALL SELECT day FROM visits ORDER BY 1 DESC LIMIT 1) AS x FROM people",
    "of one row": "SELECT id, (SELECT m FROM (SELECT max(age) AS m FROM people) ORDER BY m LIMIT 1) AS x FROM people",
    "in": """
        SELECT id FROM people p WHERE p.id IN (SELECT v.day FROM visits v WHERE v.who = p.boss ORDER BY v.spent, v.day LIMIT 2)
    """,
    "not in": """
        SELECT id, boss NOT IN (SELECT stars FROM notes n WHERE n.who = p.id ORDER BY stars DESC, note LIMIT 2) AS x FROM people p
    """,
    "in windows": """
        SELECT id, boss IN (SELECT row_number() OVER (ORDER BY n.stars) FROM notes n WHERE n.who = p.id GROUP BY n.stars) AS x
        FROM people p
    """,
    "exists behind one": """
        SELECT id FROM people p WHERE EXISTS (SELECT 1 FROM visits v WHERE v.who = p.boss ORDER BY v.day OFFSET 1)
        AND NOT EXISTS (SELECT 1 FROM notes n WHERE n.who = p.id ORDER BY n.note LIMIT 3 OFFSET 1)
    """,
    "exists none": "SELECT id FROM people p WHERE NOT EXISTS (SELECT 1 FROM notes n WHERE n.who = p.id ORDER BY note LIMIT 0)",
    "less than any": """
        SELECT id, id < ANY (SELECT v.day FROM visits v WHERE v.who = p.boss ORDER BY v.day LIMIT 2) AS x FROM people p
    """,
}
SUBQUERIES["semi"] = (str(SUBQUERIES["semi"]), str(SUBQUERIES["semi"]).replace("LEFT SEMI", "SEMI"))
SETS: Queries = {
    "union all": "SELECT id, age FROM people UNION ALL SELECT id, wage FROM wages",
    "union all of unlike keys": "SELECT city FROM people UNION ALL SELECT note FROM notes UNION ALL SELECT city FROM cities",
    "union all of types": "SELECT age AS x FROM people UNION ALL SELECT spent FROM visits",
    "union": "SELECT city FROM people UNION SELECT city FROM cities",
    "intersect": "SELECT city FROM people INTERSECT SELECT city FROM cities",
    "except": "SELECT city FROM people EXCEPT SELECT city FROM cities",
    "except all": "SELECT city FROM people EXCEPT ALL SELECT place FROM visits WHERE day > 1",
    "intersect all": "SELECT city FROM people INTERSECT ALL SELECT place FROM visits",
    "except of names of the library's": "SELECT age AS in_1, boss AS in_2 FROM people EXCEPT SELECT id * 10, id FROM people",
    "except all of names of the library's": "SELECT boss AS In_1, id AS there FROM people EXCEPT ALL SELECT id, id FROM wages",
    "union of groups": """
        SELECT 'city' AS kind, city AS name, count(*) AS n FROM people GROUP BY city
        UNION ALL SELECT 'place', place, count(*) FROM visits GROUP BY place
    """,
    "first of union": """
        SELECT id, age FROM people UNION ALL SELECT id, wage FROM wages ORDER BY age DESC, id LIMIT 2
    """,
}
FIRST: Queries = {
    "limit": "SELECT id, age FROM people ORDER BY age DESC, id LIMIT 2",
    "limit offset": "SELECT id, age FROM people ORDER BY age, id DESC LIMIT 2 OFFSET 1",
    "order alone": "SELECT id, age FROM people ORDER BY age",
    "order of hidden": "SELECT id FROM people ORDER BY paid DESC NULLS FIRST, id LIMIT 3",
    "order by place": "SELECT age + 1, id FROM people ORDER BY 1 DESC, 2 LIMIT 3",
    "top of groups": "SELECT city, count(*) AS n FROM people GROUP BY city ORDER BY n DESC, city NULLS LAST LIMIT 2",
    "top of distinct": "SELECT DISTINCT age FROM people ORDER BY age DESC LIMIT 2",
    "row number": """
        SELECT id, city FROM (
            SELECT id, city, row_number() OVER (PARTITION BY city ORDER BY age DESC, id) AS rn FROM people
        ) WHERE rn = 1
    """,
    "row number with place": """
        SELECT * FROM (SELECT id, row_number() OVER (PARTITION BY city ORDER BY age, id) AS rn FROM people) t WHERE t.rn < 3
    """,
    "qualify": "SELECT id, age FROM people QUALIFY row_number() OVER (PARTITION BY age ORDER BY id) <= 1",
    "limit 0": "SELECT id FROM people ORDER BY id LIMIT 0",
    "limit all": "SELECT id FROM people ORDER BY id LIMIT ALL",
    "first of first": """
        SELECT id FROM (SELECT id, age FROM people ORDER BY age, id LIMIT 3) ORDER BY id DESC LIMIT 1
    """,
    "limit in from": "SELECT n.note FROM (SELECT id FROM people ORDER BY id LIMIT 2) p JOIN notes n ON n.who = p.id",
    "limit of join": "SELECT p.id, c.size FROM people p JOIN cities c ON p.city = c.city ORDER BY c.size DESC, p.id LIMIT 3",
}
FIRST["order by place"] = (
    "SELECT age + 1, id FROM people ORDER BY 1 DESC, 2 LIMIT 3",
    'SELECT age + 1 AS "(age + 1)", id FROM people ORDER BY 1 DESC, 2 LIMIT 3',
)

OVER: Queries = {
    "ranks": """
        SELECT id, rank() OVER (PARTITION BY city ORDER BY age) AS r, dense_rank() OVER (ORDER BY age DESC) AS d,
            row_number() OVER (PARTITION BY city ORDER BY age DESC NULLS FIRST, id) AS n FROM people
    """,
    "neighbours": """
        SELECT note, lag(stars) OVER (PARTITION BY who ORDER BY note) AS a, lead(note, 2, 'none') OVER (ORDER BY note) AS b
        FROM notes
    """,
    "running": """
        SELECT id, sum(age) OVER (PARTITION BY city ORDER BY id) AS s, count(*) OVER (PARTITION BY city) AS n,
            max(age) OVER (PARTITION BY boss ORDER BY age ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) - age AS d,
            avg(age) OVER () AS a, age * 100 / sum(age) OVER (PARTITION BY city) AS share FROM people
    """,
    "over groups": """
        SELECT city, sum(age) AS s, rank() OVER (ORDER BY count(*) DESC) AS r FROM people GROUP BY city
    """,
    "ranked": "SELECT * FROM (SELECT id, rank() OVER (ORDER BY age DESC) AS r FROM people) WHERE r <= 2",
    "qualified": "SELECT id, age FROM people QUALIFY count(*) OVER (PARTITION BY age) > 1",
    "row numbers": "SELECT id, row_number() OVER (ORDER BY age, id) AS n FROM people",
    "named windows": """
        SELECT id, sum(age) OVER w AS s, rank() OVER v AS r FROM people
        WINDOW w AS (PARTITION BY city ORDER BY id), v AS (ORDER BY age DESC)
    """,
    "frames of rows": """
        SELECT id, sum(age) OVER w AS s, count(*) OVER w AS n, avg(age) OVER w AS a, min(city) OVER w AS f,
            last_value(age) OVER (PARTITION BY boss ORDER BY id ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS l,
            max(id) OVER (ORDER BY age NULLS LAST, id ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING) AS m FROM people
        WINDOW w AS (PARTITION BY boss ORDER BY age DESC, id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)
    """,
    "frames of distances": """
        SELECT id, sum(id) OVER (ORDER BY age RANGE BETWEEN 10 PRECEDING AND CURRENT ROW) AS s,
            count(*) OVER (ORDER BY age DESC NULLS FIRST RANGE BETWEEN 10 PRECEDING AND 10 FOLLOWING) AS n,
            count(*) OVER (ORDER BY id NULLS LAST RANGE BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING) AS b,
            min(id) OVER (ORDER BY age RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS m FROM people
    """,
    "frames of double distances": """
        SELECT who, day, sum(spent) OVER (ORDER BY spent RANGE BETWEEN 0.75 PRECEDING AND 0.75 FOLLOWING) AS s FROM visits
    """,
    "frames of time": """
        SELECT who, day, count(*) OVER (
                PARTITION BY who ORDER BY DATE '2024-01-01' + day RANGE BETWEEN INTERVAL 1 DAY PRECEDING AND CURRENT ROW
            ) AS d, sum(spent) OVER (
                ORDER BY CAST(DATE '2024-01-01' + day AS TIMESTAMP)
                RANGE BETWEEN INTERVAL '36' HOURS PRECEDING AND INTERVAL '12' HOURS PRECEDING
            ) AS s FROM visits
    """,
    "shares": """
        SELECT id, percent_rank() OVER (PARTITION BY city ORDER BY age) AS p, cume_dist() OVER (ORDER BY age DESC) AS c,
            ntile(3) OVER (ORDER BY age, id) AS t, ntile(2) OVER (PARTITION BY boss ORDER BY id) AS h FROM people
    """,
    "nulls passed over": """
        SELECT id, lag(age IGNORE NULLS) OVER (ORDER BY id) AS a, lead(city, 2 IGNORE NULLS) OVER (ORDER BY id) AS b,
            first_value(age IGNORE NULLS) OVER (PARTITION BY city ORDER BY id) AS f,
            last_value(age IGNORE NULLS) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS l,
            nth_value(age, 2 IGNORE NULLS) OVER (ORDER BY id) AS n FROM people
    """,
    "nulls of Spark's forms": (
        """
        SELECT id, lag(age) IGNORE NULLS OVER (ORDER BY id) AS a, first_value(age, true) OVER (ORDER BY id) AS f,
            lag(age, -1) OVER (ORDER BY id) AS b, last(age) RESPECT NULLS OVER (ORDER BY id) AS l FROM people
        """,
        """
        SELECT id, lag(age IGNORE NULLS) OVER (ORDER BY id) AS a, first_value(age IGNORE NULLS) OVER (ORDER BY id) AS f,
            lead(age) OVER (ORDER BY id) AS b, last_value(age) OVER (ORDER BY id) AS l FROM people
        """,
    ),
    "places of a frame": """
        SELECT id, nth_value(age, 2) OVER (PARTITION BY city ORDER BY id) AS n,
            first_value(city) OVER (ORDER BY id ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING) AS f,
            last_value(id) OVER (PARTITION BY city ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS l
        FROM people
    """,
    "decimals": (
        """
        SELECT id, sum(paid) OVER (PARTITION BY city ORDER BY id) AS s, avg(paid) OVER (PARTITION BY city) AS a,
            sum(paid) OVER (ORDER BY id ROWS 1 PRECEDING) AS r, max(paid) OVER (ORDER BY id ROWS 1 PRECEDING) AS m FROM people
        """,
        """
        SELECT id, sum(paid) OVER (PARTITION BY city ORDER BY id) AS s,
            CAST(avg(paid) OVER (PARTITION BY city) AS decimal(12,6)) AS a,
            sum(paid) OVER (ORDER BY id ROWS 1 PRECEDING) AS r, max(paid) OVER (ORDER BY id ROWS 1 PRECEDING) AS m FROM people
        """,
    ),
    "ties in the order of keys": (
        """
        SELECT id, row_number() OVER () AS n, row_number() OVER (PARTITION BY city ORDER BY age) AS m,
            sum(id) OVER (ORDER BY age ROWS 1 PRECEDING) AS s, lag(id) OVER (ORDER BY age DESC) AS l FROM people
        """,
        """
        SELECT id, row_number() OVER (ORDER BY id) AS n, row_number() OVER (PARTITION BY city ORDER BY age, id) AS m,
            sum(id) OVER (ORDER BY age, id ROWS 1 PRECEDING) AS s, lag(id) OVER (ORDER BY age DESC, id) AS l FROM people
        """,
    ),
    "counted where": (
        """
        SELECT id, count_if(age > 20) OVER (PARTITION BY boss) AS n, mean(age) OVER (PARTITION BY boss) AS m,
            sum(age) FILTER (WHERE id > 1) OVER (ORDER BY id ROWS 2 PRECEDING) AS s FROM people
        """,
        """
        SELECT id, count_if(age > 20) OVER (PARTITION BY boss) AS n, avg(age) OVER (PARTITION BY boss) AS m,
            sum(age) FILTER (WHERE id > 1) OVER (ORDER BY id ROWS 2 PRECEDING) AS s FROM people
        """,
    ),
    "of groups": """
        SELECT city, sum(sum(age)) OVER (ORDER BY city) AS s, sum(age) * 100 / sum(sum(age)) OVER () AS share,
            count(*) OVER () AS groups, avg(count(*)) OVER (ORDER BY city ROWS 1 PRECEDING) AS a,
            lag(max(age), 1, 0) OVER (ORDER BY city) AS l FROM people GROUP BY city
    """,
    "one group": "SELECT sum(age) AS s, sum(count(*)) OVER () AS n, rank() OVER (ORDER BY max(age)) AS r FROM people",
    "of distinct groups": """
        SELECT DISTINCT boss, count(*) OVER (PARTITION BY boss ORDER BY city RANGE UNBOUNDED PRECEDING) AS n
        FROM people GROUP BY boss, city
    """,
    "key that is called kind": """
        SELECT kind, lag(age, 1, 0) OVER (PARTITION BY city ORDER BY kind) AS before,
            sum(age) OVER (PARTITION BY city ORDER BY kind RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) AS s
        FROM (SELECT id AS kind, city, age FROM people)
    """,
    "named window in qualify": (
        "SELECT id FROM people QUALIFY row_number() OVER w = 1 WINDOW w AS (PARTITION BY city ORDER BY age, id)",
        "SELECT id FROM people QUALIFY row_number() OVER (PARTITION BY city ORDER BY age, id) = 1",
    ),
}

#: Arrays of a row, the same in both: its city and place where they are known.
_SPARK = "filter(array(city, CAST(age AS STRING)), x -> x IS NOT NULL)"
_DUCK = "list_filter([city, CAST(age AS VARCHAR)], lambda x: x IS NOT NULL)"
ELEMENTS: Queries = {
    "constants then joins": """
        SELECT p.id, v.a, w.wage FROM people p CROSS JOIN (VALUES (1), (2)) AS v(a) JOIN wages w ON w.id = p.id
        WHERE p.age > v.a AND w.wage > 0
        """,
    "a column of constants has the name of a table": """
        SELECT p.id, v.a, c.size FROM people p JOIN (VALUES ('Rome', 1), ('Oslo', 2)) AS v(c, a) ON v.c = p.city
        LEFT JOIN cities c ON c.city = v.c WHERE p.id > v.a
        """,
    "constants never": "SELECT p.id, v.a FROM people p JOIN (VALUES (1), (2)) AS v(a) ON false",
    "lateral view": (
        f"SELECT id, x FROM people p LATERAL VIEW explode({_SPARK}) t AS x WHERE x <> '20' AND p.id < 5",
        f"SELECT id, x FROM (SELECT id, unnest({_DUCK}) AS x FROM people) WHERE x <> '20' AND id < 5",
    ),
    "outer": (
        f"SELECT id, i, x FROM people LATERAL VIEW OUTER posexplode(CASE WHEN id > 2 THEN {_SPARK} END) t AS i, x",
        f"""
        SELECT id, i - 1 AS i, x FROM people
        LEFT JOIN LATERAL (SELECT unnest({_DUCK}) AS x, generate_subscripts({_DUCK}, 1) AS i WHERE id > 2) ON true
        """,
    ),
    "unnest, then join": (
        f"""
        SELECT p.id, t.x, c.size FROM people p CROSS JOIN UNNEST({_SPARK}) AS t(x) JOIN cities c ON c.city = t.x
        WHERE c.size > 1 AND p.age >= 20
        """,
        f"""
        SELECT p.id, p.x, c.size FROM (SELECT id, age, unnest({_DUCK}) AS x FROM people) p JOIN cities c ON c.city = p.x
        WHERE c.size > 1 AND p.age >= 20
        """,
    ),
    "grouped elements of a map": (
        """
        SELECT k, count(*) AS n, sum(v) AS s FROM people p, notes n, LATERAL explode(map('a', age, 'b', stars)) AS t(k, v)
        WHERE n.who = p.id GROUP BY k
        """,
        """
        SELECT k, count(*) AS n, sum(v) AS s FROM (
            SELECT 'a' AS k, age AS v FROM people p, notes n WHERE n.who = p.id
            UNION ALL SELECT 'b', stars FROM people p, notes n WHERE n.who = p.id
        ) GROUP BY k
        """,
    ),
    "constants": """
        SELECT p.id, v.a, v.b FROM people p JOIN (VALUES (20, 'x'), (30, 'y'), (30, 'z')) AS v(a, b) ON p.age = v.a
    """,
    "constants then a right join": """
        SELECT c.city, p.id, v.a FROM people p CROSS JOIN (VALUES (1), (2)) AS v(a) RIGHT JOIN cities c ON p.city = c.city
        WHERE (p.id IS NULL OR p.age > v.a * 15) AND (p.age > 20 OR p.id IS NULL)
        """,
    "constants then a full join": """
        SELECT p.id, v.a, w.id AS w FROM people p JOIN cities c ON p.city = c.city AND 1 = 0 CROSS JOIN (VALUES (1), (2)) AS v(a)
        FULL JOIN wages w ON w.id = p.id WHERE p.id IS NULL
        """,
    "all constants": "SELECT p.id, v.a FROM people p CROSS JOIN (VALUES (1), (NULL)) AS v(a) WHERE p.id > 1",
}

#: Where a shorter way to the plan would have another meaning.
MEANING: Queries = {
    "parentheses": "SELECT sum(age * (2 + 3)) AS a, sum(age * 2 + 3) AS b FROM people",
    "group in parentheses": "SELECT age + 1 AS x, count(*) AS n FROM people GROUP BY (age + 1)",
    "in and not in": """
        SELECT note FROM notes WHERE who IN (SELECT boss FROM people) OR who NOT IN (SELECT boss FROM people)
    """,
    "in twice": """
        SELECT note, who IN (SELECT boss FROM people) AS x FROM notes
        WHERE who IN (SELECT boss FROM people) OR stars > 1
    """,
    "first of a branch": """
        SELECT id AS a, age AS b FROM people
        UNION ALL (SELECT id AS b, wage AS a FROM wages ORDER BY b DESC LIMIT 1)
    """,
    "bound around limit": """
        SELECT id FROM (
            SELECT id, row_number() OVER (ORDER BY age, id) AS rn FROM people ORDER BY rn DESC LIMIT 2
        ) WHERE rn <= 3
    """,
    "bound of another name": """
        SELECT rn FROM (SELECT id, row_number() OVER (ORDER BY age, id) AS n FROM people) t(rn, n) WHERE rn <= 2
    """,
    "names of either query": """
        SELECT p.id, (SELECT count(*) FROM people q WHERE q.boss = id) AS a,
            (SELECT count(*) FROM people q WHERE q.boss = p.id) AS b FROM people p
    """,
    "order by alias": (
        "SELECT id, -age AS age FROM people ORDER BY age + 0 DESC, id LIMIT 2",
        "SELECT id, -age AS age FROM people p ORDER BY -p.age + 0 DESC, id LIMIT 2",
    ),
    "alias of an aggregate": (
        "SELECT city, count(*) AS n, n + 1 AS m FROM people GROUP BY city",
        "SELECT city, count(*) AS n, count(*) + 1 AS m FROM people GROUP BY city",
    ),
    "aggregates in windows": """
        SELECT city, rank() OVER (PARTITION BY count(*) ORDER BY city) AS r FROM people GROUP BY city
    """,
    "alias of a column's sum": (
        "SELECT city, sum(age) AS age FROM people GROUP BY city HAVING age > 40",
        "SELECT city, sum(age) AS age FROM people GROUP BY city HAVING sum(age) > 40",
    ),
    "alias like a column": "SELECT note.who, note.stars FROM notes note JOIN (SELECT note, who FROM notes) n ON note.note = n.note",
    "aggregates in qualify": "SELECT city FROM people GROUP BY city QUALIFY rank() OVER (ORDER BY count(*) DESC) <= 2",
}

FROM: Queries = {
    "semi using": (
        "SELECT id FROM people LEFT SEMI JOIN wages USING (id) WHERE id > 1",
        "SELECT id FROM people SEMI JOIN wages USING (id) WHERE id > 1",
    ),
    "anti using": "SELECT id, age FROM people ANTI JOIN wages USING (id)",
    "natural anti": (
        "SELECT id FROM people NATURAL LEFT ANTI JOIN (SELECT who AS id, stars FROM notes)",
        "SELECT id FROM people NATURAL ANTI JOIN (SELECT who AS id, stars FROM notes WHERE who IS NOT NULL)",
    ),
    "first in parentheses": "(SELECT id, age FROM people) ORDER BY age, id LIMIT 2",
    "first of parentheses": """
        SELECT n.note FROM ((SELECT id, age FROM people) ORDER BY age, id LIMIT 2) p JOIN notes n ON n.who = p.id
    """,
    "union of firsts": """
        ((SELECT id FROM people UNION ALL SELECT id FROM wages) ORDER BY id LIMIT 3) UNION ALL (SELECT who FROM notes)
    """,
    "bound outside of first": """
        SELECT id FROM (
            SELECT id, row_number() OVER (ORDER BY age, id) AS r FROM people ORDER BY id DESC LIMIT 2
        ) WHERE r <= 2
    """,
    "in firsts": "SELECT note FROM notes WHERE who IN ((SELECT id FROM people) ORDER BY id LIMIT 2)",
    "in parentheses": "SELECT a.id, w.wage FROM ((SELECT id, age FROM people) a) JOIN (wages w) ON a.id = w.id",
    "inner in inner": """
        SELECT p.id, w.wage FROM people p JOIN cities c JOIN wages w ON c.size = w.id ON p.city = c.city AND p.id <> w.wage
    """,
    "nested star": """
        SELECT note FROM notes WHERE EXISTS (
            SELECT 1 FROM (SELECT * FROM visits WHERE day > 1) v WHERE v.day = stars AND who = 1
        )
    """,
    "joins in parentheses": """
        SELECT p.id, c.size, w.wage FROM (people p LEFT JOIN cities c ON p.city = c.city) LEFT JOIN wages w ON w.id = c.size
    """,
    "joins in parentheses on the right": """
        SELECT n.note, p.id, c.size FROM notes n LEFT JOIN (people p JOIN cities c ON p.city = c.city) ON n.who = p.id
    """,
    "full joins in parentheses": """
        SELECT n.note, p.id, w.wage FROM notes n FULL JOIN (people p FULL JOIN wages w ON p.id = w.id) ON n.who = w.wage
    """,
    "natural self": "SELECT p.id FROM people p NATURAL JOIN people q",
    "natural columns": "SELECT age, size FROM people NATURAL JOIN cities",
    "right then full using": """
        SELECT id, wage, n FROM people RIGHT JOIN wages USING (id)
        FULL JOIN (SELECT who AS id, count(*) AS n FROM notes WHERE who IS NOT NULL GROUP BY who) v USING (id)
    """,
    "full twice using": """
        SELECT id, age, wage, n FROM people FULL JOIN wages USING (id)
        FULL JOIN (SELECT who AS id, count(*) AS n FROM notes WHERE who IS NOT NULL GROUP BY who) v USING (id) WHERE id < 5
    """,
    "constant before right": """
        SELECT c.city, p.id FROM people p JOIN wages w ON p.id = w.id AND 1 = 0 RIGHT JOIN cities c ON p.city = c.city
    """,
    "join without on": (
        "SELECT p.id, c.size FROM people p JOIN cities c WHERE p.city = c.city",
        "SELECT p.id, c.size FROM people p, cities c WHERE p.city = c.city",
    ),
    "left of one row": (
        "SELECT p.id, m.most FROM people p LEFT JOIN (SELECT max(size) AS most FROM cities) m",
        "SELECT p.id, m.most FROM people p LEFT JOIN (SELECT max(size) AS most FROM cities) m ON true",
    ),
    "using more than the key": "SELECT id, wage FROM (SELECT id, id % 3 AS wage FROM people) p JOIN wages USING (id, wage)",
    "left using more": """
        SELECT id, wage, w.id AS wid FROM (SELECT id, id % 3 AS wage FROM people) p LEFT JOIN wages w USING (id, wage)
    """,
    "using then on": "SELECT id, n.note FROM people JOIN wages USING (id) JOIN notes n ON n.who = id",
    "without aliases": """
        SELECT age, wage FROM (SELECT id, age FROM people), (SELECT id AS wid, wage FROM wages) WHERE id = wid
    """,
    "left then comma": """
        SELECT p.id, w.wage FROM people p LEFT JOIN people b ON p.boss = b.id, wages w WHERE w.id = b.id AND b.age > 20
    """,
    "on sees what is before": """
        SELECT v.place, w.wage FROM notes JOIN visits v ON stars = v.day JOIN (SELECT id, wage, 1 AS stars FROM wages) w
        ON w.id = v.who
    """,
}

COMBINED_SUBQUERIES: Queries = {
    "exists intersect": """
        SELECT id FROM people p WHERE EXISTS (SELECT stars FROM notes n WHERE n.who = p.boss INTERSECT
            SELECT day FROM visits v WHERE v.who = p.boss)
    """,
    "none is missing": "SELECT id FROM people p WHERE NOT EXISTS (SELECT wage FROM wages EXCEPT SELECT day FROM visits v WHERE v.who = p.id)",
    "except, unequal": """
        SELECT id FROM people p WHERE EXISTS (SELECT day FROM visits v WHERE v.who = p.boss EXCEPT
            SELECT stars FROM notes n WHERE n.stars <= p.id)
    """,
    "compared by other columns": """
        SELECT id, p.boss IN (SELECT stars FROM notes n WHERE n.who = p.boss INTERSECT SELECT day FROM visits v WHERE v.who = p.id) AS x
        FROM people p
    """,
    "not in except, with nulls": """
        SELECT id, boss NOT IN (SELECT stars FROM notes n WHERE n.who = p.boss EXCEPT SELECT wage FROM wages w WHERE w.id = p.boss) AS x
        FROM people p
    """,
    "except all": """
        SELECT id FROM people p WHERE EXISTS (SELECT place FROM visits v WHERE v.who = p.boss EXCEPT ALL
            SELECT city FROM cities c WHERE c.size > 1)
        OR EXISTS (SELECT stars FROM notes EXCEPT SELECT day FROM visits) AND p.age > 20
    """,
    "copies make no difference": """
        SELECT id FROM people WHERE EXISTS (SELECT stars FROM notes UNION ALL SELECT stars FROM notes EXCEPT SELECT stars FROM notes)
        OR age > 20
    """,
    "first of a union": """
        SELECT id, (SELECT stars FROM notes n WHERE n.who = p.boss UNION ALL SELECT day FROM visits v WHERE v.who = p.boss
            ORDER BY 1 DESC LIMIT 1 OFFSET 1) AS x FROM people p
    """,
    "in a union of groups": """
        SELECT id, p.boss IN (SELECT count(*) FROM visits v WHERE v.who = p.boss GROUP BY place UNION
            SELECT DISTINCT stars FROM notes n WHERE n.who = p.boss ORDER BY 1 LIMIT 2) AS x FROM people p
    """,
    "null is equal": """
        SELECT id FROM people p WHERE EXISTS (SELECT who FROM notes n WHERE n.who IS NOT DISTINCT FROM p.boss EXCEPT
            SELECT q.age / 10 FROM people q WHERE q.boss IS NOT DISTINCT FROM p.boss)
    """,
    "lateral": """
        SELECT p.id, x.y FROM people p, LATERAL (SELECT stars AS y FROM notes n WHERE n.who = p.boss UNION
            SELECT day FROM visits v WHERE v.who = p.boss) x
    """,
    "lateral, left": """
        SELECT p.id, x.y FROM people p LEFT JOIN LATERAL (SELECT stars FROM notes n WHERE n.who = p.boss EXCEPT ALL
            SELECT day FROM visits v WHERE v.who = p.id) x(y) ON true
    """,
    "lateral, first": """
        SELECT p.id, x.y FROM people p, LATERAL (SELECT stars AS y FROM notes n WHERE n.who = p.boss UNION ALL
            SELECT day FROM visits v WHERE v.who = p.boss ORDER BY y DESC LIMIT 1) x
    """,
}

BELOW_FROM: Queries = {
    "exists": "SELECT id FROM people p WHERE EXISTS (SELECT 1 FROM (SELECT * FROM notes n WHERE n.who = p.boss) s WHERE s.stars > 1)",
    "first rows": """
        SELECT id, (SELECT max(s.day) FROM (SELECT day FROM visits v WHERE v.who = p.boss ORDER BY spent, day LIMIT 2) s) AS x
        FROM people p
    """,
    "groups": """
        SELECT id, (SELECT max(s.n) FROM (SELECT count(*) AS n FROM visits v WHERE v.who = p.boss GROUP BY place) s) AS x FROM people p
    """,
    "unequal": """
        SELECT id FROM people p WHERE EXISTS (SELECT 1 FROM (SELECT * FROM visits v WHERE v.who = p.boss AND v.day <= p.id) s
            JOIN notes n ON n.who = s.who)
    """,
    "null is equal": """
        SELECT id, (SELECT count(*) FROM (SELECT note FROM notes n WHERE n.who IS NOT DISTINCT FROM p.boss) s) AS x FROM people p
    """,
    "left": """
        SELECT id, (SELECT count(*) FROM (SELECT * FROM notes n WHERE n.who = p.boss) s LEFT JOIN wages w ON w.id = s.stars
            WHERE w.wage IS NULL) AS x FROM people p
    """,
    "names": """
        SELECT id, p.boss NOT IN (SELECT b FROM (SELECT who, stars FROM notes n WHERE n.who = p.id) AS s(a, b)) AS x FROM people p
    """,
    "a name twice": (  # DuckDB finds the name beside the subquery, Spark finds it around both
        """
        SELECT p.id FROM people p
        WHERE EXISTS (SELECT 1 FROM people p JOIN (SELECT * FROM visits v WHERE v.who = p.id) s ON s.day = p.boss)
        """,
        """
        SELECT o.id FROM people o
        WHERE EXISTS (SELECT 1 FROM people p JOIN (SELECT * FROM visits v WHERE v.who = o.id) s ON s.day = p.boss)
        """,
    ),
    "two, joined": """
        SELECT id, (SELECT count(*) FROM (SELECT * FROM visits v WHERE v.who = p.boss) s
            JOIN (SELECT * FROM notes n WHERE n.who = p.boss AND n.stars > 1) t ON t.stars >= s.day) AS x FROM people p
    """,
    "deeper": """
        SELECT id FROM people p WHERE EXISTS (SELECT 1 FROM (SELECT day + 1 AS d
            FROM (SELECT day FROM visits v WHERE v.who + 0 = p.boss) s WHERE s.day > 1) t WHERE t.d > 2)
    """,
    "a union": """
        SELECT id, (SELECT sum(x) FROM (SELECT stars AS x FROM notes n WHERE n.who = p.boss UNION ALL
            SELECT day FROM visits v WHERE v.who = p.boss) s) AS x FROM people p
    """,
    "a column called alike": """
        SELECT id, (SELECT max(s.who) FROM (SELECT stars AS who FROM notes n WHERE n.who = p.boss) s) AS x FROM people p
    """,
    "of groups": """
        SELECT boss, count(*) AS n FROM people p GROUP BY boss
        HAVING EXISTS (SELECT 1 FROM (SELECT * FROM notes n WHERE n.who = p.boss AND n.stars < count(p.id) + 2) s WHERE s.stars > 1)
    """,
    "lateral": """
        SELECT p.id, x.* FROM people p
        LEFT JOIN LATERAL (SELECT * FROM (SELECT note, stars FROM notes n WHERE n.who = p.boss) s WHERE s.stars > 1) x ON true
    """,
}

#: Subqueries in ON of joins that keep rows; DuckDB has each as a column of the side that it names.
IN_ON: Queries = {
    "of the optional side": (
        "SELECT p.id, n.note FROM people p LEFT JOIN notes n ON n.who = p.id AND EXISTS (SELECT 1 FROM visits v WHERE v.day = n.stars)",
        """
        SELECT p.id, n.note FROM people p
        LEFT JOIN (SELECT * FROM notes n WHERE EXISTS (SELECT 1 FROM visits v WHERE v.day = n.stars)) n ON n.who = p.id
        """,
    ),
    "values of the optional side": (
        """
        SELECT p.id, n.note FROM people p LEFT JOIN notes n ON n.who = p.boss AND n.stars NOT IN (SELECT wage FROM wages)
            AND n.stars >= (SELECT min(day) FROM visits) AND (n.note = 'a' OR stars IN (SELECT age / 10 FROM people))
        """,
        """
        SELECT p.id, n.note FROM people p LEFT JOIN (SELECT * FROM notes WHERE stars NOT IN (SELECT wage FROM wages)
            AND stars >= (SELECT min(day) FROM visits) AND (note = 'a' OR stars IN (SELECT age / 10 FROM people))) n
        ON n.who = p.boss
        """,
    ),
    "of the side that stays": (
        """
        SELECT p.id, n.note FROM people p LEFT JOIN notes n ON n.who = p.boss
            AND EXISTS (SELECT 1 FROM wages w WHERE w.id = p.id AND w.wage > 1)
        """,
        """
        SELECT p.id, n.note FROM (SELECT *, EXISTS (SELECT 1 FROM wages w WHERE w.id = p.id AND w.wage > 1) AS k FROM people p) p
        LEFT JOIN notes n ON n.who = p.boss AND p.k
        """,
    ),
    "of the side that stays, by its key": (
        "SELECT n.note, p.age FROM notes n LEFT JOIN people p ON p.id = n.who AND n.stars NOT IN (SELECT wage FROM wages)",
        """
        SELECT n.note, p.age FROM (SELECT *, stars NOT IN (SELECT wage FROM wages) AS k FROM notes) n
        LEFT JOIN people p ON p.id = n.who AND n.k
        """,
    ),
    "of none": (
        "SELECT p.id, w.wage FROM people p LEFT JOIN wages w ON p.id = w.id AND EXISTS (SELECT 1 FROM notes WHERE stars = 3)",
        """
        SELECT p.id, w.wage FROM people p
        LEFT JOIN (SELECT * FROM wages WHERE EXISTS (SELECT 1 FROM notes WHERE stars = 3)) w ON p.id = w.id
        """,
    ),
    "right": (
        """
        SELECT p.id, n.note FROM notes n RIGHT JOIN people p ON p.id = n.who AND p.age > (SELECT avg(age) FROM people)
            AND n.note IN (SELECT lower(substr(city, 1, 0)) || 'a' FROM cities)
        """,
        """
        SELECT p.id, n.note FROM (SELECT *, age > (SELECT avg(age) FROM people) AS k FROM people) p
        LEFT JOIN (SELECT * FROM notes WHERE note IN (SELECT 'a' FROM cities)) n ON p.id = n.who AND p.k
        """,
    ),
    "full": (
        """
        SELECT p.id, n.note FROM people p FULL JOIN notes n ON p.boss = n.who AND p.id IN (SELECT id FROM wages)
            AND EXISTS (SELECT 1 FROM visits v WHERE v.day = n.stars)
        """,
        """
        SELECT p.id, n.note FROM (SELECT *, id IN (SELECT id FROM wages) AS k FROM people) p
        FULL JOIN (SELECT *, EXISTS (SELECT 1 FROM visits v WHERE v.day = n.stars) AS k FROM notes n) n
        ON p.boss = n.who AND p.k AND n.k
        """,
    ),
    "two, grouped": (
        """
        SELECT p.id, count(n.note) AS n, max(w.wage) AS w FROM people p
        LEFT JOIN notes n ON n.who = p.id AND n.stars IN (SELECT day FROM visits WHERE spent > 2)
        LEFT JOIN wages w ON w.id = p.boss AND p.age <> (SELECT max(age) FROM people) WHERE p.age > 10 GROUP BY p.id
        """,
        """
        SELECT p.id, count(n.note) AS n, max(w.wage) AS w
        FROM (SELECT *, age <> (SELECT max(age) FROM people) AS k FROM people) p
        LEFT JOIN (SELECT * FROM notes WHERE stars IN (SELECT day FROM visits WHERE spent > 2)) n ON n.who = p.id
        LEFT JOIN wages w ON w.id = p.boss AND p.k WHERE p.age > 10 GROUP BY p.id
        """,
    ),
    "semi": (
        """
        SELECT p.id FROM people p LEFT SEMI JOIN notes n ON p.boss = n.who AND n.stars IN (SELECT day FROM visits)
        """,
        "SELECT p.id FROM people p SEMI JOIN (SELECT * FROM notes WHERE stars IN (SELECT day FROM visits)) n ON p.boss = n.who",
    ),
    "anti": (
        "SELECT p.id FROM people p LEFT ANTI JOIN notes n ON p.boss = n.who AND p.id NOT IN (SELECT id FROM wages)",
        """
        SELECT p.id FROM (SELECT *, id NOT IN (SELECT id FROM wages) AS k FROM people) p
        ANTI JOIN notes n ON p.boss = n.who AND p.k
        """,
    ),
}

LATERAL: Queries = {
    "rows": "SELECT p.id, n.note FROM people p, LATERAL (SELECT note FROM notes WHERE who = p.id) n",
    "left": """
        SELECT p.id, n.note, n.s FROM people p
        LEFT JOIN LATERAL (SELECT note, stars + 1 AS s FROM notes WHERE who = p.boss AND stars > 1) n ON true WHERE p.age > 10
    """,
    "null is equal": """
        SELECT p.id, x.note FROM people p, LATERAL (SELECT note FROM notes n WHERE n.who IS NOT DISTINCT FROM p.boss) x
    """,
    "star": "SELECT p.id, x.* FROM people p JOIN LATERAL (SELECT * FROM notes n WHERE n.who = p.id) x ON x.stars > 1",
    "unequal": "SELECT p.id, x.note FROM people p JOIN LATERAL (SELECT note FROM notes n WHERE n.stars > p.boss) x ON x.note <> 'b'",
    "unequal left": """
        SELECT p.id, x.note FROM people p
        LEFT JOIN LATERAL (SELECT note FROM notes n WHERE n.who = p.boss AND n.stars < p.id) x ON true
    """,
    "aggregates": """
        SELECT p.id, x.n, x.m, x.k + 1 AS k FROM people p,
        LATERAL (SELECT count(*) AS n, max(stars) AS m, count(*) * 2 AS k FROM notes WHERE who = p.boss) x
    """,
    "aggregates left": """
        SELECT p.id, x.n FROM people p
        LEFT JOIN LATERAL (SELECT count(*), max(stars) FROM notes WHERE who = p.id HAVING count(*) > 1) x(n, m) ON true
    """,
    "unequal aggregates": """
        SELECT p.id, x.n FROM people p, LATERAL (SELECT count(*) AS n FROM notes n WHERE n.stars < p.boss) x WHERE x.n < 2
    """,
    "aggregates of all": "SELECT p.id, x.m FROM people p, LATERAL (SELECT max(size) AS m FROM cities) x",
    "groups": """
        SELECT p.id, x.place, x.n FROM people p,
        LATERAL (SELECT place, count(*) AS n FROM visits v WHERE v.who = p.boss GROUP BY place HAVING count(*) < 3) x
    """,
    "groups by what is equal": """
        SELECT p.id, x.who, x.n FROM people p
        LEFT JOIN LATERAL (SELECT who, count(*) AS n FROM notes n WHERE n.who = p.boss GROUP BY who) x ON true
    """,
    "first": """
        SELECT p.id, x.note, x.stars FROM people p CROSS JOIN
        LATERAL (SELECT note, stars FROM notes n WHERE n.who = p.id ORDER BY stars DESC, note LIMIT 1) x
    """,
    "first two": """
        SELECT p.id, x.note, x.stars FROM people p
        LEFT JOIN LATERAL (SELECT note, stars FROM notes n WHERE n.who = p.boss ORDER BY stars, note LIMIT 2) x ON true
    """,
    "first unequal": """
        SELECT p.id, x.day FROM people p,
        LATERAL (SELECT day, place FROM visits v WHERE v.who = p.boss AND v.day < p.id ORDER BY day DESC, spent LIMIT 1) x
    """,
    "first group": """
        SELECT p.id, x.place, x.n FROM people p, LATERAL (
            SELECT place, count(*) AS n FROM visits v WHERE v.who = p.boss GROUP BY place ORDER BY n DESC, place LIMIT 1) x
    """,
    "by the whole key": """
        SELECT n.note, x.age, x.more FROM notes n LEFT JOIN LATERAL (
            SELECT age, age + n.stars AS more FROM people p WHERE p.id = n.who AND p.age > n.stars * 10) x ON true
    """,
    "by the whole key, inner": """
        SELECT n.note, x.more FROM notes n, LATERAL (SELECT 7 AS more FROM people p WHERE p.id = n.who AND p.age > n.stars * 10) x
    """,
    "two, then a table": """
        SELECT p.id, x.size, y.note, w.wage FROM people p JOIN LATERAL (SELECT size FROM cities c WHERE c.city = p.city) x ON true
        LEFT JOIN LATERAL (SELECT note FROM notes n WHERE n.who = x.size) y ON true JOIN wages w ON w.id = p.id WHERE w.wage > 1
    """,
    "values": "SELECT p.id, v.c FROM people p, LATERAL (VALUES (p.boss), (p.age)) v(c)",
    "names": "SELECT p.id, x.y FROM people p, LATERAL (SELECT p.age + 1 AS y) x WHERE x.y > 21",
    "none before": "SELECT x.y, p.id FROM LATERAL (SELECT note AS y, who FROM notes) x JOIN people p ON p.id = x.who",
    "union": "SELECT p.id, x.y FROM people p, LATERAL (SELECT note AS y FROM notes UNION ALL SELECT country FROM cities) x",
    "a column twice": """
        SELECT p.id, x.note FROM people p, LATERAL (SELECT note FROM notes n WHERE n.who = p.boss AND n.who = p.id) x
    """,
    "a column twice, left": """
        SELECT p.id, x.note FROM people p
        LEFT JOIN LATERAL (SELECT note FROM notes n WHERE n.who = p.boss AND n.who = p.id) x ON true
    """,
    "groups by a column twice": """
        SELECT p.id, x.stars, x.n FROM people p,
        LATERAL (SELECT stars, count(*) AS n FROM notes n WHERE n.who = p.boss AND n.who = p.id GROUP BY stars) x
    """,
    "first by a column twice": """
        SELECT p.id, x.note FROM people p,
        LATERAL (SELECT note FROM notes n WHERE n.who = p.boss AND n.who = p.id ORDER BY note LIMIT 1) x
    """,
    "the key before and more": """
        SELECT p.id, x.place FROM people p, LATERAL (SELECT place FROM visits v WHERE v.who = p.id AND v.place = city) x
    """,
    "the whole key and more": """
        SELECT n.note, x.age FROM notes n
        LEFT JOIN LATERAL (SELECT age, city FROM people p WHERE p.id = n.who AND p.boss = n.stars) x ON true
    """,
    "having an alias": """
        SELECT p.id, x.c FROM people p,
        LATERAL (SELECT place, count(*) AS c FROM visits v WHERE v.who = p.boss GROUP BY place HAVING c < 2) x
    """,
    "having a subquery": """
        SELECT p.id, x.c FROM people p, LATERAL (SELECT place, count(*) AS c FROM visits v
            WHERE v.who = p.boss GROUP BY place HAVING count(*) < (SELECT max(size) FROM cities)) x
    """,
    "columns of both": "SELECT p.id, x.y FROM people p, LATERAL (SELECT stars + p.age AS y FROM notes n WHERE n.who = p.boss) x",
    "columns of both, left": """
        SELECT p.id, x.y, x.city FROM people p
        LEFT JOIN LATERAL (SELECT coalesce(stars, p.age) AS y, p.city FROM notes n WHERE n.who = p.boss AND stars < id) x ON true
    """,
    "groups of both": """
        SELECT p.id, x.stars, x.y FROM people p,
        LATERAL (SELECT stars, sum(stars * p.age) AS y FROM notes n WHERE n.who = p.boss GROUP BY stars) x
    """,
    "nearest": """
        SELECT p.id, x.note FROM people p,
        LATERAL (SELECT note FROM notes n WHERE n.who = p.boss ORDER BY abs(n.stars - p.id), note LIMIT 1) x
    """,
    "distinct": """
        SELECT p.id, x.y FROM people p, LATERAL (SELECT DISTINCT stars AS y FROM notes n WHERE n.who = p.boss) x
    """,
    "distinct, computed with both, left": """
        SELECT p.id, x.y FROM people p
        LEFT JOIN LATERAL (SELECT DISTINCT day % 2 + p.age AS y FROM visits v WHERE v.who = p.boss) x ON true
    """,
    "first of distinct ones": """
        SELECT p.id, x.y FROM people p,
        LATERAL (SELECT DISTINCT n.stars % 3 AS y FROM notes n WHERE n.who = p.boss ORDER BY n.stars % 3 DESC LIMIT 2) x
    """,
    "windows": """
        SELECT p.id, x.day, x.r, x.s FROM people p, LATERAL (SELECT day, row_number() OVER (ORDER BY day DESC) AS r,
            sum(v.spent) OVER (PARTITION BY v.place ORDER BY day) AS s FROM visits v WHERE v.who = p.boss) x
    """,
    "windows named, computed with both, left": """
        SELECT p.id, x.day, x.r FROM people p LEFT JOIN LATERAL (SELECT day, rank() OVER w AS r FROM visits v
            WHERE v.who = p.boss AND v.day <= p.id WINDOW w AS (ORDER BY abs(v.day - p.id))) x ON true
    """,
    "windows of groups": """
        SELECT p.id, x.place, x.r FROM people p, LATERAL (SELECT place, rank() OVER (ORDER BY count(*) DESC) AS r
            FROM visits v WHERE v.who = p.boss GROUP BY place) x
    """,
    "qualify": """
        SELECT p.id, x.day FROM people p, LATERAL (SELECT day FROM visits v WHERE v.who = p.boss
            QUALIFY row_number() OVER (PARTITION BY place ORDER BY day DESC) <= 1) x
    """,
    "subqueries in its columns": """
        SELECT p.id, x.c, x.b FROM people p, LATERAL (SELECT note, (SELECT count(*) FROM visits v WHERE v.who = n.who) AS c,
            n.stars IN (SELECT wage FROM wages) AS b FROM notes n WHERE n.who = p.boss) x
    """,
    "a subquery in the column of a row": """
        SELECT n.note, x.c FROM notes n
        LEFT JOIN LATERAL (SELECT p.age + (SELECT count(*) FROM visits v WHERE v.who = p.boss) AS c FROM people p WHERE p.id = n.who) x
        ON true
    """,
    "second": """
        SELECT p.id, x.note FROM people p
        LEFT JOIN LATERAL (SELECT note FROM notes n WHERE n.who = p.boss ORDER BY stars, note LIMIT 1 OFFSET 1) x ON true
    """,
    "behind the first": """
        SELECT p.id, x.day FROM people p, LATERAL (SELECT day FROM visits v WHERE v.who = p.boss ORDER BY day OFFSET 1) x
    """,
    "none": "SELECT p.id, x.note FROM people p LEFT JOIN LATERAL (SELECT note FROM notes n WHERE n.who = p.id ORDER BY note LIMIT 0) x ON true",
    "ties": (
        """
        SELECT p.id, x.note FROM people p, LATERAL (SELECT note FROM notes n WHERE n.who = p.boss
            ORDER BY stars DESC FETCH FIRST ROW WITH TIES) x
        """,
        """
        SELECT p.id, x.note FROM people p, LATERAL (SELECT note FROM notes n WHERE n.who = p.boss
            QUALIFY rank() OVER (ORDER BY stars DESC) = 1) x
        """,
    ),
    "an alias hides a column of the rows before": """
        SELECT p.id, x.age FROM people p,
        LATERAL (SELECT stars AS age FROM notes n WHERE n.who = p.boss ORDER BY age, note LIMIT 1) x
    """,
    "with": (
        """
        SELECT p.id, l.note, l.x FROM people p, LATERAL (
            WITH w AS (SELECT max(wage) AS m FROM wages)
            SELECT DISTINCT note, (SELECT m FROM w) AS x FROM notes n WHERE n.who = p.id
        ) l
        """,
        """
        SELECT p.id, l.note, (SELECT max(wage) FROM wages) AS x FROM people p, LATERAL (
            SELECT DISTINCT note FROM notes n WHERE n.who = p.id
        ) l
        """,
    ),
}


def parts(queries: Queries, size: int = 8) -> list[Queries]:
    """A few queries each: a driver of all would be slow."""
    names = sorted(queries)
    return [{name: queries[name] for name in names[at : at + size]} for at in range(0, len(names), size)]


@pytest.mark.parametrize("queries", quick_first(parts(ONE_TABLE)))
def test_queries_of_one_table(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(3), lively=True)


@pytest.mark.parametrize("queries", quick_first(parts(JOINS)))
def test_joins(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(7), lively=True)


@pytest.mark.parametrize("queries", quick_first(parts(GROUPS)))
def test_groups(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(1), lively=True, still=["global of few"])


@pytest.mark.parametrize("queries", quick_first(parts(MANY_TO_MANY, 5)))
def test_joins_on_other_columns(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(4), lively=True)


@pytest.mark.parametrize("queries", quick_first(parts(STAR_JOINS, 6)))
def test_several_lookups_for_the_same_rows(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(11), lively=True)


def test_lookups_for_the_same_rows_take_three_rounds_and_a_chain_two_for_each(spark: SparkSession) -> None:
    tables = tables_of(spark)
    rounds = {
        name: ts.plan_text(ts.sql(query, **tables).to(ts.to_memory("rounds"))).split()[1]  # type: ignore[arg-type]
        for name, query in STAR_JOINS.items()
    }
    assert rounds == {
        "three": "3",
        "inner": "3",
        "inner with fewer rows": "4",
        "one table twice": "4",
        "then a further one": "5",
        "conditions": "5",
        "grouped": "5",
    }


@pytest.mark.parametrize("queries", quick_first(parts(PRODUCTS, 6)))
def test_joins_that_compare_nothing_for_equality(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(4), lively=True)


@pytest.mark.parametrize("queries", quick_first(parts(SUBQUERIES)))
def test_subqueries(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(16), lively=True)


@pytest.mark.parametrize("queries", quick_first(parts(FIRST_OF_SUBQUERIES)))
def test_first_rows_of_subqueries(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(5, most=14), lively=True)


@pytest.mark.parametrize("queries", quick_first(parts({**UNEQUAL, **ROWS_NOT_IN}, 6)))
def test_subqueries_with_inequalities(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(1), lively=True)


def test_exists_looks_up_a_row_or_the_least_and_greatest_of_a_group(spark: SparkSession) -> None:
    tables = tables_of(spark)
    for rounds, queries in EXISTS.items():
        check(spark, queries, changes(5))
        for query in queries.values():
            plan = ts.plan_text(ts.sql(str(query), **tables).to(ts.to_memory("rounds")))
            assert plan.split()[1] == rounds, query


@pytest.mark.parametrize("queries", quick_first(parts(WITH_ANY_ROW, 10)))
def test_exists_computes_values_for_rows_that_meet_alone(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(5, 4), lively=True)


@pytest.mark.parametrize("queries", quick_first(parts(COMBINED_SUBQUERIES, 7)))
def test_subqueries_that_are_combined(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(5, most=14), lively=True)


@pytest.mark.parametrize("queries", quick_first(parts(BELOW_FROM, 7)))
def test_subqueries_in_from_of_subqueries(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(1, most=14), lively=True)


@pytest.mark.parametrize("queries", quick_first(parts(IN_ON, 6)))
def test_subqueries_in_on_of_joins_that_keep_rows(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(5, most=14), lively=True)


@pytest.mark.parametrize("queries", quick_first(parts(LATERAL)))
def test_lateral_subqueries(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(1, most=14), lively=True)


@pytest.mark.parametrize(
    "level",
    [
        "{column} IN (SELECT max({one}.age) FROM people {one} WHERE {one}.boss = {around}.id{more} GROUP BY {one}.city)",
        "{column} > (SELECT max({one}.age) FROM people {one} WHERE {one}.boss = {around}.id{more})",
        "EXISTS (SELECT 1 FROM people {one} WHERE {one}.boss = {around}.id{more})",
    ],
)
def test_a_subquery_in_a_subquery_is_read_once(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    count, read = [0], subqueries.read

    def counted(*given: Any) -> Any:
        count[0] += 1
        return read(*given)

    monkeypatch.setattr(subqueries, "read", counted)
    query = ""
    for number in (2, 1, 0):
        around = f"p{number}"
        said = level.format(one=f"p{number + 1}", around=around, column=f"{around}.age", more=query)
        query = f" AND {said}"
    ts.sql(f"SELECT p0.id FROM people p0 WHERE {said}", people=tables_of(spark)["people"])
    assert count == [3]


@pytest.mark.parametrize("queries", quick_first(parts(SETS)))
def test_sets(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(6), lively=True)


@pytest.mark.parametrize("queries", quick_first(parts(FIRST)))
def test_first_rows(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(1), lively=True, still=["limit 0"])


@pytest.mark.parametrize("queries", quick_first(parts(MEANING)))
def test_what_is_written_has_its_meaning(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(9), lively=True)


@pytest.mark.parametrize("queries", quick_first(parts(OVER)))
def test_window_functions(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(8), lively=True)


@pytest.mark.parametrize("queries", quick_first(parts(ELEMENTS)))
def test_elements_of_rows(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(1), lively=True, still=["constants never"])


@pytest.mark.parametrize("queries", quick_first(parts(FROM, 12)))
def test_what_from_reads(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(20), lively=True)
