"""Avro schemas as columns: their Spark and Arrow types, as the notes of `tablestream.avro` say.

Every column can be null. A logical type that is not among these does not count: a `uuid` is a string, a `duration`
twelve bytes, `time-millis` an int.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

from tablestream.errors import ArgumentError, UnsupportedTypeError

_MAX_DIGITS = 38
#: A schema may have so many parts when every name is written out, and be so deep.
_MAX_PARTS, _MAX_DEPTH = 10_000, 100
_TOO_DEEP = f"is nested deeper than {_MAX_DEPTH} levels"
_TOO_LARGE = f"has more than {_MAX_PARTS:,} parts when every name is written out"


@dataclass(frozen=True)
class AvroSchema:
    """A schema as JSON text, and the schemas that it refers to by name, each after its own references."""

    text: str
    references: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, given: str | Mapping[str, Any] | Sequence[Any], references: tuple[str, ...] = ()
    ) -> AvroSchema:
        """Take a schema as text or as Python objects; equal schemas have equal texts.

        Raises
        ------
        ArgumentError
            It is not a schema.
        """
        try:
            is_text = isinstance(given, str) and given.lstrip()[:1] in {"{", "[", '"'}
            schema = cls(json.dumps(json.loads(str(given)) if is_text else given), references)
            parsed(schema)
        except Exception as error:  # the parser raises what its callees do
            raise ArgumentError(
                f"This is not an Avro schema: {error}",
                hint='Give it as JSON text, or as a dict such as {"type": "record", "name": ..., "fields": [...]}.',
            ) from error
        why = why_endless(schema)
        if why in {_TOO_LARGE, _TOO_DEEP}:
            raise ArgumentError(f"The Avro schema {why}.", hint="Read and write records of a smaller schema.")
        return schema


@dataclass(frozen=True)
class AvroKind:
    """An Avro type in other systems."""

    spark: T.DataType
    read: pa.DataType
    """In Arrow, as it is read: dates and times are numbers."""
    timed: pa.DataType
    """In Arrow, with times in Avro's units."""
    arrow: pa.DataType
    """In Arrow as Spark needs it, with times in microseconds."""


def _flat(spark: T.DataType, arrow: pa.DataType) -> AvroKind:
    return AvroKind(spark, arrow, arrow, arrow)


def _time(spark: T.DataType, unit: str, zone: str | None) -> AvroKind:
    return AvroKind(spark, pa.int64(), pa.timestamp(unit, zone), pa.timestamp("us", zone))


_FLAT = {
    "boolean": _flat(T.BooleanType(), pa.bool_()),
    "int": _flat(T.IntegerType(), pa.int32()),
    "long": _flat(T.LongType(), pa.int64()),
    "float": _flat(T.FloatType(), pa.float32()),
    "double": _flat(T.DoubleType(), pa.float64()),
    "string": _flat(T.StringType(), pa.string()),
    "enum": _flat(T.StringType(), pa.string()),
    "bytes": _flat(T.BinaryType(), pa.binary()),
    "fixed": _flat(T.BinaryType(), pa.binary()),
}
_TIMES = {
    ("int", "date"): AvroKind(T.DateType(), pa.int32(), pa.date32(), pa.date32()),
    ("long", "timestamp-millis"): _time(T.TimestampType(), "ms", "UTC"),
    ("long", "timestamp-micros"): _time(T.TimestampType(), "us", "UTC"),
    ("long", "local-timestamp-millis"): _time(T.TimestampNTZType(), "ms", None),
    ("long", "local-timestamp-micros"): _time(T.TimestampNTZType(), "us", None),
}
#: What a number says, whether or not Spark has a type for it. Avro's rules for reading do not look at it.
_MEANINGS = {
    *_TIMES,
    ("int", "time-millis"),
    ("long", "time-micros"),
    ("long", "timestamp-nanos"),
    ("long", "local-timestamp-nanos"),
}
_UNIONS = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}


