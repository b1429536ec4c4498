"""The contract of all sources: what a streaming frame says of its rows, beside their columns.

A source is a streaming DataFrame, which users transform before they make a table of it. So what it says is in one
column of the frame, and a note in the schema says how to read it: both stay with the rows, whatever the column is
called then. Spark's own sources have no such column; `tablestream.spark.origins` knows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from tablestream.arguments.words import check_known
from tablestream.connectors.sink import quoted
from tablestream.errors import ArgumentError

OnMalformed = Literal["fail", "drop", "keep"]
Option = str | int | float | bool
"""A value among Spark's options of a source or a sink."""

CORRUPT_RECORD = "_corrupt_record"
"""Spark's name for the column with the texts of rows that could not be read."""
OF_VALUE = "_of_value"
"""The note of a column that was decoded from a record's value: a tombstone has none."""
OF_PARQUET = "parquet"
"""The note of the columns of Parquet files: the directory."""
UNREADABLE = "Fix the file, or read it with tablestream.from_files and mode='drop' or mode='keep'."

_METADATA, _ORIGIN = "tablestream", "origin"
_HERE = "{}"
_OF_MALFORMED = ("malformed", "on_malformed", "remedy", "explained")
_EXPRESSIONS = ("position", "time", "written_at", "tombstone", "malformed", "captured", "timeless", "written")


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What a source says of its rows: expressions in SQL, in which ``{}`` is the column that carries them.

    Parameters
    ----------
    partition
        What tells a source partition: a part of the rows that the source orders, and that one task reads in order.
        Numbers and texts. Default: Spark's own source is asked, which knows files and Kafka. ``()``: it is not known.
    position
        The place of a row in its source partition, a bigint that grows. Default: rows are counted.
    time
        When it happened, a timestamp, unless the user gives `timestamp`. Default: when it arrives.
    written_at
        When it was written, in microseconds since 1970: the time of a tombstone that has no other.
    tombstone
        Whether the row only deletes that of its key. Default: none does.
    malformed
        The text of a row that could not be read, else null. Default: each could be.
    on_malformed
        What to do with such rows: ``"fail"`` ends the query, ``"drop"`` drops and counts them, ``"keep"`` also makes
        them available in ``Table.rejected()``.
    remedy
        What the user can do about them.
    explained
        Whether the text is JSON whose field ``error`` says what is wrong.
    continues
        Whether each source partition goes on in later micro-batches, like those of a topic. Default: only the source as
        a whole does, like a directory of files.
    captured
        What a database's connector says of the row, as `tablestream.operators.captured.capture` has it.
    timeless
        Whether the time of the row is of another clock than those beside it, and so does not count for the order.
    written
        Of rows that may be there twice: a struct of ``writer``, ``key``, ``micro_batch`` and ``number``.
    column
        The column that carries them; it is no part of the value. `with_origin` knows it.

    Raises
    ------
    ArgumentError
        There is a position without a partition, the partition is no tuple of texts, or `on_malformed` is unknown.
    """

    partition: tuple[str, ...] | None = None
    position: str | None = None
    time: str | None = None
    written_at: str | None = None
    tombstone: str | None = None
    malformed: str | None = None
    on_malformed: OnMalformed = "fail"
    remedy: str = "Correct the row where it comes from, or leave it out of the frame."
    explained: bool = False
    continues: bool = False
    captured: str | None = None
    timeless: str | None = None
    written: str | None = None
    column: str | None = None

    def __post_init__(self) -> None:
        given: Any = self.partition
        if given is not None and not (
            isinstance(given, tuple) and all(isinstance(one, str) for one in given)
        ):
            raise ArgumentError(
                f"partition={given!r} is no tuple of expressions.", hint='Write it as partition=("{}.log",).'
            )
        if self.position is not None and not self.partition:
            raise ArgumentError(
                "The origin has a position, and no partition in which it counts.",
                hint="Give partition=, such as partition=(\"'all'\",) if the rows have one order.",
            )
        check_known("on_malformed", self.on_malformed, get_args(OnMalformed))


def with_origin(frame: DataFrame, column: str, origin: Origin) -> DataFrame:
    """Return a frame that says where its rows come from, for `table` and `stream`.

    Parameters
    ----------
    frame
        A streaming DataFrame.
    column
        A column of it: what the source knows of each row, usually a struct. As long as users keep the column, under any
        name, the origin holds; the column is no part of the value.
    origin
        How to read the column.

    Returns
    -------
    DataFrame
        The same rows.

    Raises
    ------
    ArgumentError
        The frame has no such column.

    Examples
    --------
    Rows whose source has one order, and a condition for deletes:

    >>> import tablestream as ts
    >>> from pyspark.sql import functions as F
    >>> rows = spark.readStream.format("rate").load().withColumnRenamed("value", "id")
    >>> known = F.struct(F.lit("rate").alias("log"), F.col("id").alias("number"), "timestamp")
    >>> origin = ts.Origin(
    ...     partition=("{}.log",), position="{}.number", time="{}.timestamp", tombstone="{}.number % 3 = 0"
    ... )
    >>> frame = ts.with_origin(rows.withColumn("_rate", known).drop("timestamp"), "_rate", origin)
    >>> ts.table(frame, "id", name="numbers")
    Table 'numbers' [key id: bigint] []
    """
    if column not in frame.columns:
        raise ArgumentError(
            f"The frame has no column {column!r} that could carry an origin.",
            hint=f"Give one of {', '.join(map(repr, frame.columns))}.",
        )
    usual = asdict(Origin())
    note = {name: one for name, one in asdict(origin).items() if one != usual[name]}
    # withMetadata and not alias(metadata=...): Spark Connect's withColumn drops that of an alias.
    return frame.withMetadata(column, note_of(_ORIGIN, note))


def noted_origin(schema: StructType) -> Origin | None:
    """Find the origin that `with_origin` gave a frame, for the column's present name.

    If a source is made of the frame of another one, it is the origin that knows the places; what the other one says of
    rows that could not be read holds, too. It is an error if two know places.
    """
    found = list[Origin]()
    for column, note in all_noted(schema, _ORIGIN).items():
        parts = {"partition": tuple(note["partition"])} if "partition" in note else {}
        found.append(located(Origin(**{**note, **parts}), column))
    placing = [one.column for one in found if one.partition]
    if len(placing) > 1:
        raise ArgumentError(
            f"The columns {placing[0]!r} and {placing[1]!r} both say where the rows come from.",
            hint="Drop the column whose places do not count.",
        )
    said = next((one for one in found if one.partition is not None), found[0] if found else None)
    judging = next((one for one in found if one.malformed is not None), None)
    if said is None or judging is None or said.malformed is not None:
        return said
    return replace(said, **{name: getattr(judging, name) for name in _OF_MALFORMED})


def located(origin: Origin, column: str) -> Origin:
    """Return the same origin for a column of this name."""
    here = quoted(column)
    texts = {
        name: text.replace(_HERE, here)
        for name in _EXPRESSIONS
        if (text := getattr(origin, name)) is not None
    }
    parts = None if origin.partition is None else tuple(one.replace(_HERE, here) for one in origin.partition)
    return replace(origin, column=column, partition=parts, **texts)


def marks_of(origin: Origin) -> tuple[str, ...]:
    """The names of the columns that tell a source partition; none: the order is that of Spark's tasks."""
    return tuple(f"__mark{number}" for number in range(len(origin.partition or ())))


