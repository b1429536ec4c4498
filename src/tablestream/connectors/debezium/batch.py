"""Reads a micro-batch of records: what each of them says, before its columns are converted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tablestream.connectors.debezium import source as sources
from tablestream.connectors.debezium.columns import Errors, Row
from tablestream.connectors.debezium.records import Datum, Event, Reader, UnreadableError
from tablestream.connectors.debezium.usual import UsualEnvelopes
from tablestream.connectors.debezium.wire import Wire

_NO_KEY = (
    "the record has no key: the table has no primary key; give it one, or set REPLICA IDENTITY FULL and a message "
    "key (message.key.columns)"
)
_CONVERTER = "set the worker's header.converter=org.apache.kafka.connect.json.JsonConverter"
OLD_KEY, NEW_KEY = "__debezium.oldkey", "__debezium.newkey"
#: Connectors that begin a transaction for a truncate, and never end it: nothing may wait for the end.
_UNENDED_TRUNCATES = frozenset(("mysql", "mariadb"))
_KEYED = frozenset(("upsert", "read", "delete"))
_NO_DATUM = Datum(None, None)
_TOMBSTONE, _UNREADABLE = Event("delete"), Event(None)


Meta = tuple[str | None, int | None, str | None, str | None, int | None]
"""What a record says of itself: ``position``, ``ts_us``, ``snapshot``, ``transaction`` and ``total_order``."""
META_TYPES = (pa.string(), pa.int64(), pa.string(), pa.string(), pa.int64())
_NO_META: Meta = (None, None, None, None, None)


@dataclass(frozen=True)
class Records:
    """Records that were read, one entry each in every list."""

    events: list[Event]
    keys: list[Row | None]
    key_wires: list[Wire | None]
    """The keys of upserts, reads and deletes, and their schemas."""
    moved_from: dict[int, tuple[Row, Wire | None]]
    moved_to: dict[int, tuple[Row, Wire | None]]
    """The keys before and after a change of the key."""
    meta: list[Meta]
    """What they say of themselves."""
    errors: Errors
    """Why some cannot be decoded."""


@dataclass(frozen=True)
class RecordReader:
    """Reads records."""

    reader: Reader
    key_names: tuple[str, ...]
    """The columns of the key."""
    usual: UsualEnvelopes
    """Reads the values of most records."""

    def read(self, keys: pa.Array, values: pa.Array, headers: pa.Array) -> Records:
        found = Records([], [], [], {}, {}, [], {})
        usual = self.usual.event if _is_utf8(values) else lambda _: None
        events, rows, wires, said = found.events, found.keys, found.key_wires, found.meta
        for i, (key, value) in enumerate(zip(keys.to_pylist(), values.to_pylist(), strict=True)):
            event, row, wire, meta = _UNREADABLE, None, None, _NO_META
            try:
                event, row, wire = self._one(key, value, usual)
                if event is not _TOMBSTONE:
                    meta = _meta(event)
            except (UnreadableError, sources.BadSourceError) as error:
                event, row, wire = _UNREADABLE, None, None
                found.errors[i] = str(error)
            events.append(event)
            rows.append(row)
            wires.append(wire)
            said.append(meta)
        self._read_moves(headers, OLD_KEY, found, found.moved_from)
        self._read_moves(headers, NEW_KEY, found, found.moved_to)
        return found

    def _one(
        self, key: bytes | None, value: bytes | None, usual: Callable[[bytes], Event | None]
    ) -> tuple[Event, Row | None, Wire | None]:
        datum = _NO_DATUM if key is None else self._datum(key)
        event = _TOMBSTONE if value is None else usual(value) or self._event(value, datum.value)
        if event.op not in _KEYED:
            return event, None, None
        if datum.value is None:
            raise UnreadableError(_NO_KEY)
        return event, *self._key(datum.value, datum.wire)

    def _event(self, value: bytes, key: Any) -> Event:
        try:
            datum = self.reader.datum(value)
            if datum.value is None:  # a tombstone, as some converters write it
                return _TOMBSTONE
            return self.reader.event(datum, key)
        except UnreadableError as error:
            raise UnreadableError(f"the value cannot be decoded: {error}") from error

    def _datum(self, key: bytes) -> Datum:
        try:
            return self.reader.datum(key)
        except UnreadableError as error:
            raise UnreadableError(f"the key cannot be decoded: {error}") from error

    def _header(self, payload: bytes, name: str) -> Datum:
        try:
            return self.reader.header(payload)
        except UnreadableError as error:
            raise UnreadableError(f"the header {name} cannot be decoded: {error}; {_CONVERTER}") from error

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.key_names)

    def _key(self, given: Any, wire: Wire | None) -> tuple[Row, Wire | None]:
        """Check a key: the table's columns, or the value of its only column."""
        names = self.key_names
        if type(given) is not dict and len(names) == 1:
            given = {names[0]: given}
            wire = None if wire is None else _struct_of(names[0], wire)
        if type(given) is not dict:
            raise UnreadableError("the key is not an object")
        if given.keys() != self._names:
            raise UnreadableError(_other_key(names, given))
        return given, wire

    def _read_moves(
        self, headers: pa.Array, name: str, found: Records, moved: dict[int, tuple[Row, Wire | None]]
    ) -> None:
        for i, payload in _headers(headers, name):
            if payload is None or found.events[i].op not in _KEYED:
                continue
            if name == OLD_KEY:
                found.events[i].whole = False
            try:
                datum = self._header(payload, name)
                moved[i] = self._key(datum.value, datum.wire or found.key_wires[i])
            except UnreadableError as error:
                found.errors.setdefault(i, str(error))


