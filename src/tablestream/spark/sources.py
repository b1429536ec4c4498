"""Sources: what of a user's streaming data frame becomes the records of a table, as Columns.

The frame made here has:

===============  ====================  ==================================================================
column           type                  meaning
===============  ====================  ==================================================================
``__key_0`` ...  any                   the key
``__value_0``..  any                   the value; null in a tombstone
``__live``       boolean               false: a tombstone, or a record without a value
``__ts``         bigint                microseconds since 1970
``__time``       bigint, or any        the same, or ``order_by``: what the order begins with
``__timeless``   boolean               of a database's table, whether its time does not count for the order
``__own``        bigint                of a tombstone, the time of the record itself, if `timestamp` or `order_by` is
                                       given and may have none; null in other records
``__null_key``   boolean               whether a part of the key is null; of a stream false, it may be
``__malformed``  string or null        the text of a row that could not be read
``__sequence``   any                   ``sequence_by``, if it is given
``__writer``     string or null        with ``deduplicate``, who wrote it to which topic partition; beside it
                                       ``__record_key`` (binary), ``__micro_batch`` and ``__number`` (bigint)
``__capture``    struct                of a database's table, what its connector says of the record
``__mark0`` ..   bigint or string      what tells the source partition
``__position``   bigint                the place in it; without the column, rows are counted
``__key_json``   string                the key, for those who ask what was rejected
``__record``     string                the record as JSON, or the text of a row that could not be read
===============  ====================  ==================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.arguments.place import Place
from tablestream.base.calling import warn
from tablestream.connectors import sink
from tablestream.connectors.json_text import json_options
from tablestream.connectors.source import (
    OF_PARQUET,
    OF_VALUE,
    Origin,
    all_noted,
    carrying,
    marks_of,
    own_columns,
)
from tablestream.connectors.spark_types import arrow_type, check_key_type
from tablestream.errors import ArgumentError, ColumnCollisionError, PlanError, ReservedNameError
from tablestream.operators.calendar import FIRST_US, LAST_US
from tablestream.operators.captured.capture import OF_ROWS, PREIMAGE, READ, UPSERT
from tablestream.runtime.rounds import BY_PARTITION, BY_SOURCE
from tablestream.spark import blobs
from tablestream.spark.analysis import Analysed, analysed, check_condition, columns_hint, folding, is_found
from tablestream.spark.bootstrap_frame import Bootstrap, Reading, laid_out
from tablestream.spark.columns import guarded, quoted, truth
from tablestream.spark.failing import Risk
from tablestream.spark.given_columns import as_columns
from tablestream.spark.lineage import JOIN, SUBQUERY, mixed_by
from tablestream.spark.origins import origin_of
from tablestream.spark.row import Plain
from tablestream.spark.source_risks import risks_of
from tablestream.spark.volatile import RECORDED
from tablestream.topology.nodes import Field, Fields, Source

_MIXED_REMEDY = (
    "Create the table from the frame as it was read, and transform it afterwards; or give order_by= a column that"
    " orders the records."
)
_MIXED_REMEDIES = {
    JOIN: "Broadcast the static side with F.broadcast(...), or join tables instead; or give order_by= a"
    " column that orders the records.",
    SUBQUERY: "Spark makes a join of it: write the join, with F.broadcast(...) around the static side; or give"
    " order_by= a column that orders the records.",
}
#: The columns that say how a record was written to its log.
_OF_RECORDS = ("__time", "__own", "__writer", "__record_key", "__micro_batch", "__number")
RESERVED = ("_change_type", "_timestamp", "_order", "_is_latest", *blobs.COLUMNS)


@dataclass(frozen=True)
class SourceFrame:
    """A source's frame, and what its node and its packer have to know."""

    frame: DataFrame
    """See above."""
    origin: Origin
    """What the source says of its rows."""
    arrival: bool
    """Whether its records only have the time of their arrival."""
    given: DataFrame
    """The user's frame."""
    columns: Mapping[str, Column]
    """What `frame` selects from it, by name."""
    bootstrap: Bootstrap | None = None
    """The rows that the table starts with."""
    own: Callable[[Column, Column], Column] | None = None
    """Makes ``__own`` of the time of the micro-batch, and whether a record has a value; None: there is no such
    column."""
    value_key: tuple[str, ...] = ()
    """The parts of the key that come from the value of a record, which a tombstone does not have."""
    deciding: Callable[[Column | None], dict[str, Column]] = lambda _: {}
    """Makes the columns that depend on whether a record has a value."""
    risks: Mapping[str, Risk] = field(default_factory=dict)
    """Those of the columns that may fail on a record."""
    kept: Column | None = None
    """Whether a record has a value if the user's condition for deletes fails; None: each has."""
    directory: str | None = None
    """Where its Parquet files are; None for other rows."""
    time_columns: frozenset[str] = frozenset()
    """The columns of the key and the value that are the record's time."""

    @property
    def lacks_times(self) -> str | None:
        """If a tombstone may come without a time, the lanes in which it is behind other records."""
        lanes = BY_PARTITION if self.origin.continues else BY_SOURCE
        return None if self.own is None else lanes

    @property
    def is_captured(self) -> bool:
        """Whether a database's connector wrote the records."""
        return "__capture" in self.columns

    @property
    def deduplicates(self) -> bool:
        """Whether records may be there twice, and say so."""
        return "__writer" in self.columns

    def described(self, records: DataFrame, now: Column) -> DataFrame:
        """The columns above for rows of the user's frame, or of one like it, which arrive at a time.

        It needs no analysis: the columns were checked when the source was made.
        """
        return named(records, {**self.columns, **self.of_time(now, self.columns["__live"])})

    def of_time(self, now: Column, live: Column) -> dict[str, Column]:
        """The columns that depend on the time of the micro-batch."""
        arrival = {"__ts": F.unix_micros(now)} if self.arrival else {}
        return arrival if self.own is None else {**arrival, "__own": self.own(now, live)}


