"""Every type of Debezium's as a column: its default, others that hold it, and values that do not fit."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import types as T

from tablestream.connectors.debezium.columns import Columns, infer
from tablestream.connectors.debezium.decoder import DebeziumDecoder
from tests.cdc.rows import KEY, KEY_7, decode, wrapped
from tests.cdc.vectors import HEADERS

P = "io.debezium.time."
C = "org.apache.kafka.connect.data."
MICROS = 1709212455123456
F32_TENTH = 0.10000000149011612
TYPES: list[tuple[dict[str, Any], Any, str, Any]] = [
    ({"type": "boolean"}, True, "boolean", True),
    ({"type": "int8"}, -5, "tinyint", -5),
    ({"type": "int16"}, 5, "smallint", 5),
    ({"type": "int32"}, 5, "int", 5),
    ({"type": "int64"}, 2**62, "bigint", 2**62),
    ({"type": "float"}, 1.5, "float", 1.5),
    ({"type": "double"}, "-Infinity", "double", float("-inf")),
    ({"type": "string"}, "é", "string", "é"),
    ({"type": "bytes"}, "AP8=", "binary", b"\x00\xff"),
    ({"type": "int32", "name": P + "Year"}, 1999, "int", 1999),
    ({"type": "int32", "name": P + "Date"}, -1, "date", "1969-12-31"),
    ({"type": "int32", "name": C + "Date"}, -1, "date", "1969-12-31"),
    ({"type": "string", "name": P + "IsoDate"}, "2024-02-29Z", "date", "2024-02-29"),
    ({"type": "int32", "name": P + "Time"}, 47655500, "string", "13:14:15.5"),
    ({"type": "int64", "name": P + "MicroTime"}, 86400000000, "string", "24:00:00"),
    ({"type": "int64", "name": P + "NanoTime"}, 1, "string", "00:00:00.000000001"),
    ({"type": "int32", "name": C + "Time"}, 0, "string", "00:00:00"),
    ({"type": "string", "name": P + "IsoTime"}, "13:14:15.123Z", "string", "13:14:15.123"),
    (
        {"type": "int64", "name": P + "Timestamp"},
        1709212455123,
        "timestamp_ntz",
        "2024-02-29 13:14:15.123000",
    ),
    ({"type": "int64", "name": P + "MicroTimestamp"}, MICROS, "timestamp_ntz", "2024-02-29 13:14:15.123456"),
    (
        {"type": "int64", "name": P + "NanoTimestamp"},
        MICROS * 1000,
        "timestamp_ntz",
        "2024-02-29 13:14:15.123456",
    ),
    ({"type": "int64", "name": C + "Timestamp"}, 0, "timestamp_ntz", "1970-01-01 00:00:00"),
    (
        {"type": "string", "name": P + "IsoTimestamp"},
        "1970-01-01T00:00:01Z",
        "timestamp_ntz",
        "1970-01-01 00:00:01",
    ),
    (
        {"type": "string", "name": P + "ZonedTimestamp"},
        "1970-01-01T02:00:00+02:00",
        "timestamp",
        "1970-01-01 00:00:00+00:00",
    ),
    ({"type": "string", "name": P + "ZonedTime"}, "11:14:15.5Z", "string", "11:14:15.5Z"),
    ({"type": "int64", "name": P + "MicroDuration"}, -5, "bigint", -5),
    ({"type": "string", "name": P + "Interval"}, "P1Y", "string", "P1Y"),
    (
        {
            "type": "bytes",
            "name": C + "Decimal",
            "parameters": {"scale": "2", "connect.decimal.precision": "5"},
        },
        "/w==",
        "decimal(5,2)",
        "-0.01",
    ),
    (
        {"type": "bytes", "name": C + "Decimal", "parameters": {"scale": "2"}},
        "/w==",
        "decimal(38,2)",
        "-0.01",
    ),
    (
        {
            "type": "bytes",
            "name": C + "Decimal",
            "parameters": {"scale": "-2", "connect.decimal.precision": "5"},
        },
        "BQ==",
        "decimal(7,0)",
        "500",
    ),
    (
        {
            "type": "bytes",
            "name": C + "Decimal",
            "parameters": {"scale": "3", "connect.decimal.precision": "2"},
        },
        "BQ==",
        "decimal(3,3)",
        "0.005",
    ),
    (
        {
            "type": "bytes",
            "name": C + "Decimal",
            "parameters": {"scale": "30", "connect.decimal.precision": "65"},
        },
        "AQ==",
        "string",
        "0." + "0" * 29 + "1",
    ),
    (
        {
            "type": "struct",
            "name": "io.debezium.data.VariableScaleDecimal",
            "fields": [{"field": "scale", "type": "int32"}, {"field": "value", "type": "bytes"}],
        },
        {"scale": 3, "value": "AeJA"},
        "string",
        "123.456",
    ),
    (
        {"type": "bytes", "name": "io.debezium.data.Bits", "parameters": {"length": "12"}},
        "Awg=",
        "binary",
        b"\x03\x08",
    ),
    *(
        ({"type": "string", "name": f"io.debezium.data.{name}"}, "{}", "string", "{}")
        for name in ("Json", "Xml", "Uuid", "Enum", "EnumSet", "Ltree", "Tsvector")
    ),
    (
        {"type": "array", "items": {"type": "int32", "name": P + "Date"}},
        [0, None],
        "array<date>",
        ["1970-01-01", None],
    ),
    (
        {"type": "map", "keys": {"type": "string"}, "values": {"type": "string"}},
        {"a": None},
        "map<string,string>",
        {"a": None},
    ),
    (
        {"type": "map", "keys": {"type": "int32"}, "values": {"type": "double"}},
        [[1, 0.5]],
        "map<int,double>",
        {1: 0.5},
    ),
    (
        {
            "type": "struct",
            "name": "io.debezium.data.geometry.Point",
            "fields": [{"field": "x", "type": "double"}, {"field": "wkb", "type": "bytes"}],
        },
        {"x": 1, "wkb": "AA=="},
        "struct<x:double,wkb:binary>",
        {"x": 1.0, "wkb": b"\x00"},
    ),
]


def printed(value: Any) -> Any:
    if isinstance(value, list):
        return [printed(one) for one in value]
    return value if value is None or isinstance(value, (bool, int, float, str, bytes, dict)) else str(value)


@pytest.mark.parametrize(("schema", "value", "kind", "wanted"), TYPES)
def test_every_type_has_a_column(schema: dict[str, Any], value: Any, kind: str, wanted: Any) -> None:
    key = wrapped({"id": {"type": "int32"}}, {"id": 7})
    payload = wrapped({"id": {"type": "int32"}, "x": schema}, {"id": 7, "x": value})
    columns = infer([(key, payload)])
    assert columns.value["x"].dataType.simpleString() == kind
    decoder = DebeziumDecoder(columns)
    row = decoder.decode(pa.array([key]), pa.array([payload]), pa.nulls(1, HEADERS))
    assert row[0]["error"].as_py() is None
    assert printed(row[0]["value"]["x"].as_py(maps_as_pydicts="strict")) == wanted


BITS = {"type": "bytes", "name": "io.debezium.data.Bits", "parameters": {"length": "12"}}
OTHER_COLUMNS: list[tuple[dict[str, Any], Any, T.DataType, Any]] = [
    (TYPES[24][0], "infinity", T.StringType(), "infinity"),
    ({"type": "int64", "name": P + "MicroTimestamp"}, 9223372036825200000, T.StringType(), "infinity"),
    ({"type": "int64", "name": P + "MicroTimestamp"}, -63517780800000000, T.StringType(), "-0043-03-15T12:00:00"),
    ({"type": "int64", "name": P + "NanoTimestamp"}, 1, T.StringType(), "1970-01-01T00:00:00.000000001"),
    ({"type": "int32", "name": P + "Date"}, 2932897, T.StringType(), "+10000-01-01"),
    ({"type": "int32", "name": P + "Time"}, 5, T.LongType(), 5000),
    ({"type": "string", "name": P + "ZonedTimestamp"}, "2024-01-01T00:00:00Z", T.LongType(), 1704067200000000),
    (BITS, "Awg=", T.StringType(), "100000000011"),
    (BITS, "Awg=", T.ShortType(), 2051),
    ({"type": "string"}, "123.4", T.DecimalType(5, 2), "123.40"),
    ({"type": "double"}, 12.0, T.IntegerType(), 12),
    ({"type": "bytes", "name": C + "Decimal", "parameters": {"scale": "1"}}, "AQ==", T.DoubleType(), 0.1),
    ({"type": "bytes", "name": C + "Decimal", "parameters": {"scale": "1"}}, "AQ==", T.FloatType(), F32_TENTH),
    ({"type": "string"}, "0.1", T.FloatType(), F32_TENTH),
    ({"type": "string"}, "0.10", T.FloatType(), F32_TENTH),
    ({"type": "string"}, "0.100000001", T.FloatType(), F32_TENTH),
]  # fmt: skip
MISFITS: list[tuple[dict[str, Any], Any, T.DataType, str]] = [
    ({"type": "int64", "name": P + "NanoTimestamp"}, 1, T.TimestampNTZType(), "has more digits than microseconds"),
    ({"type": "int64", "name": P + "Timestamp"}, 2**62, T.TimestampNTZType(), "is too large"),
    ({"type": "int64", "name": P + "MicroTime"}, 839 * 3600 * 10**6, T.StringType(), "is not a time of day"),
    ({"type": "string", "name": P + "IsoDate"}, "2023-02-29Z", T.DateType(), "is not a day of the calendar"),
    ({"type": "string"}, "AP8=", T.BinaryType(), "set binary= to the connector's binary.handling.mode"),
    ({"type": "double"}, 12.5, T.IntegerType(), "is not a whole number"),
    ({"type": "double"}, 0.1, T.FloatType(), "has more digits than float holds"),
    ({"type": "double"}, 1e39, T.FloatType(), "is too large for float"),
    ({"type": "int64"}, 2**53 + 1, T.DoubleType(), "has more digits than double holds"),
    ({"type": "string"}, "0.1234567890123456789", T.DoubleType(), "has more digits"),
    ({"type": "string"}, "0.12345678901", T.FloatType(), "has more digits"),
    ({"type": "string"}, "16777217", T.FloatType(), "has more digits"),
    ({"type": "string"}, "1e5000", T.DecimalType(38, 0), "is not a number"),
    ({"type": "array", "items": {"type": "string"}}, "ab", T.ArrayType(T.StringType()), "is not an array"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "kind", "wanted"), OTHER_COLUMNS)
def test_a_column_may_have_another_type_that_holds_the_value(
    schema: dict[str, Any], value: Any, kind: T.DataType, wanted: Any
) -> None:
    columns = Columns(KEY, T.StructType([T.StructField("x", kind)]))
    row = decode(wrapped({"x": schema}, {"x": value}), columns=columns)
    assert row["error"] is None
    assert printed(row["value"]["x"]) == wanted


@pytest.mark.parametrize(("schema", "value", "kind", "error"), MISFITS)
def test_a_value_that_does_not_fit_exactly_is_an_error(
    schema: dict[str, Any], value: Any, kind: T.DataType, error: str
) -> None:
    columns = Columns(KEY, T.StructType([T.StructField("x", kind)]))
    row = decode(wrapped({"x": schema}, {"x": value}), columns=columns)
    assert row["op"] is None
    assert row["error"].startswith("the field 'x' is ")
    assert error in row["error"]


def test_the_shortest_text_of_a_float_is_read_as_that_float() -> None:
    bits = np.random.default_rng(7).integers(0, 1 << 32, 2000, dtype=np.uint32)
    floats = [one for one in bits.view(np.float32) if np.isfinite(one)]
    columns = Columns(KEY, T.StructType([T.StructField("x", T.FloatType())]))
    decoder = DebeziumDecoder(columns, decimals="string")
    values = [json.dumps({"id": 7, "x": str(one)}).encode() for one in floats]
    keys = pa.array([KEY_7] * len(values), pa.binary())
    rows = decoder.decode(keys, pa.array(values, pa.binary()), pa.nulls(len(values), HEADERS))
    assert rows.field("error").null_count == len(values)
    assert rows.field("value").field("x").to_pylist() == [float(one) for one in floats]
