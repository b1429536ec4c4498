"""The operator protocol: a stateful operator declares its inputs, outputs and state, and turns changes into changes.

An operator is a frozen dataclass that holds only its parameters. It declares what it reads, emits and remembers. The
planner checks the columns, and a round provides the traces and marks. An operator runs without Spark. Each call of
`Operator.run` gets one frame of messages per input (rows in any order; ``_seq`` is their place) and the traces of
its shard. It yields `Emission` after `Emission`; a large fan-out is split into several.

Responsibilities
    The round numbers the messages (``_seq``, ``_step``) before the operator runs. Afterwards it gives the emitted
    rows their place in the total order. An emitted row says only which message caused it (``_parent``, a ``_seq``)
    and, where one message causes several rows at one output, their order (``_n``, Int64, rising). The operator never
    inspects values, reads only the clock that its context provides, and changes only the traces and marks that it
    declared and its observed time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from tablestream.state.changes import FOREIGN_HASH, KEY_HASH, LIVE, ROW_TS, TS
from tablestream.state.trace import Trace
from tablestream.state.trace_spec import TraceSpec

PARENT, NUMBER = "_parent", "_n"

#: The most rows of a fan-out in one emission. Bounds the memory that one large right-hand change takes.
FAN_OUT_ROWS = 200_000


@dataclass(frozen=True)
class Filled:
    """A column of messages that is filled from the frame of the source, and not from the row of a table."""

    dtype: pl.DataType
    sql: str
    """What fills it, as SQL over the columns of `tablestream.spark.sources`, with ``{there}``: whether there is a row,
    and ``{value_hash}``: the hash of its value."""
    of_each: bool = False
    """Whether the rows that one record became are told apart: the packer numbers them."""


class Messages(pl.Schema):
    """The columns of messages; `filled` says what fills those that have no usual content."""

    def __init__(self, columns: Mapping[str, pl.DataType | Filled] | None = None) -> None:
        columns = columns or {}  # none when it is unpickled
        self.filled = {name: one for name, one in columns.items() if isinstance(one, Filled)}
        super().__init__(
            {name: one.dtype if isinstance(one, Filled) else one for name, one in columns.items()}
        )


def filled_of(schema: pl.Schema) -> Mapping[str, Filled]:
    """The columns of messages that are filled from the frame of the source, by name."""
    return schema.filled if isinstance(schema, Messages) else {}


def keyed_rows(keys: pl.Schema, values: Mapping[str, pl.DataType | Filled]) -> Messages:
    """The key columns, and the value columns of one table or several."""
    return Messages({KEY_HASH: pl.Int64(), **keys, TS: pl.Int64(), LIVE: pl.Boolean(), **values})


def keyed_changes(keys: pl.Schema, value: pl.DataType) -> Messages:
    """The columns of keyed messages: the changes of a table or the records of a stream."""
    return keyed_rows(keys, {"v": value})


def timed_changes(keys: pl.Schema, value: pl.DataType, hashed: str = KEY_HASH) -> pl.Schema:
    """The columns of the changes of a table, with the rows' own times. `hashed`: the column of the key's hash."""
    head = {hashed: pl.Int64(), **keys, TS: pl.Int64(), ROW_TS: pl.Int64(), LIVE: pl.Boolean()}
    return pl.Schema({**head, "v": value})


def rows_trace(
    name: str, keys: pl.Schema, values: Mapping[str, pl.DataType], *, hashed: str = KEY_HASH
) -> TraceSpec:
    """The trace of a table: the last row of each key, and its time. `hashed`: the column of the key's hash."""
    columns = {hashed: pl.Int64(), **keys, TS: pl.Int64(), LIVE: pl.Boolean(), **values}
    return TraceSpec(name=name, hash=hashed, key=tuple(keys), schema=pl.Schema(columns))


