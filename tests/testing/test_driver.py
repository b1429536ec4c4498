"""The driver's own promises: input in every form, clocks, tombstones, failures, restarts, and its errors."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T

import tablestream as ts
from tablestream import functions as tf
from tablestream.errors import (
    ArgumentError,
    MalformedRecordError,
    NotVersionedError,
    PlanChangedError,
    PlanError,
    StateError,
)
from tablestream.spark import blobs
from tablestream.testing import Driver, assert_changes_equal, frame
from tablestream.testing.exchange import InProcess
from tablestream.testing.fixtures import tablestream_spark  # noqa: F401 - a fixture
from tests.marks import quick_first

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def tickers(spark: SparkSession, **said: Any) -> ts.Table:
    read = frame(spark, "ticker string, price double, at timestamp")
    return ts.table(read, "ticker", timestamp="at", except_columns="at", name="tickers", **said)


def test_importing_the_library_does_not_import_the_driver() -> None:
    code = "import sys, tablestream as ts; assert 'tablestream.testing' not in sys.modules; ts.testing.Driver"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.exhaustive
def test_rows_in_every_form_are_the_same(spark: SparkSession) -> None:
    read = frame(spark, "id int, n decimal(9,2), on date, tags array<string>, raw binary, m map<string, int>")
    table = ts.table(read, "id", name="rows")
    found = []
    for rows in (
        'id|n|on|tags|raw|m\n1|2.5|2024-01-02|["a | b"]|0aFF|{"x":1}\n2|||||',
        [
            (1, Decimal("2.50"), "2024-01-02", ["a | b"], b"\n\xff", {"x": 1}),
            (2, None, None, None, None, None),
        ],
        [
            {"id": "1", "n": "2.5", "on": "2024-01-02", "tags": ["a | b"], "raw": b"\n\xff", "m": {"x": 1}},
            {"id": "2"},
        ],
    ):
        driver = Driver(table)
        driver.pipe("rows", rows)
        found.append(str(driver.run()))
        assert [(row.id, row.n, row.tags, row.m) for row in driver.table()] == [
            (1, Decimal("2.50"), ["a | b"], {"x": 1}),
            (2, None, None, None),
        ]
    assert found[0].splitlines()[1].startswith('1  | 2.50 | 2024-01-02 | ["a | b"] | 0AFF | {"x":1} | upsert')
    assert found[1:] == found[:-1]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("ticker | cost\nA | 1", "no column 'cost'"),
        ("ticker | ticker\nA | B", "no two columns of one name"),
        ("ticker | price\nA | cheap", "'cheap' is not a double, the type of the column price"),
        ([("A", 1.0)], "is not a row of the columns ticker, price, at"),
        ([{"ticker": "A", "price": object()}], "does not fit its column"),
    ],
)
def test_rows_that_do_not_fit_are_refused(spark: SparkSession, rows: Any, said: str) -> None:
    driver = Driver(tickers(spark))
    with pytest.raises(ArgumentError, match=said):
        driver.pipe("tickers", rows)


def test_what_does_not_exist_is_refused_with_what_does(spark: SparkSession) -> None:
    table = tickers(spark)
    driver = Driver(table)
    with pytest.raises(ArgumentError, match=r"no source 'quotes'.*Sources are: tickers"):
        driver.pipe("quotes", [])
    with pytest.raises(ArgumentError, match=r"no output 'quotes'.*Outputs are: tickers"):
        driver.changes("quotes")
    with pytest.raises(StateError, match="Call run"):
        driver.changes()
    with pytest.raises(StateError, match="no state yet"):
        driver.state("tickers")
    with pytest.raises(ArgumentError, match="needs an output"):
        Driver()
    with pytest.raises(ArgumentError, match="GlobalTable is not an output"):
        Driver(ts.global_table(frame(spark, "id int"), "id"))
    with pytest.raises(ArgumentError, match="have one name"):
        Driver(table, table)
    with pytest.raises(ArgumentError, match="is not a duration"):
        driver.advance("soon")
    with pytest.raises(ArgumentError, match="is not a time"):
        Driver(table, now="soon")


def test_the_wall_clock_advances_by_hand(spark: SparkSession) -> None:
    read = frame(spark, "id int, n int")
    held = ts.table(read, "id", name="rows").suppress("1 hour", wall_clock="10 seconds")
    driver = Driver(held, now="2024-01-02 12:00")
    driver.pipe("rows", "id | n\n1 | 1")
    assert len(driver.run()) == 0
    driver.advance("9 seconds")
    assert len(driver.run()) == 0
    driver.advance("1 second")
    again = driver.restarted()
    for one in (driver, again):
        assert_changes_equal(one.run(), "id | n | _timestamp\n1 | 1 | 2024-01-02 12:00:00")
        assert len(one.run()) == 0


def test_records_of_kafka_have_its_time_its_offsets_and_tombstones(spark: SparkSession) -> None:
    quotes = ts.table(frame(spark, "ticker string, price double", like="kafka"), "ticker", name="quotes")
    driver = Driver(quotes, now=datetime(2024, 1, 2, 12, tzinfo=UTC))
    driver.pipe(
        "quotes", "ticker | price | _kafka.timestamp\nA | 1 | \nB | 2 | 2024-01-01 09:00\nA | | \nA | 3 |"
    )
    driver.pipe("quotes", [{"ticker": "B", "_kafka.tombstone": False}])
    changes = driver.run()
    assert_changes_equal(
        changes,
        """
        ticker | price | _change_type | _timestamp
        A      | 1     | upsert       | 2024-01-02 12:00:00
        B      | 2     | upsert       | 2024-01-01 09:00:00
        A      | null  | delete       | 2024-01-02 12:00:00
        A      | 3     | upsert       | 2024-01-02 12:00:00
        B      | null  | upsert       | 2024-01-02 12:00:00
        """,
    )
    assert [row["_order"].position for row in changes] == [0, 1, 2, 3, 4]
    assert len(driver.table()) == 2


def test_a_malformed_record_leaves_the_driver_as_it_was(spark: SparkSession) -> None:
    read = frame(spark, "id int, n int, _corrupt_record string")
    counted = ts.table(read, "id", name="rows", except_columns="_corrupt_record").group_by("n").count()
    driver = Driver(counted)
    driver.pipe("rows", "id | n\n1 | 7")
    before = str(driver.run())
    driver.pipe("rows", "id | n | _corrupt_record\n2 | 7 |\n3 | | {broken")
    for _ in range(2):
        with pytest.raises(MalformedRecordError, match="broken"):
            driver.run()
    assert before.splitlines()[1].split() == ["7", "|", "1", "|", "upsert", "|", "1970-01-01", "00:00:00"]
    assert_changes_equal(driver.table(), "n | count\n7 | 1")
    assert_changes_equal(driver.state("rows_agg"), "n | count\n7 | 1")


def test_a_restarted_driver_has_only_the_state(spark: SparkSession) -> None:
    driver = Driver(tickers(spark).group_by("price").count(name="prices"))
    driver.pipe("tickers", "ticker | price | at\nA | 1 | 2024-01-01\nB | 1 | 2024-01-01")
    driver.run()
    again = driver.restarted()
    for one in (driver, again):
        one.pipe("tickers", "ticker | price | at\nC | 1 | 2024-01-02")
        assert_changes_equal(one.run(), "price | count | _change_type\n1 | 3 | upsert")
    other = again.restarted(tickers(spark).group_by("ticker").count(name="prices"))
    other.pipe("tickers", "ticker | price | at\nC | 1 | 2024-01-03")
    with pytest.raises(PlanChangedError):
        other.run()


def test_a_restarted_driver_may_show_other_columns(spark: SparkSession) -> None:
    driver = Driver(tickers(spark).to(ts.to_memory("x"), name="out"))
    driver.pipe("tickers", "ticker | price | at\nA | 1 | 2024-01-01\nB | 2 | 2024-01-01")
    driver.run()
    twice = tickers(spark).select((F.col("price") * 2).alias("twice"))
    other = driver.restarted(twice.to(ts.to_memory("x"), name="out"))
    other.pipe("tickers", "ticker | price | at\nA | 7 | 2024-01-02")
    for rows in (other.run(), other.changes(), other.table()):
        assert_changes_equal(rows, "ticker | twice\nA | 14")


@pytest.mark.parametrize("cell", quick_first(['{"x": "one"}', '{"x": 1, "y": {"at": "soon"}}', "oops"]))
def test_a_part_of_a_nested_value_that_does_not_fit_is_refused(spark: SparkSession, cell: str) -> None:
    driver = Driver(
        ts.table(frame(spark, "id int, p struct<x: int, y: struct<at: timestamp>>"), "id", name="rows")
    )
    with pytest.raises(
        ArgumentError, match="is not a struct<x:int,y:struct<at:timestamp>>, the type of the column p"
    ):
        driver.pipe("rows", f"id | p\n1 | {cell}")


@pytest.mark.parametrize(
    "time",
    quick_first(["2024-01-02T09:00:00Z", "2024-01-02T09:00:00.5+01:00", "1850-01-01T00:00:00-04:56:02"]),
)
def test_times_in_nested_values_may_have_any_form(spark: SparkSession, time: str) -> None:
    driver = Driver(ts.table(frame(spark, "id int, p array<timestamp>"), "id", name="rows"))
    driver.pipe("rows", f'id | p\n1 | ["{time}"]')
    (row,) = driver.run()
    assert row.p == [datetime.fromisoformat(time).astimezone(UTC).replace(tzinfo=None)]


def test_options_of_an_output_and_several_outputs(spark: SparkSession) -> None:
    table = tickers(spark, apply_as_deletes="price IS NULL")
    sink = ts.to_memory("not written")
    driver = Driver(table.to(sink, emit="final", before=True, name="images"), table.to_stream())
    driver.pipe("tickers", "ticker|price|at\nA|1|2024-01-01\nA|2|2024-01-02")
    assert_changes_equal(driver.run(), "ticker | price | _change_type\nA | 2 | insert")
    driver.pipe("tickers", "ticker|price|at\nA|3|2024-01-03\nB|4|2024-01-03\nB||2024-01-04")
    driver.run()
    assert_changes_equal(driver.table("images"), "ticker | price\nA | 3")
    assert len(driver.changes("tickers_stream" if "tickers_stream" in repr(driver) else "tickers")) == 5
    assert sink.rows() == []


def test_a_driver_shows_how_many_micro_batches_it_ran(spark: SparkSession) -> None:
    driver = Driver(tickers(spark))
    shown = []
    for _ in range(3):
        shown.append(repr(driver))
        driver.run()
    counts = ["0 micro-batches", "1 micro-batch", "2 micro-batches"]
    assert shown == [f"Driver of tickers, after {count}" for count in counts]


def test_versions_by_time_and_the_errors_of_read_state(spark: SparkSession) -> None:
    driver = Driver(tickers(spark, history="1 hour"), tickers_joined(spark))
    driver.pipe(
        "tickers", "ticker|price|at\nA|1|2024-01-01 12:00\nA|3|2024-01-01 12:20\nA|2|2024-01-01 12:10"
    )
    driver.run()
    assert_changes_equal(driver.table("tickers"), "ticker | price\nA | 3")
    versions = driver.state("tickers")
    assert [row.price for row in versions] == [1, 2, 3]
    assert_changes_equal(driver.state("tickers", as_of="2024-01-01 12:15"), "ticker | price\nA | 2")
    with pytest.raises(ArgumentError, match="does not reach back"):
        driver.state("tickers", as_of="2024-01-01 10:00")
    with pytest.raises(ArgumentError, match="no table 'quotes'"):
        driver.state("quotes")
    named = Driver(tickers(spark).materialize().to(ts.to_memory("named"), name="shown"), shards=2)
    named.pipe("tickers", "ticker|price|at\nA|1|2024-01-01 12:00")
    named.run()
    assert [row.price for row in named.state("shown")] == [1]
    with pytest.raises(NotVersionedError):
        driver.state("counted", as_of="2024-01-01 12:15")


def tickers_joined(spark: SparkSession) -> ts.Table:
    read = frame(spark, "id int, at timestamp")
    return ts.table(read, "id", timestamp="at", name="others").group_by("at").count(name="counted")


def test_dropped_records_are_counted_and_shown(spark: SparkSession) -> None:
    driver = Driver(tickers(spark))
    driver.pipe("tickers", "ticker|price|at\n|1|2024-01-01\nA|1|")
    driver.run()
    assert driver.counts == {"tickers: null-key": 1, "tickers: null-timestamp": 1}
    again = driver.restarted()
    assert len(again.rejected()) == 2
    assert_changes_equal(driver.rejected(), "operator|reason\ntickers|null-key\ntickers|null-timestamp")
    assert len(driver.rejected()) == 0


def test_a_bootstrap_is_the_first_step(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("A", 1.0), ("B", 2.0)], "ticker string, price double")
    table = tickers(spark, bootstrap=rows)
    driver = Driver(table.group_by("price").agg(n=tf.count()))
    driver.pipe("tickers", "ticker|price|at\nA|2|2024-01-01")
    driver.run()
    assert_changes_equal(driver.table(), "price | n\n2 | 2")
    driver.pipe("tickers", "ticker|price|at\nC|2|2024-01-01")
    assert_changes_equal(driver.run(), "price | n\n2 | 3")


def test_a_source_that_is_captured_is_refused(spark: SparkSession) -> None:
    feed = frame(spark, "id int, _change_type string, _commit_version bigint, _commit_timestamp timestamp")
    with pytest.raises(ArgumentError, match="captured from a database"):
        Driver(ts.from_change_feed(feed, "id", name="rows"))


def test_columns_that_are_bound_to_a_frame_are_refused(spark: SparkSession) -> None:
    read = frame(spark, "id int, n int")
    driver = Driver(ts.table(read, read["id"], name="rows"))
    driver.pipe("rows", "id | n\n1 | 1")
    with pytest.raises(PlanError, match="Name the columns"):
        driver.run()


def test_records_wait_for_each_other(spark: SparkSession) -> None:
    driver = Driver(tickers(spark), align=True)
    driver.pipe("tickers", "ticker|price|at\nA|1|2024-01-01\nB|2|2024-01-02")
    assert_changes_equal(driver.run(), "ticker\nA")
    driver.pipe("tickers", "ticker|price|at\nC|3|2024-01-03")
    assert_changes_equal(driver.run(), "ticker\nB")


def test_a_frame_between_rounds_has_one_column_for_each_table_that_is_opened(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    widths, unpack = list[int](), InProcess.unpack

    def counted(self: InProcess, stream: Any, unpacker: Any, schema: T.StructType) -> DataFrame:
        widths.append(len(schema) - len(blobs.FIELDS))
        return unpack(self, stream, unpacker, schema)

    monkeypatch.setattr(InProcess, "unpack", counted)
    people = ts.table(frame(spark, "id int, place int, spot int, age int"), "id", name="people")
    places = ts.table(frame(spark, "name int, size int"), "name", name="places")
    spots = ts.table(frame(spark, "at int, height int"), "at", name="spots")
    for count in (2, 5):
        near = [people.join(places, on=F.col("place") + n, how="left") for n in range(count)]
        far = [one.join(spots, on=F.col("spot") * F.col("size"), how="left") for one in near]
        driver = Driver(*(one.to(ts.to_memory(f"far{n}"), name=f"far{n}") for n, one in enumerate(far)))
        driver.pipe("people", [{"id": 1, "place": 2, "spot": 3}])
        driver.pipe("places", [{"name": 3, "size": 2}])
        driver.pipe("spots", [{"at": 6, "height": 7}])
        widths.clear()
        driver.run()
        assert max(widths) == count
        assert [driver.table(f"far{n}")[0]["height"] for n in range(2)] == [None, 7]


def test_the_fixture_gives_the_session_that_is_there(
    spark: SparkSession,
    tablestream_spark: SparkSession,  # noqa: F811
) -> None:
    assert tablestream_spark is spark


def test_a_frame_without_a_source_is_checked(spark: SparkSession) -> None:
    with pytest.raises(ArgumentError, match="cannot be parsed"):
        frame(spark, "id what is this")
    with pytest.raises(ArgumentError, match="One of 'files', 'kafka'"):
        frame(spark, "id int", like="topic")  # type: ignore[arg-type]
