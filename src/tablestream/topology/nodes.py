"""The logical plan: frozen nodes that derive what they are from what they are made of.

::

    Node
    ├── Source          a change log: a key, a value, a time, an order
    ├── Select          another value, computed from the row
    ├── Filter          the rows for which a condition holds
    ├── KeyJoin         two tables on their common key
    ├── ForeignKeyJoin  many rows of the left table to one row of the right
    ├── OneToMany       the same join seen from the one, keyed by both keys
    ├── Aggregate       the rows of a table by groups, and what is made of each group
    └── Suppress        a table whose changes are held back

Expressions and data frames are opaque here: this package knows no Spark. An expression shows only its text, which
is what a restarted plan is compared by.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Literal, Protocol

How = Literal["inner", "left", "right", "outer"]

_serials = itertools.count(1)


@dataclass(frozen=True)
class Field:
    """A column: its name, and its type as Spark's JSON text."""

    name: str
    type: str


Fields = tuple[Field, ...]


class Expression(Protocol):
    """A computed column; its text stands for it in `explain` and in the plan's fingerprint."""

    @property
    def text(self) -> str:
        """The expression as text, without its name."""


@dataclass(frozen=True)
class Named:
    """An expression under the name of the column it makes."""

    name: str
    expression: Expression

    @property
    def text(self) -> str:
        """For people."""
        return f"{self.name} = {self.expression.text}"


@dataclass(frozen=True, eq=False)
class Node:
    """A table of the plan.

    Attributes
    ----------
    name
        Unique in the plan; what users see in `explain`, metrics and errors.
    where
        ``file:line`` where the user built it.
    key, value
        The columns. A key column is never a column of the value.
    serial
        Rises in the order of declaration.
    """

    name: str
    where: str
    key: Fields
    value: Fields
    serial: int = field(init=False, default_factory=lambda: next(_serials))

    @property
    def parents(self) -> tuple[Node, ...]:
        """The tables this one is made of, left before right."""
        return ()

    @property
    def meaning(self) -> str:
        """What the node does, on one line; part of the fingerprint of all that hangs on it."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Source(Node):
    """A table whose changes come from outside.

    Attributes
    ----------
    frame
        The streaming data frame with the columns of `spark.sources`; opaque here.
    text
        Its expressions as text.
    ordered_by
        The type of the user's ``order_by``, or none.
    materialized_by
        The serials of the joins, groups and suppressed tables declared on this table or on a view of it.
    """

    frame: object
    text: str
    ordered_by: str | None = None
    materialized_by: list[int] = field(default_factory=list)

    @property
    def meaning(self) -> str:
        return f"source {self.name}: key {_names(self.key)}, value {_names(self.value)}; {self.text}"


@dataclass(frozen=True, eq=False)
class Select(Node):
    """A table with another value; where ``delete_when`` holds the row is gone."""

    parent: Node
    columns: tuple[Named, ...]
    delete_when: Expression | None = None

    @property
    def parents(self) -> tuple[Node, ...]:
        return (self.parent,)

    @property
    def meaning(self) -> str:
        gone = f", delete when {self.delete_when.text}" if self.delete_when else ""
        return f"select {'; '.join(column.text for column in self.columns)}{gone}"


@dataclass(frozen=True, eq=False)
class Filter(Node):
    """The rows for which a condition holds, or with `negate` the others (null counts as not holding)."""

    parent: Node
    condition: Expression
    negate: bool

    @property
    def parents(self) -> tuple[Node, ...]:
        return (self.parent,)

    @property
    def meaning(self) -> str:
        return f"filter{'_not' if self.negate else ''} {self.condition.text}"


@dataclass(frozen=True, eq=False)
class Join(Node):
    """A join of two tables; `select` computes the value from both rows, `delete_when` makes it a tombstone."""

    left: Node
    right: Node
    how: How
    select: tuple[Named, ...]
    delete_when: Expression | None

    def __post_init__(self) -> None:
        _materialize_sources(self)

    @property
    def parents(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    @property
    def _select_text(self) -> str:
        gone = f", delete when {self.delete_when.text}" if self.delete_when else ""
        return f"select {'; '.join(column.text for column in self.select)}{gone}"


@dataclass(frozen=True, eq=False)
class KeyJoin(Join):
    """Two tables on their common key."""

    @property
    def meaning(self) -> str:
        return f"{self.how} join of {self.left.name} and {self.right.name} on {_names(self.key)}; {self._select_text}"


@dataclass(frozen=True, eq=False)
class ForeignKeyJoin(Join):
    """The rows of the left table, each with the row of the right table that ``on`` points at.

    ``right`` and ``outer`` keep right rows that nothing points at; their key is (left key, right key).

    Attributes
    ----------
    on
        The foreign key, an expression per column of the right table's key, over a row of the left table.
    foreign
        The columns of the right table's key, in the types that both sides are compared as.
    copied
        Whether every shard has a copy of the right table (a global table).
    """

    on: tuple[Expression, ...]
    foreign: Fields
    copied: bool = field(default=False, kw_only=True)

    @property
    def keeps_lone_rows(self) -> bool:
        """Whether right rows without a left row are rows of the result."""
        return self.how in {"right", "outer"}

    @property
    def meaning(self) -> str:
        on = ", ".join(expression.text for expression in self.on)
        right = f"the copies of {self.right.name}" if self.copied else self.right.name
        return f"{self.how} join of {self.left.name} to {right} on {on}; {self._select_text}"


@dataclass(frozen=True, eq=False)
class OneToMany(Join):
    """Every row of the one (``left``) with each row of the many (``right``) whose ``on`` points at it.

    Attributes
    ----------
    on
        The foreign key, an expression per column of the one's key, over a row of the many.
    foreign
        The columns of the one's key, in the types that both sides are compared as.
    """

    on: tuple[Expression, ...]
    foreign: Fields

    @property
    def keeps_lone_rows(self) -> bool:
        """Whether rows of the one without any of the many are rows of the result."""
        return self.how == "left"

    @property
    def meaning(self) -> str:
        on = ", ".join(expression.text for expression in self.on)
        return f"{self.how} join of {self.left.name} with the many {self.right.name} on {on}; {self._select_text}"


@dataclass(frozen=True)
class Measure:
    """A declared aggregate: its name in Spark, and the place among the aggregated columns of what it is of."""

    function: str
    column: int | None


class GroupFunctions(Protocol):
    """The user's own functions of a group; opaque here, they run in the workers."""

    @property
    def text(self) -> str:
        """Their names and version: what a restarted plan is compared by."""


