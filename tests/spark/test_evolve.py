"""Queries that evolve, through Spark: sources, state and targets go on where the old plan stopped."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import duckdb
import polars as pl
import pytest
from pyspark.sql import functions as F

import tablestream as ts
from tablestream import functions as tf
from tablestream.connectors.delta.by_delta_rs import RsTable
from tablestream.connectors.delta.by_spark import SparkTable
from tablestream.errors import ArgumentError, PlanChangedError, PlanError, StateError, TargetError
from tablestream.planner.evolution import Facts, SourceFacts
from tablestream.spark import evolve as evolving
from tablestream.spark.stored_plan import store_facts, stored_facts
from tests.marks import quick_first
from tests.spark.change_logs import ChangeLog, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tablestream.spark.requests import OutputRequest


class Broken(Exception):  # noqa: N818 - it is on purpose
    """Ends an evolution half-way."""


class Shop:
    """Two logs, and plans over them."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        """Make the logs."""
        self.spark, self.place = spark, place
        self.checkpoint = place / "checkpoint"
        self.logs = {
            "orders": ChangeLog(place / "orders", "id int, c int, amount int, gone boolean"),
            "customers": ChangeLog(place / "customers", "id int, name string, gone boolean"),
            "cities": ChangeLog(place / "cities", "id int, city string, gone boolean"),
        }

    def table(self, name: str, **said: Any) -> ts.Table:
        frame = self.logs[name].read(self.spark)
        given: dict[str, Any] = {"apply_as_deletes": "gone", "except_columns": ["gone"]} | said
        return ts.table(frame, "id", name=name, **given)

    def joined(self, orders: ts.Table, customers: ts.Table, to: str = "joined") -> OutputRequest:
        return orders.join(customers, on="c", how="left", name="joined").to(ts.to_files(self.place / to))

    def groups(self, orders: ts.Table) -> OutputRequest:
        sums = orders.group_by("c").agg(n=tf.count(), total=tf.sum("amount"), name="groups")
        return sums.to(ts.to_delta(self.place / "groups"))

    def old(self) -> list[OutputRequest]:
        orders, customers = self.table("orders"), self.table("customers")
        removed = orders.filter("amount > 5").to(ts.to_files(self.place / "removed"), name="removed")
        return [self.joined(orders, customers), self.groups(orders), removed]

    def new(self) -> list[OutputRequest]:
        orders, customers, cities = map(self.table, self.logs)
        names = customers.group_by("name").agg(n=tf.count(), name="names")
        here = customers.join(cities, how="left", name="here")
        return [
            here.to(ts.to_files(self.place / "here")),
            self.joined(orders, customers),
            self.groups(orders.filter("amount > 10")),
            names.to(ts.to_files(self.place / "names")),
        ]

    def run(self, outputs: list[OutputRequest], **options: Any) -> None:
        run(*outputs, checkpoint=self.checkpoint, **options)

    def log(self, name: str) -> pl.DataFrame:
        """The changes in a log, in their order, without what no two queries share."""
        changes = self.spark.read.parquet(str(self.place / name)).orderBy("_order")
        rows = changes.drop("_order", "_timestamp", "micro_batch")
        return pl.DataFrame(rows.toArrow())

    def order(self, ident: int, customer: int | None, amount: int, gone: bool = False) -> dict[str, Any]:
        return {"id": ident, "c": customer, "amount": amount, "gone": gone}

    def customer(self, ident: int, name: str, gone: bool = False) -> dict[str, Any]:
        return {"id": ident, "name": name, "gone": gone}


def last_rows(changes: pl.DataFrame, key: str) -> set[tuple[Any, ...]]:
    """The table that a log leaves."""
    last = changes.unique(key, keep="last").filter(pl.col("_change_type") != "delete")
    return set(last.drop("_change_type").rows())


def delta(place: Path) -> set[tuple[Any, ...]]:
    return set(pl.DataFrame(deltalake.DeltaTable(str(place)).to_pyarrow_table()).rows())


@pytest.mark.usefixtures("several_partitions")
def test_a_query_goes_on_with_another_plan(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(spark, tmp_path)
    order, customer = shop.order, shop.customer
    shop.logs["orders"].add(
        [order(n, n % 3 if n % 4 else None, 3 * n) for n in range(10)],
        [order(1, 2, 100), order(2, 0, 0, gone=True)],
    )
    shop.logs["customers"].add([customer(n, f"n{n % 2}") for n in range(3)])
    shop.run(shop.old(), evolvable=True)
    shop.logs["cities"].add([{"id": 0, "city": "X", "gone": False}])

    # What becomes of each part is known before; nothing is written.
    found = ts.check(*shop.new(), checkpoint=shop.checkpoint)
    fates = {(one.part, one.name): one.fate for one in found.parts if one.part != "operator"}
    assert fates == {
        ("source", "orders"): "kept",
        ("source", "customers"): "kept",
        ("source", "cities"): "new",
        ("output", "joined"): "silent",
        ("output", "groups"): "brought over",
        ("output", "names"): "new",
        ("output", "here"): "new",
        ("output", "removed"): "removed",
    }
    assert found.micro_batch == 1
    with pytest.raises(
        PlanChangedError, match=r'on_plan_change="evolve".*`tablestream evolve module:object --ch'
    ):
        shop.run(shop.new())
    assert ts.check(*shop.old(), checkpoint=shop.checkpoint).is_same
    self_refused(shop)
    # A failure leaves the old plan, and the next attempt begins anew.
    for place, point, fails, error in (
        (evolving._Change, "_take_places", broken, Broken),
        (evolving, "saying_what_failed", interrupted, KeyboardInterrupt),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, point, fails)
            with pytest.raises(error):
                ts.evolve(*shop.new(), checkpoint=shop.checkpoint)
        assert not spark.streams.active
    assert ts.evolve(*shop.new(), checkpoint=shop.checkpoint).parts == found.parts
    assert delta(tmp_path / "groups") == {(0, 2, 45), (1, 1, 21), (2, 2, 115), (None, 2, 36)}
    assert shop.log("names").rows() == [("n0", 2, "upsert"), ("n1", 1, "upsert")]
    silent = shop.log("joined").height

    # Later changes reach all outputs; of those that existed, every one once.
    shop.logs["orders"].add([order(3, 2, 100), order(4, None, 0, gone=True)])
    shop.logs["customers"].add([customer(2, "x")])
    shop.run(shop.new())
    assert shop.log("joined").height > silent
    assert delta(tmp_path / "groups") == {(0, 2, 45), (1, 1, 21), (2, 3, 215), (None, 1, 24)}
    assert last_rows(shop.log("names"), "name") == {("n0", 1), ("n1", 1), ("x", 1)}
    assert last_rows(shop.log("here"), "id") == {(0, "n0", "X"), (1, "n1", None), (2, "x", None)}

    # Another number of shards is another plan, whose outputs are the same. A start keeps it.
    rescaled = ts.evolve(*shop.new(), checkpoint=shop.checkpoint, shards=5, partitions=3)
    assert {one.fate for one in rescaled.parts if one.part == "output"} == {"silent"}
    shop.logs["orders"].add([order(9, 1, 1), order(5, None, 7)])
    shop.logs["customers"].add([customer(0, "z", gone=True)])
    shop.run(shop.new(), on_plan_change="evolve")
    assert ts.drop_generations(spark, shop.checkpoint) == 2
    assert ts.drop_generations(spark, shop.checkpoint) == 0
    shop.logs["orders"].add([order(11, 1, 12)])
    shop.run(shop.new())
    rows = {(row.id, row.amount) for row in ts.read_state(spark, shop.checkpoint, "orders").collect()}
    assert rows == {(0, 0), (1, 100), (3, 100), (5, 7), (6, 18), (7, 21), (8, 24), (9, 1), (11, 12)}

    # A query that had this plan from the start says the same, if rows come in the same micro-batches.
    whole = last_rows(shop.log("joined"), "id")
    control = Shop(spark, tmp_path)
    control.checkpoint = tmp_path / "control"
    control.run([control.joined(control.table("orders"), control.table("customers"), "from_the_start")])
    assert whole == last_rows(control.log("from_the_start"), "id")
    numbers = sorted(int(one.name.split("=")[1]) for one in (tmp_path / "joined").glob("micro_batch=*"))
    assert numbers == list(range(len(numbers)))
    twice = Counter(shop.log("joined").filter(pl.col("_change_type") == "delete")["id"].to_list())
    assert twice == {2: 1, 4: 1}


def test_a_source_that_is_not_whole_is_described_and_a_materialized_one_is_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    shop = Shop(spark, tmp_path)
    shop.logs["orders"].add([shop.order(n, n % 2 if n else None, n) for n in range(4)])
    shop.logs["customers"].add([shop.customer(0, "a"), shop.customer(1, "b")])

    def plan(*, materialized: bool, groups: bool = False) -> list[OutputRequest]:
        orders = shop.table("orders")
        large = (orders.materialize(name="all") if materialized else orders).filter("amount > 1")
        joined = shop.joined(large, shop.table("customers"))
        return [joined, shop.groups(orders)] if groups else [joined]

    shop.run(plan(materialized=False))
    new = plan(materialized=False, groups=True)
    why = (
        r"it has only rows where \(amount > 1\) and \(c is not null\) \(in joined\); it lacks all other rows"
    )
    for ways in (why, "refill=True", r"evolvable=True.*materialize\(\)"):
        with pytest.raises(PlanChangedError, match=ways):
            ts.evolve(*new, checkpoint=shop.checkpoint)
    with pytest.raises(
        PlanChangedError, match=r"`tablestream evolve module:object --checkpoint [^`]* --refill`"
    ):
        shop.run(new)

    shutil.rmtree(shop.checkpoint / "tablestream" / "steps")  # as an older version left it
    (refused, *_) = ts.check(*new, checkpoint=shop.checkpoint).refused
    assert refused.why == "the state does not have it whole"
    shutil.rmtree(tmp_path / "joined")
    shop.checkpoint = tmp_path / "other"
    shop.run(plan(materialized=True))
    found = ts.evolve(*plan(materialized=True, groups=True), checkpoint=shop.checkpoint)
    (orders,) = [one for one in found.parts if one.name == "orders"]
    assert (orders.fate, orders.why.partition(":")[0]) == ("kept", "the state has it whole, as all")
    assert delta(tmp_path / "groups") == {(None, 1, 0), (0, 1, 2), (1, 2, 4)}


def broken(*_: Any) -> None:
    raise Broken


def interrupted(query: StreamingQuery) -> Any:
    """A query during which the user presses Ctrl-C."""

    def wait() -> None:
        raise KeyboardInterrupt

    vars(query)["awaitTermination"] = wait
    return query


@pytest.mark.parametrize("writer", quick_first(["delta-rs", "spark"]))
def test_a_maintained_table_gets_the_columns_that_a_changed_output_has(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: Any
) -> None:
    shop = Shop(spark, tmp_path)
    order, sink = shop.order, ts.to_delta(tmp_path / "groups", writer=writer)

    def groups(**columns: Any) -> OutputRequest:
        return shop.table("orders").group_by("c").agg(**columns, name="groups").to(sink)

    shop.logs["orders"].add([order(1, 0, 5), order(2, 0, 7), order(3, None, 9)])
    shop.run([groups(n=tf.count())], evolvable=True)
    # A name that differs from the table's by case is one for Delta, and another one needs column mapping: nothing is
    # added, and the old plan goes on.
    for name in ("N", "the n"):
        with pytest.raises(PlanError, match=f"has no column '{name}'"):
            ts.evolve(groups(**{name: tf.count()}), checkpoint=shop.checkpoint)
    shop.run([groups(n=tf.count())])
    assert spark.read.format("delta").load(str(tmp_path / "groups")).columns == ["c", "n"]

    def wide() -> OutputRequest:
        sums = shop.table("orders").group_by("c").agg(n=tf.count(), largest=tf.max("amount"))
        day = F.expr("timestamp'2024-01-02 03:04:05'")
        both = F.struct("n", F.col("largest").alias("the-largest"))
        return sums.with_columns(both=both, day=day).to(sink, name="groups")

    # An attempt that fails behind the columns leaves them to the old plan, and to the next attempt.
    with monkeypatch.context() as patch:
        patch.setattr(RsTable if writer == "delta-rs" else SparkTable, "merge", broken)
        with pytest.raises(Exception, match="Broken"):
            ts.evolve(wide(), checkpoint=shop.checkpoint)
    shop.logs["orders"].add([order(5, 1, 1)])
    shop.run([groups(n=tf.count())])

    ts.evolve(wide(), checkpoint=shop.checkpoint)
    shop.logs["orders"].add([order(4, 0, 8), order(3, None, 9, gone=True), order(5, 1, 1, gone=True)])
    shop.run([wide()])
    rows = spark.read.format("delta").load(str(tmp_path / "groups")).collect()
    assert [(row.c, row.n, row.largest, tuple(row.both)) for row in rows] == [(0, 3, 8, (3, 8))]
    assert rows[0].day == datetime(2024, 1, 2, 3, 4, 5)


def self_refused(shop: Shop) -> None:
    """What cannot go on is refused with its reason, and nothing does while a micro-batch is not complete."""
    begun = shutil.copytree(shop.checkpoint, shop.place / "begun")
    (begun / "commits" / "1").unlink()
    with pytest.raises(StateError, match=r"(?s)has begun micro-batch 1, and not.*processAllAvailable\(\)"):
        ts.check(*shop.new(), checkpoint=begun)
    twice = shop.spark.createDataFrame([(1, "X"), (1, "Y")], "id int, city string")
    cities = shop.table("cities", bootstrap=twice).to(ts.to_files(shop.place / "twice"))
    with pytest.raises(ArgumentError, match="several rows with one key"):
        ts.evolve(cities, checkpoint=shop.checkpoint)
    orders = shop.table("orders")
    other_key = orders.group_by("c").count(name="joined").to(ts.to_files(shop.place / "joined"))
    texts = orders.select(F.col("amount").cast("string").alias("amount"), name="joined")
    other_type = texts.to(ts.to_files(shop.place / "joined"))
    other = shop.table("orders", apply_as_deletes="id < 0").to(ts.to_files(shop.place / "other"))
    for outputs, why in (
        ([other_key], "has the key"),
        ([other_type], "has other types in amount"),
        ([other], "declared in another way"),
        ([orders.suppress(until="1 minute").to(ts.to_files(shop.place / "other"))], "holds changes back"),
    ):
        found = ts.check(*outputs, checkpoint=shop.checkpoint)
        assert any(why in one.why for one in found.refused), str(found)
        with pytest.raises(PlanChangedError, match=why):
            ts.evolve(*outputs, checkpoint=shop.checkpoint)


def test_a_log_with_another_meaning_gets_all_rows_and_deletes_of_keys_that_are_gone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(spark, tmp_path)
    order, customer = shop.order, shop.customer
    shop.logs["orders"].add(
        [order(n, n % 3, 3 * n) for n in range(8)], [order(7, 0, 0, gone=True), order(1, 2, 100)]
    )
    shop.logs["customers"].add([customer(0, "a"), customer(1, "b")])

    def plan(least: int, how: Any, other: str = "large") -> list[OutputRequest]:
        orders, customers = shop.table("orders"), shop.table("customers")
        joined = orders.join(customers, on="c", how=how, name="joined")
        large = orders.filter(f"amount > {least}")
        sums = orders.group_by("c").agg(n=tf.count(), total=tf.sum("amount"), name="sums")
        return [
            large.to(ts.to_files(tmp_path / other, "json"), name="large"),
            joined.to(ts.to_files(tmp_path / "joined"), before=how == "left"),
            sums.to(ts.to_files(tmp_path / "sums")),
            sums.to(ts.to_delta(tmp_path / "table"), name="table"),
        ]

    def tables() -> list[set[tuple[Any, ...]]]:
        large = pl.DataFrame(
            spark.read.json(str(tmp_path / "large")).orderBy("micro_batch", "_order")
            .select("id", "c", "amount", "_change_type").toArrow()
        )  # fmt: skip
        changes = shop.log("joined").filter(pl.col("_change_type") != "update_preimage")
        return [last_rows(large, "id"), last_rows(changes, "id"), last_rows(shop.log("sums"), "c")]

    def micro_batches(name: str) -> list[int]:
        return sorted(int(one.name.split("=")[1]) for one in (tmp_path / name).glob("micro_batch=*"))

    shop.run(plan(5, "left"), evolvable=True)
    before, sums = micro_batches("sums"), delta(tmp_path / "table")
    known, told = tables(), shop.log("sums").height
    found = ts.check(*plan(10, "inner"), checkpoint=shop.checkpoint)
    fates = {one.name: one.fate for one in found.parts if one.part == "output"}
    assert fates == {"large": "told anew", "joined": "told anew", "sums": "silent", "table": "silent"}
    with monkeypatch.context() as patch:
        patch.setattr(evolving._Change, "_take_places", broken)
        with pytest.raises(Broken):
            ts.evolve(*plan(20, "inner"), checkpoint=shop.checkpoint)
    with pytest.raises(
        TargetError, match="the micro-batches up to 2, and the checkpoint the micro-batches up to 1"
    ):
        shop.run(plan(5, "left"))

    ts.evolve(*plan(10, "inner"), checkpoint=shop.checkpoint)
    assert tables() == [
        {row for row in known[0] if row[2] > 10},
        {row for row in known[1] if row[3] is not None},
        known[2],
    ]
    assert micro_batches("large") == micro_batches("joined") == [*before, before[-1] + 1]
    assert micro_batches("sums") == before
    last = spark.read.json(str(tmp_path / "large" / f"micro_batch={before[-1] + 1}"))
    assert {row.id for row in last.collect() if row._change_type == "delete"} == {2, 3}
    # At once into yet another plan: what was told anew has other marks than what was passed over.
    ts.evolve(*plan(0, "inner"), checkpoint=shop.checkpoint, shards=3)
    assert [len(one) for one in tables()] == [6, 4, 3]
    shop.logs["orders"].add([order(6, 1, 0, gone=True), order(4, 2, 7), order(9, 0, 1)])
    shop.run(plan(0, "inner"))
    assert tables()[0] == {(1, 2, 100), (2, 2, 6), (3, 0, 9), (4, 2, 7), (5, 2, 15), (9, 0, 1)}
    assert {row[0] for row in tables()[1]} == {0, 3, 9}
    assert tables()[2] == delta(tmp_path / "table") != sums
    assert shop.log("sums").height > told
    assert micro_batches("sums") == [*before, before[-1] + 3]


def test_files_of_a_log_with_further_hops_are_read_by_the_names_of_fields(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As `docs/semantics/outputs.md` says it to a reader."""
    shop = Shop(spark, tmp_path)
    orders, customers = shop.table("orders"), shop.table("customers")
    shop.logs["orders"].add([shop.order(n, n % 2, n) for n in range(4)])
    shop.logs["customers"].add([shop.customer(0, "a"), shop.customer(1, "b")])
    there = ts.to_files(tmp_path / "log")
    shop.run([orders.to(there, name="log"), customers.to(ts.to_memory("others"))], evolvable=True)
    columns = ["id", "c", "amount"]
    named = orders.join(customers, on="c", name="named").filter("name = 'a'").select(*columns)
    ts.evolve(named.to(there, name="log"), checkpoint=shop.checkpoint)
    shop.logs["orders"].add([shop.order(0, 1, 9), shop.order(5, 0, 5)], [shop.order(0, 0, 7)])
    shop.run([named.to(there, name="log")])

    files = sorted((tmp_path / "log").glob("*/*.parquet"))
    orders_of = {str(pl.read_parquet_schema(one)["_order"]) for one in files}
    assert len(orders_of) == 2
    names = [*columns, "_change_type"]
    by_spark = spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "log")).orderBy("_order")
    with duckdb.connect() as database:
        by_duckdb = database.read_parquet([str(one) for one in files], union_by_name=True).order("_order")
        found = [by_duckdb.select(*names).pl(), pl.DataFrame(by_spark.select(names).toArrow())]
    told = [one.sort("id", maintain_order=True).rows() for one in found]  # nulls sort before all, or behind
    assert told[0] == told[1]
    with pytest.raises(pl.exceptions.SchemaError):
        pl.read_parquet(files)
    assert last_rows(found[0], "id") == {(0, 0, 7), (2, 0, 2), (5, 0, 5)}


