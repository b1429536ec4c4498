"""Reads rows of tables in a checkpoint's state by parts of their keys, for `why`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.errors import ArgumentError
from tablestream.operators.versions import TO
from tablestream.planner.catalogue import StoredTable
from tablestream.provenance.finding import Key
from tablestream.provenance.walk import Row
from tablestream.spark.columns import opened, spark_type
from tablestream.spark.state_reader import key_frame, stored_frame
from tablestream.spark.stored_key import KeyRows, literal
from tablestream.spark.stored_state import StoredState
from tablestream.state.changes import TS, key_columns

#: So many keys are looked up one by one, each in its shard. For more, the table is read once.
_FEW = 4
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class CheckpointRows:
    """The rows of a state after a micro-batch."""

    state: StoredState

    def rows(
        self, table: StoredTable, keys: Sequence[Key], first: int = 0, limit: int | None = None
    ) -> list[Row]:
        """Return the rows with some keys; see `StateRows`."""
        width = len(keys[0])
        kinds = [spark_type(one) for one in table.key[first : first + width]]
        values = [parts for key in keys if (parts := self._values(key, kinds)) is not None]
        if not values:
            return []
        if first == 0 and width >= len(table.hashed_key) and len(keys) <= _FEW and not table.scattered:
            frames = [self._of_key(table, one) for one in values]
            some = (one if limit is None else one.limit(limit) for one in frames)
            return [_row(table, tuple(row)) for frame in some for row in frame.collect()]
        frame = stored_frame(self.state, table).select(*_columns(table))
        names = [f"w{number}" for number in range(width)]
        given = reduce(DataFrame.union, (self._one_row(one, names) for one in values))
        equal = (F.col(f"k{first + number}").eqNullSafe(F.col(name)) for number, name in enumerate(names))
        found = frame.join(F.broadcast(given), reduce(and_, equal), "left_semi")
        rows = (found if limit is None else found.limit(limit)).collect()
        return [_row(table, tuple(one)) for one in rows]

    def _of_key(self, table: StoredTable, values: Sequence[Column]) -> DataFrame:
        """The rows in the shard of a key with its hash, some of them perhaps of another key."""
        return key_frame(KeyRows.of_values(self.state, table, values)).select(*_columns(table))

    def _one_row(self, values: Sequence[Column], names: Sequence[str]) -> DataFrame:
        columns = (value.alias(name) for value, name in zip(values, names, strict=True))
        return self.state.spark.sql("VALUES (1)").select(*columns)

    def _values(self, key: Key, kinds: Sequence[T.DataType]) -> list[Column] | None:
        """A key in the types of the columns that it is compared with; None if these cannot have it, and no row has."""
        try:
            return [self._literal(*part) for part in zip(key, kinds, strict=True)]
        except ArgumentError:
            return None

    def _literal(self, value: Any, kind: T.DataType) -> Column:
        return literal(self.state.spark, fitting(value, kind), T.StructField("key", kind))


def _columns(table: StoredTable) -> list[Column]:
    """The key, the value and the time by number."""
    keys = zip(key_columns(len(table.key)), table.key, strict=True)
    columns = [
        opened(0, name).cast(spark_type(one)).alias(f"k{number}") for number, (name, one) in enumerate(keys)
    ]
    columns += [opened(0, "v", f"c{number}").alias(f"v{number}") for number in range(len(table.value))]
    columns.append(opened(0, TS).alias("at"))
    ended = F.lit(False) if table.history is None else opened(0, TO).isNotNull()
    return [*columns, ended.alias("ended")]


def _row(table: StoredTable, parts: tuple[Any, ...]) -> Row:
    width = len(table.key)
    *columns, at_us, ended = parts
    fields = (*table.key, *table.value)
    values = [with_zone(value, spark_type(one)) for value, one in zip(columns, fields, strict=True)]
    names = [one.name for one in table.value]
    key = tuple(map(hashable, values[:width]))
    return Row(key, dict(zip(names, values[width:], strict=True)), _time(at_us), bool(ended))


def _time(at_us: int | None) -> datetime | None:
    """A time in UTC; None if Python cannot have it."""
    try:
        return None if at_us is None else _EPOCH + timedelta(microseconds=at_us)
    except OverflowError:
        return None


def with_zone(value: Any, kind: T.DataType) -> Any:
    """A value in which times that Spark gives in the zone of this process are in UTC."""
    if isinstance(kind, T.StructType) and value is not None:
        parts = (with_zone(part, one.dataType) for part, one in zip(value, kind, strict=True))
        return T.Row(*kind.names)(*parts)
    if isinstance(kind, T.ArrayType) and value is not None:
        return [with_zone(one, kind.elementType) for one in value]
    is_time = isinstance(kind, T.TimestampType) and isinstance(value, datetime)
    return value.astimezone(UTC) if is_time else value


def hashable(value: Any) -> Any:
    """A value of a key, in which arrays are tuples."""
    if isinstance(value, T.Row):
        return T.Row(*value.__fields__)(*map(hashable, value))
    return tuple(map(hashable, value)) if type(value) is list else value


def fitting(value: Any, kind: T.DataType) -> Any:
    """What `hashable` gave, as a literal of a type: arrays are lists, and a date is its midnight."""
    if isinstance(kind, T.StructType) and isinstance(value, tuple) and len(value) == len(kind):
        return tuple(fitting(part, one.dataType) for part, one in zip(value, kind, strict=True))
    if isinstance(kind, T.ArrayType) and value is not None:
        return [fitting(one, kind.elementType) for one in value]
    if isinstance(kind, T.TimestampNTZType) and type(value) is date:
        return datetime.combine(value, time())
    if isinstance(kind, T.DateType) and isinstance(value, datetime) and value.time() == time():
        return value.date()
    return value
