"""The fields of ``source``: where in its database a change was made.

====================  ===========================================================================  ==================
Connector             Position: sorts, as bytes, in commit order                                   Number follows
====================  ===========================================================================  ==================
postgresql            ``sequence``: the last commit before, or 0 if null, and the change's place   yes
mysql, mariadb        ``file`` with its number padded, ``pos``                                     no
sqlserver, db2        ``commit_lsn``; Db2's has 16 bytes and not 10                                yes
oracle                ``commit_scn``, or ``scn`` in a snapshot                                     no
others                none
====================  ===========================================================================  ==================

The number is that of the event in its transaction, 0 if it is not known. A row of an incremental snapshot carries the
position that the stream has reached: it comes after the changes there.

A position never falls within a topic partition, unless the connector repeats itself. So some fields are not in it:

- ``lsn`` of PostgreSQL is not in commit order.
- ``row`` of MySQL begins again at 0 in each statement of a compressed transaction, whose changes share one ``pos``. The
  number begins again at 1 when the connector restarts in the middle of a transaction (before Debezium 3.7).
- ``change_lsn`` of SQL Server can fall in a transaction that changes keys. ``event_serial_no`` only counts the changes
  of one ``change_lsn``.
- Oracle's transactions can have the same ``commit_scn``, on one redo thread or on two, and each counts from 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
from pyspark.sql import types as T

from tablestream.base.data_text import data_text
from tablestream.connectors.debezium.foreign import text_of

_LONG: T.DataType = T.LongType()
_INT: T.DataType = T.IntegerType()
_TEXT: T.DataType = T.StringType()

#: The fields of every connector.
COMMON = dict.fromkeys(("ts_ms", "ts_us", "ts_ns"), _LONG) | dict.fromkeys(
    ("version", "connector", "name", "snapshot", "db", "sequence", "schema", "table"), _TEXT
)
#: The other fields of each connector.
BY_CONNECTOR = {
    "postgresql": dict.fromkeys(("txId", "lsn", "xmin", "origin_lsn"), _LONG) | {"origin": _TEXT},
    "mysql": dict.fromkeys(("server_id", "pos", "thread"), _LONG)
    | dict.fromkeys(("gtid", "file", "query"), _TEXT)
    | {"row": _INT},
    "sqlserver": dict.fromkeys(("change_lsn", "commit_lsn"), _TEXT) | {"event_serial_no": _LONG},
    "oracle": dict.fromkeys(("txSeq", "commit_ts_ms", "ssn", "start_ts_ms"), _LONG)
    | dict.fromkeys(("txId", "scn", "commit_scn", "lcr_position", "rs_id"), _TEXT)
    | dict.fromkeys(("user_name", "redo_sql", "row_id", "start_scn"), _TEXT)
    | {"redo_thread": _INT},
}
BY_CONNECTOR["mariadb"] = BY_CONNECTOR["mysql"]
BY_CONNECTOR["db2"] = BY_CONNECTOR["sqlserver"]

#: The fields that the position, the time and the part of a snapshot are read from.
READ = frozenset(("connector", "snapshot", "ts_ms", "ts_us", "ts_ns", "sequence", "file", "pos")) | frozenset(
    ("commit_lsn", "commit_scn", "scn")
)
_SNAPSHOTS = frozenset(
    ("true", "first", "first_in_data_collection", "last_in_data_collection", "last", "incremental")
)
_AFTER_CHANGES = 10**19
_DIGITS = "0123456789"
_POSITION_DIGITS = 20
#: A file system's names and paths end before.
_FILE_LETTERS = 512
_LSN = re.compile(r"([0-9a-fA-F]{1,8}):([0-9a-fA-F]{1,8}):([0-9a-fA-F]{1,4}|[0-9a-fA-F]{16})")
_sequence = msgspec.json.Decoder(tuple[str | None, str | None]).decode
_USUAL_SEQUENCE = re.compile(r'\["([0-9]{1,20})","([0-9]{1,20})"\]')

Source = Mapping[str, Any]


class BadSourceError(Exception):
    """A field of ``source`` is not what Debezium writes; the text names it."""


def field_type(name: str) -> T.DataType | None:
    """Return the column type of a field of ``source``, or None if no connector has it.

    ``txId`` is text: a number for PostgreSQL, and none for Oracle.
    """
    found = [fields[name] for fields in (COMMON, *BY_CONNECTOR.values()) if name in fields]
    return None if not found else found[0] if len(set(map(type, found))) == 1 else _TEXT


def field_value(source: Source, name: str) -> Any:
    """Return a field of ``source`` for a column of type `field_type`, or raise `BadSourceError`."""
    value, kind = source.get(name), field_type(name)
    if value is None:
        return None
    if kind == _TEXT:
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, (str, int)):
            return str(value)
        raise BadSourceError(f"the field 'source.{name}' is not text")
    limit = 1 << (31 if kind == _INT else 63)
    if type(value) is int and -limit <= value < limit:
        return value
    raise BadSourceError(f"the field 'source.{name}' is not a whole number")


def connector(source: Source) -> str | None:
    """Return the connector's name, which a flattened row may lack."""
    found = source.get("connector")
    if found is None or isinstance(found, str):
        return found
    raise BadSourceError("the field 'source.connector' is not text")


