"""From the schema of a field and the type of its column to what converts the values.

`scalar` chooses by the kind of the field (`types.py`); arrays, maps and structs convert part by part. `guessed` makes
the schema of a field whose record has none, from the column and the modes of the connector. Numbers and times have
modules of their own; texts and bytes become columns here:

=======  =======================================================  =========================================
Kind     The record has                                           The column may be
=======  =======================================================  =========================================
text     text                                                     string; decimal, any integer, float, double:
                                                                  ``decimal.handling.mode=string``
text     bytes as ``binary.handling.mode`` writes them            binary
text     hstore as JSON                                           map of strings
binary   base64; bytes in Avro                                    binary
=======  =======================================================  =========================================

A string that comes without a schema may also be a decimal with its scale, or, if the column has a unit in ``times``, a
time of day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import types as T

from tablestream.base.type_parts import within
from tablestream.connectors.debezium import numbers, times
from tablestream.connectors.debezium.scalars import MisfitError, Modes, Scalar, text_bytes
from tablestream.connectors.debezium.types import COLUMNS, DECIMAL, JSON, meaning_of
from tablestream.connectors.debezium.wire import Wire

#: The types that columns, and what is inside them, can have; not those derived of them, such as a varchar.
_HELD = frozenset(
    {
        T.BooleanType,
        T.ByteType,
        T.ShortType,
        T.IntegerType,
        T.LongType,
        T.FloatType,
        T.DoubleType,
        T.DecimalType,
    }
    | {T.StringType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType}
    | {T.ArrayType, T.MapType, T.StructType}
)
_GUESSES: dict[type[T.DataType], Wire] = {
    type(COLUMNS[base]): Wire(base)
    for base in ("boolean", "int8", "int16", "int32", "int64", "float", "double")
} | {T.BinaryType: Wire("bytes"), T.DateType: Wire("int32", "io.debezium.time.Date")}
_TIMESTAMPS = {
    "milliseconds": Wire("int64", "io.debezium.time.Timestamp"),
    "microseconds": Wire("int64", "io.debezium.time.MicroTimestamp"),
    "nanoseconds": Wire("int64", "io.debezium.time.NanoTimestamp"),
    "isostring": Wire("string", "io.debezium.time.IsoTimestamp"),
}


def is_held(target: T.DataType) -> bool:
    """Whether records of Debezium can become a column of this type."""
    return all(type(one) in _HELD for one in within(target))


def guessed(target: T.DataType, modes: Modes, column: str) -> Wire:
    """Return the schema that a column implies, for a record without one."""
    return replace(_guess(target, modes, column), guessed=True)


def _guess(target: T.DataType, modes: Modes, column: str) -> Wire:
    if isinstance(target, T.DecimalType):
        return Wire("bytes", DECIMAL, (("scale", str(target.scale)),))
    if isinstance(target, (T.TimestampType, T.TimestampNTZType)):
        return _TIMESTAMPS[modes.unit(column)]
    if isinstance(target, T.ArrayType):
        return Wire("array", items=guessed(target.elementType, modes, column))
    if isinstance(target, T.MapType):
        keys, values = (guessed(one, modes, column) for one in (target.keyType, target.valueType))
        return Wire("map", items=values, keys=keys)
    if isinstance(target, T.StructType):
        return Wire("struct", fields=tuple((one.name, _part(one.dataType, modes, column)) for one in target))
    unit = modes.times.get(column)
    return _GUESSES.get(type(target)) or Wire("string", parameters=(("unit", unit),) if unit else ())


def _part(target: T.DataType, modes: Modes, column: str) -> Wire:
    """A field of a struct; ``binary.handling.mode`` is for columns, and not for the bytes in a geometry."""
    return Wire("bytes") if isinstance(target, T.BinaryType) else guessed(target, modes, column)


def scalar(wire: Wire, target: T.DataType, modes: Modes) -> Scalar | None:
    """Return what converts values of a schema to a column's type; None if they do not go together."""
    kind = meaning_of(wire).kind
    if kind == "array":
        return _array(wire, target, modes)
    if kind == "map":
        return _map(wire, target, modes)
    if kind == "struct":
        return _struct(wire, target, modes)
    return _BY_KIND[kind](wire, target, modes)


def nullable(one: Scalar) -> Callable[[Any], Any]:
    """Return the conversion of a value that may be null, or need no conversion."""
    convert, plain = one.one, one.plain
    return lambda value: value if value is None or type(value) is plain else convert(value)


