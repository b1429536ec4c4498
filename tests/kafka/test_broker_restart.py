"""A broker that goes away in the middle of a query from topic to topic and comes back: nothing is lost or doubled."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

import tablestream as ts
from tests.broker.fixtures import JARS
from tests.broker.kafka_broker import KafkaBroker
from tests.kafka.test_sink import to
from tests.kafka.test_source import position, read
from tests.kafka.topics import Topics, by_key
from tests.spark.change_logs import ALL, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.kafka.topics import Record

SECONDS = 240

pytestmark = [pytest.mark.broker, pytest.mark.faults, pytest.mark.slow]
#: A query that gives up after seconds, where Kafka's and Spark's defaults are minutes.
IMPATIENT = {
    "source": {
        "kafka.default.api.timeout.ms": 2000,
        "kafka.request.timeout.ms": 1000,
        "kafkaConsumer.pollTimeoutMs": 2000,
        "fetchOffset.numRetries": 1,
    },
    "sink": {
        "kafka.delivery.timeout.ms": 2000,
        "kafka.request.timeout.ms": 1000,
        "kafka.max.block.ms": 2000,
    },
}
PATIENT: dict[str, dict[str, Any]] = {"source": {}, "sink": {}}


def random_log(size: int) -> list[Record]:
    """Positions of a few keys in one partition; some are closed."""
    rng = random.Random(7)
    return [
        position(f"k{rng.randrange(9)}", rng.choice([None, "ACME", "BOLT", "COCO"]), number, 0, number)
        for number in range(size)
    ]


def wait(over: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not over():
        assert time.monotonic() < end
        time.sleep(0.2)


def test_a_broker_goes_and_comes_back(spark: SparkSession, tmp_path: Path) -> None:
    """Soon enough, and the query goes on; too late, and it ends, and goes on when it is started again."""
    log = random_log(120)
    with KafkaBroker(JARS, tmp_path / "broker", settings={"auto.create.topics.enable": "false"}) as broker:
        topics = Topics(broker.bootstrap_servers)
        source, target, expected = (topics.make(name) for name in ("in", "out", "expected"))

        def amounts(settings: dict[str, Any], most: int) -> ts.Table:
            frame = read(spark, topics, source, options={"maxOffsetsPerTrigger": most} | settings["source"])
            table = ts.table(frame, "key", name="positions")
            return table.group_by("ticker").agg(n=ts.functions.count(), amount=ts.functions.sum("amount"))

        def start(settings: dict[str, Any], **trigger: Any) -> Any:
            output = amounts(settings, 8).to(to(topics, target, options=settings["sink"]), name="out")
            return ts.start(output, checkpoint=tmp_path / "checkpoint", **trigger)

        topics.send(source, log[:100])
        query = start(PATIENT)
        wait(lambda: len(topics.read(target)) > 10)
        broker.stop()
        time.sleep(3)  # it is in the middle of what it has to read or write
        broker.start()
        seen = len(topics.read(target))
        wait(lambda: not query.isActive or len(topics.read(target)) > seen + 10)
        assert query.exception() is None
        query.stop()

        query = start(IMPATIENT)
        seen = len(topics.read(target))
        wait(lambda: not query.isActive or len(topics.read(target)) > seen)
        broker.stop()
        with pytest.raises(StreamingQueryException, match=r"(?i)timeout|timed out|expired"):
            query.awaitTermination(SECONDS)
        broker.start()
        topics.send(source, log[100:])
        start(PATIENT, trigger=ALL).awaitTermination()

        undisturbed = amounts(PATIENT, len(log)).to(to(topics, expected), name="out")
        run(undisturbed, checkpoint=tmp_path / "undisturbed")
        assert told_once(spark, topics, target, tmp_path) == by_key(topics.read(expected))


def told_once(spark: SparkSession, topics: Topics, topic: str, directory: Path) -> dict[bytes, list[Any]]:
    """The values of each key that a reader of a topic gets who leaves repeats out."""
    frame = read(spark, topics, topic, value="n bigint, amount bigint", deduplicate=True)
    sink = ts.to_memory(f"told once {directory}")
    run(ts.table(frame, "key", name="amounts").to(sink), checkpoint=directory / "reader")
    values: dict[bytes, list[Any]] = {}
    for row in sink.rows():
        value = {"n": row["n"], "amount": row["amount"]} if row["_change_type"] == "upsert" else None
        values.setdefault(row["key"].encode(), []).append(value)
    return values
