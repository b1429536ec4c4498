"""A database's tables, read from a real broker's topics."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import tablestream as ts
from tablestream.errors import ArgumentError, MalformedRecordError, PlanChangedError
from tests.cdc.recording import points, records, row_of
from tests.kafka.test_broker_restart import wait
from tests.kafka.topics import Record, Topics, record
from tests.spark.change_logs import run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def recorded(table: str, capture: str) -> list[Record]:
    """The records of a recorded topic, up to the last quiescent point."""
    mine = [
        one for one in records(capture) if one.topic == f"{capture}.shop.{table}" and points()[-1].covers(one)
    ]
    return [
        Record(
            None if one.key is None else one.key.encode(),
            None if one.value is None else one.value.encode(),
            one.partition,
            tuple((name, text.encode()) for name, text in one.headers),
            one.timestamp_ms,
        )
        for one in mine
    ]


def filled(topics: Topics, table: str, capture: str) -> str:
    """A topic with such records."""
    topic = topics.make(f"{capture}.shop.{table}")
    topics.send(topic, recorded(table, capture))
    return topic


def test_columns_come_from_the_records_schema(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """And the table is what the database has; values that did not change are filled, and counted."""
    topic, sink = filled(topics, "tickers", "schema1"), ts.to_memory("tickers")
    shop = ts.from_debezium(spark, "unused", bootstrap_servers=topics.servers)
    table = shop.table("shop.tickers", topic=topic)
    assert str(table) == (
        "Table 'shop.tickers' [key ticker: string]"
        " [exchange: string, price: decimal(12,4), at: timestamp, note: string]"
    )
    with pytest.warns(UserWarning, match="except_columns= names 'notes', which no record has had so far"):
        less = shop.table("shop.tickers", topic=topic, except_columns=["notes", "note"])
    assert less.columns == ["ticker", "exchange", "price", "at"]
    counts = run(table.to(sink), checkpoint=tmp_path / "checkpoint", shards=2)
    state: dict[Any, Any] = {}
    for row in sorted(sink.rows(), key=lambda one: one["_order"]):
        state.pop(row["ticker"], None)
        if row["_change_type"] != "delete":
            state[row["ticker"]] = tuple(row[name] for name in ("ticker", "exchange", "price", "at", "note"))
    assert set(state.values()) == {row_of("tickers", row) for row in points()[-1].tables["tickers"]}
    assert sum(count for name, count in counts.items() if "filled note" in name) > 0


def test_what_is_no_table_is_refused(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = filled(topics, "watchlist", "plain1")
    shop = ts.from_debezium(spark, "unused", bootstrap_servers=topics.servers)
    with pytest.raises(ArgumentError, match="has a key and a row with their schemas"):
        shop.table("shop.watchlist", topic=topic)
    with pytest.raises(ArgumentError, match="The key id is not among the columns"):
        shop.table("shop.watchlist", "id", "ticker string", topic=topic)
    table = shop.table("shop.watchlist", "client_id", "client_id int, added timestamp", topic=topic)
    with pytest.raises(Exception, match=MalformedRecordError.code):
        run(table.to(ts.to_memory("refused")), checkpoint=tmp_path / "checkpoint", shards=2)


def test_a_topic_that_the_connector_has_not_made_yet_has_no_records(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """As that of a table without rows, and that of the transactions until one ends."""
    prefix, sink = f"{topics.prefix}later", ts.to_memory("made later")
    shop = ts.from_debezium(spark, prefix, bootstrap_servers=topics.servers, transactions=True)
    rows = shop.table("s.rows", "id", "id int, n int")
    trigger = {"processingTime": "1 second"}
    query = ts.start(rows.to(sink), checkpoint=tmp_path / "checkpoint", trigger=trigger, shards=2)
    wait(lambda: not query.isActive or query.lastProgress is not None)
    assert query.exception() is None

    of = {"connector": "postgresql", "snapshot": "false", "sequence": '["1", "2"]', "ts_us": 1}
    first, second = ({"id": f"7:{n}", "total_order": n, "data_collection_order": n} for n in (1, 2))
    emptied = {"op": "t", "before": None, "after": None, "source": of, "transaction": first}
    created = {"op": "c", "before": None, "after": {"id": 1, "n": 5}, "source": of, "transaction": second}
    count = [{"data_collection": "s.rows", "event_count": 2}]
    end = {"status": "END", "id": "7:2", "ts_ms": 1, "event_count": 2, "data_collections": count}
    topics.send(topics.make("later.s.rows", 2), [record(None, emptied), record({"id": 1}, created)])
    wait(lambda: not query.isActive or any(one["numInputRows"] for one in query.recentProgress))

    def waiting() -> list[tuple[Any, ...]]:
        changes = ts.read_state(spark, tmp_path / "checkpoint", f"{rows.name}.waiting")
        return list(map(tuple, changes.select("id", "n", "_change_type").collect()))

    wait(lambda: not query.isActive or bool(waiting()))
    assert waiting() == [(1, 5, "upsert")]
    topics.send(topics.make("later.transaction"), [record({"id": "7"}, end)])
    wait(lambda: not query.isActive or bool(sink.rows()))
    query.stop()
    assert [(row["id"], row["n"]) for row in sink.rows()] == [(1, 5)]


def test_a_database_s_table_evolves_only_if_its_topic_is_read_again(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """Its state remembers places in a log, so that it is refused by its name otherwise. Later records come once."""
    topic, checkpoint = topics.make("schema1.shop.tickers"), tmp_path / "checkpoint"
    said = recorded("tickers", "schema1")
    early, late = said[: len(said) // 2], said[len(said) // 2 :]

    def plan(condition: str) -> list[ts.OutputRequest]:
        shop = ts.from_debezium(spark, "unused", bootstrap_servers=topics.servers)
        table = shop.table("shop.tickers", topic=topic)
        listed = table.filter(condition).select("exchange", "price", "at", "note", name="listed")
        counts = table.group_by("exchange").count(name="counts")
        return [
            listed.to(ts.to_delta(tmp_path / "listed")),
            counts.to(ts.to_files(tmp_path / "counts"), emit="final"),
        ]

    topics.send(topic, early)
    run(*plan("true"), checkpoint=checkpoint, evolvable=True, shards=2)
    changed = plan("ticker > 'TE'")
    with pytest.raises(PlanChangedError, match=r"(?s)tickers.*places in a log.*refill=True"):
        ts.evolve(*changed, checkpoint=checkpoint)
    ts.evolve(*changed, checkpoint=checkpoint, refill=True)
    topics.send(topic, late)
    run(*changed, checkpoint=checkpoint)
    rows = {row_of("tickers", row) for row in points()[-1].tables["tickers"]}
    columns = ["ticker", "exchange", "price", "at", "note"]
    found = spark.read.format("delta").load(str(tmp_path / "listed")).select(columns).collect()
    assert set(map(tuple, found)) == {row for row in rows if row[0] > "TE"}
    assert 0 < len(found) < len(rows)
    log = spark.read.parquet(str(tmp_path / "counts")).orderBy("_order").collect()
    last = {row["exchange"]: row for row in log}.values()
    kept = {row["exchange"]: row["count"] for row in last if row["_change_type"] != "delete"}
    assert kept == Counter(row[1] for row in rows)
