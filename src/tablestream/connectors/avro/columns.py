"""Whether an Avro schema can hold columns without loss: fastavro silently writes 1.5 as an int.

============================================  =====================================================
the column is                                 the schema may have
============================================  =====================================================
a number                                      a number of its kind (integer, float, decimal) that holds it in
                                              `tablestream.base.type_lattice`
array, map, struct                            the same, of parts that fit; of a struct by name
anything else                                 a type that reads as that column type
============================================  =====================================================

A timestamp may be written in milliseconds, except in a key, where two keys would become one.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import types as T

from tablestream.base.type_lattice import holds, misfits
from tablestream.connectors.avro.schema import AvroSchema, columns_of, fields_of
from tablestream.connectors.formats import Part
from tablestream.errors import ArgumentError


def check_columns(schema: AvroSchema, part: Part, topic: str, columns: T.StructType) -> None:
    """Refuse columns without a field of their type, and fields without a column or a default: all of them."""
    wrong = list(_wrong(schema, part, columns))
    if wrong:
        raise ArgumentError(
            f"The Avro schema for the {part} of topic '{topic}' has {', '.join(wrong)}.",
            hint="Make the columns those of the schema with select(...), or change the schema.",
        )


def _wrong(schema: AvroSchema, part: Part, columns: T.StructType) -> Iterator[str]:
    """What the schema has that does not fit."""
    wanted, kind, is_record = columns_of(schema, part)
    if not is_record:  # the first column, whatever it is called
        if not columns.fields:
            yield f"a {wanted[0].dataType.simpleString()} and no column for it"
            return
        wanted = T.StructType([T.StructField(columns.names[0], wanted[0].dataType)])
    for wrong in misfits(columns, wanted, "", holds=_holds):
        given = "" if wrong.stored is None else f", which is {wrong.given}"
        yield f"{wrong.stored or 'no field'} for the column {wrong.name}{given}"
    for one in fields_of(schema) if is_record else ():
        if one["name"] not in columns.names and "default" not in one:
            yield f"a field {one['name']} without a default and without a column"
    for name, timed, arrow in zip(wanted.names, kind.timed, kind.arrow, strict=True):
        if part == "key" and timed.type != arrow.type:
            yield f"milliseconds for the column {name}, so that several keys could become one"


def _holds(wanted: T.DataType, given: T.DataType) -> bool:
    """Whether fastavro writes every value of one type as the other: it makes no decimal of an integer."""
    for kind in (T.IntegralType, T.FloatType | T.DoubleType, T.DecimalType):
        if isinstance(wanted, kind) and isinstance(given, kind):
            return holds(wanted, given)
    return type(wanted) is type(given)
