"""Spark's types, and what carries them: Arrow between Spark and Python, Polars inside.

Whatever goes in comes out the same, or is refused when the plan is built, with the name of the column.

=================================  ==========================  =================================
Spark                              Arrow                       Polars
=================================  ==========================  =================================
boolean, tinyint ... bigint        bool, int8 ... int64        Boolean, Int8 ... Int64
float, double                      float32, float64            Float32, Float64
decimal(p, s)                      decimal128(p, s)            Decimal(p, s)
string, char, varchar              string                      String
binary                             binary                      Binary
date                               date32                      Date
timestamp                          timestamp(us, UTC)          Datetime(us, UTC)
timestamp_ntz                      timestamp(us)               Datetime(us)
interval day to second             duration(us)                Duration(us)
array, struct                      list, struct                List, Struct
map                                map                         Map
=================================  ==========================  =================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa
from pyspark.sql import types as T

from tablestream.arguments.place import NOWHERE, Place
from tablestream.base.type_parts import parts
from tablestream.errors import UnsupportedTypeError

_FLAT: dict[type[T.DataType], pa.DataType] = {
    T.BooleanType: pa.bool_(),
    T.ByteType: pa.int8(),
    T.ShortType: pa.int16(),
    T.IntegerType: pa.int32(),
    T.LongType: pa.int64(),
    T.FloatType: pa.float32(),
    T.DoubleType: pa.float64(),
    T.CharType: pa.string(),
    T.VarcharType: pa.string(),
    T.StringType: pa.string(),
    T.BinaryType: pa.binary(),
    T.DateType: pa.date32(),
    T.TimestampType: pa.timestamp("us", "UTC"),
    T.TimestampNTZType: pa.timestamp("us"),
    T.DayTimeIntervalType: pa.duration("us"),
}


def arrow_type(kind: T.DataType, column: str, *, at: Place = NOWHERE) -> pa.DataType:
    """Return the Arrow type that carries a Spark type, that of `column` for errors.

    It refuses a type that is not carried unchanged, also inside another one, and a struct with two fields of one name.

    Examples
    --------
    >>> arrow_type(T.ArrayType(T.DecimalType(10, 2)), "prices")
    ListType(list<element: decimal128(10, 2)>)
    """

    def inside(part: T.DataType, name: str) -> pa.DataType:
        return arrow_type(part, name, at=at)

    if type(kind) in _FLAT:
        return _FLAT[type(kind)]
    if isinstance(kind, T.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, T.ArrayType):
        return pa.list_(pa.field("element", inside(kind.elementType, f"{column}.element")))
    if isinstance(kind, T.MapType):
        return pa.map_(inside(kind.keyType, f"{column}.key"), inside(kind.valueType, f"{column}.value"))
    if isinstance(kind, T.StructType) and type(kind) is T.StructType:
        _check_field_names(kind, column, at)
        return pa.struct((one.name, inside(one.dataType, f"{column}.{one.name}")) for one in kind.fields)
    raise at.error(
        UnsupportedTypeError,
        f"Column '{column}' has the type {kind.simpleString()}, which is not supported.",
        "Exclude the column (except_columns=) or cast it, for instance to a string.",
    )


def arrow_schema(fields: Iterable[T.StructField]) -> pa.Schema:
    """Return the Arrow types that carry some columns."""
    return pa.schema([(one.name, arrow_type(one.dataType, one.name)) for one in fields])


def _check_field_names(kind: T.StructType, column: str, at: Place) -> None:
    """Refuse a struct with two fields of one name: Arrow's structs are read by names."""
    twice = sorted({name for name in kind.names if kind.names.count(name) > 1})
    if twice:
        raise at.error(
            UnsupportedTypeError,
            f"Column '{column}' has two fields called '{twice[0]}': {kind.simpleString()}.",
            "Give each field of the struct a name of its own, with alias; or exclude the column.",
        )


def check_key_type(kind: T.DataType, column: str, *, at: Place = NOWHERE, role: str = "a key") -> None:
    """Refuse types that cannot be a key, or an order: maps, strings with a collation, and unsupported types.

    `role`: the use of the column, for the error.
    """
    arrow_type(kind, column, at=at)
    check_bytewise(kind, column, at=at, role=role)
    _check_no_map(kind, column, at, role)


def _check_no_map(kind: T.DataType, column: str, at: Place, role: str) -> None:
    """Refuse maps, also inside other types."""
    if isinstance(kind, T.MapType):
        raise at.error(
            UnsupportedTypeError,
            f"Column '{column}' of type {kind.simpleString()} cannot be (part of) {role}.",
            "Use types with equality and order: no maps.",
        )
    for name, part in parts(kind):
        _check_no_map(part, f"{column}.{name}", at, role)


def check_bytewise(kind: T.DataType, column: str, *, at: Place, role: str) -> None:
    """Refuse strings with a collation, also inside other types: values are compared by their bytes.

    `role`: what the values are compared for, such as ``a key``, for the error.
    """
    for name, part in parts(kind):
        check_bytewise(part, f"{column}.{name}", at=at, role=role)
    if isinstance(kind, T.StringType) and kind != T.StringType():
        raise at.error(
            UnsupportedTypeError,
            f"Column '{column}' of type {kind.simpleString()} cannot be (part of) {role}: texts are compared by"
            " their bytes, not by a collation.",
            "Cast it to a plain string, as in F.lower(F.col(...).cast('string')) to ignore upper and lower case.",
        )


def nullable(kind: T.DataType, leaf: Callable[[T.DataType], T.DataType] = lambda one: one) -> T.DataType:
    """Return the type with every part nullable: the parts of a missing row are null."""
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(nullable(kind.elementType, leaf))
    if isinstance(kind, T.MapType):
        return T.MapType(nullable(kind.keyType, leaf), nullable(kind.valueType, leaf))
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(one.name, nullable(one.dataType, leaf)) for one in kind.fields])
    return leaf(kind)
