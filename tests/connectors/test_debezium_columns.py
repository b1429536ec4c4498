"""A table's columns change while its topic is read: what goes on, and what ends the query by name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import types as T

from tablestream.connectors.debezium.columns import Columns
from tablestream.errors import ArgumentError
from tests.cdc.rows import KEY, decode, envelope, wrapped

TEXT, NUMBER = {"type": "string"}, {"type": "int32"}
REQUIRED = {"optional": False}
BOTH = Columns(KEY, T.StructType([T.StructField(name, T.StringType()) for name in ("name", "tier")]))


def flat(fields: dict[str, dict[str, Any]], row: dict[str, Any]) -> bytes:
    """A flattened row with its schema; the key comes first."""
    return wrapped({"id": NUMBER | REQUIRED, **fields}, {"id": 7, **row})


def enveloped(fields: dict[str, dict[str, Any]], row: dict[str, Any]) -> bytes:
    """The same row in an envelope."""
    payload = json.loads(flat(fields, row))
    after = payload["schema"] | {"field": "after", "optional": True}
    schema = {"type": "struct", "fields": [after, {"field": "op", "type": "string"}]}
    return json.dumps({"schema": schema, "payload": envelope(after=payload["payload"])}).encode()


@pytest.mark.parametrize("form", [flat, enveloped])
def test_an_added_column_that_cannot_be_null_is_named(form: Any) -> None:
    fields = {"name": TEXT, "size": NUMBER, "colour": TEXT | REQUIRED, "weight": NUMBER | REQUIRED}
    for _ in range(2):  # the second record is read by the schema that the first one showed
        row = decode(form(fields, {"name": "Ada", "size": 1, "colour": "red", "weight": 2}))
        assert row["error"] == (
            "the table has no column for 'colour', 'weight', which cannot be null: give it in columns=, or in"
            " except_columns= to read the table without it"
        )
        assert row["op"] is row["value"] is row["added"] is None


@pytest.mark.parametrize("form", [flat, enveloped])
def test_an_added_column_that_may_be_null_is_ignored_and_named(form: Any) -> None:
    row = decode(form({"name": TEXT, "size": NUMBER}, {"name": "Ada", "size": 1}))
    assert (row["error"], row["value"], row["added"]) == (None, {"name": "Ada"}, ["size"])


def test_without_a_schema_nobody_knows_whether_an_added_column_may_be_null() -> None:
    row = decode(envelope(after={"id": 7, "name": "Ada", "size": 1}))
    assert (row["error"], row["added"]) == (None, ["size"])


@pytest.mark.parametrize("schemas", [True, False])
def test_a_renamed_column_is_named(schemas: bool) -> None:
    """Its values would be null from then on."""
    given = {"id": 7, "name": "Ada", "level": "gold"}
    value: Any = flat({"name": TEXT, "level": TEXT}, given) if schemas else envelope(after=given)
    row = decode(value, columns=BOTH)
    assert row["error"] == (
        "the record lacks 'tier' and has 'level' beside the table's columns: if a column was renamed, give its new"
        " name in columns=; otherwise give except_columns= what is not to be read"
    )
    row = decode(value, columns=BOTH, except_columns=("level",))
    assert (row["error"], row["added"], row["value"]) == (None, None, {"name": "Ada", "tier": None})


def test_a_renamed_column_that_cannot_be_null_is_named_with_both_names() -> None:
    columns = Columns(KEY, T.StructType([T.StructField("name", T.StringType(), nullable=False)]))
    error = decode(envelope(after={"id": 7, "title": "Ada"}), columns=columns)["error"]
    assert error.startswith("the record lacks 'name' and has 'title' beside the table's columns")


def test_a_partial_row_is_not_taken_for_one_with_a_renamed_column() -> None:
    row = decode(envelope(after={"id": 7, "name": "Ada", "level": "gold"}), columns=BOTH, unchanged=("tier",))
    assert (row["error"], row["added"], row["unchanged"]) == (None, ["level"], [1])


def test_a_column_that_is_left_out_on_purpose_is_neither_counted_nor_refused() -> None:
    value = flat({"name": TEXT, "colour": TEXT | REQUIRED}, {"name": "Ada", "colour": "red"})
    row = decode(value, except_columns=("colour",))
    assert (row["error"], row["added"], row["value"]) == (None, None, {"name": "Ada"})


def test_a_dropped_column_is_null() -> None:
    row = decode(flat({"name": TEXT}, {"name": "Ada"}), columns=BOTH)
    assert (row["error"], row["added"], row["value"]) == (None, None, {"name": "Ada", "tier": None})


@pytest.mark.parametrize(
    ("kind", "column", "value", "error"),
    [
        ("int64", T.IntegerType(), 5, None),
        ("int64", T.IntegerType(), 1 << 40, "the field 'x' is 1099511627776, which is too large for int"),
        ("int16", T.IntegerType(), 5, None),
        ("string", T.IntegerType(), "5", None),
        ("string", T.IntegerType(), "five", "the field 'x' is \"five\", which is not a number"),
        ("boolean", T.IntegerType(), True, "the field 'x' is boolean, which does not fit the column's type, int"),
        ("int32", T.StringType(), 5, "the field 'x' is int32, which does not fit the column's type, string"),
    ],
)  # fmt: skip
def test_a_column_of_another_type_goes_on_while_its_values_fit(
    kind: str, column: T.DataType, value: Any, error: str | None
) -> None:
    columns = Columns(KEY, T.StructType([T.StructField("x", column)]))
    row = decode(flat({"x": {"type": kind}}, {"x": value}), columns=columns)
    assert row["error"] == error


def test_a_column_that_may_be_null_now_ends_the_query_with_its_first_null() -> None:
    columns = Columns(KEY, T.StructType([T.StructField("name", T.StringType(), nullable=False)]))
    assert decode(flat({"name": TEXT}, {"name": "Ada"}), columns=columns)["error"] is None
    error = decode(flat({"name": TEXT}, {"name": None}), columns=columns)["error"]
    assert error == "the field 'name' is null or missing"


def test_a_renamed_key_is_named() -> None:
    error = decode(flat({"name": TEXT}, {"name": "Ada"}), b'{"number":7}')["error"]
    assert error == "the key lacks 'id' and has 'number' beside the table's key"


@pytest.mark.parametrize("name", ["id", "name"])
def test_a_column_cannot_be_left_out_and_given(name: str) -> None:
    with pytest.raises(ArgumentError, match=f"except_columns= names {name}, which is a column of the table"):
        decode(envelope(), except_columns=(name,))
