"""Where a user's expressions are evaluated: in rows of a data frame that are rows of the table, and in no others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T

import tablestream as ts
from tablestream.options import OutputSpec
from tablestream.planner.result import Pointer
from tablestream.row import LEFT, Plain, plain, renamed, side_column
from tablestream.spark.analysis import analysed
from tablestream.spark.build import Builder
from tablestream.spark.columns import Scope, TableColumns, quoted
from tablestream.spark.exchange import Settings, SparkExchange
from tablestream.spark.plan import lowered

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


def evaluated(scope: Scope, *columns: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in scope.frame.select("__id", *columns).collect())


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
    found = evaluated(scope, columns.exists, *columns.value)
    assert found == [(1, *first), (2, False, None), (3, *last)]


def test_a_foreign_key_is_null_where_there_is_no_row(table: ts.Table, scope: Scope) -> None:
    other = table.select(F.col("n").alias("other"))
    join: Any = table.join(other, on=F.expr(SHARE))._node
    group: Any = table.group_by(F.expr(SHARE).alias("share")).count()._node
    builder = Builder(lowered([(join, OutputSpec())]), SparkExchange(Settings("", 0)))
    pointed = [*builder._pointing(scope, table._node, Pointer(join.on, join.foreign), "__on")]
    pointed += builder._pointing(scope, table._node, Pointer(group.on, group.key), "__group")
    assert evaluated(scope, *pointed) == [(1, 2, 2), (2, None, None), (3, 100, 100)]


def test_a_second_scope_of_a_frame_shows_its_own_columns_under_the_same_names(
    table: ts.Table, scope: Scope
) -> None:
    first = scope.table(table.filter("n > 1")._node)
    behind = Scope(scope.hidden(), {table._node: TableColumns("__there", ("__n",), ("__id",))})
    second = behind.table(table.select("n", F.expr("id").alias("other"))._node)
    found = evaluated(behind, *first.value, *second.value)
    assert found == [(1, 50, 1, 50), (2, None, None, None), (3, None, 3, 1)]


@pytest.mark.parametrize("name", ["a.b", "a`b", "A b", "__x", "select", "ä"])
def test_a_column_is_shown_whatever_its_name(scope: Scope, name: str) -> None:
    (made,) = scope.add({"__made": quoted(name) + 1}, {name: "__id"})
    assert evaluated(scope, made) == [(1, 2), (2, 3), (3, 4)]
    assert scope.hidden().columns == ["__id", "__n", "__there", "__made"]


@pytest.mark.parametrize("name", ["n", "N", "_private", "größe", "a b", "a.b", "a`b", "count", "2n"])
@pytest.mark.parametrize("side", [None, LEFT])
def test_what_is_known_of_a_column_is_what_spark_says_of_it(
    spark: SparkSession, name: str, side: str | None
) -> None:
    """Its text is a part of the plan, which a checkpoint keeps."""
    there = name if side is None else side_column(side, name)
    frame = spark.createDataFrame([], T.StructType([T.StructField(there, T.ArrayType(T.StringType()))]))
    asked, known = (
        analysed(frame, [one], operator="table", where="")
        for one in (renamed(there, "x"), plain(name, "x", side))
    )
    assert [replace(one, given=known[0].given) for one in asked] == known
    assert frame.select(known[0].column).columns == ["x"]
    assert isinstance(known[0].given, Plain) == (name in {"n", "N", "_private", "count"})


def test_a_column_that_stays_as_it_is_is_not_computed(scope: Scope, table: ts.Table) -> None:
    before, scope.exact = scope.frame, True
    made = scope.table(table.select("n", F.col("n").alias("m"))._node)
    assert made.names[0] == "__n"
    assert evaluated(scope, made.names[1]) == [(1, 50), (2, None), (3, 1)]
    narrow = Scope(before, {table._node: scope.tables[table._node]}, exact=True)
    kept = narrow.table(table.select("n")._node)
    assert (kept.names, len(narrow.frame.columns)) == (("__n",), len(before.columns) + 1)


def test_a_key_column_in_a_value_is_null_where_there_is_no_row(scope: Scope, table: ts.Table) -> None:
    """The frame has keys in all rows, for deletes."""
    joined = table.join(
        table, on="id", select=lambda left, right: [left.id.alias("a"), right.id.alias("b"), right.n]
    )
    made = scope.table(joined._node)
    assert evaluated(scope, *made.names) == [(1, 1, 1, 50), (2, None, None, None), (3, 3, 3, 1)]
