"""From the line of rounds to one streaming data frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce

import polars as pl
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.plan.lower import NOTHING, Between, Ending, Line, Reader, Role
from tablestream.plan.rounds import METRICS, Round
from tablestream.row import LEFT, RIGHT
from tablestream.spark import blobs
from tablestream.spark.columns import Scope, column_of, normalised, quoted, spark_type
from tablestream.spark.packing import NULL_KEY, NULL_TIME, ChangePacker, Consumer, SourcePacker
from tablestream.spark.processor import RoundProcessor
from tablestream.spark.sources import SourceFrame
from tablestream.spark.types import arrow_type
from tablestream.spark.unpacking import ChangeUnpacker, Opened, OutputUnpacker
from tablestream.state.changes import (
    FOREIGN_HASH,
    KEY_HASH,
    LIVE,
    PARTITION,
    POSITION,
    ROW_TS,
    TIME,
    TS,
    foreign_columns,
    hop_columns,
    key_columns,
)
from tablestream.topology.graph import base_of, leaves_of
from tablestream.topology.nodes import Fields, ForeignKeyJoin, KeyJoin, Node, OneToMany, Source


def struct_type(fields: Fields) -> T.StructType:
    """The Spark type of a value."""
    parts = [T.StructField(one.name, spark_type(one)) for one in fields]
    return T.StructType(parts or [T.StructField(NOTHING, T.BooleanType())])


def polars_types(fields: Fields) -> pl.Schema:
    """The Polars dtypes of columns."""
    schema = pa.schema([(one.name, arrow_type(spark_type(one), one.name)) for one in fields])
    empty = pl.from_arrow(schema.empty_table())
    assert isinstance(empty, pl.DataFrame)  # noqa: S101
    return empty.schema


@dataclass(frozen=True)
class Settings:
    """What the workers are told: where runs are cached, and how much of them."""

    cache_directory: str
    cache_bytes: int


class Builder:
    """Builds the data frame of one plan.

    Parameters
    ----------
    line
        The lowered plan.
    settings
        For the workers.
    """

    def __init__(self, line: Line, settings: Settings) -> None:
        self._line, self._settings = line, settings
        self._shards = line.mode.shards
        self._last = len(line.rounds)
        # The order of sources is the order in which they were declared.
        self._number = {
            source: n for n, source in enumerate(sorted(line.sources, key=lambda one: one.serial))
        }

    def build(self) -> DataFrame:
        """Return a frame with ``__port``, ``__micro_batch`` and a struct column ``__p<port>`` per output."""
        stream: DataFrame | None = None
        entering = dict(self._line.sources)
        for work in self._line.rounds:
            joining = [source for source, readers in entering.items() if _first_round(readers) == work.number]
            stream = _union([stream, *(self._source(source, entering.pop(source)) for source in joining)])
            stream = self._round(stream, work)
            behind = tuple(between for between in self._line.between if between.after == work.number)
            if behind:
                stream = self._between(stream, behind, work.number)
        stream = _union([stream, *(self._source(source, readers) for source, readers in entering.items())])
        return self._outputs(stream)

    # Stations

    def _source(self, source: Source, readers: tuple[Reader, ...]) -> DataFrame:
        given = source.frame
        assert isinstance(given, SourceFrame)  # noqa: S101
        scope = Scope(given.frame)
        scope.tables[source] = "__value"
        scope.keys[source] = [quoted("__key", one.name) for one in source.key]
        consumers = self._consumers(scope, readers, lambda reader: [])
        order = ["__time", "__ts", "__null_key", "__malformed", "__mark", "__position"]
        packer = SourcePacker(
            name=source.name,
            number=self._number[source],
            marks=given.marks,
            ordered=source.ordered_by is not None,
            consumers=tuple(consumers),
            shards=self._shards,
            malformed=given.malformed,
            refuse_negative_time=self._line.mode.compat,
        )
        frame = scope.frame.select(*order, *(consumer.column for consumer in consumers))
        return frame.mapInArrow(packer.__call__, blobs.SCHEMA)

    def _round(self, stream: DataFrame, work: Round) -> DataFrame:
        processor = RoundProcessor(
            work, self._shards, self._settings.cache_directory, self._settings.cache_bytes
        )
        return stream.groupBy("shard").transformWithStateInPandas(
            processor, T.StructType.fromDDL(blobs.SCHEMA), "append", "none"
        )

    def _between(self, stream: DataFrame, behind: tuple[Between, ...], number: int) -> DataFrame:
        """Evaluate what later rounds read of the changes made in a round."""
        opened = {between: self._layout(between.base, number) for between in behind}
        unpacker = ChangeUnpacker(
            tuple(_opened(between.port.number, schema) for between, schema in opened.items())
        )
        frame = stream.mapInArrow(
            unpacker.__call__, _wide_schema({b.port.number: s for b, s in opened.items()})
        )
        consumers: list[Consumer] = []
        for between in behind:
            scope = Scope(frame)
            struct = f"__p{between.port.number}"
            self._lay_out(scope, between.base, struct)
            place = [
                quoted(struct, name).alias(name)
                for name in [TIME, PARTITION, POSITION, *hop_columns(number + 1)]
            ]
            here = F.col(struct).isNotNull()
            carried = [*place, quoted(struct, TS).alias(TS)]
            consumers += self._consumers(
                scope,
                between.readers,
                lambda _, carried=carried: carried,
                here=here,
                row_ts=quoted(struct, ROW_TS),
            )
            frame = scope.frame
        kept = ["shard", "port", "blob", *(consumer.column for consumer in consumers)]
        packer = ChangePacker(tuple(consumers), self._shards, number)
        return frame.select(*kept).mapInArrow(packer.__call__, blobs.SCHEMA)

    def _outputs(self, stream: DataFrame) -> DataFrame:
        layouts = {ending: self._ending_layout(ending) for ending in self._line.endings}
        unpacker = OutputUnpacker(
            tuple(_opened(ending.port.number, schema) for ending, schema in layouts.items()), self._last + 1
        )
        structs = {ending.port.number: schema for ending, schema in layouts.items()}
        schema = T.StructType(
            [
                T.StructField("__port", T.IntegerType()),
                T.StructField("__micro_batch", T.LongType()),
                *(T.StructField(f"__p{port}", struct) for port, struct in structs.items()),
                T.StructField("__operator", T.StringType()),
                T.StructField("__reason", T.StringType()),
                T.StructField("__count", T.LongType()),
            ]
        )
        frame = stream.groupBy("shard").applyInArrow(_unpacking(unpacker), schema)
        frame = frame.observe(OBSERVED, *self._observed()).where(F.col("__port") != METRICS)
        for ending in self._line.endings:
            frame = self._evaluated(frame, ending)
        return frame

    # Expressions

    def _consumers(
        self,
        scope: Scope,
        readers: tuple[Reader, ...],
        carried,
        here: Column | None = None,
        row_ts: Column | None = None,
    ) -> list[Consumer]:
        """Compute the message columns of every reader of a table."""
        consumers = []
        for reader in readers:
            columns = [*carried(reader), *self._message(scope, reader, row_ts)]
            message = F.struct(*columns)
            name = scope.add(f"__to{reader.port.number}", message if here is None else F.when(here, message))
            consumers.append(Consumer(reader.port, name))
        return consumers

    def _message(self, scope: Scope, reader: Reader, row_ts: Column | None) -> list[Column]:
        table = scope.value(reader.node)
        names = key_columns(len(reader.key))
        hashed = KEY_HASH
        if reader.role is Role.POINTED_AT:
            names, hashed = foreign_columns(len(reader.key)), FOREIGN_HASH
        message = _key(scope.key(reader.node), reader.key, names, hashed)
        if reader.role is Role.SUBSCRIBING:
            message += self._foreign_key(scope, reader, table)
        elif row_ts is not None:
            message.append(row_ts.alias(ROW_TS))
        message += [F.col(table).isNotNull().alias(LIVE), F.col(table).alias("v")]
        if reader.role is Role.SUBSCRIBING and self._line.mode.compat:
            message.append(F.xxhash64(F.to_json(F.struct(table))).alias("_vh"))
        return message

    def _foreign_key(self, scope: Scope, reader: Reader, table: str) -> list[Column]:
        """The foreign key's columns; all null where a part is null or there is no row."""
        assert reader.join is not None  # noqa: S101
        name = scope.with_columns_of(
            reader.node,
            f"__on{reader.port.number}",
            lambda: F.struct(*(column_of(part).alias(f"f{i}") for i, part in enumerate(reader.join.on))),
        )
        parts = [quoted(name, f"f{i}") for i in range(len(reader.foreign))]
        there = reduce(
            lambda one, other: one & other, [part.isNotNull() for part in parts], F.col(table).isNotNull()
        )
        columns = _key(parts, reader.foreign, foreign_columns(len(parts)), FOREIGN_HASH)
        shown = [FOREIGN_HASH, *foreign_columns(len(parts))]
        return [F.when(there, column).alias(label) for column, label in zip(columns, shown, strict=True)]

    def _lay_out(self, scope: Scope, base: Node, struct: str) -> None:
        """Make the columns of an operator's output known as tables and keys."""
        keys = [quoted(struct, name) for name in key_columns(_key_width(base))]
        if isinstance(base, KeyJoin):
            for number, (leaf, _) in enumerate(leaves_of(base)):
                scope.tables[leaf] = scope.add(f"__leaf{base.serial}_{number}", quoted(struct, f"v{number}"))
                scope.keys[leaf] = keys
            scope.keys[base] = keys
            return
        assert isinstance(base, ForeignKeyJoin | OneToMany)  # noqa: S101
        many, one = (LEFT, RIGHT) if isinstance(base, ForeignKeyJoin) else (RIGHT, LEFT)
        left = scope.add(f"__many{base.serial}", quoted(struct, "v0"))
        right = scope.add(f"__one{base.serial}", quoted(struct, "v1"))
        many_key = keys
        foreign = [quoted(struct, name) for name in foreign_columns(len(base.foreign))]
        scope.sides[base, many] = (left, many_key)
        if isinstance(base, OneToMany):
            scope.keys[base] = [*foreign, *many_key]
            scope.sides[base, one] = (right, foreign)
            return
        one_key = self._pointed_key(scope, base, left, many_key)
        if base.keeps_lone_rows:
            scope.keys[base] = [*many_key, *foreign]
            one_key = [F.coalesce(lone, key) for lone, key in zip(foreign, one_key, strict=True)]
        else:
            scope.keys[base] = many_key
        scope.sides[base, one] = (right, one_key)

    def _pointed_key(
        self, scope: Scope, join: ForeignKeyJoin, left: str, left_key: list[Column]
    ) -> list[Column]:
        """The right row's key, which is the foreign key of the left row."""
        inner = Scope(scope.frame, {join.left: left}, {join.left: left_key})
        name = inner.with_columns_of(
            join.left,
            f"__pointed{join.serial}",
            lambda: F.struct(
                *(
                    column_of(part).cast(spark_type(kind)).alias(f"f{i}")
                    for i, (part, kind) in enumerate(zip(join.on, join.foreign, strict=True))
                )
            ),
        )
        scope.frame = inner.frame
        return [quoted(name, f"f{i}") for i in range(len(join.foreign))]

    # Types

    def _order_fields(self, hops: int) -> list[T.StructField]:
        ordered = next((source.ordered_by for source in self._line.sources if source.ordered_by), None)
        time = spark_type_of_text(ordered) if ordered else T.LongType()
        place = [
            T.StructField(TIME, time),
            T.StructField(PARTITION, T.StringType()),
            T.StructField(POSITION, T.LongType()),
        ]
        return [*place, *(T.StructField(hop, T.LongType()) for hop in hop_columns(hops))]

    def _layout(self, base: Node, number: int) -> T.StructType:
        """The columns of an operator's output, with their place in the order."""
        columns = self._order_fields(number + 1)
        if isinstance(base, KeyJoin):
            key, foreign, values = base.key, (), [leaf.value for leaf, _ in leaves_of(base)]
            columns.append(T.StructField(ROW_TS, T.LongType()))
        else:
            assert isinstance(base, ForeignKeyJoin | OneToMany)  # noqa: S101
            many, one = (
                (base.left, base.right) if isinstance(base, ForeignKeyJoin) else (base.right, base.left)
            )
            foreign = base.foreign if isinstance(base, OneToMany) or base.keeps_lone_rows else ()
            key, values = many.key, [many.value, one.value]
            columns.append(T.StructField(ROW_TS, T.LongType()))
        columns += [T.StructField(TS, T.LongType()), T.StructField(LIVE, T.BooleanType())]
        for names, fields in ((key_columns(len(key)), key), (foreign_columns(len(foreign)), foreign)):
            columns += [T.StructField(name, spark_type(one)) for name, one in zip(names, fields, strict=True)]
        columns += [T.StructField(f"v{number}", struct_type(value)) for number, value in enumerate(values)]
        return T.StructType(columns)

    def _ending_layout(self, ending: Ending) -> T.StructType:
        if not ending.evaluated:
            return self._layout(base_of(ending.output.node), self._last)
        node = ending.output.node
        columns = [
            *self._order_fields(self._last + 1),
            T.StructField(TS, T.LongType()),
            T.StructField(LIVE, T.BooleanType()),
        ]
        columns += [
            T.StructField(name, spark_type(one))
            for name, one in zip(key_columns(len(node.key)), node.key, strict=True)
        ]
        columns.append(T.StructField("v", struct_type(node.value)))
        if ending.output.before:
            columns.append(T.StructField("old", struct_type(node.value)))
        return T.StructType(columns)

    def _evaluated(self, frame: DataFrame, ending: Ending) -> DataFrame:
        """Replace an output's struct by ``key``, ``value``, ``old``, ``live``, ``ts`` and ``order``."""
        node, struct = ending.output.node, f"__p{ending.port.number}"
        scope = Scope(frame)
        if ending.evaluated:
            scope.tables[node] = scope.add(f"__v{ending.port.number}", quoted(struct, "v"))
            scope.keys[node] = [quoted(struct, name) for name in key_columns(len(node.key))]
        else:
            self._lay_out(scope, base_of(node), struct)
        table = scope.value(node)
        hops = [quoted(struct, hop).alias(f"hop_{i}") for i, hop in enumerate(hop_columns(self._last + 1))]
        order = F.struct(
            F.col("__micro_batch").alias("micro_batch"),
            quoted(struct, TIME).alias("time"),
            quoted(struct, PARTITION).alias("partition"),
            quoted(struct, POSITION).alias("position"),
            *hops,
        )
        key = F.struct(
            *(
                column.cast(spark_type(one)).alias(one.name)
                for one, column in zip(node.key, scope.key(node), strict=True)
            )
        )
        parts = [key.alias("key"), F.col(table).alias("value"), F.col(table).isNotNull().alias("live")]
        parts += [F.timestamp_micros(quoted(struct, TS)).alias("timestamp"), order.alias("order")]
        if ending.output.before:
            parts.append(quoted(struct, "old").alias("old"))
        scope.add(f"__out{ending.port.number}", F.when(F.col(struct).isNotNull(), F.struct(*parts)))
        frame = scope.frame
        others = [f"__p{e.port.number}" for e in self._line.endings if e is not ending]
        kept = [
            c for c in frame.columns if c in {"__port", "__micro_batch", *others} or c.startswith("__out")
        ]
        return frame.select(*kept)

    def _observed(self) -> list[Column]:
        """A count per operator and reason for which it can drop a record."""
        reasons = [
            (source.name, reason)
            for source in self._line.sources
            for reason in (NULL_KEY, NULL_TIME, "malformed")
        ]
        reasons += [
            (placed.name, reason)
            for work in self._line.rounds
            for placed in work.operators
            for reason in placed.operator.reasons
        ]
        counted = [F.count(F.when(F.col("__port") != METRICS, 1)).alias("changes")]
        for operator, reason in reasons:
            mine = (F.col("__operator") == operator) & (F.col("__reason") == reason)
            counted.append(
                F.coalesce(F.sum(F.when(mine, F.col("__count"))), F.lit(0)).alias(f"{operator}: {reason}")
            )
        return counted