def _is_utf8(values: pa.Array) -> bool:
    """Whether all of some binary values are UTF-8."""
    try:
        values.cast(pa.large_string() if values.type == pa.large_binary() else pa.string())
    except pa.ArrowInvalid:
        return False
    return True


@lru_cache(maxsize=1000)
def _struct_of(name: str, wire: Wire) -> Wire:
    """Return the schema of a struct with one field; the same object for the same field."""
    return Wire("struct", fields=((name, wire),))


def _other_key(names: Sequence[str], given: Row) -> str:
    lacks = [f"'{name}'" for name in names if name not in given]
    has = [f"'{name}'" for name in given if name not in names]
    parts = [f"lacks {', '.join(lacks)}"] if lacks else []
    parts += [f"has {', '.join(has)} beside the table's key"] if has else []
    return f"the key {' and '.join(parts)}"


def _headers(headers: pa.Array, name: str) -> Iterator[tuple[int, bytes | None]]:
    """The records with a header of a name, and its value."""
    if headers.null_count == len(headers):
        return
    flat = pc.list_flatten(headers)
    where = pc.equal(pc.struct_field(flat, 0), name)
    parents = pc.list_parent_indices(headers).filter(where).to_pylist()
    yield from zip(parents, pc.struct_field(flat, 1).filter(where).to_pylist(), strict=True)


def _meta(event: Event) -> Meta:
    source, transaction = event.source, event.transaction
    connector = sources.connector(source)
    if event.op == "truncate" and connector in _UNENDED_TRUNCATES:
        transaction = {}
    snapshot = sources.snapshot(source)
    number = transaction.get("total_order")
    if number is not None and not (type(number) is int and 0 <= number < 1 << 63):
        raise sources.BadSourceError("the field 'transaction.total_order' is not a number")
    return (
        sources.position(source, snapshot, number),
        sources.micros(source),
        snapshot,
        _transaction(connector, transaction.get("id")),
        number,
    )


def _transaction(connector: str | None, given: Any) -> str | None:
    if given is None:
        return None
    if not isinstance(given, str):
        raise sources.BadSourceError("the field 'transaction.id' is not text")
    return transaction_name(connector, given)


def transaction_name(connector: str | None, given: str) -> str:
    """Return a transaction's name; PostgreSQL's has a position after it, which differs from event to event."""
    if connector == "postgresql" or connector is None:
        name, _, position = given.partition(":")
        return name if name.isdecimal() and position.isdecimal() else given
    return given
