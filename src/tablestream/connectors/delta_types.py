"""Which columns of a Delta table hold all values of an output's column.

Delta's MERGE casts to the type of the table's column, and rounds or cuts what does not fit.

=====================  =====================================================================================
output                 fits, besides its own type
=====================  =====================================================================================
tinyint                smallint, int, bigint, float, double, decimal with 3 digits before the point
smallint               int, bigint, float, double, decimal with 5 digits before the point
int                    bigint, double, decimal with 10 digits before the point
bigint                 decimal with 19 digits before the point
decimal(p, s)          decimal with as many digits on both sides; without s also an integer that holds p digits
float                  double
date                   timestamp_ntz
integer, decimal,      string
boolean, date
string                 varchar(n): a longer text is refused when it is written. Not char(n), which adds blanks
array, map, struct     the same with elements, keys, values and fields that fit; fields are found by their names
=====================  =====================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql import types as T

_WIDER: dict[type[T.DataType], tuple[type[T.DataType], ...]] = {
    T.ByteType: (T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType),
    T.ShortType: (T.IntegerType, T.LongType, T.FloatType, T.DoubleType),
    T.IntegerType: (T.LongType, T.DoubleType),
    T.FloatType: (T.DoubleType,),
    T.DateType: (T.TimestampNTZType,),
}
#: The digits of the largest value.
_DIGITS: dict[type[T.DataType], int] = {T.ByteType: 3, T.ShortType: 5, T.IntegerType: 10, T.LongType: 19}
#: Where Spark keeps the declared type of a text, whose type is otherwise string.
_DECLARED = "__CHAR_VARCHAR_TYPE_STRING"
_CHAR = re.compile(r"(?<!var)char\(\d+\)")


@dataclass(frozen=True)
class Misfit:
    """A column, or a part of one, that does not hold all values.

    Attributes
    ----------
    name
        The column, with the way to its part: ``v.element.price``.
    output, table
        The types. That of the table is None if it lacks the field of a struct.
    """

    name: str
    output: str
    table: str | None


def misfits(output: T.StructType, table: T.StructType) -> Iterator[Misfit]:
    """Find the columns of a table that do not hold all values of an output's; those that it lacks are passed over.

    Examples
    --------
    >>> output = T.StructType().add("id", T.IntegerType()).add("prices", T.ArrayType(T.DecimalType(10, 4)))
    >>> table = T.StructType().add("id", T.LongType()).add("prices", T.ArrayType(T.DecimalType(10, 1)))
    >>> list(misfits(output, table))
    [Misfit(name='prices.element', output='decimal(10,4)', table='decimal(10,1)')]
    """
    stored = {one.name: one for one in table.fields}
    for one in output.fields:
        found = stored.get(one.name)
        if found is None:
            continue
        padded = _CHAR.search((found.metadata or {}).get(_DECLARED, ""))
        if padded:
            yield Misfit(one.name, one.dataType.simpleString(), padded[0])
        else:
            yield from _of_type(one.dataType, found.dataType, one.name)


def _of_type(output: T.DataType, table: T.DataType, name: str) -> Iterator[Misfit]:
    """Find the parts of a type that do not fit."""
    if isinstance(output, T.StructType) and isinstance(table, T.StructType):
        yield from _of_struct(output, table, name)
    elif isinstance(output, T.ArrayType) and isinstance(table, T.ArrayType):
        yield from _of_type(output.elementType, table.elementType, f"{name}.element")
    elif isinstance(output, T.MapType) and isinstance(table, T.MapType):
        yield from _of_type(output.keyType, table.keyType, f"{name}.key")
        yield from _of_type(output.valueType, table.valueType, f"{name}.value")
    elif not _holds(table, output):
        yield Misfit(name, output.simpleString(), table.simpleString())


def _of_struct(output: T.StructType, table: T.StructType, name: str) -> Iterator[Misfit]:
    stored = {one.name.lower(): one.dataType for one in table.fields}
    for one in output.fields:
        found, path = stored.get(one.name.lower()), f"{name}.{one.name}"
        if found is None:
            yield Misfit(path, one.dataType.simpleString(), None)
        else:
            yield from _of_type(one.dataType, found, path)


def _holds(table: T.DataType, output: T.DataType) -> bool:
    """Whether a type without parts holds all values of another one."""
    if table == output or isinstance(table, _WIDER.get(type(output), ())):
        return True
    if isinstance(table, T.StringType):
        return isinstance(output, T.StringType | T.IntegralType | T.DecimalType | T.BooleanType | T.DateType)
    if isinstance(table, T.DecimalType):
        digits = _digits(output)
        return digits is not None and table.precision - table.scale >= digits[0] and table.scale >= digits[1]
    if isinstance(output, T.DecimalType):
        return output.scale == 0 and output.precision < _DIGITS.get(type(table), 0)
    return False


def _digits(kind: T.DataType) -> tuple[int, int] | None:
    """The digits before and behind the point; None for what is no exact number."""
    if isinstance(kind, T.DecimalType):
        return kind.precision - kind.scale, kind.scale
    whole = _DIGITS.get(type(kind))
    return None if whole is None else (whole, 0)
