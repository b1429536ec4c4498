"""The columns of the messages that an operator emits for a node, in terms of the plan's nodes.

The rule that places a node's operators declares them. Code that unpacks these messages, for Spark or for the tests'
engine, follows the rows that they carry and never checks the node's type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tablestream.state.changes import KEY_HASH, LATEST, LIVE, TS, foreign_columns, key_columns
from tablestream.topology.nodes import Expression, Field, Fields, Node


@dataclass(frozen=True)
class Pointer:
    """What a row points at: the key of another table's row, or a group."""

    on: tuple[Expression, ...]
    """One expression per column, over the row."""
    key: Fields
    """The columns, in the types in which both sides are compared."""
    null_parts: bool = False
    """Whether parts of it may be null. If not, a row with a null part points at nothing."""
    as_of: Expression | None = None
    """The time as of which the row points there, in microseconds; null: it points at nothing. None: at any time."""


@dataclass(frozen=True)
class Carried:
    """A row of a table, as messages carry it."""

    table: Node
    """The table or stream."""
    column: str
    """The column with the value; null if there is no row."""
    key: tuple[str, ...]
    """The key columns. With a `pointer` these are tried first, and the pointer decides where they are null."""
    pointer: Pointer | None = None
    """Computes the key where those columns are null, over the row that is carried before this one."""
    side: tuple[Node, int] | None = None
    """The join and the number of its parent to which the row belongs. None: it is the row of the table wherever a view
    reads it."""


@dataclass(frozen=True)
class Result:
    """The columns of a node's messages, without the order columns."""

    node: Node
    columns: Mapping[str, Field]
    """The key columns, and their types."""
    key: tuple[str, ...]
    """Those that form the node's own key."""
    rows: tuple[Carried, ...]
    """The rows that the node's value is computed from."""
    latest: bool = False
    """Whether each message says if it is the latest of its row."""

    @classmethod
    def keyed(cls, node: Node, carried: Iterable[tuple[str, Node]], *, latest: bool = False) -> Result:
        """Return a result whose rows all have the node's key; `carried` are columns and tables."""
        columns = key_fields(node.key)
        rows = (Carried(table, column, tuple(columns)) for column, table in carried)
        return cls(node, columns, tuple(columns), tuple(rows), latest)

    @classmethod
    def computed(cls, node: Node, column: str = "v", *, latest: bool = False) -> Result:
        """Return a result that has the node's value as it is."""
        return cls.keyed(node, [(column, node)], latest=latest)

    @property
    def has_own_types(self) -> bool:
        """Whether the keys of all rows have their own types, not the wider ones in which they were compared."""
        return all(
            [one.type for one in self._key_of(row)] == [one.type for one in row.table.key]
            for row in self.rows
        )

    def _key_of(self, row: Carried) -> Fields:
        return row.pointer.key if row.pointer is not None else tuple(self.columns[name] for name in row.key)

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that an operator has to emit for it."""
        latest = (LATEST,) if self.latest else ()
        return (KEY_HASH, *self.columns, TS, LIVE, *latest, *(row.column for row in self.rows))


def key_fields(key: Fields) -> dict[str, Field]:
    """Return the columns of a key, and their types."""
    return dict(zip(key_columns(len(key)), key, strict=True))


def foreign_fields(key: Fields) -> dict[str, Field]:
    """Return the columns of a foreign key, and their types."""
    return dict(zip(foreign_columns(len(key)), key, strict=True))
