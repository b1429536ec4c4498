"""One record through the decoder: records written by hand, and the row that they become."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

from tablestream.connectors.debezium.columns import Columns
from tablestream.connectors.debezium.decoder import DebeziumDecoder
from tests.cdc.vectors import HEADERS

KEY = T.StructType([T.StructField("id", T.IntegerType(), nullable=False)])
NAMED = Columns(KEY, T.StructType([T.StructField("name", T.StringType())]))
KEY_7 = b'{"id":7}'


def decode(
    value: Any, key: bytes | None = KEY_7, *, headers: Any = None, columns: Columns = NAMED, **options: Any
) -> dict[str, Any]:
    payload = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
    keys, values = (pa.array([one], pa.binary()) for one in (key, payload))
    found = DebeziumDecoder(columns, **options).decode(keys, values, pa.array([headers], HEADERS))
    row: dict[str, Any] = found.to_pylist()[0]
    return row


def envelope(op: str = "u", after: Any = ..., **source: Any) -> dict[str, Any]:
    row = {"id": 7, "name": "Ada"} if after is ... else after
    return {
        "before": None,
        "after": row,
        "source": {"connector": "postgresql", **source},
        "op": op,
        "ts_ms": 1,
    }


def wrapped(fields: dict[str, dict[str, Any]], payload: dict[str, Any]) -> bytes:
    schema = {"type": "struct", "fields": [{"field": name, **one} for name, one in fields.items()]}
    return json.dumps({"schema": schema, "payload": payload}).encode()
