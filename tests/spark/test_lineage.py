"""Frames whose rows were shuffled, sorted, exploded or joined before a table was made of them."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import tablestream as ts
from tablestream.errors import ArgumentError, PlanError
from tablestream.spark import lineage
from tablestream.spark.lineage import mixed_by
from tests.conftest import JARS
from tests.spark.change_logs import START, ChangeLog, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "topic string, partition int, offset bigint, id int, n int, at timestamp, items array<string>"


@pytest.fixture
def log(tmp_path: Path) -> ChangeLog:
    """One file with the records of a topic partition, three elements in each."""
    log = ChangeLog(tmp_path / "log", SCHEMA)
    log.add(
        [
            {
                "topic": "t",
                "partition": 0,
                "offset": n,
                "id": n % 2,
                "n": n,
                "at": f"2024-01-01T00:00:{n:02d}Z",
                "items": ["a", "b", "a"],
            }
            for n in range(20)
        ]
    )
    return log


def static(df: DataFrame) -> DataFrame:
    return df.sparkSession.range(3).withColumnRenamed("id", "other")


def sql(df: DataFrame, text: str) -> DataFrame:
    return df.sparkSession.sql(text, df=df)


def late(df: DataFrame) -> DataFrame:
    return df.withWatermark("at", "1 hour")


KEPT: dict[str, Callable[[DataFrame], DataFrame]] = {
    "as it is": lambda df: df,
    "filter and select": lambda df: df.where("n > 1").select("*", F.lit("+- ~Repartition 4").alias("x")),
    "coalesce": lambda df: df.coalesce(1),
    "explode": lambda df: df.select("*", F.explode("items")),
    "sample": lambda df: df.sample(0.5, seed=1),
    "watermark": late,
    "mapInArrow": lambda df: df.mapInArrow(lambda batches: batches, df.schema),
    "join with a broadcast": lambda df: df.join(F.broadcast(static(df)), F.expr("n = other")),
    "join with a broadcast aggregate": lambda df: df.join(
        F.broadcast(static(df).groupBy("other").count()), F.expr("n = other"), "left"
    ),
    "join with what is made of a broadcast": lambda df: df.join(
        F.broadcast(static(df)).alias("few").where("other > 0"), F.expr("n = few.other")
    ),
    "filter by a subquery that shuffles": lambda df: df.where("n > (select max(id) from range(3))"),
    "lateral explode": lambda df: sql(df, "select s.*, e.x from {df} s, lateral explode(items) e(x)"),
    "lateral of the row": lambda df: sql(df, "select * from {df} s, lateral (select n + 1 as m)"),
    "lateral with a broadcast": lambda df: sql(
        df,
        "select * from {df} s, lateral (select /*+ broadcast(f) */ f.id as m from range(3) f where f.id = n)",
    ),
    "a subquery of the row": lambda df: df.selectExpr("*", "(select n + 1) as m"),
    "filter by a broadcast subquery": lambda df: df.where(
        "n in (select /*+ broadcast(few) */ id from range(3) few)"
    ),
}
MIXED: dict[str, tuple[str, Callable[[DataFrame], DataFrame]]] = {
    "repartition": ("repartition", lambda df: df.repartition(4)),
    "repartition by a column": ("repartition", lambda df: df.repartition("id").select("*")),
    "repartition by range": ("repartition", lambda df: df.repartitionByRange("id")),
    "a hint": ("a rebalance hint", lambda df: df.hint("rebalance")),
    "coalesce after repartition": ("repartition", lambda df: df.repartition(4).coalesce(1)),
    "sort in tasks": ("a sort", lambda df: df.sortWithinPartitions("id")),
    "limit": ("limit", lambda df: df.limit(10)),
    "dropDuplicates": ("dropDuplicates", lambda df: df.dropDuplicates(["id"])),
    "dropDuplicates in a watermark": (
        "dropDuplicates",
        lambda df: late(df).dropDuplicatesWithinWatermark(["id"]),
    ),
    "join that Spark chooses": ("a join", lambda df: df.join(static(df), F.expr("n = other"))),
    "join with a join with a broadcast": (
        "a join",
        lambda df: df.join(F.broadcast(static(df)).join(static(df), "other"), F.expr("n = other")),
    ),
    "join of streams": (
        "a join",
        lambda df: late(df).join(late(df).select(F.col("at").alias("then")), F.expr("at = then")),
    ),
    "in a subquery": ("a subquery", lambda df: df.where("n in (select id from range(3))")),
    "not in a subquery": ("a subquery", lambda df: df.where("n not in (select id from range(3))")),
    "exists": ("a subquery", lambda df: df.where("exists (select 1 from range(3) few where few.id = n)")),
    "a subquery about the row": (
        "a subquery",
        lambda df: df.selectExpr("*", "(select max(id) from range(3) few where few.id = n) as most"),
    ),
    "a subquery about the row beside many columns": (
        "a subquery",
        lambda df: df.selectExpr(
            "*",
            *(f"n + {number} as c{number}" for number in range(30)),
            "(select max(id) from range(3) few where few.id = n) as most",
        ),
    ),
    "the greatest of exploded rows": (
        "a subquery",
        lambda df: df.selectExpr("*", "(select max(x) from explode(items) e(x)) as most"),
    ),
    "lateral join": (
        "a subquery",
        lambda df: df.lateralJoin(
            df.sparkSession.range(3).where(F.col("id") == F.col("n").outer()).alias("few")
        ),
    ),
    "union with itself": ("a union of a source with itself", lambda df: df.union(df)),
    "below a union": ("repartition", lambda df: df.repartition(2).union(df)),
}


#: Spark leaves a hint out of the plan where it does not adapt plans.
pytestmark = pytest.mark.usefixtures("as_users_have_it")


@pytest.mark.parametrize("name", KEPT)
def test_what_keeps_the_order_of_a_source_partition(spark: SparkSession, log: ChangeLog, name: str) -> None:
    assert mixed_by(KEPT[name](log.read(spark))) is None


@pytest.mark.parametrize("name", MIXED)
def test_what_loses_the_order_of_a_source_partition(spark: SparkSession, log: ChangeLog, name: str) -> None:
    said, mix = MIXED[name]
    assert mixed_by(mix(log.read(spark))) == said


def test_a_shuffle_in_sql_over_a_view_is_found(spark: SparkSession, log: ChangeLog) -> None:
    log.read(spark).createOrReplaceTempView("changes")
    assert mixed_by(spark.sql("SELECT * FROM changes")) is None
    assert mixed_by(spark.sql("SELECT * FROM changes DISTRIBUTE BY id")) == "repartition"
    spark.sql("SELECT * FROM changes DISTRIBUTE BY id").createOrReplaceTempView("shuffled")
    assert mixed_by(spark.sql("SELECT * FROM shuffled")) == "repartition"


@pytest.mark.skipif(not JARS, reason="Spark's Kafka connector is not in .jars/; fetch it with `make jars`")
def test_a_union_of_two_topics_keeps_the_order_of_each(spark: SparkSession) -> None:
    def read(topic: str) -> DataFrame:
        options = {"kafka.bootstrap.servers": "localhost:1", "subscribe": topic}
        return spark.readStream.format("kafka").options(**options).load()

    assert mixed_by(read("a").union(read("b"))) is None
    assert mixed_by(read("a").union(read("a"))) == "a union of a source with itself"


def test_what_others_print_while_a_plan_is_read_goes_where_it_went(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Frame:
        def explain(self, *, extended: bool) -> None:
            print("== Analyzed Logical Plan ==\n~Sort", extended)  # noqa: T201 (as PySpark does)
            thread = threading.Thread(target=print, args=["heard"])
            thread.start()
            thread.join()

    frame: Any = Frame()
    assert lineage.explained(frame) == "== Analyzed Logical Plan ==\n~Sort True\n"
    assert capsys.readouterr().out == "heard\n"


def test_a_shuffled_frame_is_refused_unless_its_order_is_given(spark: SparkSession, log: ChangeLog) -> None:
    """Files and Kafka alike; what was counted in a task is no position any more."""
    files = log.read(spark).drop("topic").repartition(4)
    topic = log.read(spark).repartition(4)
    for frame in (files, topic):
        with pytest.raises(
            ArgumentError, match=r"no longer in the order .* repartition came before"
        ) as caught:
            ts.table(frame, "id", timestamp="at", name="numbers")
        assert "order_by=" in caught.value.hint
        assert caught.value.operator == "numbers"
    with pytest.raises(ArgumentError, match="a join came before") as caught:
        ts.stream(log.read(spark).join(static(topic), F.expr("n = other")))
    assert "F.broadcast" in caught.value.hint
    for frame, marks in ((files, 0), (topic, 2)):
        source: Any = ts.table(frame, "id", order_by="n")._node
        assert len(source.frame.origin.partition) == marks


def test_the_last_record_wins_behind_a_shuffle_with_an_order(
    spark: SparkSession, log: ChangeLog, tmp_path: Path
) -> None:
    frame = log.read(spark).drop("topic").repartition(4)
    table = ts.table(frame, "id", timestamp="at", columns="n", order_by="n", name="numbers")
    sink = ts.to_memory("shuffled")
    run(table.to(sink), checkpoint=tmp_path / "checkpoint")
    assert [row.n for row in sink.rows()] == list(range(20))


def parquet(spark: SparkSession, log: ChangeLog, tmp_path: Path) -> DataFrame:
    path = tmp_path / "parquet"
    spark.read.schema(SCHEMA).json(str(log.path)).coalesce(1).drop("topic").write.parquet(str(path))
    for file in path.glob("*.parquet"):
        os.utime(file, (START, START))
    schema = spark.read.parquet(str(path)).schema
    return ts.from_files(spark, path, "parquet", schema)


def topic(spark: SparkSession, log: ChangeLog, _: Path) -> DataFrame:
    return log.read(spark)


@pytest.mark.parametrize("read", [parquet, topic])
def test_each_exploded_row_is_a_record_and_a_step(
    spark: SparkSession, log: ChangeLog, tmp_path: Path, read: Callable[..., DataFrame]
) -> None:
    """Of a Parquet row or an offset: a group shows each state, in the order of the elements."""
    frame = read(spark, log, tmp_path).select(
        "topic" if read is topic else "id", "*", F.explode("items").alias("item")
    )
    items = ts.stream(
        frame.select(
            *(name for name in ("topic", "partition", "offset") if read is topic), "n", "at", "item"
        ),
        "n",
        timestamp="at",
        columns=["item"],
        name="items",
    )
    sink = ts.to_memory(f"exploded {read.__name__}")
    run(items.group_by("item").count().to(sink), checkpoint=tmp_path / "checkpoint")
    rows = sorted(sink.rows(), key=lambda row: row["_order"])
    assert [(row.item, row["count"]) for row in rows[:6]] == [
        ("a", 1), ("b", 1), ("a", 2), ("a", 3), ("b", 2), ("a", 4),
    ]  # fmt: skip
    assert len(rows) == 60


def test_a_plan_whose_text_is_cut_is_refused(spark: SparkSession, log: ChangeLog) -> None:
    """Nothing would tell a shuffle in it."""
    spark.conf.set("spark.sql.maxPlanStringLength", "100")
    try:
        with pytest.raises(PlanError, match="maxPlanStringLength"):
            mixed_by(log.read(spark).repartition(4))
    finally:
        spark.conf.unset("spark.sql.maxPlanStringLength")
