"""Infers ordering, event time, tombstones and malformed rows from a DataFrame.

==============================  ===========================================  ========================  ==============
frame                           source partition, position                   time                      tombstones
==============================  ===========================================  ========================  ==============
of ``tablestream.from_kafka``   topic and partition, offset                  Kafka's, or the change's  null values
of Spark's Kafka source         topic and partition, offset                  Kafka's
files                           modification time, path and block, row       that of the micro-batch
of ``from_change_feed``         none; by version                             that of the commit        deletes
any other                       the Spark task, counted                      that of the micro-batch
==============================  ===========================================  ========================  ==============
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.connectors.change_feed_frame import CHANGE_FEED
from tablestream.connectors.debezium_frame import DEBEZIUM
from tablestream.connectors.file_rows import CORRUPT_RECORD
from tablestream.connectors.files import HEADLESS, UNITLESS, noted, on_malformed
from tablestream.connectors.kafka import KAFKA
from tablestream.operators.captured.capture import PREIMAGE, READ, UPSERT
from tablestream.spark.analysis import unlogged
from tablestream.spark.columns import quoted
from tablestream.spark.packing import Malformed

_FILE_REMEDY = "Fix the file, or read it with tablestream.from_files and mode='drop' or mode='keep'."
#: What else to do, by the notes of a reader.
_REMEDIES = {
    HEADLESS: ' If the row is the header of a CSV file, give options={"header": True}.',
    UNITLESS: ' If it has a number for a time, give its unit, as in times="milliseconds".',
}
_DEBEZIUM_REMEDY = (
    "Give the columns that the records have, or read them with from_debezium(..., on_error='drop')."
)
_FEED_REMEDY = "Give from_change_feed a change feed as Delta Lake or Spark writes it."
_KAFKA_REMEDY = (
    "Fix the program that wrote it, or read the topic with on_error='drop'. If a time is a number in JSON, give its"
    " unit with times=."
)


@dataclass(frozen=True)
class Origin:
    """The source of a frame's rows.

    Attributes
    ----------
    marks, position
        The columns that identify a source partition, and the position in it. Without a position, rows are counted.
    time
        The default time of a record; None: the time of its arrival.
    written_at
        When the record was written, in microseconds since 1970: by Kafka's time, or its file's. None: it is not known.
    timeless
        Whether a record's time is of another clock than the times beside it: a tombstone has Kafka's, among changes
        with their database's. Its place in the order is behind the record before it. None: no record's time is.
    tombstone
        Whether a record has no value.
    hidden
        The columns that are not part of a value.
    written
        What the header of a record's writer says, as the columns of `spark.sources`; null for records without one.
        Without it, duplicates are not recognised.
    lanes
        Whether each source partition continues, like those of a topic; otherwise only the source as a whole does.
    capture
        What a database's connector says of a record, as `operators.captured.capture` has it. Null: of no record.
    malformed, mode, remedy
        The text of a row that could not be read, else null; how to handle it, and the hint for the user.
    explained
        Whether this text is JSON that also says what is wrong.
    """

    marks: tuple[Column, ...] = ()
    position: Column | None = None
    time: Column | None = None
    written_at: Column | None = None
    timeless: Column | None = None
    tombstone: Column | None = None
    hidden: tuple[str, ...] = ()
    written: Mapping[str, Column] = field(default_factory=dict)
    malformed: Column | None = None
    mode: Malformed = "fail"
    remedy: str = _FILE_REMEDY
    lanes: bool = False
    capture: Column | None = None
    explained: bool = False


def origin_of(df: DataFrame) -> Origin:
    """Find the source of a frame's rows."""
    for what, origin in _NOTED.items():
        found = noted(df.schema, what)
        if found is not None:
            return origin(*found)
    hidden, malformed, mode = _malformed(df)
    remedy = _FILE_REMEDY + "".join(more for note, more in _REMEDIES.items() if noted(df.schema, note))
    if _is_kafka(df):
        topic = F.col("topic"), F.col("partition").cast("bigint")
        time = F.col("timestamp") if "timestamp" in df.columns else None
        is_time = time is not None and isinstance(df.schema["timestamp"].dataType, T.TimestampType)
        at = F.unix_micros("timestamp") if is_time else None
        return Origin(
            topic, F.col("offset"), time, at, hidden=hidden, malformed=malformed, mode=mode, lanes=True
        )
    marks, position = _in_file(df)
    at = marks[0] if marks else None
    return Origin(
        marks, position, written_at=at, hidden=hidden, malformed=malformed, mode=mode, remedy=remedy
    )


