"""Kafka topics as streams of rows: key and value columns, tombstones and bad records."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.arguments.kinds import check_session, check_text, is_flag, listed, whole
from tablestream.arguments.words import check_known
from tablestream.connectors.formats import Decoder, Format, Part, as_format, with_units
from tablestream.connectors.kafka.options import (
    SERVERS,
    check_connector,
    check_hidden,
    checked_options,
    checked_servers,
)
from tablestream.connectors.shipping import ship
from tablestream.connectors.source import OF_VALUE, Option, Origin, note_of, with_origin
from tablestream.connectors.texts import Units
from tablestream.connectors.workers import use_driver_python
from tablestream.errors import ArgumentError, ReservedNameError

KAFKA = "_kafka"
"""The column with what Kafka knows of a record."""
HEADER = "tablestream"
"""The header in which `to_kafka` writes the time of a change, its writer, and its number."""

OnError = Literal["fail", "drop"]
OfTombstones = Literal["delete", "drop"]
Offsets = str | Mapping[str, Mapping[int, int]]
_ENDS = ("earliest", "latest")

_REMEDY = (
    "Fix the program that wrote it, or read the topic with on_error='drop'. If a time is a number in JSON, give its"
    " unit with times=."
)
_TOPICS = "Give the topic, or a list of topics."
_CUTS = "Several tasks would read parts of one topic partition, and its order would be lost."
_DECIDED = {
    "subscribe": _TOPICS,
    "subscribepattern": _TOPICS,
    "assign": _TOPICS,
    SERVERS: "Give bootstrap_servers=.",
    "startingoffsets": "Give starting_offsets=.",
    "includeheaders": "Headers are always included.",
    "minpartitions": _CUTS,
    "maxrecordsperpartition": _CUTS,
}
_NUMBER = "[0-9]{1,18}"
_WRITER = "[0-9a-f]{16}"
_HEADER_PATTERN = rf"^-?{_NUMBER}( {_WRITER} {_NUMBER} {_NUMBER})?\z"  # $ would let a line's end be


def from_kafka(
    spark: SparkSession,
    topic: str | Sequence[str],
    *,
    value: Format | T.StructType | str,
    key: Format | T.StructType | str | None = None,
    bootstrap_servers: str,
    starting_offsets: Offsets = "earliest",
    on_error: OnError = "fail",
    deduplicate: bool | str | Sequence[str] = False,
    times: Units = None,
    tombstones: OfTombstones = "delete",
    options: Mapping[str, Option] | None = None,
) -> DataFrame:
    """Read Kafka topics as a stream, for `table` and `stream`.

    Parameters
    ----------
    spark
        The session, with Spark's Kafka connector on its class path.
    topic
        The topic, or a list of topics.
    value, key
        The format of the bytes: ``"string"`` (UTF-8), ``"binary"``, the schema of a JSON object (a DDL string or a
        struct), `avro` or `confluent_avro`. Without `key` the key is not decoded.
    bootstrap_servers
        Kafka's addresses, such as ``"host:9092"``.
    starting_offsets
        Where a query without a checkpoint begins: ``"earliest"``, ``"latest"``, or offsets by topic and partition,
        such as ``{"prices": {0: 23, 1: -2}}`` (-2 the earliest, -1 the latest).
    on_error
        How to handle a record that cannot be decoded: ``"fail"`` ends the query with `MalformedRecordError`,
        ``"drop"`` drops it, counts it (``malformed``), and makes it available in ``Table.rejected()``.
    deduplicate
        Drop what a query of this library wrote twice because a part of its work was repeated. This takes a round
        and remembers the keys of the last micro-batch of every writer. True: of all writers. One writer or several, as
        ``KafkaSink.writer`` names them: of these; headers of others count as missing.
    times
        The unit of numbers in the timestamps and dates of JSON, as for `from_files`.
    tombstones
        What records without a value do: ``"delete"`` the row of their key, or ``"drop"``: they are left out. A table
        whose key comes from the value needs ``"drop"``, because a tombstone does not say which row it deletes.
    options
        Further options of Spark's connector, such as ``{"maxOffsetsPerTrigger": 100_000}``, and Kafka's own with
        the prefix ``kafka.``.

    Returns
    -------
    DataFrame
        The columns of the key: its fields, or ``key``. The columns of the value: its fields, or ``value``; if both
        have a name, the key's wins. And ``_kafka``: ``topic``, ``partition``, ``offset``, ``timestamp``,
        ``headers``, ``tombstone`` (whether the value is null) and ``undecodable`` (what is wrong with the record).

    Raises
    ------
    ArgumentError
        A format, an option or another argument is invalid.
    ReservedNameError
        A field is called ``_kafka``.
    SessionSettingError
        The session has no Kafka connector, or would show a password in its plans.
    RegistryError
        The schema registry has no schema, or does not answer.

    Notes
    -----
    `table` and `stream` recognise such a frame by ``_kafka``, as long as you keep the column: records are ordered
    by their topic partition and offset, their time is Kafka's, a record without a value is a tombstone, and
    ``_kafka`` is not part of the value.

    A record that `to_kafka` wrote has the time of its change. Kafka's own timestamp is the time of writing.

    JSON is decoded as in `from_files`, and the whole text must be one object in UTF-8. A missing field is null, an
    unknown one is ignored. The text ``null`` is not a tombstone, and cannot be decoded.

    A missing topic is detected when the query runs, and ends it: ``UnknownTopicOrPartitionException``.

    References
    ----------
    Kafka Streams ``StreamsBuilder.table``, ``Consumed``; Spark's "Structured Streaming + Kafka Integration Guide".

    Examples
    --------
    >>> import tablestream as ts
    >>> quotes = ts.from_kafka(  # doctest: +SKIP
    ...     spark, "quotes", key="ticker string", value="price double", bootstrap_servers="localhost:9092"
    ... )
    >>> ts.table(quotes, key="ticker", name="quotes")  # doctest: +SKIP
    Table 'quotes' [key ticker: string] [price: double]
    """
    check_session(spark)
    topics = _checked_topics(topic)
    check_known("on_error", on_error, get_args(OnError))
    writers = _checked_writers(deduplicate)
    check_known("tombstones", tombstones, get_args(OfTombstones))
    raw = raw_records(spark, topics, bootstrap_servers, starting_offsets, options, "from_kafka")
    raw = raw.where("value IS NOT NULL") if tombstones == "drop" else raw
    formats: dict[Part, Format] = {} if key is None else {"key": as_format(key, "key", reads=True)}
    formats["value"] = as_format(value, "value", reads=True)
    parts, costly = list[_Part](), dict[str, Column]()
    for part, format_ in with_units(formats, times).items():
        decoder = format_.decoder(part, topics)
        parsed = {f"__{part}{at}": column for at, column in enumerate(decoder.parse(F.col(part)))}
        costly |= parsed
        parts.append(_Part(part, decoder, [F.col(name) for name in parsed]))
    frame = raw.select("*", *(column.alias(name) for name, column in costly.items())).select(
        *_columns(spark, parts, drops=tombstones == "drop"),
        _of_kafka(parts, writers).alias(KAFKA),
    )
    return with_origin(frame, KAFKA, kafka_origin(on_error, deduplicate=writers is not None))


def kafka_origin(on_error: OnError, *, deduplicate: bool = False) -> Origin:
    """How `table` and `stream` are to read ``_kafka``."""
    return Origin(
        partition=("{}.`topic`", "CAST({}.`partition` AS bigint)"),
        position="{}.`offset`",
        time="{}.`timestamp`",
        written_at="unix_micros({}.`timestamp`)",
        tombstone="{}.tombstone",
        malformed="{}.undecodable",
        explained=True,
        on_malformed="fail" if on_error == "fail" else "keep",
        remedy=_REMEDY,
        continues=True,
        written="{}.written" if deduplicate else None,
    )


def raw_records(
    spark: SparkSession,
    topics: Sequence[str],
    bootstrap_servers: str,
    starting_offsets: Offsets,
    options: Mapping[str, Option] | None,
    caller: str,
    *,
    made_later: bool = False,
) -> DataFrame:
    """Read topics as Spark's Kafka source does, with headers; `caller` is the function that the user called.

    A topic that does not exist ends the query; with `made_later` it has no records until it is made.
    """
    use_driver_python(spark)  # decoders may be Python functions
    # Spark looks for the topics of a pattern in every micro-batch.
    subscribed = (
        {"subscribePattern": "|".join(map(re.escape, topics))}
        if made_later
        else {"subscribe": ",".join(topics)}
    )
    settings = checked_settings(spark, bootstrap_servers, options, caller) | {
        **subscribed,
        "startingOffsets": _offsets(starting_offsets),
        "includeHeaders": "true",
    }
    check_connector(spark)
    ship(spark)
    return spark.readStream.format("kafka").options(**settings).load()


def first_records(
    spark: SparkSession,
    topic: str,
    bootstrap_servers: str,
    options: Mapping[str, Option] | None,
    caller: str,
    count: int = 100,
) -> list[tuple[bytes | None, bytes | None]]:
    """Read keys and values of the first records of a topic that have both, now and in the driver."""
    checked = checked_settings(spark, bootstrap_servers, options, caller)
    settings = {name: value for name, value in checked.items() if name.startswith("kafka.")}
    settings |= {"subscribe": topic, "startingOffsets": "earliest"}
    check_connector(spark)
    frame = spark.read.format("kafka").options(**settings).load()
    rows = frame.where("key IS NOT NULL AND value IS NOT NULL").select("key", "value").limit(count).collect()
    return [(bytes(key), bytes(value)) for key, value in rows]


def checked_settings(
    spark: SparkSession, servers: str, options: Mapping[str, Option] | None, caller: str
) -> dict[str, str]:
    """The servers and the user's options, of which Spark shows no secret."""
    settings = checked_options(options, _DECIDED, caller)
    check_hidden(spark, settings)
    return settings | {SERVERS: checked_servers(servers)}


