"""Topics as targets: order of each key, tombstones, formats, repeats, and what is refused."""

from __future__ import annotations

import json
import random
import re
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import tablestream as ts
from tablestream.errors import ArgumentError, SessionSettingError
from tests.kafka.registry import schema_registry
from tests.kafka.test_source import CANARY, START, START_MS, changes, position, read
from tests.kafka.topics import Record, Topics, by_key, record
from tests.marks import quick_first
from tests.spark.change_logs import ALL, run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

HEADER = re.compile(rb"(-?\d+)(?: ([0-9a-f]{16}) (\d+) (\d+))?")


def said(one: Record) -> tuple[int, str, int, int]:
    """What the writer says of a record: time in microseconds, writer, micro-batch, number."""
    ((name, text),) = one.headers
    assert name == "tablestream"
    assert text is not None
    found = HEADER.fullmatch(text)
    assert found is not None
    time, writer, micro_batch, number = found.groups()
    return int(time), writer.decode(), int(micro_batch), int(number)


def words(one: Record) -> int:
    """How much the writer says."""
    ((_, text),) = one.headers
    return len((text or b"").split())


def to(topics: Topics, topic: str, **given: Any) -> Any:
    return ts.to_kafka(topic, **{"bootstrap_servers": topics.servers, "key": "string"} | given)


def positions(spark: SparkSession, topics: Topics, topic: str, **given: Any) -> ts.Table:
    return ts.table(read(spark, topics, topic, **given), key="key", name="positions")


def random_log(seed: int, size: int) -> list[Record]:
    """Positions of 20 keys in two partitions, a key always in the same; some are closed."""
    rng = random.Random(seed)
    keys = [rng.randrange(20) for _ in range(size)]
    return [
        position(f"k{key}", None if rng.random() < 0.2 else "ACME", number, key % 2, number)
        for number, key in enumerate(keys)
    ]


def meant(log: Sequence[Record]) -> dict[bytes | None, list[Any]]:
    return by_key(log)


# Order, and what a record is


