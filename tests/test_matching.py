"""Joins on columns that are no key: many to many, semi and anti, against SQL over the tables as they are then."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import duckdb
import pytest
from pyspark.sql import functions as F

import tablestream as ts
from tablestream import functions as tf
from tablestream.errors import ArgumentError, ColumnCollisionError, KeyMismatchError, PlanError
from tablestream.testing import Driver, frame
from tablestream.topology.graph import ancestors
from tablestream.topology.nodes import ManyToMany
from tests.marks import quick_first
from tests.test_table import refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

SCHEMA = "id int, city string, n int, gone boolean"
HOWS = {
    "inner": "JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "outer": "FULL JOIN", "left_semi": "SEMI JOIN",
    "left_anti": "ANTI JOIN",
}  # fmt: skip


def table(spark: SparkSession, name: str) -> ts.Table:
    return ts.table(frame(spark, SCHEMA), "id", apply_as_deletes="gone", except_columns="gone", name=name)


@pytest.fixture(scope="module")
def sides(spark: SparkSession) -> tuple[ts.Table, ts.Table]:
    return table(spark, "a"), table(spark, "b")


class Database:
    """The tables of a driver as DuckDB has them."""

    def __init__(self, *names: str) -> None:
        self.rows: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in names}
        self._connection = duckdb.connect()

    def write(self, name: str, row: dict[str, Any]) -> None:
        self.rows[name].pop(row["id"], None)
        if not row["gone"]:
            self.rows[name][row["id"]] = row

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        for name, rows in self.rows.items():
            self._connection.execute(f"CREATE OR REPLACE TABLE {name} (id INT, city VARCHAR, n INT)")
            for row in rows.values():
                values = [row["id"], row["city"], row["n"]]
                self._connection.execute(f"INSERT INTO {name} VALUES (?, ?, ?)", values)
        return ordered(self._connection.execute(sql).fetchall())


def ordered(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda row: [(one is not None, one) for one in row])


def assert_as_sql(
    plans: dict[str, tuple[ts.Table, str]], names: str, seed: int, emit: Literal["every", "final"] = "every"
) -> None:
    """Run plans over random rows; after each micro-batch their tables are what SQL makes of the inputs."""
    outputs = [plan.to(ts.to_memory(name), name=name, emit=emit) for name, (plan, _) in plans.items()]
    driver, database, rng = Driver(*outputs), Database(*names), random.Random(seed)
    for batch in range(3):
        for name in names:
            rows = [
                {
                    "id": rng.randrange(6),
                    "city": rng.choice(["x", "y", "z", None]),
                    "n": rng.choice([1, 2, 3, None]),
                    "gone": rng.random() < 0.3,
                }
                for _ in range(rng.randrange(5, 12))
            ]
            driver.pipe(name, rows)
            for row in rows:
                database.write(name, row)
        driver.run()
        if batch % 2:
            driver = driver.restarted()
        for name, (_, sql) in plans.items():
            found = ordered([tuple(one.values())[:-1] for one in rows_of(driver, name)])  # without the time
            assert found == database.query(sql), (batch, name)


def rows_of(driver: Driver, name: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in driver.table(name)]


def less(left: ts.Row, right: ts.Row) -> Any:
    return left.n <= right.n


def both(left: ts.Row, right: ts.Row) -> list[Any]:
    return [left.n.alias("one"), right.n.alias("other")]


#: The kinds of joins that are made of different nodes, and the others.
CASES = [
    pytest.param(how, less if where else None, id=how + where)
    for how, where in (
        ("outer", " where"), ("left_anti", ""), ("left_semi", " where"), ("right", ""), ("inner", " where"),
        ("left", ""), ("left_anti", " where"), ("left", " where"),
    )
]  # fmt: skip


@pytest.mark.parametrize(
    ("how", "where"),
    quick_first(CASES, 4),
)
def test_a_join_on_other_columns_ends_as_in_duckdb(
    sides: tuple[ts.Table, ts.Table], how: Any, where: Callable[..., Any] | None
) -> None:
    a, b = sides
    columns = "a.id, a.city, a.n" if how in {"left_semi", "left_anti"} else "a.id, b.id, a.n, b.n"
    select = None if how in {"left_semi", "left_anti"} else both
    made = a.join(b, on="city", right_on="city", how=how, where=where, select=select)
    condition = "true" if where is None else "a.n <= b.n"
    sql = f"SELECT {columns} FROM a {HOWS[how]} b ON a.city = b.city AND {condition}"
    assert_as_sql({"joined": (made, sql)}, "ab", seed=3)


GROUPS = """
WITH g AS (SELECT city, max(n) AS n FROM a GROUP BY city)
SELECT g.city, b.id, g.n, b.n FROM g LEFT JOIN b ON g.n = b.n AND b.id > 1
"""
FURTHER = (
    "pairs", "two columns", "in the keys", "others of the city", "an expression", "the key and a condition",
    "pairs of pairs", "groups with a null", "groups with a null that stay",
)  # fmt: skip


@pytest.mark.parametrize("name", quick_first(FURTHER, 3))
def test_further_joins_end_as_in_duckdb(sides: tuple[ts.Table, ts.Table], name: str) -> None:
    a, b = sides
    plans = {
        "pairs": (
            a.join(a, on="city", right_on="city", select=both),
            "SELECT one.id, a.id, one.n, a.n FROM a AS one JOIN a ON one.city = a.city",
        ),
        "others of the city": (
            a.join(
                a, on="city", right_on="city", how="left_anti", where=lambda one, other: one.id != other.id
            ),
            "SELECT * FROM a AS one WHERE NOT EXISTS (FROM a WHERE a.city = one.city AND a.id != one.id)",
        ),
        "two columns": (
            a.join(b, on=["city", "n"], right_on=["city", "id"], select=both),
            "SELECT a.id, b.id, a.n, b.n FROM a JOIN b ON a.city = b.city AND a.n = b.id",
        ),
        "an expression": (
            a.join(b, on=lambda row: row.n + 1, right_on=lambda row: row.n, how="left", select=both),
            "SELECT a.id, b.id, a.n, b.n FROM a LEFT JOIN b ON a.n + 1 = b.n",
        ),
        "the key and a condition": (
            a.join(b, on=ts.KEY, how="left", where=less, select=both),
            "SELECT a.id, b.id, a.n, b.n FROM a LEFT JOIN b ON a.id = b.id AND a.n <= b.n",
        ),
        "groups with a null": (
            a.group_by("city")
            .agg(n=tf.max("n"))
            .join(b, on="n", right_on="n", how="left_semi", where=lambda _, other: other.id > 1),
            "SELECT city, max(n) AS most FROM a GROUP BY city HAVING most IN (SELECT n FROM b WHERE id > 1)",
        ),
        "groups with a null that stay": (
            a.group_by("city")
            .agg(n=tf.max("n"))
            .join(b, on="n", right_on="n", how="left", where=lambda _, other: other.id > 1, select=both),
            GROUPS,
        ),
        "in the keys": (a.join(b, on="n", how="left_semi"), "SELECT * FROM a WHERE n IN (SELECT id FROM b)"),
        "pairs of pairs": (
            a.join(b, on="city", right_on="city", select=both)
            .join(b, on="one", right_on="n", how="left", select=lambda _, row: [row.city])
            .group_by("city")
            .count(),
            "SELECT c.city, count(*) FROM a JOIN b ON a.city = b.city LEFT JOIN b AS c ON c.n = a.n GROUP BY ALL",
        ),
    }
    assert_as_sql({name: plans[name]}, "a" if name in {"pairs", "others of the city"} else "ab", seed=8)


def row(id_: int, city: str | None, n: int = 0, *, gone: bool = False) -> dict[str, Any]:
    return {"id": id_, "city": city, "n": n, "gone": gone}


def told(driver: Driver) -> list[str]:
    kinds = {"upsert": "+", "delete": "-"}
    return [
        f"{kinds[one['_change_type']]}{one['id']}" for one in (change.asDict() for change in driver.run())
    ]


@pytest.mark.parametrize("where", [None, less], ids=["", "where"])
def test_a_change_that_leaves_the_match_as_it_was_emits_nothing(
    sides: tuple[ts.Table, ts.Table], where: Callable[..., Any] | None
) -> None:
    a, b = sides
    semi = Driver(a.join(b, on="city", right_on="city", how="left_semi", where=where))
    anti = Driver(a.join(b, on="city", right_on="city", how="left_anti", where=where))

    def answers(name: str, *rows: dict[str, Any]) -> tuple[list[str], list[str]]:
        for driver in (semi, anti):
            driver.pipe(name, list(rows))
        return told(semi), told(anti)

    assert answers("a", row(1, "x"), row(2, None)) == ([], ["+1", "+2"])
    assert answers("b", row(7, "x")) == (["+1"], ["-1"])
    assert answers("b", row(8, "x")) == ([], [])
    assert answers("b", row(7, "x", 5)) == ([], [])
    assert answers("b", row(9, "y"), row(7, "y")) == ([], [])
    assert answers("b", row(8, "x", gone=True)) == (["-1"], ["+1"])


def test_a_row_that_finds_and_loses_its_matches_in_one_micro_batch(sides: tuple[ts.Table, ts.Table]) -> None:
    a, b = sides
    driver = Driver(a.join(b, on="city", right_on="city", how="left", select=both))
    driver.pipe("a", [row(1, "x", 5)])
    driver.pipe("b", [row(7, "x", 6), row(7, "y", 6), row(7, "x", 8)])
    changes = [
        (one["a_id"], one["b_id"], one["other"], one["_change_type"])
        for one in (r.asDict() for r in driver.run())
    ]
    pair = [one[2:] for one in changes if one[1] == 7]
    assert pair == [(6, "upsert"), (None, "delete"), (8, "upsert")]
    alone = [one[3] for one in changes if one[1] is None]
    assert alone == ["upsert", "delete", "upsert", "delete"]


def test_the_columns_and_the_key_of_a_join_on_other_columns(sides: tuple[ts.Table, ts.Table]) -> None:
    a, b = sides
    pairs = a.join(b, on="city", right_on="city", suffixes=("_a", "_b"))
    assert pairs.key_columns == ["a_id", "b_id"]
    assert pairs.columns == ["a_id", "b_id", "city_a", "n_a", "city_b", "n_b"]
    assert a.join(b, on="n", right_on="id", suffixes=("_a", "_b")).key_columns == ["id"]
    assert a.join(b, on="n", right_on="n", how="left_anti").columns == ["id", "city", "n"]
    joins = [a.join(b, on="n", right_on=right_on, how="outer", select=both) for right_on in (None, "id")]
    plans = [ts.plan_text(one.to(ts.to_memory("plan"))) for one in joins]
    assert plans[0] == plans[1]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"on": None}, "right_on= needs on="),
        ({"complete_history": True}, "complete_history=True cannot be used with right_on= or where="),
        ({"spread": 2}, "spread="),
        ({"as_of": "n"}, "as_of="),
        ({"how": "left_semi", "select": both}, "select= cannot be used with how='left_semi'"),
        ({"how": "left_anti", "suffixes": ("", "_b")}, "suffixes="),
        ({"how": "cross"}, "how='cross'"),
        ({"where": 3}, "where"),
    ],
)
def test_what_does_not_go_with_a_join_on_other_columns(
    sides: tuple[ts.Table, ts.Table], given: dict[str, Any], said: str
) -> None:
    a, b = sides
    options: dict[str, Any] = {"on": "city", "right_on": "city", "name": "j", **given}
    refused(lambda: a.join(b, **options), ArgumentError, said, operator="j")


def test_what_cannot_be_compared(spark: SparkSession, sides: tuple[ts.Table, ts.Table]) -> None:
    a, b = sides
    copied = ts.global_table(frame(spark, "id int, city string"), "id", name="c")
    by: dict[str, Any] = {"on": "city", "right_on": "city", "name": "j"}
    refused(lambda: a.join(copied, **by), ArgumentError, "A global table", operator="j")
    refused(lambda: a.join(b, on="city", right_on="n", name="j"), KeyMismatchError, "string", operator="j")
    refused(
        lambda: a.join(b, on="city", right_on=["city", "n"]), KeyMismatchError, "on=", operator="a_b_join"
    )
    refused(lambda: a.join(b, where=lambda one, _: one.n, **by), PlanError, "not boolean", operator="j")
    refused(lambda: a.join(b, where=lambda *_: True, **by), ArgumentError, "True is not a column")


def test_a_key_of_two_columns_is_found_in_any_order(spark: SparkSession) -> None:
    """And a column that is compared twice is no key of two columns."""
    keyed = ts.table(frame(spark, "j int, k int, x string"), ["j", "k"], name="a")
    other = ts.table(frame(spark, "id int, p int, q int"), "id", name="b")
    made = keyed.join(
        other, on=["k", "j"], right_on=["p", "q"], how="outer", select=lambda a, b: [a.x, b.p, b.q]
    )
    twice = keyed.join(
        other, on=["j", "k"], right_on=["id", "id"], how="outer", select=lambda a, b: [a.x, b.p]
    )
    driver = Driver(
        *(one.to(ts.to_memory(name), name=name) for name, one in {"made": made, "twice": twice}.items())
    )
    driver.pipe("a", [{"j": 1, "k": 2, "x": "one"}, {"j": 3, "k": 3, "x": "three"}])
    driver.pipe("b", [{"id": 3, "p": 2, "q": 1}, {"id": 1, "p": 1, "q": 2}])
    driver.run()
    assert [tuple(row.values())[:-1] for row in rows_of(driver, "made")] == [
        (None, None, 1, None, 1, 2), (1, 2, 3, "one", 2, 1), (3, 3, None, "three", None, None),
    ]  # fmt: skip
    assert [tuple(row.values())[:-1] for row in rows_of(driver, "twice")] == [
        (None, None, 1, None, 1), (1, 2, None, "one", None), (3, 3, 3, "three", 2),
    ]  # fmt: skip


def test_columns_can_be_compared_that_are_no_names(sides: tuple[ts.Table, ts.Table]) -> None:
    a, b = sides
    made = a.join(b, on=F.lower("city"), right_on=F.lower("city"), how="left_semi")
    sql = "SELECT a.id, a.city, a.n FROM a SEMI JOIN b ON lower(a.city) = lower(b.city)"
    assert_as_sql({"columns": (made, sql)}, "ab", seed=13)


def test_rows_that_are_kept_do_not_count_as_dropped(sides: tuple[ts.Table, ts.Table]) -> None:
    a, b = sides

    def counts(how: Any) -> set[bool]:
        select = None if how in {"left_semi", "left_anti"} else both
        made = a.join(b, on="city", right_on="city", how=how, where=less, select=select)
        return {one.counts_nulls for one in ancestors(made._node) if isinstance(one, ManyToMany)}

    assert counts("inner") == counts("left_semi") == {True}
    assert counts("left") == counts("outer") == counts("left_anti") == {False}


def test_compat_refuses_what_kafka_streams_has_not(sides: tuple[ts.Table, ts.Table]) -> None:
    a, b = sides
    for made in (a.distinct("city"), a.join(b, on="city", right_on="city", how="left_anti")):
        with pytest.raises(PlanError, match="no distinct"):
            Driver(made, compat="kafka-streams")


def test_keys_that_are_nearly_equal_are_rows_of_a_union(spark: SparkSession) -> None:
    timed = ts.table(frame(spark, "at timestamp, x double"), ["at", "x"], name="a")
    named = ts.table(frame(spark, "at timestamp, x double"), "at", name="b")
    driver = Driver(timed.union(named, row="row"))
    at = datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
    driver.pipe("a", [{"at": at.replace(microsecond=two), "x": x} for two in (1, 2) for x in (0.0, -0.0)])
    driver.run()
    assert [row.row for row in driver.table()] == [
        f'{{"at":"2024-01-01T00:00:00.00000{two}Z","x":0.0}}' for two in (1, 2)
    ]


def test_unions_of_tables_with_other_keys_and_distinct_end_as_in_duckdb(
    sides: tuple[ts.Table, ts.Table],
) -> None:
    a, b = sides
    by_city = b.group_by("city", "n").agg(id=tf.max("id"))
    rows = a.union(by_city.select("id"), row="row", names=["a", "b"])
    assert rows.key_columns == ["branch", "row"]
    assert rows.columns == ["branch", "row", "id", "city", "n"]
    sql = "SELECT 'a' AS branch, id, city, n FROM a UNION ALL SELECT 'b', max(id), city, n FROM b GROUP BY city, n"
    everything = rows.group_by("branch", "id", "city", "n").count()
    assert_as_sql(
        {"rows": (everything, f"SELECT branch, id, city, n, count(*) FROM ({sql}) GROUP BY ALL")}, "ab", 9
    )
    distinct = rows.distinct("city", "n")
    assert distinct.columns == ["city", "n"]
    assert_as_sql({"distinct": (distinct, f"SELECT DISTINCT city, n FROM ({sql})")}, "ab", 10)
    refused(lambda: a.union(b, row="n", name="u"), ColumnCollisionError, "'n'", operator="u")
    refused(lambda: a.union(by_city, name="u"), ArgumentError, "row=", operator="u")


def test_filtered_aggregates_end_as_in_duckdb(sides: tuple[ts.Table, ts.Table]) -> None:
    a, _ = sides
    made = a.group_by("city").agg(
        rows=tf.count().filter("n > 1"), known=tf.count("n").filter(F.col("id") > 1),
        total=tf.sum("id").filter("n > 1"), mean=tf.avg("n").filter("id > 1"), least=tf.min("id").filter("n > 1"),
        most=tf.max("n").filter("id > 9"), kinds=tf.count_distinct("n").filter("id > 1"), all=tf.count(),
        some=tf.bool_or("n > 2").filter("id > 1"),
    )  # fmt: skip
    parts = [
        "count(*) FILTER (n > 1)", "count(n) FILTER (id > 1)", "sum(id) FILTER (n > 1)", "avg(n) FILTER (id > 1)",
        "min(id) FILTER (n > 1)", "max(n) FILTER (id > 9)", "count(DISTINCT n) FILTER (id > 1)", "count(*)",
        "bool_or(n > 2) FILTER (id > 1)",
    ]  # fmt: skip
    assert_as_sql({"filtered": (made, f"SELECT city, {', '.join(parts)} FROM a GROUP BY city")}, "a", 12)
    refused(lambda: tf.first("n").filter("id > 1"), ArgumentError, "first() has no filter")
    refused(lambda: tf.sum("n").filter("n > 1").filter("n < 3"), ArgumentError, "sum() has a filter already")
