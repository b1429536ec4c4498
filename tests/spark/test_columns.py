"""Where a user's expressions are evaluated: in rows of a data frame that are rows of the table, and in no others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T

import tablestream as ts
from tablestream.arguments.place import NOWHERE
from tablestream.connectors.json_text import json_options
from tablestream.planner.physical_plan import Output, PlanOptions
from tablestream.planner.result import Pointer
from tablestream.runtime.drops import ONLY_COUNTED
from tablestream.spark.analysis import _BETWEEN, analysed
from tablestream.spark.build import Builder
from tablestream.spark.columns import Scope, TableColumns, normalised, quoted, sql_type, value_hash
from tablestream.spark.exchange import SparkExchange
from tablestream.spark.plan import lowered, query_frame
from tablestream.spark.round_worker import Settings
from tablestream.spark.row import LEFT, plain, renamed, side_column

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

#: Fails on a null, which is in no row.
SHARE = "cast(100 / coalesce(n, 0) as int)"


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> ts.Table:
    (tmp_path / "log").mkdir()
    log = ts.from_files(spark, tmp_path / "log", "json", "id int, n int")
    return ts.table(log, "id", name="table")


@pytest.fixture
def scope(spark: SparkSession, table: ts.Table) -> Scope:
    """Two rows of the table, and one that is none."""
    rows: list[tuple[int, int | None, bool]] = [(1, 50, True), (2, None, False), (3, 1, True)]
    scope = Scope(spark.createDataFrame(rows, "__id int, __n int, __there boolean"))
    scope.tables[table._node] = TableColumns("__there", ("__id",), ("__n",))
    return scope


def evaluated(scope: Scope, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in scope.frame.selectExpr("__id", *columns).collect())


@pytest.mark.parametrize(
    ("made", "first", "last"),
    [
        (lambda table: table.filter(f"{SHARE} > 5 or {SHARE} < -5"), (False, None), (True, 1)),
        (lambda table: table.filter_not(f"{SHARE} > 5 or {SHARE} < -5"), (True, 50), (False, None)),
        (lambda table: table.select(F.expr(SHARE).alias("s")), (True, 2), (True, 100)),
        (
            lambda table: table.select("n", delete_when=f"{SHARE} > 5 or {SHARE} < -5"),
            (True, 50),
            (False, None),
        ),
        (lambda table: table.filter("n > 1").select(F.expr(SHARE).alias("s")), (True, 2), (False, None)),
    ],
    ids=["filter", "filter_not", "select", "delete_when", "behind a filter"],
)
def test_an_expression_is_not_evaluated_where_there_is_no_row(
    table: ts.Table,
    scope: Scope,
    made: Callable[[ts.Table], ts.Table],
    first: tuple[bool, int | None],
    last: tuple[bool, int | None],
) -> None:
    columns = scope.table(made(table)._node)
    found = evaluated(scope, columns.there, *columns.names)
    assert found == [(1, *first), (2, False, None), (3, *last)]


def test_a_foreign_key_is_null_where_there_is_no_row(table: ts.Table, scope: Scope) -> None:
    other = table.select(F.col("n").alias("other"))
    join: Any = table.join(other, on=F.expr(SHARE))._node
    group: Any = table.group_by(F.expr(SHARE).alias("share")).count()._node
    builder = Builder(lowered([Output(join)], PlanOptions()), SparkExchange(Settings("", 0)))
    pointed = [*builder._pointing(scope, table._node, Pointer(join.on, join.foreign), "__on")]
    pointed += builder._pointing(scope, table._node, Pointer(group.on, group.key), "__group")
    assert evaluated(scope, *pointed) == [(1, 2, 2), (2, None, None), (3, 100, 100)]


def test_a_second_scope_of_a_frame_shows_its_own_columns_under_the_same_names(
    table: ts.Table, scope: Scope
) -> None:
    first = scope.table(table.filter("n > 1")._node)
    behind = Scope(scope.frame, {table._node: TableColumns("__there", ("__n",), ("__id",))})
    second = behind.table(table.select("n", F.expr("id").alias("other"))._node)
    found = evaluated(behind, *first.names, *second.names)
    assert found == [(1, 50, 1, 50), (2, None, None, None), (3, None, 3, 1)]


@pytest.mark.parametrize("further", ["left", "inner"])
def test_two_ports_behind_a_round_can_read_one_join(
    spark: SparkSession, tmp_path: Path, further: Any
) -> None:
    a, b, c = (
        ts.table(ts.from_files(spark, tmp_path, "json", f"id int, {name} int"), "id", name=name)
        for name in "abc"
    )
    both = a.join(b, how="left")
    all_three = both.join(c, how=further)
    groups = [table.group_by("b").count(name=name) for name, table in (("two", both), ("three", all_three))]
    plan = lowered([Output(one._node) for one in (*groups, both)], PlanOptions())
    assert len(plan.between) > 1
    assert [name for name in query_frame(plan, {}, ONLY_COUNTED, observed=True).columns if name != "__port"]


@pytest.mark.parametrize("name", ["a.b", "a`b", "A b", "__x", "select", "ä"])
def test_a_column_is_shown_whatever_its_name(scope: Scope, name: str) -> None:
    scope.add({"__made": quoted(name) + 1}, {name: "__id"})
    assert evaluated(scope, "__made") == [(1, 2), (2, 3), (3, 4)]
    assert scope.frame.columns == ["__id", "__n", "__there", "__made"]


@pytest.mark.parametrize("name", ["n", "N", "_private", "count", "null", "select", "end", "current_date"])
@pytest.mark.parametrize("shown", [None, "x", "a b", "a`b", "x AS y"])
@pytest.mark.parametrize("side", [None, LEFT])
def test_what_is_known_of_a_column_is_what_spark_says_of_it(
    spark: SparkSession, name: str, shown: str | None, side: str | None
) -> None:
    """Its text is a part of the plan, which a checkpoint keeps."""
    there = name if side is None else side_column(side, name)
    frame = spark.createDataFrame([], T.StructType([T.StructField(there, T.ArrayType(T.StringType()))]))
    given = plain(name, shown, side)
    assert given is not None
    column = quoted(name) if shown is side is None else renamed(there, shown or name)
    (asked,), (known,) = (analysed(frame, [one], at=NOWHERE) for one in (column, given))
    assert replace(asked, given=given) == known
    assert str(known.column) == str(column)
    assert frame.select(known.column).columns == [shown or name]


def test_several_expressions_have_the_texts_that_each_has_alone(spark: SparkSession) -> None:
    """They are analysed together; one has a text like the one that stands between them."""
    frame = spark.createDataFrame([], "n int, s string")
    columns = [F.col("n") + 1, (F.col("n") * 2).alias("a"), F.expr("n AS `x y`"), F.expr("s LIKE 'a, b)'")]
    odd = F.concat("s", F.lit(f", {_BETWEEN}, ")).alias("odd")
    for given in (columns, [*columns, odd]):
        found = analysed(frame, given, at=NOWHERE)
        assert found == [analysed(frame, [one], at=NOWHERE)[0] for one in given]
    assert [one.text for one in found] == [
        "(n + 1)", "(n * 2)", "n", "s LIKE a, b)", f"concat(s, , {_BETWEEN}, )"
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["größe", "a b", "a.b", "a`b", "2n", "x AS y", ""])
def test_nothing_is_known_of_a_column_whose_name_spark_may_quote(name: str) -> None:
    assert plain(name) is None
    assert plain(name, "x", LEFT) is None


@pytest.mark.parametrize("zone", ["TIMESTAMP_NTZ", "TIMESTAMP_LTZ"])
def test_a_key_keeps_its_type_whatever_the_session_calls_a_timestamp(spark: SparkSession, zone: str) -> None:
    atoms = [
        "timestamp",
        "timestamp_ntz",
        "date",
        "decimal(38,18)",
        "interval day to second",
        "interval year",
    ]
    atoms += [
        "string collate UTF8_LCASE",
        "binary",
        "boolean",
        "tinyint",
        "double",
        "interval hour to minute",
    ]
    kinds = [spark.sql(f"SELECT CAST(NULL AS {one}) AS x").schema["x"].dataType for one in atoms]
    fields = [T.StructField(f"a b`{number}", kind) for number, kind in enumerate(kinds)]
    kinds += [T.StructType(fields), T.ArrayType(T.StructType(fields[:2])), T.ArrayType(T.ArrayType(kinds[0]))]
    spark.conf.set("spark.sql.timestampType", zone)
    try:
        columns = [f"CAST(NULL AS {sql_type(kind)}) AS x{number}" for number, kind in enumerate(kinds)]
        assert [one.dataType for one in spark.range(1).selectExpr(*columns).schema] == kinds
    finally:
        spark.conf.unset("spark.sql.timestampType")


def test_a_column_that_stays_as_it_is_is_not_computed(scope: Scope, table: ts.Table) -> None:
    before, scope.exact = scope.frame, True
    made = scope.table(table.select("n", F.col("n").alias("m"))._node)
    assert made.names[0] == "__n"
    assert evaluated(scope, made.names[1]) == [(1, 50), (2, None), (3, 1)]
    narrow = Scope(before, {table._node: scope.tables[table._node]}, exact=True)
    kept = narrow.table(table.select("n")._node)
    assert (kept.names, len(narrow.frame.columns)) == (("__n",), len(before.columns))


def test_expressions_of_one_table_are_one_step(scope: Scope, table: ts.Table) -> None:
    views = [table.filter(F.col("n") > 1), table.select((F.col("n") + 1).alias("m")), table.filter("n > 2")]
    made = [scope.table(one._node) for one in views]
    frames = [scope.base, scope.frame]
    assert frames[0].columns == ["__id", "__n", "__there"]
    assert len(frames[1].columns) == 3 + 2 + 1  # a condition, and a column with whether it has a row
    assert evaluated(scope, made[0].names[0], made[1].names[0]) == [
        (1, 50, 51),
        (2, None, None),
        (3, None, 2),
    ]


def test_the_text_of_a_chain_of_views_does_not_grow(scope: Scope, table: ts.Table) -> None:
    view = table
    for number in range(40):
        view = view.filter(F.col("n") > -number)
    made = scope.table(view._node)
    assert max(map(len, made.names)) < 1000
    assert evaluated(scope, *made.names) == [(1, 50), (2, None), (3, 1)]


@pytest.mark.parametrize(
    "kind", ["float", "double", "array<double>", "struct<`a b`: float, c: array<float>>"]
)
def test_equal_keys_become_identical(spark: SparkSession, kind: str) -> None:
    """There is one NaN, and no negative zero."""
    schema = spark.sql(f"SELECT CAST(NULL AS {kind}) AS x").schema
    one = {"a": "CAST({} AS FLOAT)", "d": "CAST({} AS DOUBLE)"}
    texts = {
        "float": one["a"],
        "double": one["d"],
        "array<double>": f"array({one['d']}, NULL)",
        "struct<`a b`: float, c: array<float>>": f"struct({one['a']} AS `a b`, array({one['a']}) AS c)",
    }[kind]
    zeros = (texts.replace("{}", number) for number in ("'0.0'", "'-0.0'"))
    made = [normalised(f"({text})", schema["x"].dataType) for text in zeros]
    bits = spark.range(1).selectExpr(*(f"CAST(to_json(struct({text} AS x)) AS STRING)" for text in made))
    (first, second), nothing = bits.collect()[0], normalised(f"CAST(NULL AS {kind})", schema["x"].dataType)
    assert first == second
    assert spark.range(1).selectExpr(f"{nothing} AS x").schema["x"].dataType == schema["x"].dataType
    assert spark.range(1).selectExpr(f"{nothing} AS x").collect()[0].x is None


#: Whether there is a left and a right row; the columns of a side are null where it has none, but for its key.
SIDES = [(True, True, 1, 2), (True, False, 3, None), (False, True, None, 4), (False, False, None, None)]


@pytest.mark.parametrize("how", ["inner", "left", "outer"])
@pytest.mark.parametrize("exact", [True, False])
def test_columns_of_a_join_that_stay_as_they_are_are_those_that_are_computed(
    spark: SparkSession, tmp_path: Path, how: Any, exact: bool
) -> None:
    left, right = (
        ts.table(ts.from_files(spark, tmp_path, "json", "id int, n int"), "id", name=name) for name in "lr"
    )
    keyed = left.join(
        right, how=how, select=lambda one, other: [one.id.alias("k"), one.n, other.n.alias("m")]
    )
    kept = left.join(right, how=how, suffixes=("", "_r"))
    computed = left.join(
        right, how=how, select=lambda one, other: [(one.n + 0).alias("n"), (other.n + 0).alias("n_r")]
    )
    named = left.join(right, how=how, select=lambda one, other: [one.id, one.n, other["n"].alias("m")])
    rows = [(n, *one) for n, one in enumerate(SIDES)]
    frame = spark.createDataFrame(rows, "__id int, l boolean, r boolean, ln int, rn int")
    tables = {
        left._node: TableColumns("l", ("__id",), ("ln",)),
        right._node: TableColumns("r", ("__id",), ("rn",)),
    }
    found = []
    for table in (kept, computed, named, keyed):
        scope = Scope(frame, dict(tables), exact=exact)
        columns = scope.table(table._node)
        found.append(evaluated(scope, columns.there, *columns.names))
    there = [{"inner": a and b, "left": a, "outer": a or b}[how] for a, b, *_ in SIDES]
    wanted = [
        (n, is_there, *(one[2:] if is_there else (None, None)))
        for n, (is_there, one) in enumerate(zip(there, SIDES, strict=True))
    ]
    assert found[:3] == [wanted, wanted, wanted]
    assert found[3] == [
        (n, is_there, n if is_there and a else None, *values)
        for (n, is_there, *values), (a, *_) in zip(wanted, SIDES, strict=True)
    ]


def test_the_hash_of_a_value_does_not_depend_on_the_names_of_its_columns(
    scope: Scope, table: ts.Table
) -> None:
    """State keeps it, and after a restart the same table can have other names in the data frame."""
    made = [scope.table(table.select((F.col("n") + 0).alias("n"))._node) for _ in range(2)]
    source, one, other = (value_hash(columns) for columns in (scope.tables[table._node], *made))
    assert evaluated(scope, one) == evaluated(scope, other) == evaluated(scope, source)
    assert len({value for _, value in evaluated(scope, one)}) == 3
    # As the first version computed it, which older states have.
    record = F.struct(F.lit(1), F.col("__n").alias("__value_0"))
    hashed = F.xxhash64(F.to_json(record, json_options() | {"timeZone": "UTC"}))
    assert sorted(map(tuple, scope.frame.select("__id", hashed).collect())) == evaluated(scope, source)


def test_scopes_of_one_frame_can_compute_the_same_table(scope: Scope, table: ts.Table) -> None:
    """Behind a round, two ports can read what one table is computed from."""
    node = table.select(F.col("n").alias("m"), (F.col("n") + 1).alias("more"))._node
    first = scope.table(node)
    other = Scope(scope.frame, {table._node: TableColumns("__there", ("__id",), ("__id",))}, port=2)
    second = other.table(node)
    found = evaluated(other, *first.names, *second.names)
    assert found == [(1, 50, 51, 1, 2), (2, None, None, None, None), (3, 1, 2, 3, 4)]


def test_a_key_column_in_a_value_is_null_where_there_is_no_row(scope: Scope, table: ts.Table) -> None:
    """The frame has keys in all rows, for deletes."""
    joined = table.join(
        table, on="id", select=lambda left, right: [left.id.alias("a"), right.id.alias("b"), right.n]
    )
    made = scope.table(joined._node)
    assert evaluated(scope, *made.names) == [(1, 1, 1, 50), (2, None, None, None), (3, 3, 3, 1)]
