"""Confluent's schema registry, through Confluent's own client.

Settings contain passwords: they are never shown, and no message of the client about them is passed on.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from tablestream.base.extras import install_hint
from tablestream.connectors.avro.schema import AvroSchema
from tablestream.errors import ArgumentError, RegistryError

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

_NOT_FOUND = 404
_AVRO = "AVRO"
_T = TypeVar("_T")


@dataclass(frozen=True)
class Registry:
    """A registry, identified by the settings of its client as JSON."""

    settings: str = field(repr=False)

    def schema(self, number: int) -> AvroSchema:
        """Return the Avro schema of a number; `NoSchemaError` if there is none, `RegistryError` without an answer."""
        return _schema(self, number)

    def latest(self, subject: str) -> tuple[int, AvroSchema]:
        """Return number and schema of a subject's latest version; `RegistryError` if there is none in Avro."""
        found = _asked(lambda: _client(self).get_latest_version(subject), f"the subject '{subject}'")
        if found.schema.schema_type != _AVRO:
            raise RegistryError(f"The subject '{subject}' has {found.schema.schema_type} schemas, not Avro.")
        return int(found.schema_id), _with_references(_client(self), found.schema)

    def number(self, subject: str, schema: AvroSchema, *, register: bool) -> int:
        """Return the number of a subject's schema; register the schema if allowed.

        `RegistryError`: the schema does not exist and may not be registered, it is not compatible with earlier ones, or
        there is no answer.
        """
        from confluent_kafka.schema_registry import Schema

        client, given = _client(self), Schema(schema.text, _AVRO)
        ask = client.register_schema if register else client.lookup_schema
        answer = _asked(lambda: ask(subject, given), f"the schema for the subject '{subject}'")
        return int(answer if register else answer.schema_id)


@lru_cache(maxsize=100)
def _client(registry: Registry) -> SchemaRegistryClient:
    """One client per process."""
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise ArgumentError(
            "Confluent's Avro needs the package confluent-kafka.",
            hint=install_hint("registry"),
        ) from error
    try:
        return SchemaRegistryClient(json.loads(registry.settings))
    except (ValueError, TypeError, KeyError) as error:
        raise ArgumentError(
            f"The settings of the schema registry are not valid ({type(error).__name__}).",
            hint='Give its URL, or the settings of confluent-kafka\'s client, such as {"url": ...}.',
        ) from None  # the client shows the settings, passwords among them


class NoSchemaError(Exception):
    """The registry has no Avro schema of this number yet. The answer is not cached. The text says why."""


@lru_cache(maxsize=10_000)
def _schema(registry: Registry, number: int) -> AvroSchema:
    client = _client(registry)
    found = _asked(lambda: client.get_schema(number), f"schema {number}", missing=True)
    if found is None or found.schema_type != _AVRO:
        raise NoSchemaError(f"the registry has no Avro schema {number}")
    try:
        return _with_references(client, found)
    except ArgumentError as error:
        raise NoSchemaError(f"schema {number} of the registry is not valid: {error.reason}") from error
    except RecursionError as error:
        raise NoSchemaError(f"schema {number} of the registry refers to others too deeply") from error


def _with_references(client: SchemaRegistryClient, schema: Schema) -> AvroSchema:
    """A schema with those that it refers to, each after its own references."""
    texts, seen = list[str](), set[tuple[str, int]]()

    def collect(one: Schema) -> None:
        for reference in one.references or []:
            if (reference.subject, reference.version) in seen:
                continue
            seen.add((reference.subject, reference.version))
            what = f"version {reference.version} of '{reference.subject}'"
            found = _asked(lambda: client.get_version(reference.subject, reference.version), what)  # noqa: B023 - called at once
            collect(found.schema)
            if found.schema.schema_str not in texts:
                texts.append(found.schema.schema_str)

    collect(schema)
    return AvroSchema.of(schema.schema_str, tuple(texts))


def _asked(ask: Callable[[], _T], what: str, *, missing: bool = False) -> _T | Any:
    """Ask the registry. None if it does not have the answer, and that is allowed."""
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    try:
        return ask()
    except SchemaRegistryError as error:
        if missing and error.http_status_code == _NOT_FOUND:
            return None
        raise RegistryError(
            f"The schema registry refuses {what}: {error.error_message} (HTTP {error.http_status_code})."
        ) from None
    except Exception as error:  # noqa: BLE001 - the client raises what its HTTP library does
        raise RegistryError(
            f"The schema registry does not answer for {what} ({type(error).__name__}).",
            hint="Check its URL and settings, and that it can be reached from every worker.",
        ) from None  # its text may show the URL, and a password in it