def carrying(schema: StructType) -> list[str]:
    """The columns that carry origins: they are no part of a value."""
    return list(all_noted(schema, _ORIGIN))


def own_columns(frame: DataFrame) -> list[str]:
    """The columns of a frame, without those in which a source says what it knows."""
    added = {CORRUPT_RECORD, *carrying(frame.schema)}
    return [name for name in frame.columns if name not in added]


def note_of(what: str, note: Any) -> dict[str, Any]:
    """Return a note as the metadata of a column."""
    return {_METADATA: {what: note}}


def all_noted(schema: StructType, what: str) -> dict[str, Any]:
    """Find the columns that carry a note, and their notes."""
    notes = {one.name: (one.metadata or {}).get(_METADATA, {}).get(what) for one in schema.fields}
    return {name: note for name, note in notes.items() if note is not None}


def lost_deletes(names: Sequence[str], operator: str, where: str) -> ArgumentError:
    """Return the error for a table whose key is in the values of its records, which tombstones do not have."""
    shown = ", ".join(names)
    return ArgumentError(
        f"The key ({shown}) comes from the records' value. A tombstone has no value, so it would delete nothing.",
        hint='Decode the key of the records: from_kafka(key="...") with a schema that has the same columns. If the'
        ' topic has no tombstones, or they mean nothing, say so: from_kafka(tombstones="drop").',
        operator=operator,
        where=where,
    )