def frame_of_source(source: Source) -> SourceFrame:
    """Return the frame of a source, which the logical plan only carries."""
    assert isinstance(source.frame, SourceFrame)  # noqa: S101 - the handles make it
    return source.frame


@dataclass(frozen=True)
class SourceSpec:
    """A source in the user's words, see `tablestream.table` and `tablestream.stream`."""

    name: str
    where: str
    key: tuple[Column | Plain, ...]
    timestamp: Column | Plain | None
    deletes: Column | Plain | None
    deletes_sql: str | None
    """The SQL of `deletes`, if the user gave SQL."""
    columns: tuple[Column | Plain, ...] | None
    except_columns: tuple[str, ...]
    order_by: Column | Plain | None
    records: bool = False
    """Whether it is a stream."""
    sequence_by: Column | Plain | None = None
    bootstrap: DataFrame | None = None
    """The rows that the table starts with."""

    @property
    def at(self) -> Place:
        """Where an error of the source belongs."""
        return Place(self.name, self.where)

    @property
    def kind(self) -> str:
        """``table`` or ``stream``."""
        return "stream" if self.records else "table"


def source_of_frame(df: DataFrame, said: SourceSpec) -> tuple[Source, Analysed | None]:
    """Check a user's words against the data frame, and compute the columns: the source, and what sequences its rows.

    Its errors are those of `tablestream.table`.
    """
    if not df.isStreaming:
        raise said.at.error(
            ArgumentError,
            f"A {said.kind} needs a streaming DataFrame, and this one is not streaming.",
            "Read it with spark.readStream, or with tablestream.from_files.",
        )
    _check_distinct(df, df.columns, said, "Drop one from the frame, or rename it.")
    key = _analysed(df, said.key, said, "key")
    for one in key:
        if not one.named:
            raise said.at.error(
                ArgumentError,
                f"The key {one.name} is an expression without a name.",
                "Name it with alias.",
            )
        check_key_type(one.type, one.name, at=said.at)
    _check_names(df, said, key)
    origin = origin_of(df)
    value = _value(df, said, [*(one.name for one in key), *_hidden(df, origin)])
    for one in value:
        arrow_type(one.type, one.name, at=said.at)
    origin = _ordered(origin, df, said)
    timestamp, deletes, order_by, sequence = (
        None if given is None else _analysed(df, [given], said, argument)[0]
        for argument, given in (
            ("timestamp", said.timestamp),
            ("apply_as_deletes", said.deletes),
            ("order_by", said.order_by),
            ("sequence_by", said.sequence_by),
        )
    )
    for role, order in (("order_by=", order_by), ("sequence_by=", sequence)):
        if order is not None:
            check_key_type(order.type, order.name, at=said.at, role=role)
    if deletes is not None:
        check_condition(deletes, said.at)
    live = _live(origin, deletes)
    parts = [_readable(df, origin, one) for one in key]
    null_key = _null_key(origin, [] if said.records else parts)
    own = None if timestamp is None and order_by is None else _own(origin, live)

    deciding = _deciding(df, origin, value, {"__time": order_by, "__sequence": sequence})
    has_value = F.lit(True) if live is None else live
    columns = {
        **{f"__key_{number}": part for number, part in enumerate(parts)},
        **deciding(live),
        "__live": has_value,
        "__ts": _microseconds(df, origin, timestamp, said),
        **({} if own is None else {"__own": own(F.current_timestamp(), has_value)}),
        "__null_key": null_key,
        **_said(origin),
        "__key_json": as_json([part.alias(one.name) for part, one in zip(parts, key, strict=True)]),
        "__record": _record(df, origin),
    }
    frame = named(df, columns)
    expressions = {"timestamp": timestamp, "deletes": deletes, "order_by": order_by}
    text = [f"key {', '.join(one.text for one in key)}"]
    if deletes is not None and said.deletes_sql is not None:
        expressions["deletes"] = replace(deletes, text=said.deletes_sql)
    text += [f"{name} {one.text}" for name, one in expressions.items() if one is not None]
    if said.columns is not None:
        text.append(f"columns {', '.join(one.text for one in value)}")
    time = origin.time if timestamp is None else timestamp.text
    log = Reading(said.at, key, value, timestamp, deletes, sequence)
    given = SourceFrame(
        frame,
        origin,
        arrival=timestamp is None and origin.time is None,
        given=df,
        columns=columns,
        risks=risks_of(
            columns, key, value, {"__ts": timestamp, "__time": order_by, "__sequence": sequence}, deletes
        ),
        kept=_live(origin, None),
        deciding=deciding,
        bootstrap=_bootstrap(said, frame, log),
        own=own,
        time_columns=frozenset(one.name for one in (*key, *value) if one.text == time),
        directory=next(iter(all_noted(df.schema, OF_PARQUET).values()), None),
        value_key=tuple(one.name for one in key if _is_of_value(df, one)),
    )
    source = Source(
        name=said.name,
        where=said.where,
        key=_fields(key),
        value=_fields(value),
        frame=given,
        text=", ".join(text),
        ordered_by=None if order_by is None else order_by.type.json(),
        records=said.records,
        bootstrapped=said.bootstrap is not None,
        deletes=said.deletes is not None,
        lacks_times=given.lacks_times,
    )
    return source, sequence