def pointing_trace(
    name: str, foreign_keys: pl.Schema, keys: pl.Schema, columns: Mapping[str, pl.DataType]
) -> TraceSpec:
    """The trace of rows that are looked up by another key than their own, and have some further columns."""
    schema = {FOREIGN_HASH: pl.Int64(), **foreign_keys, KEY_HASH: pl.Int64(), **keys, **columns}
    by, own = tuple(foreign_keys), tuple(keys)
    return TraceSpec(name, pl.Schema(schema), by, own, hash=FOREIGN_HASH, unique_hash=KEY_HASH)


@dataclass(frozen=True)
class Emission:
    """Rows for one output of an operator: ``_parent``, ``_n``, ``_ts``, ``_live`` and the output's own columns."""

    output: int
    rows: pl.DataFrame


def numbered_on(parts: Iterable[pl.DataFrame], first: int = 0) -> Iterator[Emission]:
    """Emit rows at output 0, part by part. They are numbered from `first` on, across the parts."""
    for rows in parts:
        numbers = pl.int_range(first, first + rows.height, dtype=pl.Int64, eager=True)
        yield Emission(0, rows.with_columns(numbers.alias(NUMBER)))
        first += rows.height


@dataclass
class WallClock:
    """The time of the micro-batch, for operators that may emit although no message arrived."""

    now_us: int
    """Microseconds since 1970."""
    tick: int | None = None
    """The place after all messages. It is the parent of what the clock causes. None while messages are worked off."""
    wake_us: int | None = None
    """The latest time at which an operator wants to run again. The operator sets it."""

    def wake(self, at_us: int) -> None:
        """Ask to run again at this time at the latest."""
        self.wake_us = at_us if self.wake_us is None else min(self.wake_us, at_us)


@dataclass
class Context:
    """What a round provides to an operator: its traces, times and marks, and counters of what it drops."""

    trace: Callable[[str], Trace]
    """Returns a trace that the operator declared, by name."""
    dropped: Counter[str]
    """Records dropped so far, by reason."""
    observed: int | None = None
    """The largest time that the operator has seen in its shard; it survives a restart. None before the first record."""
    clock: WallClock | None = None
    """For operators that declare `Operator.needs_clock`."""
    marks: dict[str, int] = field(default_factory=dict)
    """Further times and counters of the shard that the operator declared; they survive a restart."""
    shard: int = 0
    shards: int = 1
    """The number of this shard, from 0, and how many shards there are."""
    rejected: list[tuple[int, str, pl.DataFrame]] | None = None
    """The dropped records themselves, if an output reads them: the number of the input, the reason, and the rows."""
    examples: dict[str, tuple[int, pl.DataFrame]] = field(default_factory=dict)
    """By reason, the number of the input and one row of those that were dropped."""

    @property
    def now_us(self) -> int:
        """The time of the micro-batch, in microseconds since 1970; 0 for operators that do not follow the clock."""
        return 0 if self.clock is None else self.clock.now_us

    def number(self, rows: int, mark: str) -> pl.Series:
        """Number rows among all that the shard ever had; the mark counts them."""
        first = self.marks.get(mark, 0)
        self.marks[mark] = first + rows
        return pl.int_range(first, first + rows, dtype=pl.Int64, eager=True)

    def reject(self, reason: str, rows: pl.DataFrame, of_input: int = 0) -> None:
        """Count dropped rows of an input, and keep them if an output reads them."""
        self.tell(reason, rows.height, rows, of_input=of_input)
        if self.rejected is not None and rows.height:
            self.rejected.append((of_input, reason, rows))

    def tell(
        self, reason: str, count: int, rows: pl.DataFrame | None = None, at: int = 0, of_input: int = 0
    ) -> None:
        """Count messages; of the first ones keep an example: a row of an input, if it is known."""
        self.dropped[reason] += count
        if count and rows is not None and reason not in self.examples:
            self.examples[reason] = of_input, rows.slice(at, 1)

    def among_shards(self, number: pl.Expr) -> pl.Expr:
        """Make emission numbers unique across shards, for emissions of all shards that have the same cause."""
        return number * self.shards + self.shard


