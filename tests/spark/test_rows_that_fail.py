"""Rows for which an expression fails: they end the query with a sentence, give null, or leave their table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import tablestream as ts
from tablestream import functions as tf
from tablestream.errors import ArgumentError, ExpressionError, PlanError
from tablestream.planner.physical_plan import Output
from tablestream.spark.failing import Risk
from tablestream.spark.options import plan_options
from tablestream.spark.plan import lowered
from tablestream.spark.source_risks import asked
from tablestream.testing import Driver, frame
from tests.marks import quick_first

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tablestream.spark.options import FailedRow, OnError

pytestmark = pytest.mark.usefixtures("as_users_have_it")


def texts(spark: SparkSession, **said: Any) -> ts.Table:
    return ts.table(frame(spark, "id int, txt string, n int"), "id", name="texts", **said)


def outcome(table: Any, *batches: list[tuple[Any, ...]], on_error: OnError, source: str = "texts") -> Any:
    """The rows of a table at the end, its counts, and what was rejected."""
    driver = Driver(table, on_error=on_error)
    rejected = []
    for batch in batches:
        driver.pipe(source, batch)
        driver.run()
        rejected += [(one.operator, one.reason, one.key, one.record) for one in driver.rejected()]
    rows = driver.changes() if isinstance(table, ts.Stream) else driver.table()
    counts = {name: count for name, count in driver.counts.items() if count and name != "changes"}
    return [tuple(row)[: len(table.columns)] for row in rows], counts, rejected


ROWS = [(1, "7", 1), (2, "abc", 2), (3, "9", 0)]
VIEWS: dict[str, Callable[[ts.Table], ts.Table]] = {
    "select": lambda t: t.select(F.expr("CAST(txt AS INT) AS m"), "n"),
    "with_columns": lambda t: t.with_columns(m="CAST(txt AS INT)", k=F.lit(1)).select("m", "n"),
    "over a group": lambda t: (
        t.group_by("id").agg(txt=tf.max("txt"), n=tf.max("n")).select(F.expr("CAST(txt AS INT) AS m"), "n")
    ),
}


@pytest.mark.parametrize("view", quick_first(VIEWS))
def test_a_value_that_fails_is_null_or_its_row_leaves_the_table(spark: SparkSession, view: str) -> None:
    table = VIEWS[view](texts(spark))
    later = [(1, "x", 1)]
    rows, counts, rejected = outcome(table, ROWS, later, on_error="null")
    assert rows == [(1, None, 1), (2, None, 2), (3, 9, 0)]
    assert (list(counts.values()), rejected) == ([2], [])
    rows, counts, rejected = outcome(table, ROWS, later, on_error="reject")
    assert rows == [(3, 9, 0)]
    (name,) = counts
    assert (counts, name.endswith(": failed-expression")) == ({name: 2}, True)
    assert [(reason, key) for _, reason, key, _ in rejected] == [
        ("failed-expression", '{"id":2}'), ("failed-expression", '{"id":1}')
    ]  # fmt: skip
    assert '"txt":"abc"' in rejected[0][-1]


@pytest.mark.parametrize("view", quick_first(VIEWS))
def test_an_error_names_table_expression_key_place_and_row(spark: SparkSession, view: str) -> None:
    driver = Driver(VIEWS[view](texts(spark)))
    driver.pipe("texts", ROWS)
    with pytest.raises(Exception, match="TABLESTREAM_EXPRESSION") as raised:
        driver.run()
    said = str(raised.value)
    assert 'm = CAST(txt AS INT) cannot be computed for the row with the key {"id":2} (texts, row 1)' in said
    assert '"txt":"abc"' in said
    assert "built at test_rows_that_fail.py:" in said


def test_expressions_of_a_source(spark: SparkSession) -> None:
    table = ts.table(
        frame(spark, "id string, at string, n int"),
        F.expr("CAST(id AS INT) AS id"),
        timestamp="CAST(at AS TIMESTAMP)",
        columns=[F.expr("10 DIV n AS tenth")],
        apply_as_deletes="n + 2147483646 < 0",
        name="texts",
    )
    good = [("1", "2024-01-01", 1), ("2", "2024-01-01", 1), ("3", "2024-01-01", 1)]
    bad = [("x", "2024-01-01", 1), ("1", "soon", 2), ("2", "2024-01-02", 0), ("3", "2024-01-02", 5)]
    rows, counts, rejected = outcome(table, good, bad, on_error="null")
    assert rows == [(1, 10), (2, None), (3, 2)]
    assert counts == {"texts: null-key": 1, "texts: null-timestamp": 1, "texts: failed-expression": 4}
    assert [reason for _, reason, _, _ in rejected] == ["null-key", "null-timestamp"]
    rows, counts, rejected = outcome(table, good, bad, on_error="reject")
    assert (rows, counts) == ([(1, 10)], {"texts: failed-expression": 4})
    assert [key for _, _, key, _ in rejected] == ['{"id":null}', '{"id":1}', '{"id":2}', '{"id":3}']
    driver = Driver(table)
    driver.pipe("texts", good + bad[2:])
    with pytest.raises(
        ExpressionError, match=r"tenth = .10 div n. cannot be computed for the row with the key"
    ):
        driver.run()


@pytest.mark.exhaustive
def test_conditions_keys_and_groups(spark: SparkSession) -> None:
    table = texts(spark)
    kept = table.filter("CAST(txt AS INT) > 0")
    assert outcome(kept, ROWS, on_error="null")[0] == [(1, "7", 1), (3, "9", 0)]
    assert outcome(kept, ROWS, on_error="reject")[1] == {"texts_filter: failed-expression": 1}
    others = table.filter_not("CAST(txt AS INT) > 8")
    assert outcome(others, ROWS, on_error="null")[0] == [(1, "7", 1), (2, "abc", 2)]
    assert outcome(others, ROWS, on_error="reject")[0] == [(1, "7", 1)]
    gone = table.select("n", delete_when="CAST(txt AS INT) > 8")
    assert outcome(gone, ROWS, on_error="null")[0] == [(1, 1), (2, 2)]
    assert outcome(gone, ROWS, on_error="reject")[0] == [(1, 1)]
    grouped = table.group_by(F.expr("CAST(txt AS INT) AS g")).agg(n=tf.count())
    assert outcome(grouped, ROWS, on_error="null")[0] == [(None, 1), (7, 1), (9, 1)]
    rows, counts, rejected = outcome(grouped, ROWS, [(3, "z", 1)], on_error="reject")
    assert (rows, list(counts.values())) == ([(7, 1)], [2])
    assert [key for _, _, key, _ in rejected] == ['{"id":2}', '{"id":3}']
    stream = ts.stream(frame(spark, "id int, txt string, n int"), "id", name="texts")
    mapped = stream.select(F.expr("CAST(txt AS INT) AS m"))
    assert outcome(mapped, ROWS, on_error="null")[0] == [(1, 7), (2, None), (3, 9)]
    assert outcome(mapped, ROWS, on_error="reject")[0] == [(1, 7), (3, 9)]
    keyed = stream.select_key(F.expr("CAST(txt AS INT) AS m"))
    assert [row[0] for row in outcome(keyed, ROWS, on_error="reject")[0]] == [7, 9]


@pytest.mark.exhaustive
def test_joins(spark: SparkSession) -> None:
    table, other = texts(spark), ts.table(frame(spark, "k int, v int"), "k", name="others")
    joined = table.join(
        other,
        on=lambda _: F.expr("CAST(txt AS INT)"),
        how="left",
        select=lambda t, o: [t.txt, (F.lit(10) / o.v).cast("int").alias("share")],
    )
    expectations: dict[FailedRow, Any] = {
        "null": [(1, "7", 5), (2, "abc", None), (3, "9", None)],
        "reject": [(1, "7", 5)],
    }
    for on_error, expected in expectations.items():
        driver = Driver(joined, on_error=on_error)
        driver.pipe("others", [(7, 2), (9, 0)])
        driver.run()
        driver.pipe("texts", ROWS)
        driver.run()
        assert [tuple(row)[:3] for row in driver.table()] == expected
        driver.pipe("others", [(7, 0), (9, 1)])
        driver.run()
        later = [row[:3] for row in map(tuple, driver.table())]
        assert (
            later
            == {
                "null": [(1, "7", None), (2, "abc", None), (3, "9", 10)],
                "reject": [(3, "9", 10)],
            }[on_error]
        )


def rated(rows: ts.Stream | ts.Table) -> ts.Table:
    def rate(_key: Any, row: Any, total: int) -> int:
        return int(total + 10 // row.n)

    def less(_key: Any, row: Any, total: int) -> int:
        return int(total - 10 // row.n)

    if isinstance(rows, ts.Table):
        return rows.group_by("txt", value=["n"]).aggregate(int, rate, less, "total int")
    return rows.group_by("txt", value=["n"]).aggregate(int, rate, "total int")


@pytest.mark.exhaustive
def test_a_function_of_a_group_that_raises(spark: SparkSession) -> None:
    stream = ts.stream(frame(spark, "id int, txt string, n int"), "id", name="texts")
    batches = [[(1, "a", 5), (2, "a", 0), (3, "b", 0)], [(4, "b", 2), (5, "b", 0), (6, "a", 10)]]
    rows, counts, rejected = outcome(rated(stream), *batches, on_error="reject")
    assert (rows, list(counts.values())) == ([("a", 3), ("b", 5)], [3])
    assert [record for *_, record in rejected] == ['{"id":2,"i0":0}', '{"id":3,"i0":0}', '{"id":5,"i0":0}']
    whole = [batches[0] + batches[1]]
    assert outcome(rated(stream), *whole, on_error="reject") == (rows, counts, rejected)
    assert outcome(rated(stream), *batches, on_error="null")[::2] == (rows, [])
    driver = Driver(rated(stream))
    driver.pipe("texts", batches[0][:2])
    with pytest.raises(ExpressionError, match="ZeroDivisionError") as raised:
        driver.run()
    assert "for the group 'a', with the row Row(n=0). The row is that of texts, row 1." in str(raised.value)
    with pytest.raises(PlanError, match="could not be subtracted"):
        Driver(rated(texts(spark)), on_error="reject")


def test_a_text_that_is_taken_for_a_condition_can_fail(spark: SparkSession) -> None:
    table = texts(spark).filter("txt AND n IS NOT NULL")
    rows = [(1, "true", 1), (2, "abc", 2), (3, None, 3)]
    found, counts, _ = outcome(table, rows, on_error="reject")
    assert (found, counts) == ([(1, "true", 1)], {"texts_filter: failed-expression": 1})


def test_what_cannot_be_caught_is_refused_by_name(spark: SparkSession) -> None:
    half = F.udf(lambda n: 1 // n, "int")
    table = texts(spark).with_columns(half=half("n"), m="CAST(txt AS INT)")
    driver = Driver(table, on_error="reject")
    driver.pipe("texts", ROWS)
    with pytest.raises(PlanError, match="cannot catch the errors of Python functions"):
        driver.run()
    with pytest.raises(ArgumentError, match="on_error names 'text', which is no table"):
        Driver(table, on_error={"text": "null"})
    with pytest.raises(ArgumentError, match="on_error='drop' is not known"):
        Driver(table, on_error="drop")  # type: ignore[arg-type]


def test_a_query_that_fails_goes_on_from_its_checkpoint_in_another_way(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.mkdir()
    (log / "1.csv").write_text("1,7,4\n2,8,4\n")
    read = ts.from_files(spark, str(log), "csv", "id int, txt string, n int")
    table = ts.table(read, "id", name="texts")
    latest = table.group_by("id").agg(txt=tf.max("txt"), n=tf.sum("n"))
    number = latest.select(F.expr("CAST(txt AS INT) AS number"), name="numbers")
    kept = number.join(number, select=lambda one, two: [one.number, two.number.alias("same")])
    numbers, joined, failed = map(ts.to_memory, ("failing numbers", "failing joined", "failed rows"))
    outputs = [number.to(numbers), kept.to(joined), number.rejected().to(failed)]

    def run(**options: Any) -> None:
        ts.start(
            *outputs, checkpoint=str(tmp_path / "checkpoint"), trigger={"availableNow": True}, **options
        ).awaitTermination()

    run()
    (log / "2.csv").write_text("1,abc,0\n")
    with pytest.raises(StreamingQueryException) as raised:
        run()
    said = str(raised.value)
    assert said.startswith(
        "[TABLESTREAM_EXPRESSION] number = CAST(txt AS INT) cannot be computed for the row with the key"
    )
    assert '{"id":1} (file:' in said.partition("\n")[0]
    assert "2.csv, row 0): the row is" in said.partition("\n")[0]
    assert '"txt":"abc"' in said.partition("\n")[0]
    run(on_error={"numbers": "reject"})
    changes = [(row.id, row.number, row._change_type) for row in numbers.rows()]
    assert changes[2:] == [(1, None, "delete")]
    assert [(one.operator, one.reason, one.key) for one in failed.rows()] == [
        ("numbers", "failed-expression", '{"id":1}')
    ]
    assert [(row.id, row.same) for row in joined.rows()] == [(1, 7), (2, 8), (1, None)]


@pytest.mark.exhaustive
def test_expressions_that_share_a_part_are_asked_one_by_one(spark: SparkSession) -> None:
    """Spark computes what they share beforehand, if it may, where nothing catches its error."""
    shared = {"a": "CAST(txt AS INT) + 1", "b": "CAST(txt AS INT) + 1", "c": "CAST(txt AS INT) + 10 DIV n"}
    table = texts(spark).with_columns(**shared).select("a", "b", "c")
    expected = [(1, 8, 8, 17), (2, None, None, None), (3, 10, 10, None)]
    assert outcome(table, ROWS, on_error="null")[0] == expected
    assert outcome(table, ROWS, on_error="reject")[0] == expected[:1]
    source = ts.table(
        frame(spark, "id int, txt string, n int"),
        "id",
        timestamp="timestamp_seconds(10 DIV n)",
        columns=[F.expr(one).alias(name) for name, one in shared.items()],
        name="texts",
    )
    assert outcome(source, ROWS, on_error="null")[0] == expected[:2]
    assert outcome(source, ROWS, on_error="reject")[0] == expected[:1]


def test_a_version_that_is_rejected_ends_the_one_before_it(spark: SparkSession) -> None:
    rows = frame(spark, "id int, at timestamp, txt string")
    log = ts.table(rows, "id", timestamp="at", columns=["txt"], history="1 day", name="texts")
    number = log.select(F.expr("CAST(txt AS INT) AS number"), name="numbers")
    driver = Driver(number, on_error="reject")
    times = ("2024-01-01 09:00:00", "2024-01-01 11:00:00", "2024-01-01 10:00:00")
    driver.pipe("texts", list(zip((1, 1, 1), times, ("7", "x", "8"), strict=True)))
    driver.run()
    changes = [(row.number, row._change_type, row._is_latest) for row in driver.changes()]
    assert changes == [(7, "upsert", True), (None, "delete", True), (8, "upsert", False)]
    assert driver.counts["numbers: failed-expression"] == 1


def test_a_message_can_leave_the_values_out(spark: SparkSession) -> None:
    for view in (VIEWS["select"], VIEWS["over a group"]):
        driver = Driver(view(texts(spark)), redact=True)
        driver.pipe("texts", ROWS)
        with pytest.raises(
            Exception, match=r"key \(left out\) \(texts, row 1\): the row is \(left out\)"
        ) as raised:
            driver.run()
        assert "abc" not in str(raised.value).partition("SQLSTATE")[0]


@pytest.mark.parametrize("align", quick_first([False, True]))
def test_on_error_is_no_part_of_what_a_restart_compares(spark: SparkSession, *, align: bool) -> None:
    table = texts(spark)
    number = table.select(F.expr("CAST(txt AS INT) AS number"), "n", name="numbers")
    groups = number.group_by("number").agg(n=tf.sum("n"))
    joined = groups.join(
        number, on=lambda _: F.expr("CAST(n AS INT)"), how="left", select=lambda one, _: [one.n]
    )
    for output in (
        Output(number._node),
        Output(number._node, final=True),
        Output(number._node, before=True),
        Output(number.filter("n > 1")._node, minimal=True),
        Output(joined._node),
        Output(joined.filter("n > 1").select("n")._node, final=True),
    ):
        wanted = [output, Output(output.node, rejected=True)]
        modes = [plan_options(None, 4, align, on_error) for on_error in ("fail", "null", "reject")]
        assert len({lowered(wanted, mode).text for mode in modes}) == 1


def test_what_compiled_expressions_share_is_not_computed_before_it_is_asked(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.createDataFrame([(1, "7"), (2, "x")], "id int, txt string").write.parquet(str(tmp_path / "rows"))
    risks = [Risk(f"{n}", F.expr(f"CAST(txt AS INT) + {n}"), '"integer"') for n in (1, 2)]
    rows = spark.read.parquet(str(tmp_path / "rows")).withColumn("said", asked(risks))
    assert sorted((row.id, row.said) for row in rows.collect()) == [(1, None), (2, "1")]
