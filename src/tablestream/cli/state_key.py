"""Reads the row of one key, for ``tablestream state --key``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.connectors.files import json_options
from tablestream.connectors.sink import quoted
from tablestream.errors import ArgumentError
from tablestream.spark.columns import spark_type
from tablestream.spark.state_reader import found_table, rows_of
from tablestream.spark.stored_key import rows_of_hash, stored_hash

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from tablestream.planner.catalogue import StoredTable


def parsed_key(text: str) -> dict[str, Any]:
    """Return the key that a text has as a JSON object.

    Raises
    ------
    ArgumentError
        It is something else.
    """
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ArgumentError(
            f"--key {text} is not a JSON object.",
            hint='Write it as \'{"ticker": "A"}\', with the quotes of your shell.',
        )
    return found


def read_key(
    spark: SparkSession,
    checkpoint: str,
    table: str,
    key: Mapping[str, Any],
    batch_id: int | None = None,
    as_of: str | None = None,
) -> DataFrame:
    """Return the rows of a key, as `read_state` does: one row, or the versions of a versioned table.

    Raises
    ------
    ArgumentError
        The key has other columns, or a value does not fit its column's type; or as `read_state`.

    Notes
    -----
    A part of a key may be null in groups and in outer foreign-key joins. Other tables drop such records.

    Cost: the chunks that can have the key. A key that is not found costs reading the table, to be sure.
    """
    state, stored, as_of_us = found_table(spark, checkpoint, table, batch_id, as_of)
    names = [one.name for one in stored.key]
    if sorted(key) != sorted(names):
        raise ArgumentError(
            f"The key of '{table}' has the columns {', '.join(names)}, not {', '.join(key) or 'none'}.",
            hint=f"Write it as {json.dumps(dict.fromkeys(names, '...'))}.",
        )
    fields = [T.StructField(one.name, spark_type(one)) for one in stored.key]
    values, hashed = _values(spark, key, stored, fields)
    found = rows_of_hash(state, stored, hashed, as_of_us)
    if found is not None:
        found = _with_key(found, names, values)
        if found.take(1):
            return found
    return _with_key(rows_of(state, stored, as_of_us), names, values)


def _with_key(rows: DataFrame, names: Sequence[str], values: Sequence[Column]) -> DataFrame:
    """Return the rows with a key."""
    for name, value in zip(names, values, strict=True):
        rows = rows.where(F.col(quoted(name)).eqNullSafe(value))
    return rows


def _values(
    spark: SparkSession, key: Mapping[str, Any], stored: StoredTable, fields: Sequence[T.StructField]
) -> tuple[list[Column], int]:
    """Return the values of a key as Spark's literals, in the order of its columns, and their hash.

    Spark reads a value that does not fit its column's type as null.
    """
    row = F.from_json(F.lit(json.dumps(dict(key))), T.StructType([*fields]), json_options())
    values = [row[field.name] for field in fields]
    parts = [f"part_{number}" for number in range(len(values))]
    frame = spark.sql("VALUES (1)").select(*map(Column.alias, values, parts))
    nulls = (f"{part} IS NULL" for part in parts)
    ((hashed, *are_null),) = frame.selectExpr(stored_hash(stored, parts), *nulls).collect()
    for field, is_null in zip(fields, are_null, strict=True):
        if is_null and key[field.name] is not None:
            kind = field.dataType.simpleString()
            raise ArgumentError(
                f"The value of the key column {field.name} is not of its type, {kind}.",
                hint="Give a value of that type, or null; times as text, such as 2024-01-02T09:00:00Z.",
            )
    return values, int(hashed)