@pytest.mark.usefixtures("several_partitions")
def test_keys_are_in_order_over_partitions_tasks_and_a_restart(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """Through a topic and out to one; each record says its time, who wrote it, and as its key's how manyth."""
    source, target = topics.make("in", 2), topics.make("out", 3)
    log = random_log(1, 400)
    table = positions(spark, topics, source, options={"maxOffsetsPerTrigger": 120})
    for part in (log[:250], log[250:]):
        topics.send(source, part)
        run(table.to(to(topics, target)), checkpoint=tmp_path / "checkpoint")
    written = topics.read(target)
    assert meant(written) == meant(log)
    assert {one.partition for one in written} == {0, 1, 2}
    assert len({said(one)[1] for one in written}) == 1
    times = {one.json["amount"]: one.time_ms * 1000 for one in log if one.value is not None}
    assert all(said(one)[0] == times[one.json["amount"]] for one in written if one.value is not None)
    numbers: dict[bytes | None, list[tuple[int, ...]]] = {}
    for one in written:
        numbers.setdefault(one.key, []).append(said(one)[2:])
    assert all(of_key == numbered([batch for batch, _ in of_key]) for of_key in numbers.values())
    assert len({batch for of_key in numbers.values() for batch, _ in of_key}) >= 4


def numbered(batches: list[int]) -> list[tuple[int, ...]]:
    """Number the changes of each micro-batch, the first one first."""
    return [(batch, batches[:at].count(batch)) for at, batch in enumerate(sorted(batches))]


def test_final_changes_are_a_record_for_each_key_and_micro_batch(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    source, target = topics.make("in"), topics.make("out")
    topics.send(
        source, [position("a", "ACME", 1), position("a", "ACME", 2), position("b", "BOLT", 3), position("b")]
    )
    table = positions(spark, topics, source)
    run(table.to(to(topics, target), emit="final"), checkpoint=tmp_path / "checkpoint")
    topics.send(source, [position("a"), position("a", "ACME", 4), position("a")])
    run(table.to(to(topics, target), emit="final"), checkpoint=tmp_path / "checkpoint")
    written = topics.read(target)
    assert by_key(written) == {b"a": [{"ticker": "ACME", "amount": 2}, None]}
    assert [said(one)[2:] for one in written] == [(0, 0), (1, 0)]


@pytest.mark.exhaustive
def test_rows_before_and_late_versions_stay_out(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    source, images, latest = topics.make("in"), topics.make("images"), topics.make("latest")
    log = [position("a", "ACME", 1, seconds=5), position("a", "ACME", 2, seconds=3), position("a", seconds=6)]
    topics.send(source, log)
    table = positions(spark, topics, source)
    run(table.to(to(topics, images), before=True), checkpoint=tmp_path / "images")
    assert [one.json and one.json["amount"] for one in topics.read(images)] == [1, 2, None]
    versions = table.materialize(history="1 minute")
    run(versions.to(to(topics, latest)), checkpoint=tmp_path / "latest")
    assert [one.json and one.json["amount"] for one in topics.read(latest)] == [1, None]


def test_records_of_streams_and_rejected_ones_are_written_too(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """What has no key has no number: a repeat might go to another partition."""
    source, keyed, keyless, letters = (topics.make(name) for name in ("in", "keyed", "keyless", "letters"))
    bad = record("a", "{", 0, START_MS)
    topics.send(source, [position("a", "ACME", 1), position(None, "BOLT", 2), bad, position("b")])
    frame = read(spark, topics, source, on_error="drop")
    one, other = ts.stream(frame, key="key", name="keyed"), ts.stream(frame, columns="amount", name="keyless")
    table = ts.table(frame, key="key", name="table")
    run(
        one.to(to(topics, keyed)),
        other.to(to(topics, keyless, key="json")),
        table.rejected().to(to(topics, letters)),
        checkpoint=tmp_path / "checkpoint",
    )
    found = {row.key: (row.json and row.json["amount"], words(row)) for row in topics.read(keyed)}
    assert found == {b"a": (1, 4), None: (2, 1), b"b": (None, 4)}
    rows = topics.read(keyless)
    assert {row.key for row in rows} == {None}
    assert sorted(row.json["amount"] if row.json else 0 for row in rows) == [0, 1, 2]
    assert {row.headers for row in rows} == {(("tablestream", str(START_MS * 1000).encode()),)}
    rejected = topics.read(letters)
    assert {(row.key, row.json["operator"], row.headers) for row in rejected} == {(None, "table", ())}
    told = {row.json["reason"]: json.loads(row.json["record"]) for row in rejected}
    assert told.keys() == {"null-key", "malformed"}
    assert told["malformed"]["value"] == "{"


@pytest.mark.exhaustive
def test_a_stream_s_key_with_a_null_part_is_a_key(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """It has a number too, so that a repeat of it is known; one whose parts are all null is none."""
    source, target, avro = topics.make("in"), topics.make("out"), topics.make("avro")
    topics.send(source, [record("a", {"amount": 1}), record("a", {"amount": 2}), record(None, {"amount": 3})])
    records = ts.stream(read(spark, topics, source), key=["key", "ticker"], name="records")
    for _ in range(2):
        run(records.to(to(topics, target, key="json")), checkpoint=tmp_path / "checkpoint")
        forget_the_last_commit(tmp_path / "checkpoint")
    written = topics.read(target)
    partly = b'{"key":"a","ticker":null}'
    assert by_key(written) == {partly: [{"amount": 1}, {"amount": 2}] * 2, None: [{"amount": 3}] * 2}
    assert [said(one)[2:] for one in written if one.key] == [(0, 0), (0, 1)] * 2
    sink = ts.to_memory("null parts back")
    back = read(spark, topics, target, key="key string, ticker string", value="amount int", deduplicate=True)
    run(ts.stream(back, columns="amount", name="back").to(sink), checkpoint=tmp_path / "back")
    assert sorted(changes(sink, "amount")) == [(1,), (2,), (3,), (3,)]
    schema = {**QUOTE, "fields": [{"name": name, "type": "string"} for name in ("key", "ticker")]}
    with pytest.raises(StreamingQueryException, match=r"TABLESTREAM_RECORD_ENCODING"):
        run(records.to(to(topics, avro, key=ts.avro(schema))), checkpoint=tmp_path / "avro")


# Formats

QUOTE = {
    "type": "record",
    "name": "Quote",
    "fields": [
        {"name": "amount", "type": ["null", "int"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": "string", "default": "none"},
    ],
}


def quotes(spark: SparkSession, topics: Topics, topic: str) -> ts.Table:
    frame = read(spark, topics, topic).selectExpr(
        "key AS ticker", "amount", "_kafka.timestamp AS at", "_kafka"
    )
    return ts.table(frame, key="ticker", name="quotes")


def test_json_keys_and_values_come_back(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    source, target, sink = topics.make("in"), topics.make("out"), ts.to_memory("json back")
    topics.send(source, [position("a", "ACME", 1, seconds=1), position("a", seconds=2)])
    run(quotes(spark, topics, source).to(to(topics, target, key="json")), checkpoint=tmp_path / "checkpoint")
    written = topics.read(target)
    assert [(one.key, one.value) for one in written] == [
        (b'{"ticker":"a"}', b'{"amount":1,"at":"2023-11-14T22:13:21.000000Z"}'),
        (b'{"ticker":"a"}', None),
    ]
    back = read(
        spark, topics, target, key="ticker string", value="amount int, at timestamp", deduplicate=True
    )
    run(ts.table(back, key="ticker", name="quotes").to(sink), checkpoint=tmp_path / "back")
    times = [START.replace(second=second) for second in (21, 22)]
    assert changes(sink, "ticker", "amount", "at", "_timestamp") == [
        ("a", 1, times[0], times[0]), ("a", None, None, times[1]),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", quick_first(["plain", "confluent", "the latest of a subject"]))
def test_avro_keys_and_values_come_back(
    spark: SparkSession, topics: Topics, tmp_path: Path, kind: str
) -> None:
    source, target, sink = topics.make("in"), topics.make("out"), ts.to_memory("avro back")
    topics.send(source, [position("a", "ACME", 1, seconds=1), position("a", seconds=2)])
    with schema_registry(user=f"me:{CANARY}") as registry:
        known = {"url": registry.url, "basic.auth.user.info": f"me:{CANARY}"}
        if kind == "the latest of a subject":
            registry.add(f"{target}-key", '"string"')
            registry.add(f"{target}-value", QUOTE)
        formats = {
            "plain": (ts.avro("string"), ts.avro(QUOTE)),
            "confluent": (ts.confluent_avro(known, schema="string"), ts.confluent_avro(known, schema=QUOTE)),
            "the latest of a subject": (ts.confluent_avro(known), ts.confluent_avro(known)),
        }
        key, value = formats[kind]
        written = to(topics, target, key=key, value=value)
        run(quotes(spark, topics, source).to(written), checkpoint=tmp_path / "checkpoint")
        back = read(spark, topics, target, key=key, value=value)
        assert back.columns == ["key", "amount", "at", "note", "_kafka"]
        run(ts.table(back, key="key", name="quotes").to(sink), checkpoint=tmp_path / "back")
        assert CANARY not in repr(written) + repr(quotes(spark, topics, source).to(written))
    at = START.replace(second=21)
    assert changes(sink, "key", "amount", "at", "note") == [("a", 1, at, "none"), ("a", None, None, None)]
    first, second = topics.read(target)
    assert first.value is not None
    assert second.value is None
    number = {
        "plain": b"",
        "confluent": b"\x00\x00\x00\x00\x01",
        "the latest of a subject": b"\x00\x00\x00\x00\x01",
    }
    assert first.key == number[kind] + b"\x02a"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"value": "string"}, r"'string' is one column, and the value of topic '.*out' has 2 \(amount, at\)"),
        ({"value": ts.avro({**QUOTE, "fields": QUOTE["fields"][:1]})}, "has no field for the column at"),
        (
            {"value": ts.avro({**QUOTE, "fields": [*QUOTE["fields"], {"name": "more", "type": "int"}]})},
            "has a field more without a default and without a column",
        ),
        (
            {
                "value": ts.avro(
                    {**QUOTE, "fields": [{"name": "amount", "type": "boolean"}, *QUOTE["fields"][1:]]}
                )
            },
            "has boolean for the column amount, which is int",
        ),
        (
            {"key": ts.avro({**QUOTE, "fields": [{"name": "id", "type": "int"}]})},
            "no field for the column ticker",
        ),
    ],
)
def test_columns_that_do_not_fit_are_refused_before_the_query_starts(
    spark: SparkSession, topics: Topics, tmp_path: Path, given: dict[str, Any], message: str
) -> None:
    sink = to(topics, "out", **given)
    with pytest.raises(ArgumentError, match=message):
        ts.start(quotes(spark, topics, "in").to(sink), checkpoint=tmp_path / "checkpoint")
    assert not (tmp_path / "checkpoint").exists()


def test_a_row_that_would_read_as_a_delete_ends_the_query(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    source, target = topics.make("in"), topics.make("out")
    topics.send(source, [record("a", {"ticker": "ACME"})])
    table = positions(spark, topics, source).select("amount")
    with pytest.raises(
        StreamingQueryException,
        match=r"TABLESTREAM_RECORD_ENCODING\] The column 'amount' is null in a row.*would read as a delete",
    ):
        run(table.to(to(topics, target, value="string")), checkpoint=tmp_path / "checkpoint")
    assert topics.read(target) == []


@pytest.mark.exhaustive
def test_a_group_without_a_name_has_no_text_as_its_key(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    source, text, objects = topics.make("in"), topics.make("text"), topics.make("objects")
    topics.send(source, [record("a", {"amount": 1})])
    groups = positions(spark, topics, source).group_by("ticker").count()
    with pytest.raises(
        StreamingQueryException,
        match=r"TABLESTREAM_RECORD_ENCODING\] The column 'ticker' is null in a row.*cannot be a key",
    ):
        run(groups.to(to(topics, text)), checkpoint=tmp_path / "text")
    run(groups.to(to(topics, objects, key="json")), checkpoint=tmp_path / "objects")
    assert [(one.key, one.json) for one in topics.read(objects)] == [(b'{"ticker":null}', {"count": 1})]


# Repeats


def forget_the_last_commit(checkpoint: Path) -> None:
    """Do as if the last micro-batch had not come to its end: it is repeated."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


def test_a_repeated_micro_batch_is_written_again_and_left_out_by_who_reads(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """By tables and streams, whether the repeat comes in the same micro-batch, a later one, or after a restart."""
    source, target = topics.make("in", 2), topics.make("out", 2)
    log, checkpoint = random_log(2, 200), tmp_path / "checkpoint"
    table, stream, raw = (
        ts.to_memory("deduplicated"),
        ts.to_memory("stream"),
        ts.to_memory("not deduplicated"),
    )

    def write() -> None:
        run(positions(spark, topics, source).to(to(topics, target), name="out"), checkpoint=checkpoint)

    def follow() -> Any:
        frame = read(spark, topics, target, deduplicate=True, options={"maxOffsetsPerTrigger": 90})
        table_of = ts.table(frame, key="key", name="positions")
        stream_of = ts.stream(frame, columns=["key", "amount"], name="records")
        return run(table_of.to(table), stream_of.to(stream), checkpoint=tmp_path / "reader")

    topics.send(source, log[:100])
    write()
    forget_the_last_commit(checkpoint)
    write()
    first = topics.read(target)
    assert len(first) == 200
    counts = follow()
    assert counts["positions/deduplicated: repeated"] == counts["records/deduplicated: repeated"] == 100
    topics.send(source, log[100:])
    write()
    forget_the_last_commit(checkpoint)
    write()
    # And a stretch of the first micro-batch, as a task that was long thought dead would write it.
    topics.send(target, [one for one in first if one.partition == 1][:30])
    counts = follow()
    assert counts["positions/deduplicated: repeated"] == 130
    run(ts.stream(read(spark, topics, target), key="key", name="raw").to(raw), checkpoint=tmp_path / "raw")

    def of(rows: list[Any]) -> dict[bytes | None, list[int | None]]:
        found: dict[bytes | None, list[int | None]] = {}
        for row in rows:
            found.setdefault(row.key.encode(), []).append(row.amount)
        return found

    expected = {key: [value and value["amount"] for value in values] for key, values in meant(log).items()}
    assert of(table.rows()) == expected
    assert len(raw.rows()) == 2 * len(log) + 30
    # A record without a value has no columns: only that it is there tells of it.
    kept = of([row for row in stream.rows() if row.key is not None])
    upserts = {key: [one for one in values if one is not None] for key, values in expected.items()}
    assert kept == {key: values for key, values in upserts.items() if values}
    assert len(stream.rows()) == len(log)


@pytest.mark.exhaustive
def test_a_query_with_a_new_checkpoint_writes_no_repeats(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """The same changes again, numbered the same: but another writer's. A reader may name whose repeats it drops."""
    source, target = topics.make("in"), topics.make("out")
    sink, other = ts.to_memory("two writers"), ts.to_memory("one writer")
    topics.send(source, [position("a", "ACME", 1), position("a", "ACME", 2)])
    for name in ("one", "two"):
        run(positions(spark, topics, source).to(to(topics, target)), checkpoint=tmp_path / name)
    written = topics.read(target)
    assert [said(one)[2:] for one in written] == [(0, 0), (0, 1), (0, 0), (0, 1)]
    topics.send(target, written)
    frames = {"of both": True, "of one": said(written[0])[1]}
    tables = [
        ts.table(read(spark, topics, target, deduplicate=given), key="key", name=name)
        for name, given in frames.items()
    ]
    counts = run(tables[0].to(sink), tables[1].to(other), checkpoint=tmp_path / "reader")
    assert changes(sink, "amount") == [(1,), (2,), (1,), (2,)]
    assert changes(other, "amount") == [(1,), (2,), (1,), (2,), (1,), (2,)]
    assert [counts[f"{name}/deduplicated: repeated"] for name in frames] == [4, 2]


def test_two_outputs_of_a_query_are_two_writers(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    source, one, two = topics.make("in"), topics.make("one"), topics.make("two")
    topics.send(source, [position("a", "ACME", 1)])
    table = positions(spark, topics, source)
    outputs = [table.to(to(topics, topic), name=topic) for topic in (one, two)]
    query = ts.start(*outputs, checkpoint=str(tmp_path / "checkpoint"), trigger=ALL)
    query.awaitTermination()
    writers = [to(topics, topic).writer(query.id) for topic in (one, two)]
    assert [said(topics.read(topic)[0])[1] for topic in (one, two)] == writers
    assert writers[0] != writers[1]


@pytest.mark.exhaustive
def test_records_of_others_pass_and_the_operators_behind_are_as_ever(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """A join, a versioned table and a reordered one read deduplicated topics; the plan says so."""
    source, sink = topics.make("in"), ts.to_memory("joined")
    header = (("tablestream", b"1700000001000000 0123456789abcdef 0 0"),)
    broken = (("tablestream", b"1700000001000000 0123456789ABCDEF 0 0"), ("tablestream", None))
    value = json.dumps({"ticker": "ACME", "amount": 7}).encode()
    marked = Record(b"a", value, 0, header, START_MS)
    topics.send(
        source, [marked, marked, Record(b"b", value, 0, broken, START_MS), Record(None, value, 0, header)]
    )
    frame = read(spark, topics, source, deduplicate=True)
    table = ts.table(frame, key="key", history="1 hour", reorder="0 seconds", name="positions")
    assert table.name == "positions"
    other = ts.global_table(frame, key=F.col("key").alias("id"), columns="ticker", name="other")
    joined = table.join(other, on="key", select=lambda p, o: [p.amount, o.ticker])
    counts = run(joined.to(sink), checkpoint=tmp_path / "checkpoint")
    assert {row[0] for row in changes(sink, "key")} == {"a", "b"}
    assert [count for name, count in counts.items() if name.endswith("deduplicated: repeated")] == [1, 1]
    times = dict(changes(sink, "key", "_timestamp"))
    assert times == {"a": START.replace(second=21), "b": START}


@pytest.mark.usefixtures("spark")
def test_a_sequence_needs_no_deduplication(spark: SparkSession, topics: Topics) -> None:
    frame = read(spark, topics, "t", deduplicate=True)
    with pytest.raises(
        ArgumentError, match=r"sequence_by= cannot be combined with from_kafka.*positions, built at"
    ):
        ts.table(frame, key="key", sequence_by="amount", name="positions")


@pytest.mark.usefixtures("spark")
def test_another_order_than_that_of_offsets_would_hide_what_is_no_repeat(
    spark: SparkSession, topics: Topics
) -> None:
    frame = read(spark, topics, "t", deduplicate=True)
    with pytest.raises(
        ArgumentError, match=r"order_by= cannot be combined with from_kafka.*positions, built at"
    ):
        ts.table(frame, key="key", order_by="amount", name="positions")


# What is refused, and what is not shown


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topic": ""}, "'' does not name a topic"),
        ({"bootstrap_servers": ""}, "does not name a Kafka server"),
        ({"value": "id int"}, r"value='id int' is not a record format.*'json'"),
        ({"options": {"topic": "x"}}, "sets the option 'topic' itself"),
        ({"options": {"kafka.enable.idempotence": False}}, "idempotence' itself.*arrive after later ones"),
        ({"options": {"kafka.partitioner.ignore.keys": True}}, "A key's records must be in one partition"),
    ],
)
def test_what_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        ts.to_kafka(**{"topic": "t", "bootstrap_servers": "127.0.0.1:1"} | given)


def test_a_target_that_is_not_there_ends_the_query(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    source = topics.make("in")
    topics.send(source, [position("a", "ACME", 1)])
    sink = to(topics, "nosuch", options={"kafka.max.block.ms": 500})
    query = ts.start(
        positions(spark, topics, source).to(sink), checkpoint=tmp_path / "checkpoint", trigger=ALL
    )
    with pytest.raises(StreamingQueryException, match="Topic nosuch not present in metadata after 500 ms"):
        query.awaitTermination()


def test_a_secret_that_spark_would_show_is_refused(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    sink = to(topics, "t", options={"kafka.ssl.keystore.key": CANARY})
    with pytest.raises(SessionSettingError, match=r"spark.sql.redaction.options.regex=.*kafka") as refused:
        ts.start(positions(spark, topics, "t").to(sink), checkpoint=tmp_path / "checkpoint")
    assert CANARY not in str(refused.value)
