"""The rows of one key in the state: only the shard of the key is read.

The shard follows from the hash of the key, and Spark's partition from the shard. Of a frame on the state only this
partition is run: the others are not opened. Without a SparkContext (Spark Connect) all of them are, and only the
rows of the shard are decoded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.base.calling import user_line
from tablestream.connectors.json_text import json_read_options
from tablestream.connectors.shipping import has_context
from tablestream.connectors.sink import quoted
from tablestream.errors import ArgumentError, TablestreamError
from tablestream.planner.catalogue import StoredTable
from tablestream.spark import blobs
from tablestream.spark.columns import key_of, spark_type, typed
from tablestream.spark.processes import begin_task
from tablestream.spark.stored_rows import StoredRows
from tablestream.spark.stored_state import StoredState
from tablestream.state import manifest as manifests
from tablestream.state.changes import KEY_HASH
from tablestream.state.manifest import Manifest
from tablestream.state.store import MemoryStore
from tablestream.topology.nodes import Fields


@dataclass(frozen=True)
class GivenKey:
    """A key as the user gives it."""

    values: Mapping[str, Any]
    """The values by column."""
    text: str | None = None
    """The JSON object that they come from: Spark reads it itself, since a float of Python's has fewer digits than a
    decimal."""

    @classmethod
    def of(cls, table: str, columns: Fields, given: Any) -> GivenKey:
        """Take a mapping as it is, and any other value as that of the only column; refuse other columns."""
        names = [one.name for one in columns]
        if isinstance(given, GivenKey):
            key = given
        elif isinstance(given, Mapping):
            key = cls(given)
        else:
            key = cls({names[0]: given} if len(names) == 1 else {"a single value": given})
        if sorted(map(str, key.values)) != sorted(names):
            raise ArgumentError(
                f"The key of '{table}' has the columns {', '.join(names) or 'none'}, not"
                f" {', '.join(map(str, key.values)) or 'none'}.",
                hint=f"Write it as {json.dumps(dict.fromkeys(names, '...'))}.",
                where=user_line(),
            )
        return key

    def literals(self, spark: SparkSession, fields: Sequence[T.StructField]) -> list[Column]:
        """Return the values as Spark's literals in the types of the columns, in order; refuse what does not fit."""
        if self.text is not None:
            row = F.from_json(F.lit(self.text), T.StructType([*fields]), json_read_options())
            found = [row[one.name] for one in fields]
            for value, one in zip(found, fields, strict=True):
                if self.values[one.name] is not None and _evaluated(spark, value.isNull()):
                    raise _wrong_value(one)
            return found
        return [literal(spark, self.values[one.name], one) for one in fields]


def literal(spark: SparkSession, value: Any, field: T.StructField) -> Column:
    """Return a value of Python's in the type of a column, or raise. A float does not become an integer."""
    kind = field.dataType
    if value is None:
        return F.lit(None).cast(kind)
    if isinstance(kind, T.StructType) and isinstance(value, tuple) and len(value) == len(kind):
        parts = zip(kind, value, strict=True)
        return F.struct(*(literal(spark, part, one).alias(one.name) for one, part in parts)).cast(kind)
    if isinstance(kind, T.ArrayType) and isinstance(value, list):
        element = T.StructField(field.name, kind.elementType)
        return F.array(*(literal(spark, part, element) for part in value)).cast(kind)
    try:
        given = F.lit(_exact(value, kind))
        found = given.try_cast(kind)
        is_rounded = isinstance(value, str | date) or isinstance(kind, T.FloatType)
        if _evaluated(spark, found.isNotNull() if is_rounded else found.eqNullSafe(given)):
            return found
    except (PySparkException, TypeError, ValueError, AttributeError) as error:
        raise _wrong_value(field) from error
    raise _wrong_value(field)


def _exact(value: Any, kind: T.DataType) -> Any:
    """Return a date or a time as text, since Java's dates on the way have another calendar; the rest as it is.

    Raises `TypeError`: a time is given for a date, or one with an offset for a time without; or no text for a text.
    """
    if isinstance(kind, T.StringType) and not isinstance(value, str):
        raise TypeError(value)
    if not isinstance(value, date):
        return value
    fits = isinstance(kind, T.TimestampType) or (
        isinstance(kind, T.TimestampNTZType) and getattr(value, "tzinfo", None) is None
    )
    if not fits and (isinstance(value, datetime) or not isinstance(kind, T.DateType)):
        raise TypeError(value)
    return value.isoformat()


def _wrong_value(field: T.StructField) -> ArgumentError:
    return ArgumentError(
        f"The value of the key column {field.name} is not of its type, {field.dataType.simpleString()}.",
        hint="Give a value of that type, or null; times as text, such as 2024-01-02T09:00:00Z.",
        where=user_line(),
    )


