"""Avro without Spark: which columns a schema makes, rows there and back, and what any bytes become."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import types as T

from tablestream.connectors.avro import registry as avro_registry
from tablestream.connectors.avro.codec import (
    AvroEncoder,
    ConfluentAvro,
    PlainAvro,
    UndecodableError,
    decoded,
    read,
)
from tablestream.connectors.avro.format import avro, check_columns, confluent_avro
from tablestream.connectors.avro.registry import Registry
from tablestream.connectors.avro.schema import AvroSchema, columns_of
from tablestream.errors import ArgumentError, RecordEncodingError, RegistryError, UnsupportedTypeError
from tests.kafka.registry import SchemaRegistry, schema_registry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tablestream.connectors.formats import Part


def record(name: str, /, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": n, "type": kind} for n, kind in fields.items()],
    }


def logical(kind: str, meaning: str, **further: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": meaning, **further}


FIXED = {"type": "fixed", "name": "Four", "size": 4}
EVERYTHING = record(
    "Everything",
    boolean="boolean",
    int="int",
    long="long",
    float="float",
    double="double",
    string="string",
    bytes="bytes",
    fixed=FIXED,
    fixed_again="Four",
    enum={"type": "enum", "name": "Suit", "symbols": ["SPADES", "HEARTS"]},
    decimal=logical("bytes", "decimal", precision=12, scale=3),
    decimal_fixed=logical("fixed", "decimal", name="Sixteen", size=16, precision=38, scale=18),
    date=logical("int", "date"),
    millis=logical("long", "timestamp-millis"),
    micros=logical("long", "timestamp-micros"),
    local_millis=logical("long", "local-timestamp-millis"),
    local_micros=logical("long", "local-timestamp-micros"),
    time=logical("int", "time-millis"),
    uuid=logical("string", "uuid"),
    nullable=["null", "long"],
    nullable_last=["string", "null"],
    number=["null", "int", "long"],
    real=["float", "double"],
    array={"type": "array", "items": ["null", logical("long", "timestamp-millis")]},
    map={"type": "map", "values": record("Point", x="int", at=["null", logical("long", "timestamp-micros")])},
    inner=["null", "Point"],
)
COLUMNS = (
    "struct<boolean:boolean,int:int,long:bigint,float:float,double:double,string:string,bytes:binary,fixed:binary,"
    "fixed_again:binary,enum:string,decimal:decimal(12,3),decimal_fixed:decimal(38,18),date:date,millis:timestamp,"
    "micros:timestamp,local_millis:timestamp_ntz,local_micros:timestamp_ntz,time:int,uuid:string,nullable:bigint,"
    "nullable_last:string,number:bigint,real:double,array:array<timestamp>,map:map<string,struct<x:int,at:timestamp>>,"
    "inner:struct<x:int,at:timestamp>>"
)
SCHEMA = AvroSchema.of(EVERYTHING)
KIND = columns_of(SCHEMA, "value")[1]
PLAIN = PlainAvro(SCHEMA)

ints, longs = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
single = st.floats(width=32, allow_nan=False)
moments = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 30))
times = moments.map(lambda moment: moment.replace(tzinfo=UTC))
points = st.fixed_dictionaries({"x": ints, "at": st.none() | times})


def to_millis(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


ROWS = st.fixed_dictionaries(
    {
        "boolean": st.booleans(),
        "int": ints,
        "long": longs,
        "float": single,
        "double": st.floats(allow_nan=False),
        "string": st.text(),
        "bytes": st.binary(),
        "fixed": st.binary(min_size=4, max_size=4),
        "fixed_again": st.binary(min_size=4, max_size=4),
        "enum": st.sampled_from(["SPADES", "HEARTS"]),
        "decimal": st.decimals(-(10**9) + 1, 10**9 - 1, places=3),
        "decimal_fixed": st.decimals(-(10**19), 10**19, places=18),
        "date": st.dates(),
        "millis": times.map(to_millis),
        "micros": times,
        "local_millis": moments.map(to_millis),
        "local_micros": moments,
        "time": ints,
        "uuid": st.uuids().map(str),
        "nullable": st.none() | longs,
        "nullable_last": st.none() | st.text(),
        "number": st.none() | longs,
        "real": st.floats(allow_nan=False),
        "array": st.lists(st.none() | times.map(to_millis)),
        "map": st.dictionaries(st.text(), points),
        "inner": st.none() | points,
    }
)
GOOD = {
    "boolean": True, "int": 1, "long": 2**40, "float": 0.5, "double": 0.1, "string": "é", "bytes": b"\xff",
    "fixed": b"abcd", "fixed_again": b"abcd", "enum": "HEARTS", "decimal": Decimal("1.500"),
    "decimal_fixed": Decimal("-2.5"), "date": date(2024, 2, 29),
    "millis": datetime(2024, 1, 1, 0, 0, 0, 1000, tzinfo=UTC), "micros": datetime(1969, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    "local_millis": datetime(2024, 1, 1), "local_micros": datetime(2024, 1, 1, 0, 0, 0, 1), "time": 5,
    "uuid": "00000000-0000-0000-0000-000000000001", "nullable": None, "nullable_last": None, "number": 2**40,
    "real": 0.1, "array": [None], "map": {"a": {"x": 1, "at": None}}, "inner": None,
}  # fmt: skip


def encoded(row: Any) -> bytes:
    (payload,) = AvroEncoder(SCHEMA)(pa.array([row], KIND.arrow)).to_pylist()
    return bytes(payload)


def told(payload: bytes | None, decode: Any = PLAIN, kind: Any = KIND) -> Any:
    """What becomes of one record: its row and its error."""
    array = decoded([payload], decode, kind, None)
    assert array.type == pa.struct([("row", kind.arrow), ("error", pa.string())])
    (result,) = array.to_pylist(maps_as_pydicts="strict")
    return result["row"], result["error"]


# Schemas


def test_every_type_is_a_column() -> None:
    columns, kind, is_record = columns_of(SCHEMA, "value")
    assert kind.spark == columns
    assert columns.simpleString() == COLUMNS
    assert is_record


@pytest.mark.parametrize(
    ("schema", "columns"),
    [
        ("string", "struct<key:string>"),
        ('"long"', "struct<key:bigint>"),
        (["null", "bytes"], "struct<key:binary>"),
    ],
)
def test_what_is_no_record_is_one_column(schema: Any, columns: str) -> None:
    assert avro(schema).decoder("key", ["t"]).columns.simpleString() == columns


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (["int", "string"], "a union of several types"),
        (["null"], "a union of several types"),
        ("null", "the Avro type null"),
        (record("Nothing"), "a record without fields"),
        ({"type": "record", "name": "Nothing"}, "a record without fields"),
        (["null", "R"], "a record inside itself"),
        (logical("bytes", "decimal", precision=39, scale=2), "decimals of 39 digits"),
    ],
)
def test_what_is_no_column_is_refused_by_name(kind: Any, what: str) -> None:
    with pytest.raises(UnsupportedTypeError, match=rf"'value\.a\.b' of the Avro schema is {what}"):
        avro(record("Q", a=record("R", b=kind))).decoder("value", ["t"])


def doubled(levels: int) -> Any:
    """Records of which each names the one before it twice: 2**levels parts, and a value takes no bytes."""
    inner: Any = record("R0", a="null")
    for level in range(1, levels):
        inner = record(f"R{level}", a=inner, b=f"R{level - 1}")
    return inner


def nested(levels: int) -> Any:
    """Arrays of arrays of numbers."""
    kind: Any = "int"
    for _ in range(levels):
        kind = {"type": "array", "items": kind}
    return kind


@pytest.mark.parametrize(
    ("schema", "why"),
    [(doubled(60), "more than 10,000 parts"), (record("Q", a=nested(300)), "deeper than 100 levels")],
)
def test_what_would_take_a_reader_for_ever_is_refused(schema: Any, why: str) -> None:
    with pytest.raises(ArgumentError, match=f"Avro schema (has|is nested) {why}"):
        AvroSchema.of(schema)
    assert avro(doubled(10)) is not None


@pytest.mark.parametrize("schema", ["{", "", "nosuch", {"type": "record"}, 5])
def test_what_is_no_schema_is_refused(schema: Any) -> None:
    with pytest.raises(ArgumentError, match="not an Avro schema"):
        avro(schema)


def test_equal_schemas_are_equal_however_they_are_given() -> None:
    assert AvroSchema.of(json.dumps(EVERYTHING, indent=4)) == SCHEMA


# There and back


@given(ROWS)
@example(GOOD)
def test_a_row_comes_back(row: dict[str, Any]) -> None:
    assert told(encoded(row)) == (row, None)


def test_another_writer_s_record_is_read() -> None:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(EVERYTHING), GOOD)
    assert told(stream.getvalue()) == (GOOD, None)


def test_no_record_is_no_row_and_no_error() -> None:
    assert told(None) == (None, None)
    assert AvroEncoder(SCHEMA)(pa.array([None], KIND.arrow)).to_pylist() == [None]


def test_a_row_that_the_schema_cannot_hold_is_an_error() -> None:
    with pytest.raises(RecordEncodingError, match=r"(?s)A row cannot be written as Avro: .*JOKER"):
        encoded({**GOOD, "enum": "JOKER"})


@pytest.mark.parametrize(
    ("kind", "value", "arrow"),
    [
        ("boolean", None, pa.bool_()),
        ({"type": "array", "items": "boolean"}, [True, None], pa.list_(pa.bool_())),
        (record("R", x=["null", "int"]), {}, pa.struct([])),
        ("int", None, pa.int32()),
    ],
)
def test_null_and_what_is_missing_are_no_values(kind: Any, value: Any, arrow: pa.DataType) -> None:
    """Fastavro would write null as false."""
    encode = AvroEncoder(AvroSchema.of(record("Q", a=kind)))
    with pytest.raises(RecordEncodingError, match="A row cannot be written as Avro"):
        encode(pa.array([{"a": value}], pa.struct([("a", arrow)])))


def test_null_is_no_boolean_but_may_be_one_of_two() -> None:
    rows = pa.array([{"key": None}], pa.struct([("key", pa.bool_())]))
    assert AvroEncoder(AvroSchema.of(["null", "boolean"]), wrapped="key")(rows).to_pylist() == [b"\x00"]
    with pytest.raises(RecordEncodingError, match="expected boolean"):
        AvroEncoder(AvroSchema.of("boolean"), wrapped="key")(rows)


# Which columns a schema takes

DECIMAL = logical("bytes", "decimal", precision=12, scale=3)
STAMP = logical("long", "timestamp-millis")
INTS, LONGS = {"type": "array", "items": "int"}, {"type": "map", "values": ["null", "long"]}
X_INT = T.StructType([T.StructField("x", T.IntegerType())])


def check(kind: Any, column: T.DataType, part: Part = "value") -> None:
    """Look whether a column fits a schema."""
    check_columns(AvroSchema.of(kind), part, "t", T.StructType([T.StructField("a", column)]))


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("int", T.IntegerType()), ("int", T.ByteType()), ("long", T.IntegerType()),
        (["null", "int", "long"], T.ShortType()), ("double", T.FloatType()), (["float", "double"], T.DoubleType()),
        ("string", T.StringType()), ("boolean", T.BooleanType()), (DECIMAL, T.DecimalType(12, 3)),
        (DECIMAL, T.DecimalType(9, 0)), (STAMP, T.TimestampType()), (FIXED, T.BinaryType()),
        (INTS, T.ArrayType(T.ShortType())), (LONGS, T.MapType(T.StringType(), T.IntegerType())),
        (["null", record("R", x="long")], X_INT),
    ],
)  # fmt: skip
def test_a_column_that_a_schema_holds(kind: Any, column: T.DataType) -> None:
    check(record("Q", a=kind), column)


@pytest.mark.parametrize(
    ("kind", "column", "what"),
    [
        ("int", T.LongType(), "int for the column a, which is bigint"),
        ("int", T.DoubleType(), "int for the column a, which is double"),
        ("float", T.DoubleType(), "float for the column a, which is double"),
        ("double", T.LongType(), "double for the column a, which is bigint"),
        ("boolean", T.StringType(), "boolean for the column a, which is string"),
        ("string", T.BinaryType(), "string for the column a, which is binary"),
        (STAMP, T.LongType(), "timestamp for the column a, which is bigint"),
        (STAMP, T.TimestampNTZType(), "timestamp for the column a, which is timestamp_ntz"),
        (DECIMAL, T.DecimalType(12, 4), r"decimal\(12,3\) for the column a, which is decimal\(12,4\)"),
        (DECIMAL, T.DecimalType(12, 2), r"decimal\(12,3\) for the column a, which is decimal\(12,2\)"),
        (INTS, T.ArrayType(T.LongType()), "int for the column a.element, which is bigint"),
        (LONGS, T.MapType(T.StringType(), T.DoubleType()), "bigint for the column a.value, which is double"),
        (LONGS, T.MapType(T.IntegerType(), T.LongType()), "string for the column a.key, which is int"),
        (record("R", y="int"), X_INT, "no field for the column a.x"),
        (INTS, T.IntegerType(), "array<int> for the column a, which is int"),
    ],
)
def test_a_column_that_a_schema_would_change_is_refused(kind: Any, column: T.DataType, what: str) -> None:
    """Fastavro writes other numbers, or false, and says nothing."""
    with pytest.raises(ArgumentError, match=rf"schema for the value of topic 't' has {what}\."):
        check(record("Q", a=kind), column)


def test_a_record_may_be_a_part_of_a_union_or_a_name() -> None:
    quote = AvroSchema.of(record("Q", a="int"))
    named = AvroSchema('"Q"', (quote.text,))
    column = T.StructType([T.StructField("a", T.IntegerType())])
    for schema in (
        AvroSchema.of(["null", record("Q", a="int")]),
        named,
        AvroSchema('["Q", "null"]', (quote.text,)),
    ):
        check_columns(schema, "value", "t", column)
        (payload,) = AvroEncoder(schema)(pa.array([{"a": 5}])).to_pylist()
        assert payload[-1:] == b"\x0a"
        with pytest.raises(ArgumentError, match="a field a without a default and without a column"):
            check_columns(schema, "value", "t", T.StructType())


def test_a_schema_of_one_column_needs_one() -> None:
    with pytest.raises(ArgumentError, match="has a string and no column for it"):
        check_columns(AvroSchema.of("string"), "value", "t", T.StructType())


@pytest.mark.parametrize("kind", [STAMP, ["null", STAMP], record("Q", a=STAMP)])
def test_a_key_is_not_cut_to_milliseconds(kind: Any) -> None:
    check(kind, T.TimestampType())
    with pytest.raises(
        ArgumentError, match=r"schema for the key of topic 't' has milliseconds for the column"
    ):
        check(kind, T.TimestampType(), "key")
    check(logical("long", "timestamp-micros"), T.TimestampType(), "key")


# Any bytes


def is_row_or_error(payload: bytes) -> bool:
    """Say whether a record is one of both; without its Python values, which have no date before the year 1."""
    array = decoded([payload], PLAIN, KIND, None)
    return bool(array.field("row")[0].is_valid is not array.field("error")[0].is_valid)


@given(st.binary())
@example(b"")
def test_any_bytes_are_a_row_or_an_error(payload: bytes) -> None:
    assert is_row_or_error(payload)


@given(ROWS, st.data())
def test_a_record_that_was_cut_is_an_error(row: dict[str, Any], data: st.DataObject) -> None:
    payload = encoded(row)
    cut = data.draw(st.integers(0, len(payload) - 1))
    assert told(payload[:cut])[1] is not None
    assert told(payload + b"\x00") == (None, "there are bytes after the Avro record")


@given(ROWS, st.data())
def test_a_record_with_another_byte_is_a_row_or_an_error(row: dict[str, Any], data: st.DataObject) -> None:
    payload = bytearray(encoded(row))
    payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    assert is_row_or_error(bytes(payload))


def test_a_bad_record_does_not_touch_its_neighbours() -> None:
    kind = columns_of(AvroSchema.of(record("R", x="int")), "value")[1]
    payloads = [b"\x02", b"\xff\xff\xff\xff\xff\x7f", b"", None, b"\x04"]  # the second is an int of 41 bits
    rows = decoded(payloads, PlainAvro(AvroSchema.of(record("R", x="int"))), kind, None).to_pylist()
    assert [row["row"] for row in rows] == [{"x": 1}, None, None, None, {"x": 2}]
    assert [row["error"] for row in rows] == [
        None, "a number does not fit the schema's type", "it is not Avro of this schema (EOFError)", None, None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        (logical("long", "timestamp-millis"), 1_704_186_000_000_000),
        (logical("long", "local-timestamp-micros"), 1_704_186_000_000_000_000),
        (logical("int", "date"), 20_240_102),
    ],
)
@pytest.mark.parametrize("around", [None, "array", "map"])
def test_a_time_of_another_unit_than_the_schema_s_is_an_error(
    kind: Any, number: int, around: str | None
) -> None:
    inner = {"type": "array", "items": kind} if around == "array" else {"type": "map", "values": kind}
    written = {"array": [number], "map": {"k": number}}.get(around or "", number)
    raw = (
        kind["type"]
        if around is None
        else {**inner, ("items" if around == "array" else "values"): kind["type"]}
    )
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(record("One", at=raw)), {"at": written})
    schema = AvroSchema.of(record("One", at=kind if around is None else inner))
    _, columns, _ = columns_of(schema, "value")
    row, error = told(stream.getvalue(), PlainAvro(schema), columns)
    assert (row, error) == (None, "a number does not fit the schema's type")


def test_an_avro_null_is_no_tombstone() -> None:
    schema = AvroSchema.of(["null", record("R", x="int")])
    kind = columns_of(schema, "value")[1]
    assert told(b"\x00", PlainAvro(schema), kind) == (None, "it is an Avro null")
    assert told(b"\x02\x02", PlainAvro(schema), kind) == ({"x": 1}, None)


# With a registry


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as running:
        yield running


def client(registry: SchemaRegistry, **settings: Any) -> Registry:
    return Registry(json.dumps({"url": registry.url, **settings}))


OLD = record("Quote", price="double")
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "size", "type": "int", "default": 7}]}
PRICE = b"\x00\x00\x00\x00\x00\x00\xf8\x3f"  # 1.5


def framed(number: int, body: bytes) -> bytes:
    return b"\x00" + number.to_bytes(4) + body


def test_each_record_is_read_with_its_own_schema_into_the_wanted_one(registry: SchemaRegistry) -> None:
    old, new = registry.add("q-value", OLD), registry.add("q-value", NEW)
    for wanted, rows in (
        (OLD, [{"price": 1.5}, {"price": 1.5}]),
        (NEW, [{"price": 1.5, "size": 7}, {"price": 1.5, "size": 3}]),
    ):
        schema = AvroSchema.of(wanted)
        decode, kind = ConfluentAvro(client(registry), schema), columns_of(schema, "value")[1]
        payloads = [framed(old, PRICE), framed(new, PRICE + b"\x06")]
        assert [told(one, decode, kind) for one in payloads] == [(row, None) for row in rows]


def test_the_registry_is_asked_once_for_a_number(registry: SchemaRegistry) -> None:
    number, schema = registry.add("q-value", OLD), AvroSchema.of(OLD)
    decode = pickle.loads(pickle.dumps(ConfluentAvro(client(registry), schema)))  # noqa: S301 - just made
    kind = columns_of(schema, "value")[1]
    assert decoded([framed(number, PRICE)] * 5, decode, kind, None).null_count == 0
    assert registry.asked == [f"/schemas/ids/{number}"]


def test_it_is_asked_once_a_record_batch_for_a_number_that_it_does_not_have(registry: SchemaRegistry) -> None:
    schema = AvroSchema.of(OLD)
    decode, kind = ConfluentAvro(client(registry), schema), columns_of(schema, "value")[1]
    payloads = [framed(1, PRICE), framed(2, PRICE), None, framed(1, PRICE)]
    found = decoded(payloads, decode, kind, None).to_pylist()
    assert [one["error"] for one in found] == [
        f"the registry has no Avro schema {number}" if number else None for number in (1, 2, None, 1)
    ]
    assert registry.asked == ["/schemas/ids/1", "/schemas/ids/2"]
    registry.add("q-value", OLD)
    assert decoded(payloads[:1], decode, kind, None).to_pylist()[0]["row"] == {"price": 1.5}


@pytest.mark.parametrize("text", ["{", '["null", "Nosuch"]', '"nosuch"', '{"type": "enum"}'])
def test_a_registered_schema_that_is_none_makes_bad_records(registry: SchemaRegistry, text: str) -> None:
    number, schema = registry.add("q-value", text), AvroSchema.of(OLD)
    row, error = told(
        framed(number, PRICE), ConfluentAvro(client(registry), schema), columns_of(schema, "v")[1]
    )
    assert row is None
    assert error.startswith(f"schema {number} of the registry is not valid: This is not an Avro schema: ")


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        (b"", "does not begin with a zero byte and a schema number"),
        (b"\x00\x00\x00\x00", "does not begin with a zero byte"),
        (b"\x01\x00\x00\x00\x01" + PRICE, "does not begin with a zero byte"),
        (framed(99, PRICE), "the registry has no Avro schema 99"),
        (framed(2, PRICE), "the registry has no Avro schema 2"),
        (framed(3, b"\x02"), r"it is not Avro of this schema \(SchemaResolutionError\)"),
        (framed(1, PRICE[1:]), r"it is not Avro of this schema \(EOFError\)"),
        (framed(1, PRICE + b"\x00"), "bytes after the Avro record"),
    ],
)
def test_records_that_a_registry_does_not_help_with(
    registry: SchemaRegistry, payload: bytes, error: str
) -> None:
    registry.add("q-value", OLD)
    registry.add("q-value", "syntax = 'proto3';", kind="PROTOBUF")
    registry.add("other", record("Quote", name="int"))
    with pytest.raises(UndecodableError, match=error):
        ConfluentAvro(client(registry), AvroSchema.of(OLD))(payload)


@pytest.mark.parametrize(
    ("kind", "body", "why"),
    [
        (["null", "Quote"], (PRICE + b"\x02") * 100_000 + PRICE + b"\x00", "a record inside itself"),
        ({"type": "array", "items": "null"}, b"\x80" * 9 + b"\x01\x00", "items that take no bytes"),
        ({"type": "array", "items": record("E")}, b"\x80" * 9 + b"\x01\x00", "items that take no bytes"),
    ],
)
def test_a_few_bytes_neither_end_a_worker_nor_keep_it_busy(
    registry: SchemaRegistry, kind: Any, body: bytes, why: str
) -> None:
    """Whoever may register a schema could do so: a reader that leaves the field out has to step over it."""
    number = registry.add("q-value", record("Quote", price="double", more=kind))
    with pytest.raises(UndecodableError, match=f"Avro schema {number} has .*{why}"):
        ConfluentAvro(client(registry), AvroSchema.of(OLD))(framed(number, PRICE + b"\x02" + body))


@pytest.mark.parametrize("kind", [doubled(60), nested(300)], ids=["wide", "deep"])
def test_a_schema_that_names_others_twice_decodes_nothing(registry: SchemaRegistry, kind: Any) -> None:
    """No bytes would do: the reader would take 2**60 steps."""
    number = registry.add("q-value", record("Quote", price="double", more=kind))
    with pytest.raises(UndecodableError, match=f"schema {number} of the registry is not valid"):
        ConfluentAvro(client(registry), AvroSchema.of(OLD))(framed(number, PRICE))


WRITTEN = AvroSchema.of(
    record(
        "Q",
        n="int",
        text="bytes",
        raw="string",
        many={"type": "array", "items": ["null", "int"]},
        gone=EVERYTHING,
    )
)
WANTED = AvroSchema.of(
    record("Q", n="double", text="string", raw="bytes", many={"type": "array", "items": ["null", "long"]})
)


@given(ROWS, st.binary(), st.data())
def test_other_bytes_of_another_schema_are_a_row_or_an_error(
    row: dict[str, Any], text: bytes, data: st.DataObject
) -> None:
    """Also where types change: what was bytes may be no text."""
    stream = BytesIO()
    whole = {"n": 1, "text": text, "raw": "é", "many": [None, 2], "gone": row}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(WRITTEN.text)), whole)
    payload = bytearray(stream.getvalue())
    if data.draw(st.booleans()):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    kind = columns_of(WANTED, "value")[1]
    array = decoded([bytes(payload)], lambda one: read(one, WRITTEN, WANTED), kind, None)
    array.validate(full=True)
    (found,) = array.to_pylist()
    assert (found["row"] is None) is (found["error"] is not None)


def test_a_schema_that_comes_later_is_found(registry: SchemaRegistry) -> None:
    decode = ConfluentAvro(client(registry), AvroSchema.of(OLD))
    with pytest.raises(UndecodableError, match="no Avro schema 1"):
        decode(framed(1, PRICE))
    registry.add("q-value", OLD)
    assert decode(framed(1, PRICE)) == {"price": 1.5}


def test_schemas_that_refer_to_others(registry: SchemaRegistry) -> None:
    """Of two steps: a quote has a venue, which has a city."""
    registry.add("city", record("City", name="string"))
    registry.add("venue", record("Venue", city="City"), [{"name": "City", "subject": "city", "version": 1}])
    venue = {"name": "Venue", "subject": "venue", "version": 1}
    number = registry.add("q-value", record("Quote", venue="Venue"), [venue])
    found, schema = client(registry).latest("q-value")
    columns, kind, _ = columns_of(schema, "value")
    assert (found, columns.simpleString()) == (number, "struct<venue:struct<city:struct<name:string>>>")
    row = {"venue": {"city": {"name": "Rome"}}}
    assert told(framed(number, b"\x08Rome"), ConfluentAvro(client(registry), schema), kind) == (row, None)


MILLIS, MICROS = logical("long", "timestamp-millis"), logical("long", "timestamp-micros")
DATE, LOCAL = logical("int", "date"), logical("long", "local-timestamp-micros")


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        (MILLIS, MICROS),
        (MICROS, LOCAL),
        (DATE, MICROS),
        (["null", MILLIS], ["null", MICROS]),
        ({"type": "array", "items": MILLIS}, {"type": "array", "items": ["null", MICROS]}),
        ({"type": "map", "values": [DATE, "string"]}, {"type": "map", "values": MICROS}),
        (logical("long", "timestamp-nanos"), MICROS),
        (logical("int", "time-millis"), logical("long", "time-micros")),
    ],
)
def test_numbers_are_not_read_as_others(registry: SchemaRegistry, written: Any, wanted: Any) -> None:
    """Avro's rules look at the numbers alone: 2020 in milliseconds would be 1970 in microseconds."""
    number = registry.add("q-value", record("Q", a=record("R", old=written), b=["null", "R"]))
    renamed = {"name": "new", "aliases": ["old"], "type": wanted}
    inner = {"type": "record", "name": "R", "fields": [renamed]}
    decode = ConfluentAvro(client(registry), AvroSchema.of(record("Q", b=["null", inner])))
    with pytest.raises(UndecodableError, match=rf"Avro schema {number} has [\w-]+ where [\w-]+ is wanted"):
        decode(framed(number, b""))


