"""Records in Avro decode to the same rows as JSON."""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass
from decimal import Decimal
from io import BytesIO
from typing import Any

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer

from tablestream.connectors.avro.registry import NoSchemaError
from tablestream.connectors.avro.schema import AvroSchema
from tablestream.connectors.debezium.avro import AvroReader
from tablestream.connectors.debezium.columns import Columns, infer
from tablestream.connectors.debezium.decoder import DebeziumDecoder
from tablestream.connectors.debezium.ends import EndDecoder
from tablestream.connectors.debezium.records import Reader
from tests.cdc.vectors import HEADERS

KEY = {
    "type": "record",
    "name": "Key",
    "namespace": "server.shop.things",
    "fields": [{"name": "id", "type": "int"}],
    "connect.name": "server.shop.things.Key",
}


def named(kind: str, name: str, **others: Any) -> dict[str, Any]:
    return {"type": kind, "connect.version": 1, "connect.name": name, **others}


DECIMAL = named(
    "bytes",
    "org.apache.kafka.connect.data.Decimal",
    scale=4,
    precision=40,
    logicalType="decimal",
    **{"connect.parameters": {"scale": "4", "connect.decimal.precision": "12"}},
)
VARIABLE = {
    "type": "record",
    "name": "VariableScaleDecimal",
    "namespace": "io.debezium.data",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    "connect.name": "io.debezium.data.VariableScaleDecimal",
}
FIELDS: dict[str, Any] = {
    "small": {"type": "int", "connect.type": "int16"},
    "price": DECIMAL,
    "weight": VARIABLE,
    "other_weight": "io.debezium.data.VariableScaleDecimal",
    "opened": named("long", "io.debezium.time.MicroTimestamp"),
    "at": named("string", "io.debezium.time.ZonedTimestamp"),
    "day": named("int", "org.apache.kafka.connect.data.Date", logicalType="date"),
    "raw": "bytes",
    "tags": {"type": "array", "items": ["null", "string"]},
    "ids": {"type": "array", "items": ["null", named("string", "io.debezium.data.Uuid")]},
    "attributes": {"type": "map", "values": ["null", "string"]},
    "note": "string",
    "real": "double",
}
VALUE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "server.shop.things",
    "fields": [
        {
            "name": "before",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Value",
                    "fields": [
                        {"name": "id", "type": "int"},
                        *({"name": name, "type": ["null", kind]} for name, kind in FIELDS.items()),
                    ],
                },
            ],
        },
        {"name": "after", "type": ["null", "Value"]},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "fields": [
                    {"name": "connector", "type": "string"},
                    {"name": "ts_ms", "type": "long"},
                    {"name": "snapshot", "type": ["null", "string"]},
                    {"name": "sequence", "type": ["null", "string"]},
                ],
            },
        },
        {"name": "op", "type": "string"},
    ],
}


#: Of the transaction topic.
END = {
    "type": "record",
    "name": "TransactionMetadataValue",
    "namespace": "io.debezium.connector.common",
    "fields": [
        {"name": "status", "type": "string"},
        {"name": "id", "type": "string"},
        {"name": "event_count", "type": ["null", "long"]},
        {
            "name": "data_collections",
            "type": [
                "null",
                {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "collection",
                        "namespace": "event",
                        "fields": [
                            {"name": "data_collection", "type": "string"},
                            {"name": "event_count", "type": "long"},
                        ],
                    },
                },
            ],
        },
        {"name": "ts_ms", "type": "long"},
    ],
}
SCHEMAS: dict[int, dict[str, Any]] = {1: KEY, 2: VALUE, 3: END}


@dataclass(frozen=True)
class Memory:
    """A registry of three schemas."""

    def schema(self, number: int) -> AvroSchema:
        if number not in SCHEMAS:
            raise NoSchemaError(f"the registry has no Avro schema {number}")
        return AvroSchema.of(json.dumps(SCHEMAS[number]))


def encoded(number: int, value: Any, size: int = 4) -> bytes:
    stream = BytesIO()
    schemaless_writer(stream, parse_schema(SCHEMAS[number]), value)
    return b"\x00" + number.to_bytes(size) + stream.getvalue()


ROW: dict[str, Any] = {
    "id": 7,
    "small": -5,
    "price": Decimal("-99999999.9999"),
    "weight": {"scale": 21, "value": b"\x85"},
    "other_weight": {"scale": 0, "value": b"\x64"},
    "opened": 1709212455123456,
    "at": "2024-02-29T11:14:15.123456Z",
    "day": -1,
    "raw": b"\x00\xff",
    "tags": ["a", None],
    "ids": [],
    "attributes": {"k": None},
    "note": "é",
    "real": float("inf"),
}
SOURCE = {"connector": "postgresql", "ts_ms": 5, "snapshot": "false", "sequence": '["1","2"]'}


def envelope(row: dict[str, Any] | None, op: str = "c") -> dict[str, Any]:
    return {"before": None, "after": row, "source": SOURCE, "op": op}


def columns() -> Columns:
    return infer([(encoded(1, {"id": 7}), encoded(2, envelope(ROW)))], avro=AvroReader(Memory()))


def decode(key: bytes | None, value: bytes | None, reader: AvroReader | None = None) -> dict[str, Any]:
    decoder = DebeziumDecoder(columns(), avro=reader or AvroReader(Memory()))
    found = decoder.decode(pa.array([key]), pa.array([value], pa.binary()), pa.nulls(1, HEADERS))
    row: dict[str, Any] = found.to_pylist(maps_as_pydicts="strict")[0]
    return row


