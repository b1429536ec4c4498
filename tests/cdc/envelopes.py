"""Writes records as Debezium does: rows of a table as envelopes, in JSON with or without schemas, in every mode.

It is a second reading of the rules, written from the value to the bytes: the decoder goes the other way.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql import types as T

Schema = dict[str, Any]
_NAMES: dict[type[T.DataType], str] = {
    T.BooleanType: "boolean",
    T.ByteType: "int8",
    T.ShortType: "int16",
    T.IntegerType: "int32",
    T.LongType: "int64",
    T.FloatType: "float",
    T.DoubleType: "double",
    T.StringType: "string",
}
_CLOCKS = {
    "milliseconds": ("io.debezium.time.Timestamp", 1000),
    "microseconds": ("io.debezium.time.MicroTimestamp", 1),
    "nanoseconds": ("io.debezium.time.NanoTimestamp", 0),
    "connect": ("org.apache.kafka.connect.data.Timestamp", 1000),
}


@dataclass(frozen=True)
class Envelopes:
    """Writes the records of one table.

    Attributes
    ----------
    key, value
        The table's columns.
    schemas
        Whether records carry their schema.
    decimals, times, binary
        The connector's modes.
    source
        Fields of ``source`` that every record has.
    """

    key: T.StructType
    value: T.StructType
    schemas: bool = False
    decimals: str = "precise"
    times: str = "microseconds"
    binary: str = "bytes"
    source: Mapping[str, Any] = field(default_factory=lambda: {"connector": "postgresql"})

    def key_bytes(self, key: Mapping[str, Any]) -> bytes:
        """Write a key."""
        return self._wrapped(self._struct(self.key), self._row(self.key, key))

    def change(
        self,
        op: str,
        row: Mapping[str, Any] | None,
        *,
        before: Mapping[str, Any] | None = None,
        transaction: Mapping[str, Any] | None = None,
        **source: Any,
    ) -> bytes:
        """Write an envelope; `row` has the columns of key and value."""
        columns = T.StructType([*self.key, *self.value])
        of_row = self._struct(columns) | {"optional": True}
        schema = {
            "type": "struct",
            "name": "server.schema.table.Envelope",
            "fields": [
                of_row | {"field": "before"},
                of_row | {"field": "after"},
                {"type": "struct", "field": "source", "fields": []},
                {"type": "string", "field": "op"},
            ],
        }
        payload = {
            "before": None if before is None else self._row(columns, before),
            "after": None if row is None else self._row(columns, row),
            "source": {**self.source, **source},
            "transaction": transaction,
            "op": op,
            "ts_ms": 1,
        }
        return self._wrapped(schema, payload)

    def flat(self, row: Mapping[str, Any], meta: Mapping[str, Any]) -> bytes:
        """Write a flattened row with its metadata."""
        columns = T.StructType([*self.key, *self.value])
        schema = self._struct(columns)
        schema["fields"] += [{"type": "string", "optional": True, "field": name} for name in meta]
        return self._wrapped(schema, self._row(columns, row) | dict(meta))

    def _wrapped(self, schema: Schema, payload: Any) -> bytes:
        content = {"schema": schema, "payload": payload} if self.schemas else payload
        return json.dumps(content, ensure_ascii=False).encode()

    def _struct(self, columns: T.StructType) -> Schema:
        fields = [
            self.schema(one.dataType) | {"optional": one.nullable, "field": one.name} for one in columns
        ]
        return {"type": "struct", "optional": False, "fields": fields}

    def _row(self, columns: T.StructType, row: Mapping[str, Any]) -> dict[str, Any]:
        return {one.name: self.written(row.get(one.name), one.dataType) for one in columns}

    def schema(self, kind: T.DataType) -> Schema:  # noqa: PLR0911 - one line for each type
        """Return Connect's schema of a column."""
        if isinstance(kind, T.DecimalType):
            return self._decimal_schema(kind)
        if isinstance(kind, T.BinaryType):
            return {"type": "bytes" if self.binary == "bytes" else "string"}
        if isinstance(kind, T.DateType):
            return {"type": "string", "name": "io.debezium.time.IsoDate"} if self._iso else _DATE
        if isinstance(kind, T.TimestampType):
            return {"type": "string", "name": "io.debezium.time.ZonedTimestamp"}
        if isinstance(kind, T.TimestampNTZType):
            if self._iso:
                return {"type": "string", "name": "io.debezium.time.IsoTimestamp"}
            return {"type": "int64", "name": _CLOCKS[self.times][0]}
        if isinstance(kind, T.ArrayType):
            return {"type": "array", "items": self.schema(kind.elementType) | {"optional": True}}
        if isinstance(kind, T.MapType):
            return {"type": "map", "keys": {"type": "string"}, "values": self.schema(kind.valueType)}
        return {"type": _NAMES[type(kind)]}

    def _decimal_schema(self, kind: T.DecimalType) -> Schema:
        if self.decimals != "precise":
            return {"type": self.decimals}
        parameters = {"scale": str(kind.scale), "connect.decimal.precision": str(kind.precision)}
        return {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": parameters}

    @property
    def _iso(self) -> bool:
        return self.times == "isostring"

    def written(self, value: Any, kind: T.DataType) -> Any:  # noqa: PLR0911 - one line for each type
        """Return what a record has for a value."""
        if value is None:
            return None
        if isinstance(kind, T.DecimalType):
            return self._decimal(value, kind)
        if isinstance(kind, T.BinaryType):
            return self._bytes(value)
        if isinstance(kind, T.DateType):
            return f"{value.isoformat()}Z" if self._iso else (value - date(1970, 1, 1)).days
        if isinstance(kind, T.TimestampType):
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        if isinstance(kind, T.TimestampNTZType):
            return self._timestamp(value)
        if isinstance(kind, T.ArrayType):
            return [self.written(one, kind.elementType) for one in value]
        if isinstance(kind, T.MapType):
            return {name: self.written(one, kind.valueType) for name, one in value.items()}
        return _special(value, kind)

    def _decimal(self, value: Decimal, kind: T.DecimalType) -> Any:
        if self.decimals == "string":
            return format(value, "f")
        if self.decimals == "double":
            return float(value)
        unscaled = int(value.scaleb(kind.scale))
        size = unscaled.bit_length() // 8 + 1
        return base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()

    def _bytes(self, value: bytes) -> str:
        if self.binary == "hex":
            return value.hex()
        encode = base64.urlsafe_b64encode if self.binary == "base64-url-safe" else base64.b64encode
        return encode(value).decode()

    def _timestamp(self, value: datetime) -> Any:
        if self._iso:
            return f"{value.isoformat()}Z"
        passed = value - datetime(1970, 1, 1)
        micros = (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds
        unit = _CLOCKS[self.times][1]
        return micros * 1000 if unit == 0 else micros // unit


_DATE = {"type": "int32", "name": "io.debezium.time.Date"}


def _special(value: Any, kind: T.DataType) -> Any:
    """NaN and infinity as text; a float with the digits of a double."""
    if isinstance(value, float) and (value != value or value in {float("inf"), float("-inf")}):  # noqa: PLR0124
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"  # noqa: PLR0124
    return struct.unpack("f", struct.pack("f", value))[0] if isinstance(kind, T.FloatType) else value


def rows_of(columns: Sequence[T.StructType], row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Split a row into the parts that have the given columns."""
    return [{one.name: row.get(one.name) for one in part} for part in columns]
