"""Records of MySQL, SQL Server and Oracle as Debezium's documentation and source define them.

The files in ``tests/golden/debezium`` name their sources. They have

- ``events``: a record of each operation, in the order in which the connector writes them;
- ``types``: a value of each type in each mode: ``column`` is the type that the user gives, ``infer`` the one that is
  found if it is another, and ``without`` what the decoder must be told for records without schemas, null if it cannot
  know;
- ``refused``: values that cannot be decoded.

Bytes are written as ``hex:``.
"""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import types as T

from tablestream.connectors.debezium.columns import Columns, infer
from tests.cdc.rows import KEY, decode, wrapped
from tests.connectors.test_debezium_types import printed

FOLDER = Path(__file__).parent.parent / "golden" / "debezium"
CONNECTORS = ("mysql", "sqlserver", "oracle")
Entry = dict[str, Any]


@cache
def golden(connector: str) -> Any:
    return json.loads((FOLDER / f"{connector}.json").read_text(encoding="utf-8"))


def entries(part: str) -> list[Any]:
    return [
        pytest.param(one, id=f"{connector}-{n}-{one['sql']}"[:60])
        for connector in CONNECTORS
        for n, one in enumerate(golden(connector)[part])
    ]


SNAPSHOTS = (
    *("true", "first", "first_in_data_collection", "last_in_data_collection", "last"),
    "incremental",
)
NAMES: dict[str, T.DataType] = {
    "boolean": T.BooleanType(),
    "tinyint": T.ByteType(),
    "smallint": T.ShortType(),
    "int": T.IntegerType(),
    "bigint": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "string": T.StringType(),
    "binary": T.BinaryType(),
    "date": T.DateType(),
    "timestamp": T.TimestampType(),
    "timestamp_ntz": T.TimestampNTZType(),
    "array<float>": T.ArrayType(T.FloatType()),
}


def column(name: str) -> T.DataType:
    if name.startswith("struct"):
        parts = (part.split(":") for part in name.removeprefix("struct<").removesuffix(">").split(","))
        return T.StructType([T.StructField(field, column(kind)) for field, kind in parts])
    if name.startswith("decimal"):
        precision, scale = name.removeprefix("decimal(").removesuffix(")").split(",")
        return T.DecimalType(int(precision), int(scale))
    return NAMES[name]


def columns_of(entry: Entry) -> Columns:
    return Columns(KEY, T.StructType([T.StructField("x", column(entry["column"]))]))


def binary(entry: Entry) -> dict[str, Any]:
    """The connector's ``binary.handling.mode``; the schema of a text does not say it."""
    mode, _, value = entry.get("mode", "").partition("=")
    return {"binary": value} if mode == "binary.handling.mode" else {}


def as_written(value: Any) -> Any:
    """A decoded value as the file writes it."""
    if isinstance(value, dict):
        return {name: as_written(one) for name, one in value.items()}
    value = printed(value)
    return f"hex:{value.hex()}" if isinstance(value, bytes) else value


def check(row: Entry, entry: Entry) -> None:
    assert row["error"] is None
    if entry["expected"] == "unchanged":
        assert (row["unchanged"], row["value"]["x"]) == ([0], None)
    else:
        assert (row["unchanged"], as_written(row["value"]["x"])) == (None, entry["expected"])


@pytest.mark.parametrize("entry", entries("types"))
def test_a_value_of_each_type_decodes_by_its_schema(entry: Entry) -> None:
    value = wrapped({"x": entry["schema"]}, {"x": entry["value"]})
    check(decode(value, columns=columns_of(entry), **binary(entry)), entry)


@pytest.mark.parametrize("entry", entries("types"))
def test_the_column_of_each_type_is_found_from_its_schema(entry: Entry) -> None:
    key = wrapped({"id": {"type": "int32"}}, {"id": 7})
    found = infer([(key, wrapped({"x": entry["schema"]}, {"x": entry["value"]}))])
    assert found.value["x"].dataType.simpleString() == entry.get("infer", entry["column"])


@pytest.mark.parametrize("entry", [one for one in entries("types") if one.values[0]["without"] is not None])
def test_a_value_of_each_type_decodes_without_its_schema(entry: Entry) -> None:
    value = {"x": entry["value"]}
    check(decode(value, columns=columns_of(entry), **binary(entry), **entry["without"]), entry)


@pytest.mark.parametrize("entry", entries("refused"))
def test_a_value_that_its_column_cannot_hold_is_refused(entry: Entry) -> None:
    value = wrapped({"x": entry["schema"]}, {"x": entry["value"]})
    row = decode(value, columns=columns_of(entry))
    assert row["op"] is None
    assert entry["error"] in row["error"]


def event(connector: str, given: Entry, *, schemas: bool) -> Entry:
    """What the decoder says of a record, with its schemas or without."""
    content = golden(connector)

    def payload(value: Any, schema: Any) -> bytes | None:
        if value is None:
            return None
        return json.dumps({"schema": schema, "payload": value} if schemas else value).encode()

    headers = [
        {"key": name, "value": payload(key, content["key_schema"])} for name, key in given["headers"].items()
    ]
    key, value = T.IntegerType(), T.StringType()
    columns = Columns(
        T.StructType([T.StructField(content["key"], key, nullable=False)]),
        T.StructType([T.StructField(content["value"], value)]),
    )
    return decode(
        payload(given["value"], content["schema"]),
        payload(given["key"], content["key_schema"]),
        columns=columns,
        headers=headers,
    )


@pytest.mark.parametrize("schemas", [True, False])
@pytest.mark.parametrize("connector", CONNECTORS)
def test_a_record_of_each_operation_says_what_happened(connector: str, schemas: bool) -> None:
    name = golden(connector)["value"]
    for given in golden(connector)["events"]:
        row, wanted = event(connector, given, schemas=schemas), dict(given["expected"])
        email = wanted.pop("email")
        wanted["value"] = None if email is None else {name: email}
        absent = ("error", "added", "unchanged", "moved_from", "moved_to", "transaction", "total_order")
        expected = dict.fromkeys(absent) | wanted
        assert {field: row[field] for field in expected} == expected, given["name"]


@pytest.mark.parametrize("connector", CONNECTORS)
def test_the_positions_of_a_connectors_records_never_fall(connector: str) -> None:
    rows = [event(connector, given, schemas=False) for given in golden(connector)["events"]]
    found = [str(row["position"]) for row in rows if row["position"] is not None]
    assert len(set(found)) >= 6
    assert all(first <= second for first, second in pairwise(found))


def test_every_operation_and_flag_of_a_snapshot_is_there() -> None:
    for connector in CONNECTORS:
        rows = [one["value"] for one in golden(connector)["events"]]
        ops = {None if one is None else one["op"] for one in rows}
        assert ops >= {None, "r", "c", "u", "d"}
        assert ("t" in ops) == (connector != "sqlserver")  # which cannot truncate a table that is captured
        flags = {one["source"]["snapshot"] for one in rows if one is not None}
        assert flags == {"false", *SNAPSHOTS}
