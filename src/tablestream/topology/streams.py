"""The nodes that make streams, records that stand for themselves, and tables of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from tablestream.topology.nodes import Expression, Fields, Join, Named, Node, OneParent, SameKind, texts


@dataclass(frozen=True)
class Grace:
    """How long the records of a stream wait for late versions of a table."""

    period_us: int
    """In microseconds of event time."""
    table_advances: bool = False
    """Whether the times of versions count as well."""
    wall_clock_us: int | None = None
    """The longest wait by the wall clock, in microseconds; None: no limit."""

    @property
    def text(self) -> str:
        """For people, and part of a plan's meaning."""
        table = ", versions advance it" if self.table_advances else ""
        clock = "" if self.wall_clock_us is None else f", {self.wall_clock_us} us on the clock"
        return f"a grace of {self.period_us} us{table}{clock}"


@dataclass(frozen=True, eq=False)
class StreamJoin(Join):
    """The records of a stream (``left``), each with the row of a table (``right``) that its foreign key refers to."""

    on: tuple[Expression, ...]
    """The foreign key of a record, an expression per column of the table's key."""
    foreign: Fields
    """The columns of the table's key, in the types in which both sides are compared."""
    copied: bool = field(default=False, kw_only=True)
    """Whether every shard has a copy of the table (a global table)."""
    grace: Grace | None = field(default=None, kw_only=True)
    """How records wait for late versions of the table; None: they do not."""
    corrections: bool = field(default=False, kw_only=True)
    """Whether it is a table with a row for each record, keyed by the stream's key and the record's number, and
    corrected by late versions of the table."""

    @property
    def is_stream(self) -> bool:
        return not self.corrections

    @property
    def meaning(self) -> str:
        right = f"the copies of {self.right.name}" if self.copied else self.right.name
        waits = "" if self.grace is None else f" after {self.grace.text}"
        corrected = ", corrected" if self.corrections else ""
        of = f"{self.how} join of the records of {self.left.name}"
        return f"{of} to {right} on {texts(self.on)}{waits}{corrected}; {self._select_text}"


@dataclass(frozen=True, eq=False)
class SelectKey(OneParent):
    """A stream with another key, an expression per column; the value has no column with the name of a key column."""

    columns: tuple[Named, ...]

    is_stream = True

    @property
    def meaning(self) -> str:
        return f"select_key {'; '.join(column.text for column in self.columns)}"


@dataclass(frozen=True, eq=False)
class FlatMap(SameKind):
    """A stream with one record per element of an array, instead of each record; or the same of a table's rows.

    The array is the only column of `parent`. If an element is a struct, its fields become the columns of the value. The
    rows of a table get the position of the element as the last part of their key.
    """

    takes_apart: bool
    """Whether elements are structs."""

    meaning = "flat_map"


@dataclass(frozen=True, eq=False)
class Merge(Node):
    """The records of two streams with the same columns."""

    left: Node
    right: Node

    is_stream = True

    @property
    def parents(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    @property
    def meaning(self) -> str:
        return f"merge {self.left.name} and {self.right.name}"


@dataclass(frozen=True, eq=False)
class ToStream(OneParent):
    """The changes of a table as records: a tombstone is a record without a value.

    `latest_only`: of a versioned table, without the changes that are not the latest of their row.
    """

    latest_only: bool = False

    is_stream = True

    @property
    def meaning(self) -> str:
        return "to_stream" + (", the latest rows only" if self.latest_only else "")


@dataclass(frozen=True, eq=False)
class ToTable(OneParent):
    """The records of a stream as the changes of a table."""

    nullable: tuple[bool, ...] = ()
    """Which parts of the key may be null, as those of a group; empty: none. Other records are dropped."""

    @property
    def meaning(self) -> str:
        names = [one.name for one, can_be_null in zip(self.key, self.nullable, strict=False) if can_be_null]
        return f"to_table, with nulls in {', '.join(names)}" if names else "to_table"
