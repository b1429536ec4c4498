"""The logical plan: frozen nodes. Expressions and data frames are opaque here; plans are compared by their texts.

::

    Node
    ├── Source          a changelog: a key, a value, a time, an order; or a stream of records
    ├── Select          another value, computed from the row
    ├── Filter          the rows for which a condition holds
    ├── KeyJoin         two tables on their common key
    ├── ForeignKeyJoin  many rows of the left table to one row of the right
    ├── OneToMany       the same join seen from the one, keyed by both keys
    ├── ManyToMany      two tables on values that are no key of either
    ├── StreamJoin      the records of a stream, each with the row of a table
    ├── Aggregate       grouped rows of a table, or records of a stream, and their aggregates
    ├── Top             the first rows of each group of a table, by rank
    ├── Suppress        a table whose changes are buffered
    ├── Keep            a table that forgets, or freezes, old rows
    ├── Materialize     a table that is stored, with or without versions of its rows
    ├── Deduplicate, SequenceBy   a source without its writer's duplicates, or where the highest sequence wins
    ├── Captured        a source that is captured from a database: its records become whole rows
    ├── Reorder         a table or stream sorted by time
    ├── SelectKey       a stream with another key
    ├── FlatMap         a stream or table with several records or rows, or none, for each
    ├── Merge           the records of two streams
    └── ToStream, ToTable   the changes of a table as records, and the other way
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from tablestream.topology.clauses import Written, clause_now

if TYPE_CHECKING:
    from tablestream.topology.measures import Measure

How = Literal["inner", "left", "right", "outer"]

_serials = itertools.count(1)


@dataclass(frozen=True)
class Field:
    """A column: its name, and its type as Spark's JSON text."""

    name: str
    type: str


Fields = tuple[Field, ...]


class Expression(Protocol):
    """A computed column, or functions; its text (without a name) stands for it in `explain` and in the fingerprint."""

    @property
    def text(self) -> str: ...

    @property
    def may_fail(self) -> bool:
        """Whether there may be a row for which it fails."""


@dataclass(frozen=True)
class Named:
    """An expression under the name of the column it makes."""

    name: str
    expression: Expression

    @property
    def text(self) -> str:
        """For people."""
        return f"{self.name} = {self.expression.text}"


@dataclass(frozen=True)
class AsOf:
    """The time as of which a row is joined with a versioned table."""

    micros: Expression
    """Microseconds since 1970, computed from the row; null: the row points at nothing."""
    forward: bool
    """Whether it is joined with the first version from that time on, instead of the last one up to it."""
    text: str
    """What the user wrote."""


@dataclass(frozen=True, eq=False)
class Node:
    """A table or a stream of the plan."""

    name: str
    """Unique in the plan; what users see in `explain`, metrics and errors."""
    where: str
    """``file:line`` where the user built it."""
    key: Fields
    value: Fields
    """The columns. A key column is never a column of the value."""
    serial: int = field(init=False, default_factory=lambda: next(_serials))
    """Rises in the order of declaration."""
    clause: Written | None = field(default_factory=clause_now, kw_only=True, repr=False)
    """The clause of a query in SQL that it was made for."""

    @property
    def parents(self) -> tuple[Node, ...]:
        """The inputs of this node, left before right."""
        return ()

    @property
    def meaning(self) -> str:
        """What the node does, on one line; part of the fingerprint of everything that depends on it."""
        raise NotImplementedError

    @property
    def is_stream(self) -> bool:
        """Whether the result is records that stand for themselves, rather than changes of rows."""
        return False


@dataclass(frozen=True, eq=False)
class Source(Node):
    """A table, or with `records` a stream, that comes from outside."""

    frame: object
    """The streaming data frame with the columns of `spark.sources`; opaque here."""
    text: str
    ordered_by: str | None = None
    """Its expressions as text. The type of the user's ``order_by``, or none."""
    records: bool = False
    bootstrapped: bool = False
    """Whether it is a stream. Whether the table starts with the rows of a batch data frame."""
    deletes: bool = False
    """Whether the user said which records have no value."""
    lacks_times: str | None = None
    """If a tombstone may come without a time: its lane, `BY_PARTITION` or `BY_SOURCE` of `runtime.rounds`."""

    @property
    def meaning(self) -> str:
        kind = "stream" if self.records else "source"
        begin = "; starts with a bootstrap" if self.bootstrapped else ""
        return f"{kind} {self.name}: key {_names(self.key)}, value {_names(self.value)}; {self.text}{begin}"

    @property
    def is_stream(self) -> bool:
        return self.records


