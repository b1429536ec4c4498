"""Window functions of tables, against SQL over the tables as they are then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import tablestream as ts
from tablestream import functions as tf
from tablestream.errors import ArgumentError, ColumnCollisionError, UnsupportedTypeError
from tests.test_matching import assert_as_sql, table
from tests.test_table import refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def orders(spark: SparkSession) -> ts.Table:
    return table(spark, "a")


RANGES = """
SELECT id, city, n, row_number() OVER (rows), rank() OVER (peers), dense_rank() OVER (peers), lag(id) OVER (rows),
lead(n, 2, id) OVER (rows), first_value(id) OVER (rows), sum(id) OVER (peers), count(*) OVER (peers),
count(n) OVER (peers), avg(n) OVER (peers), min(id) OVER (peers), max(n) OVER (peers) FROM a
WINDOW peers AS (PARTITION BY city ORDER BY n NULLS FIRST), rows AS (PARTITION BY city ORDER BY n NULLS FIRST, id)
"""
ROWS = """
SELECT id, city, n, last_value(id) OVER rows, sum(id) OVER rows, max(n) OVER rows FROM a WINDOW rows AS (
    PARTITION BY city ORDER BY n DESC NULLS LAST, id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
"""


def test_window_functions_end_as_in_duckdb(orders: ts.Table) -> None:
    of_city = orders.group_by("city")
    made = of_city.over(
        "n", number=tf.row_number(), rank=tf.rank(), dense=tf.dense_rank(), before=tf.lag("id"),
        after=tf.lead("n", 2, "id"), first=tf.first_value("id"), total=tf.sum("id"), rows=tf.count(),
        known=tf.count("n"), mean=tf.avg("n"), least=tf.min("id"), most=tf.max("n"),
    )  # fmt: skip
    assert_as_sql({"ranges": (made, RANGES)}, "a", seed=4)


def test_frames_by_rows_and_groups_of_all_rows_end_as_in_duckdb(orders: ts.Table) -> None:
    by_rows = orders.group_by("city").over(
        "n", descending=True, frame="rows", last=tf.last_value("id"), total=tf.sum("id"), most=tf.max("n")
    )
    assert_as_sql({"rows": (by_rows, ROWS)}, "a", seed=5)
    share = orders.group_by().over(total=tf.sum("n"), of=tf.count())
    sql = "SELECT id, city, n, sum(n) OVER (), count(*) OVER () FROM a"
    assert_as_sql({"share": (share, sql)}, "a", seed=6)


def test_final_output_computes_a_partition_once(orders: ts.Table, capsys: pytest.CaptureFixture[str]) -> None:
    made = orders.group_by("city").over("n", rank=tf.rank(), total=tf.sum("id"))
    sql = """
        SELECT id, city, n, rank() OVER (PARTITION BY city ORDER BY n NULLS FIRST),
        sum(id) OVER (PARTITION BY city ORDER BY n NULLS FIRST) FROM a
    """
    for seed in (14, 15):
        assert_as_sql({"final": (made, sql)}, "a", seed, emit="final")
    made.explain(emit="final")
    assert capsys.readouterr().out.count("thin") == 1


def test_the_columns_of_window_functions(orders: ts.Table) -> None:
    over = orders.group_by(F.upper("city").alias("town")).over("id", n2=tf.row_number(), mean=tf.avg("n"))
    assert over.name == "a_over"
    assert over.key_columns == ["id"]
    assert over.schema.simpleString() == "struct<id:int,city:string,n:int,n2:int,mean:double>"


def test_what_is_no_window_function(orders: ts.Table) -> None:
    of_city = orders.group_by("city")
    given: Any = F.sum("n")
    refused(lambda: of_city.over("n", name="w"), ArgumentError, "nothing to compute", operator="w")
    refused(lambda: of_city.over("n", x=given, name="w"), ArgumentError, "not a window", operator="w")
    refused(lambda: of_city.over("n", x=tf.mode("n"), name="w"), ArgumentError, "x = mode", operator="w")
    refused(lambda: of_city.over("n", n=tf.rank(), name="w"), ColumnCollisionError, "'n'", operator="w")
    refused(
        lambda: of_city.over("n", x=tf.sum("city"), name="w"), UnsupportedTypeError, "string", operator="w"
    )
    refused(
        lambda: of_city.over("n", x=tf.lag("n", 1, "city"), name="w"), ArgumentError, "default", operator="w"
    )
    refused(lambda: tf.lag("n", 1.5), ArgumentError, "1.5")  # type: ignore[arg-type]
