"""The physical plan as a value: its rounds, their inputs, and the outputs."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from tablestream.errors import PlanError
from tablestream.operators.upsert import OLD
from tablestream.planner.result import Pointer, Result
from tablestream.runtime.ports import Port
from tablestream.runtime.rejections import Shown
from tablestream.runtime.rounds import Round
from tablestream.state.changes import KEY_HASH, ROW_TS, foreign_columns, key_columns
from tablestream.state.shard import plan_changed
from tablestream.topology.graph import ancestors, history_of
from tablestream.topology.needed import sides_named
from tablestream.topology.nodes import Expression, Fields, Node, Source

if TYPE_CHECKING:
    import polars as pl

    from tablestream.runtime.alignment import Held


@dataclass(frozen=True)
class Inputs:
    """What travels in place of a row's value: one expression per column, and the columns."""

    expressions: tuple[Expression, ...]
    fields: Fields


@dataclass(frozen=True)
class Reader:
    """A port that reads a view."""

    port: Port
    """Where the messages go."""
    node: Node
    """The view."""
    schema: pl.Schema
    """The columns of its messages that its operator declares, without the order columns. They decide what is computed
    from a row."""
    key: Fields
    """The key's types."""
    pointer: Pointer | None = None
    """The key of another table, or the group, that is computed for each row, if any."""
    inputs: Inputs | None = None
    """What is computed in place of the value, if the value itself does not travel."""
    latest_only: bool = False
    """For a versioned table, whether to drop changes that are not the latest of their row."""
    counted_by: str | None = None
    """The operator that counts these as dropped, if any."""
    rejecting: tuple[Port, ...] = ()
    """The ports that receive the changes it drops."""
    is_silent: bool = False
    """Whether it gets no messages: the view is computed for what it rejects."""

    @property
    def owner(self) -> str:
        """The name of the operator that reads it."""
        return re.split(r"[\[/]", self.port.label, maxsplit=1)[0]

    @property
    def shown(self) -> Shown:
        """The columns of its messages under the users' names."""
        fields = self.node.value if self.inputs is None else self.inputs.fields
        names = (tuple(one.name for one in columns) for columns in (self.node.key, fields))
        return Shown(self.key_columns, *names)

    @property
    def is_pointed_at(self) -> bool:
        """Whether messages go to the key that others point at: the key then travels as a foreign key."""
        return KEY_HASH not in self.schema

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The key columns of its messages."""
        return (foreign_columns if self.is_pointed_at else key_columns)(len(self.key))

    def check(self, computed: Collection[str]) -> None:
        """Raise `PlanError` if the port needs a column that is not computed."""
        missing = [name for name in self.schema if name not in computed and name != ROW_TS]
        if missing:
            raise lacking(self.node.name, self.port, missing, self.node.where)


@dataclass(frozen=True)
class Between:
    """A result that later rounds read: its messages are unpacked after the round that makes them."""

    port: Port
    result: Result
    after: int
    readers: tuple[Reader, ...]


@dataclass(frozen=True)
class Output:
    """What a query writes: the changes of a node or, with `rejected`, the records that its sources reject.

    `latest_only`: of a versioned table, only the changes that are the latest of their row.
    `numbered`: the changes of each key are numbered as they are emitted.
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