@dataclass(frozen=True, eq=False)
class OneParent(Node):
    """A node with one input."""

    parent: Node

    @property
    def parents(self) -> tuple[Node, ...]:
        return (self.parent,)


@dataclass(frozen=True, eq=False)
class SameKind(OneParent):
    """A node that makes a stream of a stream, and a table of a table."""

    @property
    def is_stream(self) -> bool:
        return self.parent.is_stream


@dataclass(frozen=True, eq=False)
class Select(SameKind):
    """A table with another value; where ``delete_when`` holds, the row is deleted."""

    columns: tuple[Named, ...]
    delete_when: Expression | None = None

    @property
    def meaning(self) -> str:
        return _selected(self.columns, self.delete_when)


@dataclass(frozen=True, eq=False)
class Filter(SameKind):
    """The rows for which a condition holds, or with `negate` the others (null counts as false)."""

    condition: Expression
    negate: bool

    @property
    def meaning(self) -> str:
        return f"filter{'_not' if self.negate else ''} {self.condition.text}"


@dataclass(frozen=True, eq=False)
class Join(Node):
    """A join of two tables, or of a stream and a table.

    `select` computes the value from both rows; `delete_when` makes it a tombstone. With `complete_history`, rows
    are joined as of every time that both tables remember, instead of as of now.
    """

    left: Node
    right: Node
    how: How
    select: tuple[Named, ...]
    delete_when: Expression | None
    complete_history: bool = field(default=False, kw_only=True)

    @property
    def parents(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    @property
    def _kind(self) -> str:
        return f"{self.how} join of the histories" if self.complete_history else f"{self.how} join"

    @property
    def _select_text(self) -> str:
        return _selected(self.select, self.delete_when)


@dataclass(frozen=True, eq=False)
class KeyJoin(Join):
    """Two tables on their common key."""

    own_times: bool = field(default=False, kw_only=True)
    """Whether a change keeps its own time, whatever the time of the row it is joined with."""

    @property
    def meaning(self) -> str:
        timed = ", own times" if self.own_times else ""
        sides = f"{self.left.name} and {self.right.name}"
        return f"{self._kind} of {sides} on {_names(self.key)}{timed}; {self._select_text}"


@dataclass(frozen=True, eq=False)
class ForeignKeyJoin(Join):
    """The rows of the left table, each with the right row of its foreign key.

    ``right`` and ``outer`` keep unmatched right rows; their key is (left key, right key).
    """

    on: tuple[Expression, ...]
    """The foreign key, an expression per column of the right table's key, over a row of the left table."""
    foreign: Fields
    """The columns of the right table's key, in the types in which both sides are compared."""
    copied: bool = field(default=False, kw_only=True)
    """Whether every shard has a copy of the right table (a global table)."""
    on_key: bool = field(default=False, kw_only=True)
    """Whether ``on`` is the whole key of the left table: by default it is then planned as a join on the key."""
    right_only: bool = field(default=False, kw_only=True)
    """Whether the result is just the right row, and no row if unmatched; read by key joins alone."""
    spread: int | None = field(default=None, kw_only=True)
    """Over how many shards the left rows of one right key are spread; None: they share one."""
    as_of: AsOf | None = field(default=None, kw_only=True)
    """The time as of which left rows are joined; None: with the row as it is now."""

    @property
    def looked_up(self) -> Node:
        """The right table; of a star join the one below the select that puts keys before its columns."""
        right = self.right
        if (
            self.right_only
            and isinstance(right, Select)
            and right.value[len(right.key) :] == right.parent.value
        ):
            return right.parent
        return right

    @property
    def keeps_unmatched(self) -> bool:
        """Whether unmatched right rows are rows of the result."""
        return self.how in {"right", "outer"}

    @property
    def meaning(self) -> str:
        right = f"the copies of {self.right.name}" if self.copied else self.right.name
        spread = "" if self.spread is None else f" spread over {self.spread} shards"
        time = "" if self.as_of is None else f" as of {self.as_of.text}"
        return f"{self._kind} of {self.left.name} to {right} on {texts(self.on)}{time}{spread}; {self._select_text}"


@dataclass(frozen=True, eq=False)
class OneToMany(Join):
    """Every row of the one (``left``) with each row of the many (``right``) whose foreign key refers to it."""

    on: tuple[Expression, ...]
    """The foreign key, an expression per column of the one's key, over a row of the many."""
    foreign: Fields
    """The columns of the one's key, in the types in which both sides are compared."""

    @property
    def keeps_unmatched(self) -> bool:
        """Whether unmatched rows of the one are rows of the result."""
        return self.how == "left"

    @property
    def meaning(self) -> str:
        of = f"{self.how} join of {self.left.name} with the many {self.right.name}"
        return f"{of} on {texts(self.on)}; {self._select_text}"


@dataclass(frozen=True, eq=False)
class ManyToMany(Join):
    """Every row of the left table with each row of the right one that has the same values; keyed by both keys."""

    on: tuple[Expression, ...]
    right_on: tuple[Expression, ...]
    """The join value, an expression per column, over a row of the left table, and over one of the right."""
    foreign: Fields
    """Its columns, in the types in which both sides are compared."""
    counts_nulls: bool = True
    """Whether rows without a join value count as dropped. Otherwise they are rows of the result by another way."""

    @property
    def parents_on(self) -> tuple[tuple[Expression, ...], tuple[Expression, ...]]:
        """The join value, over a row of either parent."""
        return self.on, self.right_on

    @property
    def meaning(self) -> str:
        sides = f"{self.left.name} with {self.right.name}"
        return f"{self._kind} of {sides} on {texts(self.on)} = {texts(self.right_on)}; {self._select_text}"


@dataclass(frozen=True, eq=False)
class Aggregate(OneParent):
    """A table's rows, or a stream's records, by groups."""

    on: tuple[Expression, ...]
    """The group, an expression per column of the key, over a row."""
    inputs: tuple[Named, ...]
    """What is aggregated of a row."""
    input_fields: Fields
    """The names and types of `inputs`."""
    measures: tuple[Measure, ...]
    """A declared aggregate per column of the value; none with `functions`."""
    functions: Expression | None
    """The user's own, which run in the workers; their text has their names and version."""
    keep_empty: bool
    """Whether a group without rows stays."""
    of_kafka: bool = True
    """Whether Kafka Streams has such groups; compat refuses others."""

    @property
    def foreign(self) -> Fields:
        """The columns of the group's key."""
        return self.key

    @property
    def meaning(self) -> str:
        made = self.functions.text if self.functions is not None else self._measured
        kept = ", empty groups stay" if self.keep_empty else ""
        inputs = "; ".join(one.text for one in self.inputs)
        return f"group {self.parent.name} by {texts(self.on)}; {made} of {inputs or 'rows'}{kept}"

    @property
    def _measured(self) -> str:
        inputs = [one.name for one in self.inputs]
        pairs = zip(self.value, self.measures, strict=True)
        return "; ".join(f"{made.name} {made.type} = {measure.text(inputs)}" for made, measure in pairs)


@dataclass(frozen=True, eq=False)
class Top(OneParent):
    """The first rows of each group of a table, in an order; the last column of the key is the rank, from 1.

    Without `ranked`, the first row of each group, keyed by the group alone.
    """

    on: tuple[Expression, ...]
    """The group, an expression per column of the key but the last, over a row."""
    inputs: tuple[Named, ...]
    """What is remembered of a row: the columns of the value, then further ones that rows are ranked by."""
    input_fields: Fields
    """The names and types of `inputs`."""
    order: tuple[tuple[int, bool], ...]
    """The positions of the inputs that rows are ranked by, each with whether the greatest comes first."""
    n: int
    """How many rows."""
    ranked: bool = True
    """Whether the key has the rank. If not, one row is shown, and of rows with equal values the one that came last."""

    @property
    def foreign(self) -> Fields:
        """The columns of the group's key."""
        return self.key[:-1] if self.ranked else self.key

    @property
    def meaning(self) -> str:
        groups = texts(self.on)
        order = ", ".join(
            f"{self.inputs[of].expression.text} {'descending' if down else 'ascending'}"
            for of, down in self.order
        )
        columns = "; ".join(one.text for one in self.inputs[: len(self.value)])
        if not self.ranked:
            last = f"{order}, then arrival descending" if order else "arrival descending"
            return (
                f"first {self.n} of {self.parent.name} by {groups} in the order {last}; {columns or 'rows'}"
            )
        return f"top {self.n} of {self.parent.name} by {groups} in the order {order}; {columns or 'rows'}"


@dataclass(frozen=True, eq=False)
class Suppress(OneParent):
    """A table whose changes are buffered; the last one of each key is emitted."""

    until_us: int
    """How long a key waits, in microseconds."""
    max_records: int | None
    max_bytes: int | None
    """How much a shard may hold; None: no limit."""
    fail_when_full: bool
    """Whether exceeding a limit is an error."""
    wall_clock_us: int | None = None
    """The longest time that a key waits by the wall clock, in microseconds; None: no limit."""

    @property
    def meaning(self) -> str:
        limits = (f"{self.max_records} records", f"{self.max_bytes} bytes")
        most = [text for text in limits if not text.startswith("None")]
        held = f", at most {' and '.join(most)}" if most else ""
        clock = "" if self.wall_clock_us is None else f", {self.wall_clock_us} us on the clock"
        return f"suppress until {self.until_us} us{clock}{held}{', else fail' if self.fail_when_full else ''}"


@dataclass(frozen=True, eq=False)
class Keep(OneParent):
    """A table that forgets, or freezes, the rows that have become too old."""

    keep_us: int
    """How much older than the newest row a row may be, in microseconds."""
    by: Expression | None = None
    """A row's time in microseconds since 1970, computed from the row; null: it never is too old. None: its
    timestamp."""
    wall_clock_us: int | None = None
    """The longest time that a row stays unchanged by the wall clock, in microseconds; None: no limit."""
    freezes: bool = False
    """Whether such rows stay as they are, instead of being deleted."""

    @property
    def meaning(self) -> str:
        by = "" if self.by is None else f" by {self.by.text}"
        clock = "" if self.wall_clock_us is None else f", {self.wall_clock_us} us on the clock"
        return f"{'freeze after' if self.freezes else 'keep'} {self.keep_us} us{by}{clock}"


@dataclass(frozen=True, eq=False)
class Materialize(OneParent):
    """A table that is stored under its own name."""

    history_us: int | None = None
    """How far back versions of its rows are kept, in microseconds; None: it is not versioned."""

    @property
    def meaning(self) -> str:
        return "materialize" if self.history_us is None else f"versions of the last {self.history_us} us"


@dataclass(frozen=True, eq=False)
class Reorder(SameKind):
    """A table or a stream sorted by time, within a bound."""

    bound_us: int
    """How long records are buffered, in microseconds of event time."""

    @property
    def meaning(self) -> str:
        return f"reorder within {self.bound_us} us"


@dataclass(frozen=True, eq=False)
class Deduplicate(SameKind):
    """A source without its writer's duplicates; otherwise it is like the source."""

    parent: Source

    meaning = "deduplicate"


@dataclass(frozen=True, eq=False)
class SequenceBy(OneParent):
    """A source in which the row with the highest sequence wins."""

    sequence: Field
    """The sequence's column in the source."""
    text: str
    """The user's expression."""
    retention_us: int | None
    """How long the sequence of a tombstone is remembered, in microseconds; None: for ever."""

    @property
    def meaning(self) -> str:
        return f"sequence by {self.text} {self.sequence.type}, tombstones known for {self.retention_us} us"


@dataclass(frozen=True, eq=False)
class Captured(OneParent):
    """A source whose records a database's connector wrote, as the rows of the database's table."""

    follows_moves: bool
    """Whether unknown columns of a row are filled from the key from which it was moved."""
    truncates: str
    """What a truncate does: ``auto``, ``apply``, ``fail`` or ``drop``."""
    table: str
    """The name of the table in its database."""
    transactions: Transactions | None = None
    """What tells when a transaction is complete; None: changes do not wait for the others of their transaction."""
    commits: bool = False
    """Whether only the last change of a key at each position counts."""
    snapshots: str = "complete"
    """Whether snapshots name all rows: ``complete`` or ``partial``."""

    @property
    def parents(self) -> tuple[Node, ...]:
        return (self.parent,) if self.transactions is None else (self.parent, self.transactions)

    @property
    def meaning(self) -> str:
        moves = ", follows moves" if self.follows_moves else ""
        if self.commits:
            return "the last change of each key and version"
        partial = ", partial snapshots" if self.snapshots == "partial" else ""
        whole = "" if self.transactions is None else ", whole transactions"
        return f"captured from a database{moves}{whole}, truncates: {self.truncates}{partial}"


@dataclass(frozen=True, eq=False)
class Transactions(OneParent):
    """The transactions of a database, of which a stream tells the ends."""

    timeout_us: int | None
    """How long an incomplete transaction is waited for, in microseconds; None: for ever."""

    @property
    def meaning(self) -> str:
        return f"transactions, waited for {self.timeout_us} us"


def texts(expressions: Iterable[Expression]) -> str:
    """The texts of expressions, as a list for people."""
    return ", ".join(one.text for one in expressions)


def _selected(columns: Iterable[Named], delete_when: Expression | None) -> str:
    """How a value is computed, and when there is none."""
    gone = "" if delete_when is None else f", delete when {delete_when.text}"
    return f"select {'; '.join(one.text for one in columns)}{gone}"


def _names(fields: Fields) -> str:
    return f"({', '.join(f'{one.name} {one.type}' for one in fields)})"
