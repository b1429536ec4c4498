"""The physical plan as a value: its rounds, what is read where, and what comes out."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tablestream.errors import PlanError
from tablestream.operators.upsert import OLD
from tablestream.planner.result import Pointer, Result
from tablestream.runtime.rejections import Shown
from tablestream.runtime.rounds import Port, Round
from tablestream.state.changes import KEY_HASH, ROW_TS, foreign_columns, key_columns
from tablestream.topology.graph import ancestors, history_of
from tablestream.topology.nodes import Expression, Fields, Node, Source

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Inputs:
    """What travels in place of a row's value: an expression per column, and the columns."""

    expressions: tuple[Expression, ...]
    fields: Fields


@dataclass(frozen=True)
class Reader:
    """A port that reads a view.

    Attributes
    ----------
    port
        Where the messages go.
    node
        The view.
    schema
        The columns of its messages, without their place in the order: those that its operator declares. What is
        computed of a row follows from them.
    key
        The key's types.
    pointer
        Which key of another table or which group is computed, if one is.
    inputs
        What is computed in place of the value, if that does not travel.
    latest_only
        Of a versioned table, whether changes that are not the latest of their row are left out.
    counted_by
        The operator that counts them as dropped, if one does.
    rejecting
        The ports that want to know which changes it leaves out.
    """

    port: Port
    node: Node
    schema: pl.Schema
    key: Fields
    pointer: Pointer | None = None
    inputs: Inputs | None = None
    latest_only: bool = False
    counted_by: str | None = None
    rejecting: tuple[Port, ...] = ()

    @property
    def shown(self) -> Shown:
        """The columns of its messages as users know them."""
        fields = self.node.value if self.inputs is None else self.inputs.fields
        names = (tuple(one.name for one in columns) for columns in (self.node.key, fields))
        return Shown(self.key_columns, *names)

    @property
    def is_pointed_at(self) -> bool:
        """Whether messages go where others point at: the key travels as a foreign key."""
        return KEY_HASH not in self.schema

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of its messages with the key."""
        return (foreign_columns if self.is_pointed_at else key_columns)(len(self.key))

    def check(self, computed: Collection[str]) -> None:
        """Raise `PlanError` if the port needs a column that is not computed."""
        missing = [name for name in self.schema if name not in computed and name != ROW_TS]
        if missing:
            raise lacking(self.node.name, self.port, missing, self.node.where)


@dataclass(frozen=True)
class Between:
    """A result that is read in later rounds: its messages are opened behind the round that makes them."""

    port: Port
    result: Result
    after: int
    readers: tuple[Reader, ...]


@dataclass(frozen=True)
class Output:
    """What was asked for: the changes of a node, or with `rejected` the records that its sources reject.

    `latest_only`: of a versioned table, none but those that are the latest of their row.
    `numbered`: the changes of each key are numbered as they leave.
    """

    node: Node
    final: bool = False
    before: bool = False
    minimal: bool = False
    rejected: bool = False
    latest_only: bool = False
    numbered: bool = False

    @property
    def tells_latest(self) -> bool:
        """Whether each change says if it is the latest of its row."""
        return history_of(self.node) is not None and not self.latest_only


@dataclass(frozen=True)
class Ending:
    """An output's port.

    Attributes
    ----------
    output, port
        What was asked for, and where it arrives.
    result
        What its messages have: the node's own value (and ``old``), or what its base's operator emits. None: they are
        rejected records.
    """

    output: Output
    port: Port
    result: Result | None

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that an operator has to emit for it."""
        if self.result is None:
            return ()
        return (*self.result.needed, *((OLD,) if self.output.before else ()))


@dataclass(frozen=True)
class Align:
    """How records wait until every source partition has passed them.

    `idle_us`: after how long silence a partition is not waited for, in microseconds; None: never.
    """

    idle_us: int | None = None


@dataclass(frozen=True)
class Mode:
    """How a plan behaves: compat with Kafka Streams, the number of shards, and whether records wait for each other."""

    compat: bool = False
    shards: int = 16
    align: Align | None = None


@dataclass(frozen=True)
class PhysicalPlan:
    """A lowered plan; `names` are the nodes' names, unique in the plan."""

    mode: Mode
    names: dict[Node, str]
    rounds: tuple[Round, ...]
    sources: dict[Source, tuple[Reader, ...]]
    between: tuple[Between, ...]
    endings: tuple[Ending, ...]

    @property
    def told(self) -> Port | None:
        """The port that is told how far the source partitions have come, where records wait for each other."""
        return next((work.alignment.told for work in self.rounds if work.alignment is not None), None)

    def rejecting(self, source: Source) -> tuple[Port, ...]:
        """The ports that want to know what a source rejects."""
        rejections = (ending for ending in self.endings if ending.output.rejected)
        return tuple(ending.port for ending in rejections if source in ancestors(ending.output.node))

    def check(self) -> None:
        """Raise `PlanError` if an operator does not emit a column that a port needs."""
        needed: dict[int, Collection[str]] = {
            port: schema.keys() - {ROW_TS} for work in self.rounds for port, schema in work.schemas.items()
        }
        needed |= {between.port.number: between.result.needed for between in self.between}
        needed |= {ending.port.number: ending.needed for ending in self.endings}
        for placed in (one for work in self.rounds for one in work.operators):
            for emitted, ports in zip(placed.operator.outputs, placed.targets, strict=True):
                for port in ports:
                    missing = [name for name in needed[port.number] if name not in emitted]
                    if missing:
                        raise lacking(placed.name, port, sorted(missing), placed.where)


def lacking(name: str, port: Port, missing: Collection[str], where: str) -> PlanError:
    """The error that someone does not give a port what it needs."""
    return PlanError(
        f"'{port.label}' needs columns that '{name}' does not give it: {', '.join(missing)}.",
        hint="This is a defect of tablestream: please report it with the code that builds the plan.",
        operator=name,
        where=where,
    )
