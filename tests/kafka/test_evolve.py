"""Queries that evolve between topics and a database: places in topics, bootstraps, unchanged and new targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import tablestream as ts
from tablestream import functions as tf
from tablestream.errors import PlanChangedError, TargetError
from tablestream.spark import generations
from tests.kafka.test_sink import meant, said, to
from tests.kafka.test_source import position, read
from tests.kafka.topics import Record, Topics, record
from tests.spark.change_logs import run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tablestream.spark.requests import OutputRequest
    from tests.postgres.database import Database


class Fails(Exception):  # noqa: N818 - it is on purpose
    """Ends an evolution half-way."""


def broken(*_: object) -> None:
    raise Fails


class Desk:
    """Positions and the names of tickers, as plans before and after."""

    def __init__(self, spark: SparkSession, topics: Topics, database: Database) -> None:
        """Make the topics."""
        self.spark, self.topics, self.conninfo = spark, topics, database.conninfo
        made = [topics.make(name, 2) for name in ("in", "names", "same", "all")]
        self.source, self.names, self.same, self.all = made

    def positions(self) -> ts.Table:
        return ts.table(read(self.spark, self.topics, self.source), key="key", name="positions")

    def tickers(self) -> ts.Table:
        frame = read(self.spark, self.topics, self.names, key="ticker string", value="name string")
        first = self.spark.createDataFrame([("A", "first"), ("B", "second")], "ticker string, name string")
        return ts.table(frame, key="ticker", name="tickers", bootstrap=first)

    def unchanged(self, positions: ts.Table, tickers: ts.Table) -> OutputRequest:
        named = positions.join(tickers, on="ticker", how="left", name="named")
        return named.to(to(self.topics, self.same))

    def sums(self, positions: ts.Table) -> OutputRequest:
        sums = positions.group_by("ticker").agg(total=tf.sum("amount"), name="sums")
        return sums.to(ts.to_postgres("sums", self.conninfo, create=True))

    def old(self) -> list[OutputRequest]:
        positions, tickers = self.positions(), self.tickers()
        return [self.unchanged(positions, tickers), self.sums(positions)]

    def new(self, least: int = 0) -> list[OutputRequest]:
        tickers, positions = self.tickers(), self.positions()
        whole = positions.filter(f"amount >= {least}").to(to(self.topics, self.all), name="all")
        names = tickers.to(ts.to_postgres("names", self.conninfo, create=True), name="names")
        return [names, whole, self.sums(positions.filter("amount > 1")), self.unchanged(positions, tickers)]


def test_a_query_between_topics_and_a_database_evolves(
    spark: SparkSession, topics: Topics, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that come meanwhile are read once; a table that was brought over refuses the plan before."""
    desk, checkpoint = Desk(spark, topics, database), tmp_path / "checkpoint"
    early: list[Record] = [position(f"k{n}", "AB"[n % 2], n, n % 2, n) for n in range(4)]
    late = [position("k1", "A", 5, 1, 9), position("k2", None, 0, 0, 9), position("k7", "C", 7, 1, 9)]
    topics.send(desk.source, early)
    run(*desk.old(), checkpoint=checkpoint, evolvable=True)
    topics.send(desk.source, late)
    topics.send(desk.names, [record({"ticker": "B"}, {"name": "changed"}, 1)])

    with monkeypatch.context() as patch:
        patch.setattr(generations, "make_current", broken)
        with pytest.raises(Fails):
            ts.evolve(*desk.new(), checkpoint=checkpoint)
    with pytest.raises(TargetError, match="another micro-batch 0"):
        run(*desk.old(), checkpoint=checkpoint)

    done = ts.evolve(*desk.new(), checkpoint=checkpoint)
    fates = {one.name: one.fate for one in done.parts if one.part != "operator"}
    assert fates == {
        "tickers": "kept", "positions": "kept", "names": "new", "all": "new", "sums": "brought over", "named": "silent",
    }  # fmt: skip
    assert database.rows("SELECT ticker, total::int FROM sums") == [("A", 2), ("B", 3)]
    assert database.rows("SELECT ticker, name FROM names") == [("A", "first"), ("B", "second")]
    again = ts.evolve(*desk.new(least=2), checkpoint=checkpoint, shards=5)
    fates = {one.name: one.fate for one in again.parts if one.part == "output"}
    assert fates == {"names": "silent", "all": "told anew", "sums": "silent", "named": "silent"}
    run(*desk.new(least=2), checkpoint=checkpoint)

    assert database.rows("SELECT ticker, total::int FROM sums") == [("A", 5), ("B", 3), ("C", 7)]
    assert database.rows("SELECT ticker, name FROM names") == [("A", "first"), ("B", "changed")]
    # The rows of the attempt that failed, those of the next one, and told anew: rows again, deletes for those that a
    # filter leaves out. None looks like a repeat, since a plan may change between two attempts.
    written = topics.read(desk.all)
    everything = {key: [one and one["amount"] for one in values] for key, values in meant(written).items()}
    assert everything == {
        b"k0": [0, 0, None],
        b"k1": [1, 1, None, 5],
        b"k2": [2, 2, 2, None],
        b"k3": [3, 3, 3],
        b"k7": [7],
    }
    for key in everything:
        places = [said(one)[2:] for one in written if one.key == key]
        assert places == sorted(set(places))
    told = meant(topics.read(desk.same))
    amounts = {key: [value and value["amount"] for value in values] for key, values in told.items()}
    assert amounts.pop(b"k3") == [3, 3]  # its ticker's name has changed
    assert amounts.pop(b"k1")[-1] == 5
    assert amounts == {b"k0": [0], b"k2": [2, None], b"k7": [7]}


def test_a_topic_is_read_again_from_where_the_query_began(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """Records before the query began, and those after it stopped, are not among them."""
    source, checkpoint = topics.make("in", 2), tmp_path / "checkpoint"
    topics.send(source, [position("early", "A", 1, 0, 0)])
    begin = {source: {"0": 1, "1": 0}}

    def plan() -> tuple[OutputRequest, OutputRequest]:
        frame = read(spark, topics, source, starting_offsets=begin)
        table = ts.table(frame, key="key", name="positions")
        sums = table.group_by("ticker").agg(total=tf.sum("amount"), name="sums")
        return sums.to(ts.to_files(tmp_path / "sums")), table.to(ts.to_files(tmp_path / "all"))

    def told(name: str, *columns: str) -> list[tuple[object, ...]]:
        return [
            tuple(row)
            for row in spark.read.parquet(str(tmp_path / name)).orderBy("_order").select(*columns).collect()
        ]

    topics.send(source, [position(f"k{n}", "A", n, n % 2, n) for n in range(1, 5)])
    run(plan()[0], checkpoint=checkpoint)
    before = told("sums", "ticker", "total")
    topics.send(source, [position("k1", "B", 7, 1, 9)])
    with pytest.raises(PlanChangedError, match="refill=True"):
        ts.evolve(*plan(), checkpoint=checkpoint)
    ts.evolve(*plan(), checkpoint=checkpoint, refill=True)
    assert sorted(told("all", "key", "amount")) == [(f"k{n}", n) for n in range(1, 5)]
    again = told("sums", "ticker", "total")[len(before) :]
    assert again[-1:] == before[-1:]
    run(*plan(), checkpoint=checkpoint)
    assert told("all", "key", "amount")[-1] == ("k1", 7)
    assert sorted(told("sums", "ticker", "total")[len(before + again) :]) == [("A", 9), ("B", 7)]
