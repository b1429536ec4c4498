"""Fields of a table's records that are none of its columns: added ones, renamed ones, and those left out on purpose.

=================================================  ============================================================
The field                                          The record
=================================================  ============================================================
is one of ``except_columns``                       is read as if it were not there
cannot be null, says the record's schema           cannot be decoded: its table has a column that rows need
is in a row that lacks a column of the table       cannot be decoded: the column may have been renamed, and its
                                                   values would be lost
is any other                                       is read without it; the field is counted, and named in the log
=================================================  ============================================================

A row lacks no column of partial rows: what it leaves out is as before.

A name in ``except_columns`` that no record has is no error: a column may have been added after the first records, or
dropped before the last ones. It is named in the log, with the fields that the records have.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from tablestream.connectors.debezium.columns import Errors, Row
from tablestream.connectors.debezium.records import Event
from tablestream.connectors.debezium.wire import Wire

_log = logging.getLogger(__name__)
_announced: set[tuple[str, str]] = set()
#: Whoever writes to a topic chooses the names of fields: the log of a process ends.
_MAX_ANNOUNCED = 1000


@dataclass(frozen=True)
class Fields:
    """Tells the fields that are columns from others."""

    known: frozenset[str]
    """The columns of key and value, and the fields that are left out on purpose."""
    expected: frozenset[str]
    """The columns that every row has: those of the value, without those of partial rows."""

    def added(self, rows: Sequence[Row | None]) -> dict[int, list[str]]:
        """Return the fields of each row that are no columns, of the rows that have any."""
        known = self.known
        return {
            i: [name for name in row if name not in known]
            for i, row in enumerate(rows)
            if row is not None and not row.keys() <= known
        }

    def refusals(self, events: Sequence[Event], added: Mapping[int, Sequence[str]]) -> Errors:
        """Say why rows with added fields cannot be decoded, of those that cannot."""
        found = {i: self._refusal(events[i].row or {}, names, events[i].wire) for i, names in added.items()}
        return {i: why for i, why in found.items() if why is not None}

    def _refusal(self, row: Row, added: Sequence[str], wire: Wire | None) -> str | None:
        needed = [name for name in added if wire and (found := wire.field(name)) and not found.optional]
        if needed:
            return (
                f"the table has no column for {_quoted(needed)}, which cannot be null: give it in columns=, or in"
                " except_columns= to read the table without it"
            )
        lacking = sorted(self.expected - row.keys())
        if lacking:
            return (
                f"the record lacks {_quoted(lacking)} and has {_quoted(added)} beside the table's columns: if a column"
                " was renamed, give its new name in columns=; otherwise give except_columns= what is not to be read"
            )
        return None


@dataclass
class LeftOut:
    """The names of fields that are left out on purpose, until a record has them."""

    names: tuple[str, ...]
    """The names that no record has had."""
    fields: dict[str, None] = field(default_factory=dict)
    """The fields that records have had, in their order."""

    def look(self, rows: Sequence[Row | None]) -> None:
        """Look for the names in some rows."""
        if not self.names:
            return
        for row in rows:
            self.fields.update(dict.fromkeys(row or ()))
        self.names = tuple(name for name in self.names if name not in self.fields)

    def announce(self, table: str) -> None:
        """Name those that no record has had so far, each once in a process; stop looking for them."""
        if self.names and self.fields:
            for name in self.names:
                if (table, name) not in _announced:
                    _announced.add((table, name))
                    _log.warning(absent(table, name, self.fields))
            self.names = ()


def absent(table: str, name: str, fields: Iterable[str]) -> str:
    """Say that records do not have a field that is left out on purpose."""
    return (
        f"{table}: except_columns= names '{name}', which no record has had so far. Records have"
        f" {_quoted(fields)}."
    )


def announce(added: pa.Array, table: str) -> None:
    """Name the fields without a column, each once in a process: ``added`` of `DebeziumDecoder.decode`."""
    if added.null_count == len(added):
        return
    for name in pc.list_flatten(added).unique().to_pylist():
        if (table, name) not in _announced and len(_announced) < _MAX_ANNOUNCED:
            _announced.add((table, name))
            _log.warning(
                "%s: records have the field '%s', and the table no such column: it is ignored.", table, name
            )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
