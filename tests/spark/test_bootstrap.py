"""Tables that start with a batch frame and follow a log, through Spark."""

from __future__ import annotations

import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import tablestream as ts
from tablestream.errors import ArgumentError, PlanChangedError, PlanError
from tablestream.spark import bootstrap
from tests.marks import quick_first
from tests.spark.change_logs import START, ChangeLog, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

ORDERS = "id int, customer string, amount int, op string, ts bigint"
CUSTOMERS = "code string, name string"


class Shop:
    """Two logs, and the tables that start with rows of a database and follow them."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark, self.directory = spark, directory
        self.orders_log = ChangeLog(directory / "orders", ORDERS)
        self.customers_log = ChangeLog(directory / "customers", CUSTOMERS)
        self.orders_rows = spark.createDataFrame(
            [(n, "abc"[n % 3], n * 10) for n in range(30)], "id int, customer string, amount int"
        ).repartition(3)
        self.customers_rows = spark.createDataFrame([("a", "Ada"), ("b", "Bob"), ("d", "Dan")], CUSTOMERS)
        self.sink = ts.to_memory(f"bootstrap {directory}")

    def orders(self, **further: Any) -> ts.Table:
        given: dict[str, Any] = {"bootstrap": self.orders_rows, "name": "orders"}
        given |= {"columns": ["customer", "amount"], "timestamp": F.timestamp_seconds("ts")}
        frame = self.orders_log.read(self.spark)
        return ts.table(frame, "id", apply_as_deletes="op = 'd'", **given | further)

    def customers(self, **further: Any) -> ts.Table:
        given: dict[str, Any] = {"bootstrap": self.customers_rows, "name": "customers"}
        return ts.table(self.customers_log.read(self.spark), "code", columns=["name"], **given | further)

    def sold(self) -> ts.Table:
        return self.orders().join(self.customers(), on="customer", how="left", name="sold")

    def run(self, *outputs: Any, **options: Any) -> Counter[str]:
        asked = outputs or (self.sold().to(self.sink),)
        return run(*asked, checkpoint=self.directory / "checkpoint", shards=4, **options)

    def changes(self, micro_batch: int) -> list[tuple[Any, ...]]:
        rows = [row for row in self.sink.rows() if row["_order"]["micro_batch"] == micro_batch]
        return [(row["id"], row["amount"], row["name"]) for row in rows]

    @property
    def kept(self) -> list[Path]:
        return list((self.directory / "checkpoint").glob("tablestream-bootstrap/*/rows/*.parquet"))


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Shop:
    return Shop(spark, tmp_path)


NAMES = {0: "Ada", 1: "Bob", 2: None}


def order(number: int, customer: str, op: str = "u") -> dict[str, Any]:
    return {"id": number, "customer": customer, "amount": -number, "op": op, "ts": START + number}


@pytest.mark.exhaustive
@pytest.mark.usefixtures("several_partitions")
def test_two_bootstraps_show_no_half_row_and_the_logs_follow(shop: Shop, spark: SparkSession) -> None:
    """Each row of the join appears once, as it is after both; then the log's changes, each for itself."""
    shop.orders_log.add([order(1, "c"), order(1, "d"), order(2, "a", "d")])
    groups = ts.to_memory(f"groups {shop.directory}")

    def go_on() -> None:
        sold = shop.sold()
        amounts = sold.group_by("name").agg(n=ts.functions.count())
        shop.run(sold.to(shop.sink), amounts.to(groups, name="groups"))

    go_on()
    first = shop.changes(0)
    assert Counter(first[:30]) == Counter((n, n * 10, NAMES[n % 3]) for n in range(30))
    assert first[30:] == [(1, -1, None), (1, -1, "Dan"), (2, None, None)]
    assert {row["name"]: row["n"] for row in groups.rows()[:3]} == {"Ada": 10, "Bob": 10, None: 10}
    times = {row["id"]: row["_timestamp"].timestamp() for row in shop.sink.rows() if row["id"] > 2}
    assert set(times.values()) == {0.0}

    # It is never evaluated again, whatever its rows are now; its files go with the second micro-batch.
    assert len(shop.kept) >= 2
    shop.orders_rows = spark.createDataFrame([(7, "d", 7)], "id int, customer string, amount int")
    shop.customers_log.add([{"code": "c", "name": "Cyd"}])
    go_on()
    assert Counter(shop.changes(1)) == Counter((n, n * 10, "Cyd") for n in range(30) if n % 3 == 2 and n != 2)
    shop.orders_log.add([order(7, "d")])
    go_on()
    assert shop.changes(2) == [(7, -7, "Dan")]
    last = {row["name"]: row["n"] for row in groups.rows() if row["_change_type"] == "upsert"}
    assert {last[name] for name in ("Ada", "Cyd")} == {10, 9}
    assert not shop.kept