def _checked_topics(topic: Any) -> list[str]:
    topics = listed(topic)
    if not topics or any(not isinstance(one, str) or not one or "," in one for one in topics):
        raise ArgumentError(
            f"{topic!r} does not name a topic.", hint='Give a name, or several as in ["trades", "quotes"].'
        )
    for one in topics:
        check_text(one, "The topic")
    return topics


def _checked_writers(given: Any) -> Sequence[str] | None:
    """The writers whose repeats are dropped: none of them means all; None if repeats stay."""
    if is_flag(given):
        return () if given else None
    writers = listed(given)
    if not writers or any(not isinstance(one, str) or not re.fullmatch(_WRITER, one) for one in writers):
        raise ArgumentError(
            f"deduplicate={given!r} is neither True, False nor a writer.",
            hint="A writer is 16 hexadecimal digits: what to_kafka(...).writer(query.id) returns where it is written.",
        )
    return writers


def checked_offsets(given: Any) -> Offsets:
    """Offsets as Spark takes them, with Python's own numbers; raise if they are none.

    Spark also takes its JSON as a text, with the numbers of partitions as texts.
    """
    if isinstance(given, str) and (given.strip().lower() in _ENDS or given.lstrip().startswith("{")):
        return given
    found = {one: _parts(parts) for one, parts in given.items()} if isinstance(given, Mapping) else None
    known = {one: parts for one, parts in (found or {}).items() if isinstance(one, str) and parts is not None}
    if found is None or len(known) < len(found):
        raise ArgumentError(
            f"starting_offsets={given!r} are no offsets.",
            hint='Give "earliest", "latest", or offsets by topic and partition, as in {"trades": {0: 23, 1: -2}}.',
        )
    return known


