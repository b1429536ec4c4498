"""What each form of a record means, where its change was made, and what the errors say."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

import tablestream as ts
from tablestream.connectors.debezium.added import announce
from tablestream.connectors.debezium.columns import Columns, infer
from tablestream.connectors.debezium.decoder import DebeziumDecoder
from tablestream.connectors.debezium.source import BY_CONNECTOR, COMMON, field_type
from tablestream.errors import ArgumentError, UnsupportedTypeError
from tests.cdc.rows import KEY, KEY_7, NAMED, decode, envelope, wrapped
from tests.cdc.vectors import HEADERS


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
    ],
)
def test_a_record_is_known_by_its_form(value: Any, op: str) -> None:
    for given in (value, {"schema": None, "payload": value} if isinstance(value, dict) else value):
        row = decode(given)
        assert (row["op"], row["error"]) == (op, None)
        assert row["key"] == (None if op in {"truncate", "skip"} else {"id": 7})
        assert row["value"] == ({"name": "Ada"} if op in {"upsert", "read"} else None)


def test_a_heartbeat_is_known_by_its_key() -> None:
    assert decode({"ts_ms": 5}, b'{"serverName":"shop"}')["op"] == "skip"
    assert decode({"op": "m", "source": {}}, None)["op"] == "skip"
    assert "lacks 'name' and has 'ts_ms'" in decode({"ts_ms": 5})["error"]


def test_the_prefix_of_metadata_can_be_another() -> None:
    row = decode({"id": 7, "name": "Ada", "_x_op": "r", "_x_source_ts_ms": 5}, prefix="_x_")
    assert (row["op"], row["ts_us"], row["added"]) == ("read", 5000, None)


@pytest.mark.parametrize(("text", "op"), [("true", "delete"), ("false", "upsert")])
def test_the_mark_of_a_deleted_row_has_its_name_with_any_prefix(text: str, op: str) -> None:
    row = decode({"id": 7, "name": "Ada", "__deleted": text}, prefix="cdc_")
    assert (row["op"], row["added"]) == (op, None)


def test_the_mark_of_a_deleted_row_is_no_column_of_a_table_with_another_prefix() -> None:
    fields = {"id": {"type": "int32"}, "name": {"type": "string"}, "__deleted": {"type": "string"}}
    flat = wrapped(fields, {"id": 7, "name": "Ada", "__deleted": "false"})
    found = infer([(wrapped({"id": {"type": "int32"}}, {"id": 7}), flat)], prefix="cdc_")
    assert found.value.names == ["name"]


@pytest.mark.parametrize(("prefix", "own"), [("m_", "m_x"), ("__", "__x"), ("cdc_", "__deleted")])
@pytest.mark.parametrize("form", ["plain", "with a schema"])
def test_a_column_with_the_name_of_metadata_is_refused_where_records_are_flattened(
    prefix: str, own: str, form: str
) -> None:
    columns = Columns(KEY, T.StructType().add("name", "string").add(own, "string"))
    row: Any = {"id": 7, "name": "Ada", own: "mine"}
    if form == "with a schema":
        row = wrapped({"id": {"type": "int32"}, "name": {"type": "string"}, own: {"type": "string"}}, row)
    error = decode(row, columns=columns, prefix=prefix)["error"]
    assert f"the table's column '{own}'" in error
    assert f"field_prefix='{prefix}'" in error
    assert "add.fields.prefix" in error
    gone = decode({"id": 7, "name": None, own: None, f"{prefix}op": "d"}, columns=columns, prefix=prefix)
    assert (gone["op"], gone["error"]) == ("delete", None)


@pytest.mark.parametrize(("prefix", "own"), [("m_", "m_x"), ("__", "__x"), ("cdc_", "__deleted")])
def test_a_column_with_the_name_of_metadata_is_read_from_envelopes(prefix: str, own: str) -> None:
    columns = Columns(KEY, T.StructType().add("name", "string").add(own, "string"))
    row = decode(envelope(after={"id": 7, "name": "Ada", own: "mine"}), columns=columns, prefix=prefix)
    assert (row["error"], row["value"]) == (None, {"name": "Ada", own: "mine"})


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
        (envelope("u", '{"_id": 7}', connector="mongodb"), KEY_7, "it is of MongoDB, whose rows are text"),
        (envelope("d", None, connector="mongodb"), KEY_7, "it is of MongoDB, whose rows are text"),
        (
            {"id": "7", "source": "/debezium/postgresql/shop", "specversion": "1.0", "data": envelope()},
            KEY_7,
            "the record lacks 'name' and has 'source', 'specversion', 'data' beside the table's columns",
        ),
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


def test_a_field_whose_type_changed_is_named() -> None:
    row = decode(wrapped({"id": {"type": "int32"}, "name": {"type": "int64"}}, {"id": 7, "name": None}))
    assert row["error"] == "the field 'name' is int64, which does not fit the column's type, string"


def test_a_removed_column_that_is_not_nullable_is_named() -> None:
    columns = Columns(KEY, T.StructType([T.StructField("name", T.StringType(), nullable=False)]))
    row = decode(wrapped({"id": {"type": "int32"}}, {"id": 7}), columns=columns)
    assert row["error"] == "the field 'name' is null or missing"


def test_connectors_without_an_order_have_no_position() -> None:
    assert decode(envelope(connector="vitess", lsn=5))["position"] is None
    assert decode(envelope())["position"] is None


@pytest.mark.parametrize(
    ("source", "micros"),
    [
        ({"ts_ms": 5, "ts_us": 5001, "ts_ns": 5001002}, 5001),
        ({"ts_ms": 6, "ts_us": 5001, "ts_ns": 7001002}, 5001),
        ({"ts_us": 5001}, 5001),
        ({"ts_ms": 5, "ts_ns": 5001002}, 5001),
        ({"ts_ns": 5001002}, 5001),
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


MOVED = [{"key": "__debezium.oldkey", "value": b'{"id":6}'}]


@pytest.mark.parametrize(
    ("op", "headers", "unchanged"),
    [("c", None, None), ("r", None, None), ("u", None, [0]), ("c", MOVED, [0])],
)
@pytest.mark.parametrize("flat", [True, False])
def test_null_of_an_insert_is_null(op: str, headers: Any, unchanged: list[int] | None, flat: bool) -> None:
    row = {"id": 7, "name": None}
    value = row | {"__op": op} if flat else envelope(op, row)
    found = decode(value, headers=headers, unchanged=("name",))
    assert (found["unchanged"], found["value"], found["error"]) == (unchanged, {"name": None}, None)


def test_null_of_an_insert_is_refused_in_a_column_that_is_not_nullable() -> None:
    columns = Columns(KEY, T.StructType([T.StructField("name", T.StringType(), nullable=False)]))
    row = decode(envelope("c", {"id": 7, "name": None}), columns=columns, unchanged=("name",))
    assert row["error"] == "the field 'name' is null or missing"


def test_without_headers_null_of_an_insert_may_be_that_of_a_row_with_another_key() -> None:
    options: dict[str, Any] = {"unchanged": ("name",), "headers_known": False}
    assert decode(envelope("c", {"id": 7, "name": None}), **options)["unchanged"] == [0]
    assert decode(envelope("r", {"id": 7, "name": None}), **options)["unchanged"] is None


@pytest.mark.parametrize(
    ("connector", "op", "headers", "unchanged"),
    [
        ("mysql", "c", None, None),
        ("mariadb", "c", None, None),
        ("mysql", "c", MOVED, [0]),
        ("mysql", "u", None, [0]),
        ("postgresql", "c", None, [0]),
    ],
)
def test_the_placeholder_in_an_insert_of_mysql_is_null(
    connector: str, op: str, headers: Any, unchanged: list[int] | None
) -> None:
    value = envelope(op, {"id": 7, "name": "?"}, connector=connector)
    row = decode(value, headers=headers, placeholder="?")
    assert (row["unchanged"], row["value"]) == (unchanged, {"name": None})
    assert decode(value, headers=headers, placeholder="?", headers_known=False)["unchanged"] == [0]


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


def test_a_header_may_have_control_characters_as_they_are() -> None:
    columns = Columns(T.StructType([T.StructField("id", T.StringType())]), NAMED.value)
    header = [{"key": "__debezium.oldkey", "value": b'{"id":"a\nb"}'}]
    row = decode(envelope("c"), b'{"id":"c"}', columns=columns, headers=header)
    assert (row["moved_from"], row["error"]) == ({"id": "a\nb"}, None)


def test_a_header_that_cannot_be_read_names_the_converter_that_can_be() -> None:
    header = [{"key": "__debezium.oldkey", "value": b'{"id":2020-01-01T00:00:00.000Z}'}]
    error = decode(envelope("c"), headers=header)["error"]
    assert "the header __debezium.oldkey cannot be decoded" in error
    assert "header.converter=org.apache.kafka.connect.json.JsonConverter" in error


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
        {"prefix": ""},
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
    key = wrapped({"at": {"type": "int64", "name": "io.debezium.time.Timestamp"}}, {"at": 1000})
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


def test_a_field_without_a_column_is_announced_once(caplog: pytest.LogCaptureFixture) -> None:
    for names in ([None], [None, ["colour", "size"], ["size"]], [["size"]]):
        announce(pa.array(names, pa.list_(pa.string())), "s.announced")
    assert [one.getMessage().split("'")[1] for one in caplog.records] == ["colour", "size"]
    announce(pa.array([["size"]]), "s.other")
    assert caplog.records[-1].getMessage() == (
        "s.other: records have the field 'size', and the table no such column: it is ignored."
    )


def test_a_field_that_is_left_out_and_that_no_record_has_is_announced_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is no error: a column can be added after the first records."""
    columns = Columns(KEY, T.StructType([]))
    value = pa.array([None, json.dumps(envelope()).encode()], pa.binary())
    for _ in range(2):
        decoder = DebeziumDecoder(columns, except_columns=("name", "nam", "size"))
        decoder.left_out.announce("s.left")  # nothing is known before the first row
        for _ in range(2):
            decoder.decode(pa.array([KEY_7, KEY_7]), value, pa.nulls(2, HEADERS))
            decoder.left_out.announce("s.left")
    assert [one.getMessage() for one in caplog.records] == [
        f"s.left: except_columns= names '{name}', which no record has had so far. Records have 'id', 'name'."
        for name in ("nam", "size")
    ]


def test_a_table_without_a_key_is_refused_with_what_to_do() -> None:
    db = ts.from_debezium(object.__new__(SparkSession), "db", bootstrap_servers="host:9092")
    with pytest.raises(ArgumentError, match=r"key= is missing.*message\.key\.columns"):
        db.table("s.log", columns=T.StructType([T.StructField("n", T.IntegerType())]))
