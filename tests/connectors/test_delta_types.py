"""Which columns of a Delta table hold all values of an output."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T

from tablestream.base.type_lattice import Misfit
from tablestream.connectors.delta.columns import misfits

pytestmark = pytest.mark.usefixtures("spark")


def struct(ddl: str) -> T.StructType:
    """A column ``v`` of a type. Spark parses it."""
    columns = T.StructType.fromDDL(f"v {ddl}")
    assert isinstance(columns, T.StructType)
    return columns


@pytest.mark.parametrize(
    ("output", "table"),
    [
        ("INT", "INT"), ("INT", "INT NOT NULL"), ("INT", "BIGINT"), ("TINYINT", "SMALLINT"), ("SMALLINT", "FLOAT"),
        ("INT", "DOUBLE"), ("FLOAT", "DOUBLE"), ("DECIMAL(8,2)", "DECIMAL(10,2)"), ("DECIMAL(8,2)", "DECIMAL(9,3)"),
        ("INT", "DECIMAL(10,0)"), ("BIGINT", "DECIMAL(21,2)"), ("DECIMAL(9,0)", "INT"),
        ("DECIMAL(18,0)", "BIGINT"), ("DECIMAL(15,0)", "DOUBLE"),
        ("DECIMAL(2,2)", "DECIMAL(4,3)"),
        ("DATE", "TIMESTAMP_NTZ"),
        ("INT", "STRING"), ("BOOLEAN", "STRING"), ("DATE", "STRING"), ("DECIMAL(9,2)", "STRING"),
        ("ARRAY<INT>", "ARRAY<BIGINT>"), ("MAP<INT,FLOAT>", "MAP<BIGINT,DOUBLE>"),
        ("STRUCT<a: INT, b: STRING>", "STRUCT<b: STRING, more: INT, A: BIGINT>"),
    ],
)  # fmt: skip
def test_widenings_lose_nothing(output: str, table: str) -> None:
    assert list(misfits(struct(output), struct(table))) == []


@pytest.mark.parametrize(
    ("output", "table", "name"),
    [
        ("DECIMAL(10,4)", "DECIMAL(10,1)", "v"), ("DECIMAL(10,2)", "DECIMAL(12,4)", None),
        ("DECIMAL(10,2)", "DECIMAL(11,4)", "v"), ("DECIMAL(10,2)", "DOUBLE", "v"), ("DECIMAL(10,2)", "INT", "v"),
        ("DECIMAL(10,0)", "INT", "v"), ("DECIMAL(19,0)", "BIGINT", "v"), ("DOUBLE", "INT", "v"),
        ("DECIMAL(16,0)", "DOUBLE", "v"),
        ("DOUBLE", "FLOAT", "v"), ("DOUBLE", "DECIMAL(38,18)", "v"), ("BIGINT", "INT", "v"), ("BIGINT", "DOUBLE", "v"),
        ("DOUBLE", "STRING", "v"), ("TIMESTAMP", "STRING", "v"),
        ("BIGINT", "DECIMAL(18,0)", "v"), ("INT", "FLOAT", "v"), ("STRING", "INT", "v"),
        ("STRING", "BINARY", "v"), ("BOOLEAN", "INT", "v"), ("TIMESTAMP", "DATE", "v"), ("DATE", "TIMESTAMP", "v"),
        ("TIMESTAMP", "TIMESTAMP_NTZ", "v"), ("ARRAY<INT>", "INT", "v"), ("STRUCT<a: INT>", "MAP<STRING,INT>", "v"),
        ("ARRAY<BIGINT>", "ARRAY<INT>", "v.element"), ("MAP<BIGINT,INT>", "MAP<INT,INT>", "v.key"),
        ("MAP<INT,ARRAY<STRUCT<a: BIGINT>>>", "MAP<INT,ARRAY<STRUCT<a: INT>>>", "v.value.element.a"),
    ],
)  # fmt: skip
def test_what_would_be_rounded_or_cut_is_found(output: str, table: str, name: str | None) -> None:
    assert [one.name for one in misfits(struct(output), struct(table))] == ([] if name is None else [name])


def test_a_field_that_the_table_lacks_is_found_and_a_column_is_passed_over() -> None:
    output, table = struct("STRUCT<a: INT, b: INT>"), struct("STRUCT<b: INT>")
    assert list(misfits(output, table)) == [Misfit("v.a", "int", None)]
    assert list(misfits(output, T.StructType())) == []


@pytest.mark.parametrize(
    ("declared", "found"), [("char(5)", "char(5)"), ("array<char(2)>", "char(2)"), ("varchar(5)", None)]
)
def test_a_column_that_adds_blanks_is_found(declared: str, found: str | None) -> None:
    table = T.StructType().add("v", T.StringType(), metadata={"__CHAR_VARCHAR_TYPE_STRING": declared})
    assert [one.stored for one in misfits(struct("STRING"), table)] == ([found] if found else [])
