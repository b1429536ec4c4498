"""Queries that evolve, through Spark: sources, state and targets go on where the old plan stopped."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import polars as pl
import pytest
from pyspark.sql import functions as F

import tablestream as ts
from tablestream import functions as tf
from tablestream.errors import ArgumentError, PlanChangedError, StateError, TargetError
from tablestream.spark import evolve as evolving
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
    with pytest.raises(PlanChangedError, match=r"ts\.evolve"):
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


def broken(*_: Any) -> None:
    raise Broken


def interrupted(query: StreamingQuery) -> Any:
    """A query during which the user presses Ctrl-C."""

    def wait() -> None:
        raise KeyboardInterrupt

    vars(query)["awaitTermination"] = wait
    return query


def self_refused(shop: Shop) -> None:
    """What cannot go on is refused with its reason, and nothing does while a micro-batch is not complete."""
    begun = shutil.copytree(shop.checkpoint, shop.place / "begun")
    (begun / "commits" / "1").unlink()
    with pytest.raises(StateError, match="has begun micro-batch 1, and not completed it"):
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


def test_what_is_not_complete_does_not_evolve(spark: SparkSession, tmp_path: Path) -> None:
    shop = Shop(spark, tmp_path)
    with pytest.raises(StateError, match="no complete micro-batch"):
        ts.check(shop.groups(shop.table("orders")), checkpoint=shop.checkpoint)
