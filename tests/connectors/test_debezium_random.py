"""Random tables and rows come back as they were written, in every mode; damaged bytes never do harm."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T

from tablestream.connectors.debezium.columns import Columns
from tablestream.connectors.debezium.decoder import DebeziumDecoder
from tests.cdc.envelopes import Envelopes
from tests.cdc.vectors import FORMS, HEADERS, arrays, table_records, type_records

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
MOMENTS = st.datetimes(datetime(1700, 1, 1), datetime(2250, 1, 1))
VALUES: dict[T.DataType, st.SearchStrategy[Any]] = {
    T.BooleanType(): st.booleans(),
    T.ByteType(): st.integers(-(2**7), 2**7 - 1),
    T.ShortType(): st.integers(-(2**15), 2**15 - 1),
    T.IntegerType(): st.integers(-(2**31), 2**31 - 1),
    T.LongType(): st.integers(-(2**63), 2**63 - 1),
    T.FloatType(): st.floats(width=32),
    T.DoubleType(): st.floats(),
    T.StringType(): TEXT,
    T.BinaryType(): st.binary(max_size=8),
    T.DateType(): st.dates(),
    T.TimestampType(): MOMENTS.map(lambda one: one.replace(tzinfo=UTC)),
    T.TimestampNTZType(): MOMENTS,
    T.DecimalType(38, 10): st.decimals(-(10**27), 10**27, places=10),
    T.DecimalType(12, 0): st.decimals(-(10**12) + 1, 10**12 - 1, places=0),
    T.ArrayType(T.StringType()): st.lists(st.none() | TEXT, max_size=3),
    T.ArrayType(T.DateType()): st.lists(st.none() | st.dates(), max_size=3),
    T.MapType(T.StringType(), T.StringType()): st.dictionaries(TEXT, st.none() | TEXT, max_size=3),
}
ROUND: dict[T.DataType, st.SearchStrategy[Any]] = {
    T.DecimalType(38, 10): st.decimals(-(10**5), 10**5, places=3)
}


def in_unit(value: Any, times: str) -> Any:
    if times in {"milliseconds", "connect"} and isinstance(value, datetime) and value.tzinfo is None:
        return value - timedelta(microseconds=value.microsecond % 1000)
    return value


@st.composite
def tables(draw: st.DrawFn) -> tuple[Envelopes, list[dict[str, Any]]]:
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=6))
    columns = [T.StructField(f"c{i}", kind) for i, kind in enumerate(kinds)]
    envelopes = Envelopes(
        T.StructType([T.StructField("id", T.LongType(), nullable=False)]),
        T.StructType(columns),
        schemas=draw(st.booleans()),
        decimals=draw(st.sampled_from(["precise", "double", "string"])),
        times=draw(st.sampled_from(["milliseconds", "microseconds", "nanoseconds", "isostring", "connect"])),
        binary=draw(st.sampled_from(["bytes", "base64", "base64-url-safe", "hex"])),
    )
    of_row = {
        one.name: st.none()
        | (ROUND if envelopes.decimals == "double" else {})
        .get(one.dataType, VALUES[one.dataType])
        .map(lambda value: in_unit(value, envelopes.times))
        for one in columns
    }
    row = st.fixed_dictionaries({"id": VALUES[T.LongType()], **of_row})
    return envelopes, draw(st.lists(row, min_size=1, max_size=4))


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return bool(dict(one) == other if isinstance(other, dict) else one == other)


@given(tables())
def test_rows_come_back_as_they_were_written(table: tuple[Envelopes, list[dict[str, Any]]]) -> None:
    envelopes, rows = table
    decoder = DebeziumDecoder(
        Columns(envelopes.key, envelopes.value),
        decimals=envelopes.decimals,  # type: ignore[arg-type]  # one of them
        times=envelopes.times,  # type: ignore[arg-type]
        binary=envelopes.binary,  # type: ignore[arg-type]
    )
    keys = [envelopes.key_bytes(row) for row in rows]
    values = [envelopes.change("c", row) for row in rows] + [
        envelopes.flat(row, {"__op": "u"}) for row in rows
    ]
    found = decoder.decode(pa.array(keys * 2), pa.array(values), pa.nulls(len(values), HEADERS)).to_pylist()
    for row, decoded in zip(rows * 2, found, strict=True):
        assert decoded["error"] is None
        assert decoded["op"] == "upsert"
        assert decoded["key"] == {"id": row["id"]}
        assert decoded["unchanged"] is decoded["added"] is None
        for name, value in decoded["value"].items():
            assert same(value, row[name]), (name, value, row[name])


RECORDED = [
    *(record for form in FORMS for record in table_records("watchlist", form)[:12]),
    *(type_records("types1")[:1] + type_records("types3")[:1]),
]
WATCHLIST = DebeziumDecoder(
    Columns(
        T.StructType([T.StructField("client_id", T.IntegerType()), T.StructField("ticker", T.StringType())]),
        T.StructType([T.StructField("added", T.TimestampType())]),
    ),
    source=("ts_ms", "lsn", "snapshot"),
)


@st.composite
def damaged(draw: st.DrawFn) -> tuple[bytes | None, bytes | None]:
    key, value, _ = draw(st.sampled_from(RECORDED))
    parts = [key, value]
    which = draw(st.integers(0, 1))
    payload = bytearray(parts[which] or b"null")
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(payload)))
        payload[at : at + draw(st.integers(0, 8))] = draw(
            st.binary(max_size=4)
            | st.sampled_from(
                [b"null", b"[]", b"{}", b"1e999", b'"x"', b"-1", b"9" * 30, b"\\ud800", b"true"]
            )
        )
    parts[which] = bytes(payload)
    return parts[0], parts[1]


@settings(max_examples=400)
@given(st.lists(damaged(), min_size=1, max_size=5))
@example([(b'{"client_id":1,"ticker":"A"}', b"[" * 100_000)])
@example([(b'{"client_id":1,"ticker":"A"}', b'{"added":' * 5_000)])
@example([(b'{"client_id":1e99999,"ticker":"A"}', None)])
def test_damaged_bytes_give_a_row_or_an_error(records: list[tuple[bytes | None, bytes | None]]) -> None:
    keys, values, headers = arrays([(key, value, []) for key, value in records])
    found = WATCHLIST.decode(keys, values, headers)
    assert pa.schema(list(found.type)) == WATCHLIST.schema
    found.validate(full=True)
    for row in found.to_pylist():
        assert (row["op"] is None) == (row["error"] is not None)
        assert (row["key"] is None) == (row["op"] in {None, "truncate", "skip"})
        assert (row["value"] is None) == (row["op"] not in {"upsert", "read"})


@settings(max_examples=200)
@given(st.binary(max_size=40), st.binary(max_size=40))
def test_any_bytes_give_a_row_or_an_error(key: bytes, value: bytes) -> None:
    header = [[{"key": "__debezium.oldkey", "value": key}]]
    row = WATCHLIST.decode(pa.array([key]), pa.array([value]), pa.array(header, HEADERS))[0].as_py()
    assert (row["op"] is None) == (row["error"] is not None)


def test_a_bad_value_spoils_only_its_own_row() -> None:
    columns = Columns(
        T.StructType([T.StructField("id", T.IntegerType())]),
        T.StructType([T.StructField("n", T.DecimalType(5, 2))]),
    )
    values = ["1.25", "1.255", None, "12345", "-999.99"]
    envelopes = [
        f'{{"op":"c","after":{{"id":1,"n":{value or "null"}}},"source":{{}}}}'.encode() for value in values
    ]
    keys = pa.array([b'{"id":1}'] * len(values))
    rows = DebeziumDecoder(columns, decimals="double").decode(keys, pa.array(envelopes), pa.nulls(5, HEADERS))
    assert [row["value"] and row["value"]["n"] for row in rows.to_pylist()] == [
        Decimal("1.25"),
        None,
        None,
        None,
        Decimal("-999.99"),
    ]
    assert rows.field("error").to_pylist() == [
        None,
        "the field 'n' is 1.255, which has more digits than decimal(5,2) holds",
        None,
        "the field 'n' is 12345, which is too large for decimal(5,2)",
        None,
    ]
