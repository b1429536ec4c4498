"""Topics as tables and streams: order, times, tombstones, bad records, offsets, and what is refused."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

import tablestream as ts
from tablestream import functions as tf
from tablestream.errors import ArgumentError, PlanError, ReservedNameError, SessionSettingError
from tests.kafka.registry import schema_registry
from tests.kafka.topics import Record, Topics, record
from tests.marks import repeat
from tests.spark.change_logs import ALL, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

START_MS = 1_700_000_000_000
START = datetime(2023, 11, 14, 22, 13, 20)
POSITION = "ticker string, amount int"


def position(
    key: Any, ticker: str | None = None, amount: int = 0, partition: int = 0, seconds: int = 0
) -> Record:
    """A record of a position, or with no ticker its tombstone."""
    value = None if ticker is None else {"ticker": ticker, "amount": amount}
    return record(key, value, partition, START_MS + 1000 * seconds)


def read(spark: SparkSession, topics: Topics, topic: str | list[str], **given: Any) -> DataFrame:
    settings = {"key": "string", "value": POSITION, "bootstrap_servers": topics.servers}
    return ts.from_kafka(spark, topic, **settings | given)


def changes(sink: Any, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in columns) for row in sink.rows()]


# What records become


def test_a_topic_is_a_table_and_goes_on_after_a_restart(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """Per partition by offset, though its times go back; partitions are merged by their running maximum."""
    topic, sink = topics.make("positions", 2), ts.to_memory("a topic")
    topics.send(topic, [position("a", "ACME", 1, seconds=0), position("b", "BOLT", 2, seconds=5)])
    topics.send(
        topic, [position("a", "ACME", 3, seconds=3), position("a", seconds=6), position("c", "COCO", 4, 1, 4)]
    )
    table = ts.table(read(spark, topics, topic), key="key", name="positions")
    assert table.columns == ["key", "ticker", "amount"]
    run(table.to(sink), checkpoint=tmp_path / "checkpoint")
    topics.send(topic, [position("b", seconds=1), position("a", "ACME", 5, seconds=7)])
    run(table.to(sink), checkpoint=tmp_path / "checkpoint")
    rows = changes(sink, "key", "amount", "_change_type", "_timestamp")
    assert rows == [
        (key, amount, "delete" if amount is None else "upsert", START + timedelta(seconds=seconds))
        for key, amount, seconds in [
            ("a", 1, 0), ("c", 4, 4), ("b", 2, 5), ("a", 3, 3), ("a", None, 6), ("b", None, 1), ("a", 5, 7),
        ]
    ]  # fmt: skip
    orders = [row["_order"] for row in sink.rows()]
    assert [(order.micro_batch, order.partition[-1], order.position) for order in orders] == [
        (0, "0", 0), (0, "1", 0), (0, "0", 1), (0, "0", 2), (0, "0", 3), (1, "0", 4), (1, "0", 5),
    ]  # fmt: skip


def test_spark_s_own_frame_of_a_topic_has_the_same_order(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic, sink = topics.make("raw", 2), ts.to_memory("raw")
    topics.send(
        topic, [position("a", "A", 1, 0, 0), position("a", "A", 2, 0, 5), position("b", "B", 3, 1, 4)]
    )
    topics.send(topic, [position("a", "A", 4, 0, 3), position("b", "B", 5, 1, 6)])
    options = {"kafka.bootstrap.servers": topics.servers, "subscribe": topic, "startingOffsets": "earliest"}
    raw = spark.readStream.format("kafka").options(**options).load()
    raw = raw.selectExpr("CAST(key AS string) AS name", "CAST(value AS string) AS text", "*")
    table = ts.table(raw, key="name", columns="text", name="positions")
    run(table.to(sink), checkpoint=tmp_path / "checkpoint")
    amounts = [(json.loads(text)["amount"], time) for text, time in changes(sink, "text", "_timestamp")]
    assert amounts == [
        (n, START + timedelta(seconds=at)) for n, at in [(1, 0), (3, 4), (2, 5), (4, 3), (5, 6)]
    ]


@pytest.mark.exhaustive
def test_what_kafka_knows_of_a_record_can_be_columns(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic, sink = topics.make("headers"), ts.to_memory("headers")
    headers = (("trace", b"1"), ("trace", None), ("tablestream", b"no time"))
    topics.send(topic, [Record(b"k", b"v", 0, headers, START_MS), Record(None, b"w", 0, (), START_MS)])
    frame = read(spark, topics, topic, key="binary", value="string")
    frame = frame.selectExpr(
        "*", "_kafka.headers AS headers", "_kafka.topic AS topic", "_kafka.offset AS offset"
    )
    stream = ts.stream(frame, key="key", name="records")
    assert stream.columns == ["key", "value", "headers", "topic", "offset"]
    run(stream.to(sink), checkpoint=tmp_path / "checkpoint")
    rows = changes(sink, "key", "value", "headers", "topic", "offset", "_timestamp")
    assert [(one[0], one[1], one[3], one[4], one[5]) for one in rows] == [
        (bytearray(b"k"), "v", topic, 0, START),
        (None, "w", topic, 1, START),
    ]
    assert [(one.key, one.value and bytes(one.value)) for one in rows[0][2]] == list(headers)
    assert rows[1][2] is None


def test_why_names_the_record_that_changed_a_row_last(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """Its partition and offset are columns of the source, which no operator reads."""
    topic, checkpoint = topics.make("offsets", 2), tmp_path / "checkpoint"
    frame = read(spark, topics, topic)
    frame = frame.selectExpr("*", "_kafka.partition AS partition", "_kafka.offset AS offset")
    table = ts.table(frame, key="key", name="positions")
    total = table.group_by("ticker").agg(n=tf.sum("amount"), name="totals")

    def places() -> set[tuple[Any, ...]]:
        output = total.to(ts.to_memory("places"), name="totals")
        run(output, checkpoint=checkpoint, evolvable=True)
        found = [(one["key"]["key"], one["row"]) for one in ts.why(spark, checkpoint, "totals", "ACME").rows]
        return {(key, row["amount"], row["partition"], row["offset"]) for key, row in found}

    topics.send(topic, [position("a", "ACME", 1), position("b", "ACME", 2, 1), position("a", "ACME", 3)])
    assert places() == {("a", 3, 0, 1), ("b", 2, 1, 0)}
    topics.send(topic, [position("b", "ACME", 2, 1), position("a")])
    assert places() == {("b", 2, 1, 1)}


@pytest.mark.exhaustive
def test_key_and_value_may_have_a_name_in_common_which_is_the_key_s(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic, sink = topics.make("same"), ts.to_memory("same name")
    topics.send(topic, [record({"id": 1}, {"ID": 2, "price": 1.5}), record({"id": 1}, None)])
    frame = read(spark, topics, topic, key="id int", value="ID int, price double")
    assert frame.columns == ["id", "price", "_kafka"]
    run(ts.table(frame, key="id", name="t").to(sink), checkpoint=tmp_path / "checkpoint")
    assert changes(sink, "id", "price", "_change_type") == [(1, 1.5, "upsert"), (1, None, "delete")]


@pytest.mark.exhaustive
def test_a_row_is_also_deleted_where_the_user_says_so(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """And a tombstone stays one, though the condition is null for it."""
    topic, sink = topics.make("deletes"), ts.to_memory("deletes")
    topics.send(
        topic, [position("a", "ACME", 1), position("a", "GONE", 2), position("b", "BOLT", 3), position("b")]
    )
    table = ts.table(read(spark, topics, topic), "key", apply_as_deletes="ticker = 'GONE'", name="positions")
    run(table.to(sink), checkpoint=tmp_path / "checkpoint")
    assert changes(sink, "key", "amount") == [("a", 1), ("a", None), ("b", 3), ("b", None)]


def test_a_tombstone_deletes_though_time_and_sequence_were_in_the_value(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic, sink = topics.make("tombstones"), ts.to_memory("tombstones")
    value = {"p": 1.5, "at": "2020-01-01T00:00:00Z", "n": 5}
    topics.send(topic, [record("a", value), record("b", value | {"n": 6})])
    frame = read(spark, topics, topic, value="p double, at timestamp, n int")
    said: dict[str, Any] = {"timestamp": "at", "sequence_by": "n", "columns": "p"}
    table = ts.table(frame, "key", name="quotes", **said).filter("p > 1")
    for _ in range(2):
        run(table.to(sink), checkpoint=tmp_path / "checkpoint")
        topics.send(topic, [record("a", None)])
    assert changes(sink, "key", "p", "_timestamp") == [
        ("a", 1.5, datetime(2020, 1, 1)), ("b", 1.5, datetime(2020, 1, 1)), ("a", None, datetime(2020, 1, 1)),
    ]  # fmt: skip


@pytest.mark.exhaustive
def test_several_topics_in_one_table_and_several_tables_in_a_plan(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    old, new, names = topics.make("old"), topics.make("new", 2), topics.make("names")
    sink, empty = ts.to_memory("several topics"), topics.make("empty")
    topics.send(old, [position("a", "ACME", 1, seconds=1)])
    topics.send(new, [position("b", "BOLT", 2, 1, seconds=2), position("c", "ACME", 3, 0, seconds=3)])
    topics.send(names, [record("ACME", "Acme Ltd", 0, START_MS)])
    positions = ts.table(read(spark, topics, [old, new, empty]), key="key", name="positions")
    tickers = ts.table(read(spark, topics, names, value="string"), key="key", name="tickers")
    joined = positions.join(tickers, on="ticker", how="left", select=lambda p, t: [p.amount, t.value])
    run(joined.to(sink), checkpoint=tmp_path / "checkpoint")
    assert changes(sink, "key", "amount", "value") == [
        ("a", 1, "Acme Ltd"),
        ("b", 2, None),
        ("c", 3, "Acme Ltd"),
    ]


@pytest.mark.exhaustive
def test_an_empty_topic_gives_nothing_until_something_comes(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic, sink = topics.make("quiet", 2), ts.to_memory("quiet")
    table = ts.table(read(spark, topics, topic), key="key", name="positions")
    run(table.to(sink), checkpoint=tmp_path / "checkpoint")
    assert sink.rows() == []
    topics.send(topic, [position("a", "ACME", 1)])
    run(table.to(sink), checkpoint=tmp_path / "checkpoint")
    assert changes(sink, "key", "amount") == [("a", 1)]


@pytest.mark.parametrize(
    ("offsets", "first", "later"),
    [
        ("earliest", [1, 2, 3], [4]),
        repeat(pytest.param("latest", [], [4])),
        repeat(pytest.param({0: 2}, [3], [4])),
    ],
)
def test_where_a_query_begins(
    spark: SparkSession, topics: Topics, tmp_path: Path, offsets: Any, first: list[int], later: list[int]
) -> None:
    topic, sink = topics.make("begin"), ts.to_memory("begin")
    topics.send(topic, [position("a", "ACME", number) for number in (1, 2, 3)])
    begin = offsets if isinstance(offsets, str) else {topic: offsets}
    table = ts.table(read(spark, topics, topic, starting_offsets=begin), key="key", name="positions")
    query = ts.start(table.to(sink), checkpoint=str(tmp_path / "checkpoint"))
    query.processAllAvailable()
    assert [amount for (amount,) in changes(sink, "amount")] == first
    topics.send(topic, [position("a", "ACME", 4)])
    query.processAllAvailable()
    query.stop()
    assert [amount for (amount,) in changes(sink, "amount")] == [*first, *later]


# Bad records

BAD = [
    position("a", "ACME", 1),
    record("a", '{"ticker": "ACME", "amount": "many"}'),
    record(b"\xff", {"ticker": "BOLT"}),
    record(b"\xfe", b"\xfd"),
    record(None, {"ticker": "COCO"}),
    position("a", "ACME", 2),
]


def test_bad_records_are_dropped_counted_and_kept_apart(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic, kept, apart = topics.make("bad"), ts.to_memory("kept"), ts.to_memory("apart")
    topics.send(topic, BAD)
    table = ts.table(read(spark, topics, topic, on_error="drop"), key="key", name="positions")
    counts = run(table.to(kept), table.rejected().to(apart), checkpoint=tmp_path / "checkpoint")
    assert changes(kept, "key", "amount") == [("a", 1), ("a", 2)]
    assert counts == {
        "changes": 2, "positions: malformed": 3, "positions: null-key": 1, "positions: null-timestamp": 0,
    }  # fmt: skip
    rejected = {row["_order"].position: row for row in apart.rows()}
    assert {number: row.reason for number, row in rejected.items()} == {
        1: "malformed", 2: "malformed", 3: "malformed", 4: "null-key",
    }  # fmt: skip
    assert {row.source for row in rejected.values()} == {f"0000\t{topic}\t{0:020d}"}
    assert [json.loads(rejected[number].record) for number in (1, 2, 3, 4)] == [
        {
            "error": "value: it is not JSON of this schema",
            "key": "a",
            "value": '{"ticker": "ACME", "amount": "many"}',
        },
        {"error": "key: it is not UTF-8 text", "key_base64": "/w==", "value": '{"ticker": "BOLT"}'},
        {
            "error": "key: it is not UTF-8 text; value: it is not JSON of this schema",
            "key_base64": "/g==",
            "value_base64": "/Q==",
        },
        {"key": None, "ticker": "COCO", "amount": None},
    ]


def test_a_bad_record_ends_the_query(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic, sink = topics.make("fails"), ts.to_memory("fails")
    topics.send(topic, BAD)
    table = ts.table(read(spark, topics, topic), key="key", name="positions")
    with pytest.raises(StreamingQueryException) as caught:
        run(table.to(sink), checkpoint=tmp_path / "checkpoint")
    text = str(caught.value)
    assert "[TABLESTREAM_MALFORMED_RECORD] A row cannot be read: " in text
    assert f"(topic {topic}, partition 0, offset 1)" in text
    assert "on_error='drop'" in text
    assert sink.rows() == []


def test_a_topic_that_is_not_there_ends_the_query(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    table = ts.table(read(spark, topics, "nosuch"), key="key", name="positions")
    query = ts.start(table.to(ts.to_memory("nosuch")), checkpoint=str(tmp_path), trigger=ALL)
    with pytest.raises(StreamingQueryException, match="UnknownTopicOrPartitionException"):
        query.awaitTermination()


# Avro

QUOTE = {"type": "record", "name": "Quote", "fields": [{"name": "price", "type": "double"}]}
PRICE = b"\x00\x00\x00\x00\x00\x00\xf8\x3f"  # 1.5


def test_plain_avro(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic, sink = topics.make("avro"), ts.to_memory("avro")
    topics.send(
        topic, [Record(b"\x08ACME", PRICE), Record(b"\x08ACME", PRICE[1:]), Record(b"\x08ACME", None)]
    )
    frame = read(spark, topics, topic, key=ts.avro("string"), value=ts.avro(QUOTE), on_error="drop")
    counts = run(ts.table(frame, key="key", name="quotes").to(sink), checkpoint=tmp_path / "checkpoint")
    assert changes(sink, "key", "price") == [("ACME", 1.5), ("ACME", None)]
    assert counts["quotes: malformed"] == 1


def test_avro_with_a_registry(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """Records of an older and a newer schema, with a password that only the registry sees."""
    topic, sink = topics.make("confluent"), ts.to_memory("confluent")
    with schema_registry(user="me:CANARY") as registry:
        old = registry.add(f"{topic}-value", QUOTE)
        sized = {
            **QUOTE,
            "fields": [*QUOTE["fields"], {"name": "size", "type": ["null", "int"], "default": None}],
        }
        new = registry.add(f"{topic}-value", sized)
        bodies = [(old, PRICE), (new, PRICE + b"\x02\x0e"), (9, PRICE)]
        topics.send(topic, [Record(b"ACME", b"\x00" + number.to_bytes(4) + body) for number, body in bodies])
        avro = ts.confluent_avro({"url": registry.url, "basic.auth.user.info": "me:CANARY"})
        frame = read(spark, topics, topic, value=avro, on_error="drop")
        counts = run(ts.table(frame, key="key", name="quotes").to(sink), checkpoint=tmp_path / "checkpoint")
    assert changes(sink, "key", "price", "size") == [("ACME", 1.5, None), ("ACME", 1.5, 7)]
    assert counts["quotes: malformed"] == 1


def test_a_registry_that_is_gone_ends_the_query(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """It drops nothing: the records may be good ones."""
    topic, sink = topics.make("gone"), ts.to_memory("gone")
    topics.send(topic, [Record(b"ACME", b"\x00\x00\x00\x00\x01" + PRICE)])
    avro = ts.confluent_avro({"url": "http://127.0.0.1:1", "max.retries": 0}, schema=QUOTE)
    table = ts.table(read(spark, topics, topic, value=avro, on_error="drop"), key="key", name="quotes")
    with pytest.raises(
        StreamingQueryException, match=r"TABLESTREAM_REGISTRY\] The schema registry does not answer"
    ):
        run(table.to(sink), checkpoint=tmp_path / "checkpoint")
    assert sink.rows() == []


# What is refused


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"topic": []}, ArgumentError, r"\[\] does not name a topic"),
        ({"topic": ["a", 5]}, ArgumentError, "does not name a topic"),
        ({"topic": "a,b"}, ArgumentError, "'a,b' does not name a topic.*several as in"),
        ({"bootstrap_servers": " "}, ArgumentError, "bootstrap_servers does not name a Kafka server"),
        ({"deduplicate": "me"}, ArgumentError, r"deduplicate='me' is neither.*to_kafka\(...\).writer\(query.id\)"),
        ({"deduplicate": []}, ArgumentError, "neither True, False nor a writer"),
        ({"deduplicate": ["0123456789abcdef", 5]}, ArgumentError, "neither True, False nor a writer"),
        ({"on_error": "keep"}, ArgumentError, "on_error='keep' is not known.*'fail', 'drop'"),
        ({"value": "_kafka int"}, ReservedNameError, "A field is called _kafka"),
        ({"options": {"startingOffsets": "latest"}}, ArgumentError, "'startingOffsets' itself.*Give starting_offs"),
        ({"options": {"minPartitions": 4}}, ArgumentError, "'minPartitions'.*its order would be lost"),
        ({"options": {"kafka.bootstrap.servers": "x"}}, ArgumentError, "Give bootstrap_servers="),
    ],
)  # fmt: skip
def test_what_is_refused(
    spark: SparkSession, given: dict[str, Any], error: type[Exception], message: str
) -> None:
    settings = {"topic": "t", "value": "string", "bootstrap_servers": "127.0.0.1:1"}
    with pytest.raises(error, match=message):
        ts.from_kafka(spark, **settings | given)


CANARY = "CANARY-77f0"


def test_a_secret_that_spark_would_show_is_refused(spark: SparkSession) -> None:
    """Spark hides options by words in their names; a private key's name has none of them."""
    options = {"kafka.ssl.keystore.key": CANARY}
    with pytest.raises(SessionSettingError) as caught:
        ts.from_kafka(spark, "t", value="string", bootstrap_servers="127.0.0.1:1", options=options)
    assert CANARY not in str(caught.value)
    setting = "spark.sql.redaction.options.regex"
    told = str(caught.value).split(f"{setting}=")[1]
    spark.conf.set(setting, told)
    try:
        frame = ts.from_kafka(spark, "t", value="string", bootstrap_servers="127.0.0.1:1", options=options)
        with pytest.raises(PlanError, match="nosuch") as refused:
            ts.table(frame, key="nosuch")
        plan = str(refused.value.__cause__)
        assert CANARY not in plan
        assert "kafka.ssl.keystore.key" in plan
    finally:
        spark.conf.unset(setting)