def _parts(given: Any) -> dict[int, int] | None:
    """The offsets of a topic by partition, which may be a text; None if something else is among them."""
    if not isinstance(given, Mapping):
        return None
    pairs = [
        (int(part) if isinstance(part, str) and part.isdecimal() else whole(part), whole(at))
        for part, at in given.items()
    ]
    found = {part: at for part, at in pairs if part is not None and at is not None}
    return found if len(found) == len(given) else None


def _offsets(given: Offsets) -> str:
    """Offsets in Spark's form."""
    offsets = checked_offsets(given)
    return offsets if isinstance(offsets, str) else json.dumps(offsets)


@dataclass(frozen=True)
class _Part:
    """A record's key or value: its decoder, and the columns with its intermediate results."""

    name: Part
    decoder: Decoder
    parsed: Sequence[Column]

    @property
    def row(self) -> list[Column]:
        """The columns."""
        return self.decoder.row(F.col(self.name), self.parsed)

    @property
    def error(self) -> Column:
        """Why the columns cannot be decoded."""
        return F.concat(F.lit(f"{self.name}: "), self.decoder.error(F.col(self.name), self.parsed))


def _columns(spark: SparkSession, parts: Sequence[_Part], *, drops: bool) -> list[Column]:
    """The columns of key and value, each name once. Those of the value have a note, unless tombstones are dropped."""
    fold = str if spark.conf.get("spark.sql.caseSensitive", "false") == "true" else str.lower
    columns: dict[str, Column] = {}
    for part in parts:
        for name, column in zip(part.decoder.columns.names, part.row, strict=True):
            note = {} if part.name == "key" or drops else {"metadata": note_of(OF_VALUE, True)}
            columns.setdefault(fold(name), column.alias(name, **note))
    if KAFKA in columns:
        raise ReservedNameError(
            f"A field is called {KAFKA}, like the column with a record's Kafka metadata.",
            hint="Remove it from the schema, or read the records as 'binary' and decode them yourself.",
        )
    return list(columns.values())


