"""The types in which the keys of two tables are compared: every value of both sides stays apart in them.

A pair of types without such a type is refused. A cast would otherwise make one row of two keys of a table, as the
double of ``2 ** 53 + 1`` is that of ``2 ** 53``. A table in ``docs/semantics/keys-and-types.md`` has all pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import types as T

from tablestream.arguments.place import Place
from tablestream.base.type_lattice import holds
from tablestream.connectors.spark_types import nullable
from tablestream.errors import KeyMismatchError

_MAX_DIGITS = 38
#: As many decimal digits as a double always tells apart.
_DOUBLE_DIGITS = 15
_FLOATS = (T.FloatType, T.DoubleType)
#: The digits of the decimals that Spark makes of integers.
_DIGITS: dict[type[T.DataType], int] = {T.ByteType: 3, T.ShortType: 5, T.IntegerType: 10, T.LongType: 20}


def common_type(left: T.DataType, right: T.DataType) -> T.DataType | None:
    """Return the type in which two sides are compared, or None if no type holds all values of both.

    Examples
    --------
    >>> common_type(T.IntegerType(), T.LongType()), common_type(T.IntegerType(), T.DoubleType())
    (LongType(), DoubleType())
    >>> common_type(T.LongType(), T.DoubleType())
    """
    one, other = _plain(left), _plain(right)
    if one == other:
        return one
    if isinstance(one, T.IntegralType) and isinstance(other, T.IntegralType):
        return one if holds(one, other) else other
    if isinstance(one, T.NumericType) and isinstance(other, T.NumericType):
        floats = isinstance(one, _FLOATS) or isinstance(other, _FLOATS)
        return _double(one, other) if floats else _decimal(one, other)
    if {type(one), type(other)} == {T.DateType, T.TimestampNTZType}:
        return T.TimestampNTZType()
    return _by_parts(one, other)


def _double(*sides: T.NumericType) -> T.DataType | None:
    """Double, if it tells all values of both sides apart."""
    exact = all(
        holds(T.DoubleType(), one) or (isinstance(one, T.DecimalType) and one.precision <= _DOUBLE_DIGITS)
        for one in sides
    )
    return T.DoubleType() if exact else None


def _decimal(*sides: T.NumericType) -> T.DataType | None:
    """The decimal that holds both sides, of which one is a decimal and the other may be an integer."""
    one, other = (
        side if isinstance(side, T.DecimalType) else T.DecimalType(_DIGITS[type(side)], 0) for side in sides
    )
    scale = max(one.scale, other.scale)
    digits = max(one.precision - one.scale, other.precision - other.scale) + scale
    return T.DecimalType(digits, scale) if digits <= _MAX_DIGITS else None


def _by_parts(one: T.DataType, other: T.DataType) -> T.DataType | None:
    if isinstance(one, T.DayTimeIntervalType) and isinstance(other, T.DayTimeIntervalType):
        return T.DayTimeIntervalType(min(one.startField, other.startField), max(one.endField, other.endField))
    if isinstance(one, T.ArrayType) and isinstance(other, T.ArrayType):
        element = common_type(one.elementType, other.elementType)
        return None if element is None else T.ArrayType(element)
    if isinstance(one, T.StructType) and isinstance(other, T.StructType) and one.names == other.names:
        parts = [common_type(a.dataType, b.dataType) for a, b in zip(one, other, strict=True)]
        found = [kind for kind in parts if kind is not None]
        if len(found) == len(parts):
            return T.StructType([T.StructField(a.name, kind) for a, kind in zip(one, found, strict=True)])
    return None


def _plain(kind: T.DataType) -> T.DataType:
    """The type with every part nullable and strings without a length, so that equal meanings are equal."""
    return nullable(
        kind, lambda leaf: T.StringType() if isinstance(leaf, T.CharType | T.VarcharType) else leaf
    )


#: The `cast` of a foreign key.
POINTING = "on={}"


@dataclass(frozen=True)
class KeySide:
    """The key of one side of a join: names and types of its columns, and where a user writes a cast of one.

    `cast` contains ``{}``, where the expression goes, and may contain ``{name}``, the column's name.
    """

    columns: Sequence[tuple[str, T.DataType]]
    cast: str

    def __str__(self) -> str:
        """Return the types."""
        return ", ".join(kind.simpleString() for _, kind in self.columns)


def common_key(left: KeySide, right: KeySide, *, at: Place) -> list[T.DataType]:
    """Return the types in which two keys are compared; refuse keys that have none."""
    why, hint = ".", "Give on= the columns that hold the other table's key, as many as it has."
    if len(left.columns) == len(right.columns):
        common = [common_type(a, b) for (_, a), (_, b) in zip(left.columns, right.columns, strict=True)]
        found = [kind for kind in common if kind is not None]
        if len(found) == len(common):
            return found
        part = common.index(None)
        names = left.columns[part][0], right.columns[part][0]
        why = f": no type holds all values of '{names[0]}' and of '{names[1]}' and keeps them apart."
        hint = f"Cast one side: {_cast(left, right, part)}."
        if "(" in names[0] and isinstance(left.columns[part][1], T.BooleanType) and left.cast == POINTING:
            hint = 'on= is no condition. Give the column that holds the other table\'s key, as in on="product_id".'
    raise at.error(
        KeyMismatchError,
        f"A key of ({left}) cannot be compared with a key of ({right}){why}",
        hint,
    )


def _cast(left: KeySide, right: KeySide, part: int) -> str:
    """What a user can write for a pair of columns: the side that is less exact becomes the type of the other."""
    (_, one), (_, other) = left.columns[part], right.columns[part]
    is_left = _exactness(one) <= _exactness(other)
    side, kind = (left, other) if is_left else (right, one)
    name = side.columns[part][0]
    shown = name if "(" in name else f"F.col({name!r})"
    return side.cast.format(f"{shown}.cast({kind.simpleString()!r})", name=name)


def _exactness(kind: T.DataType) -> int:
    """Of two types that are not compared, the one into which a cast says more: texts hold everything."""
    if isinstance(kind, T.StringType | T.CharType | T.VarcharType):
        return 2
    return 0 if isinstance(kind, (*_FLOATS, T.DateType, T.TimestampNTZType)) else 1
