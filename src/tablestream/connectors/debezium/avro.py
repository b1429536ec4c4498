"""Records in Avro: a zero byte, the number of the writer's schema in a registry, the fields.

Kafka Connect's converter writes the semantic type of a field to the properties ``connect.name`` and
``connect.parameters`` of its Avro type. The values are those of JSON, but bytes are bytes, and a decimal is a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, Protocol

from tablestream.connectors.avro.codec import UndecodableError, read
from tablestream.connectors.avro.registry import NoSchemaError
from tablestream.connectors.avro.schema import AvroSchema, parsed, why_endless
from tablestream.connectors.debezium.records import Datum, UnreadableError
from tablestream.connectors.debezium.wire import BadSchemaError, Wire

_BASES = {"boolean": "boolean", "int": "int32", "long": "int64", "float": "float", "double": "double"}
_BASES |= {"string": "string", "enum": "string", "bytes": "bytes", "fixed": "bytes"}


class Schemas(Protocol):
    """Where schemas are looked up: `tablestream.connectors.avro.registry.Registry`, or one of a test."""

    def schema(self, number: int) -> AvroSchema:
        """Return the schema of a number, or raise `NoSchemaError`."""


@dataclass(frozen=True)
class AvroReader:
    """Reads records of Avro."""

    registry: Schemas
    """Has the writers' schemas. One that does not answer raises: that is no fault of the record."""
    number_bytes: Literal[4, 8] = 4
    """How many bytes a schema's number has: 4, or 8 as Apicurio's own converter writes it."""

    def __call__(self, payload: bytes) -> Datum:
        """Read a record that begins with a zero byte; `UnreadableError` if its schema is missing or another."""
        start = 1 + self.number_bytes
        if len(payload) < start:
            raise UnreadableError("it has no schema number")
        number = int.from_bytes(payload[1:start])
        try:
            schema = self.registry.schema(number)
            wire = _wire(schema)
            return Datum(read(payload[start:], schema, schema), wire)
        except (NoSchemaError, UndecodableError) as error:
            raise UnreadableError(str(error)) from error
        except BadSchemaError as error:
            raise UnreadableError(f"schema {number} {error}") from error


@lru_cache(maxsize=1000)
def _wire(schema: AvroSchema) -> Wire:
    """Return what Connect made the schema from; the same object for the same schema."""
    why = why_endless(schema)
    if why is not None:
        raise BadSchemaError(why)
    return _Reading().wire(parsed(schema, converts=False))


class _Reading:
    """Reads one schema; remembers the types that it defines."""

    def __init__(self) -> None:
        self._named: dict[str, Wire] = {}

    def wire(self, schema: Any) -> Wire:
        if isinstance(schema, list):
            return self._union(schema)
        if not isinstance(schema, Mapping):
            return self._word(schema)
        kind = schema["type"]
        found = self._complex(schema, kind) if isinstance(kind, str) else self.wire(kind)
        found = self._with_meaning(found, schema)
        if "name" in schema:
            self._named[schema["name"]] = found
        return found

    def _word(self, word: str) -> Wire:
        if word in self._named:
            return self._named[word]
        if word not in _BASES:
            raise BadSchemaError(f"has the type {word}, which no record of Debezium has")
        return Wire(_BASES[word], optional=False)

    def _complex(self, schema: Mapping[str, Any], kind: str) -> Wire:
        if kind == "record":
            fields = tuple((one["name"], self.wire(one["type"])) for one in schema["fields"])
            return Wire("struct", optional=False, fields=fields)
        if kind == "map":
            keys = Wire("string", optional=False)
            return Wire("map", optional=False, items=self.wire(schema["values"]), keys=keys)
        if kind != "array":
            return self._word(kind)
        items = self.wire(schema["items"])
        names = [name for name, _ in items.fields]
        if schema.get("connect.type") == "map" or (
            names == ["key", "value"] and items.name.endswith("MapEntry")
        ):
            return Wire("map", optional=False, items=items.fields[1][1], keys=items.fields[0][1])
        return Wire("array", optional=False, items=items)

    def _union(self, parts: list[Any]) -> Wire:
        others = [part for part in parts if part != "null"]
        if len(others) != 1:
            raise BadSchemaError("has a union of several types, which no record of Debezium has")
        return replace(self.wire(others[0]), optional=len(others) < len(parts))

    def _with_meaning(self, wire: Wire, schema: Mapping[str, Any]) -> Wire:
        parameters = schema.get("connect.parameters")
        pairs = parameters.items() if isinstance(parameters, Mapping) else ()
        small = schema.get("connect.type")
        return replace(
            wire,
            base=small if small in {"int8", "int16"} else wire.base,
            name=str(schema.get("connect.name") or wire.name),
            parameters=tuple((str(name), str(value)) for name, value in pairs) or wire.parameters,
        )