#: The name under which a query's progress shows what was dropped.
OBSERVED = "tablestream"


def spark_type_of_text(text: str) -> T.DataType:
    """A Spark type from its JSON text."""
    from tablestream.topology.nodes import Field

    return spark_type(Field("x", text))


def _unpacking(unpacker: OutputUnpacker) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function with the annotations by which Spark knows that it takes a shard batch by batch."""

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from unpacker(batches)

    return unpack


def _key(columns: list[Column], fields: Fields, names: tuple[str, ...], hashed: str) -> list[Column]:
    """Key columns in their compared types, normalised, and their hash before them."""
    kinds = [spark_type(one) for one in fields]
    parts = [normalised(column.cast(kind), kind) for column, kind in zip(columns, kinds, strict=True)]
    return [
        F.xxhash64(*parts).alias(hashed),
        *(part.alias(name) for part, name in zip(parts, names, strict=True)),
    ]


def _key_width(base: Node) -> int:
    if isinstance(base, ForeignKeyJoin):
        return len(base.left.key)
    return len(base.right.key) if isinstance(base, OneToMany) else len(base.key)


def _first_round(readers: tuple[Reader, ...]) -> int:
    return min(reader.port.round for reader in readers)


def _union(streams: list[DataFrame | None]) -> DataFrame:
    return reduce(
        lambda one, other: one.unionByName(other), [stream for stream in streams if stream is not None]
    )


def _opened(port: int, struct: T.StructType) -> Opened:
    schema = pa.schema([(one.name, arrow_type(one.dataType, one.name)) for one in struct.fields])
    return Opened(port, f"__p{port}", schema.serialize().to_pybytes())


def _wide_schema(structs: dict[int, T.StructType]) -> T.StructType:
    head = T.StructType.fromDDL(blobs.SCHEMA).fields
    return T.StructType([*head, *(T.StructField(f"__p{port}", struct) for port, struct in structs.items())])
