"""Suppression: holds a table's changes and emits only the last one of each key.

A key waits *since* the time of its first change after its last emission. ``observed`` is the largest time of any
change that the shard has seen.

==========================================  ===========================================================
event                                       effect
==========================================  ===========================================================
change of a key that is not held            held, since its time
change of a key that is held                replaces the held one; since does not change
since <= observed - ``until_us``            emitted, also a tombstone: the held row at its own time
more than ``max_records``, ``max_bytes``    the longest waiting keys are emitted until the rest fits;
                                            with ``fail_when_full`` it is an error
held for ``wall_clock_us`` on the clock     emitted, whatever the times of records
==========================================  ===========================================================

Keys are emitted in the order of (since, key). ``atomic``: all changes of a step are held before any is emitted.
``minimal``: a tombstone for an absent row is ignored: it is neither held nor counted in ``observed``. For this the
keys of the table's rows are remembered.

References
----------
Kafka Streams ``KTable.suppress(untilTimeLimit)``; ``docs/semantics/suppress.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import polars as pl

from tablestream.errors import BufferFullError
from tablestream.operators.buffer.time_index import TimeIndex
from tablestream.operators.buffer.waiting import (
    ARRIVED,
    BY_ARRIVAL,
    EXISTS,
    WAITING,
    ReleaseRule,
    Waiting,
    released,
    waiting_by_key,
)
from tablestream.operators.calendar import DAY_US
from tablestream.operators.cells import KEY, VALUE, dtype
from tablestream.operators.events import ends, ints, stored_rows
from tablestream.operators.operator import NUMBER, PARENT, Context, Emission, OfTable, keyed_rows
from tablestream.operators.upsert import Upsert
from tablestream.state.changes import KEY_HASH, LIVE, ROW_TS, SEQ, STEP, TS, number_keys
from tablestream.state.trace_spec import TraceSpec

SINCE = "_since"
#: The trace of held rows by key. The indexes store their keys: one by the times since which they wait, one by arrival.
_HELD = "held"
#: The marks that say how much the shard holds.
_RECORDS, _BYTES = "records", "bytes"

#: Polars writes dates up to the year 262142; in days since 1970.
_LAST_DAY = 94_000_000


@dataclass(frozen=True)
class Suppress(OfTable):
    """Hold changes, and emit the last one of each key later.

    Input: ``_kh``, key, ``_ts``, ``_live``, ``v``. Output 0: the same with ``v0``. Cost: the changes that arrive and
    those that are emitted, each looked up by its key; with `max_bytes` also the longest waiting rows, until they are as
    large as the changes.
    """

    until_us: int
    """How long a key waits, in microseconds."""
    max_records: int | None = None
    max_bytes: int | None = None
    """How much a shard may hold; None: any amount. A row's bytes are those of its key and value as JSON text."""
    fail_when_full: bool = False
    """Whether holding more is an error."""
    atomic: bool = True
    """Whether a step is held as a whole."""
    wall_clock_us: int | None = None
    """The longest time that a key waits on the wall clock, in microseconds. None: there is no such limit."""
    minimal: bool = False
    """Whether to ignore tombstones for absent rows."""

    parameters = ("minimal", "until_us", "wall_clock_us", "max_records", "max_bytes", "fail_when_full")
    marks = (_RECORDS, _BYTES, WAITING, BY_ARRIVAL)
    keeps_shard = True

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        return (keyed_rows(self.keys, {"v0": self.value}),)

    @property
    def needs_clock(self) -> bool:
        return self.wall_clock_us is not None

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        row = {TS: pl.Int64(), LIVE: pl.Boolean(), EXISTS: pl.Boolean(), "v": self.value}
        held = waiting_by_key(_HELD, SINCE, self.keys, row, clock=self.needs_clock)
        return (*held, *(self._rows.traces if self.minimal else ()))

    @property
    def _rule(self) -> ReleaseRule:
        return ReleaseRule(self.until_us, self.wall_clock_us)

    @property
    def _rows(self) -> Upsert:
        """The operator that knows which rows the table has."""
        return Upsert(self.keys, self.value, minimal=True)

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        arrived = self._changes(inputs[0], context) if self.minimal else inputs[0]
        now = pl.lit(context.now_us, pl.Int64)
        new = arrived.rename({LIVE: EXISTS}).with_columns(pl.col(TS).alias(SINCE), now.alias(ARRIVED))
        held = self._held(new, context).drop(LIVE)
        new = new.select(SEQ, STEP, *held.columns)
        waiting = Waiting(self._rule, context, held, new, SINCE, list(self.keys))
        (kid,) = number_keys(KEY_HASH, self.keys, [waiting.rows])
        buffer = _Buffer(self, waiting, kid.tolist(), self._sizes(waiting.rows))
        buffer.work()
        yield Emission(0, buffer.emitted())
        context.trace(_HELD).insert(buffer.changed())
        waiting.remember()

    def _changes(self, arrived: pl.DataFrame, context: Context) -> pl.DataFrame:
        """Leave out tombstones for absent rows."""
        emissions = self._rows.run([arrived.with_columns(pl.col(TS).alias(ROW_TS))], context)
        kept = pl.concat([emission.rows.select(pl.col(PARENT).alias(SEQ)) for emission in emissions])
        return arrived.join(kept, on=SEQ, how="semi", maintain_order="left")

    def _held(self, new: pl.DataFrame, context: Context) -> pl.DataFrame:
        """Read the held rows of the keys that change, and of those that may be emitted."""
        keys = [self._rule.due(context, new[TS]), *self._rule.overdue(context)]
        return stored_rows(context.trace(_HELD), new, *keys, *self._first_to_wait(new, context))

    def _first_to_wait(self, new: pl.DataFrame, context: Context) -> list[pl.DataFrame]:
        """Read the keys that may have to make room for the changes: as many as these, and as large."""
        unlimited = self.max_records is None and self.max_bytes is None
        if unlimited or self.fail_when_full or new.is_empty():
            return []
        count, size_bytes = new.height, sum(self._sizes(new) or ())
        while True:
            keys = TimeIndex.of(context, WAITING).first(count)
            if keys.height < count or not size_bytes:
                return [keys]
            held = context.trace(_HELD).lookup(keys)
            if sum(self._sizes(held) or ()) >= size_bytes:
                return [keys]
            count *= 2

    def _sizes(self, rows: pl.DataFrame) -> list[int] | None:
        if self.max_bytes is None:
            return None
        columns = (_encodable(pl.col(name), rows.schema[name]).alias(name) for name in (*self.keys, "v"))
        text = pl.struct(columns).struct.json_encode().str.len_bytes()
        return rows.select(text.cast(pl.Int64)).to_series().to_list()