def _said(origin: Origin) -> dict[str, Column]:
    """The columns with what the source says of its rows."""
    texts = dict(zip(marks_of(origin), origin.partition or (), strict=True))
    if origin.written is not None:
        place = f"concat_ws(char(9), {', '.join((*texts.values(), f'{origin.written}.writer'))})"
        texts["__writer"] = guarded(f"{origin.written} IS NOT NULL", place)
        texts["__record_key"] = f"{origin.written}.key"
        texts |= {f"__{name}": f"{origin.written}.{name}" for name in ("micro_batch", "number")}
    texts |= {} if origin.timeless is None else {"__timeless": origin.timeless}
    texts |= {} if origin.captured is None else {"__capture": origin.captured}
    texts |= {} if origin.malformed is None else {"__malformed": f"CAST({origin.malformed} AS string)"}
    texts |= {} if origin.position is None else {"__position": f"CAST({origin.position} AS bigint)"}
    return {name: F.expr(text) for name, text in texts.items()}


def key_fields(source: Source) -> dict[str, Field]:
    """The columns of the key in a source's frame."""
    return {f"__key_{number}": one for number, one in enumerate(source.key)}


def value_fields(source: Source) -> dict[str, Field]:
    """Those of the value."""
    return {f"__value_{number}": one for number, one in enumerate(source.value)}


