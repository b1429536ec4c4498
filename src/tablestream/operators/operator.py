"""What an operator is: a frame of changes in, frames of changes out, and what it remembers named beforehand.

An operator is a frozen dataclass: its parameters and nothing else. It declares what it reads, emits and remembers:
the planner checks the columns, and a round lends it what it asked for. It runs without Spark. In each step of work
it is handed, per input, the messages that arrived (any order of rows; ``_seq`` is their place), and the traces
of its shard. It yields `Emission` after `Emission`; a large fan-out leaves in several.

Who owes what
    The round numbers the messages (``_seq``, ``_step``) before, and gives the emitted rows their place in the
    total order afterwards: a row says only which message caused it (``_parent``, a ``_seq``) and, where one
    message causes several rows at one output, their order (``_n``, Int64, rising). The operator looks inside no
    value, reads no clock but the one it is lent, and touches nothing but the traces and marks it declared and its
    observed time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from tablestream.state.changes import KEY_HASH, LIVE, TS
from tablestream.state.trace import Trace, TraceSpec

PARENT, NUMBER = "_parent", "_n"

#: Rows of a fan-out that leave together: bounds the memory of one large right-hand change.
FAN_OUT_ROWS = 200_000


def keyed_rows(keys: pl.Schema, values: Mapping[str, pl.DataType]) -> pl.Schema:
    """The columns of changes by their key, with the values of one table or of several."""
    return pl.Schema({KEY_HASH: pl.Int64(), **keys, TS: pl.Int64(), LIVE: pl.Boolean(), **values})


def keyed_changes(keys: pl.Schema, value: pl.DataType) -> pl.Schema:
    """The columns of the changes of a table, or the records of a stream, by their key."""
    return keyed_rows(keys, {"v": value})


@dataclass(frozen=True)
class Emission:
    """Rows for one output of an operator: ``_parent``, ``_n``, ``_ts``, ``_live`` and the output's own columns."""

    output: int
    rows: pl.DataFrame


@dataclass
class WallClock:
    """The time of the micro-batch, for operators that let something go though nothing came.

    Attributes
    ----------
    now_us
        Microseconds since 1970.
    tick
        The place behind all messages, where what the clock brings about has its parent; none if more is to come.
    wake_us
        When an operator wants to run again at the latest; it sets this.
    """

    now_us: int
    tick: int | None = None
    wake_us: int | None = None

    def wake(self, at_us: int) -> None:
        """Ask to run again."""
        self.wake_us = at_us if self.wake_us is None else min(self.wake_us, at_us)


@dataclass
class Context:
    """What a round lends an operator: its traces by name, and a place to count what it drops.

    Attributes
    ----------
    trace
        Gives the trace of a name that the operator declared.
    dropped
        Records dropped so far, by reason.
    rejected
        The dropped records themselves, if someone asks for them: the number of the input, the reason, and the rows.
    observed
        The largest time that the operator has seen in its shard; it survives a restart. None: no record yet.
    clock
        For operators that declare `Operator.needs_clock`.
    marks
        Further times and counters of the shard that survive a restart, which the operator declared.
    shard, shards
        Which shard this is, from 0, and of how many.
    """

    trace: Callable[[str], Trace]
    dropped: Counter[str]
    observed: int | None = None
    clock: WallClock | None = None
    marks: dict[str, int] = field(default_factory=dict)
    shard: int = 0
    shards: int = 1
    rejected: list[tuple[int, str, pl.DataFrame]] | None = None

    def reject(self, reason: str, rows: pl.DataFrame, of_input: int = 0) -> None:
        """Count rows of an input that are dropped, and keep them if someone asks for them."""
        self.dropped[reason] += rows.height
        if self.rejected is not None and rows.height:
            self.rejected.append((of_input, reason, rows))

    def among_shards(self, number: pl.Expr) -> pl.Expr:
        """Make numbers of emissions different from those of other shards, where all of them have one cause."""
        return number * self.shards + self.shard


class Operator(ABC):
    """A columnar operator of one round, and all that a round and the planner have to know of it."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters that a printed plan shows: words, numbers, and what is true."""
        return ()

    @property
    @abstractmethod
    def inputs(self) -> tuple[pl.Schema, ...]:
        """The columns of the messages of each input, without their place in the order."""

    @property
    @abstractmethod
    def outputs(self) -> tuple[pl.Schema, ...]:
        """The columns of the rows of each output, without ``_parent`` and ``_n``."""

    @property
    @abstractmethod
    def traces(self) -> tuple[TraceSpec, ...]:
        """What the operator remembers."""

    @property
    def marks(self) -> tuple[str, ...]:
        """The names of the times and counters that it keeps in `Context.marks`."""
        return ()

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons for which it counts a record: as dropped, or as late."""
        return ()

    @property
    def rejects(self) -> bool:
        """Whether it hands over records that it drops (`Context.reject`)."""
        return False

    @property
    def needs_clock(self) -> bool:
        """Whether it goes by the wall clock, and so has something to do where nothing came."""
        return False

    @property
    def splits_steps(self) -> bool:
        """Whether each row that it emits is a step of its own."""
        return False

    @property
    def final(self) -> bool:
        """Whether only the last change per key and micro-batch leaves."""
        return False

    @property
    def can_be_final(self) -> bool:
        """Whether `made_final` leaves out all but the last change of each key; otherwise an `Upsert` behind it does."""
        return False

    def made_final(self) -> Operator:
        """Return the operator for readers that want final changes only."""
        return self

    @abstractmethod
    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        """Work off a micro-batch, or a sorted slice of it, and remember what it leaves."""


@dataclass(frozen=True)
class CanBeFinal(Operator):
    """An operator that can leave out all but the last change per key and micro-batch.

    Parameters
    ----------
    final
        Whether it does.
    """

    final: bool = field(default=False, kw_only=True)

    @property
    def parameters(self) -> tuple[str, ...]:
        return ("final",)

    @property
    def can_be_final(self) -> bool:
        return True

    def made_final(self) -> Operator:
        """Return the operator that does."""
        return replace(self, final=True)