@dataclass(frozen=True, kw_only=True)
class Ending(Output):
    """An output of a lowered plan."""

    port: Port
    """Where its messages arrive."""
    result: Result | None
    """Their columns: the node's own value (and ``old``), or what its base's operator emits. None: they are rejected
    records."""

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that an operator has to emit for it."""
        if self.result is None:
            return ()
        return (*self.result.needed, *((OLD,) if self.before else ()))


@dataclass(frozen=True)
class Align:
    """How records wait until every source partition has passed them.

    `idle_us`: the microseconds of silence after which a partition no longer holds others back. None: it always does.
    """

    idle_us: int | None = None


@dataclass(frozen=True)
class OnError:
    """What becomes of a row for which an expression fails: it ends the query, gives null, or leaves its table."""

    usual: str = "fail"
    """``fail``, ``null`` or ``reject``: for all tables that are not named."""
    named: tuple[tuple[str, str], ...] = ()
    """The same by the names of tables."""

    def of(self, name: str) -> str:
        """What applies to a table."""
        return dict(self.named).get(name, self.usual)

    @property
    def rejects(self) -> bool:
        """Whether rows of a table are rejected."""
        return "reject" in (self.usual, *dict(self.named).values())


@dataclass(frozen=True)
class PlanOptions:
    """How a plan behaves: compat with Kafka Streams, the number of shards, and whether records wait for each other.

    `on_error` is no part of what a restart compares: a query that failed can go on in another way. `evolvable`: whether
    the state keeps every table of the sources whole.
    """

    compat: bool = False
    shards: int = 16
    align: Align | None = None
    on_error: OnError = field(default_factory=OnError)
    evolvable: bool = False


@dataclass(frozen=True)
class PhysicalPlan:
    """A lowered plan."""

    options: PlanOptions
    names: dict[Node, str]
    """The nodes' names, unique in the plan."""
    rounds: tuple[Round, ...]
    sources: dict[Source, tuple[Reader, ...]]
    """The readers of each source, in the order of declaration."""
    between: tuple[Between, ...]
    endings: tuple[Ending, ...]
    whole: frozenset[Source] = frozenset()
    """The sources whose tables are in the state as they are."""

    @property
    def progress(self) -> Port | None:
        """The port that receives how far the source partitions have come, if records wait for each other."""
        return next((work.alignment.progress for work in self.rounds if work.alignment is not None), None)

    @property
    def held(self) -> tuple[Held, ...]:
        """The messages that wait in the first round, if records wait for each other."""
        alignments = (work.alignment for work in self.rounds)
        return tuple(held for one in alignments if one is not None for held in one.held)

    @cached_property
    def leaving(self) -> set[int]:
        """The ports at which records go to an output, without an operator in between."""
        outputs = {ending.port.number for ending in self.endings}
        return outputs | {held.number for held in self.held if held.target.number in outputs}

    @property
    def ends_in_place(self) -> bool:
        """Whether the last round makes all changes of a key in the shard that they belong to.

        No shuffle has to follow it then. A shard that a timer wakes runs after all others, which this leaves out.
        """
        outputs = {ending.port.number for ending in self.endings}
        passing = {held.target.number for held in self.held}
        passing |= {reader.port.number for readers in self.sources.values() for reader in readers}
        passing |= {reader.port.number for between in self.between for reader in between.readers}
        rejecting = any(ending.rejected for ending in self.endings)
        if not self.rounds or rejecting or outputs & passing or not all(self.sources.values()):
            return False
        last = self.rounds[-1]
        answering = [
            one for one in last.operators if outputs & {port.number for to in one.targets for port in to}
        ]
        return not last.needs_clock and all(one.operator.keeps_shard for one in answering)

    @property
    def bootstrapped(self) -> tuple[Source, ...]:
        """The sources that start with a bootstrap, in the order of their declaration."""
        found = (source for source in self.sources if source.bootstrapped)
        return tuple(sorted(found, key=lambda one: one.serial))

    @property
    def text(self) -> str:
        """What its state means, one fact a line. A restart compares it; it does not name outputs without state.

        Spark identifies the streams of a checkpoint by their position. So the order of several sources is a fact even
        if the plan has no operator.
        """
        facts = self._text([work.facts for work in self.rounds])
        if self.rounds or len(self.sources) == 1:
            return facts
        return "\n".join([source.meaning for source in self.sources] + facts.splitlines())

    def check_same(self, stored: str) -> None:
        """Raise `PlanChangedError` unless the text of the plan that made a checkpoint is that of this one."""
        if not self.is_same(stored):
            old, new = _for_people(stored), _for_people(self.text)
            raise plan_changed(stored, self.text) if old == new else plan_changed(old, new)

    def is_same(self, stored: str) -> bool:
        """Whether a text is this plan's; older versions wrote another one."""
        return stored in {self.text, self._text([work.description for work in self.rounds])}

    def _text(self, described: Sequence[Sequence[str]]) -> str:
        rounds = zip(self.rounds, described, strict=True)
        facts = [fact for work, lines in rounds for fact in (f"round {work.number}", *lines)]
        # What no operator depends on has no other facts, and its rows are never written again.
        facts += [f"bootstrap {source.name}: {source.meaning}" for source in self.bootstrapped]
        return "\n".join(facts)

    def bootstrap_readers(self, source: Source) -> tuple[Reader, ...]:
        """The readers of the rows that a source starts with. These rows do not wait for records."""
        released = {held.number: held.target for held in self.held}
        return tuple(
            replace(reader, port=released.get(reader.port.number, reader.port))
            for reader in self.sources[source]
        )

    def rejecting(self, node: Node) -> tuple[Port, ...]:
        """The ports that receive the records that a source rejects, or the rows that a table rejects."""
        rejections = (ending for ending in self.endings if ending.rejected)
        return tuple(ending.port for ending in rejections if node in ancestors(ending.node))

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
    """The error for a port that does not get a column that it needs."""
    return PlanError(
        f"'{port.label}' needs columns that '{name}' does not give it: {', '.join(missing)}.",
        hint="This is a defect of tablestream: please report it with the code that builds the plan.",
        operator=name,
        where=where,
    )


def _for_people(text: str) -> str:
    """Name the sides of joins in the text of a plan as their tables."""
    return "\n".join(map(_line_for_people, text.split("\n")))


def _line_for_people(line: str) -> str:
    head, colon, rest = line.partition(": ")
    names = head.rpartition(" of ")[2].split(", ")
    return f"{head}{colon}{sides_named(rest, names)}"