def named(rows: DataFrame, columns: Mapping[str, Column]) -> DataFrame:
    """Select columns, and name them all at once: an alias takes ten calls of the JVM."""
    return rows.select(*columns.values()).toDF(*columns)


def _bootstrap(said: SourceSpec, frame: DataFrame, log: Reading) -> Bootstrap | None:
    """The rows that the table starts with, read as its log."""
    if said.bootstrap is None:
        return None
    return Bootstrap(laid_out(said.bootstrap, log), columns_of_records(frame))


def columns_of_records(frame: DataFrame) -> dict[str, T.DataType]:
    """The columns of a source that only its records have, and no rows that it starts with."""
    return {one.name: one.dataType for one in frame.schema if one.name in _OF_RECORDS}


def _deciding(
    df: DataFrame, origin: Origin, value: Sequence[Analysed], ordering: Mapping[str, Analysed | None]
) -> Callable[[Column | None], dict[str, Column]]:
    """What makes the columns that depend on whether a record has a value; None: each has."""

    def columns(live: Column | None) -> dict[str, Column]:
        whole = {
            name: _whole(_readable(df, origin, one), one, live)
            for name, one in ordering.items()
            if one is not None
        }
        return {f"__value_{number}": _where(live, one) for number, one in enumerate(value)} | whole

    return columns


def _is_of_value(df: DataFrame, one: Analysed) -> bool:
    """Whether an expression reads columns of a record's value, and no others."""
    names = list(all_noted(df.schema, OF_VALUE))
    if not names:
        return False
    if isinstance(one.given, Plain):
        return one.given.name in names
    of_value = df.select(*map(quoted, names))
    return is_found(one.column, of_value) and not is_found(one.column, df.select(F.lit(1).alias("__one")))


def _readable(df: DataFrame, origin: Origin, one: Analysed) -> Column:
    """An expression over a record, evaluated only if the record could be read: otherwise its columns may be null.

    A plain column cannot fail, and shows what is known of a rejected record.
    """
    if origin.malformed is None or one.text in df.columns:
        return one.column
    return F.when(F.expr(origin.malformed).isNull(), one.column)


def _null_key(origin: Origin, parts: Sequence[Column]) -> Column:
    """Whether a part of a key is null that may not be."""
    null_key = reduce(or_, [part.isNull() for part in parts], F.lit(False))
    if origin.captured is None:
        return null_key
    return null_key & F.expr(origin.captured)["op"].isin(*OF_ROWS)  # others concern all rows


def _live(origin: Origin, deletes: Analysed | None) -> Column | None:
    """Whether a record has a value; None if each has one.

    The user's condition for deletes is evaluated only on records that have one.
    """
    empty = [] if origin.malformed is None else [F.expr(origin.malformed).isNotNull()]
    empty += [] if origin.tombstone is None else [truth(F.expr(origin.tombstone))]
    if origin.captured is not None:
        empty.append(truth(~F.expr(origin.captured)["op"].isin(UPSERT, READ, PREIMAGE)))
    live = ~reduce(or_, empty) if empty else None
    if deletes is None:
        return live
    kept = ~truth(deletes.column)
    return kept if live is None else F.when(live, kept).otherwise(F.lit(False))


