"""The schema of a field as Kafka Connect describes it: a base type, and the name of what it means.

A record in JSON may carry its schema; a record in Avro has one in a registry. Both become a `Wire`. A record without
a schema gets the `Wire` that the table's column and the modes of the connector imply (`columns.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from tablestream.connectors.debezium.foreign import text_of

Kind = Literal[
    "boolean",
    "integer",
    "real",
    "text",
    "decimal",
    "binary",
    "bits",
    "date",
    "time",
    "local",
    "instant",
    "array",
    "map",
    "struct",
]
#: Connect's base types, and what kind of value each is that has no other meaning.
KINDS: dict[str, Kind] = {
    "boolean": "boolean",
    "int8": "integer",
    "int16": "integer",
    "int32": "integer",
    "int64": "integer",
    "float": "real",
    "double": "real",
    "string": "text",
    "bytes": "binary",
    "array": "array",
    "map": "map",
    "struct": "struct",
}


class BadSchemaError(Exception):
    """A record's schema cannot be read; the text says why."""


@dataclass(frozen=True)
class Wire:
    """The schema of a value in a record."""

    base: str
    """Connect's base type: ``boolean``, ``int8`` to ``int64``, ``float``, ``double``, ``string``, ``bytes``, ``array``,
    ``map`` or ``struct``."""
    name: str = ""
    """The semantic type, such as ``io.debezium.time.Date``; empty if the base type says all."""
    parameters: tuple[tuple[str, str], ...] = ()
    """Of the semantic type, such as ``scale``."""
    optional: bool = True
    """Whether the value may be null."""
    fields: tuple[tuple[str, Wire], ...] = ()
    """Of a struct, in order."""
    items: Wire | None = None
    """Of an array, or the values of a map."""
    keys: Wire | None = None
    """Of a map."""
    guessed: bool = False
    """The record has no schema: this one follows from the table's column."""

    def parameter(self, name: str) -> str | None:
        return dict(self.parameters).get(name)

    def field(self, name: str) -> Wire | None:
        return self._by_name.get(name)

    @cached_property
    def _by_name(self) -> dict[str, Wire]:
        return dict(self.fields)

    def shown(self) -> str:
        """Return the type as errors show it."""
        return f"{self.base} ({self.name})" if self.name else self.base


def wire_of(schema: Any) -> Wire:
    """Read a schema as Connect's JSON converter writes it, or raise `BadSchemaError`."""
    base = text_of(schema.get("type")) if isinstance(schema, Mapping) else None
    if base not in KINDS:
        raise BadSchemaError("its schema is not one of Kafka Connect's")
    items = schema.get("items" if base == "array" else "values")
    if base in {"array", "map"} and items is None:
        raise BadSchemaError("its schema has an array or a map without a type")
    parameters = schema.get("parameters")
    return Wire(
        base,
        _name(schema.get("name")),
        tuple((k, str(v)) for k, v in parameters.items() if isinstance(v, (str, int)))
        if isinstance(parameters, Mapping)
        else (),
        schema.get("optional") is not False,
        _fields(schema.get("fields")) if base == "struct" else (),
        None if items is None else wire_of(items),
        None if schema.get("keys") is None else wire_of(schema["keys"]),
    )


def _name(given: Any) -> str:
    if given is None or isinstance(given, str):
        return given or ""
    raise BadSchemaError("its schema has a name that is not text")


def _fields(fields: Any) -> tuple[tuple[str, Wire], ...]:
    if not isinstance(fields, list) or not all(
        isinstance(one, Mapping) and isinstance(one.get("field"), str) for one in fields
    ):
        raise BadSchemaError("its schema has a struct without fields")
    return tuple((one["field"], wire_of(one)) for one in fields)
