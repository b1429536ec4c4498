"""Whether an Avro schema can hold columns without loss: fastavro silently writes 1.5 as an int.

============================================  =====================================================
the column is                                 the schema may have
============================================  =====================================================
tinyint, smallint, int, bigint                a type that reads as that column type, or a later one
float, double                                 the same
decimal                                       a decimal with as many digits before and after the point
array, map, struct                            the same, of parts that fit; of a struct by name
anything else                                 a type that reads as that column type
============================================  =====================================================

A timestamp may be written in milliseconds, except in a key, where two keys would become one.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import types as T

from tablestream.calling import user_line
from tablestream.connectors.avro_schema import AvroSchema, columns_of, fields_of
from tablestream.connectors.formats import Part
from tablestream.errors import ArgumentError

_WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_REAL = (T.FloatType, T.DoubleType)


def check_columns(schema: AvroSchema, part: Part, topic: str, columns: T.StructType) -> None:
    """Refuse columns without a field of their type, and fields without a column or a default.

    Raises
    ------
    ArgumentError
        The columns do not fit; the message names all of them.
    """
    wrong = list(_wrong(schema, part, columns))
    if wrong:
        raise ArgumentError(
            f"The Avro schema for the {part} of topic '{topic}' has {', '.join(wrong)}.",
            hint="Make the columns those of the schema with select(...), or change the schema.",
            where=user_line(),
        )


def _wrong(schema: AvroSchema, part: Part, columns: T.StructType) -> Iterator[str]:
    """What the schema has that does not fit."""
    wanted, kind, is_record = columns_of(schema, part)
    if not is_record:  # the first column, whatever it is called
        if not columns.fields:
            yield f"a {wanted[0].dataType.simpleString()} and no column for it"
            return
        wanted = T.StructType([T.StructField(columns.names[0], wanted[0].dataType)])
    yield from _misfits("", columns, wanted)
    for one in fields_of(schema) if is_record else ():
        if one["name"] not in columns.names and "default" not in one:
            yield f"a field {one['name']} without a default and without a column"
    for name, timed, arrow in zip(wanted.names, kind.timed, kind.arrow, strict=True):
        if part == "key" and timed.type != arrow.type:
            yield f"milliseconds for the column {name}, so that several keys could become one"


def _misfits(inside: str, given: T.StructType, wanted: T.StructType) -> Iterator[str]:
    for one in given:
        if one.name not in wanted.names:
            yield f"no field for the column {inside}{one.name}"
        else:
            yield from _misfit(inside + one.name, one.dataType, wanted[one.name].dataType)


def _misfit(name: str, given: T.DataType, wanted: T.DataType) -> Iterator[str]:
    if isinstance(given, T.StructType) and isinstance(wanted, T.StructType):
        yield from _misfits(f"{name}.", given, wanted)
    elif isinstance(given, T.ArrayType) and isinstance(wanted, T.ArrayType):
        yield from _misfit(f"{name}.element", given.elementType, wanted.elementType)
    elif isinstance(given, T.MapType) and isinstance(wanted, T.MapType):
        yield from _misfit(f"{name}.key", given.keyType, wanted.keyType)
        yield from _misfit(f"{name}.value", given.valueType, wanted.valueType)
    elif not _holds(wanted, given):
        yield f"{wanted.simpleString()} for the column {name}, which is {given.simpleString()}"


def _holds(wanted: T.DataType, given: T.DataType) -> bool:
    """Whether one type can hold every value of the other."""
    for order in (_WHOLE, _REAL):
        if isinstance(wanted, order) and isinstance(given, order):
            return order.index(type(given)) <= order.index(type(wanted))
    if isinstance(wanted, T.DecimalType) and isinstance(given, T.DecimalType):
        before = wanted.precision - wanted.scale >= given.precision - given.scale
        return before and wanted.scale >= given.scale
    return type(wanted) is type(given)