def written_words() -> Column:
    """The words of the header of `to_kafka`; null if a record has none, or another one."""
    text = F.get(F.filter("headers", lambda header: header["key"] == HEADER), 0)["value"].cast("string")
    return F.split(F.when(text.rlike(_HEADER_PATTERN), text), " ")


def _of_kafka(parts: Sequence[_Part], writers: Sequence[str] | None) -> Column:
    """Kafka's metadata of a record, and what is wrong with it; with `writers`, who wrote it as what."""
    words = written_words()
    changed = F.timestamp_micros(F.get(words, 0).cast("bigint"))
    error = F.concat_ws("; ", *(part.error for part in parts))  # which leaves out those that are null
    is_known = F.get(words, 1).isin(*writers) if writers else F.get(words, 1).isNotNull()
    written = F.when(
        is_known & F.col("key").isNotNull(),
        F.struct(
            F.get(words, 1).alias("writer"),
            F.get(words, 2).cast("bigint").alias("micro_batch"),
            F.get(words, 3).cast("bigint").alias("number"),
            F.col("key").alias("key"),
        ),
    )
    return F.struct(
        "topic",
        "partition",
        "offset",
        F.coalesce(changed, "timestamp").alias("timestamp"),
        "headers",
        F.col("value").isNull().alias("tombstone"),
        F.when(error != "", undecodable(error)).alias("undecodable"),
        *([] if writers is None else [written.alias("written")]),
    )


def undecodable(error: Column) -> Column:
    """What is wrong with a record, and its key and value, as JSON."""
    return F.to_json(F.struct(error.alias("error"), *_readable("key"), *_readable("value")))


def _readable(part: Part) -> list[Column]:
    """Return bytes for people: as text if possible, else in base64; nulls are left out of the JSON."""
    is_text = F.is_valid_utf8(F.col(part).cast("string"))
    return [
        F.when(is_text, F.col(part).cast("string")).alias(part),
        F.when(~is_text, F.base64(part)).alias(f"{part}_base64"),
    ]