def test_what_is_not_complete_does_not_evolve(spark: SparkSession, tmp_path: Path) -> None:
    shop = Shop(spark, tmp_path)
    with pytest.raises(StateError, match="no query has run there"):
        ts.check(shop.groups(shop.table("orders")), checkpoint=shop.checkpoint)
    with pytest.raises(StateError, match="no query has run there"):
        ts.drop_generations(spark, shop.checkpoint)
    place = Path(shop.checkpoint)
    place.mkdir(parents=True)
    (place / "metadata").write_text('{"id": "an id"}')
    with pytest.raises(StateError, match="no complete micro-batch"):
        ts.check(shop.groups(shop.table("orders")), checkpoint=shop.checkpoint)


def test_logs_are_read_again_for_what_the_state_does_not_have(spark: SparkSession, tmp_path: Path) -> None:
    """A stream's windows that wait, and a source that is nowhere whole: as if the query had begun with the new plan."""
    shop, control = Shop(spark, tmp_path / "shop"), Shop(spark, tmp_path / "control")

    def stream(of: Shop) -> ts.Stream:
        return ts.stream(of.logs["orders"].read(spark), key="id", timestamp="at", name="events")

    def windows(of: Shop, name: str = "windows") -> OutputRequest:
        ten_seconds = F.timestamp_seconds(F.floor(F.unix_seconds("at") / 10) * 10).alias("window")
        per_window = stream(of).group_by(ten_seconds, "c").agg(n=tf.count(), name=name)
        closed = per_window.suppress(until="10 seconds", name=f"{name}_closed")
        return closed.to(ts.to_files(of.place / name), name=name)

    def old(of: Shop) -> list[OutputRequest]:
        return [of.groups(of.table("orders")), windows(of)]

    def new(of: Shop) -> list[OutputRequest]:
        orders, customers = of.table("orders"), of.table("customers")
        joined = of.joined(orders, customers)
        return [of.groups(orders.filter("amount > 5")), joined, windows(of)]

    def closed(of: Shop) -> dict[Any, Any]:
        last = {row[:2]: row[2:] for row in of.log("windows").rows()}
        return {key: row for key, row in last.items() if row[-1] != "delete"}

    def order(ident: int, amount: int, second: int, gone: bool = False) -> dict[str, Any]:
        return shop.order(ident, ident % 2, amount, gone) | {"at": f"2024-01-01 00:00:{second:02d}"}

    for one in (shop, control):
        one.logs["orders"] = ChangeLog(
            one.place / "orders", "id int, c int, amount int, gone boolean, at timestamp"
        )
        one.logs["orders"].add(
            [order(n, n, n) for n in range(9)], [order(8, 0, 12, gone=True), order(7, 9, 13)]
        )
        one.logs["customers"].add([one.customer(0, "a"), one.customer(1, "b")])
    shop.run(old(shop))
    refused = ts.check(*new(shop), checkpoint=shop.checkpoint)
    assert {one.name for one in refused.refused} >= {"orders", "events", "windows_closed"}
    assert "refill=True" in str(refused)
    with pytest.raises(PlanChangedError, match=r"With ts\.evolve\(\.\.\., refill=True\), or --refill"):
        ts.evolve(*new(shop), checkpoint=shop.checkpoint)
    found = ts.check(*new(shop), checkpoint=shop.checkpoint, refill=True)
    fates = {(one.part, one.name): one.fate for one in found.parts if one.part != "operator"}
    assert fates == {
        ("source", "orders"): "read again",
        ("source", "events"): "read again",
        ("source", "customers"): "new",
        ("output", "groups"): "brought over",
        ("output", "joined"): "new",
        ("output", "windows"): "told anew",
    }
    file = shop.place / "orders" / "0000.json"
    modified = file.stat().st_mtime_ns
    os.utime(file, (0, 0))
    with pytest.raises(StateError, match=r"gone or changed, such as .*0000\.json"):
        ts.evolve(*new(shop), checkpoint=shop.checkpoint, refill=True)
    hidden = file.rename(tmp_path / "hidden")
    with pytest.raises(StateError, match=r"gone or changed, such as .*0000\.json"):
        ts.evolve(*new(shop), checkpoint=shop.checkpoint, refill=True)
    os.utime(hidden.rename(file), ns=(modified, modified))
    for later in range(2):
        ts.evolve(*new(shop), checkpoint=shop.checkpoint, refill=True, shards=1 + later)
        for one in (shop, control):
            one.logs["orders"].add([order(3 + later, 30, 25 + 20 * later), order(5, 0, 26, gone=True)])
        shop.run(new(shop))
    assert ts.evolve(*new(shop), checkpoint=shop.checkpoint, refill=True).is_same
    control.run(new(control), shards=2)
    assert delta(shop.place / "groups") == delta(control.place / "groups")
    assert last_rows(shop.log("joined"), "id") == last_rows(control.log("joined"), "id")
    assert closed(shop) == closed(control)


def test_a_start_does_not_forget_which_sources_began_with_rows(spark: SparkSession, tmp_path: Path) -> None:
    now = Facts((), {"A": SourceFacts("", (), (), is_whole=True)}, {}, 1, evolvable=False)
    for one in (replace(now, started_with_rows=("A",)), now, replace(now, shards=2)):
        store_facts(spark, str(tmp_path), one)
    assert stored_facts(spark, str(tmp_path)) == replace(now, started_with_rows=("A",), shards=2)
