"""Reads the row of one key, for ``tablestream state --key``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.connectors.json_text import json_read_options
from tablestream.connectors.sink import quoted
from tablestream.connectors.small_texts import json_object
from tablestream.errors import ArgumentError
from tablestream.spark.state_reader import read_stored

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession


def parsed_key(text: str) -> dict[str, Any]:
    """Return the key that a text has as a JSON object.

    Raises
    ------
    ArgumentError
        It is something else.
    """
    found = json_object(text)
    if found is None:
        raise ArgumentError(
            f"--key {text} is not a JSON object.",
            hint='Write it as \'{"ticker": "A"}\', with the quotes of your shell.',
        )
    return found


def read_key(
    spark: SparkSession,
    checkpoint: str,
    table: str,
    text: str,
    batch_id: int | None = None,
    as_of: str | None = None,
) -> DataFrame:
    """Return the rows of a key, a JSON object, as `read_state` does: one row, or the versions of a versioned table.

    Raises
    ------
    ArgumentError
        The key has other columns, or a value does not fit its column's type; or as `read_state`.

    Notes
    -----
    A part of a key may be null in groups and in outer foreign-key joins. Other tables drop such records.
    """
    key = parsed_key(text)
    stored, rows = read_stored(spark, checkpoint, table, batch_id, as_of)
    names = [one.name for one in stored.key]
    if sorted(key) != sorted(names):
        raise ArgumentError(
            f"The key of '{table}' has the columns {', '.join(names)}, not {', '.join(key) or 'none'}.",
            hint=f"Write it as {json.dumps(dict.fromkeys(names, '...'))}.",
        )
    for name, value in zip(names, _values(spark, text, key, rows.schema.fields[: len(names)]), strict=True):
        rows = rows.where(F.col(quoted(name)).eqNullSafe(value))
    return rows


def _values(
    spark: SparkSession, text: str, key: Mapping[str, Any], fields: Sequence[T.StructField]
) -> list[Column]:
    """Return the values of a key as Spark's literals, in the order of its columns.

    Spark reads the user's own text, since a float of Python's has fewer digits than a decimal. It reads a value that
    does not fit its column's type as null.
    """
    row = F.from_json(F.lit(text), T.StructType([*fields]), json_read_options())
    values = [row[field.name] for field in fields]
    (nulls,) = spark.sql("VALUES (1)").select(*(value.isNull() for value in values)).collect()
    for field, is_null in zip(fields, nulls, strict=True):
        if is_null and key[field.name] is not None:
            kind = field.dataType.simpleString()
            raise ArgumentError(
                f"The value of the key column {field.name} is not of its type, {kind}.",
                hint="Give a value of that type, or null; times as text, such as 2024-01-02T09:00:00Z.",
            )
    return values
