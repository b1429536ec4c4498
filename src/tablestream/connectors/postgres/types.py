"""Spark's types in PostgreSQL: what a column is created as, and which existing columns hold its values unchanged.

====================  ==================  =====================================================
Spark                 created as          also fits
====================  ==================  =====================================================
boolean               boolean
tinyint, smallint     smallint            a number that holds it in `tablestream.base.type_lattice`
int                   integer             the same
bigint                bigint              the same
float                 real                double precision
double                double precision
decimal(p, s)         numeric(p, s)       numeric without limits, or a number that holds it
string                text                varchar, varchar(n), uuid; as a value also json, jsonb
binary                bytea
date                  date
timestamp             timestamptz
timestamp_ntz         timestamp
array of the above    their array         json, jsonb
struct, map, others   jsonb               json
====================  ==================  =====================================================

A text that is longer than its ``varchar(n)``, or that is no ``uuid`` in the form that PostgreSQL prints, is refused
when it is written. Keys are flat: no arrays, structs, maps and JSON.
"""

from __future__ import annotations

import re

from pyspark.sql import types as T

from tablestream.base.type_lattice import holds
from tablestream.base.type_parts import parts
from tablestream.errors import UnsupportedTypeError

JSON = ("jsonb", "json")
TEXT = ("text", "character varying", "uuid")
UUID = "uuid"

_TEXT = "text"
_NAMES: dict[type[T.DataType], str] = {
    T.BooleanType: "boolean",
    T.ByteType: "smallint",
    T.ShortType: "smallint",
    T.IntegerType: "integer",
    T.LongType: "bigint",
    T.FloatType: "real",
    T.DoubleType: "double precision",
    T.StringType: _TEXT,
    T.CharType: _TEXT,
    T.VarcharType: _TEXT,
    T.BinaryType: "bytea",
    T.DateType: "date",
    T.TimestampType: "timestamp with time zone",
    T.TimestampNTZType: "timestamp without time zone",
}
#: How the server prints the types of numbers.
_NUMBERS = {
    _NAMES[kind]: kind() for kind in (T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType)
}
_ANY_NUMERIC = "numeric"
_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_VARCHAR = re.compile(r"character varying\((\d+)\)")


def created_as(kind: T.DataType, column: str) -> str:
    """Return the PostgreSQL type of a new column, as the server prints it; intervals, for instance, have none.

    Examples
    --------
    >>> created_as(T.DecimalType(10, 2), "price"), created_as(T.ArrayType(T.DateType()), "days")
    ('numeric(10,2)', 'date[]')
    >>> created_as(T.ArrayType(T.ArrayType(T.LongType())), "matrix")
    'jsonb'
    """
    flat = _flat(kind)
    if flat is not None:
        return flat
    if not (isinstance(kind, T.ArrayType | T.MapType) or type(kind) is T.StructType):
        raise UnsupportedTypeError(
            f"Column '{column}' has the type {kind.simpleString()}, which PostgreSQL cannot hold unchanged.",
            hint="Cast the column, for instance to a string or a number, or exclude it with select(...).",
        )
    for name, part in parts(kind):
        created_as(part, f"{column}.{name}")
    element = _flat(kind.elementType) if isinstance(kind, T.ArrayType) else None
    return "jsonb" if element is None else f"{element}[]"


def fits(kind: T.DataType, stored: str, column: str, *, is_key: bool) -> bool:
    """Whether a column of the type `stored`, as the server prints it, holds all values of a Spark type unchanged.

    Keys that differ must stay different.

    Examples
    --------
    >>> fits(T.LongType(), "numeric(18,0)", "id", is_key=True), fits(T.LongType(), "numeric", "id", is_key=True)
    (False, True)
    """
    usual = created_as(kind, column)
    flat = _flat(kind)
    if is_key and flat is None:
        return False
    if stored == usual:
        return True
    if flat is None or usual == _TEXT:
        json = stored in JSON and not is_key
        return json or (usual == _TEXT and (stored in TEXT or longest(stored) is not None))
    return _holds(stored, kind)


def longest(stored: str) -> int | None:
    """The most characters that a text column takes; None if any number."""
    found = _VARCHAR.fullmatch(stored)
    return int(found[1]) if found else None


def _flat(kind: T.DataType) -> str | None:
    """The PostgreSQL type of a type without parts. None for others."""
    if isinstance(kind, T.DecimalType):
        return f"numeric({kind.precision},{kind.scale})"
    return _NAMES.get(type(kind))


def _holds(stored: str, kind: T.DataType) -> bool:
    """Whether a type of the server is a number that holds a Spark type."""
    if stored == _ANY_NUMERIC:
        return isinstance(kind, T.IntegralType | T.DecimalType)
    found = _NUMERIC.fullmatch(stored)
    wide = T.DecimalType(int(found[1]), int(found[2])) if found else _NUMBERS.get(stored)
    return wide is not None and holds(wide, kind)
