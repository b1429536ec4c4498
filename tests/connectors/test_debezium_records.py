"""What each form of a record means, where its change was made, and what the errors say."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from tablestream.connectors.debezium import Columns, DebeziumDecoder, infer
from tablestream.connectors.debezium.source import BY_CONNECTOR, COMMON, field_type
from tablestream.errors import ArgumentError, UnsupportedTypeError
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


@pytest.mark.parametrize(
    ("value", "op"),
    [
        (None, "delete"),
        (b"null", "delete"),
        (b'{"schema":null,"payload":null}', "delete"),
        (envelope("c"), "upsert"),
        (envelope("u"), "upsert"),
        (envelope("r"), "read"),
        (envelope("d", None), "delete"),
        ({"source": {}, "op": "d", "before": None}, "delete"),
        (envelope("t", None), "truncate"),
        ({"op": "m", "source": {}, "message": {}}, "skip"),
        ({"id": 7, "name": "Ada"}, "upsert"),
        ({"id": 7, "name": "Ada", "__deleted": "false"}, "upsert"),
        ({"id": 7, "name": None, "__deleted": "true"}, "delete"),
        ({"id": 7, "name": None, "__deleted": True}, "delete"),
        ({"id": 7, "name": None, "__op": "d"}, "delete"),
        ({"id": 7, "name": "Ada", "__op": "r"}, "read"),
        ({"id": 7, "name": "Ada", "__op": "c"}, "upsert"),
        ({"status": "END", "id": "1:2", "event_count": 1, "data_collections": [], "ts_ms": 1}, "skip"),
        ({"source": {}, "ts_ms": 1, "databaseName": "d", "ddl": "alter table", "tableChanges": []}, "skip"),
        (envelope("c", schema="shop", table="signals"), "skip"),
    ],
)
def test_a_record_is_known_by_its_form(value: Any, op: str) -> None:
    for given in (value, {"schema": None, "payload": value} if isinstance(value, dict) else value):
        row = decode(given, signal="shop.signals")
        assert (row["op"], row["error"]) == (op, None)
        assert row["key"] == (None if op in {"truncate", "skip"} else {"id": 7})
        assert row["value"] == ({"name": "Ada"} if op in {"upsert", "read"} else None)


def test_a_heartbeat_is_known_by_its_key() -> None:
    assert decode({"ts_ms": 5}, b'{"serverName":"shop"}')["op"] == "skip"
    assert decode({"op": "m", "source": {}}, None)["op"] == "skip"
    assert decode({"ts_ms": 5})["added"] == ["ts_ms"]


def test_the_prefix_of_metadata_can_be_another() -> None:
    row = decode({"id": 7, "name": "Ada", "_x_op": "r", "_x_source_ts_ms": 5}, prefix="_x_")
    assert (row["op"], row["ts_us"], row["added"]) == ("read", 5000, None)


def test_a_key_may_be_the_value_of_its_only_column() -> None:
    assert decode(envelope(), b"7")["key"] == {"id": 7}
    wrapped = b'{"schema":{"type":"int32","optional":false},"payload":7}'
    assert decode(None, wrapped)["key"] == {"id": 7}


def test_columns_that_do_not_exist_yet_are_null() -> None:
    assert decode(envelope(after={"id": 7}))["value"] == {"name": None}


@pytest.mark.parametrize(
    ("value", "key", "error"),
    [
        (
            envelope(),
            None,
            "the record has no key: the table has no primary key; give it one, or set REPLICA",
        ),
        (None, None, "the record has no key"),
        (envelope(), b'{"no":7}', "the key lacks 'id' and has 'no' beside the table's key"),
        (envelope(), b'{"id":7,"no":7}', "the key has 'no' beside the table's key"),
        (envelope(), b'{"id":null}', "the field 'id' is null or missing"),
        (envelope(), b'{"id":"7"}', "the field 'id' is \"7\", which is not a number"),
        (envelope(), b'{"id":7.5}', "the field 'id' is 7.5, which is not a whole number"),
        (envelope(), b'{"id":true}', "the field 'id' is True, which is not a number"),
        (envelope(), b'{"id":2147483648}', "the field 'id' is 2147483648, which is too large for int"),
        (envelope(), b"{", "the key cannot be decoded: it is not JSON (DecodeError)"),
        (b"\xff", KEY_7, "the value cannot be decoded: it is not JSON"),
        (
            b"\x00\x00\x00\x00\x01",
            KEY_7,
            "the value cannot be decoded: it is not JSON but begins with a zero byte",
        ),
        (b"[]", KEY_7, "the value cannot be decoded: it is not an object"),
        (
            envelope("x"),
            KEY_7,
            "the value cannot be decoded: its operation is 'x', which is none of Debezium's",
        ),
        (envelope("u", None), KEY_7, "its operation is 'u' and the field 'after' has no row"),
        (envelope(after={"name": 7}), KEY_7, "the field 'name' is 7, which is not text"),
        (envelope(after={"name": [1]}), KEY_7, "the field 'name' is [1], which is not text"),
        (envelope(sequence="[1]"), KEY_7, "the field 'source.sequence' is not a pair of positions"),
        (envelope(sequence='["x","1"]'), KEY_7, "the field 'source.sequence' is not a position"),
        (envelope(ts_ms="x"), KEY_7, "the field 'source.ts_us' or 'source.ts_ms' is not a time"),
        (envelope(snapshot="perhaps"), KEY_7, "the field 'source.snapshot' is 'perhaps'"),
        ({**envelope(), "transaction": {"id": 5}}, KEY_7, "the field 'transaction.id' is not text"),
        (
            {**envelope(), "transaction": {"total_order": "5"}},
            KEY_7,
            "'transaction.total_order' is not a number",
        ),
    ],
)
def test_an_undecodable_record_says_which_field_and_why(value: Any, key: bytes | None, error: str) -> None:
    row = decode(value, key)
    assert row["op"] is row["key"] is row["value"] is None
    assert error in row["error"]


def wrapped(fields: dict[str, dict[str, Any]], payload: dict[str, Any]) -> bytes:
    schema = {"type": "struct", "fields": [{"field": name, **one} for name, one in fields.items()]}
    return json.dumps({"schema": schema, "payload": payload}).encode()


def test_a_field_whose_type_changed_is_named() -> None:
    row = decode(wrapped({"id": {"type": "int32"}, "name": {"type": "int64"}}, {"id": 7, "name": None}))
    assert row["error"] == "the field 'name' is int64, which does not fit the column's type, string"


def test_a_removed_column_that_is_not_nullable_is_named() -> None:
    columns = Columns(KEY, T.StructType([T.StructField("name", T.StringType(), nullable=False)]))
    row = decode(wrapped({"id": {"type": "int32"}}, {"id": 7}), columns=columns)
    assert row["error"] == "the field 'name' is null or missing"


P = "io.debezium.time."
C = "org.apache.kafka.connect.data."
MICROS = 1709212455123456
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
]  # fmt: skip
MISFITS: list[tuple[dict[str, Any], Any, T.DataType, str]] = [
    ({"type": "int64", "name": P + "NanoTimestamp"}, 1, T.TimestampNTZType(), "has more digits than microseconds"),
    ({"type": "int64", "name": P + "Timestamp"}, 2**62, T.TimestampNTZType(), "is too large"),
    ({"type": "int64", "name": P + "MicroTime"}, 86400000001, T.StringType(), "is not a time of day"),
    ({"type": "string", "name": P + "IsoDate"}, "2023-02-29Z", T.DateType(), "is not a day of the calendar"),
    ({"type": "string"}, "AP8=", T.BinaryType(), "set binary= to the connector's binary.handling.mode"),
    ({"type": "double"}, 12.5, T.IntegerType(), "is not a whole number"),
    ({"type": "double"}, 0.1, T.FloatType(), "has more digits than float holds"),
    ({"type": "double"}, 1e39, T.FloatType(), "is too large for float"),
    ({"type": "int64"}, 2**53 + 1, T.DoubleType(), "has more digits than double holds"),
    ({"type": "string"}, "0.1234567890123456789", T.DoubleType(), "has more digits"),
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


POSITIONS: dict[str, list[dict[str, Any]]] = {
    "postgresql": [
        {"sequence": '[null,"99"]', "snapshot": "true", "lsn": 99},
        {"sequence": '[null,"100"]', "lsn": 100, "order": 1},
        {"sequence": '["100","90"]', "order": 1},
        {"sequence": '["100","90"]', "order": 2},
        {"sequence": '["100","90"]', "snapshot": "incremental"},
        {"sequence": '["100","1000"]', "order": 1},
    ],
    "mysql": [
        {"file": "bin.000009", "pos": 500, "row": 0, "snapshot": "last"},
        {"file": "bin.000009", "pos": 1000, "row": 0},
        {"file": "bin.000009", "pos": 1000, "row": 1},
        {"file": "bin.000009", "pos": 1000, "row": 1, "snapshot": "incremental"},
        {"file": "bin.000010", "pos": 4, "row": 0},
        {"file": "bin.1000000", "pos": 4, "row": 0},
    ],
    "sqlserver": [
        {"commit_lsn": "0000002a:00000100:0003", "change_lsn": None, "snapshot": "true"},
        {
            "commit_lsn": "0000002A:00000101:0003",
            "change_lsn": "0000002a:000000f0:0002",
            "event_serial_no": 1,
        },
        {
            "commit_lsn": "0000002a:00000101:0003",
            "change_lsn": "0000002a:000000f0:0002",
            "event_serial_no": 2,
        },
        {
            "commit_lsn": "0000002a:00000101:0003",
            "change_lsn": "0000002a:000000f1:0002",
            "event_serial_no": 1,
        },
        {
            "commit_lsn": "0000002b:00000001:0001",
            "change_lsn": "0000002a:000000aa:0002",
            "event_serial_no": 1,
        },
    ],
    "oracle": [
        {"scn": "999", "snapshot": "true"},
        {"scn": "1000", "commit_scn": "1002"},
        {"scn": "900", "commit_scn": "10030", "order": 1},
        {"scn": "800", "commit_scn": "10030", "order": 2},
    ],
}


@pytest.mark.parametrize("connector", POSITIONS)
def test_positions_sort_in_commit_order(connector: str) -> None:
    found = []
    for given in POSITIONS[connector]:
        source = {name: one for name, one in given.items() if name != "order"} | {"connector": connector}
        value = envelope(**source) | {"transaction": {"id": "5:6", "total_order": given.get("order")}}
        row = decode(value)
        assert row["error"] is None
        found.append(row["position"])
        flat = {f"__source_{name}": one for name, one in source.items() if name != "connector"}
        order = {"__transaction_total_order": given.get("order")}
        if connector != "oracle" or "commit_scn" in given:
            assert decode({"id": 7, "name": "Ada", **flat, **order})["position"] == row["position"]
    assert found == sorted(set(found))


def test_connectors_without_an_order_have_no_position() -> None:
    assert decode(envelope(connector="vitess", lsn=5))["position"] is None
    assert decode(envelope())["position"] is None


@pytest.mark.parametrize(
    ("source", "micros"),
    [
        ({"ts_ms": 5, "ts_us": 5001, "ts_ns": 5001002}, 5001),
        ({"ts_ms": 5, "ts_ns": 5001002}, 5001),
        ({"ts_ms": 5}, 5000),
        ({}, None),
    ],
)
def test_the_time_is_the_databases_in_microseconds(source: dict[str, Any], micros: int | None) -> None:
    assert decode(envelope(**source))["ts_us"] == micros
    assert (
        decode({"id": 7, "__ts_ms": 1, **{f"__source_{k}": v for k, v in source.items()}})["ts_us"] == micros
    )


def test_a_snapshot_may_be_told_by_a_boolean() -> None:
    assert decode(envelope(snapshot=True))["snapshot"] == "true"
    assert decode(envelope(snapshot=False))["snapshot"] is None
    assert decode(envelope(snapshot="false"))["snapshot"] is None
    assert decode(envelope(snapshot="last"))["snapshot"] == "last"


@pytest.mark.parametrize(
    ("connector", "given", "wanted"),
    [
        ("postgresql", "571:53195832", "571"),
        ("mysql", "571:53", "571:53"),
        ("mysql", "0af3-11:7", "0af3-11:7"),
        ("sqlserver", "0000002a:00000101:0003", "0000002a:00000101:0003"),
    ],
)
def test_only_postgresqls_transaction_has_a_position_after_its_name(
    connector: str, given: str, wanted: str
) -> None:
    value = envelope(connector=connector) | {"transaction": {"id": given, "total_order": 3}}
    row = decode(value)
    assert (row["transaction"], row["total_order"]) == (wanted, 3)


def test_fields_of_source_can_be_columns() -> None:
    row = decode(envelope(ts_ms=5, txId=7, snapshot="last"), source=("ts_ms", "txId", "snapshot", "gtid"))
    assert row["value"] == {
        "name": "Ada",
        "source_ts_ms": 5,
        "source_txId": "7",
        "source_snapshot": "last",
        "source_gtid": None,
    }
    assert (
        "source.ts_ms"
        in decode({"id": 7, "__source_ts_ms": "x", "__source_ts_us": 1}, source=("ts_ms",))["error"]
    )
    assert all(field_type(name) for fields in (COMMON, *BY_CONNECTOR.values()) for name in fields)


def test_null_of_a_partial_row_means_as_before() -> None:
    assert decode(envelope(after={"id": 7, "name": None}), unchanged=("name",))["unchanged"] == [0]
    assert decode(envelope(after={"id": 7}), unchanged=("name",))["unchanged"] == [0]
    assert decode(envelope(), unchanged=("name",))["unchanged"] is None
    columns = Columns(KEY, T.StructType([T.StructField("name", T.StringType(), nullable=False)]))
    assert decode(envelope(after={"id": 7}), columns=columns, unchanged=("name",))["unchanged"] == [0]


def test_the_placeholder_can_be_another() -> None:
    row = decode(envelope(after={"id": 7, "name": "?"}), placeholder="?")
    assert (row["unchanged"], row["value"]) == ([0], {"name": None})
    assert decode(envelope(after={"id": 7, "name": "?"}), placeholder="hex:3f")["unchanged"] == [0]
    binary = Columns(KEY, T.StructType([T.StructField("name", T.BinaryType())]))
    row = decode(envelope(after={"id": 7, "name": "3f3f"}), placeholder="??", columns=binary, binary="hex")
    assert row["unchanged"] == [0]
    assert decode(envelope(after={"id": 7, "name": "??"}))["unchanged"] is None


def test_a_header_names_the_key_before_a_change_of_the_key() -> None:
    row = decode(envelope("c"), headers=[{"key": "__debezium.oldkey", "value": b'{"id":6}'}])
    assert (row["moved_from"], row["moved_to"]) == ({"id": 6}, None)
    row = decode(envelope("d", None), headers=[{"key": "__debezium.newkey", "value": b'{"id":8}'}])
    assert (row["moved_from"], row["moved_to"]) == (None, {"id": 8})
    row = decode(envelope("c"), headers=[{"key": "__debezium.oldkey", "value": b'{"no":6}'}])
    assert "the key lacks 'id'" in row["error"]
    assert decode(envelope("c"), headers=[{"key": "other", "value": b"{"}])["error"] is None


def test_headers_belong_to_their_own_record() -> None:
    old = [{"key": "other", "value": None}, {"key": "__debezium.oldkey", "value": b'{"id":6}'}]
    headers = pa.array([None, [], old] * 500, HEADERS)
    value = json.dumps(envelope("c")).encode()
    found = DebeziumDecoder(NAMED).decode(pa.array([KEY_7] * 1500), pa.array([value] * 1500), headers)
    assert found.field("moved_from").to_pylist() == [None, None, {"id": 6}] * 500


def test_times_without_a_schema_have_the_unit_of_their_column() -> None:
    kinds = {"a": T.TimestampNTZType(), "b": T.TimestampNTZType(), "c": T.StringType(), "d": T.StringType()}
    columns = Columns(KEY, T.StructType([T.StructField(name, kind) for name, kind in kinds.items()]))
    row = {"id": 7, "a": 1000, "b": 1000, "c": 5000, "d": "x"}
    times = {"a": "milliseconds", "c": "microseconds"}
    value = decode(envelope(after=row), columns=columns, times=times)["value"]
    assert [str(value[name]) for name in "abcd"] == [
        "1970-01-01 00:00:01",
        "1970-01-01 00:00:00.001000",
        "00:00:00.005",
        "x",
    ]
    assert "which is not text" in decode(envelope(after=row), columns=columns)["error"]


def test_decimals_without_a_schema_have_the_scale_of_their_column_or_their_own() -> None:
    columns = Columns(
        KEY, T.StructType([T.StructField("x", T.DecimalType(20, 2)), T.StructField("y", T.StringType())])
    )
    row = {"id": 7, "x": "/w==", "y": {"scale": 3, "value": "AeJA"}}
    value = decode(envelope(after=row), columns=columns)["value"]
    assert (str(value["x"]), value["y"]) == ("-0.01", "123.456")
    big = b'{"op":"c","after":{"id":7,"x":123456789012345678.25},"source":{}}'
    assert str(decode(big, columns=columns, decimals="double")["value"]["x"]) == "123456789012345678.25"


@pytest.mark.parametrize(
    "options",
    [
        {"decimals": "exact"},
        {"times": "seconds"},
        {"times": {"name": "seconds"}},
        {"binary": "hexadecimal"},
        {"placeholder": "hex:xyz"},
        {"unchanged": ("nothing",)},
        {"source": ("nothing",)},
        {"columns": Columns(T.StructType([]), KEY)},
        {"columns": Columns(KEY, KEY)},
    ],
)
def test_options_that_are_none_of_debeziums_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        DebeziumDecoder(**{"columns": NAMED, **options})


def test_a_column_type_that_no_record_has_is_refused() -> None:
    with pytest.raises(UnsupportedTypeError, match="'name' is interval"):
        DebeziumDecoder(Columns(KEY, T.StructType([T.StructField("name", T.DayTimeIntervalType())])))


def test_columns_cannot_be_found_without_schemas() -> None:
    with pytest.raises(ArgumentError, match="schemas"):
        infer([(KEY_7, json.dumps(envelope()).encode()), (None, None), (b"{", b"{")])


def test_no_records_are_no_rows() -> None:
    decoder = DebeziumDecoder(NAMED)
    found = decoder.decode(pa.array([], pa.binary()), pa.array([], pa.binary()), pa.array([], HEADERS))
    assert pa.schema(list(found.type)) == decoder.schema


def test_a_header_without_a_schema_has_that_of_the_key() -> None:
    columns = Columns(T.StructType([T.StructField("at", T.TimestampNTZType())]), NAMED.value)
    key = wrapped({"at": {"type": "int64", "name": P + "Timestamp"}}, {"at": 1000})
    header = [{"key": "__debezium.oldkey", "value": b'{"at":2000}'}]
    row = decode(envelope("c"), key, columns=columns, headers=header)
    assert str(row["key"]["at"]) == "1970-01-01 00:00:01"
    assert str(row["moved_from"]["at"]) == "1970-01-01 00:00:02"


def test_rows_of_several_schemas_come_back_in_their_order() -> None:
    first = wrapped({"name": {"type": "string"}}, {"name": "a"})
    second = wrapped({"name": {"type": "string"}, "more": {"type": "int32"}}, {"name": "b", "more": 1})
    values = [first, second, None, first, b"{", second] * 300
    decoder = DebeziumDecoder(NAMED)
    found = decoder.decode(pa.array([KEY_7] * 1800), pa.array(values), pa.nulls(1800, HEADERS)).to_pylist()
    names = [row["value"] and row["value"]["name"] for row in found]
    assert names == ["a", "b", None, "a", None, "b"] * 300
    assert [row["added"] for row in found] == [None, ["more"], None, None, None, ["more"]] * 300