def failing(value: int) -> int:
    raise ValueError(f"the disk is full at {value}")


def test_a_failure_in_the_first_micro_batch_reads_the_same_rows_again(shop: Shop) -> None:
    """The restart has other rows in its frame, and takes those that were kept."""
    broken = F.udf(failing, "int")
    with pytest.raises(StreamingQueryException, match="the disk is full"):
        shop.run(shop.sold().with_columns(amount=broken("amount")).to(shop.sink))
    files = sorted(shop.kept)
    shop.orders_rows = shop.orders_rows.where("false")
    shop.customers_rows = shop.customers_rows.where("false")
    shop.run()
    assert sorted(shop.kept) == files
    assert Counter(shop.changes(0)) == Counter((n, n * 10, NAMES[n % 3]) for n in range(30))


@pytest.mark.exhaustive
def test_kept_rows_have_no_dictionaries_which_distinct_keys_would_fill_for_nothing(shop: Shop) -> None:
    shop.run(shop.orders().to(shop.sink))
    groups = [pq.read_metadata(file).row_group(0) for file in shop.kept]
    columns = [group.column(number) for group in groups for number in range(group.num_columns)]
    assert columns
    assert not any(column.has_dictionary_page for column in columns)


def test_a_driver_that_ends_while_it_writes_starts_again(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows count when the query was started with them."""

    def ends(rows: DataFrame, source: Any) -> None:
        del rows, source
        raise KeyboardInterrupt

    shop.orders_rows = shop.orders_rows.where("id < 3")
    with monkeypatch.context() as patched:
        patched.setattr(bootstrap, "_check_keys", ends)
        with pytest.raises(KeyboardInterrupt):
            shop.run(shop.orders().to(shop.sink))
    assert shop.kept
    shop.orders_rows = spark.createDataFrame([(100, "a", 1)], "id int, customer string, amount int")
    shop.run(shop.orders().to(shop.sink))
    assert [row["id"] for row in shop.sink.rows()] == [100]


@pytest.mark.exhaustive
def test_rows_of_a_start_that_failed_are_not_those_of_the_next(shop: Shop) -> None:
    """The next one may read the log from another place, and the rows in another way."""
    checkpoint = shop.directory / "checkpoint"
    with pytest.raises(ArgumentError, match="never"):
        ts.start(shop.orders().to(shop.sink), checkpoint=checkpoint, trigger={"processingTime": "never"})
    assert len(shop.kept) >= 2
    orders = shop.orders(bootstrap=shop.orders_rows.where("id < 3"), sequence_by="amount")
    shop.run(orders.to(shop.sink))
    assert sorted(row["id"] for row in shop.sink.rows()) == [0, 1, 2]


@pytest.mark.parametrize("name", quick_first(["hash", "count", "a.b"]))
def test_keys_that_are_there_twice_are_named_whatever_their_name_and_type(
    shop: Shop, spark: SparkSession, name: str
) -> None:
    kind = f"`{name}` struct<x: string, y: string>, v int"
    log = ChangeLog(shop.directory / "log", kind)
    rows: list[tuple[Any, int]] = [((None, "a"), 1), (("a", None), 2), (("b", "c"), 3)]

    def table(given: list[tuple[Any, int]]) -> ts.Table:
        frame = spark.createDataFrame(given, kind)
        return ts.table(log.read(spark), F.col(f"`{name}`"), name="log", bootstrap=frame)

    with pytest.raises(ArgumentError, match=r'several rows with one key: \{.*"x":"b"'):
        shop.run(table([*rows, (("b", "c"), 4)]).to(shop.sink))
    shop.run(table(rows).to(shop.sink))
    assert sorted(row["v"] for row in shop.sink.rows()) == [1, 2, 3]


@pytest.mark.exhaustive
def test_a_copied_checkpoint_does_not_read_its_rows_again(shop: Shop) -> None:
    """Before the second micro-batch Spark refuses the copy: it knows the files by their old place."""
    shop.run(shop.orders().materialize().to(shop.sink))
    copied = shop.directory / "copied"
    shutil.copytree(shop.directory / "checkpoint", copied)
    assert ts.relocate_checkpoint(copied)
    with pytest.raises(StreamingQueryException, match="basePath"):
        run(shop.orders().materialize().to(shop.sink), checkpoint=copied, shards=4)
    assert len(shop.sink.rows()) == 30


def test_a_key_that_is_no_number_is_there_twice_like_any_other(shop: Shop, spark: SparkSession) -> None:
    log = ChangeLog(shop.directory / "log", "k double, v int")
    twice = spark.createDataFrame([(float("nan"), 1), (1.0, 2), (float("nan"), 3)], "k double, v int")
    table = ts.table(log.read(spark), "k", name="log", bootstrap=twice)
    with pytest.raises(ArgumentError, match="several rows with one key"):
        shop.run(table.to(shop.sink))


def test_bad_bootstraps_are_refused(shop: Shop, spark: SparkSession) -> None:
    rows = shop.orders_rows
    with pytest.raises(ArgumentError, match="not a streaming one"):
        shop.orders(bootstrap=shop.orders_log.read(spark))
    with pytest.raises(ArgumentError, match="not a list"):
        shop.orders(bootstrap=[(1, "a", 2)])
    with pytest.raises(PlanError, match="bootstrap= has the columns id, customer"):
        shop.orders(bootstrap=rows.drop("amount"))
    with pytest.raises(ArgumentError, match="has the type bigint, and in the log it is int"):
        shop.orders(bootstrap=rows.withColumn("amount", F.col("amount").cast("bigint")))
    with pytest.raises(PlanError, match="Add what sequence_by= reads"):
        shop.orders(sequence_by="ts")
    with pytest.raises(ArgumentError, match="cannot be combined with reorder="):
        shop.orders(reorder="1 second")
    with pytest.raises(ArgumentError, match=r"ts\.start"):
        shop.sold().changes()
    with pytest.raises(ArgumentError, match=r'several rows with one key: \{"id":7\}'):
        shop.run(shop.orders(bootstrap=rows.union(rows.where("id = 7"))).to(shop.sink))
    with pytest.raises(PlanError, match="has no bootstrap"):
        shop.run(compat="kafka-streams")


def test_a_plan_that_gains_or_loses_a_bootstrap_is_refused(shop: Shop) -> None:
    """Also one without rounds, of which nothing else is known."""
    shop.run(shop.orders().to(shop.sink))
    with pytest.raises(PlanChangedError, match="bootstrap orders"):
        shop.run(shop.orders(bootstrap=None).to(shop.sink))
    with pytest.raises(PlanChangedError, match="bootstrap orders"):  # its rows would be others
        shop.run(shop.orders(columns=["amount"]).to(shop.sink))
    joined = run(shop.sold().to(shop.sink), checkpoint=shop.directory / "joined")
    assert joined
    with pytest.raises(PlanChangedError, match="starts with a bootstrap"):
        run(
            shop.orders()
            .join(shop.customers(bootstrap=None), on="customer", how="left", name="sold")
            .to(shop.sink),
            checkpoint=shop.directory / "joined",
        )


def test_what_a_bootstrap_can_leave_out_and_what_it_counts(shop: Shop, spark: SparkSession) -> None:
    """Deletes and times if it has their columns; a null key is counted and rejected; a sequence decides."""
    columns = "id int, customer string, amount int, op string, ts bigint"
    rows = [(1, "a", 1, "u", 50), (2, "b", 2, "d", 50), (None, "c", 3, "u", 50), (4, "d", 4, "u", 50)]
    shop.orders_rows = spark.createDataFrame(rows, columns)
    shop.orders_log.add([order(1, "z") | {"ts": 49}, order(4, "y") | {"ts": 51}])
    orders, rejected = shop.orders(sequence_by="ts"), ts.to_memory(f"rejected {shop.directory}")
    counts = shop.run(orders.to(shop.sink), orders.rejected().to(rejected))
    last = {row["id"]: row for row in shop.sink.rows()}
    found = {key: (row["customer"], row["_timestamp"].timestamp()) for key, row in last.items()}
    assert found == {1: ("a", 50.0), 2: (None, 50.0), 4: ("y", 51.0)}
    assert last[2]["_change_type"] == "delete"
    assert counts["orders: null-key"] == 1
    assert counts["orders/sequenced: superseded"] == 1
    told = {(row["reason"], row["source"], row["key"]) for row in rejected.rows()}
    assert ("null-key", "!bootstrap", '{"id":null}') in told


def test_a_bootstrap_comes_before_records_in_any_order_and_is_not_held_back(
    shop: Shop, spark: SparkSession
) -> None:
    """With an order that is no number, and in a plan whose records wait for each other."""
    shop.orders_log.add([order(5, "z", "d")])
    for number, order_by in enumerate(["op", "id"]):
        sink = ts.to_memory(f"ordered {number} {shop.directory}")
        run(shop.orders(order_by=order_by).to(sink), checkpoint=shop.directory / order_by)
        assert [row["id"] for row in sink.rows()][30:] == [5]
    table = ts.global_table(
        shop.customers_log.read(spark),
        "code",
        columns=["name"],
        name="customers",
        bootstrap=shop.customers_rows,
    )
    joined = shop.orders(history="1 hour").join(table, on="customer", how="left", name="sold")
    shop.run(joined.to(shop.sink), align=True)
    assert Counter(shop.changes(0)) == Counter((n, n * 10, NAMES[n % 3]) for n in range(30))


@pytest.mark.exhaustive
def test_rows_arrive_as_they_are_whatever_the_session_says_of_parquet(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A key that lost its microseconds would not be the log's."""
    log, sink = ChangeLog(tmp_path / "log", "at timestamp, n int"), ts.to_files(tmp_path / "out", "json")
    old, new = "1500-01-01T00:00:00.123456Z", "2024-01-01T00:00:00.123456Z"
    rows = spark.createDataFrame([(old, 1), (new, 2)], "at string, n int").withColumn(
        "at", F.to_timestamp("at")
    )
    millis = {
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "EXCEPTION",
    }
    log.add([{"at": old, "n": 3}, {"at": new, "n": 0}])
    for name, value in millis.items():
        spark.conf.set(name, value)
    try:
        table = ts.table(log.read(spark), "at", apply_as_deletes="n = 0", bootstrap=rows, name="rows")
        run(table.to(sink), checkpoint=tmp_path / "run", shards=1)
        assert {name: spark.conf.get(name) for name in millis} == millis
    finally:
        for name in millis:
            spark.conf.unset(name)
    changes = spark.read.schema("at timestamp, n int").json(str(tmp_path / "out"))
    assert Counter(map(tuple, changes.select(F.col("at").cast("string"), "n").collect())) == Counter(
        [(at.replace("T", " ").rstrip("Z"), n) for at, n in ((old, 1), (new, 2), (old, 3), (new, None))]
    )


def test_a_checkpoint_that_spark_would_take_for_a_pattern_is_refused(shop: Shop) -> None:
    with pytest.raises(ArgumentError, match="pattern"):
        run(shop.orders().to(shop.sink), checkpoint=shop.directory / "run[1]")