def _where(live: Column | None, one: Analysed) -> Column:
    """A column of the value; null in a record without a value."""
    column = F.expr(sink.quoted(one.given.name)) if isinstance(one.given, Plain) else one.column
    return column if live is None else F.when(live, column)


def _fields(columns: Sequence[Analysed]) -> Fields:
    return tuple(one.field for one in columns)


def _analysed(
    df: DataFrame,
    columns: Sequence[Column | Plain],
    said: SourceSpec,
    argument: str,
    *,
    deterministic: bool = True,
) -> list[Analysed]:
    """Let Spark analyse columns of the source. They are computed once, in the micro-batch that reads the record.

    What Spark refuses is said with the argument.
    """
    try:
        return analysed(df, columns, at=said.at, deterministic=deterministic, allowed=RECORDED)
    except PlanError as error:
        if type(error) is not PlanError:
            raise
        message = f"{argument}=: {error.reason}"
        raise said.at.error(PlanError, message, error.hint) from error.__cause__


def _value(df: DataFrame, said: SourceSpec, others: Sequence[str]) -> list[Analysed]:
    """The value's columns: the chosen ones, or all except the key, internal and excluded ones."""
    fold = folding(df.sparkSession)
    there = {fold(name) for name in df.columns}
    unknown = [name for name in said.except_columns if fold(name) not in there]
    if unknown:
        raise said.at.error(
            ArgumentError,
            f"except_columns names unknown columns: {', '.join(unknown)}.",
            columns_hint(own_columns(df)),
        )
    chosen = as_columns(df.columns, df.columns) if said.columns is None else said.columns
    left_out = {fold(name) for name in (*others, *said.except_columns)}
    columns = _analysed(df, chosen, said, "columns", deterministic=False)
    kept = [one for one in columns if fold(one.name) not in left_out]
    _check_names(df, said, kept)
    return kept


def _check_names(df: DataFrame, said: SourceSpec, columns: Sequence[Analysed]) -> None:
    """Refuse duplicate and reserved names in the key or the value."""
    names = [one.name for one in columns]
    _check_distinct(df, names, said, "Exclude one, or rename it.")
    # A record that is dropped is shown with all columns of the frame.
    replaced = [one.name for one in df.schema if SUBSTITUTED in one.name + one.dataType.json()]
    if replaced:
        raise said.at.error(
            ReservedNameError,
            f"The columns {', '.join(replaced)} have {SUBSTITUTED} in a name, which Spark replaces in SQL.",
            "Rename them in the DataFrame, or leave them out there.",
        )
    reserved = [name for name in names if is_reserved(name)]
    if reserved:
        raise said.at.error(
            ReservedNameError,
            f"The library reserves the names {', '.join(reserved)}.",
            "Exclude the columns with except_columns=, or rename them.",
        )


def _check_distinct(df: DataFrame, names: Sequence[str], said: SourceSpec, hint: str) -> None:
    """Refuse names that the session considers equal."""
    twice = [name for name, times in Counter(map(folding(df.sparkSession), names)).items() if times > 1]
    if twice:
        raise said.at.error(ColumnCollisionError, f"Two columns are called '{twice[0]}'.", hint)


#: Where a name has this, Spark may put a setting or an environment variable in its place.
SUBSTITUTED = "${"


def is_reserved(name: str) -> bool:
    """Whether a name is reserved: for a column of changes, or for an internal one."""
    return name.lower() in RESERVED or name.startswith("__")


