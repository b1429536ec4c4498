"""A lowered plan as a value: the line of rounds, what is read where, and what comes out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tablestream.plan.rejections import Shown
from tablestream.plan.rounds import Port, Round
from tablestream.state.changes import foreign_columns, key_columns
from tablestream.topology.graph import ancestors, history_of
from tablestream.topology.nodes import Aggregate, Fields, ForeignKeyJoin, Node, OneToMany, Source
from tablestream.topology.streams import StreamJoin

#: The nodes whose ``on`` points at another key.
Pointing = ForeignKeyJoin | OneToMany | StreamJoin | Aggregate


class Role(Enum):
    """What a port needs of a change: which columns are computed for it."""

    KEYED = "key, value"
    SUBSCRIBING = "key, foreign key, value"
    POINTED_AT = "key as foreign key, value"
    GROUPING = "key, group, what is aggregated"
    SEQUENCED = "key, sequence, value"
    WRITTEN = "key, writer and what it numbered, value"


@dataclass(frozen=True)
class Reader:
    """A port that reads a view.

    Attributes
    ----------
    port
        Where the messages go.
    node
        The view.
    role
        Which columns are computed.
    key, foreign
        The key's types, and with `Role.SUBSCRIBING` the foreign key's, with `Role.GROUPING` the group's.
    join
        With `Role.SUBSCRIBING` and `Role.GROUPING`, the node whose ``on`` is evaluated.
    latest_only
        Of a versioned table, whether changes that are not the latest of their row are left out.
    counted_by
        The operator that counts them as dropped, if one does.
    tells_latest
        Whether a message says if the change is the latest of its row.
    rejecting
        The ports that want to know which changes it leaves out.
    """

    port: Port
    node: Node
    role: Role
    key: Fields
    foreign: Fields = ()
    join: Pointing | None = None
    latest_only: bool = False
    counted_by: str | None = None
    tells_latest: bool = False
    rejecting: tuple[Port, ...] = ()

    @property
    def shown(self) -> Shown:
        """The columns of its messages as users know them."""
        pointed = self.role is Role.POINTED_AT
        columns = (foreign_columns if pointed else key_columns)(len(self.key))
        fields = self.join.input_fields if isinstance(self.join, Aggregate) else self.node.value
        return Shown(columns, tuple(one.name for one in self.node.key), tuple(one.name for one in fields))


@dataclass(frozen=True)
class Between:
    """Changes of a base that are read in later rounds: they are opened behind the round that makes them."""

    port: Port
    base: Node
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
    """An output's port: the node whose columns its messages have, and how.

    Attributes
    ----------
    output, port
        What was asked for, and where it arrives.
    evaluated
        Whether the value arrives computed, as column ``v`` (and ``old``); otherwise the columns of the base's
        operator arrive.
    """

    output: Output
    port: Port
    evaluated: bool


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
class Line:
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
