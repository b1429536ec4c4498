"""What a record is: the forms that Debezium writes, in JSON or Avro, as one.

============================================================  =====================================================
The value is                                                  It means
============================================================  =====================================================
null; null in JSON                                            a delete of the key
``{"schema": ..., "payload": ...}``                           its payload, of a known schema
an object with ``op``, ``source``, ``before`` or ``after``    an envelope: what ``op`` says, with the row in ``after``
``op`` is ``m``                                               skipped: a logical message
``status``, ``id``, ``event_count``, ``data_collections``     skipped: the begin or end of a transaction
``ts_ms`` alone, and the key is ``serverName``                skipped: a heartbeat
``source`` and ``ddl`` or ``tableChanges``                    skipped: a change of a table's columns
any other object                                              a flattened row: a delete if ``__deleted`` is true or
                                                              ``__op`` is ``d``, else what ``__op`` says
============================================================  =====================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from tablestream.base.data_text import data_text
from tablestream.connectors.debezium.foreign import decimal_of, escaped
from tablestream.connectors.debezium.wire import BadSchemaError, Wire, wire_of

_JSON = msgspec.json.Decoder(float_hook=decimal_of).decode
OPERATIONS = {"c": "upsert", "u": "upsert", "r": "read", "d": "delete", "t": "truncate", "m": "skip"}
ROWS = frozenset(("upsert", "read"))
WHOLE = frozenset(("c", "r"))
#: The connector whose envelopes have no rows of columns.
MONGODB = "mongodb"
#: The mark of a flattened row; ``add.fields.prefix`` does not change its name.
DELETED = "__deleted"
_MAX_SCHEMAS = 1000
_SCHEMA, _PAYLOAD = b'{"schema":', b',"payload":'
#: The schemas of a table's keys and values, and of those before a change of its columns.
_KNOWN_SCHEMAS = 4


class UnreadableError(Exception):
    """The bytes are not a record; the text says why."""


class _Wrapped(msgspec.Struct, forbid_unknown_fields=True):
    schema: msgspec.Raw
    payload: msgspec.Raw


_WRAPPED = msgspec.json.Decoder(_Wrapped).decode


class Datum(msgspec.Struct, gc=False):
    """A key or a value: Python objects, and their schema if the record has one."""

    value: Any
    wire: Wire | None


class Event(msgspec.Struct, gc=False):
    """What one record says."""

    op: str | None
    """``upsert``, ``read``, ``delete``, ``truncate`` or ``skip``; None if it cannot be said."""
    row: dict[str, Any] | None = None
    """The row, of an upsert or read."""
    wire: Wire | None = None
    """The schema of the row, if the record has one."""
    source: Mapping[str, Any] = {}
    transaction: Mapping[str, Any] = {}
    """The blocks of the envelope, or what a flattened row has of them."""
    whole: bool = False
    """Whether it says that there was no row before: an insert or a row of a snapshot, not a change of the key."""


@dataclass(frozen=True)
class Reader:
    """Reads keys and values."""

    prefix: str
    """What begins the names of metadata in flattened rows."""
    avro: Callable[[bytes], Datum] | None = None
    """Reads bytes that begin with a zero byte; None if Avro is not expected."""
    columns: tuple[str, ...] = ()
    """The names of the row's columns; empty if they are not known."""
    _known: list[tuple[bytes, Wire | None]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def known_schema(self, payload: bytes) -> tuple[int, Wire | None] | None:
        """Return where the payload begins behind a schema that was read before, and that schema, or None.

        The payload ends before the last byte.
        """
        for head, wire in self._known:
            if payload.startswith(head) and payload.endswith(b"}"):
                return len(head), wire
        return None

    def datum(self, payload: bytes) -> Datum:
        """Read a key or a value; `UnreadableError` if it is neither JSON nor Avro, or its schema cannot be read."""
        if payload[:1] == b"\x00":
            if self.avro is None:
                raise UnreadableError(
                    "it is not JSON but begins with a zero byte, as Avro does; name its registry"
                )
            return self.avro(payload)
        try:
            if payload.startswith(b'{"schema"') and (found := self._unwrapped(payload)) is not None:
                return found
            value = _JSON(payload)
            if (
                type(value) is dict
                and len(value) == 2
                and value.keys() == {"schema", "payload"}
                and _is_schema(value["schema"])
            ):
                return Datum(value["payload"], None if value["schema"] is None else wire_of(value["schema"]))
        except msgspec.ValidationError as error:
            raise UnreadableError(f"it has a value that no column holds ({error})") from error
        except (ValueError, RecursionError, ArithmeticError) as error:
            raise UnreadableError(f"it is not JSON ({type(error).__name__})") from error
        except BadSchemaError as error:
            raise UnreadableError(str(error)) from error
        return Datum(value, None)

    def header(self, payload: bytes) -> Datum:
        """Read the key in a header; Connect's own converter writes control characters in it as they are."""
        try:
            return self.datum(payload)
        except UnreadableError:
            with suppress(UnreadableError):
                return self.datum(escaped(payload))
            raise

    def event(self, value: Datum, key: Any) -> Event:
        """Say what a value, not null, means; `UnreadableError` if it is none of Debezium's forms."""
        found = value.value
        if type(found) is not dict:
            raise UnreadableError("it is not an object")
        if (
            "op" in found
            and type(found.get("source")) is dict
            and ("after" in found or found["op"] in ("m", "t", "d"))
        ):
            return _envelope(found, value.wire)
        if _is_skipped(found, key):
            return Event("skip")
        return self._flat(found, value.wire)

    def _flat(self, found: dict[str, Any], wire: Wire | None) -> Event:
        shape = _shape(self.prefix, tuple(found))
        given = found.get(self.prefix + "op")
        op = "upsert" if given is None else _operation(given)
        if found.get(DELETED) == "true" or found.get(DELETED) is True:
            op = "delete"
        transaction = {name: found.get(f"{self.prefix}transaction_{name}") for name in ("id", "total_order")}
        row = {name: found[name] for name in shape.row} if op in ROWS else None
        if row is not None and self._taken:
            raise UnreadableError(
                f"it is flattened, and the table's column '{self._taken[0]}' has the name of metadata, which begins"
                f" with field_prefix={self.prefix!r}: set the connector's add.fields.prefix to another text, and give"
                " field_prefix= the same; or leave the column out, and read metadata with source="
            )
        source = {name: found[full] for name, full in shape.source}
        return Event(op, row, wire, source, transaction, given in WHOLE)

    @cached_property
    def _taken(self) -> tuple[str, ...]:
        """The columns that a flattened row cannot have: their names are those of metadata."""
        return tuple(name for name in self.columns if _is_metadata(name, self.prefix))

    def _unwrapped(self, payload: bytes) -> Datum | None:
        """Read a schema and a payload; None if it is another object. Each schema is read once per process."""
        if (known := self.known_schema(payload)) is not None:
            start, wire = known
            with suppress(ValueError, RecursionError, ArithmeticError):
                return Datum(_JSON(memoryview(payload)[start:-1]), wire)
        try:
            wrapped = _WRAPPED(payload)
        except msgspec.ValidationError:  # other fields
            return None
        text = bytes(wrapped.schema)
        if text not in _schemas:
            schema = _JSON(text)
            if not _is_schema(schema):
                return None
            if len(_schemas) >= _MAX_SCHEMAS:
                _schemas.clear()
            _schemas[text] = None if schema is None else wire_of(schema)
        self._know(payload, _SCHEMA + text + _PAYLOAD, _schemas[text])
        return Datum(_JSON(wrapped.payload), _schemas[text])

    def _know(self, payload: bytes, head: bytes, wire: Wire | None) -> None:
        """Remember how records of a schema begin, if this one begins so."""
        if payload.startswith(head) and self.known_schema(payload) is None:
            del self._known[: len(self._known) + 1 - _KNOWN_SCHEMAS]
            self._known.append((head, wire))


def _envelope(found: dict[str, Any], wire: Wire | None) -> Event:
    if found["source"].get("connector") == MONGODB:
        raise UnreadableError(
            "it is of MongoDB, whose rows are text without columns: its records are not read"
        )
    op = _operation(found["op"])
    transaction = found.get("transaction") or {}
    if type(transaction) is not dict:
        raise UnreadableError("the field 'transaction' is not an object")
    if op not in ROWS:
        return Event(op, None, None, found["source"], transaction)
    row = found.get("after")
    if type(row) is not dict:
        raise UnreadableError(f"its operation is '{found['op']}' and the field 'after' has no row")
    row_wire = None if wire is None else wire.field("after")
    return Event(op, row, row_wire, found["source"], transaction, found["op"] in WHOLE)


def _operation(given: Any) -> str:
    op = OPERATIONS.get(given) if isinstance(given, str) else None
    if op is None:
        shown = data_text(given) if isinstance(given, str) else "no text"
        raise UnreadableError(f"its operation is {shown}, which is none of Debezium's")
    return op


@dataclass(frozen=True)
class _Shape:
    """Which fields of a flattened row are the row's, and which are of ``source``: their names there, and here."""

    row: tuple[str, ...]
    source: tuple[tuple[str, str], ...]


@lru_cache(maxsize=1000)
def _shape(prefix: str, names: tuple[str, ...]) -> _Shape:
    """Return the shape of rows with these fields, in their order.

    ``__source_lsn`` or ``__lsn`` is of ``source``, but ``__ts_ms`` is another time.
    """
    meta = {name[len(prefix) :]: name for name in names if name.startswith(prefix)}
    plain = {name: full for name, full in meta.items() if not name.startswith(("source_", "ts_"))}
    source = plain | {
        name.removeprefix("source_"): full for name, full in meta.items() if name.startswith("source_")
    }
    row = tuple(name for name in names if not _is_metadata(name, prefix))
    return _Shape(row, tuple(source.items()))


def _is_metadata(name: str, prefix: str) -> bool:
    """Whether a field of a flattened row is none of the row's."""
    return name.startswith(prefix) or name == DELETED


def _is_skipped(found: dict[str, Any], key: Any) -> bool:
    if found.keys() == {"ts_ms"}:
        return isinstance(key, dict) and key.keys() == {"serverName"}
    if "status" in found:
        return found.keys() >= {"status", "id", "event_count", "data_collections"}
    return type(found.get("source")) is dict and ("ddl" in found or "tableChanges" in found)


def _is_schema(schema: Any) -> bool:
    return schema is None or (isinstance(schema, dict) and "type" in schema)


_schemas: dict[bytes, Wire | None] = {}
