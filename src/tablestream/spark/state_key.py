"""Reads the rows of one key from the state of a query.

The driver itself reads the shard in which the key should be: starting workers for that would take longer than all
else. If the key is not there, all shards are read as `read_state` does: a table may be kept by another key than its
own.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

import polars as pl
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.calling import user_line
from tablestream.connectors.files import JSON_OPTIONS, first_line
from tablestream.connectors.sink import checked_path, quoted
from tablestream.errors import ArgumentError
from tablestream.planner.catalogue import StoredTable
from tablestream.spark import blobs
from tablestream.spark.columns import normalised, spark_type
from tablestream.spark.relocation import check_place
from tablestream.spark.state_reader import rows_of, time_of
from tablestream.spark.stored_rows import StoredRows, chosen, shown
from tablestream.spark.stored_state import StoredState, store_of
from tablestream.state.changes import key_columns

_SHARDS = re.compile(r"^shards: (\d+)$", re.MULTILINE)
_HASH = "hash"


def read_key(
    spark: SparkSession,
    checkpoint: str | os.PathLike[str],
    table: str,
    key: Mapping[str, Any],
    batch_id: int | None = None,
    as_of: str | datetime | None = None,
) -> DataFrame:
    """Return the rows of a key, in the columns of `read_state`: one row, or the versions of a versioned table.

    Parameters
    ----------
    spark, checkpoint, table, batch_id, as_of
        As for `read_state`.
    key
        All key columns with their values, as JSON has them.

    Raises
    ------
    ArgumentError
        The key has other columns, or a value does not fit its column's type; or as `read_state`.
    StateError
        As `read_state`.
    """
    path = checked_path(checkpoint, "the checkpoint")
    check_place(spark, path)
    state = StoredState.of(spark, path, batch_id)
    found = chosen(state.tables(), table)
    wanted = _values(found, key)
    hashed, keys = _key_row(spark, found, wanted)
    as_of_us = time_of(state, found, as_of)
    here = _in_driver(state, found, as_of_us, _shard(spark, path, hashed), keys)
    if here is not None:
        return here
    rows = rows_of(state, found, as_of_us)
    for one in found.key:
        rows = rows.where(F.col(quoted(one.name)).eqNullSafe(wanted[one.name]))
    return rows


def _values(table: StoredTable, key: Mapping[str, Any]) -> dict[str, Column]:
    """Return the columns of a key as Spark's literals."""
    names = [one.name for one in table.key]
    if sorted(key) != sorted(names):
        example = json.dumps(dict.fromkeys(names, "..."))
        raise ArgumentError(
            f"The key of '{table.name}' has the columns {', '.join(names)}, not {', '.join(key) or 'none'}.",
            hint=f"Write it as {example}.",
            where=user_line(),
        )
    kinds = T.StructType([T.StructField(one.name, spark_type(one)) for one in table.key])
    row = F.from_json(F.lit(json.dumps(dict(key))), kinds, JSON_OPTIONS)
    return {name: row[name] for name in names}


def _key_row(
    spark: SparkSession, table: StoredTable, wanted: Mapping[str, Column]
) -> tuple[int, pl.DataFrame | None]:
    """Return the hash of a key, and its columns as they are stored; None if Polars does not join by such columns."""
    kinds = [spark_type(one) for one in table.stored_key]
    names = key_columns(len(kinds))
    parts = [normalised(column.cast(kind), kind) for column, kind in zip(wanted.values(), kinds, strict=True)]
    columns = [part.alias(name) for part, name in zip(parts, names, strict=True)]
    one = spark.sql("VALUES (1)").select(F.xxhash64(*parts).alias(_HASH), *columns).toArrow()
    row = cast("pl.DataFrame", pl.from_arrow(one))
    for field, name in zip(table.key, names, strict=True):
        if row[name].null_count():
            kind = spark_type(field).simpleString()
            raise ArgumentError(
                f"The value of the key column {field.name} is null, or not of its type, {kind}.",
                hint="Give a value of that type; times as text, such as 2024-01-02T09:00:00Z.",
                where=user_line(),
            )
    keys = row.select(names)
    return int(row[_HASH][0]), None if any(kind.is_nested() for kind in keys.dtypes) else keys


def _shard(spark: SparkSession, checkpoint: str, hashed: int) -> int | None:
    """Return the shard that messages with this hash go to; None if `start` did not store the plan."""
    line = first_line(spark, f"{checkpoint}/tablestream/part-*")
    number = None if line is None else _SHARDS.search(json.loads(line)["value"])
    if number is None:
        return None
    names = blobs.shard_names(int(number.group(1)))
    return names[hashed % (1 << 64) % len(names)]


def _in_driver(
    state: StoredState, table: StoredTable, as_of_us: int | None, shard: int | None, keys: pl.DataFrame | None
) -> DataFrame | None:
    """Return the rows of a key that one shard has; None if it has none."""
    if shard is None or keys is None:
        return None
    stored = StoredRows.of_table(table, as_of_us)
    of_table = F.col("trace").isin([spec.number for spec in table.traces])
    parts = state.manifests(table.round).unionByName(state.chunks(table.round).where(of_table))
    here = parts.where(F.col(blobs.SHARD) == shard).toArrow()
    if not here.num_rows:
        return None
    rows = pa.Table.from_batches(
        [batch for batch in stored.of(store_of(here.to_batches()), keys) if batch.num_rows] or [],
        schema=stored.opened.fields,
    )
    if not rows.num_rows:
        return None
    return state.spark.createDataFrame(rows, stored.schema).select(*shown(state.spark, table))
