"""Sources: what of a user's streaming data frame becomes the records of a table, as Columns.

The frame made here has:

===============  ====================  ==================================================================
column           type                  meaning
===============  ====================  ==================================================================
``__key.0`` ...  any                   the key
``__value.0``..  any                   the value; null in a tombstone
``__live``       boolean               false: a tombstone
``__ts``         bigint                microseconds since 1970
``__time``       bigint, or any        the same, or ``order_by``: what the order begins with
``__null_key``   boolean               whether a part of the key is null
``__malformed``  string or null        the text of a row that could not be read
``__mark0`` ..   bigint or string      what tells the source partition
``__position``   bigint or null        the place in it; null: rows are counted
``__key_json``   string                the key, for those who ask what was rejected
``__record``     string                the record as JSON, or the text of a row that could not be read
===============  ====================  ==================================================================
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.errors import ArgumentError, ReservedNameError
from tablestream.spark.packing import Malformed
from tablestream.spark.types import arrow_type, check_key_type
from tablestream.topology.nodes import Field, Fields

RESERVED = ("_change_type", "_timestamp", "_order", "_is_latest")
CORRUPT = "_corrupt_record"
MODE = "tablestream"


@dataclass(frozen=True)
class SourceFrame:
    """A source's frame, and what its packer has to know.

    Attributes
    ----------
    frame
        See above.
    marks
        How many parts the mark has; 0: the order is that of Spark's tasks.
    malformed
        What happens to a row that could not be read.
    """

    frame: DataFrame
    marks: int
    malformed: Malformed

    @property
    def mark_columns(self) -> list[str]:
        """The names of the parts of the mark."""
        return [f"__mark{number}" for number in range(self.marks)]


@dataclass(frozen=True)
class Description:
    """What a user says of a source, see `tablestream.table`."""

    name: str
    where: str
    key: tuple[Column, ...]
    timestamp: Column | None
    deletes: Column | None
    columns: tuple[Column, ...] | None
    except_columns: tuple[str, ...]
    order_by: Column | None


@dataclass(frozen=True)
class Described:
    """A source with its columns."""

    frame: SourceFrame
    key: Fields
    value: Fields
    text: str
    ordered_by: str | None


def describe(df: DataFrame, said: Description) -> Described:
    """Check what was said of a source against its data frame, and compute the columns.

    Raises
    ------
    ArgumentError
        If the frame does not stream, or a timestamp is none.
    UnsupportedTypeError
        If a column cannot be carried, or cannot be a key.
    """
    if not df.isStreaming:
        raise ArgumentError(
            "A table is made from a streaming DataFrame, and this one is not.",
            hint="Read it with spark.readStream, or with tablestream.read_files.",
            operator=said.name,
            where=said.where,
        )
    key = df.select(*said.key).schema
    value = _value_schema(df, said, [one.name for one in key])
    for one in key:
        check_key_type(one.dataType, one.name, operator=said.name, where=said.where)
    for one in value:
        arrow_type(one.dataType, one.name, operator=said.name, where=said.where)
    marks, position = _position(df, said)
    time = _timestamp(df, said)
    columns = said.columns if said.columns is not None else [F.col(f"`{one.name}`") for one in value]
    kept = [column for column in columns if df.select(column).schema[0].name in value.names]
    live = F.lit(True) if said.deletes is None else ~F.coalesce(said.deletes, F.lit(False))
    null_key = reduce(lambda one, other: one | other, [part.isNull() for part in said.key])
    frame = df.select(
        *(part.alias(f"__key.{number}") for number, part in enumerate(said.key)),
        *((c if said.deletes is None else F.when(live, c)).alias(f"__value.{n}") for n, c in enumerate(kept)),
        live.alias("__live"),
        time.alias("__ts"),
        (time if said.order_by is None else said.order_by).alias("__time"),
        null_key.alias("__null_key"),
        (F.col(CORRUPT) if CORRUPT in df.columns else F.lit(None)).cast("string").alias("__malformed"),
        *(mark.alias(f"__mark{number}") for number, mark in enumerate(marks)),
        position.cast("bigint").alias("__position"),
        F.to_json(F.struct(*(part.alias(one.name) for part, one in zip(said.key, key, strict=True)))).alias(
            "__key_json"
        ),
        _record(df).alias("__record"),
    )
    ordered_by = None if said.order_by is None else df.select(said.order_by).schema[0].dataType.json()
    return Described(
        SourceFrame(frame, len(marks), _mode(df)), _fields(key), _fields(value), _text(said), ordered_by
    )


def _fields(schema: T.StructType) -> Fields:
    return tuple(Field(one.name, one.dataType.json()) for one in schema)


def _value_schema(df: DataFrame, said: Description, keys: Sequence[str]) -> T.StructType:
    """The value's columns: those asked for, or all but the key's and the excepted ones."""
    unknown = [name for name in said.except_columns if name not in df.columns]
    if unknown:
        raise ArgumentError(
            f"except_columns names columns that are not there: {', '.join(unknown)}.",
            hint=f"Columns are: {', '.join(df.columns)}.",
            operator=said.name,
            where=said.where,
        )
    if said.columns is not None:
        chosen = df.select(*said.columns).schema.fields
    else:
        chosen = [one for one in df.schema.fields if one.name not in said.except_columns]
    left = [one for one in chosen if one.name not in keys and one.name != CORRUPT]
    reserved = [one.name for one in left if one.name in RESERVED]
    if reserved:
        raise ReservedNameError(
            f"The columns {', '.join(reserved)} have names that changes() adds itself.",
            hint="Leave them out with except_columns=, or rename them.",
            operator=said.name,
            where=said.where,
        )
    return T.StructType(left)


def _timestamp(df: DataFrame, said: Description) -> Column:
    """The record's time in microseconds: as said, Kafka's, or the micro-batch's."""
    if said.timestamp is None:
        given = F.col("timestamp") if _is_kafka(df) and "timestamp" in df.columns else F.current_timestamp()
        return F.unix_micros(given)
    kind = df.select(said.timestamp).schema[0].dataType
    if not isinstance(kind, T.TimestampType | T.TimestampNTZType):
        raise ArgumentError(
            f"timestamp= has the type {kind.simpleString()}, and has to be a timestamp.",
            hint="Convert it, for instance with F.timestamp_millis or F.to_timestamp.",
            operator=said.name,
            where=said.where,
        )
    return F.unix_micros(said.timestamp.cast("timestamp"))