def one_row(spark: SparkSession, values: Mapping[str, Column]) -> DataFrame:
    """Return a row of literals, which takes no job."""
    return spark.sql("VALUES (1)").select(*(value.alias(name) for name, value in values.items()))


def _evaluated(spark: SparkSession, condition: Column) -> bool:
    """Evaluate a condition on literals."""
    ((found,),) = one_row(spark, {"found": condition}).collect()
    return bool(found)


@dataclass(frozen=True)
class KeyRows:
    """Reads the rows of one key."""

    state: StoredState
    table: StoredTable
    """The state, and the table."""
    values: Sequence[Column]
    """The values of the key's columns, in their order; at least those that are hashed."""

    @classmethod
    def of(cls, state: StoredState, table: StoredTable, given: Any) -> KeyRows:
        """Read a key as the user gives it."""
        fields = [T.StructField(one.name, spark_type(one)) for one in table.key]
        return cls(state, table, GivenKey.of(table.name, table.key, given).literals(state.spark, fields))

    @cached_property
    def hashed(self) -> int:
        """The hash that its rows are stored by."""
        fields = self.table.hashed_key
        names = [f"__k{number}" for number in range(len(fields))]
        row = one_row(self.state.spark, dict(zip(names, self.values, strict=False)) or {"none": F.lit(1)})
        parts = [typed(name, spark_type(one)) for name, one in zip(names, fields, strict=True)]
        hashed = row.selectExpr(key_of(parts, names, KEY_HASH)[KEY_HASH]).first()
        return int(hashed[0]) if hashed else 0

    @cached_property
    def shard(self) -> int | None:
        """The shard of the key; None if the number of shards is not known. A hash counts without its sign."""
        shards = self.state.shards_of_plan()
        return None if shards is None else blobs.shard_names(shards)[self.hashed % (1 << 64) % shards]

    def only(self, rows: DataFrame) -> DataFrame:
        """Leave out the rows of other keys."""
        for one, value in zip(self.table.key, self.values, strict=True):
            rows = rows.where(F.col(quoted(one.name)).eqNullSafe(value))
        return rows

    @cached_property
    def manifest(self) -> bytes | None:
        """The manifest of the shard; None if its partition cannot be run alone, or does not have it."""
        if self.shard is None:
            return None
        frame = self.state.manifests(self.table.round)
        found = _in_partition(frame, self.shard, lambda rows: [bytes(row["data"]) for row in rows])
        return next(iter(found), None)

    def record_batches(self, shard: int, manifest: bytes, stored: StoredRows) -> list[pa.RecordBatch]:
        """Return the rows whose key has the hash, from the chunks that can have them."""
        hashed, wanted = self.hashed, self._chunks(manifests.decode(manifest))
        place = F.concat_ws("/", "trace", "run", "chunk")
        frame = self.state.chunks(self.table.round).where(place.isin(wanted))

        def read(rows: Iterable[T.Row]) -> Iterator[bytes | TablestreamError]:
            begin_task()
            store = MemoryStore()
            store.manifest = manifest
            store.chunks = {(row["trace"], row["run"], row["chunk"]): bytes(row["data"]) for row in rows}
            try:
                batches = list(stored.of(store, hashed))
            except TablestreamError as error:
                return iter([error])
            return (_written(one) for one in batches)

        found = _in_partition(frame, shard, read)
        for one in found:
            if isinstance(one, TablestreamError):
                raise one
        return [batch for one in found for batch in pa.ipc.open_stream(one)]

    def _chunks(self, manifest: Manifest) -> list[str]:
        """The places of the chunks that can have rows of the hash, in the traces that are looked up by it."""
        first = self.table.traces[0]
        return [
            f"{spec.number}/{run.number}/{index}"
            for spec in self.table.traces
            for run in manifest.runs(spec.name)
            for index, chunk in enumerate(run.chunks)
            if spec.hash != first.hash or chunk.min_hash <= self.hashed <= chunk.max_hash
        ]


def _in_partition(frame: DataFrame, shard: int, function: Any) -> list[Any]:
    """Run a function on the rows of a shard in a frame on the state; nothing if a partition cannot be run alone."""
    spark = frame.sparkSession
    if not has_context(spark):
        return []
    rows = frame.where(F.col(blobs.SHARD) == shard).rdd
    if not rows.getNumPartitions():  # no chunk is wanted
        return []
    partition = blobs.partition_of(shard, rows.getNumPartitions())
    return list(spark.sparkContext.runJob(rows, function, [partition]))


def _written(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())
