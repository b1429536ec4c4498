"""Records, and topics, that mean no good: each has its rule, in ``docs/kafka.md``."""

from __future__ import annotations

import json
import math
import pickle
import random
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

import tablestream as ts
from tests.kafka.test_sink import to
from tests.kafka.test_source import START, START_MS, changes, position, read
from tests.kafka.topics import Record, Topics, record
from tests.marks import repeat
from tests.spark.change_logs import run
from tests.test_no_pickle import Bomb

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.broker.kafka_broker import KafkaBroker

# Records

FIRST_YEARS, YEAR_9999 = "0002-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"


def trade(a: Any, b: Any, **value: Any) -> Record:
    return record({"a": a, "b": b}, {"at": "2024-01-01T00:00:00Z", **value}, 0, START_MS)


def test_every_bad_record_has_its_rule(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """Dropped and counted, or taken: nothing is lost without a word, and the good ones come through."""
    source, names = topics.make("trades"), topics.make("names")
    good = [
        trade(1, 1.5, ref=2.5, amount=1),
        trade(1, "NaN", ref="NaN", amount=2),
        trade(1, "NaN", ref="NaN", amount=3),
        trade(1, -0.0, ref=-0.0, amount=4),
        trade(1, 0.0, ref=0, amount=5),
        trade(1, "-Infinity", ref="Infinity", amount=6),
        trade(2, 1.5, at=FIRST_YEARS, amount=7),
        trade(3, 1.5, at="1969-12-31T23:59:59.999999Z", amount=8),
        trade(4, 1.5, at=YEAR_9999, amount=9),
    ]
    null_keys = [
        record(None, {"at": FIRST_YEARS}, 0, START_MS),
        trade(1, None, amount=10),
        trade(None, None, amount=11),
        record({}, {"at": FIRST_YEARS}, 0, START_MS),
    ]
    no_times = [
        trade(5, 1.5, at=None),
        trade(5, 1.5, at="+10000-01-01T00:00:00Z"),
        trade(5, 1.5, at="+294247-01-10T04:00:54.775807Z"),
        trade(5, 1.5, at="-0001-12-31T00:00:00Z"),
    ]
    crater = tmp_path / "crater"
    undecodable = [
        trade(6, 1.5, at="+999999-01-01T00:00:00Z"),  # more than 64 bits of microseconds
        trade(6, 1.5, amount="many"),
        trade(6, 1.5, amount=2**31),
        trade("six", 1.5),
        record({"a": 6, "b": 1.5}, b"\xff\xfe", 0, START_MS),
        record({"a": 6, "b": 1.5}, pickle.dumps(Bomb(crater)), 0, START_MS),
        record({"a": 6, "b": 1.5}, "[" * 5000, 0, START_MS),
        record({"a": 6, "b": 1.5}, '{"amount": ' + "9" * 5000 + "}", 0, START_MS),
    ]
    mixed = good + null_keys + no_times + undecodable
    order = [8, *range(8), *range(9, len(mixed))]  # the latest of all times comes first
    topics.send(source, [mixed[number] for number in order])
    topics.send(names, [record({"ref": ref}, {"name": str(ref)}) for ref in ("NaN", -0.0, "Infinity")])
    frame = read(
        spark,
        topics,
        source,
        key="a int, b double",
        value="at timestamp, ref double, amount int",
        on_error="drop",
    )
    trades = ts.table(frame, key=["a", "b"], timestamp="at", name="trades")
    refs = ts.table(read(spark, topics, names, key="ref double", value="name string"), "ref", name="refs")
    joined = trades.join(refs, on="ref", how="left", select=lambda t, r: [t.amount, r.name])
    sink, apart = ts.to_memory("hostile"), ts.to_memory("hostile apart")
    counts = run(joined.to(sink), trades.rejected().to(apart), checkpoint=tmp_path / "checkpoint")
    dropped = {name: count for name, count in counts.items() if name.startswith("trades: ")}
    assert dropped == {
        "trades: null-key": len(null_keys),
        "trades: null-timestamp": len(no_times),
        "trades: malformed": len(undecodable),
    }
    rejected = sorted(row["_order"].position for row in apart.rows())
    assert rejected == list(range(len(good), len(mixed)))
    last = {("nan" if math.isnan(row.b) else row.b, row.a): (row.amount, row.name) for row in sink.rows()}
    assert last == {
        (1.5, 1): (1, None), ("nan", 1): (3, "NaN"), (0.0, 1): (5, "-0.0"), (-math.inf, 1): (6, "Infinity"),
        (1.5, 2): (7, None), (1.5, 3): (8, None), (1.5, 4): (9, None),
    }  # fmt: skip
    times = {row.amount: row["_timestamp"] for row in sink.rows()}
    assert (times[7], times[9]) == (datetime(2, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999))
    assert not crater.exists()


def test_times_that_the_writer_or_the_broker_says(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """Of a header, and Kafka's own, which is in milliseconds and may be anything where the topic allows it."""
    lax = {f"message.timestamp.{side}.max.ms": str(2**63 - 1) for side in ("before", "after")}
    topic, sink = topics.make("times", 1, **lax), ts.to_memory("times")
    value = json.dumps({"ticker": "A"}).encode()

    def sent(key: str, time_ms: int, said: bytes | None = None) -> Record:
        return Record(key.encode(), value, 0, () if said is None else (("tablestream", said),), time_ms)

    far = 253_402_300_800_000  # the year 10000
    records = [sent("far", far), sent("header", START_MS, b"999999999999999999"), sent("good", START_MS)]
    topics.send(topic, [*records, sent("early", far, b"-999999999999999999"), sent("good", far, b"-1")])
    table = ts.table(read(spark, topics, topic), key="key", history="1 day", name="times")
    counts = run(table.to(sink), checkpoint=tmp_path / "checkpoint")
    assert counts["times: null-timestamp"] == 3
    assert changes(sink, "key", "_timestamp") == [("good", START)]
    assert counts["times/versions: expired"] == 1  # in 1969, and the table has seen 2023


LARGE = 10_000_000
ROOM = str(LARGE + 500_000)


@pytest.mark.exhaustive
def test_values_of_ten_megabytes_and_keys_of_a_hundred_kilobytes(
    spark: SparkSession, broker: KafkaBroker, topics: Topics, tmp_path: Path
) -> None:
    """In, through a join by foreign key with its state, and out; with Kafka's limits raised on all sides."""
    large = Topics(broker.bootstrap_servers, topics.prefix, {"message.max.bytes": ROOM})
    config = {"max.message.bytes": ROOM}
    source, names, target = large.make("in", 1, **config), large.make("names"), large.make("out", 1, **config)
    noise = random.Random(1).randbytes(LARGE // 2).hex()
    values = {f"{number}" * 100_000: f"{number}{noise}" for number in range(4)}
    large.send(source, [record(key, {"ticker": "ACME", "note": value}, 0) for key, value in values.items()])
    large.send(names, [record("ACME", "Acme", 0)])
    notes = ts.table(read(spark, large, source, value="ticker string, note string"), "key", name="notes")
    tickers = ts.table(read(spark, large, names, value="string"), key="key", name="tickers")
    joined = notes.join(tickers, on="ticker", how="left", select=lambda n, t: [n.note, t.value])
    sink = to(large, target, value="json", options={"kafka.max.request.size": ROOM})
    for name in ("Acme", "Acme Ltd"):  # the second time the notes come from the state
        large.send(names, [record("ACME", name, 0)])
        run(joined.to(sink, emit="final"), checkpoint=tmp_path / "checkpoint")
    written = large.read(target)
    assert len(written) == 8
    for rows, name in ((written[:4], "Acme"), (written[4:], "Acme Ltd")):
        found = {(row.key or b"").decode(): row.json for row in rows}
        assert found.keys() == values.keys()
        assert all(row == {"note": values[key], "value": name} for key, row in found.items())


def test_a_record_that_the_topic_is_too_small_for_ends_the_query(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    source, target = topics.make("in"), topics.make("out", 1, **{"max.message.bytes": "1000"})
    topics.send(source, [position("a", "ACME" * 1000, 1)])
    table = ts.table(read(spark, topics, source), key="key", name="positions")
    with pytest.raises(StreamingQueryException, match="RecordTooLargeException"):
        run(table.to(to(topics, target)), checkpoint=tmp_path / "checkpoint")
    assert topics.read(target) == []


# Topics


def amounts(sink: Any) -> list[int]:
    return [amount for (amount,) in changes(sink, "amount")]


@pytest.mark.parametrize(
    ("how", "found"),
    [("deleted records", [1, 2, 3, 5, 6]), repeat(pytest.param("another topic of the name", [1, 2, 3, 6]))],
)
def test_records_that_are_lost_end_the_query_unless_it_may_lose_them(
    spark: SparkSession, topics: Topics, tmp_path: Path, how: str, found: list[int]
) -> None:
    """Records that Kafka threw away before they were read, and a topic that was made anew, with fewer."""
    topic, sink, checkpoint = topics.make("lost"), ts.to_memory(f"lost {how}"), tmp_path / "checkpoint"

    def go_on(**options: bool) -> None:
        table = ts.table(read(spark, topics, topic, options=options), key="key", name="positions")
        run(table.to(sink), checkpoint=checkpoint)

    topics.send(topic, [position("a", "ACME", number) for number in (1, 2, 3)])
    go_on()
    if how == "deleted records":
        topics.send(topic, [position("a", "ACME", number) for number in (4, 5)])
        topics.delete_records(topic, 4)
    else:
        topics.remake(topic)
        topics.send(topic, [position("a", "ACME", 5)])
    with pytest.raises(StreamingQueryException, match="failOnDataLoss"):
        go_on()
    assert amounts(sink) == [1, 2, 3]
    go_on(failOnDataLoss=False)
    topics.send(topic, [position("a", "ACME", 6)])
    go_on(failOnDataLoss=False)
    assert amounts(sink) == found


def test_partitions_that_are_added_are_read_from_their_beginning(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic, sink = topics.make("grows"), ts.to_memory("grows")
    table = ts.table(read(spark, topics, topic), key="key", name="positions")
    topics.send(topic, [position("a", "ACME", 1)])
    run(table.to(sink), checkpoint=tmp_path / "checkpoint")
    topics.grow(topic, 3)
    topics.send(topic, [position("b", "ACME", 2, 2), position("c", "ACME", 3, 1), position("a", "ACME", 4)])
    run(table.to(sink), checkpoint=tmp_path / "checkpoint")
    assert sorted(amounts(sink)) == [1, 2, 3, 4]
