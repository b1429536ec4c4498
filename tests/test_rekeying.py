"""Methods of tables that give rows other keys, groups of all rows, and Spark's other words for what handles take."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row
from pyspark.sql import functions as F

import tablestream as ts
from tablestream import functions as tf
from tablestream.errors import ArgumentError, ColumnCollisionError, UnsupportedTypeError
from tablestream.testing import Driver, frame
from tablestream.topology.nulls import nullable_key
from tests.test_table import refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id int, mail string, n int, at timestamp, tags array<string>"


@pytest.fixture
def users(spark: SparkSession) -> ts.Table:
    deletes = frame(spark, f"{SCHEMA}, gone boolean")
    return ts.table(deletes, "id", apply_as_deletes="gone", except_columns="gone", name="users")


def user(id_: int, mail: str | None, n: int = 0, **others: Any) -> dict[str, Any]:
    return {"id": id_, "mail": mail, "n": n, **others}


def test_the_columns_of_a_table_with_another_key(users: ts.Table) -> None:
    keyed = users.select_key("mail", F.col("n").alias("number"))
    assert keyed.name == "users_select_key"
    assert keyed.key_columns == ["mail", "number"]
    assert keyed.columns == ["mail", "number", "id", "n", "at", "tags"]
    assert users.select_key("id", "mail").columns == ["id", "mail", "n", "at", "tags"]
    assert users.flat_map("tags AS tag", position="place").columns == ["id", "place", "tag"]
    pairs = users.flat_map("transform(tags, x -> named_struct('tag', x, 'length', length(x)))")
    assert pairs.columns == ["id", "position", "tag", "length"]
    assert users.group_by().count().columns == ["all_rows", "count"]


def test_what_cannot_be_rekeyed(users: ts.Table) -> None:
    refused(lambda: users.select_key(name="k"), ArgumentError, "select_key() has no key")
    refused(lambda: users.select_key("upper(mail)"), ArgumentError, "has no name")
    refused(
        lambda: users.select_key("mail", order_by="tags", name="t"),
        UnsupportedTypeError,
        "ranked by tags",
        operator="t",
    )
    refused(lambda: users.flat_map("mail", name="t"), ArgumentError, "needs an array", operator="t")
    refused(lambda: users.flat_map("tags AS id", name="t"), ColumnCollisionError, "'id'", operator="t")


def test_what_cannot_be_put_together(spark: SparkSession, users: ts.Table) -> None:
    other = ts.table(frame(spark, "id bigint, mail string"), "id", name="other")
    refused(lambda: users.union(name="u"), ArgumentError, "has one table", operator="u")
    refused(lambda: users.union(users), ArgumentError, "['users', 'users']", operator="users_users_union")
    refused(
        lambda: users.union(users, names=["a"], name="u"), ArgumentError, "['a']", "2 tables", operator="u"
    )
    refused(lambda: users.union(other), ArgumentError, "different columns", operator="users_other_union")
    refused(lambda: users.union("other"), ArgumentError, "not a str", operator="users")  # type: ignore[arg-type]
    keyed = users.select_key("mail", name="keyed")
    refused(lambda: users.union(keyed), ArgumentError, "different columns", operator="users_keyed_union")


def test_a_late_version_of_a_versioned_table_changes_no_row_under_another_key(spark: SparkSession) -> None:
    schema = "id int, mail string, gone boolean, at timestamp"
    users = ts.table(
        frame(spark, schema),
        "id",
        timestamp="at",
        apply_as_deletes="gone",
        columns="mail",
        name="users",
        history="1 day",
    )
    few = users.filter("mail <> 'hidden'")
    driver = Driver(
        users.union(few, names=["all", "few"], name="both"),
        users.select_key("mail", name="mails"),
        users.flat_map(F.split("mail", ""), name="letters"),
    )
    for piped in (
        [(1, "new", False, 10), (2, "b", False, 10), (3, None, True, 10)],
        [(1, "old", False, 9), (2, None, True, 8), (3, "c", False, 9)],
        [(2, "hidden", False, 12), (2, "z", False, 11)],
    ):
        driver.pipe("users", [(*row, f"2024-01-02 {hour:02}:00") for *row, hour in piped])
        driver.run()
        driver = driver.restarted()
    both = [(row["branch"], row["id"], row["mail"]) for row in driver.table("both")]
    assert both == [("all", 1, "new"), ("all", 2, "hidden"), ("few", 1, "new")]
    assert [row["mail"] for row in driver.table("mails")] == ["hidden", "new"]
    assert {row["id"]: row["position"] for row in driver.table("letters")} == {1: 2, 2: 5}


def test_a_new_key_shows_the_last_row_written_or_the_first_in_an_order(users: ts.Table) -> None:
    most = users.select_key("mail", order_by="n", name="most")
    driver = Driver(
        users.select_key("mail"), most, users.union(users.filter("n < 4"), names=["all", "few"], name="both")
    )
    rows = [user(1, "a", 5), user(2, "a", 3), user(3, "a", 3), user(2, "b"), user(4, None), user(1, "a", 1)]
    driver.pipe("users", rows)
    driver.run()
    assert [(row["mail"], row["id"]) for row in driver.table("users_select_key")] == [
        (None, 4),
        ("a", 1),
        ("b", 2),
    ]
    assert [(row["mail"], row["id"]) for row in driver.table("most")] == [(None, 4), ("a", 3), ("b", 2)]
    assert [(row["mail"], row["n"]) for row in driver.state("most")] == [(None, 0), ("a", 3), ("b", 0)]
    branches = [(row["branch"], row["id"]) for row in driver.table("both")]
    assert branches == [(of, id_) for of in ("all", "few") for id_ in (1, 2, 3, 4)]
    assert [row["mail"] for row in driver.changes("users_select_key")] == ["a", "a", "a", "b", None, "a"]


def test_a_union_has_the_rows_whose_keys_have_a_null_and_tells_which_parts_can_be_null(
    spark: SparkSession,
) -> None:
    one, other = (
        ts.table(frame(spark, "id int, g string"), "id", name=name).group_by("g").count(name=f"{name}s")
        for name in ("a", "b")
    )
    both = one.union(other, name="both")
    assert nullable_key(both._node) == (False, True)
    assert nullable_key(ts.table(frame(spark, "id int"), "id", name="c").union(
        ts.table(frame(spark, "id int"), "id", name="d"))._node) == (False, False)  # fmt: skip
    driver = Driver(both, both.select_key("g", name="again"))
    driver.pipe("a", [{"id": 1, "g": None}, {"id": 2, "g": "x"}])
    driver.pipe("b", [{"id": 1, "g": None}])
    driver.run()
    assert [(row["branch"], row["g"], row["count"]) for row in driver.table("both")] == [
        ("as", None, 1),
        ("as", "x", 1),
        ("bs", None, 1),
    ]
    assert [(row["branch"], row["g"]) for row in driver.table("again")] == [("bs", None), ("as", "x")]
    driver.pipe("a", [{"id": 1, "g": "x"}])
    driver.run()
    assert [(row["branch"], row["g"], row["count"]) for row in driver.table("both")] == [
        ("as", "x", 2),
        ("bs", None, 1),
    ]


def test_all_rows_are_one_group_which_stays_and_all_types_with_an_order_have_a_greatest(
    spark: SparkSession,
) -> None:
    schema = "id int, ok boolean, part struct<x: int, y: string>, took interval day to second, gone boolean"
    runs = ts.table(frame(spark, schema), "id", apply_as_deletes="gone", except_columns="gone", name="runs")
    functions: dict[str, Any] = {
        "n": tf.count(),
        "all_ok": tf.min("ok"),
        "any_ok": tf.max("ok"),
        "least": tf.min("part"),
        "greatest": tf.max("part"),
        "took": tf.sum("took"),
        "mean": tf.avg("took"),
    }
    groups = runs.group_by().agg(name="groups", **functions)
    stream = (
        runs.to_stream()
        .group_by()
        .agg(name="of a stream", n=tf.count(), most=tf.max("part"), least=tf.min("ok"))
    )
    driver, hour = Driver(groups, stream), timedelta(hours=1)
    rows: list[dict[str, Any]] = [
        {"id": 1, "ok": True, "part": {"x": 1, "y": "b"}, "took": hour},
        {"id": 2, "ok": False, "part": {"x": 1, "y": None}, "took": 2 * hour},
        {"id": 3, "ok": None, "part": {"x": None, "y": "z"}, "took": None},
        {"id": 4, "ok": True, "part": None, "took": 3 * hour},
    ]
    driver.pipe("runs", rows)
    driver.run()
    (found,) = driver.table("groups")
    batch = spark.createDataFrame(rows, schema.removesuffix(", gone boolean")).agg(
        F.count("*").alias("n"), F.min("ok").alias("all_ok"), F.max("ok").alias("any_ok"), F.min("part").alias("least"),
        F.max("part").alias("greatest"), F.sum("took").alias("took"), F.avg("took").alias("mean"),
    )  # fmt: skip
    expected = batch.collect()[0].asDict()
    assert {name: found[name] for name in functions} == expected
    assert [one.dataType for one in groups.schema][1:] == [one.dataType for one in batch.schema]
    (records,) = driver.table("of a stream")
    assert (records["n"], records["most"], records["least"]) == (4, Row(x=1, y="b"), False)
    driver.pipe("runs", [{"id": number, "gone": True} for number in range(1, 5)])
    driver.run()
    (found,) = driver.table("groups")
    assert {name: found[name] for name in functions} == dict.fromkeys(functions) | {"n": 0}


def test_an_aggregate_of_spark_says_which_one_to_write(users: ts.Table) -> None:
    groups, hint = users.group_by("mail"), {"operator": "users_agg"}
    given: Any = F.sum("n")
    refused(lambda: groups.agg(x=given), ArgumentError, "Use ts.functions.sum('n') in place", **hint)
    rows: Any = F.count("*")
    refused(lambda: groups.agg(x=rows), ArgumentError, "Use ts.functions.count() in place", **hint)
    other: Any = F.product("n")
    refused(lambda: groups.agg(x=other), ArgumentError, "Use one of tablestream.functions", **hint)


@pytest.mark.parametrize(
    ("word", "kind"),
    [("full", "outer"), ("full_outer", "outer"), ("fullouter", "outer"), ("left_outer", "left"), ("LEFT", "left"),
     ("rightouter", "right")],
)  # fmt: skip
def test_the_kinds_of_a_join_have_sparks_other_words(users: ts.Table, word: str, kind: str) -> None:
    def node(how: Any) -> Any:
        return users.join(users.select("n AS m", name="others"), on="id", how=how)._node

    assert node(word).how == node(kind).how == kind


@pytest.mark.parametrize("word", ["semi", "leftsemi", "left_anti", "ANTI"])
def test_semi_and_anti_joins_have_sparks_other_words(users: ts.Table, word: Any) -> None:
    others = users.select("n AS m", name="others")
    kind: Any = "left_semi" if "semi" in word else "left_anti"
    joined, same = (users.join(others, on="n", how=how)._node for how in (word, kind))
    assert joined.meaning == same.meaning


def test_a_word_that_is_none_is_refused(users: ts.Table) -> None:
    others, how = users.select("n AS m", name="others"), "cross"
    wrong: Any = how
    refused(
        lambda: users.join(others, on="id", how=wrong, name="j"), ArgumentError, "how='cross'", operator="j"
    )


def test_lookups_give_suffixes_to_columns_that_both_have(users: ts.Table) -> None:
    others = users.select("mail", "n", name="others")
    star = users.join_many(ts.lookup(others, on="n", suffixes=("", "_other")))
    assert star.columns == ["id", "mail", "n", "at", "tags", "mail_other", "n_other"]