@dataclass(frozen=True, eq=False)
class Aggregate(Node):
    """A table's rows by groups.

    Attributes
    ----------
    parent
        The table.
    on
        The group, an expression per column of the key, over a row of the table.
    inputs
        What is aggregated of a row.
    input_fields
        The names and types of `inputs`.
    measures
        A declared aggregate per column of the value; none with `functions`.
    functions
        The user's own.
    keep_empty
        Whether a group without rows stays.
    """

    parent: Node
    on: tuple[Expression, ...]
    inputs: tuple[Named, ...]
    input_fields: Fields
    measures: tuple[Measure, ...]
    functions: GroupFunctions | None
    keep_empty: bool

    def __post_init__(self) -> None:
        _materialize_sources(self)

    @property
    def parents(self) -> tuple[Node, ...]:
        return (self.parent,)

    @property
    def foreign(self) -> Fields:
        """The columns of the group's key."""
        return self.key

    @property
    def meaning(self) -> str:
        groups = ", ".join(expression.text for expression in self.on)
        made = self.functions.text if self.functions is not None else self._measured
        kept = ", empty groups stay" if self.keep_empty else ""
        inputs = "; ".join(one.text for one in self.inputs)
        return f"group {self.parent.name} by {groups}; {made} of {inputs or 'rows'}{kept}"

    @property
    def _measured(self) -> str:
        shown = []
        for made, measure in zip(self.value, self.measures, strict=True):
            of = "" if measure.column is None else self.inputs[measure.column].name
            shown.append(f"{made.name} {made.type} = {measure.function}({of})")
        return "; ".join(shown)


def _materialize_sources(node: Node) -> None:
    """Note at the sources of a join, of groups or of suppress that they are materialized, as compat asks."""
    for table in node.parents:
        while isinstance(table, Select | Filter):
            table = table.parent  # noqa: PLW2901 - goes down to what the view stands on
        if isinstance(table, Source):
            table.materialized_by.append(node.serial)


@dataclass(frozen=True, eq=False)
class Suppress(Node):
    """A table whose changes are held back; the last one of each key is let through.

    Attributes
    ----------
    parent
        The table.
    until_us
        How long a key waits, in microseconds.
    max_records, max_bytes
        How much a shard may hold; None: any amount.
    fail_when_full
        Whether holding more is an error.
    """

    parent: Node
    until_us: int
    max_records: int | None
    max_bytes: int | None
    fail_when_full: bool

    def __post_init__(self) -> None:
        _materialize_sources(self)

    @property
    def parents(self) -> tuple[Node, ...]:
        return (self.parent,)

    @property
    def meaning(self) -> str:
        limits = (f"{self.max_records} records", f"{self.max_bytes} bytes")
        most = [text for text in limits if not text.startswith("None")]
        held = f", at most {' and '.join(most)}" if most else ""
        return f"suppress until {self.until_us} us{held}{', else fail' if self.fail_when_full else ''}"


def _names(fields: Fields) -> str:
    return f"({', '.join(f'{one.name} {one.type}' for one in fields)})"