@lru_cache(maxsize=1000)
def parsed(schema: AvroSchema, *, converts: bool = True) -> Any:
    """Parse a schema for fastavro, with its logical types or not: then numbers stay numbers, except decimals."""
    from fastavro import parse_schema

    named: dict[str, Any] = {}
    for text in (*schema.references, schema.text):
        loaded = json.loads(text)
        result = parse_schema(loaded if converts else _without_conversions(loaded), named)
    return result


def _without_conversions(schema: Any) -> Any:
    """A schema whose only logical type is decimal."""
    if isinstance(schema, list):
        return [_without_conversions(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: part for name, part in schema.items() if name != "logicalType" or part == "decimal"}
    inner = ("type", "items", "values", "fields")
    return {name: _without_conversions(part) if name in inner else part for name, part in kept.items()}


@lru_cache(maxsize=1000)
def why_endless(schema: AvroSchema) -> str | None:
    """Say why a few bytes could keep a reader of this schema busy for long, or end its process; otherwise None.

    For a recursive record, the reader calls itself as deep as the bytes say. An array of items that take no bytes
    can have a billion items, for the bytes of one number. Records that name each other twice have 2**n parts at depth
    n, and a record of them may take no bytes at all.
    """
    try:
        expanded = _Expanded(_named(schema))
        for whole in _wholes(schema):
            expanded.of(whole)
    except _EndlessError as error:
        return str(error)
    except RecursionError:
        return _TOO_DEEP
    return None


class _EndlessError(Exception):
    """A schema that no record should be read with; the text says why."""


@dataclass(frozen=True)
class _Size:
    """How many parts a schema has, every name written out, how deep it is, and whether a value takes no bytes."""

    parts: int
    depth: int
    is_empty: bool

    @classmethod
    def around(cls, inner: Sequence[_Size], *, is_empty: bool = False) -> _Size:
        """The size of a schema with others inside it, unless it has too many parts or is too deep (`_EndlessError`)."""
        parts, depth = 1 + sum(one.parts for one in inner), 1 + max((one.depth for one in inner), default=0)
        if depth > _MAX_DEPTH:
            raise _EndlessError(_TOO_DEEP)
        if parts > _MAX_PARTS:
            raise _EndlessError(_TOO_LARGE)
        return cls(parts, depth, is_empty)


class _Expanded:
    """The sizes of schemas; each named type is looked at once."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._sizes: dict[str, _Size | None] = {}

    def of(self, schema: Any) -> _Size:
        """The size of a parsed schema. Raises `_EndlessError` where it has no end, or none that is near."""
        if isinstance(schema, list):
            return _Size.around(list(map(self.of, schema)))
        if isinstance(schema, str):
            known = schema in self._named
            return self._of_name(schema) if known else _Size.around([], is_empty=schema == "null")
        word = schema["type"]
        if "fields" in schema:
            return self._of_name(schema["name"])
        if word == "array":
            item = self.of(schema["items"])
            if item.is_empty:
                raise _EndlessError("has an array of items that take no bytes")
            return _Size.around([item])
        if word == "map":
            return _Size.around([self.of(schema["values"])])
        is_named = isinstance(word, str) and word in {"fixed", "enum"}
        return _Size.around([], is_empty=schema.get("size") == 0) if is_named else self.of(word)

    def _of_name(self, name: str) -> _Size:
        if name not in self._sizes:
            self._sizes[name] = None
            whole = self._named[name]
            if "fields" in whole:
                fields = [self.of(field["type"]) for field in whole["fields"]]
                self._sizes[name] = _Size.around(fields, is_empty=all(one.is_empty for one in fields))
            else:
                self._sizes[name] = self.of(whole)
        size = self._sizes[name]
        if size is None:
            raise _EndlessError("has a record inside itself")
        return size


@lru_cache(maxsize=1000)
def why_other_numbers(written: AvroSchema, wanted: AvroSchema) -> str | None:
    """Say which numbers would be read with another meaning, such as milliseconds as microseconds; otherwise None.

    A number without a meaning takes the reader's, and a reader without one takes the number as it is. Neither
    schema may be recursive.
    """
    found = _other_numbers(parsed(written), parsed(wanted), _named(written), _named(wanted))
    return next((f"has {there} where {here} is wanted" for there, here in found), None)


def _other_numbers(
    written: Any, wanted: Any, written_names: Mapping[str, Any], wanted_names: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """The meanings of numbers, written and wanted, that differ."""
    for one, other in product(_branches(written, written_names), _branches(wanted, wanted_names)):
        pairs = [(one[word], other[word]) for word in ("items", "values") if word in one and word in other]
        for field in other.get("fields", []):
            names = {field["name"], *field.get("aliases", [])}
            pairs += [(of["type"], field["type"]) for of in one.get("fields", []) if of["name"] in names]
        for inner in pairs:
            yield from _other_numbers(*inner, written_names, wanted_names)
        meant = _meaning(one), _meaning(other)
        if _MEANINGS.issuperset(meant) and meant[0] != meant[1]:
            yield one["logicalType"], other["logicalType"]


def _branches(schema: Any, named: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The types that a value may have, in a union or not; names are left out."""
    if isinstance(schema, list):
        return [branch for one in schema for branch in _branches(one, named)]
    if isinstance(schema, str):
        return [named[schema]] if schema in named else []
    return [schema] if isinstance(schema["type"], str) else _branches(schema["type"], named)


def _meaning(schema: Mapping[str, Any]) -> tuple[str, str]:
    return str(schema["type"]), str(schema.get("logicalType"))


@lru_cache(maxsize=1000)
def has_plain_boolean(schema: AvroSchema) -> bool:
    """Whether there is a boolean that cannot be null."""
    parts = (part for whole in _wholes(schema) for part in _parts(whole))
    inner = (
        one for part in parts if not isinstance(part, list) for one in _inner(part)
    )  # no branches of unions
    return parsed(schema) == "boolean" or "boolean" in inner


def _wholes(schema: AvroSchema) -> list[Any]:
    """A schema and those that it refers to, parsed."""
    wholes = [parsed(AvroSchema(text, schema.references[:n])) for n, text in enumerate(schema.references)]
    return [*wholes, parsed(schema)]


def _named(schema: AvroSchema) -> dict[str, Any]:
    """The named types of a schema and of those that it refers to."""
    parts = (part for whole in _wholes(schema) for part in _parts(whole))
    return {one["name"]: one for one in parts if isinstance(one, dict) and "name" in one}


def _inner(schema: Any) -> list[Any]:
    """The schemas inside a parsed one."""
    if not isinstance(schema, dict):
        return schema if isinstance(schema, list) else []
    inner = [schema[name] for name in ("type", "items", "values") if name in schema]
    return inner + [field["type"] for field in schema.get("fields", [])]


def _parts(schema: Any) -> Iterator[Any]:
    """A parsed schema, and everything inside it."""
    yield schema
    for inner in _inner(schema):
        yield from _parts(inner)


def columns_of(schema: AvroSchema, name: str) -> tuple[T.StructType, AvroKind, bool]:
    """Return the columns of a schema, the struct of these columns, and whether the schema is a record.

    Otherwise it has one column, called `name`. The error about a part without a Spark type names the part.
    """
    types = _Types()
    *_, kind = [types.of(whole, name) for whole in _wholes(schema)]
    is_record = isinstance(kind.spark, T.StructType)
    if not is_record:
        kind = _struct({name: kind})
    assert isinstance(kind.spark, T.StructType)  # noqa: S101 - a record is one
    return kind.spark, kind, is_record


def to_write(schema: AvroSchema) -> Any:
    """Parse a schema for fastavro's writer, which does not find what a name stands for if that is the whole schema."""
    named, whole = _named(schema), parsed(schema)
    if isinstance(whole, list):
        return [named.get(part, part) if isinstance(part, str) else part for part in whole]
    return named.get(whole, whole) if isinstance(whole, str) else whole


def fields_of(schema: AvroSchema) -> Sequence[Mapping[str, Any]]:
    """Return the fields of a schema that is a record, or a union of one with null."""
    whole = to_write(schema)
    record = next(part for part in whole if part != "null") if isinstance(whole, list) else whole
    fields: Sequence[Mapping[str, Any]] = record["fields"]
    return fields


def _struct(fields: Mapping[str, AvroKind]) -> AvroKind:
    return AvroKind(
        T.StructType([T.StructField(name, one.spark) for name, one in fields.items()]),
        pa.struct([pa.field(name, one.read) for name, one in fields.items()]),
        pa.struct([pa.field(name, one.timed) for name, one in fields.items()]),
        pa.struct([pa.field(name, one.arrow) for name, one in fields.items()]),
    )


class _Types:
    """Finds the types of schemas; named types are known after their definition."""

    def __init__(self) -> None:
        self._named: dict[str, AvroKind | None] = {}

    def of(self, schema: Any, column: str) -> AvroKind:
        """The type of a parsed schema; `column` appears in errors."""
        if isinstance(schema, list):
            return self._union(schema, column)
        if isinstance(schema, str):
            return _FLAT[schema] if schema in _FLAT else self._known(schema, column)
        word = schema["type"]
        return self._complex(schema, word, column) if isinstance(word, str) else self.of(word, column)

    def _complex(self, schema: Mapping[str, Any], word: str, column: str) -> AvroKind:
        if word in {"record", "error"}:
            return self._record(schema, column)
        if word == "array":
            return _array(self.of(schema["items"], f"{column}.element"))
        if word == "map":
            return _map(self.of(schema["values"], f"{column}.value"))
        kind = self._leaf(schema, word, column)
        if "name" in schema:
            self._named[schema["name"]] = kind
        return kind

    def _leaf(self, schema: Mapping[str, Any], word: str, column: str) -> AvroKind:
        logical = schema.get("logicalType")
        if logical == "decimal" and word in {"bytes", "fixed"}:
            digits, scale = schema["precision"], schema.get("scale", 0)
            if digits > _MAX_DIGITS:
                raise _unsupported(column, f"decimals of {digits} digits")
            return _flat(T.DecimalType(digits, scale), pa.decimal128(digits, scale))
        if word in _FLAT:
            return _TIMES.get((word, str(logical)), _FLAT[word])
        return self._known(word, column)

    def _known(self, name: str, column: str) -> AvroKind:
        kind = self._named.get(name)
        if kind is None:
            raise _unsupported(
                column, "a record inside itself" if name in self._named else f"the Avro type {name}"
            )
        return kind

    def _record(self, schema: Mapping[str, Any], column: str) -> AvroKind:
        self._named[schema["name"]] = None
        fields = {
            one["name"]: self.of(one["type"], f"{column}.{one['name']}") for one in schema.get("fields", [])
        }
        if not fields:
            raise _unsupported(column, "a record without fields")
        self._named[schema["name"]] = kind = _struct(fields)
        return kind

    def _union(self, parts: Sequence[Any], column: str) -> AvroKind:
        others = [part for part in parts if part != "null"]
        if len(others) == 1:
            return self.of(others[0], column)
        words = frozenset(part for part in others if isinstance(part, str))
        if len(words) == len(others) and words in _UNIONS:
            return _FLAT[_UNIONS[words]]
        raise _unsupported(column, "a union of several types")


def _array(element: AvroKind) -> AvroKind:
    arrows = (pa.list_(pa.field("element", kind)) for kind in (element.read, element.timed, element.arrow))
    return AvroKind(T.ArrayType(element.spark), *arrows)


def _map(value: AvroKind) -> AvroKind:
    arrows = (pa.map_(pa.string(), kind) for kind in (value.read, value.timed, value.arrow))
    return AvroKind(T.MapType(T.StringType(), value.spark), *arrows)


def _unsupported(column: str, what: str) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        f"'{column}' of the Avro schema is {what}, which Spark has no column type for.",
        hint="Read the records as 'binary' and decode them with your own function.",
    )
