"""Which of Spark's types hold every value of another one: one order for sinks, formats and keys.

======================  ==========================================================================================
type                    held, besides by itself, by
======================  ==========================================================================================
tinyint                 smallint, int, bigint, float, double, decimal with 3 digits before the point
smallint                int, bigint, float, double, decimal with 5 digits before the point
int                     bigint, double, decimal with 10 digits before the point
bigint                  decimal with 19 digits before the point
decimal(p, s)           decimal with as many digits on both sides
decimal(p, 0)           tinyint, smallint, int and bigint with p up to 2, 4, 9 and 18; float up to 7; double up to 15
float                   double
array, map, struct      the same with elements, keys, values and fields that hold those of the other
======================  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pyspark.sql import types as T

from tablestream.base.type_parts import parts

Holds = Callable[[T.DataType, T.DataType], bool]

#: The bits of the integers.
BITS: dict[type[T.DataType], int] = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32, T.LongType: 64}
#: The whole numbers of so many bits, with their negatives, are values of the type.
_WHOLE = {kind: bits - 1 for kind, bits in BITS.items()} | {T.FloatType: 24, T.DoubleType: 53}
_NESTED = (T.StructType, T.ArrayType, T.MapType)


@dataclass(frozen=True)
class Misfit:
    """A column, or a part of one, whose values are not all held.

    Attributes
    ----------
    name
        The column, with the way to its part: ``v.element.price``.
    given, stored
        The types. The stored one is None if it lacks the field of a struct.
    """

    name: str
    given: str
    stored: str | None


def holds(wide: T.DataType, narrow: T.DataType) -> bool:
    """Whether a type without parts holds every value of another one.

    Examples
    --------
    >>> holds(T.DoubleType(), T.IntegerType()), holds(T.DoubleType(), T.LongType())
    (True, False)
    """
    if wide == narrow:
        return True
    if isinstance(wide, T.DecimalType):
        return _decimal_holds(wide, narrow)
    bits = _WHOLE.get(type(wide), 0)
    if isinstance(narrow, T.DecimalType):
        return narrow.scale == 0 and 10**narrow.precision <= 1 << bits
    if isinstance(narrow, T.IntegralType):
        return bits >= _WHOLE[type(narrow)]
    return isinstance(wide, T.DoubleType) and isinstance(narrow, T.FloatType)


def _decimal_holds(wide: T.DecimalType, narrow: T.DataType) -> bool:
    before = wide.precision - wide.scale
    if isinstance(narrow, T.DecimalType):
        return before >= narrow.precision - narrow.scale and wide.scale >= narrow.scale
    return isinstance(narrow, T.IntegralType) and wide.scale >= 0 and 10**before > 1 << _WHOLE[type(narrow)]


def misfits(
    given: T.DataType,
    stored: T.DataType,
    name: str,
    *,
    holds: Holds = holds,
    fold: Callable[[str], str] = str,
) -> Iterator[Misfit]:
    """Find the parts of a type whose values another type does not hold.

    Parameters
    ----------
    given, stored
        The two types.
    name
        The column, or the empty text for the columns of a row.
    holds
        Whether a stored type without parts, the first argument, holds a given one.
    fold
        Makes names of fields equal that mean the same field.

    Examples
    --------
    >>> given = T.StructType().add("id", T.IntegerType()).add("prices", T.ArrayType(T.DecimalType(10, 4)))
    >>> stored = T.StructType().add("id", T.LongType()).add("prices", T.ArrayType(T.DecimalType(10, 1)))
    >>> list(misfits(given, stored, ""))
    [Misfit(name='prices.element', given='decimal(10,4)', stored='decimal(10,1)')]
    """
    if not any(isinstance(given, one) and isinstance(stored, one) for one in _NESTED):
        if not holds(stored, given):
            yield Misfit(name, given.simpleString(), stored.simpleString())
        return
    found = {fold(part): kind for part, kind in parts(stored)}
    for part, kind in parts(given):
        path = f"{name}.{part}" if name else part
        if fold(part) in found:
            yield from misfits(kind, found[fold(part)], path, holds=holds, fold=fold)
        else:
            yield Misfit(path, kind.simpleString(), None)
