"""Rounds: which operators run in which round, and where their messages go.

The rounds of a plan run one after the other. Round ``r`` is one shuffle and one stateful stage; it runs every operator
of that depth. A message names the *port* that it is for. A port is one input of one operator, or an output of the
plan. A message for a later round passes through earlier ones unread.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from tablestream.runtime.ports import Port
from tablestream.state.run import CHUNK_SIZE_BYTES
from tablestream.state.shard import ShardState
from tablestream.state.trace_spec import numbered_traces

if TYPE_CHECKING:
    from tablestream.operators.operator import Operator
    from tablestream.runtime.alignment import Alignment
    from tablestream.runtime.rejections import Shown
    from tablestream.state.cache import ChunkCache
    from tablestream.state.store import StateStore
    from tablestream.state.trace_spec import TraceSpec

#: The lanes of records without a time: each source partition, like those of a topic, or a source as a whole.
BY_PARTITION, BY_SOURCE = "partition", "source"


@dataclass(frozen=True)
class Placed:
    """An operator in its round, with the ports that it reads and the ports that each of its outputs goes to.

    `copied`: every shard has a copy of the table that it looks rows up in, in its last trace. `rejecting`: the ports
    that receive the records it drops. `shown`: the columns of its inputs under the users' names. `where`: the user's
    line that built it. `lacking`: by input, whether tombstones without a time may come, and what their
    lanes are: `BY_PARTITION` or `BY_SOURCE` (see `run_round`).
    """

    name: str
    operator: Operator
    inputs: tuple[int, ...]
    targets: tuple[tuple[Port, ...], ...]
    copied: bool = False
    rejecting: tuple[Port, ...] = ()
    shown: tuple[Shown | None, ...] = ()
    where: str = ""
    lacking: tuple[str | None, ...] = ()

    @property
    def copy_trace(self) -> str | None:
        """The trace with the copy of a global table."""
        return self.trace_specs[-1].name if self.copied else None

    @property
    def trace_specs(self) -> tuple[TraceSpec, ...]:
        """The traces of the operator, under names that are unique in the round."""
        return tuple(replace(spec, name=f"{self.name}/{spec.name}") for spec in self.operator.traces)


@dataclass(frozen=True)
class Round:
    """One stateful stage."""

    number: int
    """From 1. An arriving message has as many hop columns."""
    operators: tuple[Placed, ...]
    """The operators that run here; their order does not matter."""
    description: tuple[str, ...]
    """One line per operator and trace: what the state means. A restart compares it."""
    alignment: Alignment | None = None
    """In the round in which records wait for each other: how they do."""
    tables: str = ""
    """The tables that the plan's state holds, as text (see `planner.catalogue`)."""
    waiting: tuple[str, ...] = ()
    """What the messages that wait for outputs were computed from, one line per node. A restart compares it, too. Older
    versions did not: they left it out."""

    @cached_property
    def traces(self) -> tuple[TraceSpec, ...]:
        """Every trace of the round, numbered."""
        specs = [spec for placed in self.operators for spec in placed.trace_specs]
        specs += self.alignment.traces if self.alignment is not None else ()
        return numbered_traces(specs)

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports that this round reads."""
        return self.alignment.ports if self.alignment is not None else tuple(self.schemas)

    @cached_property
    def schemas(self) -> dict[int, pl.Schema]:
        """The columns of the messages at each port that this round reads, without the order columns."""
        return {
            port: schema
            for placed in self.operators
            for port, schema in zip(placed.inputs, placed.operator.inputs, strict=True)
        }

    @property
    def needs_clock(self) -> bool:
        """Whether an operator of the round follows the wall clock."""
        return any(placed.operator.needs_clock for placed in self.operators)

    @property
    def can_be_sliced(self) -> bool:
        """Whether a part of the messages can be worked off before the others.

        It cannot where an operator emits only the last change per key and micro-batch, nor where records wait for each
        other: only the end of the micro-batch shows which these are.
        """
        return self.alignment is None and not any(placed.operator.final for placed in self.operators)

    @property
    def facts(self) -> tuple[str, ...]:
        """What a restart compares."""
        return (*self.description, *self.waiting)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of what a restart compares."""
        return _digest(self.text)

    @cached_property
    def older_fingerprint(self) -> str:
        """The fingerprint in states of older versions."""
        return _digest(_text(self.description))

    @cached_property
    def text(self) -> str:
        """What a restart compares, as one text."""
        return _text(self.facts)

    def open_state(
        self, store: StateStore, cache: ChunkCache, *, chunk_size_bytes: int = CHUNK_SIZE_BYTES
    ) -> ShardState:
        """Open the round's state of one shard."""
        return ShardState(
            store,
            cache,
            self.traces,
            self.fingerprint,
            self.text,
            tables=self.tables,
            older_fingerprint=self.older_fingerprint,
            chunk_size_bytes=chunk_size_bytes,
        )


def _text(facts: tuple[str, ...]) -> str:
    return json.dumps(facts, indent=0)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def copied_name(operator: str) -> str:
    """Name the metric for the total size of all copies of an operator's global table."""
    return f"copied bytes of {operator}"
