"""The columns of a message, as SQL: its key, who wrote the record, and what a database's connector says of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl

from tablestream.connectors.files import json_sql
from tablestream.operators.captured.capture import (
    CAPTURE,
    CONTROL,
    DELETE,
    LAST,
    OF_ROWS,
    READ,
    TRUNCATE,
    UPSERT,
)
from tablestream.operators.captured.transactions import EVENT, TRANSACTION
from tablestream.operators.deduplicate import MICRO_BATCH, NUMBER, RECORD_KEY, WRITER, WRITER_HASH
from tablestream.spark.columns import TableColumns, guarded
from tablestream.state.changes import FOREIGN_HASH, LIVE


def value_hash(table: TableColumns) -> str:
    """The hash of a value, which state keeps: it does not depend on how the columns are called in this data frame."""
    columns = [f"{name} AS __value_{number}" for number, name in enumerate(table.names)]
    # In UTC: the session's time zone may be another one after a restart.
    as_json = json_sql(f"struct({', '.join(['1', *columns])})", timeZone="UTC")
    return f"xxhash64({as_json})"


def key_of(parts: Sequence[str], names: Sequence[str], hashed: str) -> dict[str, str]:
    """The key's hash, then its columns."""
    return {hashed: f"xxhash64({', '.join(parts)})" if parts else "0", **dict(zip(names, parts, strict=True))}


#: The columns that a record's writer added, and the hash by which the record goes to its writer's state.
WRITTEN = {
    WRITER: "__writer",
    RECORD_KEY: "__record_key",
    MICRO_BATCH: "__micro_batch",
    NUMBER: "__number",
    WRITER_HASH: guarded("__writer IS NOT NULL", "xxhash64(__writer)"),
    FOREIGN_HASH: guarded("__writer IS NOT NULL", "xxhash64(__writer, __record_key)"),
}


def captured(schema: pl.Schema, there: str) -> dict[str, str]:
    """What a database's connector says of a record: a change of a row, or of all rows."""
    if not {CAPTURE, CONTROL, TRANSACTION} & schema.keys():
        return {}
    op = "__capture.op"
    if TRANSACTION in schema:
        return {
            TRANSACTION: guarded("__capture.number IS NOT NULL", "__capture.transaction"),
            EVENT: "__capture.number",
            FOREIGN_HASH: "0L",
            LIVE: guarded(_is_in(op, (UPSERT, DELETE, READ, TRUNCATE)), "true"),
        }
    if CAPTURE in schema:
        return {CAPTURE: "__capture", LIVE: guarded(_is_in(op, OF_ROWS), there)}
    ends = f"{_is_in(op, [READ])} AND {_is_in('__capture.snapshot', LAST)}"
    return {
        CONTROL: "__capture",
        FOREIGN_HASH: "0L",
        LIVE: guarded(f"{_is_in(op, [TRUNCATE])} OR {ends}", "true"),
    }


def _is_in(column: str, words: Iterable[str]) -> str:
    """Whether a column is one of some words, as SQL."""
    return f"{column} IN ({', '.join(map(repr, words))})"
