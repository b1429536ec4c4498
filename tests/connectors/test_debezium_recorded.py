"""Records of a real Debezium decode to what the database held, in every mode and every form."""

from __future__ import annotations

import math
import pickle
import struct
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from tablestream.connectors.debezium.columns import Columns, infer
from tablestream.connectors.debezium.decoder import DebeziumDecoder
from tablestream.connectors.infinity import AFTER_ALL, BEFORE_ALL
from tests.cdc.vectors import FORMS, MODES, arrays, table_records, type_options, type_records, type_rows

DOUBLES, CONNECT, NANOS, ISO = {"types2", "types6"}, {"types2"}, {"types6"}, {"types3"}
#: Types that the user gives, because the record's do not say, or the default is text or bytes.
GIVEN = {
    "c_numeric_12_4": T.DecimalType(12, 4),
    "c_numeric_5_0": T.DecimalType(5, 0),
    "c_money": T.DecimalType(19, 2),
    "c_bytea": T.BinaryType(),
    "c_bit12": T.StringType(),
    "c_varbit": T.LongType(),
    "c_hstore": T.MapType(T.StringType(), T.StringType()),
    "c_numeric_array": T.ArrayType(T.DecimalType(10, 2)),
}
EXACT = {"c_numeric_38_10": T.DecimalType(38, 10)}
TEXTS: dict[str, dict[int, Any]] = {
    "c_json": {1: '{"a": 1,  "b": [1, null, "x"]}', 3: "[]"},
    "c_jsonb_array": {1: ['{"x": 1}'], 3: []},
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def columns_of(mode: str) -> Columns:
    found = infer([one[:2] for one in type_records(mode)])
    given = GIVEN | ({} if mode in DOUBLES else EXACT)
    value = [T.StructField(one.name, given.get(one.name, one.dataType), one.nullable) for one in found.value]
    return Columns(found.key, T.StructType(value))


def numbers(array: pa.Array) -> Any:
    """Values as Python's, dates and timestamps as numbers: Python's end at the year 9999."""
    if pa.types.is_timestamp(array.type):
        return array.cast(pa.int64()).to_pylist()
    if pa.types.is_list(array.type):
        inner = array.type.value_type
        if pa.types.is_date(inner) or pa.types.is_timestamp(inner):
            return array.cast(pa.list_(pa.int32() if pa.types.is_date(inner) else pa.int64())).to_pylist()
    if pa.types.is_date(array.type):
        return array.cast(pa.int32()).to_pylist()
    if pa.types.is_map(array.type):
        return array.to_pylist(maps_as_pydicts="strict")
    return array.to_pylist()


def micros(text: str) -> int:
    if "infinity" in text:
        return BEFORE_ALL if text.startswith("-") else AFTER_ALL
    if text.endswith("BC"):
        return -63517780800000000
    found = datetime.fromisoformat(text)
    passed = (found if found.tzinfo else found.replace(tzinfo=UTC)) - EPOCH
    return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds


def day(text: str) -> int:
    return -735160 if text.endswith("BC") else (date.fromisoformat(text) - date(1970, 1, 1)).days


def milliseconds(count: int) -> int:
    return count // 1000 * 1000


def expected(name: str, printed: Any, mode: str) -> Any:  # noqa: C901, PLR0911, PLR0912 - one line for each type
    """What a column holds, from what the database prints, and what the connector's mode drops."""
    if name == "c_jsonb" and printed is None:
        return ...  # row_to_json prints SQL's null and JSON's alike
    if printed is None:
        return None
    if name == "c_numeric" and mode in DOUBLES:
        return float(printed)
    if name == "c_real":
        return struct.unpack("f", struct.pack("f", float(printed)))[0]
    if name in {"c_numeric_38_10", "c_double"} and (mode in DOUBLES or "3" not in name):
        return float(printed)
    if name == "c_numeric":
        return printed if isinstance(printed, str) else str(printed)
    if name.startswith("c_numeric_") and not name.endswith("array"):
        return Decimal(str(printed))
    if name == "c_numeric_array":
        return [None if one is None else Decimal(str(one)) for one in printed]
    if name == "c_money":
        return Decimal(printed.replace("$", "").replace(",", ""))
    if name == "c_bytea":
        return bytes.fromhex(printed[2:])
    if name == "c_bit1":
        return printed == "1"
    if name == "c_varbit":
        return int(printed or "0", 2)
    if name in {"c_date", "c_date_array"}:
        return [day(one) for one in printed] if isinstance(printed, list) else day(printed)
    if name in {"c_time", "c_time_3"}:
        text = "00:00:00" if mode in ISO and printed == "24:00:00" else printed
        return text[:12] if mode in CONNECT else text
    if name == "c_timetz":
        return {"13:14:15.5+02": "11:14:15.5Z", "23:59:59.999999-12": "11:59:59.999999Z"}[printed]
    if name.startswith("c_timestamptz"):
        return [micros(one) for one in printed] if isinstance(printed, list) else micros(printed)
    if name.startswith("c_timestamp"):
        count = micros(printed)
        if mode in NANOS and not -(2**63) < count * 1000 < 2**63:  # all but infinity is lost
            return count if "infinity" in printed else None
        return count if mode not in CONNECT else milliseconds(count)
    if name == "c_interval":
        return ...
    if name == "c_point":
        x, y = (float(one) for one in printed[1:-1].split(","))
        return {"x": x, "y": y}
    if name == "c_oid":
        return int(printed)
    return printed


INTERVALS = {
    1: (37091106789000, "P1Y2M3DT4H5M6.789S"),
    3: (-86400000001, "P0Y0M-1DT0H0M-0.000001S"),
}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or one == other
    return type(one) is type(other) and one == other


def compared(mode: str) -> Iterator[tuple[tuple[str, int, str], Any, Any]]:
    """Each value of a recorded mode: its column, row and operation; what it decodes to; what the database held."""
    columns, rows = columns_of(mode), type_rows()
    records = [one for one in type_records(mode) if b'"id":8}' not in (one[0] or b"")]
    records = [one for one in records if b'"id":9}' not in (one[0] or b"")]
    found = DebeziumDecoder(columns, **type_options(mode)).decode(*arrays(records))
    assert set(found.field("error").to_pylist()) == {None}
    ids = [one["id"] for one in found.field("key").to_pylist()]
    ops = found.field("op").to_pylist()
    assert sorted(ids) == sorted([*range(1, 8)] * 2)
    for name in columns.value.names:
        for number, op, value in zip(ids, ops, numbers(found.field("value").field(name)), strict=True):
            wanted = expected(name, rows[number][name], mode)
            if name in TEXTS:
                wanted = TEXTS[name].get(number)
            if name == "c_interval":
                wanted = None if number not in INTERVALS else INTERVALS[number][mode == "types2"]
            if name == "c_jsonb":
                wanted = {1: '{"a": {"c": 1.50}, "b": 2}', 3: "null"}.get(number)
            if name == "c_point" and wanted is not None:
                value = {part: value[part] for part in ("x", "y")}  # noqa: PLW2901
            if name == "c_date" and number == 7 and op == "read":
                wanted = -703383  # a snapshot drops "before Christ"
            if name == "c_smallint" and number in {2, 5, 6, 7} and op == "read":
                wanted = None  # the update set it
            yield (name, number, op), value, wanted


@pytest.mark.parametrize("mode", MODES)
def test_every_type_decodes_to_what_the_database_held(mode: str) -> None:
    values = list(compared(mode))
    for which, value, wanted in values:
        assert same(value, wanted), (which, value, wanted)
    assert len(values) == 14 * len(columns_of(mode).value.names)


@pytest.mark.parametrize("mode", MODES)
def test_nan_of_a_numeric_column_is_a_number_in_double_only(mode: str) -> None:
    columns = infer([one[:2] for one in type_records(mode)])
    records = [one for one in type_records(mode) if b'"op":"c"' in (one[1] or b"")]
    found = DebeziumDecoder(columns, **type_options(mode)).decode(*arrays(records))
    values = found.field("value").field("c_numeric").to_pylist()
    if mode in DOUBLES:
        assert math.isnan(values[0])
        assert values[1] == math.inf
    elif mode in {"types3", "types5"}:
        assert values == ["NAN", "POSITIVE_INFINITY"]
    else:
        assert values == [None, None]  # Debezium drops them in this mode


def test_nan_does_not_become_a_decimal() -> None:
    found = DebeziumDecoder(columns_of("types3"), **type_options("types3")).decode(
        *arrays([one for one in type_records("types3") if b'"op":"c"' in (one[1] or b"")])
    )
    assert found.field("error").to_pylist() == [
        "the field 'c_numeric_12_4' is \"NAN\", which has no place in decimal(12,4)",
        None,
    ]


CLIENTS = Columns(
    T.StructType([T.StructField("client_id", T.IntegerType(), nullable=False)]),
    T.StructType([T.StructField(name, T.StringType()) for name in ("name", "email", "tier", "country")]),
)
WATCHLIST = Columns(
    T.StructType(
        [
            T.StructField("client_id", T.IntegerType(), nullable=False),
            T.StructField("ticker", T.StringType(), nullable=False),
        ]
    ),
    T.StructType([T.StructField("added", T.TimestampType())]),
)


def decoded(table: str, form: str, columns: Columns) -> list[dict[str, Any]]:
    decoder = pickle.loads(pickle.dumps(DebeziumDecoder(columns)))  # noqa: S301 - as Spark ships it
    found = decoder.decode(*arrays(table_records(table, form)))
    assert pa.schema(list(found.type)) == decoder.schema
    rows: list[dict[str, Any]] = found.to_pylist()
    assert {row["error"] for row in rows} == {None}
    return rows


def facts(row: dict[str, Any]) -> str:
    parts = ("op", "key", "value", "moved_from", "moved_to", "transaction", "total_order")
    op = {part: row[part] for part in parts}
    if op["op"] == "read":  # the transaction during which the snapshot was taken
        op["transaction"] = None
    return repr(op)


@pytest.mark.parametrize("form", FORMS[1:])
@pytest.mark.parametrize(("table", "columns"), [("clients", CLIENTS), ("watchlist", WATCHLIST)])
def test_all_forms_of_a_table_decode_to_the_same_rows(table: str, columns: Columns, form: str) -> None:
    """The forms saw the same load; rows of the incremental snapshot depend on when it ran."""
    one, other = (
        sorted(
            facts(row)
            for row in decoded(table, name, columns)
            if row["snapshot"] != "incremental" and row["op"] != "truncate"
        )
        for name in (FORMS[0], form)
    )
    assert one == other
    assert len(one) > 30


@pytest.mark.parametrize("form", FORMS)
def test_positions_of_a_partition_never_go_back(form: str) -> None:
    rows = [row for row in decoded("watchlist", form, WATCHLIST) if row["position"] is not None]
    if form.endswith("1"):
        assert [row["position"] for row in rows] == sorted(row["position"] for row in rows)
    assert all(row["ts_us"] > 1_700_000_000_000_000 for row in rows)


@pytest.mark.parametrize("form", ["plain1", "schema1"])
def test_a_truncate_has_no_key_and_a_tombstone_is_a_delete(form: str) -> None:
    rows = decoded("watchlist", form, WATCHLIST)
    truncate = [row for row in rows if row["op"] == "truncate"]
    assert len(truncate) == 1
    assert truncate[0]["key"] is truncate[0]["value"] is None
    assert truncate[0]["position"] is not None
    tombstones = [row for row in rows if row["op"] == "delete" and row["position"] is None]
    assert tombstones
    assert all(row["key"] is not None and row["value"] is None for row in tombstones)


@pytest.mark.parametrize("form", FORMS)
def test_a_change_of_the_key_names_the_other_key(form: str) -> None:
    rows = decoded("clients", form, CLIENTS)
    before = {(row["moved_from"]["client_id"], row["key"]["client_id"]) for row in rows if row["moved_from"]}
    after = {(row["key"]["client_id"], row["moved_to"]["client_id"]) for row in rows if row["moved_to"]}
    assert before == after
    assert len(before) >= 5
    assert {row["op"] for row in rows if row["moved_from"]} == {"upsert"}
    assert {row["op"] for row in rows if row["moved_to"]} == {"delete"}


@pytest.mark.parametrize("form", FORMS)
def test_a_column_that_the_table_lacks_is_named(form: str) -> None:
    columns = Columns(CLIENTS.key, T.StructType(CLIENTS.value.fields[:-1]))
    added = [row["added"] for row in decoded("clients", form, columns) if row["value"] is not None]
    assert {repr(one) for one in added} == {"None", "['country']"}
    assert added[0] is None


TOAST = Columns(
    T.StructType([T.StructField("id", T.IntegerType(), nullable=False)]),
    T.StructType(
        [
            T.StructField("n", T.IntegerType()),
            *(
                T.StructField(f"t_{name}", T.StringType())
                for name in ("text", "varchar", "json", "jsonb", "hstore")
            ),
            T.StructField("t_bytea", T.BinaryType()),
            *(
                T.StructField(f"t_{name}_array", T.ArrayType(T.StringType()))
                for name in ("text", "varchar", "uuid")
            ),
            T.StructField("t_int_array", T.ArrayType(T.IntegerType())),
            T.StructField("t_bigint_array", T.ArrayType(T.LongType())),
            T.StructField("t_date_array", T.ArrayType(T.DateType())),
            T.StructField("t_bytea_array", T.ArrayType(T.BinaryType())),
        ]
    ),
)


@pytest.mark.parametrize("form", FORMS)
def test_the_placeholder_is_found_in_a_column_of_each_type(form: str) -> None:
    rows = [row for row in decoded("toast_types", form, TOAST) if row["unchanged"]]
    assert {position for row in rows for position in row["unchanged"]} == set(range(1, len(TOAST.value)))
    for row in rows:
        columns = [TOAST.value.names[position] for position in row["unchanged"]]
        assert all(row["value"][name] is None for name in columns)
    assert "debezium_unavailable" not in repr(rows)


def test_hstore_as_a_map_is_found_unchanged_too() -> None:
    hstore = T.StructField("t_hstore", T.MapType(T.StringType(), T.StringType()))
    columns = Columns(TOAST.key, T.StructType([TOAST.value["n"], hstore]))
    for form in FORMS:
        unchanged = [row["unchanged"] for row in decoded("toast_types", form, columns)]
        assert [1] in unchanged