def _is_kafka(df: DataFrame) -> bool:
    kinds = {one.name: one.dataType.simpleString() for one in df.schema}
    return [kinds.get(name) for name in ("topic", "partition", "offset")] == ["string", "int", "bigint"]


def _position(df: DataFrame, said: Description) -> tuple[list[Column], Column]:
    """What tells a source partition, and the place in it; a place that is null is counted."""
    count = F.lit(None).cast("bigint")
    if _is_kafka(df):
        return [F.col("topic"), F.col("partition").cast("bigint")], F.col("offset")
    metadata = _metadata(df)
    if "file_path" in metadata:
        modified_us = F.unix_micros("_metadata.file_modification_time")
        mark = [modified_us, F.col("_metadata.file_path"), F.col("_metadata.file_block_start")]
        return mark, F.col("_metadata.row_index") if "row_index" in metadata else count
    if said.order_by is None:
        warnings.warn(
            f"Table '{said.name}' ({said.where}) comes from a source without positions: its records are ordered by"
            " time, then as Spark's tasks read them, which a replay may do differently. Give order_by= a column"
            " that orders them.",
            stacklevel=5,
        )
    return [], count


def _metadata(df: DataFrame) -> list[str]:
    """What Spark knows of the file a row comes from; nothing for other sources."""
    try:
        with unlogged():
            kind = df.select("_metadata").schema[0].dataType
    except AnalysisException:
        return []
    return kind.names if isinstance(kind, T.StructType) else []


@contextmanager
def unlogged() -> Iterator[None]:
    """Keep PySpark from logging an analysis error that is caught, or raised again in our words."""
    logger = logging.getLogger("DataFrameQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _record(df: DataFrame) -> Column:
    """A record as text."""
    names = [name for name in df.columns if name != CORRUPT]
    record = F.to_json(F.struct(*(F.col(f"`{name}`") for name in names)))
    return F.coalesce(F.col(CORRUPT), record) if CORRUPT in df.columns else record


def _mode(df: DataFrame) -> Malformed:
    """The mode that `read_files` wrote into the metadata of the column for unreadable rows."""
    if CORRUPT not in df.columns:
        return "fail"
    mode: Malformed = df.schema[CORRUPT].metadata.get(MODE, {}).get("on_malformed", "fail")
    return mode


def _text(said: Description) -> str:
    """The expressions of a source, as part of the plan's fingerprint."""
    parts = {
        "key": ", ".join(str(part) for part in said.key),
        "timestamp": said.timestamp,
        "deletes": said.deletes,
        "order_by": said.order_by,
    }
    return ", ".join(f"{name} {part}" for name, part in parts.items() if part is not None)
