"""What lowering rules return: operators, the ports that they want, and what each port reads. Nothing is numbered yet.

A *base* is a node whose changes physically arrive: a source, or the output of an operator. Selects and filters on
top of it are a *view*: they are evaluated where the changes are read. Every reader of a view is a port.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from tablestream.errors import PlanError
from tablestream.operators.operator import Operator
from tablestream.operators.reduce.ranking import Order as RowOrder
from tablestream.planner.physical_plan import Inputs, Output, PlanOptions
from tablestream.planner.result import Pointer, Result
from tablestream.runtime.rejections import Shown
from tablestream.state.changes import NOTHING, foreign_columns, key_columns
from tablestream.topology.graph import base_of, history_of, is_filtered, named_as, view_path, ways
from tablestream.topology.measures import Measure
from tablestream.topology.nodes import Fields, ForeignKeyJoin, Node
from tablestream.topology.streams import ToStream

Types = Callable[[Fields], pl.Schema]
#: The path from a base, and the role there; of merged streams also the number of the stream.
Order = tuple[tuple[int, ...], int] | tuple[tuple[int, ...], int, int]


def struct_of(columns: pl.Schema) -> pl.Struct:
    """Return the struct dtype in which columns travel."""
    return pl.Struct(
        {f"c{number}": kind for number, kind in enumerate(columns.values())} or {NOTHING: pl.Boolean()}
    )


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
    def order(self) -> RowOrder:
        """The order of a group's rows. Without ranks, of equal rows the last is the first."""
        return RowOrder(self.columns, self.descending, newest_first=not self.ranked, keeps_nulls=True)


@dataclass(frozen=True)
class Copies:
    """In how many of the shards each row of a trace is, and the mark with a shard's own number."""

    number: int
    shards: int
    mark: str


@dataclass(frozen=True)
class Remembered:
    """A table whose rows are stored in a trace of an operator."""

    table: Node
    traces: tuple[str, ...]
    """The trace with its keys, then those that its value is computed from."""
    key: Fields
    """The key's columns in the types in which they are stored."""
    column: str = "v"
    skipped: int = 0
    """The trace's column with the value, and how many of that column's fields come before the table's own."""
    history: History | None = None
    """Of a versioned table."""
    groups: Groups | None = None
    ranks: Ranks | None = None
    """Of declared aggregates and of first rows, which are computed from what is stored."""
    copies: Copies | None = None
    """If several shards have each row."""
    waits: bool = False
    """Whether it is what waits in a buffer, for its time or for rows to be joined with, and not the table itself."""
    besides: str = ""
    """The column that says which waiting rows are none of the table's, if there are any."""


@dataclass(frozen=True, eq=False)
class Read:
    """A view that a port reads, before the columns of its messages are known. The attributes are those of `Reader`.

    `order`: as of a `Want`. `side`: the side of a join at which the late changes that it drops are counted.
    """

    order: Order
    view: Node
    key: Fields
    pointer: Pointer | None
    inputs: Inputs | None
    latest_only: bool
    side: tuple[Node, int] | None
    is_silent: bool
    way: tuple[Node, int] | None = None
    """If the view is none of the user's: the view of merged streams that it is a way to, and the number of the way."""

    @property
    def base(self) -> Node:
        """The node whose changes arrive."""
        return base_of(self.view)

    def name(self, names: Mapping[Node, str]) -> str:
        """Return the name by which users know the view: of merged streams with the source behind it."""
        if self.way is None:
            return named_as(self.view, names)
        view, number = self.way
        *others, own = [names[base_of(way)] for way, _ in ways(view)[: number + 1]]
        again = f"_{1 + others.count(own)}" if own in others else ""
        return f"{names[view]}.{own}{again}"


@dataclass(frozen=True, eq=False)
class Want:
    """A port before it has a number and a rank. `order` decides the rank: the path from its base, and its role there.

    `spread`, `copies`: see `Port`. `reads`: the views that it reads, several for merged streams. `directly`: the node
    whose operator sends to it what it emits, with no expressions in between.
    """

    order: Order
    round: int
    route: str
    label: str
    spread: int = 1
    copies: int = 1
    reads: tuple[Read, ...] = ()
    directly: Node | None = None

    @property
    def senders(self) -> Iterator[Node]:
        """The bases that send to it."""
        yield from (read.base for read in self.reads)
        yield from () if self.directly is None else (self.directly,)