def _microseconds(df: DataFrame, origin: Origin, timestamp: Analysed | None, said: SourceSpec) -> Column:
    """The record's time in microseconds: the user's, its origin's, or the micro-batch's."""
    what, remedy = "timestamp=", "Convert it, for instance with F.timestamp_millis or F.to_timestamp."
    if timestamp is None:
        if origin.time is None:
            return F.unix_micros(F.current_timestamp())
        (timestamp,) = _analysed(df, [F.expr(origin.time)], said, "timestamp")
        what = f"The column {timestamp.name}, which is a Kafka record's time unless timestamp= is given,"
        remedy = "Give timestamp= the time, for instance with F.timestamp_millis, or rename the column."
    if not isinstance(timestamp.type, T.TimestampType | T.TimestampNTZType):
        raise said.at.error(
            ArgumentError,
            f"{what} has the type {timestamp.type.simpleString()}; it must be a timestamp.",
            remedy,
        )
    # By its class: what the word "timestamp" stands for is a setting of the session.
    return F.unix_micros(_readable(df, origin, timestamp).cast(T.TimestampType()))


def _whole(column: Column, one: Analysed, live: Column | None) -> Column:
    """What orders a record; null for a tombstone that has only a part of it, as a struct of the value's columns."""
    parts = _parts(column, one.type)
    if live is None or not parts:
        return column
    return F.when(reduce(and_, [part.isNotNull() for part in parts], F.lit(True)) | live, column)


def _parts(column: Column, kind: T.DataType) -> list[Column]:
    """The fields of a struct, and of the structs in it."""
    if not isinstance(kind, T.StructType):
        return []
    fields = [(column.getField(one.name), one.dataType) for one in kind]
    return [part for field, its in fields for part in (field, *_parts(field, its))]


def _own(origin: Origin, live: Column | None) -> Callable[[Column, Column], Column] | None:
    """The time of a tombstone's record: Kafka's, or when its file was written; else that of the micro-batch.

    It is made of the time of the micro-batch, and of whether a record has a value. None if no record is a tombstone,
    or each has its place from its connector.
    """
    if live is None or origin.captured is not None:
        return None
    at = None if origin.written_at is None else F.expr(origin.written_at)
    known = [] if at is None else [F.when(at.between(FIRST_US, LAST_US), at)]
    read = F.lit(True) if origin.malformed is None else F.expr(origin.malformed).isNull()
    return lambda now, live: F.when(~live & read, F.coalesce(*known, F.unix_micros(now)))


def _ordered(origin: Origin, df: DataFrame, said: SourceSpec) -> Origin:
    """The origin, if the rows still have its order. Warns if the order of records is not known.

    Mixed rows have the user's order, and then the positions that they carry. Positions counted in a task do not
    apply to them.
    """
    if not origin.partition:
        if said.order_by is None:
            warn(
                f"{said.kind.capitalize()} '{said.name}' ({said.where}) comes from a source without positions: its"
                " records are ordered by time, then as Spark's tasks read them, which can differ in a replay."
                " Give order_by= a column that orders them."
            )
        return origin
    mixed = mixed_by(df)
    if mixed is None:
        return origin
    if said.order_by is None:
        raise said.at.error(
            ArgumentError,
            f"The rows of the {said.kind} are no longer in the order of their source: {mixed} came before.",
            _MIXED_REMEDIES.get(mixed, _MIXED_REMEDY),
        )
    return origin if origin.position is not None else replace(origin, partition=())


def _hidden(df: DataFrame, origin: Origin) -> set[str]:
    """The columns in which sources say what they know."""
    return {*carrying(df.schema)} | ({origin.column} if origin.column is not None else set())


def _record(df: DataFrame, origin: Origin) -> Column:
    """A record as text."""
    hidden = _hidden(df, origin)
    names = [sink.quoted(name) for name in df.columns if name not in hidden]
    record = F.to_json(F.expr(f"struct({', '.join(names)})"), json_options()) if names else F.lit("{}")
    return record if origin.malformed is None else F.coalesce(F.expr(origin.malformed), record)


def as_json(columns: Sequence[Column]) -> Column:
    """Return columns as one JSON object."""
    return F.to_json(F.struct(*columns), json_options()) if columns else F.lit("{}")
