"""Kafka topics as a sink: every change is a record, a delete is a record without a value."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.arguments.kinds import check_text
from tablestream.connectors.formats import Encoder, Format, as_format
from tablestream.connectors.kafka.options import (
    SERVERS,
    check_connector,
    check_hidden,
    checked_options,
    checked_servers,
)
from tablestream.connectors.kafka.source import HEADER, written_words
from tablestream.connectors.marks import Moment
from tablestream.connectors.sink import CHANGE_TYPE, LATEST, NUMBER, ORDER, TIMESTAMP, KeyedSink, quoted
from tablestream.connectors.source import Option
from tablestream.errors import ArgumentError

_IDEMPOTENCE = "kafka.enable.idempotence"
_DECIDED = {
    "topic": "Give to_kafka(...) the topic.",
    SERVERS: "Give bootstrap_servers=.",
    _IDEMPOTENCE: "Without it, a record that is sent again could arrive after later ones.",
    "kafka.partitioner.ignore.keys": "A key's records must be in one partition.",
}
#: Kafka's defaults are for records that arrive one by one; here a whole micro-batch arrives at once.
_BULK = {"kafka.batch.size": str(1 << 18), "kafka.linger.ms": "20"}
_WRITER_DIGITS = 16


@dataclass(frozen=True)
class _Written:
    """How the columns of an output become records."""

    value_columns: tuple[str, ...]
    """The columns of the value."""
    key: Encoder | None
    value: Encoder
    """Turn the columns into bytes."""
    records: bool
    """Whether it is a stream, whose keys may be null: if all parts are null, the record has no key."""


@dataclass(frozen=True)
class KafkaSink(KeyedSink):
    """A topic as a sink; made by `to_kafka`."""

    topic: str
    bootstrap_servers: str
    key: Format
    value: Format
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    written: _Written | None = field(default=None, repr=False)
    moment: Moment | None = None

    @property
    def target(self) -> str:
        return f"kafka {self.topic} at {self.bootstrap_servers}"

    @property
    def retells(self) -> bool:
        return True

    def at(self, moment: Moment) -> Self:
        """Return the same sink for one micro-batch."""
        return replace(self, moment=moment)

    def check(self, spark: SparkSession, columns: Sequence[str]) -> None:  # noqa: ARG002 (the contract's)
        """Refuse a session without Spark's Kafka connector, or one that would show a password."""
        check_connector(spark)
        check_hidden(spark, self.options)

    def shaped(self, key: T.StructType, value: T.StructType, *, records: bool) -> Self:
        """Return the same sink with the columns: formats check whether these fit, and ask their registry."""
        encode_key = self.key.encoder("key", self.topic, key) if len(key) else None
        encode_value = self.value.encoder("value", self.topic, value)
        return replace(self, written=_Written(tuple(value.names), encode_key, encode_value, records))

    def write(self, changes: DataFrame, micro_batch_id: int, query_id: str, output_name: str) -> None:  # noqa: ARG002 (it may change; the target may not)
        """Send one micro-batch: the rows of a Spark task one after the other, so that keys stay in order."""
        settings = {
            **_BULK,
            **self.options,
            SERVERS: self.bootstrap_servers,
            "topic": self.topic,
            _IDEMPOTENCE: "true",
        }
        evolves = "" if self.moment is None else self.moment.evolves
        # Numbers of an attempt are above those of the old plan, and of attempts before: none is taken for a repeat.
        first = time.time_ns() // 1_000_000 if evolves else 0
        writer = self.writer(query_id)
        records = self._records(changes, f"{writer} {micro_batch_id}", first)
        if evolves == "told anew":
            records = records.unionByName(
                self._deletes(records, writer, f"{writer} {micro_batch_id} {first}")
            )
        records.write.format("kafka").options(**settings).save()

    def _deletes(self, rows: DataFrame, writer: str, said: str) -> DataFrame:
        """A record without a value for each key that a writer has in the topic and that has no row any more."""
        settings = {name: value for name, value in self.options.items() if name.startswith("kafka.")}
        settings |= {SERVERS: self.bootstrap_servers, "subscribe": self.topic, "includeHeaders": "true"}
        topic = rows.sparkSession.read.format("kafka").options(**settings).load()
        words = written_words()
        last = F.max_by(
            F.struct(F.col("value").isNull().alias("gone"), F.get(words, 0).alias("time")), "offset"
        )
        written = topic.where(F.col("key").isNotNull() & (F.get(words, 1) == writer))
        live = written.groupBy("key").agg(last.alias("last")).where("NOT last.gone")
        gone = live.join(rows, "key", "left_anti")
        return gone.select(
            "key",
            F.lit(None).cast("binary").alias("value"),
            _headers(F.concat_ws(" ", "last.time", F.lit(said))),
        )

    def writer(self, query_id: str) -> str:
        """Return the writer that the headers name, for ``from_kafka(deduplicate=...)``.

        Parameters
        ----------
        query_id
            The id of the query that writes, ``query.id``; a query with a new checkpoint has another.

        Returns
        -------
        str
            Sixteen hexadecimal digits.

        Examples
        --------
        >>> sink = to_kafka("holdings", bootstrap_servers="localhost:9092")
        >>> sink.writer("3f0c1f5e-8f0e-4b8e-9d6e-6f2a4a4f3b1c")
        '27aeec54120df532'
        """
        return hashlib.sha256(f"{query_id}/{self.topic}".encode()).hexdigest()[:_WRITER_DIGITS]

    def _records(self, changes: DataFrame, place: str, first: int) -> DataFrame:
        """Turn changes into records; `place` is the writer and the micro-batch, `first` the first number of a key."""
        written = self.written
        if written is None:
            raise ArgumentError("A Kafka sink needs the columns of its changes.", hint="Call shaped(...).")
        if CHANGE_TYPE not in changes.columns:  # what sources reject
            return changes.select(written.value(_struct(written.value_columns)).alias("value"))
        if LATEST in changes.columns:
            changes = changes.filter(LATEST)
        after = changes.filter(F.col(CHANGE_TYPE) != "update_preimage")
        row = F.when(F.col(CHANGE_TYPE) != "delete", _struct(written.value_columns))
        key, there = F.lit(None).cast("binary"), F.lit(False)
        number: Column = F.lit(0)
        if written.key is not None:
            there = F.greatest(*(F.col(quoted(name)).isNotNull() for name in self.key_columns), F.lit(False))
            there = there if written.records else F.lit(True)
            key = written.key(F.when(there, _struct(self.key_columns)))
            number = F.col(f"{ORDER}.{NUMBER}") + first
        time = F.unix_micros(TIMESTAMP)
        # A record without a key may go to another partition when it is sent again, where it would not be a duplicate.
        said = F.when(there, F.concat_ws(" ", time, F.lit(place), number)).otherwise(time.cast("string"))
        return after.select(key.alias("key"), written.value(row).alias("value"), _headers(said))