def _array(wire: Wire, target: T.DataType, modes: Modes) -> Scalar | None:
    if not isinstance(target, T.ArrayType) or wire.items is None:
        return None
    element = scalar(wire.items, target.elementType, modes)
    if element is None:
        return None
    convert, nulls = nullable(element), target.containsNull

    def one(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise MisfitError("is not an array")
        if not nulls and None in value:
            raise MisfitError("contains null")
        return [convert(part) for part in value]

    return Scalar(one, pa.list_(pa.field("element", element.storage)))


def _map(wire: Wire, target: T.DataType, modes: Modes) -> Scalar | None:
    if not isinstance(target, T.MapType) or wire.items is None:
        return None
    key = scalar(wire.keys or Wire("string", guessed=wire.guessed), target.keyType, modes)
    value = scalar(wire.items, target.valueType, modes)
    if key is None or value is None:
        return None
    of_key, of_value, nulls = nullable(key), nullable(value), target.valueContainsNull
    textual = isinstance(target.keyType, T.StringType) and isinstance(target.valueType, T.StringType)

    def one(given: Any) -> list[tuple[Any, Any]]:
        given = _hstore(given) if wire.guessed and textual and isinstance(given, str) else given
        found = [(of_key(name), of_value(part)) for name, part in _entries(given)]
        if any(name is None for name, _ in found) or (not nulls and any(part is None for _, part in found)):
            raise MisfitError("contains null")
        return found

    return Scalar(one, pa.map_(key.storage, value.storage))


def _entries(given: Any) -> Iterable[tuple[Any, Any]]:
    """The entries of a map: an object if its keys are texts, else pairs; Avro has records of key and value."""
    if isinstance(given, dict):
        return given.items()
    if isinstance(given, list):
        if all(isinstance(one, list) and len(one) == 2 for one in given):
            return [(key, value) for key, value in given]
        if all(isinstance(one, dict) and set(one) == {"key", "value"} for one in given):
            return [(one["key"], one["value"]) for one in given]
    raise MisfitError("is not a map")


def _struct(wire: Wire, target: T.DataType, modes: Modes) -> Scalar | None:
    if not isinstance(target, T.StructType):
        return None
    parts: dict[str, Callable[[Any], Any]] = {}
    storage = []
    for field in target:
        given = wire.field(field.name)
        part = None if given is None else scalar(given, field.dataType, modes)
        if part is None:
            return None
        parts[field.name] = nullable(part)
        storage.append((field.name, part.storage))
    required = [field.name for field in target if not field.nullable]

    def one(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise MisfitError("is not an object")
        if any(value.get(name) is None for name in required):
            raise MisfitError("lacks a field that is not null")
        return {name: convert(value.get(name)) for name, convert in parts.items()}

    return Scalar(one, pa.struct(storage))


def _text(wire: Wire, target: T.DataType, modes: Modes) -> Scalar | None:
    if isinstance(target, T.StringType):
        return Scalar(_guessed_text(wire) if wire.guessed else _string, pa.string(), plain=str)
    if isinstance(target, T.BinaryType):
        if modes.binary == "bytes" and not wire.guessed:
            return Scalar(_unknown_text, pa.binary())
        return Scalar(lambda value: text_bytes(value, modes.binary), pa.binary(), plain=bytes)
    if isinstance(target, T.MapType) and wire.name == JSON:
        return _hstore_map(target)
    return numbers.text_decimal(target) if not wire.name and isinstance(target, T.NumericType) else None


def _binary(wire: Wire, target: T.DataType, modes: Modes) -> Scalar | None:
    if not isinstance(target, T.BinaryType):
        return None
    mode = modes.binary if wire.guessed else "bytes"
    return Scalar(lambda value: text_bytes(value, mode), pa.binary(), plain=bytes)


def _hstore(value: Any) -> dict[str, str | None]:
    try:
        return msgspec.json.decode(value, type=dict[str, str | None])
    except (ValueError, TypeError, RecursionError) as error:
        raise MisfitError("is not hstore as JSON") from error


def _hstore_map(target: T.MapType) -> Scalar | None:
    if not isinstance(target.keyType, T.StringType) or not isinstance(target.valueType, T.StringType):
        return None
    return Scalar(lambda value: list(_hstore(value).items()), pa.map_(pa.string(), pa.string()))


def _string(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise MisfitError("is not text")


def _unknown_text(_value: Any) -> bytes:
    raise MisfitError("is text for a binary column: set binary= to the connector's binary.handling.mode")


def _guessed_text(wire: Wire) -> Any:
    """Return what reads a string without a schema; a parameter ``unit`` makes a count a time of day."""
    unit = wire.parameter("unit")
    as_time = None if unit is None else times.time_as_text(unit)  # type: ignore[arg-type]  # a name of Unit

    def one(value: Any) -> str:
        if isinstance(value, dict):
            return numbers.plain_text(numbers.variable(value))
        return as_time(value) if as_time and not isinstance(value, str) else _string(value)

    return one


_BY_KIND: dict[str, Callable[[Wire, T.DataType, Modes], Scalar | None]] = {
    "boolean": numbers.boolean,
    "integer": numbers.integer,
    "real": numbers.real,
    "decimal": numbers.decimal,
    "bits": numbers.bits,
    "text": _text,
    "binary": _binary,
    "date": times.day,
    "time": times.time_of_day,
    "local": times.timestamp,
    "instant": times.timestamp,
}