@dataclass(frozen=True, eq=False)
class Draft:
    """An operator before its ports are numbered.

    `targets`: where each of its outputs goes; None: to the readers of `base`. `remembers`: the tables that it stores.
    `copied`: whether every shard has a copy of the table that it looks rows up in. `shown`: the columns of what comes
    from another operator under the users' names; None: what comes from another operator is no record.
    """

    base: Node | None
    name: str
    round: int
    operator: Operator
    inputs: Sequence[Want]
    targets: tuple[Want | None, ...] = (None,)
    remembers: tuple[Remembered, ...] = ()
    copied: bool = False
    shown: Shown | None = None


@dataclass(frozen=True)
class Made:
    """What a rule makes of a node: its operators, after which round its changes appear, and their columns.

    `events`: the ports of its transactions' gate that read its events.
    """

    round: int
    result: Result
    drafts: tuple[Draft, ...] = ()
    events: tuple[Want, ...] = ()

    @property
    def senders(self) -> Iterator[Node]:
        """The bases that its operators read."""
        return (base for draft in self.drafts for want in draft.inputs for base in want.senders)


@dataclass(frozen=True)
class End:
    """An output before its port is numbered.

    `sender` is the operator that sends to it or its `Upsert`. It is None if the port reads a view or rejected records.
    """

    output: Output
    want: Want
    sender: Node | Draft | None
    result: Result | None

    @property
    def memory(self) -> tuple[Draft, ...]:
        """The operator that remembers its rows, if there is one."""
        return (self.sender,) if isinstance(self.sender, Draft) else ()


@dataclass(frozen=True)
class Lowering:
    """What rules ask of the plan that is lowered. `place` is the rule of a base; `made` keeps what the rules returned.

    `knowing`: the filters that know the old row in compat mode. `columns`: what each join needs of its sides.
    """

    options: PlanOptions
    types: Types
    names: dict[Node, str]
    knowing: set[Node]
    place: Callable[[Lowering, Node], Made]
    columns: dict[tuple[Node, int], tuple[bool, ...]]
    made: dict[Node, Made] = field(default_factory=dict)

    def not_of_kafka(self, node: Node, what: str, hint: str = "Omit compat=.") -> None:
        """Refuse what Kafka Streams lacks, in compat mode."""
        if self.options.compat:
            raise PlanError(
                f"compat='kafka-streams' has no {what}.",
                hint=hint,
                operator=self.names[node],
                where=node.where,
            )

    def produce(self, base: Node) -> int:
        """Place the operators of a base and everything upstream of it; return the round in which its changes appear."""
        if base not in self.made:
            self.made[base] = self.place(self, base)
        return self.made[base].round

    def produce_stream(self, view: Node) -> int:
        """Place the operators of a stream or a table; return the last round in which some of its records appear."""
        return max(self.produce(base_of(way)) for way, _ in ways(view))

    def upstream(self, bases: Iterable[Node], found: dict[Node, Made] | None = None) -> dict[Node, Made]:
        """Return what was made of bases and of everything upstream of them, which comes first."""
        found = {} if found is None else found
        for base in bases:
            if base in self.made and base not in found:
                self.upstream(self.made[base].senders, found)
                found[base] = self.made[base]
        return found

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
    ) -> Want:
        """Return a port that also reads a view. The input of its operator gives the columns of its messages.

        `latest_only`: drop late changes of a versioned table. `side`: drop them and count them at the join of which the
        view is a side. `is_silent`: see `Reader`.
        """
        dropped = history_of(view) is not None and (latest_only or side is not None)
        dropped |= any(isinstance(step, ToStream) and step.latest_only for step in view_path(view))
        counted = side if dropped else None
        read = Read(want.order, view, key, pointer, inputs, dropped, counted, is_silent)
        return replace(want, reads=(*want.reads, read))

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
    ) -> Want:
        """Return a port that reads a stream, on every path that its records take. A table has only one path.

        The order of `want` describes the path from the view upwards.
        """
        above, side = want.order[:2]
        reads: list[Read] = []
        for number, (way, path) in enumerate(ways(view)):
            here = replace(want, order=((*path, *above), side, number))
            made = self.read(way, here, key, pointer, inputs, is_silent=is_silent, latest_only=latest_only)
            reads += (one if way in self.names else replace(one, way=(view, number)) for one in made.reads)
        return replace(want, reads=tuple(reads))

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