@pytest.fixture
def hides(spark: SparkSession) -> Iterator[Callable[[str], None]]:
    """Sets which options Spark hides."""
    setting = "spark.sql.redaction.options.regex"
    yield lambda pattern: spark.conf.set(setting, pattern)
    spark.conf.unset(setting)


def test_the_pattern_to_set_has_what_was_hidden_before(
    spark: SparkSession, hides: Callable[[str], None]
) -> None:
    hides("(?i)my_pin")
    with pytest.raises(SessionSettingError, match=r"regex=\(\?i\)my_pin\|kafka\\\.ssl\\\.keystore\\\.key$"):
        ts.from_kafka(
            spark,
            "t",
            value="string",
            bootstrap_servers="127.0.0.1:1",
            options={"kafka.ssl.keystore.key": CANARY},
        )


@pytest.mark.parametrize("pattern", ["foo|(?i)url", r"\p{Lower}*url"])
def test_a_pattern_that_java_alone_understands(
    spark: SparkSession, hides: Callable[[str], None], pattern: str
) -> None:
    """Only where there is something to hide is it looked at."""
    hides(pattern)
    settings: dict[str, Any] = {"value": "string", "bootstrap_servers": "127.0.0.1:1"}
    ts.from_kafka(spark, "t", **settings)
    with pytest.raises(SessionSettingError, match=r"Cannot tell .*\(\?i\) at the beginning") as refused:
        ts.from_kafka(spark, "t", **settings, options={"kafka.ssl.keystore.key": CANARY})
    assert CANARY not in str(refused.value)
