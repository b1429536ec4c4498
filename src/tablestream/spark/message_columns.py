"""The columns of a message, as SQL: its key, and what the operator that reads it declares."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tablestream.connectors.json_text import json_sql
from tablestream.operators.operator import filled_of
from tablestream.spark.columns import TableColumns


def key_of(parts: Sequence[str], names: Sequence[str], hashed: str) -> dict[str, str]:
    """The key's hash, then its columns."""
    return {hashed: f"xxhash64({', '.join(parts)})" if parts else "0", **dict(zip(names, parts, strict=True))}


def filled(schema: pl.Schema, table: TableColumns) -> dict[str, str]:
    """The columns of messages that their operator declares with the SQL that fills them."""
    sql = {name: one.sql for name, one in filled_of(schema).items()}
    hashed = value_hash(table) if any("{value_hash}" in one for one in sql.values()) else ""
    return {name: one.format(there=table.there, value_hash=hashed) for name, one in sql.items()}


def value_hash(table: TableColumns) -> str:
    """The hash of a value, which state keeps: it does not depend on how the columns are called in this data frame."""
    columns = [f"{name} AS __value_{number}" for number, name in enumerate(table.names)]
    # In UTC: the session's time zone may be another one after a restart.
    as_json = json_sql(f"struct({', '.join(['1', *columns])})", timeZone="UTC")
    return f"xxhash64({as_json})"