def micros(source: Source) -> int | None:
    """Return the time of the change in its database, in microseconds since 1970."""
    found = source.get("ts_us")
    if found is None:
        nanos, millis = source.get("ts_ns"), source.get("ts_ms")
        found = nanos // 1000 if type(nanos) is int else millis * 1000 if type(millis) is int else millis
    if found is None or (type(found) is int and -(1 << 63) <= found < 1 << 63):
        return found
    raise BadSourceError("the field 'source.ts_us' or 'source.ts_ms' is not a time")


def snapshot(source: Source) -> str | None:
    """Return which part of a snapshot the row is of; None for a change.

    A snapshot in the middle of PostgreSQL's stream is ``incremental``: its rows come after the changes before it.
    """
    found = source.get("snapshot")
    if found is None or found is False or found == "false":
        return None
    text = "true" if found is True else text_of(found)
    if text in _SNAPSHOTS:
        return "incremental" if _is_in_stream(source) else text
    raise BadSourceError(f"the field 'source.snapshot' is {'no text' if text is None else data_text(text)}")


def _is_in_stream(source: Source) -> bool:
    """Whether PostgreSQL's stream had a commit before; a first snapshot has none."""
    if connector(source) not in {None, "postgresql"}:
        return False
    place = _postgresql(source)
    return place is not None and not place.startswith("0" * 20)


def position(source: Source, of_snapshot: str | None, number: int | None) -> str | None:
    """Return a text that sorts, as bytes, in commit order; None if the connector has no such order.

    `of_snapshot`: what `snapshot` returned. `number`: the event's number in its transaction, if known. Raises
    `BadSourceError` if a field that gives the position is not what Debezium writes.
    """
    place = _place(source)
    found = None if place is None else place(source)
    if found is None:
        return None
    counted = number if place in _NUMBERED else None
    last = _AFTER_CHANGES if of_snapshot == "incremental" else counted or 0
    return f"{found}:{str(last).zfill(20)}"


def _postgresql(source: Source) -> str | None:
    text = source.get("sequence")
    if text is None:
        return None
    if isinstance(text, str) and (usual := _USUAL_SEQUENCE.fullmatch(text)):
        return f"{usual[1].zfill(20)}:{usual[2].zfill(20)}"
    try:
        commit, own = _sequence(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise BadSourceError("the field 'source.sequence' is not a pair of positions") from error
    return f"{_padded(commit, 'sequence')}:{_padded(own, 'sequence')}"


def _mysql(source: Source) -> str | None:
    file = source.get("file")
    if not file:
        return None
    text = (text_of(file) or "")[: _FILE_LETTERS + 1]
    name = text.rstrip(_DIGITS)
    number = text[len(name) :].lstrip("0")
    if len(name) == len(text) or len(text) > _FILE_LETTERS or len(number) > _POSITION_DIGITS:
        raise BadSourceError("the field 'source.file' is not a binary log")
    return f"{name}{number.zfill(_POSITION_DIGITS)}:{_padded(source.get('pos'), 'pos')}"


def _lsn(source: Source, *, digits: int) -> str | None:
    """Read ``commit_lsn``. Its last part has 4 digits, of Db2 up to 16: its positions have more bytes."""
    value = source.get("commit_lsn")
    if value is None:
        return None
    found = _LSN.fullmatch("0:0:0" if value == "NULL" else value) if isinstance(value, str) else None
    if found is None:
        raise BadSourceError("the field 'source.commit_lsn' is not a position")
    return f"{found[1].zfill(8)}:{found[2].zfill(8)}:{found[3].zfill(digits)}".lower()


_sqlserver, _db2 = partial(_lsn, digits=4), partial(_lsn, digits=16)


def _oracle(source: Source) -> str | None:
    name = "commit_scn" if source.get("commit_scn") else "scn"
    return None if source.get(name) is None else _padded(source[name], name)


_PLACES: dict[str, Callable[[Source], str | None]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
    "mariadb": _mysql,
    "sqlserver": _sqlserver,
    "db2": _db2,
    "oracle": _oracle,
}
#: Where the event's number tells the changes of one place apart.
_NUMBERED = frozenset((_postgresql, _sqlserver, _db2))


def is_of_mysql(source: Source) -> bool:
    """Whether a change is of MySQL or MariaDB."""
    return _place(source) is _mysql


def _place(source: Source) -> Callable[[Source], str | None] | None:
    """Return what reads the position. A flattened row may lack the connector's name."""
    name = connector(source)
    if name is not None:
        return _PLACES.get(name)
    by_field: dict[str, Callable[[Source], str | None]] = {
        "sequence": _postgresql,
        "file": _mysql,
        "commit_lsn": _sqlserver,
        "commit_scn": _oracle,
    }
    return next((place for name, place in by_field.items() if source.get(name) is not None), None)


def _padded(value: Any, name: str) -> str:
    if value is None:
        return "0" * 20
    if (type(value) is int and value >= 0) or (
        isinstance(value, str) and value.isascii() and value.isdecimal()
    ):
        text = str(value)
        if len(text) <= _POSITION_DIGITS:
            return text.zfill(_POSITION_DIGITS)
    raise BadSourceError(f"the field 'source.{name}' is not a position")