class Operator(ABC):
    """A columnar operator of one round, with all that the round and the planner need to know about it."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters that a printed plan shows: strings, numbers, and flags that are set."""
        return ()

    @property
    @abstractmethod
    def inputs(self) -> tuple[pl.Schema, ...]:
        """The columns of each input's messages, without the order columns."""

    @property
    @abstractmethod
    def outputs(self) -> tuple[pl.Schema, ...]:
        """The columns of each output's rows, without ``_parent`` and ``_n``."""

    @property
    @abstractmethod
    def traces(self) -> tuple[TraceSpec, ...]:
        """The traces that hold the operator's state."""

    @property
    def marks(self) -> tuple[str, ...]:
        """The names of the times and counters that the operator keeps in `Context.marks`."""
        return ()

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons for which it counts a record as dropped or late."""
        return ()

    @property
    def rejects(self) -> bool:
        """Whether it hands over records that it drops (`Context.reject`)."""
        return False

    @property
    def needs_clock(self) -> bool:
        """Whether it follows the wall clock, and so must run even if no message arrives."""
        return False

    @property
    def splits_steps(self) -> bool:
        """Whether each row that it emits is a step of its own."""
        return False

    @property
    def keeps_shard(self) -> bool:
        """Whether each row that it emits belongs in this shard: messages of the row's key hash come here."""
        return False

    @property
    def final(self) -> bool:
        """Whether it emits only the last change per key and micro-batch."""
        return False

    @property
    def can_be_final(self) -> bool:
        """Whether `made_final` emits only the last change of each key; if not, an `Upsert` after the operator does."""
        return False

    def made_final(self) -> Operator:
        """Return the operator for readers that want only final changes."""
        return self

    @property
    def takes_last(self) -> bool:
        """Whether the last change of each key that it gets decides its state, and the last changes that it emits."""
        return False

    @property
    def can_be_thin(self) -> bool:
        """Whether `made_thin` leaves changes out."""
        return False

    def made_thin(self) -> Operator:
        """Return the operator for readers to which, of a key's changes of a micro-batch, only the last one matters."""
        return self

    @abstractmethod
    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        """Process a micro-batch, or a sorted slice of it, and update the state."""


@dataclass(frozen=True)
class OfTable(Operator):
    """An operator of one table or stream, whose changes or records it reads and emits."""

    keys: pl.Schema
    value: pl.DataType
    """The key columns and their dtypes, and the dtype of the value."""

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        return (keyed_changes(self.keys, self.value),)

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        return (keyed_changes(self.keys, self.value),)


@dataclass(frozen=True)
class Pointing(Operator):
    """An operator of rows or records that point at the rows of another table, by its key."""

    keys: pl.Schema
    foreign_keys: pl.Schema
    """The columns and dtypes of their own key, and of the foreign key."""
    value: pl.DataType
    right_value: pl.DataType
    """The dtypes of their value, and of the other table's."""


@dataclass(frozen=True)
class HasFinal(Operator):
    """An operator that can emit only the last change per key and micro-batch."""

    final: bool = field(default=False, kw_only=True)
    """Whether it does."""

    @property
    def parameters(self) -> tuple[str, ...]:
        return ("final",)

    @property
    def can_be_final(self) -> bool:
        return True

    def made_final(self) -> Operator:
        """Return the same operator with `final` set."""
        return replace(self, final=True)


@dataclass(frozen=True)
class CanBeThin(HasFinal):
    """An operator that can leave out rows that its readers would replace in the same micro-batch."""

    thin: bool = field(default=False, kw_only=True)
    """Whether it emits, of each key's rows in a run, only the last one. It emits every tombstone."""

    @property
    def parameters(self) -> tuple[str, ...]:
        return (*super().parameters, "thin")

    @property
    def can_be_thin(self) -> bool:
        return True

    def made_thin(self) -> Operator:
        """Return the same operator with `thin` set."""
        return replace(self, thin=True)