@pytest.mark.parametrize(
    ("written", "wanted"),
    [(MILLIS, MILLIS), ("long", MILLIS), (MILLIS, "long"), (DATE, DATE), (logical("long", "own"), MILLIS)],
)
def test_numbers_of_one_meaning_or_none_are_read(registry: SchemaRegistry, written: Any, wanted: Any) -> None:
    number = registry.add("q-value", record("Q", a=written))
    decode = ConfluentAvro(client(registry), AvroSchema.of(record("Q", a=wanted)))
    assert decode(framed(number, b"\x06")) == {"a": 3}


def test_what_is_written_is_registered_or_was(registry: SchemaRegistry) -> None:
    schema = AvroSchema.of(OLD)
    with pytest.raises(
        RegistryError, match=r"refuses the schema for the subject 's': Subject 's' not found.*HTTP 404"
    ):
        client(registry).number("s", schema, register=False)
    number = client(registry).number("s", schema, register=True)
    assert client(registry, **{"max.retries": 2}).number("s", schema, register=False) == number
    assert client(registry).latest("s") == (number, schema)


def test_a_registry_that_fails_is_no_bad_record(registry: SchemaRegistry) -> None:
    registry.down = True
    quick = client(registry, **{"max.retries": 0})
    with pytest.raises(RegistryError, match=r"refuses schema 1: down \(HTTP 500\)"):
        ConfluentAvro(quick, AvroSchema.of(OLD))(framed(1, PRICE))
    with pytest.raises(RegistryError, match=r"does not answer for the subject 'q-value' \(Connect\w+\)"):
        Registry(json.dumps({"url": "http://127.0.0.1:1", "max.retries": 0})).latest("q-value")


