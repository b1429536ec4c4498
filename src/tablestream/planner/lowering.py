"""A plan while it is being lowered: the ports that are wanted, what each reads, and the operators placed so far.

A *base* is a node whose changes physically arrive: a source, or the output of an operator. Selects and filters on
top of it are a *view*: they are evaluated where the changes are read. Every reader of a view is a port.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import polars as pl

from tablestream.operators.operator import Operator
from tablestream.operators.reduce.ranking import Order
from tablestream.planner.physical_plan import Inputs, PlanOptions
from tablestream.planner.result import Pointer, Result
from tablestream.runtime.rejections import Shown
from tablestream.state.changes import NOTHING, foreign_columns, key_columns
from tablestream.topology.graph import base_of, history_of, is_filtered, view_path, ways
from tablestream.topology.measures import Measure
from tablestream.topology.nodes import Fields, ForeignKeyJoin, Node
from tablestream.topology.streams import ToStream

Types = Callable[[Fields], pl.Schema]


def struct_of(columns: pl.Schema) -> pl.Struct:
    """Return the struct dtype in which columns travel."""
    return pl.Struct(
        {f"c{number}": kind for number, kind in enumerate(columns.values())} or {NOTHING: pl.Boolean()}
    )


@dataclass(eq=False)
class Want:
    """A port before it has a number and a rank. `order` decides the rank: the path from its base, and its role there.

    `into`: the port that another of several merged streams goes to. `spread`, `copies`: see `Port`.
    """

    order: tuple[tuple[int, ...], int] | tuple[tuple[int, ...], int, int]
    round: int
    route: str
    label: str
    into: Want | None = None
    spread: int = 1
    copies: int = 1


@dataclass(frozen=True)
class History:
    """How far back versions are kept, and the clock from which this counts."""

    length_us: int
    clock: str


@dataclass(frozen=True)
class Groups:
    """What a table of groups aggregates, and how. `records`: whether it aggregates a stream."""

    inputs: Fields
    measures: tuple[Measure, ...]
    records: bool


@dataclass(frozen=True)
class Ranks:
    """Which rows a table of first rows ranks by, how many it shows of each group, and whether its key has the rank."""

    columns: tuple[str, ...]
    descending: tuple[bool, ...]
    n: int
    ranked: bool = True

    @property
    def order(self) -> Order:
        """The order of a group's rows. Without ranks, of equal rows the last is the first."""
        return Order(self.columns, self.descending, newest_first=not self.ranked, keeps_nulls=True)


@dataclass(frozen=True)
class Copies:
    """In how many of the shards each row of a trace is, and the mark with a shard's own number."""

    number: int
    shards: int
    mark: str


@dataclass(frozen=True)
class Remembered:
    """A table whose rows are stored in a trace of an operator.

    Attributes
    ----------
    table
        The table.
    traces
        The trace with its keys, then those that its value is computed from.
    key
        The key's columns in the types in which they are stored.
    column, skipped
        The trace's column with the value, and how many of that column's fields come before the table's own.
    history
        Of a versioned table.
    groups, ranks
        Of declared aggregates and of first rows, which are computed from what is stored.
    copies
        If several shards have each row.
    """

    table: Node
    traces: tuple[str, ...]
    key: Fields
    column: str = "v"
    skipped: int = 0
    history: History | None = None
    groups: Groups | None = None
    ranks: Ranks | None = None
    copies: Copies | None = None


@dataclass(frozen=True)
class Read:
    """A port that reads a view, before the columns of its messages are known. The attributes are those of `Reader`."""

    want: Want
    view: Node
    key: Fields
    pointer: Pointer | None
    inputs: Inputs | None
    latest_only: bool
    counted_by: str | None
    is_silent: bool = False

    @property
    def base(self) -> Node:
        """The node whose changes arrive."""
        return base_of(self.view)


@dataclass(frozen=True)
class Made:
    """Where the changes of a node appear: after which round, and the columns of their messages."""

    round: int
    result: Result


@dataclass
class Draft:
    """An operator before its readers are known.

    `targets`: where each of its outputs goes; None: to the readers of `base`. `remembers`: the tables that it stores.
    `copied`: whether every shard has a copy of the table that it looks rows up in. `shown`: the columns of what comes
    from another operator under the users' names; None: what comes from another operator is no record.
    """

    base: Node | None
    name: str
    round: int
    operator: Operator
    inputs: list[Want]
    targets: tuple[Want | None, ...] = (None,)
    remembers: tuple[Remembered, ...] = ()
    copied: bool = False
    shown: Shown | None = None


