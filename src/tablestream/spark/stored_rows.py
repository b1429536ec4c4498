"""The rows of a table in the state: which tables there are, and how a shard's rows are read.

`read_state` uses it on a checkpoint, and `tablestream.testing` on the state in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.base.calling import user_line
from tablestream.connectors.sink import CHANGE_TYPE
from tablestream.errors import ArgumentError, ColumnCollisionError, NotVersionedError
from tablestream.operators.buffer.waiting import EXISTS
from tablestream.operators.versions import FROM, TO
from tablestream.planner.catalogue import StoredTable, StoredTables
from tablestream.spark.analysis import folding
from tablestream.spark.columns import opened, spark_type
from tablestream.spark.layout import Layout, polars_types
from tablestream.spark.unpacking import Opened, wide
from tablestream.state import manifest as manifests
from tablestream.state.cache import MemoryCache
from tablestream.state.changes import TS, key_columns
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore

TIMESTAMP, VALID_FROM, VALID_TO = "_timestamp", "valid_from", "valid_to"


@dataclass(frozen=True)
class StoredRows:
    """Reads the rows of a table from the state of a shard."""

    table: StoredTable
    as_of_us: int | None
    """The table; for a versioned one the time whose versions are read, None for all."""
    opened: Opened
    schema: T.StructType
    """The columns of the rows, for Arrow and for Spark."""

    @classmethod
    def of_table(cls, table: StoredTable, as_of_us: int | None) -> StoredRows:
        """Find the columns."""
        layout = _layout(table)
        return cls(table, as_of_us, layout.opened(0), T.StructType(layout.in_frame(0)))

    def of(self, store: MemoryStore, hashed: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a shard, or those whose key has a hash, a bounded number at a time."""
        state = ShardState(store, MemoryCache(), self.table.traces, self.table.fingerprint)
        kinds = {one.name: one.type for one in self.opened.fields}
        for frame in self.table.frames(state, polars_types, self.as_of_us, hashed):
            for rows, part in self.opened.record_batches(frame):
                yield wide(kinds, rows, part)


def _layout(table: StoredTable) -> Layout:
    """The columns of `StoredTable.frames`."""
    times = [TS] if table.history is None else [TS, FROM, TO]
    keys = zip(key_columns(len(table.key)), table.stored_key, strict=True)
    plain = [T.StructField(name, T.LongType()) for name in times]
    plain += [T.StructField(name, spark_type(one)) for name, one in keys]
    plain += [T.StructField(EXISTS, T.BooleanType())] if table.waits else []
    return Layout(plain, {"v": table.value})


def shown(spark: SparkSession, table: StoredTable) -> list[Column]:
    """The columns as users see them: names, types, and times."""
    times = {TIMESTAMP: TS} | ({} if table.history is None else {VALID_FROM: FROM, VALID_TO: TO})
    added = {name: F.timestamp_micros(opened(0, time)) for name, time in times.items()}
    if table.waits:
        added[CHANGE_TYPE] = F.when(opened(0, EXISTS), "upsert").otherwise("delete")
    fold = folding(spark)
    names = set(map(fold, added))
    taken = [one.name for one in (*table.key, *table.value) if fold(one.name) in names]
    if taken:
        raise ColumnCollisionError(
            f"'{table.name}' has a column {taken[0]}, which the result uses itself.",
            hint="Rename it where the table is created.",
            where=user_line(),
        )
    named = zip(stored_columns(table), (*table.key, *table.value), strict=True)
    columns = [column.alias(one.name) for column, one in named]
    return [*columns, *(column.alias(name) for name, column in added.items())]


def stored_columns(table: StoredTable) -> list[Column]:
    """The columns of the key, in its own types, and of the value."""
    key = zip(key_columns(len(table.key)), table.key, strict=True)
    value = (opened(0, "v", f"c{number}") for number in range(len(table.value)))
    return [*(opened(0, name).cast(spark_type(one)) for name, one in key), *value]


def chosen(stored: StoredTables, name: str, of_output: Callable[[str], str]) -> StoredTable:
    """Find a table by its name, else by that of an output; the error for an unknown one lists the others.

    `of_output`: returns the name of an output's table, or the name itself if no output is called so.
    """
    known = stored.by_name.get(name)
    name = name if known is not None and not known.waits else of_output(name)
    if name in stored.by_name:
        return stored.by_name[name]
    there = f"Tables that can be read: {', '.join(one.name for one in stored.tables) or 'none'}."
    if name in stored.others:
        raise ArgumentError(
            f"The state does not have the rows of '{name}': no operator of the query keeps them as a table.",
            hint=f"Keep them with materialize(), and let the query evolve, or use a new checkpoint. {there}",
            where=user_line(),
        )
    raise ArgumentError(f"The query has no table '{name}'.", hint=there, where=user_line())


def moment_of(spark: SparkSession, table: StoredTable, as_of: Any) -> int:
    """Return a time in microseconds since 1970; refuse what is none, or a table without versions."""
    if table.history is None:
        raise NotVersionedError(
            f"as_of= asks for versions of '{table.name}', and the state has only"
            f" {'what waits' if table.waits else 'the latest rows'}.",
            hint="Omit as_of=." if table.waits else "Give the table a history=, or omit as_of=.",
            where=user_line(),
        )
    return checked_time(spark, as_of, "as_of")


def checked_time(spark: SparkSession, given: Any, argument: str) -> int:
    """Return a time in microseconds since 1970, as Spark casts it; raise if it is none."""
    if isinstance(given, str | date):  # a datetime is a date
        row = spark.range(1).select(F.unix_micros(F.lit(given).try_cast(T.TimestampType()))).first()
        if row is not None and row[0] is not None:
            return int(row[0])
    raise ArgumentError(
        f"{argument}={given!r} is not a time.",
        hint='Give a datetime, or a text such as "2024-01-02 12:00".',
        where=user_line(),
    )


def check_history(spark: SparkSession, table: StoredTable, moment_us: int, heads: Iterable[bytes]) -> None:
    """Refuse a time for which some shard may have removed versions; the message says when the history begins.

    `heads`: the manifests of the shards.
    """
    assert table.history is not None  # noqa: S101 - `moment_of` saw to it
    shards = [manifests.decode(head) for head in heads]
    observed = [time for shard in shards if (time := shard.clocks.get(table.history.clock)) is not None]
    if observed and moment_us < max(observed) - table.history.length_us:
        begin = F.timestamp_micros(F.lit(max(observed) - table.history.length_us)).cast("string")
        row = spark.range(1).select(begin).first()
        raise ArgumentError(
            f"'{table.name}' does not reach back to that time: its history begins at {row[0] if row else begin}.",
            hint="Give a later time, or the table a longer history=.",
            where=user_line(),
        )