def to_kafka(
    topic: str,
    *,
    bootstrap_servers: str,
    key: Format | str = "json",
    value: Format | str = "json",
    options: Mapping[str, Option] | None = None,
) -> KafkaSink:
    """Write an output to a Kafka topic: a record per change, without a value for a delete.

    Parameters
    ----------
    topic
        The topic, which must exist. For the changes of a table, one with ``cleanup.policy=compact`` keeps one
        record per key.
    bootstrap_servers
        Kafka's addresses, such as ``"host:9092"``.
    key, value
        The formats: ``"json"``, an object of all columns; ``"string"`` or ``"binary"``, for one column; `avro` or
        `confluent_avro`.
    options
        Kafka's own settings with the prefix ``kafka.``, such as ``{"kafka.compression.type": "zstd"}``. Defaults:
        ``kafka.batch.size`` 256 KiB and ``kafka.linger.ms`` 20.

    Returns
    -------
    KafkaSink
        For ``table.to(...)``: every change, or with ``emit="final"`` the last one per key and micro-batch. Also for
        ``stream.to(...)`` and for ``table.rejected().to(...)``, whose records have only a value.

    Raises
    ------
    ArgumentError
        A format or an option is invalid. When the query starts: the columns do not fit the format.
    SessionSettingError
        When the query starts: the session has no Kafka connector, or would show a password in its plans.
    RegistryError
        When the query starts: the schema registry refuses the schema, or does not answer.

    Notes
    -----
    The records of a key are in one partition, and the first record of each change is in the order of the changes,
    whatever fails and is repeated: one Spark task sends all changes of a key one after the other, and Kafka's
    producer is idempotent. After a failure, a task or a micro-batch is repeated and writes its records again, so
    some changes may be there twice; ``from_kafka(..., deduplicate=True)`` drops the duplicates. Do not change the
    number of the topic's partitions: keys would move.

    A record has one header, ``tablestream``: a text of up to four words. The first is the time of the change, in
    microseconds since 1970; Kafka's own timestamp is the time of writing. The others identify duplicates: the
    writer (16 hexadecimal digits for the query and the output), the micro-batch, and the number of the change among
    those of its key in the micro-batch. A record without a key has only the time.

    Late changes of a versioned table are not written: in a topic, the last record of a key is its row. With
    ``before=True`` only the rows after a change are written.

    References
    ----------
    Kafka Streams ``KStream.to``; Spark's "Structured Streaming + Kafka Integration Guide".

    Examples
    --------
    >>> to_kafka("holdings", bootstrap_servers="localhost:9092", key="string").target
    'kafka holdings at localhost:9092'
    """
    return KafkaSink(
        _checked_topic(topic),
        checked_servers(bootstrap_servers),
        as_format(key, "key", reads=False),
        as_format(value, "value", reads=False),
        checked_options(options, _DECIDED, "kafka"),
    )


def _checked_topic(topic: Any) -> str:
    if not isinstance(topic, str) or not topic.strip():
        raise ArgumentError(f"{topic!r} does not name a topic.", hint='Give a name, as in "holdings".')
    check_text(topic, "The topic")
    return topic


def _headers(said: Column) -> Column:
    return F.array(F.struct(F.lit(HEADER).alias("key"), said.cast("binary").alias("value"))).alias("headers")


def _struct(names: Sequence[str]) -> Column:
    return F.struct(*(F.col(quoted(name)).alias(name) for name in names))
