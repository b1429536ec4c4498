"""Topics of the tests' broker, written and read by a client that is not Spark's."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from confluent_kafka import Message
SECONDS = 240.0


@dataclass(frozen=True)
class Record:
    """A record of a topic; one without a partition goes where its key belongs."""

    key: bytes | None
    value: bytes | None
    partition: int = -1
    headers: tuple[tuple[str, bytes | None], ...] = ()
    time_ms: int = 0
    offset: int = -1

    @property
    def json(self) -> Any:
        """The value, decoded."""
        return None if self.value is None else json.loads(self.value)


def record(key: Any, value: Any, partition: int = -1, time_ms: int = 0) -> Record:
    """Make a record; what is no bytes is written as text or, other than text, as JSON."""
    return Record(_bytes(key), _bytes(value), partition, time_ms=time_ms)


def _bytes(given: Any) -> bytes | None:
    if given is None or isinstance(given, bytes):
        return given
    return (given if isinstance(given, str) else json.dumps(given)).encode()


class Topics:
    """Makes, writes and reads topics."""

    def __init__(self, servers: str, prefix: str = "", settings: Mapping[str, str] | None = None) -> None:
        self.servers = servers
        self.prefix = prefix
        # They tell of a broker that is gone, which some tests want it to be.
        self._settings = {"bootstrap.servers": servers, "log_level": 0, **(settings or {})}
        self._admin = AdminClient(self._settings)
        # Without idempotence a record that is sent again comes behind those sent after it.
        producing = {"partitioner": "murmur2_random", "enable.idempotence": True}
        self._producer = Producer(self._settings | producing)

    def make(self, name: str, partitions: int = 1, **config: str) -> str:
        """Make a topic; return its name, which no other test's topics have."""
        name = self.prefix + name
        made = self._admin.create_topics([NewTopic(name, partitions, 1, config=config)])
        made[name].result(SECONDS)
        return name

    def remake(self, topic: str) -> None:
        """Delete a topic, and make another one of its name."""
        self._admin.delete_topics([topic])[topic].result(SECONDS)
        self._wait(lambda: topic not in self._admin.list_topics(timeout=SECONDS).topics)
        self._admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(SECONDS)

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        self._admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(SECONDS)
        # The producer has to know as well.
        self._wait(
            lambda: len(self._producer.list_topics(topic, SECONDS).topics[topic].partitions) == partitions
        )

    def _wait(self, until: Callable[[], bool]) -> None:
        end = time.monotonic() + SECONDS
        while not until():
            assert time.monotonic() < end, "the broker does not do it"
            time.sleep(0.1)

    def delete_records(self, topic: str, before: int) -> None:
        """Delete the first records of a topic's first partition."""
        (done,) = self._admin.delete_records([TopicPartition(topic, 0, before)]).values()
        done.result(SECONDS)

    def send(self, topic: str, records: Iterable[Record]) -> None:
        """Write records, one after the other."""
        for one in records:
            self._producer.produce(
                topic,
                one.value,
                one.key,
                one.partition,
                timestamp=one.time_ms,
                headers=list(one.headers),
                on_delivery=_delivered,
            )
        assert self._producer.flush(SECONDS) == 0

    def _has_leaders(self, topic: str) -> bool:
        """Say whether each partition of a topic has a leader: a broker that has just started chooses them first."""
        found = self._admin.list_topics(topic, timeout=SECONDS).topics.get(topic)
        leaders = [one.leader for one in found.partitions.values()] if found else []
        return bool(leaders) and min(leaders) >= 0

    def read(self, topic: str) -> list[Record]:
        """Read all that is there, partition after partition."""
        self._wait(lambda: self._has_leaders(topic))
        partitions = self._admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions
        places = [TopicPartition(topic, number) for number in sorted(partitions)]
        asked = self._admin.list_offsets(dict.fromkeys(places, OffsetSpec.latest()), request_timeout=SECONDS)
        ends = {place.partition: answer.result().offset for place, answer in asked.items()}
        consumer = Consumer({**self._settings, "group.id": "tests", "enable.auto.commit": False})
        try:
            consumer.assign([TopicPartition(topic, number, 0) for number in ends])
            messages: list[Message] = []
            while missing := sum(ends.values()) - len(messages):
                found = consumer.consume(missing, SECONDS)
                assert found, f"no record of {topic} came"
                messages += found
        finally:
            consumer.close()
        return sorted(map(_received, messages), key=lambda one: (one.partition, one.offset))


def by_key(records: Sequence[Record]) -> dict[bytes | None, list[Any]]:
    """The values of each key, as they stand in the topic."""
    values: dict[bytes | None, list[Any]] = {}
    for one in records:
        values.setdefault(one.key, []).append(one.json)
    return values


def _delivered(error: Any, _: Any) -> None:
    assert error is None, error


def _received(message: Message) -> Record:
    assert message.error() is None, message.error()
    headers = tuple((name, value) for name, value in message.headers() or ())
    place, time_ms = message.partition(), message.timestamp()[1]
    return Record(message.key(), message.value(), place, headers, time_ms, message.offset())