def test_columns_follow_from_the_writers_schema() -> None:
    assert columns().key.simpleString() == "struct<id:int>"
    assert columns().value.simpleString() == (
        "struct<small:smallint,price:decimal(12,4),weight:string,other_weight:string,opened:timestamp_ntz,"
        "at:timestamp,day:date,raw:binary,tags:array<string>,ids:array<string>,attributes:map<string,string>,"
        "note:string,real:double>"
    )
    assert [one.nullable for one in (*columns().key, *columns().value)] == [False] + [True] * 13


@pytest.mark.parametrize("size", [4, 8])
def test_a_record_of_avro_decodes_like_one_of_json(size: int) -> None:
    reader = AvroReader(Memory(), 8 if size == 8 else 4)
    row = decode(encoded(1, {"id": 7}, size), encoded(2, envelope(ROW), size), reader)
    assert row["error"] is None
    assert (row["op"], row["key"], row["ts_us"]) == ("upsert", {"id": 7}, 5000)
    assert row["position"].startswith("00000000000000000001:00000000000000000002:")
    value = {name: one if isinstance(one, (dict, list)) else str(one) for name, one in row["value"].items()}
    assert value == {
        "small": "-5",
        "price": "-99999999.9999",
        "weight": "-0.000000000000000000123",
        "other_weight": "100",
        "opened": "2024-02-29 13:14:15.123456",
        "at": "2024-02-29 11:14:15.123456+00:00",
        "day": "1969-12-31",
        "raw": str(b"\x00\xff"),
        "tags": ["a", None],
        "ids": [],
        "attributes": {"k": None},
        "note": "é",
        "real": "inf",
    }


def test_deletes_and_placeholders_are_found_in_avro() -> None:
    key, placeholder = encoded(1, {"id": 7}), "__debezium_unavailable_value"
    assert decode(key, encoded(2, envelope(None, "d")))["op"] == "delete"
    assert decode(key, None)["op"] == "delete"
    one = str(uuid.UUID(bytes=hashlib.md5(placeholder.encode(), usedforsecurity=False).digest(), version=3))
    unknown = {
        "note": placeholder,
        "raw": placeholder.encode(),
        "tags": [placeholder],
        "ids": [one],
        "attributes": {placeholder: placeholder},
    }
    row = decode(key, encoded(2, envelope({**ROW, **unknown})))
    names = [columns().value.names[position] for position in row["unchanged"]]
    assert names == ["raw", "tags", "ids", "attributes", "note"]
    assert all(row["value"][name] is None for name in names)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b"\x00\x00\x00\x00\x09", "the value cannot be decoded: the registry has no Avro schema 9"),
        (b"\x00\x00", "the value cannot be decoded: it has no schema number"),
        (encoded(2, envelope(ROW))[:-1], "the value cannot be decoded: it is not Avro of this schema"),
        (
            encoded(2, envelope(ROW)) + b"x",
            "the value cannot be decoded: there are bytes after the Avro record",
        ),
    ],
)
def test_bytes_that_are_not_avro_are_an_error(value: bytes, error: str) -> None:
    row = decode(encoded(1, {"id": 7}), value)
    assert row["op"] is None
    assert row["error"].startswith(error)


def test_a_transaction_topic_in_avro_says_the_same_as_one_in_json() -> None:
    counts = [{"data_collection": "s.t", "event_count": 2}, {"data_collection": "s.u", "event_count": 1}]
    end = {"status": "END", "id": "7:90", "event_count": 3, "data_collections": counts, "ts_ms": 5}
    begin = {"status": "BEGIN", "id": "8:91", "event_count": None, "data_collections": None, "ts_ms": 5}
    read = EndDecoder(Reader("__", AvroReader(Memory())))
    forms = [[encoded(3, one), json.dumps(one).encode(), wrapped(one)] for one in (begin, end)]
    (begins, ends) = (read.decode(pa.array(one)).to_pylist() for one in forms)
    nothing = dict.fromkeys(("transaction", "tables", "events", "error"))
    assert begins == [nothing] * 3
    assert ends == [{"transaction": "7", "tables": ["s.t", "s.u"], "events": [2, 1], "error": None}] * 3


def wrapped(value: dict[str, Any]) -> bytes:
    """JSON with a schema."""
    return json.dumps({"schema": {"type": "struct", "fields": []}, "payload": value}).encode()


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"nothing", "it is not JSON"),
        (b"[]", "not the begin or end"),
        (b'{"op": "c", "source": {}, "after": {}}', "not the begin or end"),
        (b'{"status": "END"}', "without 'id'"),
        (b'{"status": "END", "id": "7", "data_collections": 5}', "without 'id' or 'data_collections'"),
        (b'{"status": "END", "id": "7", "data_collections": [{"data_collection": "t"}]}', "'event_count'"),
        (b'{"status": "END", "id": "7", "data_collections": ["t"]}', "'event_count'"),
        (b"\x00\x00\x00\x00\x09", "has no Avro schema 9"),
    ],
)
def test_a_record_of_the_transaction_topic_that_cannot_be_decoded_says_why(value: bytes, why: str) -> None:
    found = EndDecoder(Reader("__", AvroReader(Memory()))).decode(pa.array([value, None])).to_pylist()
    assert why in found[0]["error"]
    assert found[0]["transaction"] is None
    assert found[1] == dict.fromkeys(found[1])