CANARY = "CANARY-5c1f"


def test_passwords_are_shown_nowhere() -> None:
    with schema_registry(user=f"me:{CANARY}") as registry:
        registry.add("t-value", OLD)
        settings = {"url": registry.url, "basic.auth.user.info": f"me:{CANARY}"}
        made = confluent_avro(settings)
        assert made.decoder("value", ["t"]).columns.simpleString() == "struct<price:double>"
        assert CANARY not in repr(made) + repr(ConfluentAvro(made.registry, AvroSchema.of(OLD)))
        errors = []
        for wrong in (
            {"url": registry.url, "basic.auth.user.info": f"you:{CANARY}"},
            {"url": f"http://you:{CANARY}@127.0.0.1:1", "max.retries": 0},
            {"url": registry.url, "basic.auth.user.info": f"me:{CANARY}", "nosuch": CANARY},
            {"url": registry.url, "basic.auth.user.info": CANARY},
        ):
            avro_registry._client.cache_clear()
            with pytest.raises((RegistryError, ArgumentError)) as caught:
                confluent_avro(wrong).decoder("value", ["t"])
            assert caught.value.__cause__ is None
            assert caught.value.__suppress_context__
            errors.append(str(caught.value))
        assert not [error for error in errors if CANARY in error]


def test_several_topics_need_a_schema_or_a_subject(registry: SchemaRegistry) -> None:
    registry.add("s", OLD)
    with pytest.raises(ArgumentError, match="Several topics have several value schemas"):
        confluent_avro(registry.url).decoder("value", ["a", "b"])
    for made in (confluent_avro(registry.url, subject="s"), confluent_avro(registry.url, schema=OLD)):
        assert made.decoder("value", ["a", "b"]).columns.names == ["price"]