def _of_from_kafka(column: str, note: Mapping[str, Any]) -> Origin:
    def known(*names: str) -> Column:
        return quoted(column, *names)

    return Origin(
        marks=(known("topic"), known("partition").cast("bigint")),
        position=known("offset"),
        time=known("timestamp"),
        written_at=F.unix_micros(known("timestamp")),
        tombstone=known("tombstone"),
        hidden=(column,),
        written=_written(known) if note["deduplicate"] else {},
        malformed=known("undecodable"),
        explained=True,
        mode="fail" if note["on_error"] == "fail" else "keep",
        remedy=_KAFKA_REMEDY,
        lanes=True,
    )


def _of_debezium(column: str, note: Mapping[str, Any]) -> Origin:
    def known(*names: str) -> Column:
        return quoted(column, *names)

    return Origin(
        marks=(known("topic"), known("partition").cast("bigint")),
        position=known("offset"),
        time=known("timestamp"),
        timeless=known("timeless"),
        tombstone=~known("capture", "op").isin(UPSERT, READ),
        hidden=(column,),
        malformed=known("undecodable"),
        explained=True,
        mode="fail" if note["on_error"] == "fail" else "keep",
        remedy=_DEBEZIUM_REMEDY,
        lanes=True,
        capture=known("capture"),
    )


def _of_change_feed(column: str, _: Any) -> Origin:
    return Origin(
        time=quoted(column, "timestamp"),
        tombstone=~quoted(column, "capture", "op").isin(UPSERT, PREIMAGE),
        hidden=(column,),
        malformed=quoted(column, "unknown"),
        remedy=_FEED_REMEDY,
        capture=quoted(column, "capture"),
    )


#: By what a frame's schema notes: where its rows come from, given the column and the note.
_NOTED: dict[str, Callable[[str, Any], Origin]] = {
    KAFKA: _of_from_kafka,
    DEBEZIUM: _of_debezium,
    CHANGE_FEED: _of_change_feed,
}


def _written(known: Callable[..., Column]) -> dict[str, Column]:
    """Writer and topic partition, key, micro-batch and number of a record."""
    place = F.concat_ws("\t", known("topic"), known("partition"), known("written", "writer"))
    return {
        "__writer": F.when(known("written").isNotNull(), place),
        "__record_key": known("written", "key"),
        "__micro_batch": known("written", "micro_batch"),
        "__number": known("written", "number"),
    }


def _is_kafka(df: DataFrame) -> bool:
    kinds = {one.name: one.dataType.simpleString() for one in df.schema}
    return [kinds.get(name) for name in ("topic", "partition", "offset")] == ["string", "int", "bigint"]


def _in_file(df: DataFrame) -> tuple[tuple[Column, ...], Column | None]:
    metadata = _metadata(df)
    if "file_path" not in metadata:
        return (), None
    modified_us = F.unix_micros("_metadata.file_modification_time")
    marks = (modified_us, _path(F.col("_metadata.file_path")), F.col("_metadata.file_block_start"))
    return marks, F.col("_metadata.row_index") if "row_index" in metadata else None


def _path(uri: Column) -> Column:
    """The path of a file without the escapes of URIs, by which it sorts as its name does."""
    decoded = F.try_url_decode(F.replace(uri, F.lit("+"), F.lit("%2B")))
    return F.when(uri.contains("%"), F.coalesce(decoded, uri)).otherwise(uri)


def _metadata(df: DataFrame) -> list[str]:
    """Spark's metadata of the file that a row comes from; empty for other sources."""
    try:
        with unlogged():
            kind = df.select("_metadata").schema[0].dataType
    except AnalysisException:
        return []
    return kind.names if isinstance(kind, T.StructType) else []


def _malformed(df: DataFrame) -> tuple[tuple[str, ...], Column | None, Malformed]:
    """The column with the texts of unreadable rows, if there is one, and how to handle such rows.

    In a frame of another reader, Spark's column for them marks such rows. Without a mode they end the query,
    because they would otherwise be rows of nulls.
    """
    usual: tuple[str, Malformed] | None = (CORRUPT_RECORD, "fail") if CORRUPT_RECORD in df.columns else None
    found = on_malformed(df.schema) or usual
    if found is None:
        return (), None, "fail"
    name, mode = found
    return (name,), quoted(name), mode