@dataclass
class Lowering:
    """The plan while it is being lowered; `place` places the operators of a base.

    `knowing`: the filters that know the old row in compat mode. `columns`: what each join needs of its sides.
    `telling_latest`: the outputs of versioned tables that read a view.
    `direct`: the ports that read a base's changes as its operator emits them. `counting`: where late changes of a
    side of a join are counted. A join that is also part of another operator counts them once.
    """

    options: PlanOptions
    types: Types
    names: dict[Node, str]
    knowing: set[Node]
    place: Callable[[Lowering, Node], Made]
    columns: dict[tuple[Node, int], tuple[bool, ...]] = field(default_factory=dict)
    wants: list[Want] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)
    direct: dict[Node, list[Want]] = field(default_factory=dict)
    telling_latest: set[Want] = field(default_factory=set)
    made: dict[Node, Made] = field(default_factory=dict)
    counting: dict[Want, tuple[Node, int]] = field(default_factory=dict)

    def produce(self, base: Node) -> int:
        """Place the operator of a base and everything upstream of it; return the round in which its changes appear."""
        if base not in self.made:
            self.made[base] = self.place(self, base)
        return self.made[base].round

    def read(
        self,
        view: Node,
        want: Want,
        key: Fields,
        pointer: Pointer | None = None,
        inputs: Inputs | None = None,
        *,
        latest_only: bool = False,
        side: tuple[Node, int] | None = None,
        is_silent: bool = False,
    ) -> None:
        """Record that a port reads a view. The input of the port's operator gives the columns of its messages.

        `latest_only`: drop late changes of a versioned table. `side`: drop them and count them at the join of which the
        view is a side. `is_silent`: see `Reader`.
        """
        self.wants.append(want)
        dropped = history_of(view) is not None and (latest_only or side is not None)
        dropped |= any(isinstance(step, ToStream) and step.latest_only for step in view_path(view))
        counted = None
        if dropped and side is not None and side not in self.counting.values():
            self.counting[want] = side
            counted = self.names[side[0]]
        self.reads.append(Read(want, view, key, pointer, inputs, dropped, counted, is_silent))

    def read_directly(self, base: Node, want: Want) -> None:
        """Record that a port reads what an operator emits, with no expressions in between."""
        self.wants.append(want)
        self.direct.setdefault(base, []).append(want)

    def read_stream(
        self,
        view: Node,
        want: Want,
        key: Fields,
        pointer: Pointer | None = None,
        inputs: Inputs | None = None,
        *,
        is_silent: bool = False,
        latest_only: bool = False,
    ) -> None:
        """Record that a port reads a stream, on every path that its records take. A table has only one path.

        The order of `want` describes the path from the view upwards.
        """
        above, side = want.order[:2]
        for number, (way, path) in enumerate(ways(view)):
            order = ((*path, *above), side, number)
            if number:
                further = replace(want, order=order, into=want)
            else:
                want.order, further = order, want
            self.read(way, further, key, pointer, inputs, is_silent=is_silent, latest_only=latest_only)

    def produce_stream(self, view: Node) -> int:
        """Place the operators of a stream or a table; return the last round in which some of its records appear."""
        return max(self.produce(base_of(way)) for way, _ in ways(view))

    def keys(self, fields: Fields, names: tuple[str, ...]) -> pl.Schema:
        """Key columns and their dtypes."""
        return pl.Schema(dict(zip(names, self.types(fields).values(), strict=True)))

    def key_of(self, node: Node) -> pl.Schema:
        """The key columns of a table."""
        return self.keys(node.key, key_columns(len(node.key)))

    def foreign_of(self, foreign: Fields) -> pl.Schema:
        """The columns in which a foreign key or a group's key travels, and their dtypes."""
        return self.keys(foreign, foreign_columns(len(foreign)))

    def value_of(self, node: Node) -> pl.DataType:
        """The dtype of a table's value."""
        return self.struct_of(node.value)

    def struct_of(self, fields: Fields) -> pl.DataType:
        """The struct dtype in which columns travel."""
        return struct_of(self.types(fields))

    def needed_of(self, join: Node, side: int) -> tuple[str, ...] | None:
        """The columns that a join needs of a side, as they travel; None: every change counts, as in compat."""
        if self.options.compat:
            return None
        return tuple(f"c{number}" for number, needed in enumerate(self.columns[join, side]) if needed)

    def meets_on_key(self, join: ForeignKeyJoin) -> bool:
        """Whether a foreign-key join is planned as a join on the key. Kafka Streams never does this."""
        return join.on_key and not self.options.compat

    def reads_minimal(self, view: Node) -> bool:
        """Whether the reader of a view ignores tombstones for absent rows."""
        return (
            not view.is_stream
            and history_of(view) is None
            and is_filtered(view)
            and (not self.options.compat or not self.knowing.isdisjoint(view_path(view)))
        )
