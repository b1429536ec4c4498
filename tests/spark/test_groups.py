"""Groups through Spark: declared aggregates with Spark's types, user functions, chains, restarts."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import tablestream as ts
from tablestream import functions as tf
from tablestream.errors import ArgumentError, ColumnCollisionError, PlanError, UnsupportedTypeError
from tests.spark.change_logs import START, ChangeLog, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Row, SparkSession

SCHEMA = "id int, client string, amount double, price decimal(6,2), n int, ts bigint, gone boolean"


@pytest.fixture
def log(tmp_path: Path) -> ChangeLog:
    log = ChangeLog(tmp_path / "log", SCHEMA)
    log.add(
        [row(1, "a", 1), row(2, "a", 2), row(3, "b", 3), row(4, None, 4)],
        [row(1, "b", 5), row(2, "a", 6), row(3, "b", 7, gone=True)],
        [row(1, "c", 8), row(2, "a", 9, gone=True), row(5, "a", 10)],
    )
    return log


def row(id_: int, client: str | None, at: int, *, gone: bool = False) -> dict[str, Any]:
    return {
        "id": id_, "client": client, "amount": at / 10, "price": at + 0.25, "n": at, "ts": START + at, "gone": gone,
    }  # fmt: skip


def positions(log: ChangeLog, spark: SparkSession) -> ts.Table:
    return ts.table(
        log.read(spark),
        "id",
        timestamp=F.timestamp_seconds("ts"),
        apply_as_deletes="gone",
        except_columns=["ts", "gone"],
        name="positions",
    )


def last_rows(rows: list[Row], key: str) -> dict[Any, Row | None]:
    """The table that changes lead to."""
    table: dict[Any, Row | None] = {}
    for one in rows:
        table[one[key]] = one if one["_change_type"] == "upsert" else None
    return {name: one for name, one in table.items() if one is not None}


class Both(tf.Aggregator):
    """A sum over a struct."""

    state = result = "bigint"

    def zero(self) -> int:
        return 0

    def add(self, state: int, value: dict[str, Any]) -> int:
        return int(state + value["n"] + int(value["price"]))

    def subtract(self, state: int, value: dict[str, Any]) -> int:
        return int(state - value["n"] - int(value["price"]))

    def finish(self, state: int) -> int:
        return state


def test_declared_aggregates_have_sparks_types_and_values(
    spark: SparkSession, log: ChangeLog, tmp_path: Path
) -> None:
    table = (
        positions(log, spark)
        .group_by("client")
        .agg(
            n=tf.count(),
            amount=tf.sum("amount"),
            price=tf.sum("price"),
            mean=tf.avg("price"),
            total=tf.sum("n"),
            least=tf.min("n"),
            most=tf.max(F.col("n") * 2),
            prices=tf.collect_list("price"),
            different=tf.count_distinct("n % 2"),
            middle=tf.median("price"),
            high=tf.percentile("amount", 0.9),
            often=tf.mode("n % 2"),
            spread=tf.stddev("n"),
            spread_of_all=tf.stddev_pop("price"),
            squared=tf.variance("amount"),
            squared_of_all=tf.var_pop("n"),
            every=tf.bool_and("n > 2"),
            some=tf.bool_or("n > 2"),
            newest=tf.max_by("price", by="n"),
            oldest=tf.min_by("amount", by="n"),
            own=Both().of("struct(n, price)"),
            texts=tf.string_agg("cast(n as string)", "|", order_by="n", descending=True),
        )
    )
    sink = ts.to_memory("groups declared")
    run(table.to(sink), checkpoint=tmp_path / "checkpoint")
    left = [
        (n, client, n / 10, Decimal(n) + Decimal("0.25"), n) for n, client in ((8, "c"), (10, "a"), (4, None))
    ]
    rows = spark.createDataFrame(left, "id int, client string, amount double, price decimal(6,2), n int")
    batch = rows.groupBy("client").agg(
        F.count("*").alias("n"), F.sum("amount").alias("amount"), F.sum("price").alias("price"),
        F.avg("price").alias("mean"), F.sum("n").alias("total"), F.min("n").alias("least"),
        F.max(F.col("n") * 2).alias("most"), F.collect_list("price").alias("prices"),
        F.countDistinct(F.expr("n % 2")).alias("different"),
        F.median("price").alias("middle"), F.percentile("amount", F.lit(0.9)).alias("high"),
        F.mode(F.expr("n % 2")).alias("often"), F.stddev("n").alias("spread"),
        F.stddev_pop("price").alias("spread_of_all"), F.variance("amount").alias("squared"),
        F.var_pop("n").alias("squared_of_all"), F.bool_and(F.expr("n > 2")).alias("every"),
        F.bool_or(F.expr("n > 2")).alias("some"), F.max_by("price", "n").alias("newest"),
        F.min_by("amount", "n").alias("oldest"), F.sum(F.expr("n + int(price)")).alias("own"),
        F.expr("listagg(cast(n as string), '|') within group (order by n desc)").alias("texts"),
    )  # fmt: skip
    assert [(one.name, one.dataType.simpleString()) for one in table.schema] == [
        (one.name, one.dataType.simpleString()) for one in batch.schema
    ]
    found = last_rows(sink.rows(), "client")
    expected = {one.client: one for one in batch.collect()}
    names = batch.columns
    assert {key: [one[name] for name in names] for key, one in found.items() if one} == {
        key: [one[name] for name in names] for key, one in expected.items()
    }


def test_a_row_that_moves_leaves_and_comes_in_one_step(
    spark: SparkSession, log: ChangeLog, tmp_path: Path
) -> None:
    sink = ts.to_memory("groups moves")
    run(positions(log, spark).group_by("client").count().to(sink), checkpoint=tmp_path / "checkpoint")
    seen = [(one["_order"]["position"], one.client, one["count"], one["_change_type"]) for one in sink.rows()]
    places = [(one["_order"]["micro_batch"], *entry) for one, entry in zip(sink.rows(), seen, strict=True)]
    assert places == [
        (0, 0, "a", 1, "upsert"), (0, 1, "a", 2, "upsert"), (0, 2, "b", 1, "upsert"), (0, 3, None, 1, "upsert"),
        (1, 0, "a", 1, "upsert"), (1, 0, "b", 2, "upsert"), (1, 2, "b", 1, "upsert"),
        (2, 0, "b", None, "delete"), (2, 0, "c", 1, "upsert"), (2, 1, "a", None, "delete"),
        (2, 2, "a", 1, "upsert"),
    ]  # fmt: skip


def test_functions_of_the_user_as_kafka_streams_calls_them(
    spark: SparkSession, log: ChangeLog, tmp_path: Path
) -> None:
    groups = positions(log, spark).group_by("client", value=["n"])
    texts = groups.aggregate(
        lambda: "0",
        lambda _, row, text: f"{text}+{row.n}",
        lambda _, row, text: f"{text}-{row.n}",
        "text string",
    )
    added = groups.reduce(lambda one, other: (one.n + other.n,), lambda one, other: (one.n - other.n,))
    outputs = {"text": ts.to_memory("groups text"), "n": ts.to_memory("groups n")}
    run(
        texts.to(outputs["text"]),
        added.to(outputs["n"]),
        checkpoint=tmp_path / "checkpoint",
        compat="kafka-streams",
    )
    shown = {
        name: [(one.client, one[name], int(one["_timestamp"].timestamp()) - START) for one in sink.rows()]
        for name, sink in outputs.items()
    }
    assert sorted(shown["text"], key=repr) == sorted(
        [
            ("a", "0+1", 1), ("a", "0+1+2", 2), ("b", "0+3", 3),
            ("a", "0+1+2-1", 5), ("b", "0+3+5", 5), ("a", "0+1+2-1-2+6", 6), ("b", "0+3+5-3", 7),
            ("b", "0+3+5-3-5", 8), ("c", "0+8", 8), ("a", "0+1+2-1-2+6-6", 9), ("a", "0+1+2-1-2+6-6+10", 10),
        ],
        key=repr,
    )  # fmt: skip
    assert [n for client, n, _ in shown["n"] if client == "a"] == [1, 3, 2, 6, 0, 10]


@pytest.mark.exhaustive
def test_a_group_with_many_aggregates_of_many_columns_runs(spark: SparkSession, tmp_path: Path) -> None:
    """Pickled, their round has more than the megabyte from which Spark sends a function as a broadcast variable."""
    names = [f"c{number}" for number in range(120)]
    log = ChangeLog(tmp_path / "log", f"id int, {', '.join(f'{name} int' for name in names)}")
    log.add([{"id": id_, **{name: id_ * number for number, name in enumerate(names)}} for id_ in (1, 2)])
    functions: dict[str, Any] = {f"least_{name}": tf.min(name) for name in names} | {
        f"most_{name}": tf.max(name) for name in names
    }
    table = ts.table(log.read(spark), key="id").group_by(F.lit(1).alias("one")).agg(**functions)
    sink = ts.to_memory("many aggregates")
    run(table.to(sink, emit="final"), checkpoint=tmp_path / "checkpoint", shards=1)
    (found,) = sink.rows()
    assert [(found[f"least_{name}"], found[f"most_{name}"]) for name in names] == [
        (number, 2 * number) for number in range(120)
    ]


def test_bad_groups_are_refused_when_the_plan_is_built(spark: SparkSession, log: ChangeLog) -> None:
    table = positions(log, spark)
    with pytest.raises(ArgumentError, match="alias"):
        table.group_by(F.upper("client"))
    with pytest.raises(PlanError, match="nobody"):
        table.group_by("nobody")
    groups = table.group_by("client")
    with pytest.raises(ArgumentError, match="nothing to compute"):
        groups.agg()
    with pytest.raises(ArgumentError, match="needs the name of each aggregate"):
        groups.agg(tf.count())  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="is not an aggregate"):
        groups.agg(total=F.sum("amount"))  # type: ignore[arg-type]
    with pytest.raises(ColumnCollisionError, match="client"):
        groups.agg(client=tf.count())
    with pytest.raises(UnsupportedTypeError, match="least"):
        groups.agg(least=tf.min(F.array("n")))
    with pytest.raises(PlanError, match="nobody"):
        groups.agg(total=tf.sum("nobody"))
    with pytest.raises(UnsupportedTypeError, match="total"):
        groups.agg(total=tf.sum(F.lit("1")))
    with pytest.raises(ArgumentError, match="parsed"):
        groups.aggregate(int, lambda *_: 0, lambda *_: 0, "total strin g")


@pytest.mark.parametrize("kind", ["aggregate", "sum"])
def test_what_does_not_fit_ends_the_query_and_names_code_operator_line_column_and_value(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    log = ChangeLog(tmp_path / "log", "id int, n bigint")
    log.add([{"id": 1, "n": 900_000}], [{"id": 2, "n": 200_000}], [{"id": 3, "n": 1}])
    table = ts.table(log.read(spark), "id", name="rows")
    groups = table.group_by(F.lit("all").alias("g"))
    if kind == "sum":
        large = F.col("n") * F.lit(10**13)
        totals = groups.agg(total=tf.sum(large), mean=tf.avg(large), name="totals")
        expected = ["TABLESTREAM_TOTAL_OVERFLOW", 'group ("all") is 11000000000000000000', "bigint"]
    else:
        totals = groups.aggregate(
            lambda: Decimal(0),
            lambda _, row, total: total + row.n,
            lambda _, row, total: total - row.n,
            "total decimal(8,2)",
            name="totals",
        )
        expected = ["TABLESTREAM_FUNCTION_VALUE", "Decimal('1100000.00')", "decimal(8,2)"]
    sink = ts.to_memory(f"groups misfit {kind}")
    with pytest.raises(StreamingQueryException) as caught:
        run(totals.to(sink), checkpoint=tmp_path / "checkpoint")
    for part in [*expected, "'total'", "(totals/aggregate, built at ", "test_groups.py:"]:
        assert part in str(caught.value), part
    assert [int(row.total) for row in sink.rows()] == [900_000 * (10**13 if kind == "sum" else 1)]


@pytest.mark.exhaustive
def test_the_end_of_the_year_9999_in_new_york_goes_through_groups(
    spark: SparkSession, tmp_path: Path
) -> None:
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        log = ChangeLog(tmp_path / "log", "id int, until timestamp")
        ends = ["9999-12-31 23:59:59", "2024-01-01 00:00:00"]
        log.add([{"id": n, "until": end} for n, end in enumerate(ends)], [{"id": 2, "until": ends[0]}])
        table = ts.table(log.read(spark), "id", name="rows")
        groups = table.group_by(F.lit("all").alias("g"))
        spans = F.array(F.struct("until"))
        declared = groups.agg(
            least=tf.min("until"), most=tf.max("until"), first=tf.first(spans), every=tf.collect_list("until"),
            different=tf.count_distinct("until"),
        )  # fmt: skip
        reduced = groups.reduce(max, lambda one, _: one)
        sinks = ts.to_memory("years declared"), ts.to_memory("years reduced")
        shown = declared.select(
            "different", *(F.col(name).cast("string") for name in ("least", "most", "first", "every"))
        )
        latest = reduced.select(F.struct("until").cast("string").alias("until"))
        run(shown.to(sinks[0]), latest.to(sinks[1]), checkpoint=tmp_path / "checkpoint")
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    row = sinks[0].rows()[-1]
    assert (row.least, row.most, row.different) == (ends[1], ends[0], 2)
    assert row.first == f"[{{{ends[0]}}}]"
    assert sorted(row.every.strip("[]").split(", ")) == sorted([*ends, ends[0]])
    assert sinks[1].rows()[-1].until == f"{{{ends[0]}}}"
