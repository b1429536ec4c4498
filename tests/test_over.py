"""Window functions of tables, against SQL over the tables as they are then."""

from __future__ import annotations

from datetime import timedelta
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


FRAMES = """
SELECT id, city, n, sum(id) OVER near, last_value(n) OVER near, nth_value(id, 2) OVER near, min(n) OVER near,
percent_rank() OVER near, cume_dist() OVER near, ntile(2) OVER (rows), lag(n IGNORE NULLS) OVER (rows) FROM a
WINDOW near AS (PARTITION BY city ORDER BY id RANGE BETWEEN 2 PRECEDING AND 1 FOLLOWING),
rows AS (PARTITION BY city ORDER BY id)
"""


def test_frames_end_as_in_duckdb(orders: ts.Table) -> None:
    made = orders.group_by("city").over(
        "id", between=(-2, 1), total=tf.sum("id"), last=tf.last_value("n"), second=tf.nth_value("id", 2),
        least=tf.min("n"), share=tf.percent_rank(), upto=tf.cume_dist(), part=tf.ntile(2),
        known=tf.lag("n", ignore_nulls=True),
    )  # fmt: skip
    assert_as_sql({"near": (made, FRAMES)}, "a", seed=7)


AGGREGATES = """
SELECT id, city, n, stddev_samp(id) OVER near, var_pop(n) OVER near, median(n) OVER near,
quantile_cont(id, 0.25) OVER near, mode(id // 9) OVER near, arg_max(n, id) FILTER (n IS NOT NULL) OVER near,
bool_or(n > 2) OVER near, count(DISTINCT n) OVER near,
CASE WHEN count(n) OVER near = 0 THEN [] ELSE list(n) FILTER (n IS NOT NULL) OVER near END,
string_agg(id::TEXT, '-') OVER near, sum(id) FILTER (n > 2) OVER near, max(id) OVER near - min(id) OVER near FROM a
WINDOW near AS (PARTITION BY city ORDER BY id ROWS BETWEEN {bounds})
"""


class Range(tf.Aggregator):
    """The difference of the greatest and the least number."""

    state, result = "array<int>", "int"

    def zero(self) -> Any:
        return []

    def add(self, state: Any, value: Any, /) -> Any:
        return [min([value, *state]), max([value, *state])]

    def finish(self, state: Any, /) -> Any:
        return state[1] - state[0] if state else None


@pytest.mark.parametrize(
    ("between", "bounds"),
    [
        ((None, 0), "UNBOUNDED PRECEDING AND CURRENT ROW"),
        ((None, -1), "UNBOUNDED PRECEDING AND 1 PRECEDING"),
        ((-2, 1), "2 PRECEDING AND 1 FOLLOWING"),
        ((2, 3), "2 FOLLOWING AND 3 FOLLOWING"),
        ((-1, None), "1 PRECEDING AND UNBOUNDED FOLLOWING"),
    ],
)
def test_every_aggregate_is_a_window_function(
    orders: ts.Table, between: tuple[int | None, int | None], bounds: str
) -> None:
    made = orders.group_by("city").over(
        "id", frame="rows", between=between,
        deviation=tf.stddev("id"), variance=tf.var_pop("n"), middle=tf.median("n"), low=tf.percentile("id", 0.25),
        often=tf.mode("id div 9"), last=tf.max_by("n", "CASE WHEN n IS NOT NULL THEN id END"), any=tf.bool_or("n > 2"),
        different=tf.count_distinct("n"), every=tf.collect_list("n"), text=tf.string_agg("CAST(id AS STRING)", "-"),
        some=tf.sum("id").filter("n > 2"), spread=Range().of("id"),
    )  # fmt: skip
    assert_as_sql({"near": (made, AGGREGATES.format(bounds=bounds))}, "a", seed=8)


def test_a_frame_is_given_in_the_unit_of_its_order(spark: SparkSession) -> None:
    columns = "id int, day date, at timestamp, share double, price decimal(8,2)"
    rows = ts.table(ts.testing.frame(spark, columns), "id", name="r").group_by()
    day, half = timedelta(days=1), timedelta(hours=12)
    fits: dict[str, Any] = {"day": (-day, 0), "at": (None, -half), "share": (-0.5, 1), "id": (0, 2)}
    for order, between in fits.items():
        rows.over(order, between=between, n=tf.count())
    refused_ones: list[tuple[Any, Any, Any]] = [
        ("day", (-half, 0), "range"), ("day", (-1, 0), "range"), ("at", (-1, 0), "range"), ("price", (-1, 0), "range"),
        ("id", (-0.5, 0), "range"), ("id", (2, 1), "rows"), ("id", (0.5, None), "rows"), ("id", (0,), "rows"),
        ("id", 3, "rows"), ("id", (-(1 << 63), 0), "range"), ("share", (float("nan"), 0), "range"),
        (None, (-1, 0), "range"),
    ]  # fmt: skip
    for order, between, frame in refused_ones:
        with pytest.raises(ArgumentError, match="between=") as error:
            rows.over(order, between=between, frame=frame, n=tf.count(), name="w")
        assert error.value.operator == "w", (order, between)


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
    estimate = tf.approx_count_distinct("n")
    refused(lambda: of_city.over("n", x=estimate, name="w"), ArgumentError, "x = approx_count", operator="w")
    refused(
        lambda: of_city.over("n", x=tf.stddev("city"), name="w"), UnsupportedTypeError, "string", operator="w"
    )
    refused(lambda: of_city.over("n", n=tf.rank(), name="w"), ColumnCollisionError, "'n'", operator="w")
    refused(
        lambda: of_city.over("n", x=tf.sum("city"), name="w"), UnsupportedTypeError, "string", operator="w"
    )
    refused(
        lambda: of_city.over("n", x=tf.lag("n", 1, "city"), name="w"), ArgumentError, "default", operator="w"
    )
    refused(lambda: tf.lag("n", -1), ArgumentError, "-1")
    refused(lambda: tf.ntile(0), ArgumentError, "n=0")
    refused(lambda: tf.nth_value("n", 0), ArgumentError, "n=0")
    refused(lambda: tf.lag("n", 1.5), ArgumentError, "1.5")  # type: ignore[arg-type]
