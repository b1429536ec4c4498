"""SQL as users of other engines write it: tables equal DuckDB's after each micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import tablestream as ts
from tests.marks import quick_first
from tests.sql.test_queries import Queries, parts
from tests.sql.world import changes, check, compare, tables_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUPS: Queries = {
    "lists of no rows": (
        "SELECT size(collect_list(age)) AS n, size(collect_set(age)) AS m FROM people WHERE age > 100",
        "SELECT 0 AS n, 0 AS m",
    ),
    "lists of no rows around": (
        "SELECT id, size((SELECT collect_list(stars) FROM notes n WHERE n.who = p.id)) AS s FROM people p",
        "SELECT id, (SELECT count(stars) FROM notes n WHERE n.who = p.id) AS s FROM people p",
    ),
    "all": "SELECT city, age + 1 AS x, count(*) + max(age) AS n, 9 AS nine FROM people GROUP BY ALL HAVING n > 1",
    "all of none": "SELECT count(*) AS n, 5 + sum(age) AS s FROM people GROUP BY ALL",
    "all and windows": (
        "SELECT city, count(*) AS n, rank() OVER (ORDER BY count(*), city) AS r FROM people GROUP BY ALL",
        "SELECT city, count(*) AS n, rank() OVER (ORDER BY count(*), city) AS r FROM people GROUP BY city",
    ),
    "a constant": "SELECT 'x' AS k, count(*) AS n FROM people WHERE age > 20 GROUP BY k",
    "null": "SELECT count(*) AS n, sum(age) AS s FROM people WHERE age > 20 GROUP BY NULL",
    "null of all": "SELECT NULL AS a, max(age) IS NULL AS b, count(*) AS n FROM people GROUP BY ALL",
    "null and its type": (
        "SELECT count(*) AS n, typeof(coalesce(NULL, 5)) AS t FROM people GROUP BY NULL HAVING max(age) IS NOT NULL",
        "SELECT count(*) AS n, 'int' AS t FROM people GROUP BY NULL HAVING max(age) IS NOT NULL",
    ),
    "true": "SELECT count(*) AS n, (count(*) > 2) IS TRUE AS b FROM people GROUP BY true",
    "sets of constants": "SELECT true AS t, 'x' AS x, count(*) AS n FROM people GROUP BY GROUPING SETS ((true), ('x'), ())",
    "sums in sums": """
        SELECT age + 1 + boss AS x, age + 1 + count(*) * 2 AS n FROM people GROUP BY age + 1, boss
        HAVING age + 1 + boss + sum(id) > 20
    """,
    "no column": "SELECT count(*) AS n FROM people WHERE age > 100 GROUP BY ()",
    "columns in parentheses": "SELECT city, age, count(*) AS n FROM people GROUP BY (city, age)",
    "a case": """
        SELECT CASE WHEN age > 20 THEN 'old' ELSE city END AS k, count(*) AS n FROM people
        GROUP BY CASE WHEN age > 20 THEN 'old' ELSE city END
    """,
    "sets without a column of the groups": (
        "SELECT city, boss, count(*) AS n FROM people GROUP BY city, boss GROUPING SETS (city)",
        "SELECT city, NULL AS boss, count(*) AS n FROM people GROUP BY city",
    ),
    "one set": """
        SELECT city, grouping(city) AS g, count(*) AS n FROM people GROUP BY GROUPING SETS (city) HAVING grouping(city) = 0
    """,
    "counts of several columns": (
        "SELECT city, count(age, id, 1, age) AS n, count(DISTINCT age, 1, age) AS d FROM people GROUP BY city",
        "SELECT city, count(age) AS n, count(DISTINCT age) AS d FROM people GROUP BY city",
    ),
    "sets of no column": (
        "SELECT count(*) AS n FROM people GROUP BY GROUPING SETS ((), ())",
        "SELECT count(*) AS n FROM people HAVING n > 0 UNION ALL SELECT count(*) AS n FROM people HAVING n > 0",
    ),
    "whether any": (
        "SELECT city, any(age > 20) AS x, some(age > 20) = any(boss = 2) AS y FROM people GROUP BY city HAVING any(id > 1)",
        """
        SELECT city, bool_or(age > 20) AS x, bool_or(age > 20) = bool_or(boss = 2) AS y FROM people GROUP BY city
        HAVING bool_or(id > 1)
        """,
    ),
    "whether any of distinct ones": (
        """
        SELECT city, any(DISTINCT age > 20) AS x, some(DISTINCT age > 30) AS y, every(DISTINCT age > 20) AS z
        FROM people GROUP BY city HAVING any(DISTINCT id > 1)
        """,
        """
        SELECT city, bool_or(age > 20) AS x, bool_or(age > 30) AS y, bool_and(age > 20) AS z
        FROM people GROUP BY city HAVING bool_or(id > 1)
        """,
    ),
    "having alone": "SELECT 1 AS one FROM people HAVING count(*) > 2",
    "aggregates in a subquery's condition": """
        SELECT city, (SELECT count(*) FROM notes n WHERE n.stars < count(p.id)) AS c FROM people p GROUP BY city
        HAVING EXISTS (SELECT 1 FROM wages w WHERE w.id >= sum(p.age) / 20)
    """,
}

FIRST: Queries = {
    "offset": "SELECT id, age FROM people ORDER BY age DESC NULLS FIRST, id OFFSET 2 ROWS",
    "computed numbers": "SELECT id, age FROM people ORDER BY age DESC, id LIMIT (1 + 1) OFFSET 2 - 1",
    "offset of groups": "SELECT city, count(*) AS n FROM people GROUP BY city ORDER BY 2 DESC, city NULLS LAST OFFSET 1",
    "offset of distinct": "SELECT DISTINCT age FROM people ORDER BY age OFFSET 1",
    "of distinct expressions": """
        SELECT DISTINCT p.city, p.age + 1 AS x FROM people p ORDER BY p.city DESC NULLS LAST, p.age + 1 LIMIT 2
    """,
    "offset of a union": "SELECT id FROM people UNION ALL SELECT id FROM wages ORDER BY id OFFSET 3",
    "offset of first": "SELECT id FROM (SELECT id, age FROM people ORDER BY age, id LIMIT 4) ORDER BY id OFFSET 1",
    "offset of one row": "SELECT count(*) AS n FROM people ORDER BY n OFFSET 0",
    "all columns": "SELECT age, id FROM people ORDER BY ALL DESC LIMIT 2",
    "by a window": "SELECT id FROM people ORDER BY sum(age) OVER (PARTITION BY city ORDER BY id), id LIMIT 2",
    "fetch": (
        "SELECT id, age FROM people ORDER BY age, id OFFSET 1 ROW FETCH NEXT 2 ROWS ONLY",
        "SELECT id, age FROM people ORDER BY age, id LIMIT 2 OFFSET 1",
    ),
    "fetch a row": (
        "SELECT id FROM people WHERE EXISTS (SELECT 1 FROM wages FETCH FIRST ROW ONLY) ORDER BY age, id FETCH FIRST ROW ONLY",
        "SELECT id FROM people WHERE EXISTS (SELECT 1 FROM wages) ORDER BY age, id LIMIT 1",
    ),
    "ties": (
        "SELECT id, age FROM people ORDER BY age DESC FETCH FIRST 2 ROWS WITH TIES",
        "SELECT id, age FROM people QUALIFY rank() OVER (ORDER BY age DESC) <= 2",
    ),
    "ties behind others": (
        "SELECT id, age FROM people ORDER BY age OFFSET 1 ROW FETCH NEXT 1 ROW WITH TIES",
        """
        SELECT id, age FROM people
        QUALIFY rank() OVER (ORDER BY age) <= 2 AND row_number() OVER (ORDER BY age, id) > 1
        """,
    ),
    "first of each": "SELECT DISTINCT ON (city) city, id, age FROM people ORDER BY city, age DESC, id",
    "first of each place": "SELECT DISTINCT ON (1, b) age % 20 AS k, boss AS b, id FROM people ORDER BY k, 2, id",
    "first ones of each": "SELECT DISTINCT ON (age) age, id FROM people ORDER BY age DESC NULLS LAST, id LIMIT 2",
    "first of each in a condition": """
        SELECT id FROM people WHERE id IN (SELECT DISTINCT ON (who) day FROM visits ORDER BY who, day DESC)
    """,
    "first of each of groups": "SELECT DISTINCT ON (n) city, count(*) AS n FROM people GROUP BY city ORDER BY n, city",
}

VALUES_OF_SUBQUERIES: Queries = {
    "any": "SELECT id FROM people WHERE age = ANY (SELECT stars * 10 FROM notes) OR age = 40",
    "not any": "SELECT id FROM people WHERE NOT age = ANY (SELECT stars * 10 FROM notes WHERE stars IS NOT NULL)",
    "not of all": "SELECT id, age <> ALL (SELECT stars * 10 FROM notes n WHERE n.who = p.id) AS x FROM people p",
    "less than any": "SELECT id, age < ANY (SELECT stars * 10 FROM notes) AS x FROM people",
    "greater than any": "SELECT id, age > ANY (SELECT stars * 10 FROM notes n WHERE n.who <> p.id) AS x FROM people p",
    "all": "SELECT id FROM people WHERE age <= ALL (SELECT stars * 20 FROM notes WHERE stars IS NOT NULL)",
    "all where": "SELECT id FROM people p WHERE id >= ALL (SELECT day FROM visits v WHERE v.who = p.id)",
    "all with more": "SELECT note, stars > ALL (SELECT wage FROM wages w WHERE w.id < n.who) AS x FROM notes n",
    "equal to all": "SELECT id, boss = ALL (SELECT stars FROM notes n WHERE stars > 1) AS x FROM people p",
    "unequal to any": "SELECT id, boss <> ANY (SELECT x FROM (VALUES (1), (2), (3), (4)) AS v (x)) AS x FROM people p",
    "groups": """
        SELECT city, count(*) AS n FROM people GROUP BY city HAVING count(*) >= ALL (SELECT count(*) FROM people GROUP BY city)
    """,
}

GROUPS_OF_SUBQUERIES: Queries = {
    "having": "SELECT id, (SELECT sum(stars) FROM notes n WHERE n.who = p.boss HAVING count(*) > 1) AS x FROM people p",
    "having an alias": "SELECT id, (SELECT count(*) AS c FROM notes n WHERE n.who = p.id HAVING c <> 1) AS x FROM people p",
    "no rows have no group": """
        SELECT id, (SELECT count(*) FROM notes n WHERE n.who = p.boss GROUP BY n.who) AS x,
            (SELECT count(*) FROM notes n WHERE n.who = p.boss) AS y FROM people p
    """,
    "with its group": """
        SELECT id, (SELECT count(*) * 10 + n.who FROM notes n WHERE n.who = p.boss GROUP BY n.who HAVING max(stars) > 1) AS x
        FROM people p
    """,
    "more than equal": """
        SELECT id, (SELECT max(stars) FROM notes n WHERE n.who = p.boss AND n.stars <= p.id GROUP BY who) AS x FROM people p
    """,
    "more than equal, with its group": """
        SELECT id, (SELECT max(stars) + who FROM notes n WHERE n.who = p.boss AND n.stars <= p.id GROUP BY who) AS x FROM people p
    """,
    "exists, having an alias": """
        SELECT id FROM people p WHERE EXISTS (SELECT count(*) AS c, n.who FROM notes n WHERE n.who = p.id GROUP BY n.who HAVING c > 1)
    """,
    "exists": """
        SELECT id FROM people p
        WHERE EXISTS (SELECT n.who FROM notes n WHERE n.who = p.boss GROUP BY n.who HAVING count(*) > 1)
    """,
    "not exists": """
        SELECT id, NOT EXISTS (SELECT 1 FROM notes n WHERE n.who = p.boss HAVING count(*) = 1) AS x FROM people p
        WHERE NOT EXISTS (SELECT max(stars) FROM notes n WHERE n.who = p.id GROUP BY n.who HAVING max(stars) > 2)
    """,
    "a row with columns around it": """
        SELECT id, (SELECT coalesce(b.age, 1) + p.age FROM people b WHERE b.id = p.boss) AS x,
            (SELECT p.city FROM wages WHERE wages.id = p.id AND wage < boss) AS y FROM people p
    """,
    "a row with tests beside it": """
        SELECT id, (SELECT b.age ISNULL OR p.age > 20 FROM people b WHERE b.id = p.boss) AS x,
            (SELECT b.age > 20 AND p.age IN (VALUES (20), (30)) FROM people b WHERE b.id = p.boss) AS y FROM people p
    """,
    "groups compared in ON": """
        SELECT id FROM people p WHERE boss IN (SELECT max(n.stars) FROM notes n JOIN people m ON n.who = m.id AND n.who = p.id
            GROUP BY m.city)
    """,
    "groups compared in ON and WHERE": """
        SELECT id FROM people p WHERE boss IN (SELECT max(n.stars) FROM notes n JOIN people m ON n.who = m.id AND n.who = p.boss
            WHERE n.stars > 0 GROUP BY m.city)
    """,
    "exists of other groups": "SELECT id FROM people p WHERE EXISTS (SELECT 1 FROM notes n WHERE n.who = p.id GROUP BY n.stars)",
    "exists of groups under other names": """
        SELECT id FROM people p WHERE EXISTS (SELECT upper(n.note) AS u, n.stars + 1 AS s, max(stars) FROM notes n
            WHERE n.who = p.id GROUP BY u, n.stars ORDER BY u, s LIMIT 2)
        OR EXISTS (SELECT p.age + n.stars AS x, n.* FROM notes n WHERE n.who = p.boss ORDER BY x LIMIT 1)
        OR EXISTS (SELECT n.stars + 1 AS k FROM notes n GROUP BY n.stars + 1 HAVING k > 3 ORDER BY k)
    """,
    "exists of all rows": "SELECT id FROM people p WHERE EXISTS (SELECT count(*) FROM notes n WHERE n.who = p.id) AND age > 20",
    "in": "SELECT id FROM people p WHERE boss IN (SELECT max(stars) FROM notes n WHERE n.who = p.id)",
    "not in": """
        SELECT id, boss NOT IN (SELECT max(stars) FROM notes n WHERE n.who = p.id GROUP BY n.who) AS x FROM people p
        WHERE (boss IN (SELECT count(*) FROM notes n WHERE n.who = p.id HAVING count(*) > 0)) IS NOT TRUE
    """,
    "in groups by more": """
        SELECT id, boss IN (SELECT max(stars) FROM notes n WHERE n.who = p.id GROUP BY n.note > 'b') AS x,
            boss NOT IN (SELECT min(stars) AS m FROM notes n WHERE n.who = p.id GROUP BY note HAVING m > 1) AS y
        FROM people p WHERE age NOT IN (SELECT max(stars) * 10 AS m FROM notes n WHERE n.stars = p.boss GROUP BY n.who, 'x')
    """,
    "less than any of groups by more": """
        SELECT id, boss < ANY (SELECT count(*) FROM notes n WHERE n.who = p.id AND n.note IN (SELECT min(note) FROM notes)
            GROUP BY stars) AS x FROM people p
    """,
    "exists of unions": """
        SELECT id FROM people p
        WHERE EXISTS (SELECT 1 FROM notes n WHERE n.who = p.id UNION ALL (SELECT 2 FROM wages w WHERE w.wage > p.boss))
        AND NOT EXISTS (SELECT count(*) FROM notes n WHERE n.who = p.boss GROUP BY stars HAVING count(*) > 1
            UNION SELECT w.id FROM wages w WHERE w.id = p.id AND w.wage = 1)
    """,
    "in unions": """
        SELECT id, boss IN (SELECT stars FROM notes n WHERE n.who = p.id UNION SELECT wage FROM wages WHERE id > 2
            UNION ALL (SELECT max(day) FROM visits v WHERE v.who = p.id)) AS x FROM people p
        WHERE boss NOT IN (SELECT wage FROM wages w WHERE w.id = p.id UNION ALL SELECT stars FROM notes n WHERE n.who = p.boss)
    """,
    "a group of a text": """
        SELECT id, (SELECT count(*) FROM notes n WHERE n.who = p.id GROUP BY 'x') AS x FROM people p
    """,
    "first ones of one group": """
        SELECT id, (SELECT sum(stars) FROM notes n WHERE n.who = p.id LIMIT 1) AS x,
            (SELECT count(*) FROM notes n WHERE n.who = p.boss ORDER BY 1 LIMIT 2) AS y FROM people p
        WHERE id IN (SELECT max(who) FROM notes n WHERE n.who = p.id LIMIT 1) OR age > 20
    """,
    "in stars": """
        SELECT id FROM people WHERE (id, age) IN (SELECT * FROM wages WHERE wage > 1)
        OR (boss, id) NOT IN (SELECT w.* FROM wages w JOIN notes n ON w.id = n.stars)
    """,
    "exists of groups by more": """
        SELECT id FROM people p
        WHERE NOT EXISTS (SELECT stars, count(*) FROM notes n WHERE n.who = p.boss GROUP BY stars HAVING count(*) > 1)
    """,
    "of groups": """
        SELECT boss, max(age) AS m FROM people p GROUP BY boss
        HAVING EXISTS (SELECT 1 FROM notes n WHERE n.who = p.boss GROUP BY n.who HAVING count(*) < 3)
    """,
}

CONSTANTS: Queries = {
    "of no type": (
        "SELECT id, a FROM people CROSS JOIN (VALUES (NULL), (NULL)) AS v(a)",
        "SELECT id, NULL::VARCHAR AS a FROM people CROSS JOIN (VALUES (NULL), (NULL)) AS v(a)",
    ),
    "as values": """
        SELECT c.city, (SELECT 5) AS five, (SELECT c.size + 1) AS s FROM people p RIGHT JOIN cities c ON c.city = p.city
    """,
    "in": "SELECT id FROM people WHERE age IN (VALUES (20), (30)) AND boss NOT IN (VALUES (1))",
    "pairs in": "SELECT id FROM people WHERE (age, boss) IN (VALUES (20, 1), (30, 2), (30, 3))",
    "pairs with nulls in": """
        SELECT id, (age, boss) IN (VALUES (20, 1), (30, 2), (40, NULL)) AS x FROM people
        WHERE age = 40 OR (age, boss) IN (VALUES (20, 1), (30, 2), (30, NULL))
    """,
    "pairs not in": """
        SELECT id FROM people
        WHERE (age, boss) NOT IN (VALUES (20, 1), (30, CAST(NULL AS INT))) OR NOT (age, boss) IN (VALUES (30, 1), (30, 2))
    """,
    "in a join in parentheses": """
        SELECT w.id, v.y FROM wages w FULL JOIN ((VALUES (1, 'a'), (2, 'b')) AS v(x, y) LEFT JOIN people p ON v.x = p.id)
        ON w.wage = v.x
    """,
    "in a query": "SELECT id FROM people WHERE age IN (SELECT v.a * 10 FROM (VALUES (2), (3), (4)) AS v(a) WHERE v.a > 2)",
    "named": """
        WITH v(a, b) AS (VALUES (20, 'x'), (30, 'y'), (99, 'z')) SELECT v.b, p.id FROM v LEFT JOIN people p ON p.age = v.a
    """,
    "first": "SELECT v.b, p.id FROM (VALUES (20, 'x'), (30, 'y')) AS v(a, b), people p WHERE p.age = v.a AND p.id > 1",
    "before right": """
        SELECT v.b, p.id FROM (VALUES (20, 'x'), (30, 'y')) AS v(a, b) RIGHT JOIN people p ON p.age = v.a WHERE v.b IS NULL
    """,
    "after left": "SELECT p.id, v.b FROM people p LEFT JOIN (VALUES (20, 'x'), (20, 'y')) AS v(a, b) ON p.age = v.a",
    "after right of any": """
        SELECT p.id, v.a FROM (SELECT id FROM people WHERE age > 30) p RIGHT JOIN (VALUES (1), (2)) AS v(a) ON true
    """,
    "after full of any": """
        SELECT p.id, v.a FROM (SELECT id FROM people WHERE age > 30) p FULL JOIN (VALUES (1), (2)) AS v(a) ON true
    """,
    "after full": "SELECT p.id, v.b FROM people p FULL JOIN (VALUES (20, 'x'), (99, 'y')) AS v(a, b) ON p.age = v.a",
    "groups of each": """
        SELECT v.a, count(p.id) AS n FROM (VALUES (20), (30), (99)) AS v(a) LEFT JOIN people p ON p.age = v.a GROUP BY v.a
    """,
    "using": """
        SELECT id, x, y FROM people LEFT JOIN (VALUES (1, 'a'), (2, 'b')) AS v(id, x) USING (id)
        NATURAL JOIN (VALUES (1, 'c'), (3, 'd')) AS w(id, y)
    """,
    "in a union": "SELECT city FROM people UNION SELECT 'Rome' UNION SELECT * FROM (VALUES ('Bonn'), ('Graz')) v(c)",
    "exists": "SELECT id FROM people WHERE EXISTS (VALUES (1), (2)) AND age = ANY (VALUES (20), (30))",
    "alone in a union": "SELECT city FROM people UNION VALUES ('Bonn'), ('Graz')",
    "without from": "SELECT id, (SELECT 1 + 1) AS two, EXISTS (SELECT 1 WHERE 1 = 2) AS no FROM people",
}

ELEMENTS: Queries = {
    "array": (
        "SELECT id, explode(array(age, boss)) AS age FROM people WHERE id > 1",
        "SELECT id, unnest([age, boss]) AS age FROM people WHERE id > 1",
    ),
    "no name": (
        "SELECT p.*, explode(array(age, boss)) FROM people p",
        "SELECT p.*, unnest([age, boss]) AS col FROM people p",
    ),
    "outer": (
        "SELECT id, explode_outer(CASE WHEN id > 2 THEN array(age, boss) END) AS x FROM people",
        "SELECT id, unnest(CASE WHEN id > 2 THEN [age, boss] ELSE [NULL] END) AS x FROM people",
    ),
    "places": (
        "SELECT id, posexplode(array(age, boss)), city FROM people",
        "SELECT id, 0 AS pos, age AS col, city FROM people UNION ALL SELECT id, 1, boss, city FROM people",
    ),
    "map": (
        "SELECT id, explode(map('a', age, 'b', boss)) AS (k, v) FROM people",
        "SELECT id, 'a' AS k, age AS v FROM people UNION ALL SELECT id, 'b', boss FROM people",
    ),
    "structs": (
        "SELECT inline(array(struct(id AS i, age AS a), struct(boss AS i, 1 AS a))) FROM people",
        "SELECT id AS i, age AS a FROM people UNION ALL SELECT boss, 1 FROM people",
    ),
    "first ones": (
        "SELECT DISTINCT explode(array(age, boss)) AS x FROM people ORDER BY x DESC LIMIT 2",
        "SELECT DISTINCT unnest([age, boss]) AS x FROM people ORDER BY x DESC LIMIT 2",
    ),
    "grouped": (
        "SELECT x, count(*) AS n FROM (SELECT explode(array(age, boss)) AS x FROM people) GROUP BY x",
        "SELECT x, count(*) AS n FROM (SELECT unnest([age, boss]) AS x FROM people) GROUP BY x",
    ),
    "in conditions": (
        """
        SELECT id FROM people WHERE id IN (SELECT explode(array(who, stars)) FROM notes)
        OR EXISTS (SELECT explode(filter(array(stars), x -> x > 2)) FROM notes WHERE note > 'c')
        """,
        """
        SELECT id FROM people WHERE id IN (SELECT unnest([who, stars]) FROM notes)
        OR EXISTS (SELECT 1 FROM notes WHERE note > 'c' AND stars > 2)
        """,
    ),
    "ordinality": (
        "SELECT id, x, i FROM people CROSS JOIN UNNEST(array(age, boss)) WITH ORDINALITY AS t(x, i)",
        "SELECT id, age AS x, 1 AS i FROM people UNION ALL SELECT id, boss, 2 FROM people",
    ),
    "left ordinality": (
        """
        SELECT id, x, t.ordinality AS i FROM people
        LEFT JOIN UNNEST(filter(array(age, boss), x -> x > 2)) WITH ORDINALITY AS t(x) ON true
        """,
        """
        SELECT id, x, i FROM people LEFT JOIN LATERAL (
            SELECT unnest(l) AS x, generate_subscripts(l, 1) AS i FROM (SELECT list_filter([age, boss], lambda e: e > 2) AS l)
        ) ON true
        """,
    ),
}


WINDOWS: Queries = {
    "frames in small letters": """
        select id, sum(age) over (partition by city order by id rows between 1 preceding and 2 following) as s,
            count(*) over (order by id range between 2 preceding and current row) as c,
            max(age) over (order by id rows between 2 following and unbounded following) as m from people
    """,
    "a partition by a column twice": """
        SELECT id, sum(age) OVER (PARTITION BY city, boss, city ORDER BY id) AS s FROM people
        QUALIFY row_number() OVER (PARTITION BY boss, boss ORDER BY id) <= 2
    """,
    "a bounded number of a partition by a column twice": """
        SELECT id, row_number() OVER (PARTITION BY city, city ORDER BY id) AS r FROM people QUALIFY r <= 1
    """,
    "whether all and any": (
        """
        SELECT id, every(age > 20) OVER (PARTITION BY city ORDER BY id) AS e, bool_or(age > 30) OVER (ORDER BY id) AS o,
            any(age > 20) FILTER (WHERE id > 1) OVER (PARTITION BY boss) AS a FROM people
        """,
        """
        SELECT id, bool_and(age > 20) OVER (PARTITION BY city ORDER BY id) AS e, bool_or(age > 30) OVER (ORDER BY id) AS o,
            bool_or(age > 20) FILTER (WHERE id > 1) OVER (PARTITION BY boss) AS a FROM people
        """,
    ),
    "a partition of null": "SELECT id, sum(age) OVER (PARTITION BY NULL ORDER BY id) AS s FROM people",
    "bounded behind the first of each": (
        """
        SELECT id FROM (
            SELECT DISTINCT ON (city) city, id, row_number() OVER (ORDER BY id) AS r FROM people ORDER BY city, id DESC
        ) WHERE r <= 2
        """,
        """
        SELECT id FROM (
            SELECT DISTINCT ON (city) city, id, row_number() OVER (ORDER BY id) AS r FROM people
            ORDER BY city NULLS FIRST, id DESC
        ) WHERE r <= 2
        """,
    ),
    "a number called like a column": (
        "SELECT id, row_number() OVER (ORDER BY id DESC) AS wage FROM wages QUALIFY wage <= 1",
        "SELECT * FROM (SELECT id, row_number() OVER (ORDER BY id DESC) AS wage FROM wages) WHERE wage <= 1",
    ),
    "a rank called like a column": (
        "SELECT id, rank() OVER (ORDER BY id DESC) AS wage FROM wages QUALIFY wage <= 1 AND count(*) OVER () > 1",
        """
        SELECT id, wage FROM (
            SELECT id, rank() OVER (ORDER BY id DESC) AS wage, count(*) OVER () AS n FROM wages
        ) WHERE wage <= 1 AND n > 1
        """,
    ),
    "a plain alias called like a column": (
        "SELECT id, -wage AS wage, rank() OVER (ORDER BY id) AS r FROM wages QUALIFY wage <= -2 AND r < 9",
        "SELECT * FROM (SELECT id, -wage AS wage, rank() OVER (ORDER BY id) AS r FROM wages) WHERE wage <= -2 AND r < 9",
    ),
    "a column beside a window": (
        "SELECT id, -wage AS wage, rank() OVER (ORDER BY id) AS r FROM wages QUALIFY wage <= 1 AND count(*) OVER () > 1",
        """
        SELECT id, -wage AS wage, r FROM (
            SELECT id, wage, rank() OVER (ORDER BY id) AS r, count(*) OVER () AS n FROM wages
        ) WHERE wage <= 1 AND n > 1
        """,
    ),
    "defaults of groups": "SELECT city, lag(count(*), 1, 0) OVER (ORDER BY city) AS d FROM people GROUP BY city",
    "ranks": "SELECT id, age FROM people QUALIFY rank() OVER (PARTITION BY city ORDER BY age) <= 2",
    "an alias": "SELECT id, dense_rank() OVER (PARTITION BY boss ORDER BY age DESC) AS d FROM people QUALIFY d <= 2 AND age > 20",
    "around": "SELECT id, r FROM (SELECT id, dense_rank() OVER (ORDER BY age) AS r FROM people) t WHERE t.r <= 2 AND id > 1",
    "several": """
        SELECT id, age FROM people QUALIFY sum(age) OVER (PARTITION BY city) > 20 AND rank() OVER (ORDER BY age) <= 3
    """,
    "names": (
        """
        SELECT id, sum(age) OVER u AS s FROM people QUALIFY rank() OVER (w ORDER BY age) <= 2 AND count(*) OVER w >= 1
        WINDOW w AS (PARTITION BY city), u AS (w ORDER BY id)
        """,
        """
        SELECT id, sum(age) OVER (PARTITION BY city ORDER BY id) AS s FROM people
        QUALIFY rank() OVER (PARTITION BY city ORDER BY age) <= 2 AND count(*) OVER (PARTITION BY city) >= 1
        """,
    ),
    "row numbers between": "SELECT id FROM people QUALIFY row_number() OVER (ORDER BY age, id) BETWEEN 2 AND 3",
    "defaults": """
        SELECT id, lag(age, 1, NULL) OVER (ORDER BY id) AS a, lag(city, 1, NULL) OVER (ORDER BY id) AS b,
            lag(CAST(age AS BIGINT), 2, -1) OVER (ORDER BY id) AS c, lead(paid, 1, 0) OVER (ORDER BY id) AS d,
            lead(age, 1, id) OVER (ORDER BY id) AS e FROM people
    """,
    "distances at the ends of 64 bits": (
        """
        SELECT id, count(*) OVER (
            ORDER BY CAST(id AS BIGINT) RANGE BETWEEN 9223372036854775807 PRECEDING AND 9223372036854775807 FOLLOWING
        ) AS n FROM people
        """,
        "SELECT id, count(*) OVER () AS n FROM people",
    ),
}

NAMES: Queries = {
    "a key's": "SELECT city AS row_key FROM people UNION ALL SELECT place FROM visits",
    "a text's": "SELECT 'x' AS x, count(*) AS n FROM people GROUP BY ALL",
    "of a table that is not read": (
        "WITH countries(id) AS (VALUES (1), (2)) SELECT w.id, p.city FROM countries w LEFT JOIN people p ON p.id = w.id"
    ),
    "spaces and dots": (
        """
        SELECT `p x`.`a b`, `p x`.`C.d` AS `E F`, sum(`q.q`) OVER (PARTITION BY `C.d` ORDER BY `a b`) AS `s s`
        FROM (SELECT id AS `a b`, city AS `C.d`, age AS `q.q` FROM people) AS `p x` WHERE `p x`.`C.d` <> 'x'
        """,
        """
        SELECT id AS "a b", city AS "E F", sum(age) OVER (PARTITION BY city ORDER BY id) AS "s s" FROM people
        WHERE city <> 'x'
        """,
    ),
    "groups with spaces": (
        "SELECT `a b`, count(*) AS `n.n` FROM (SELECT city AS `a b` FROM people) GROUP BY `a b` HAVING `n.n` > 1",
        """SELECT city AS "a b", count(*) AS "n.n" FROM people GROUP BY city HAVING count(*) > 1""",
    ),
    "upper case": "SELECT ID, P.City FROM PEOPLE P WHERE P.AGE > 20",
    "star but": ("SELECT * EXCEPT (age, paid) FROM people", "SELECT * EXCLUDE (age, paid) FROM people"),
    "star of a struct": (
        "SELECT s.*, id FROM (SELECT id, named_struct('x', age, 'y', city) AS s FROM people)",
        "SELECT age AS x, city AS y, id FROM people",
    ),
    "star of a struct of a table": (
        "SELECT n.s.* EXCEPT (x), n.id FROM (SELECT id, named_struct('x', age, 'y', city) AS s FROM people) n",
        "SELECT city AS y, id FROM people",
    ),
    "star of a struct that is called like a table": (
        "SELECT n.s.*, s.* FROM (SELECT id, named_struct('x', age) AS s FROM people) n JOIN wages s ON n.id = s.id",
        "SELECT age AS x, s.* FROM people n JOIN wages s ON n.id = s.id",
    ),
    "stars of structs in structs": (
        """
        SELECT n.a.b.*, a.c.* FROM (
            SELECT id, named_struct('b', named_struct('x', age), 'c', named_struct('y', city)) AS a FROM people
        ) n
        """,
        "SELECT age AS x, city AS y FROM people",
    ),
    "star of using": "SELECT * FROM people FULL JOIN wages USING (id)",
    "star of natural": "SELECT * FROM people NATURAL LEFT JOIN wages",
    "a query of the name of a table": "WITH people AS (SELECT id, age FROM people WHERE age > 20) SELECT * FROM people",
    "names within names": """
        WITH a AS (SELECT id FROM people) SELECT id FROM (WITH a AS (SELECT who AS id FROM visits) SELECT id FROM a)
        UNION ALL SELECT id FROM a
    """,
}

#: Names that only upper and lower case tell apart.
CASES: Queries = {
    "a bound of another column": (
        """
        SELECT id, R AS n FROM (SELECT id, row_number() OVER (ORDER BY age, id) AS R, boss AS r FROM people) WHERE r <= 2
        """,
        "SELECT id, n FROM (SELECT id, boss, row_number() OVER (ORDER BY age, id) AS n FROM people) WHERE boss <= 2",
    ),
    "the name of the key": (
        "SELECT x.ID + 1 AS a, x.id AS b FROM (SELECT id AS ID, age AS id FROM people) x",
        "SELECT id + 1 AS a, age AS b FROM people",
    ),
    "aliases in groups": (
        "SELECT x AS a, X AS b, n FROM (SELECT age AS x, boss AS X, count(*) AS n FROM people GROUP BY X, x)",
        "SELECT age AS a, boss AS b, count(*) AS n FROM people GROUP BY age, boss",
    ),
}

ROWS_WITH_NULLS: Queries = {
    "where": "SELECT id FROM people WHERE (city, boss) = (city, boss) AND (id > 1, age) = (true, age)",
    "joined": "SELECT p.id, n.note FROM people p JOIN notes n ON (p.boss, p.id > 0) = (n.who, n.note > ' ')",
    "left joined": "SELECT p.id, n.note FROM people p LEFT JOIN notes n ON (p.boss, 1) = (n.who, 1)",
    "of a key": "SELECT p.id, w.wage FROM people p LEFT JOIN wages w ON (p.boss, p.age) = (w.id, 10 + w.wage * 10)",
    "groups": """
        SELECT boss, count(*) AS n FROM people GROUP BY boss HAVING (boss, max(id) > 0) = (CAST(NULL AS INT), true)
    """,
    "around": """
        SELECT id FROM people p
        WHERE EXISTS (SELECT 1 FROM notes n WHERE (n.who, n.stars > 0) = (p.boss, true))
        OR (SELECT count(*) FROM people q WHERE (q.boss, q.city) = (p.boss, p.city)) > 1
    """,
}

EXPRESSIONS: Queries = {
    "rows": """
        SELECT p.id, w.wage FROM people p JOIN wages w ON (p.id, p.boss + 0) = (w.id, w.wage)
        WHERE (age, boss) IN ((20, 1), (30, 2), (40, 2), (30, 1)) OR (age, p.id) = (20, 2)
    """,
    "rows where": "SELECT p.id, w.wage FROM people p, wages w WHERE (p.id, p.age > 20) = (w.id, w.wage > 1)",
    "null tests": """
        SELECT id, age IS DISTINCT FROM 30 AS a, age ISNULL AS b, NOT age NOTNULL AS c, (age > 20) IS NOT TRUE AS d FROM people
        WHERE NOT boss ISNULL OR age NOTNULL
    """,
    "coalesced keys": "SELECT p.id, w.wage FROM people p LEFT JOIN wages w ON coalesce(p.boss, 1) = w.id",
    "nothing if": "SELECT id, NULLIF(age, 30) AS x, age / NULLIF(boss - 1, 0) AS d FROM people",
    "unlike types": """
        SELECT paid FROM people UNION ALL SELECT wage FROM wages UNION ALL SELECT spent FROM visits UNION ALL SELECT NULL
    """,
    "decimals": """
        SELECT city, sum(paid) AS s, min(paid) AS m, sum(paid * 2) AS d, count(DISTINCT paid) AS n FROM people GROUP BY city
    """,
    "times": """
        SELECT date_trunc('month', DATE '2024-01-30' + day) AS m, count(*) AS n, max(extract(day FROM DATE '2024-01-30' + day)) AS d
        FROM visits GROUP BY 1
    """,
    "collations": (
        "SELECT id FROM people WHERE city COLLATE UTF8_LCASE = 'rome'",
        "SELECT id FROM people WHERE lower(city) = 'rome'",
    ),
}


@pytest.mark.parametrize("queries", quick_first(parts(GROUPS, 12)))
def test_groups(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(1), lively=True, still=["lists of no rows", "no column"])


@pytest.mark.parametrize("queries", quick_first(parts(FIRST)))
def test_first_rows(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(7), lively=True)


@pytest.mark.parametrize("queries", quick_first(parts(VALUES_OF_SUBQUERIES, 12)))
def test_comparisons_with_any_and_all_values_of_a_subquery(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(19), lively=True)


@pytest.mark.parametrize("queries", quick_first(parts(GROUPS_OF_SUBQUERIES, 6)))
def test_groups_of_subqueries(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(4), lively=True)


@pytest.mark.parametrize("queries", quick_first(parts(CONSTANTS, 12)))
def test_constants(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(2), lively=True)


@pytest.mark.parametrize("queries", quick_first(parts(ELEMENTS, 12)))
def test_elements_in_select(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(1), lively=True)


@pytest.mark.parametrize("queries", quick_first(parts(WINDOWS)))
def test_conditions_on_window_functions(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(1), lively=True)


@pytest.mark.parametrize("queries", quick_first(parts({**NAMES, **EXPRESSIONS}, 9)))
def test_names_and_expressions(spark: SparkSession, queries: Queries) -> None:
    check(spark, queries, changes(3), lively=True)


def test_names_in_a_session_that_tells_cases_apart(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        check(spark, CASES, changes(8), lively=True)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_rows_with_nulls(spark: SparkSession) -> None:
    check(spark, ROWS_WITH_NULLS, changes(8), lively=True)


def test_a_star_of_an_earlier_result_stands_for_the_columns_that_its_query_names(spark: SparkSession) -> None:
    tables = tables_of(spark)
    homes = ts.sql("SELECT city FROM people", **tables)
    places = ts.sql("SELECT place AS city FROM visits", **tables)
    named = ts.sql("SELECT wage FROM wages", **tables)  # the plan of the table itself
    here = "SELECT city FROM people"
    there = "SELECT place AS city FROM visits"
    queries = {
        "distinct": ("SELECT DISTINCT * FROM homes", f"SELECT DISTINCT * FROM ({here})"),
        "union": ("SELECT * FROM homes UNION SELECT * FROM places", f"{here} UNION {there}"),
        "except all": ("SELECT * FROM homes EXCEPT ALL SELECT * FROM places", f"{here} EXCEPT ALL {there}"),
        "intersect": ("SELECT h.* FROM homes h INTERSECT SELECT * FROM places", f"{here} INTERSECT {there}"),
        "natural": (
            "SELECT * FROM homes NATURAL JOIN places",
            f"SELECT * FROM ({here}) NATURAL JOIN ({there})",
        ),
        "in": (
            "SELECT id FROM people WHERE city IN (SELECT * FROM places)",
            f"SELECT id FROM people WHERE city IN ({there})",
        ),
        "a key by its name": ("SELECT id, city FROM homes WHERE id > 2", "SELECT id, city FROM people WHERE id > 2"),
        "a list of names": ("SELECT id FROM homes AS h (id) WHERE id > 'M'", f"SELECT city AS id FROM ({here}) WHERE city > 'M'"),
        "twice": (
            "SELECT DISTINCT * FROM (SELECT * FROM homes)",
            f"SELECT DISTINCT * FROM ({here})",
        ),
        "the table": ("SELECT DISTINCT * FROM wages", "SELECT DISTINCT * FROM wages"),
    }  # fmt: skip
    assert named.columns == ["id", "wage"]
    every: dict[str, Any] = {**tables, "homes": homes, "places": places}
    outputs = {name: (ts.sql(one, **every), duckdb) for name, (one, duckdb) in queries.items()}
    compare(outputs, changes(5), shards=2)
    result = ts.sql("SELECT * FROM homes", homes=homes)
    assert ts.sql("SELECT DISTINCT * FROM result", result=result).columns == ["city"]


def test_a_window_function_that_names_its_window_is_called_as_it_is_written(spark: SparkSession) -> None:
    query = (
        "SELECT id, sum(age) OVER (w) FROM people WHERE id > 1 WINDOW w AS (PARTITION BY city ORDER BY boss)"
    )
    assert ts.sql(query, **tables_of(spark)).columns == ["id", "sum(`age`) OVER (w)"]
