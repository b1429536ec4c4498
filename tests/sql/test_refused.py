"""What cannot be maintained is refused with every reason, each with its place."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

import tablestream as ts
from tests.sql.world import tables_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Queries, and for each reason its line, column, clause and a part of its text.
REFUSED = {
    "SELECT id, (SELECT b.age + p.age + (SELECT max(wage) FROM wages) FROM people b WHERE b.id = p.boss) AS x FROM people p": [
        (1, 36, "SELECT", "A subquery cannot stand here.")
    ],
    "SELECT id, (SELECT max(stars) FROM notes n WHERE n.who = p.id HAVING sum(stars) > p.age) AS x FROM people p": [
        (
            1,
            83,
            "HAVING",
            "A subquery with aggregates and HAVING cannot name p.age of the query around it.",
        )
    ],
    "SELECT id FROM people p WHERE EXISTS (SELECT explode(collect_list(stars)) FROM notes n WHERE n.who = 1 GROUP BY n.who)": [
        (1, 46, "SELECT", "It stands beside groups, window functions or another one of its kind.")
    ],
    "SELECT id FROM people WHERE EXISTS (SELECT explode(collect_list(stars)) FROM notes HAVING true)": [
        (1, 44, "SELECT", "It stands beside groups, window functions or another one of its kind.")
    ],
    "SELECT id FROM people p WHERE EXISTS (SELECT 1 FROM notes n WHERE n.who = p.id GROUP BY nope)": [
        (1, 89, "GROUP BY", "There is no column nope.")
    ],
    "SELECT id FROM people p WHERE EXISTS (SELECT 1 FROM notes n WHERE n.who = p.id GROUP BY n.who ORDER BY nope LIMIT 3)": [
        (1, 104, "ORDER BY", "There is no column nope.")
    ],
    "SELECT id FROM people p WHERE EXISTS (SELECT stars FROM notes n WHERE n.who = p.id GROUP BY n.who)": [
        (1, 46, "SELECT", "stars is neither grouped nor aggregated.")
    ],
    "SELECT id FROM people p WHERE NOT EXISTS (SELECT upper(nope) FROM notes n WHERE n.who > p.id)": [
        (1, 56, "SELECT", "There is no column nope.")
    ],
    "SELECT id FROM people p WHERE EXISTS (SELECT nope FROM notes n WHERE n.who = p.id HAVING count(*) > 1)": [
        (1, 46, "SELECT", "There is no column nope.")
    ],
    "SELECT s.* FROM (SELECT id, struct(age) AS s FROM people) a JOIN (SELECT id, struct(wage) AS s FROM wages) b ON a.id = b.id": [
        (1, 8, "SELECT", "s is ambiguous: a.s, b.s.")
    ],
    "SELECT * FROM (SELECT id, city, 'city' FROM people GROUP BY ALL HAVING id > 1)": [
        (1, 33, "SELECT", "Two columns of the result are called city.")
    ],
    "SELECT n.a.c.* FROM (SELECT id, named_struct('b', struct(age)) AS a FROM people) n": [
        (1, 8, "SELECT", "n.a.c has no columns here.")
    ],
    "SELECT p.id FROM people p JOIN (SELECT id, timestamp'2020-01-01' AS t FROM wages) w ON p.age = w.t": [
        (1, 88, "ON", "A value of type int cannot be compared with one of type timestamp.")
    ],
    "SELECT p.id FROM people p CROSS JOIN UNNEST(array(age), array(boss, id))": [
        (1, 27, "UNNEST", "It takes one array.")
    ],
    "SELECT id FROM people WHERE city LIKE ANY (SELECT note FROM notes)": [
        (1, 29, "WHERE", "ANY and ALL of a subquery stand behind =, <>, <, <=, > and >=.")
    ],
    "SELECT id, (SELECT max(age) FROM people OFFSET 1) AS m FROM wages": [
        (1, 48, "LIMIT", "LIMIT without ORDER BY")
    ],
    "SELECT p.age FROM people p GROUP BY p.age HAVING EXISTS (SELECT 1 FROM visits v WHERE v.day > p.boss)": [
        (1, 95, "HAVING", "p.boss is neither grouped nor aggregated.")
    ],
    "SELECT v.a FROM people p CROSS JOIN (VALUES (1)) v(a) JOIN cities p ON p.city = v.a": [
        (1, 60, "FROM", "Two inputs are called p.")
    ],
    "SELECT v.a FROM people p CROSS JOIN (VALUES (1)) v(a) JOIN wages w ON w.id = p.id WHERE id > 1": [
        (1, 89, "WHERE", "id is ambiguous: p.id, w.id.")
    ],
    "SELECT p.id FROM people p CROSS JOIN (VALUES (1, 2), (3)) AS v(a)": [
        (1, 55, "VALUES", "This row has another number of columns than the first one.")
    ],
    "SELECT p.id FROM people p CROSS JOIN (VALUES (1, 2)) AS v(a, a)": [
        (1, 27, "VALUES", "Two columns or two inputs have one name.")
    ],
    "SELECT p.id FROM people p CROSS JOIN (VALUES (1)) AS v(a) PIVOT (sum(a) FOR id IN (1))": [
        (1, 27, "VALUES", "Its pivot is not maintained.")
    ],
    "SELECT id, sum(age) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED FOLLOWING AND UNBOUNDED FOLLOWING) AS s FROM people": [
        (1, 12, "OVER", "This frame has no rows.")
    ],
    "SELECT id FROM people WHERE (age, boss) IN (VALUES (20, 1), (30))": [
        (1, 29, "WHERE", "IN compares 2 with 1 columns.")
    ],
    "SELECT id, (SELECT max(stars) FROM notes n WHERE n.who = p.id GROUP BY n.stars) AS x FROM people p": [
        (1, 12, "SELECT", "This subquery may have several rows.")
    ],
    "SELECT p.id, x.y FROM people p, LATERAL (SELECT note || p.city AS y FROM notes n WHERE n.who = p.id GROUP BY note) x": [
        (
            1,
            57,
            "LATERAL",
            "Groups of a subquery name p.city of the rows around it outside of aggregates. Compute it in the SELECT around",
        )
    ],
    "SELECT p.id, x.y FROM people p LEFT JOIN LATERAL (SELECT note AS y FROM notes n WHERE n.who = p.id) x ON x.y > 'b'": [
        (1, 32, "LATERAL", "A LATERAL subquery is joined by a comma, CROSS, INNER, or LEFT JOIN ... ON true.")
    ],
    "SELECT p.id, x.y FROM people p, LATERAL (SELECT note AS y FROM notes n WHERE n.who = p.id LIMIT 1) x": [
        (1, 91, "LIMIT", "LIMIT without ORDER BY")
    ],
    "SELECT p.id, x.y FROM people p, LATERAL (SELECT note AS y FROM notes n WHERE n.who = p.id ORDER BY y LIMIT stars) x": [
        (1, 102, "LIMIT", "LIMIT needs a whole number.")
    ],
    "SELECT p.id FROM people p WHERE EXISTS (SELECT 1 FROM (SELECT count(*) AS n FROM notes n WHERE n.who = p.id) s WHERE s.n = 0)": [
        (
            1,
            56,
            "GROUP BY",
            "A subquery that names the query around it cannot have one group of all rows here",
        )
    ],
    "SELECT id, (SELECT count(*) FROM wages w LEFT JOIN (SELECT * FROM notes n WHERE n.who = p.id) s ON s.stars = w.id) AS x FROM people p": [
        (1, 89, "WHERE", "A subquery in FROM cannot name p.id of the query around it.")
    ],
    "SELECT id FROM people p WHERE id IN (SELECT who FROM notes n WHERE n.who = p.id INTERSECT SELECT day, who FROM visits)": [
        (1, 45, "INTERSECT", "Its queries have 1 and 2 columns.")
    ],
    "SELECT p.id, x.y FROM people p, LATERAL (SELECT DISTINCT ON (stars) note AS y FROM notes n WHERE n.who = p.id ORDER BY note) x": [
        (1, 106, "WHERE", "A subquery with DISTINCT ON cannot name p.id of the query around it.")
    ],
    "SELECT p.id FROM people p, LATERAL (SELECT place, who FROM visits v WHERE v.who = p.id GROUP BY ROLLUP (place, who)) x": [
        (
            1,
            37,
            "GROUP BY",
            "A subquery that names the query around it cannot have one group of all rows here",
        )
    ],
    "SELECT p.id, x.c FROM people p, LATERAL (SELECT count(*) AS c FROM notes n WHERE n.who = p.id GROUP BY ALL) x": [
        (
            1,
            42,
            "GROUP BY",
            "A subquery that names the query around it cannot have one group of all rows here",
        )
    ],
    """SELECT p.id, x.c FROM people p, LATERAL (SELECT count(*) AS c FROM notes n WHERE n.who = p.id
    HAVING count(*) < (SELECT max(size) FROM cities)) x""": [
        (
            1,
            42,
            "GROUP BY",
            "A subquery that names the query around it cannot have one group of all rows here",
        )
    ],
    "SELECT id, age IN (SELECT explode(array(stars)) FROM notes n WHERE n.who = p.id) AS x FROM people p": [
        (1, 76, "WHERE", "A subquery with explode cannot name p.id of the query around it.")
    ],
    "SELECT id, (SELECT note FROM notes n WHERE n.who = p.id ORDER BY note LIMIT 1 OFFSET age) AS x FROM people p": [
        (1, 86, "OFFSET", "OFFSET needs a whole number.")
    ],
    "SELECT id, age IN (SELECT max(zz) FROM notes n WHERE n.who = p.id GROUP BY n.stars) AS x FROM people p": [
        (1, 31, "SELECT", "There is no column zz.")
    ],
    "SELECT id, age IN (SELECT max(stars) FROM notes n WHERE n.who = p.id AND n.zz = 1 GROUP BY n.stars) AS x FROM people p": [
        (1, 74, "WHERE", "There is no column n.zz.")
    ],
    "SELECT id, (SELECT max(n.stars + (SELECT wage FROM wages w WHERE w.id = p.id)) FROM notes n WHERE n.who = p.id) AS x FROM people p": [
        (1, 73, "WHERE", "A subquery with aggregates cannot name p.id of the query around it.")
    ],
    "SELECT id FROM people p WHERE EXISTS (SELECT n.stars FROM notes n WHERE n.who < p.id AND n.stars < p.age AND n.zz = 1)": [
        (1, 110, "WHERE", "There is no column n.zz.")
    ],
    "SELECT id FROM people WHERE EXISTS (SELECT * FROM notes UNION SELECT id FROM people)": [
        (1, 44, "UNION", "Its queries have 3 and 1 columns.")
    ],
    "SELECT p.id FROM people p, LATERAL (SELECT count(*) FROM notes n WHERE n.who = p.id) x": [
        (1, 44, "LATERAL", "This column has no name. Name it with AS.")
    ],
    "SELECT p.id FROM people p, LATERAL (SELECT note FROM notes n WHERE n.who = p.id) x(a, b)": [
        (1, 37, "LATERAL", "It has 1 columns, and 2 names.")
    ],
    "SELECT p.id FROM people p, LATERAL (SELECT note FROM notes n WHERE n.who = p.id) p": [
        (1, 26, "LATERAL", "Two inputs are called p.")
    ],
    "VALUES (1), (2)": [(1, 9, "FROM", "Constants alone have no changes to maintain.")],
    "SELECT id, stack(2, 1, age) AS (a, b) FROM people": [
        (
            1,
            12,
            "SELECT",
            "Of what makes several rows or columns, only explode, posexplode and inline are maintained.",
        )
    ],
    "SELECT upper(city COLLATE UTF8_RTRIM) AS c, id FROM people": [
        (1, 8, "SELECT", "[COLLATION_INVALID_NAME] The value UTF8_RTRIM does not represent")
    ],
    "SELECT id, age < ANY (SELECT max(nope) FROM notes) AS x FROM people": [
        (1, 34, "SELECT", "There is no column nope.")
    ],
    "SELECT s.d.x + 1 AS y FROM (SELECT id, struct(age AS x) AS d FROM people) s LIMIT 3": [
        (1, 77, "LIMIT", "LIMIT without ORDER BY")
    ],
    "SELECT * FROM wages GROUP BY ALL": [(1, 8, "GROUP BY", "GROUP BY ALL does not group by a star.")],
    "SELECT id FROM people LIMIT 3": [(1, 23, "LIMIT", "LIMIT without ORDER BY")],
    "SELECT id, rand() AS r,\n nope FROM people\nWHERE x = 1 AND uuid() = 'x' LIMIT 3": [
        (1, 12, "SELECT", "'rand()' may give another value"),
        (2, 2, "SELECT", "There is no column nope. Columns are: id, city, boss, age, paid."),
        (3, 7, "WHERE", "There is no column x."),
        (3, 17, "WHERE", "may give another value"),
        (3, 30, "LIMIT", "LIMIT without ORDER BY"),
    ],
    "SELECT id FROM people WHERE paid > current_timestamp()": [(1, 29, "WHERE", "")],
    "SELECT * FROM people p JOIN cities c ON p.city = c.city": [
        (1, 1, "SELECT", "Two columns of the result are called city.")
    ],
    "SELECT a.id, b.x FROM peeple a JOIN sities b ON a.id = b.id": [
        (1, 23, "FROM", "There is no table peeple. Tables are: people, cities, visits, notes, wages."),
        (1, 37, "FROM", "There is no table sities."),
    ],
    "SELECT city FROM people p JOIN cities c ON p.city = c.city": [
        (1, 8, "SELECT", "city is ambiguous: p.city, c.city.")
    ],
    "WITH RECURSIVE t AS (SELECT id FROM people) SELECT * FROM t": [(1, 16, "WITH RECURSIVE", "Recursion")],
    "SELECT id, sum(age) FROM people": [(1, 8, "SELECT", "id is neither grouped nor aggregated.")],
    "SELECT city FROM people GROUP BY 3": [(1, 34, "GROUP BY", "SELECT has no column 3.")],
    "SELECT ntile(age) OVER (ORDER BY id) AS r, id FROM people": [
        (1, 8, "OVER", "The window function ntile")
    ],
    "SELECT stddev(city) OVER (ORDER BY id) AS r FROM people": [
        (1, 8, "OVER", "stddev_samp(...) of type string is not supported. It takes numbers.")
    ],
    "SELECT sum(age) OVER (ORDER BY id GROUPS 2 PRECEDING) AS r FROM people": [
        (1, 8, "OVER", "GROUPS and EXCLUDE are not maintained.")
    ],
    "SELECT sum(age) OVER (ORDER BY city, id RANGE 2 PRECEDING) AS r FROM people": [
        (1, 8, "OVER", "RANGE with a distance needs one column in ORDER BY.")
    ],
    "SELECT sum(age) OVER (ORDER BY city RANGE 2 PRECEDING) AS r FROM people": [
        (1, 8, "OVER", "between=(-2, 0) is no frame by range of string.")
    ],
    "SELECT sum(age) OVER (ORDER BY id ROWS BETWEEN age PRECEDING AND CURRENT ROW) AS r FROM people": [
        (1, 48, "OVER", "This is no duration.")
    ],
    "SELECT try_sum(age), stddev(DISTINCT age) FROM people": [
        (1, 8, "SELECT", "The aggregate try_sum is not maintained"),
        (1, 22, "SELECT", "STDDEV(DISTINCT ...) is not maintained."),
    ],
    "SELECT city, grouping(age) AS g FROM people GROUP BY ROLLUP (city)": [
        (1, 14, "SELECT", "GROUPING takes one")
    ],
    "SELECT who, listagg(note, chr(44)) WITHIN GROUP (ORDER BY note) AS s FROM notes GROUP BY who": [
        (1, 13, "SELECT", "is not maintained in this form")
    ],
    "SELECT percentile(spent, 0.5, day) AS p FROM visits": [
        (1, 8, "SELECT", "is not maintained in this form")
    ],
    "SELECT count() AS n FROM people": [(1, 8, "SELECT", "is not maintained in this form")],
    "SELECT DISTINCT ON (city) city, id FROM people": [(1, 21, "ORDER BY", "The rows have no order.")],
    "SELECT id FROM people UNION ALL BY NAME SELECT id FROM wages": [(1, 8, "UNION", "BY NAME")],
    "SELECT * REPLACE (age + 1 AS age) FROM people": [(1, 8, "SELECT", "Spark has no REPLACE of a star.")],
    "SELECT NULL AS a, nope FROM people": [(1, 19, "SELECT", "There is no column nope.")],
    "SELECT age FROM people GROUP BY 1.5": [(1, 33, "GROUP BY", "SELECT has no column 1.5.")],
    "SELECT id FROM people ORDER BY 1.5": [(1, 32, "ORDER BY", "SELECT has no column 1.5.")],
    "SELECT a FROM people AS p(a, b, c, d, e, f)": [(1, 15, "FROM", "p has 5 columns, and 6 names.")],
    "WITH a(x, y) AS (SELECT id FROM people) SELECT x FROM a": [
        (1, 55, "FROM", "a has 1 columns, and 2 names.")
    ],
    "SELECT (SELECT age FROM people) FROM cities": [(1, 8, "SELECT", "This subquery may have several rows.")],
    "SELECT nofunc(id) FROM people": [(1, 8, "SELECT", "Cannot resolve routine `nofunc`")],
    "SELECT id FROM people LATERAL VIEW explode(array(1)) t AS x, y": [
        (1, 44, "LATERAL VIEW", "It has 1 columns, and 2 names.")
    ],
    "SELECT id FROM people LEFT JOIN UNNEST(array(1)) AS v(a) ON id = v.a": [
        (1, 23, "UNNEST", "Rows that are made of")
    ],
    "SELECT id, x, i FROM people CROSS JOIN UNNEST(array(1)) AS x WITH OFFSET AS i": [
        (1, 29, "UNNEST", "WITH OFFSET is not maintained.")
    ],
    "SELECT explode(array(1)) AS x, explode(array(2)) AS y FROM people": [
        (1, 32, "SELECT", "It stands beside groups, window functions or another one of its kind.")
    ],
    "SELECT id, (SELECT note FROM notes ORDER BY stars FETCH FIRST ROW WITH TIES) AS x FROM people": [
        (1, 12, "SELECT", "This subquery may have several rows.")
    ],
    "SELECT id FROM people ORDER BY id LIMIT 20 PERCENT": [(1, 35, "LIMIT", "PERCENT is not maintained.")],
    "SELECT id FROM people WHERE (id, age) > ALL (SELECT who, stars FROM notes)": [
        (1, 29, "WHERE", "ANY and ALL compare one column.")
    ],
    "WITH a AS (SELECT id FROM people), a AS (SELECT id FROM wages) SELECT id FROM a": [
        (1, 36, "WITH", "Two queries are called a.")
    ],
    "SELECT a FROM (VALUES (1)) AS v(a)": [(1, 15, "FROM", "Constants alone")],
    "SELECT id, age FROM people UNION ALL SELECT id FROM wages": [(1, 8, "UNION", "2 and 1 columns")],
    "SELECT 1 AS one": [(1, 8, "FROM", "Constants alone")],
    "SELECT id FROM": [(1, 11, "text", "It cannot be parsed near 'FROM': Expected table name")],
    "SELECT id + 1 AS id FROM people |> WHERE id > 1": [(1, 33, "text", "|> is not read")],
    "FROM people |> LIMIT 3": [(1, 13, "text", "|> is not read")],
    "SELECT id FROM people ORDER BY id LIMIT age": [(1, 35, "LIMIT", "LIMIT needs a whole number.")],
    "SELECT id FROM people TABLESAMPLE (10 PERCENT)": [
        (1, 16, "FROM", "A table's sample is not maintained.")
    ],
    "SELECT id FROM people SORT BY id": [(1, 8, "SORT BY", "A table has no order.")],
    "SELECT p.id FROM people p LEFT JOIN notes n ON n.who = p.id AND EXISTS (SELECT 1 FROM visits WHERE day = n.stars AND who = p.id)": [
        (1, 65, "ON", "A subquery in ON that names both sides of this join is not maintained.")
    ],
    "SELECT p.id FROM people p LEFT JOIN wages w ON p.id = w.id AND id IN (SELECT who FROM notes)": [
        (1, 64, "ON", "id is ambiguous: p.id, w.id.")
    ],
    "SELECT * FROM (SELECT city, age FROM people) TABLESAMPLE (10 PERCENT)": [
        (1, 15, "FROM", "A subquery's sample is not maintained.")
    ],
    "SELECT * FROM people JOIN wages USING (id) PIVOT (sum(age) FOR boss IN (1, 2))": [
        (1, 22, "FROM", "A join's pivot is not maintained.")
    ],
    "SELECT id FROM (people a JOIN wages w ON a.id = w.id) b": [
        (1, 16, "FROM", "A join in parentheses that has an alias is not maintained.")
    ],
    "SELECT p.id FROM people p LEFT JOIN (notes n JOIN wages w ON n.who = w.id AND n.who = p.id) ON p.id = n.who": [
        (1, 87, "ON", "There is no column p.id.")
    ],
    "SELECT count(DISTINCT age) OVER (PARTITION BY city) AS n FROM people": [
        (1, 8, "OVER", "The window function count is not maintained in this form.")
    ],
    "SELECT id, any(age) OVER (PARTITION BY city) AS x FROM people": [
        (1, 12, "OVER", "bool_or(...) of type int is not supported. It takes booleans.")
    ],
    "SELECT id, bool_and(city) FILTER (WHERE age > 1) OVER (ORDER BY id) AS x FROM people": [
        (1, 12, "OVER", "bool_and(...) of type string is not supported. It takes booleans.")
    ],
    "SELECT id, any(DISTINCT age > 1) OVER (PARTITION BY city) AS x FROM people": [
        (1, 12, "OVER", "The window function any is not maintained in this form.")
    ],
    "SELECT sum(age) OVER w AS s, id FROM people WINDOW v AS (ORDER BY id)": [
        (1, 8, "OVER", "There is no window w.")
    ],
    "SELECT approx_percentile(age, 0.5) AS p FROM people": [
        (1, 8, "SELECT", "is not maintained in this form")
    ],
    "SELECT FROM people": [(1, 13, "SELECT", "SELECT has no columns.")],
    "SELECT id FROM ((SELECT id, age FROM people) a(age, id)) b": [
        (1, 17, "query", "The alias of a query in parentheses is not maintained.")
    ],
    "(SELECT id FROM people) LIMIT 3": [(1, 25, "LIMIT", "LIMIT without ORDER BY")],
    "(SELECT id FROM people) SORT BY id": [(1, 1, "query", "The sort of a query in parentheses")],
    "SELECT p.id FROM people p LEFT JOIN cities c JOIN wages w ON c.size = w.id ON p.city = c.city": [
        (1, 27, "JOIN", "A join inside another one is only maintained if both are inner joins")
    ],
    "SELECT p.id FROM people p JOIN (SELECT * FROM cities) c LEFT JOIN wages w ON c.size = w.id ON p.city = c.city": [
        (1, 27, "JOIN", "A join inside another one is only maintained if both are inner joins")
    ],
    "SELECT p.id FROM people p, notes n RIGHT JOIN wages w ON n.who = w.id WHERE p.id = n.who": [
        (1, 36, "JOIN", "A comma before RIGHT JOIN leaves open what is joined first.")
    ],
    "SELECT id FROM people RIGHT SEMI JOIN wages USING (id)": [(1, 23, "JOIN", "RIGHT SEMI JOIN is not")],
    "SELECT p.id FROM people p JOIN wages USING (boss)": [
        (1, 45, "USING", "There is no column boss on one side.")
    ],
    "WITH a AS (SELECT id FROM nope) SELECT a.id FROM a JOIN a b ON a.id = b.id": [
        (1, 27, "FROM", "There is no table nope.")
    ],
}
PLACE = re.compile(r"line (\d+), column (\d+) \(([^)]+)\): (.*)")


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> dict[str, ts.Table]:
    return tables_of(spark)


@pytest.mark.parametrize("query", REFUSED)
def test_a_refusal_has_every_reason_with_its_place(tables: dict[str, ts.Table], query: str) -> None:
    with pytest.raises(ts.errors.SqlRefusedError) as refused:
        ts.sql(query, **tables)
    found = [
        (int(line), int(column), clause, said)
        for line, column, clause, said in PLACE.findall(str(refused.value))
    ]
    expected = REFUSED[query]
    assert [one[:3] for one in found] == [one[:3] for one in expected]
    assert [said for (*_, said), (*_, part) in zip(found, expected, strict=True) if part not in said] == []


def test_what_is_no_query_is_an_argument_error(tables: dict[str, ts.Table]) -> None:
    for query in ("", "people", "INSERT INTO x SELECT 1", "SELECT id FROM people; SELECT id FROM people"):
        with pytest.raises(ts.errors.ArgumentError, match="takes one query"):
            ts.sql(query, **tables)
    with pytest.raises(ts.errors.ArgumentError, match="people=1 is not a table"):
        ts.sql("SELECT id FROM people", people=1)  # type: ignore[arg-type]
    with pytest.raises(ts.errors.ArgumentError, match="people and People are one name here"):
        ts.sql("SELECT id FROM people", people=tables["people"], People=tables["wages"])


def test_a_query_and_methods_make_the_same_plan(tables: dict[str, ts.Table]) -> None:
    query = """
        SELECT n.note, n.stars * p.age AS worth, c.country
        FROM notes n LEFT JOIN people p ON n.who = p.id JOIN cities c ON n.note = c.city
        WHERE c.size >= 2
    """
    by_query = ts.sql(query, **tables)
    notes, people, cities = (tables[name] for name in ("notes", "people", "cities"))
    ages = people.select("age", name="people")  # a query's joins take only the columns that it names
    joined = notes.join(ages, on="who", how="left", select=lambda n, p: [n.who, n.stars, p.age])
    by_methods = joined.join(
        cities.filter("size >= 2"), on="note", select=lambda j, c: [j.who, j.stars, j.age, c.country]
    ).select("stars * age AS worth", "country")
    assert plan(by_query) == plan(by_methods)
    assert by_query.columns == by_methods.columns


def plan(table: ts.Table | ts.Stream) -> str:
    """The plan without the clauses of a query."""
    text = ts.plan_text(table.to(ts.to_memory("x"), name="x"))
    return re.sub(r"^Query at .*\n(  .*\n)*", "", text, flags=re.MULTILINE)
