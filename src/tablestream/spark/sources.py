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

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NoReturn

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.calling import warn
from tablestream.connectors.files import CORRUPT_RECORD, on_malformed
from tablestream.errors import ArgumentError, ColumnCollisionError, PlanError, ReservedNameError
from tablestream.spark.analysis import analysed, folding, unlogged
from tablestream.spark.columns import quoted
from tablestream.spark.packing import Malformed
from tablestream.spark.types import arrow_type, check_key_type
from tablestream.topology.nodes import Field, Fields

RESERVED = ("_change_type", "_timestamp", "_order", "_is_latest")


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
    key = _analysed(df, said.key, said)
    for one in key:
        check_key_type(one.dataType, one.name, operator=said.name, where=said.where)
    value, columns = _value(df, said, key.names)
    for one in value:
        arrow_type(one.dataType, one.name, operator=said.name, where=said.where)
    corrupt, mode = _malformed(df)
    marks, position = _position(df, said)
    time = _timestamp(df, said)
    live = F.lit(True) if said.deletes is None else ~_condition(df, said.deletes, said)
    ordered_by = None if said.order_by is None else _analysed(df, [said.order_by], said)[0].dataType.json()
    null_key = reduce(lambda one, other: one | other, [part.isNull() for part in said.key])
    frame = df.select(
        *(part.alias(f"__key.{number}") for number, part in enumerate(said.key)),
        *(
            (c if said.deletes is None else F.when(live, c)).alias(f"__value.{n}")
            for n, c in enumerate(columns)
        ),
        live.alias("__live"),
        time.alias("__ts"),
        (time if said.order_by is None else said.order_by).alias("__time"),
        null_key.alias("__null_key"),
        (F.lit(None) if corrupt is None else quoted(corrupt)).cast("string").alias("__malformed"),
        *(mark.alias(f"__mark{number}") for number, mark in enumerate(marks)),
        position.cast("bigint").alias("__position"),
        F.to_json(F.struct(*(part.alias(one.name) for part, one in zip(said.key, key, strict=True)))).alias(
            "__key_json"
        ),
        _record(df, corrupt).alias("__record"),
    )
    return Described(
        SourceFrame(frame, len(marks), mode), _fields(key), _fields(value), _text(said), ordered_by
    )


def _fields(schema: T.StructType) -> Fields:
    return tuple(Field(one.name, one.dataType.json()) for one in schema)


def _analysed(
    df: DataFrame, columns: Sequence[Column], said: Description, *, deterministic: bool = True
) -> T.StructType:
    return analysed(df, columns, operator=said.name, where=said.where, deterministic=deterministic)


def _condition(df: DataFrame, given: Column, said: Description) -> Column:
    """A condition that is false where it was null."""
    _analysed(df, [given.cast("boolean").alias("apply_as_deletes")], said)
    return F.coalesce(given.cast("boolean"), F.lit(False))


def _value(df: DataFrame, said: Description, keys: Sequence[str]) -> tuple[T.StructType, list[Column]]:
    """The value's columns: those asked for, or all but the key's and the excepted ones."""

    def refuse(kind: type[ArgumentError | PlanError], message: str, hint: str) -> NoReturn:
        raise kind(message, hint=hint, operator=said.name, where=said.where)

    fold, corrupt = folding(df.sparkSession), _malformed(df)[0]
    there = {fold(name) for name in df.columns}
    unknown = [name for name in said.except_columns if fold(name) not in there]
    if unknown:
        refuse(
            ArgumentError,
            f"except_columns names columns that are not there: {', '.join(unknown)}.",
            f"Columns are: {', '.join(df.columns)}.",
        )
    chosen = [quoted(name) for name in df.columns] if said.columns is None else said.columns
    schema = _analysed(df, chosen, said, deterministic=False)
    left_out = {fold(name) for name in (*keys, *said.except_columns, *filter(None, [corrupt]))}
    kept = [pair for pair in zip(schema, chosen, strict=True) if fold(pair[0].name) not in left_out]
    names = [one.name for one, _ in kept]
    twice = [name for name, times in Counter(map(fold, names)).items() if times > 1]
    if twice:
        refuse(ColumnCollisionError, f"Two columns are called '{twice[0]}'.", "Rename one.")
    reserved = [name for name in names if is_reserved(name)]
    if reserved:
        refuse(
            ReservedNameError,
            f"The library uses the names {', '.join(reserved)} itself.",
            "Leave the columns out with except_columns=, or rename them.",
        )
    return T.StructType([one for one, _ in kept]), [column for _, column in kept]


def is_reserved(name: str) -> bool:
    """Whether a name is the library's: of a column of changes, or of one on the way to them."""
    return name.lower() in RESERVED or name.startswith("__")


def _timestamp(df: DataFrame, said: Description) -> Column:
    """The record's time in microseconds: as said, Kafka's, or the micro-batch's."""
    if said.timestamp is None:
        given = F.col("timestamp") if _is_kafka(df) and "timestamp" in df.columns else F.current_timestamp()
        return F.unix_micros(given)
    kind = _analysed(df, [said.timestamp], said)[0].dataType
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
        warn(
            f"Table '{said.name}' ({said.where}) comes from a source without positions: its records are ordered by"
            " time, then as Spark's tasks read them, which a replay may do differently. Give order_by= a column"
            " that orders them."
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


def _record(df: DataFrame, corrupt: str | None) -> Column:
    """A record as text."""
    record = F.to_json(F.struct(*(quoted(name) for name in df.columns if name != corrupt)))
    return record if corrupt is None else F.coalesce(quoted(corrupt), record)


def _malformed(df: DataFrame) -> tuple[str | None, Malformed]:
    """The column of unreadable rows' texts, if there is one, and what becomes of such rows."""
    told = on_malformed(df.schema)
    if told is not None:
        return told
    return (CORRUPT_RECORD if CORRUPT_RECORD in df.columns else None), "fail"


def _text(said: Description) -> str:
    """The expressions of a source, as part of the plan's fingerprint."""
    parts = {
        "key": ", ".join(str(part) for part in said.key),
        "timestamp": said.timestamp,
        "deletes": said.deletes,
        "order_by": said.order_by,
    }
    return ", ".join(f"{name} {part}" for name, part in parts.items() if part is not None)
