"""A streaming frame of Debezium's records, decoded: the columns of the table, and what the connector says of each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.connectors.capture_column import capture_column
from tablestream.connectors.kafka.source import KAFKA, OnError, kafka_origin, undecodable
from tablestream.connectors.source import with_origin
from tablestream.operators.captured.capture import DELETE, READ, UPSERT

if TYPE_CHECKING:
    from tablestream.connectors.debezium.decoder import DebeziumDecoder
    from tablestream.connectors.debezium.ends import EndDecoder

DEBEZIUM = "_debezium"
_REMEDY = "Give the columns that the records have, or read them with from_debezium(..., on_error='drop')."
_DECODED = "__decoded"
_END = "transaction string, tables array<string>, events array<bigint>, error string"


def decoded(records: DataFrame, decoder: DebeziumDecoder, on_error: OnError, table: str) -> DataFrame:
    """Decode the records of a topic: the columns of the key and of the value, and ``_debezium``.

    The records have the columns of Spark's Kafka source; `table` is the table's name, for the log.
    """
    read = _on_workers(decoder, table)
    frame = records.select("*", read(F.col("key"), F.col("value"), F.col("headers")).alias(_DECODED))
    parts = {"key": decoder.columns.key, "value": decoder.value_columns}
    columns = [F.col(_DECODED)[part][name].alias(name) for part in parts for name in parts[part].names]
    frame = frame.select(*columns, _said().alias(DEBEZIUM))
    return with_origin(
        frame,
        DEBEZIUM,
        replace(
            kafka_origin(on_error),
            written_at=None,
            timeless="{}.timeless",
            tombstone=None,
            captured="{}.capture",
            remedy=_REMEDY,
        ),
    )


def transaction_ends(records: DataFrame, decoder: EndDecoder, on_error: OnError) -> DataFrame:
    """Decode the records of a transaction topic: ``transaction``, ``tables`` and ``events`` of ends, and ``_kafka``."""

    def ends(value: pa.Array) -> pa.Array:
        return decoder.decode(value)

    read = F.arrow_udf(ends, _END)  # type: ignore[attr-defined]  # PySpark's stubs lack it
    end = F.col(_DECODED)
    frame = records.withColumn(_DECODED, read(F.col("value")))
    frame = frame.where(end["transaction"].isNotNull() | end["error"].isNotNull())
    kafka = F.struct(
        *("topic", "partition", "offset", "timestamp"),
        F.lit(False).alias("tombstone"),
        F.when(end["error"].isNotNull(), undecodable(end["error"])).alias("undecodable"),
    )
    columns = [end[name].alias(name) for name in ("transaction", "tables", "events")]
    return with_origin(frame.select(*columns, kafka.alias(KAFKA)), KAFKA, kafka_origin(on_error))


def _on_workers(decoder: DebeziumDecoder, table: str) -> Any:
    """The decoder as a function of Columns."""
    from tablestream.connectors.debezium.added import announce

    def debezium(key: pa.Array, value: pa.Array, headers: pa.Array) -> pa.Array:
        rows = decoder.decode(key, value, headers)
        announce(rows.field("added"), table)
        decoder.left_out.announce(table)
        return rows

    return F.arrow_udf(debezium, _all_nullable(decoder.result))  # type: ignore[attr-defined]  # PySpark's stubs lack it


def _all_nullable(kind: Any) -> Any:
    """The same type without the promise that something is never null: a row may lack its value."""
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(one.name, _all_nullable(one.dataType)) for one in kind])
    return kind


def _said() -> Column:
    """What the connector says of a record."""
    said = F.col(_DECODED)
    moved = said["moved_from"].isNotNull() | said["moved_to"].isNotNull()
    is_row = said["op"].isin(UPSERT, READ, DELETE)
    # Without a database's time a change has Kafka's, as all others of its topic; a tombstone has no time of its own.
    is_change = F.coalesce(is_row & F.col("value").isNotNull(), F.lit(False))
    same = ("op", "position", "snapshot", "unchanged", "transaction")
    capture = capture_column(
        **{name: said[name] for name in same},
        partition=F.col("partition"),
        key=F.when(moved, F.to_json(said["key"])),
        moved_from=F.to_json(said["moved_from"]),
        moved_to=F.to_json(said["moved_to"]),
        number=said["total_order"],
        added=is_row & F.coalesce(F.size(said["added"]) > 0, F.lit(False)),
    )
    changed = F.timestamp_micros(said["ts_us"])
    return F.struct(
        F.col("topic"),
        F.col("partition"),
        F.col("offset"),
        F.coalesce(changed, F.col("timestamp")).alias("timestamp"),
        (said["ts_us"].isNull() & ~is_change).alias("timeless"),
        F.when(said["error"].isNotNull(), undecodable(said["error"])).alias("undecodable"),
        capture.alias("capture"),
    )
