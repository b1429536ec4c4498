"""A small database with a connector: a plain reference for tables that are captured.

The database is a dict of rows. The connector writes what happens to it as Debezium for PostgreSQL does:

=====================  ============================================================================================
what happens           records
=====================  ============================================================================================
insert, update         a row; large values that did not change are placeholders
delete                 an envelope and a tombstone
a row gets a new key   a delete that names the new key, a tombstone, and an insert that names the old one
truncate               one record without a key
a snapshot             a read of each row, the last one marked; an interrupted one has no last
a restart              the changes from some place on, once more
=====================  ============================================================================================

Each record says what the table is after it, if the topic has one partition.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.cdc.recording import Record

PLACEHOLDER = "__debezium_unavailable_value"
KEY, COLUMNS = ["id"], "id int, n int, note string, bio string"
#: Columns whose values the connector may not know.
LARGE = ("note", "bio")
Values = tuple[int, str | None, str | None]
Rows = dict[int, Values]
Position = tuple[int, int, int]
NOTE = frozenset({"note"})
ADA: Values = (1, "Ada", "mathematician")


@dataclass(frozen=True)
class Event:
    """A change as the connector tells of it, with the whole row that it leaves."""

    op: str
    key: int | None
    row: Values | None
    written: Values | None
    sequence: tuple[int | None, int]
    transaction: tuple[int, int] | None
    headers: tuple[tuple[str, int], ...] = ()
    snapshot: str = "false"

    @property
    def position(self) -> Position | None:
        """Its place in the order of commits, if that is known."""
        commit, own = self.sequence
        return None if commit is None else (commit, own, self.transaction[1] if self.transaction else 0)


@dataclass
class Database:
    """A table and the topic of its connector.

    Attributes
    ----------
    partitions
        How many partitions the topic has.
    transactions
        Whether the connector names transactions.
    rows
        The rows of the database.
    topic
        The records in the order in which they were written, and the table after each.
    points
        How many records there were when the topic was quiet: records before and after are not mixed.
    """

    partitions: int = 1
    transactions: bool = True
    rows: Rows = field(default_factory=dict)
    topic: list[tuple[Record, Rows]] = field(default_factory=list)
    points: list[int] = field(default_factory=list)
    _table: Rows = field(default_factory=dict)
    _sent: list[Event] = field(default_factory=list)
    _lsn: int = 1000
    _commit: int | None = 1000
    _transaction: int = 0
    _order: int = 0
    _highest: Position = (0, 0, 0)

    def insert(self, key: int, row: Values) -> None:
        """Insert a row, if there is none."""
        if key not in self.rows:
            self.rows[key] = row
            self._tell("c", key, row, row)

    def update(self, key: int, unknown: frozenset[str] = frozenset(), **changes: Any) -> None:
        """Update a row; the connector does not know the `unknown` columns, unless they change."""
        if key in self.rows:
            row, written = _changed(self.rows[key], unknown, changes)
            self.rows[key] = row
            self._tell("u", key, row, written)

    def delete(self, key: int) -> None:
        """Delete a row."""
        if self.rows.pop(key, None) is not None:
            self._tell("d", key, None, None)

    def move(self, key: int, to: int, unknown: frozenset[str] = frozenset(), **changes: Any) -> None:
        """Give a row another key, if that is free."""
        if key not in self.rows or to in self.rows:
            return
        row, written = _changed(self.rows.pop(key), unknown, changes)
        self.rows[to] = row
        self._tell("d", key, None, None, headers=(("__debezium.newkey", to),))
        self._lsn -= 8  # the two records of a move have one place in the log
        self._tell("c", to, row, written, headers=(("__debezium.oldkey", key),))

    def truncate(self) -> None:
        """Delete all rows."""
        self.rows.clear()
        self._tell("t", None, None, None)

    def commit(self) -> None:
        """End the transaction."""
        self._lsn += 8
        self._commit = self._lsn
        self._transaction, self._order = self._transaction + 1, 0

    def restart(self, back: int) -> None:
        """Tell of the last changes once more."""
        known = [one for one in self._sent if one.position is not None]
        for event in known[len(known) - back :] if back else []:
            self._send(event)

    def snapshot(self, *, stop_after: int | None = None) -> None:
        """Tell of all rows; without the last ones if the snapshot is interrupted."""
        self.points.append(len(self.topic))
        self._lsn += 8
        named = sorted(self.rows.items())
        for number, (key, row) in enumerate(named[:stop_after]):
            part = "last" if number == len(named) - 1 else "true" if number else "first"
            self._send(Event("r", key, row, row, (None, self._lsn), None, snapshot=part))
        self.points.append(len(self.topic))
        self._commit, self._sent = None, []

    def unheard(self, *changed: int) -> None:
        """Change some rows while there is no connector: delete them, or insert them if there are none."""
        for key in changed:
            if self.rows.pop(key, None) is None:
                self.rows[key] = (-key, "unheard", None)

    def _tell(
        self, op: str, key: int | None, row: Values | None, written: Values | None, **more: Any
    ) -> None:
        self._lsn += 8
        self._order += 1
        name = (self._transaction, self._order) if self.transactions else None
        event = Event(op, key, row, written, (self._commit, self._lsn), name, **more)
        self._sent.append(event)
        self._send(event)

    def _send(self, event: Event) -> None:
        """Write the records of an event, and apply it to the table unless it was there before."""
        position = event.position
        if position is None or position >= self._highest:
            self._highest = position or self._highest
            self._apply(event)
        self._write(event, _envelope(event))
        if event.op == "d":
            self._write(event, None)

    def _apply(self, event: Event) -> None:
        if event.op == "t":
            self._table = {}
        elif event.row is None:
            self._table.pop(event.key or 0, None)
        else:
            self._table[event.key or 0] = event.row
        if event.snapshot == "last":
            self._table = dict(self.rows)

    def _write(self, event: Event, value: str | None) -> None:
        partition = 0 if event.key is None else event.key % self.partitions
        key = None if event.key is None else json.dumps({"id": event.key})
        headers = [[name, json.dumps({"id": other})] for name, other in event.headers]
        number = len(self.topic) + 1
        record = Record("topic", partition, number, number, key, value, headers)
        self.topic.append((record, dict(self._table)))


def _changed(row: Values, unknown: frozenset[str], changes: dict[str, Any]) -> tuple[Values, Values]:
    """The row after an update, and as the connector writes it."""
    names = ("n", *LARGE)
    new = dict(zip(names, row, strict=True)) | changes
    hidden = {name: PLACEHOLDER for name in unknown if name not in changes and new[name] is not None}
    written = new | hidden
    return tuple(new[name] for name in names), tuple(written[name] for name in names)


def _envelope(event: Event) -> str:
    """Write an event as Debezium does."""
    written = event.written
    after = None if written is None else {"id": event.key, **dict(zip(("n", *LARGE), written, strict=True))}
    named = event.transaction
    transaction = None
    if named is not None:
        transaction = {"id": f"{named[0]}:{event.sequence[1]}", "total_order": named[1]}
    sequence = json.dumps([None if one is None else str(one) for one in event.sequence])
    source = {"connector": "postgresql", "snapshot": event.snapshot, "sequence": sequence}
    content = {"before": None, "after": after, "source": source, "op": event.op, "transaction": transaction}
    return json.dumps(content)
