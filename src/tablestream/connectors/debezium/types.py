"""Debezium's types as columns: what each semantic type means, and the column type that holds it by default.

=====================================================  ==========  ======================================
Type in the record                                     Kind        Column
=====================================================  ==========  ======================================
boolean                                                boolean     boolean
int8, int16, int32, int64; ``Year``                    integer     tinyint, smallint, int, bigint
float, double                                          real        float, double
string; ``Json``, ``Xml``, ``Uuid``, ``Enum``,         text        string
``EnumSet``, ``Ltree``, ``Tsvector``, ``ZonedTime``,
``Interval`` and other names of strings
``connect.data.Decimal``                               decimal     decimal; string if beyond 38 digits
``VariableScaleDecimal``                               decimal     string: the digits as they are
bytes                                                  binary      binary
``Bits``                                               bits        binary, the lowest bits first
``time.Date``, ``IsoDate``, ``connect.data.Date``      date        date
``time.Time``, ``MicroTime``, ``NanoTime``,            time        string, such as ``13:14:15.5``:
``IsoTime``, ``connect.data.Time``                                 a day of a database may end at 24:00:00,
                                                                   and MySQL's ``TIME`` is a duration
``time.Timestamp``, ``MicroTimestamp``,                local       timestamp_ntz
``NanoTimestamp``, ``IsoTimestamp``,
``connect.data.Timestamp``
``ZonedTimestamp``                                     instant     timestamp
``MicroDuration``                                      integer     bigint, microseconds
array, map, struct                                     the same    array, map, struct of the above
=====================================================  ==========  ======================================

``numeric`` without a scale has a scale per value, so no decimal type holds all of its values: name one for the column
to have numbers. Geometry, hstore as a map and vectors are structs, maps and arrays like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyspark.sql import types as T

from tablestream.connectors.debezium.wire import KINDS, Kind, Wire

Unit = Literal["milliseconds", "microseconds", "nanoseconds", "isostring"]

MAX_DIGITS = 38
DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE = "io.debezium.data.VariableScaleDecimal"
UUID = "io.debezium.data.Uuid"
JSON = "io.debezium.data.Json"


@dataclass(frozen=True)
class Meaning:
    """What a semantic type means: its kind, and the unit that a time is counted in."""

    kind: Kind
    unit: Unit = "microseconds"


_NAMED: dict[str, Meaning] = {
    DECIMAL: Meaning("decimal"),
    VARIABLE: Meaning("decimal"),
    "io.debezium.data.Bits": Meaning("bits"),
    "io.debezium.time.Date": Meaning("date"),
    "io.debezium.time.IsoDate": Meaning("date", "isostring"),
    "org.apache.kafka.connect.data.Date": Meaning("date"),
    "io.debezium.time.Time": Meaning("time", "milliseconds"),
    "io.debezium.time.MicroTime": Meaning("time"),
    "io.debezium.time.NanoTime": Meaning("time", "nanoseconds"),
    "io.debezium.time.IsoTime": Meaning("time", "isostring"),
    "org.apache.kafka.connect.data.Time": Meaning("time", "milliseconds"),
    "io.debezium.time.Timestamp": Meaning("local", "milliseconds"),
    "io.debezium.time.MicroTimestamp": Meaning("local"),
    "io.debezium.time.NanoTimestamp": Meaning("local", "nanoseconds"),
    "io.debezium.time.IsoTimestamp": Meaning("local", "isostring"),
    "org.apache.kafka.connect.data.Timestamp": Meaning("local", "milliseconds"),
    "io.debezium.time.ZonedTimestamp": Meaning("instant", "isostring"),
}

COLUMNS: dict[str, T.DataType] = {
    "boolean": T.BooleanType(),
    "int8": T.ByteType(),
    "int16": T.ShortType(),
    "int32": T.IntegerType(),
    "int64": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "text": T.StringType(),
    "binary": T.BinaryType(),
    "bits": T.BinaryType(),
    "date": T.DateType(),
    "time": T.StringType(),
    "local": T.TimestampNTZType(),
    "instant": T.TimestampType(),
}


def meaning_of(wire: Wire) -> Meaning:
    """Return what a value of this schema means; a name that is not known means its base type."""
    return _NAMED.get(wire.name) or Meaning(KINDS[wire.base])


def column_type(wire: Wire) -> T.DataType:
    """Return the column type that holds every value of this schema."""
    kind = meaning_of(wire).kind
    if kind == "decimal":
        return _decimal(wire)
    if kind == "array" and wire.items is not None:
        return T.ArrayType(column_type(wire.items))
    if kind == "map" and wire.items is not None:
        return T.MapType(column_type(wire.keys or Wire("string")), column_type(wire.items))
    if kind == "struct":
        return T.StructType(
            [T.StructField(name, column_type(one), one.optional) for name, one in wire.fields]
        )
    return COLUMNS.get(kind) or COLUMNS[wire.base]


def _decimal(wire: Wire) -> T.DataType:
    scale = number(wire.parameter("scale"))
    if wire.name == VARIABLE or scale is None:
        return T.StringType()
    digits = number(wire.parameter("connect.decimal.precision")) or MAX_DIGITS
    if scale < 0:  # Oracle's number(5, -2): digits before the point only
        digits, scale = digits - scale, 0
    digits = max(digits, scale)
    return T.StringType() if digits > MAX_DIGITS else T.DecimalType(digits, scale)


def number(text: str | None) -> int | None:
    """Read a parameter that is a whole number; None if it is missing or something else."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