def _encodable(value: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """Return a value that Polars can write as JSON: bytes become base 64, maps lists of pairs.

    A date or time that Polars cannot write counts as the last or first that it can.
    """
    if isinstance(kind, pl.Binary):
        return value.bin.encode("base64")
    if isinstance(kind, pl.Date | pl.Datetime):
        last = _LAST_DAY if isinstance(kind, pl.Date) else _LAST_DAY * DAY_US
        return value.to_physical().clip(-last, last).cast(kind)
    if isinstance(kind, pl.Map):
        pairs = pl.List(pl.Struct({KEY: kind.key, VALUE: kind.value}))
        return _encodable(value.cast(pairs), pairs)
    if isinstance(kind, pl.List):
        return value.list.eval(_encodable(pl.element(), dtype(kind.inner)))
    if isinstance(kind, pl.Struct) and kind.fields:
        names = [f"f{number}" for number in range(len(kind.fields))]
        named = value.struct.rename_fields(names)  # Polars takes a field called `*` for all fields
        parts = (
            _encodable(named.struct.field(name), dtype(one.dtype)).alias(one.name)
            for name, one in zip(names, kind.fields, strict=True)
        )
        return pl.when(value.is_not_null()).then(pl.struct(parts))
    return value


class _Held(NamedTuple):
    """What is held for a key: the positions of the row that arrived first and of the one to emit."""

    first: int
    row: int


@dataclass
class _Buffer:
    """The held rows that a micro-batch needs, while its changes are processed."""

    limits: Suppress
    waiting: Waiting
    """The held rows, then the changes. Of these, the rows with which their keys began to wait are waiting."""
    keys: list[int]
    sizes: list[int] | None
    """The number of each row's key, and its bytes if these are limited."""
    held: dict[int, _Held] = field(default_factory=dict)
    """What is held, by key."""
    #: Rows that were emitted: the row, the message that caused it, and its order there.
    _left: list[tuple[int, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Load the held rows."""
        self.held = {self.keys[row]: _Held(row, row) for row in range(self.waiting.stored)}
        self._records, self._bytes = (self.waiting.context.marks.get(mark, 0) for mark in (_RECORDS, _BYTES))

    def work(self) -> None:
        """Hold the changes, turn by turn, and emit what is due."""
        stored, context, limits = self.waiting.stored, self.waiting.context, self.limits
        new = self.waiting.rows[stored:]
        times, seqs = new[TS].to_list(), new[SEQ].to_list()
        turn_ends = ends(ints(new[STEP])) | (not limits.atomic)
        for at, time in enumerate(times):
            self.waiting.advance(time)
            self._hold(stored + at)
            if turn_ends[at]:
                self._let_through(self.waiting.due(self._is_full), seqs[at])
        if context.clock is not None:
            self._let_through(self.waiting.overdue(), context.clock.tick or 0)
        context.marks |= {_RECORDS: self._records, _BYTES: self._bytes}

    def _hold(self, row: int) -> None:
        before = self.held.get(self.keys[row])
        self._bytes += self._size(row)
        if before is None:
            self._records += 1
            self.held[self.keys[row]] = _Held(row, row)
            self.waiting.hold(row)
        else:
            self._bytes -= self._size(before.row)
            self.held[self.keys[row]] = before._replace(row=row)

    def _let_through(self, leaving: Iterable[int], cause: int) -> None:
        for number, first in enumerate(leaving):
            row = self.held.pop(self.keys[first]).row
            self._records -= 1
            self._bytes -= self._size(row)
            self._left.append((row, cause, number))

    def _size(self, row: int) -> int:
        return 0 if self.sizes is None else self.sizes[row]

    def _is_full(self) -> bool:
        limits = self.limits
        full = limits.max_records is not None and self._records > limits.max_records
        full |= limits.max_bytes is not None and self._bytes > limits.max_bytes
        if full and limits.fail_when_full:
            raise BufferFullError(
                f"suppress holds {self._records} records and {self._bytes} bytes in a shard; the limits are"
                f" {limits.max_records} and {limits.max_bytes}.",
                hint="Raise the limits, shorten the wait, or use on_full='emit'.",
            )
        return full

    def emitted(self) -> pl.DataFrame:
        """The emitted rows."""
        columns = PARENT, NUMBER, KEY_HASH, *self.limits.keys, TS, pl.col(EXISTS).alias(LIVE)
        return released(self.waiting.rows, self._left).select(*columns, pl.col("v").alias("v0"))

    def changed(self) -> pl.DataFrame:
        """The changes of the trace: new held rows, with the time of their key's first row, and tombstones."""
        stored = self.waiting.stored
        held = [one for one in self.held.values() if one.row >= stored]
        held += [_Held(row, row) for row in range(stored) if self.keys[row] not in self.held]
        first, last = (
            self.waiting.rows[list(rows)] for rows in (zip(*held, strict=True) if held else ((), ()))
        )
        live = pl.Series(LIVE, [self.keys[one.row] in self.held for one in held], dtype=pl.Boolean)
        times = [first[name] for name in (SINCE, ARRIVED) if name in first.columns]
        return last.with_columns(*times, live).with_columns(pl.when(LIVE).then("v").alias("v"))
