"""Hold a table's changes back, and let through the last one of each key.

A key waits *since* the time of its first change since it was last let through. ``observed`` is the largest time of
any change that the shard has seen.

==========================================  ===========================================================
event                                       effect
==========================================  ===========================================================
change of a key that is not held            held, since its time
change of a key that is held                takes the held one's place; since stays
since <= observed - ``until_us``            let through, a tombstone too: the held row at its own time
more than ``max_records``, ``max_bytes``    the first to wait is let through until the rest fits; with
                                            ``fail_when_full`` it is an error
held for ``wall_clock_us`` on the clock     let through, whatever the times of records
==========================================  ===========================================================

Keys leave in the order of (since, key). ``atomic``: all changes of a step are held before any leaves. ``quiet``: a
tombstone for a row that is not there is no change, and neither held nor seen; the keys of rows are remembered for it.

References
----------
Kafka Streams ``KTable.suppress(untilTimeLimit)``; ``docs/semantics.md``.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import polars as pl

from tablestream.errors import BufferFullError
from tablestream.operators.buffer.time_index import BEGIN, TimeIndex, by_time, latest
from tablestream.operators.events import ends, ints, ranks, touched_keys
from tablestream.operators.operator import NUMBER, PARENT, Context, Emission, keyed_changes
from tablestream.operators.upsert import Upsert
from tablestream.state.changes import KEY_HASH, LIVE, ROW_TS, SEQ, STEP, TS, number_keys
from tablestream.state.trace import TraceSpec

SINCE, EXISTS, ARRIVED = "_since", "_exists", "_arrived"
#: The traces: held rows by key, and their keys by the times since when, and at which on the wall clock, they wait.
_HELD, _BY_SINCE, _BY_ARRIVAL = "held", "since", "arrived"
#: The marks that say how much the shard holds.
_RECORDS, _BYTES = "records", "bytes"


@dataclass(frozen=True)
class Suppress:
    """Let through the last change of each key, late.

    Parameters
    ----------
    keys, value
        The key columns and their dtypes, and the dtype of the value.
    until_us
        How long a key waits, in microseconds.
    max_records, max_bytes
        How much a shard may hold; None: any amount. A row's bytes are those of its key and value as JSON text.
    fail_when_full
        Whether holding more is an error.
    atomic
        Whether a step is held as a whole.
    wall_clock_us
        How long a key waits at most on the wall clock, in microseconds; None: however long.
    quiet
        Whether tombstones for absent rows are no changes.

    Notes
    -----
    Input: ``_kh``, key, ``_ts``, ``_live``, ``v``. Output 0: the same with ``v0``. Cost: the changes and what leaves,
    each looked up by its key; with `max_bytes` also the first to wait, until they are as large as the changes.
    """

    keys: pl.Schema
    value: pl.DataType
    until_us: int
    max_records: int | None = None
    max_bytes: int | None = None
    fail_when_full: bool = False
    atomic: bool = True
    wall_clock_us: int | None = None
    quiet: bool = False

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        return (keyed_changes(self.keys, self.value),)

    @property
    def marks(self) -> tuple[str, ...]:
        """How much is held, and the starts of the indexes."""
        return (_RECORDS, _BYTES, *self._indexes)

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        head = {KEY_HASH: pl.Int64(), **self.keys}
        times = {SINCE: pl.Int64()} | ({} if self.wall_clock_us is None else {ARRIVED: pl.Int64()})
        schema = {**head, TS: pl.Int64(), LIVE: pl.Boolean(), **times, EXISTS: pl.Boolean(), "v": self.value}
        held = TraceSpec(_HELD, 0, pl.Schema(schema), tuple(self.keys), hash=KEY_HASH)
        indexes = (
            by_time(name, number, time, head, tuple(self.keys), KEY_HASH)
            for number, (name, time) in enumerate(zip(self._indexes, times, strict=True), start=1)
        )
        (rows,) = self._rows.traces
        return (held, *indexes, *([replace(rows, number=3)] if self.quiet else []))

    @property
    def _indexes(self) -> tuple[str, ...]:
        return (_BY_SINCE,) if self.wall_clock_us is None else (_BY_SINCE, _BY_ARRIVAL)

    @property
    def _rows(self) -> Upsert:
        """What knows the rows of the table that is held back."""
        return Upsert(self.keys, self.value, quiet=True)

    @property
    def reasons(self) -> tuple[str, ...]:
        return ()

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        """Hold the changes, let through what has waited long enough, remember the rest."""
        arrived = self._changes(inputs[0], context) if self.quiet else inputs[0]
        now = pl.lit(0 if context.clock is None else context.clock.now_us, pl.Int64)
        new = arrived.rename({LIVE: EXISTS}).with_columns(pl.col(TS).alias(SINCE), now.alias(ARRIVED))
        zero = pl.lit(0, pl.Int64)
        held = self._held(new, context).with_columns(zero.alias(SEQ), zero.alias(STEP)).drop(LIVE)
        rows = pl.concat([held, new.select(held.columns)])
        (kid,) = number_keys(KEY_HASH, list(self.keys), [rows])
        buffer = _Buffer(self, rows, kid, held.height, self._sizes(rows), context)
        buffer.work()
        yield Emission(0, buffer.emitted())
        self._remember(buffer, context)

    def _changes(self, arrived: pl.DataFrame, context: Context) -> pl.DataFrame:
        """Leave out tombstones for absent rows."""
        told = self._rows.run([arrived.with_columns(pl.col(TS).alias(ROW_TS))], context)
        kept = pl.concat([emission.rows.select(pl.col(PARENT).alias(SEQ)) for emission in told])
        return arrived.join(kept, on=SEQ, how="semi", maintain_order="left")

    def _held(self, new: pl.DataFrame, context: Context) -> pl.DataFrame:
        """Read what is held of the keys that change, and of those that may leave."""
        index, columns = TimeIndex.of(context, _BY_SINCE), [KEY_HASH, *self.keys]
        due = index.until(latest(context.observed, new[TS]) - self.until_us)
        keys = [new, due, self._first_to_leave(new, index, context)]
        if context.clock is not None and self.wall_clock_us is not None:
            keys.append(TimeIndex.of(context, _BY_ARRIVAL).overdue(context.clock, self.wall_clock_us))
        return context.trace(_HELD).lookup(touched_keys([frame.select(columns) for frame in keys]))

    def _first_to_leave(self, new: pl.DataFrame, index: TimeIndex, context: Context) -> pl.DataFrame:
        """Read the keys that may have to leave to make room: the first to wait.

        What is held fits when a micro-batch begins. Were all changes held beside it, it would exceed the limits by
        so many records and bytes; no more than that has to leave.
        """
        none, marks = new.clear(), context.marks
        records = 0 if self.max_records is None else marks.get(_RECORDS, 0) + new.height - self.max_records
        sizes = self._sizes(new)
        size_bytes = 0 if sizes is None else marks.get(_BYTES, 0) + sum(sizes) - (self.max_bytes or 0)
        if self.fail_when_full or max(records, size_bytes) <= 0:
            return none
        count = max(records, 1)
        while True:
            keys = index.first(count)
            if size_bytes <= 0 or keys.height < count:
                return keys
            held = context.trace(_HELD).lookup(keys.select(KEY_HASH, *self.keys))
            if sum(self._sizes(held) or ()) >= size_bytes:
                return keys
            count *= 2

    def _remember(self, buffer: _Buffer, context: Context) -> None:
        """Write what is held anew, and tombstones for what has left; ask to be woken for the rest."""
        context.trace(_HELD).insert(buffer.changed())
        moved = buffer.moved()
        for name, time in zip(self._indexes, (SINCE, ARRIVED), strict=False):
            entries = moved.unique(
                [time, buffer.kid.name], keep="first", maintain_order=True
            )  # gone and back again
            TimeIndex.of(context, name).update(entries, buffer.over if time == SINCE else BEGIN)
        if context.clock is not None and self.wall_clock_us is not None:
            TimeIndex.of(context, _BY_ARRIVAL).wake(context.clock, self.wall_clock_us)

    def _sizes(self, rows: pl.DataFrame) -> list[int] | None:
        if self.max_bytes is None:
            return None
        text = pl.struct(*self.keys, "v").struct.json_encode().str.len_bytes()
        return rows.select(text.cast(pl.Int64)).to_series().to_list()


class _Held(NamedTuple):
    """What is held of a key: the positions of the row that came first and of the one that is let through."""

    first: int
    row: int


@dataclass
class _Buffer:
    """What a shard holds, as far as a micro-batch needs it, while its changes are worked off.

    Attributes
    ----------
    rows, kid, stored, sizes
        The rows that are held, `stored` of them, then the changes; the number of each one's key, and its bytes where
        these are limited.
    held
        By key.
    over
        What waited since before this time has left, but for what came in this micro-batch.
    """

    limits: Suppress
    rows: pl.DataFrame
    kid: pl.Series
    stored: int
    sizes: list[int] | None
    context: Context
    held: dict[int, _Held] = field(default_factory=dict)
    over: int = BEGIN
    _left: list[tuple[int, int, int]] = field(
        default_factory=list
    )  # row, message that let it through, order there
    _waiting: list[tuple[int, int, int]] = field(default_factory=list)  # since, rank of the key, key

    def __post_init__(self) -> None:
        """Take in what is held."""
        self._keys, self._since = self.kid.to_list(), self.rows[SINCE].to_list()
        self._ranks = ranks(self.rows, list(self.limits.keys))
        self._size = self.sizes or [0] * self.rows.height
        self._records, self._bytes = (self.context.marks.get(mark, 0) for mark in (_RECORDS, _BYTES))
        for position in range(self.stored):
            self._wait(position)

    def work(self) -> None:
        """Hold the changes, turn by turn, and let through what is due."""
        new = self.rows[self.stored :]
        times, seqs = new[TS].to_list(), new[SEQ].to_list()
        turn_ends = ends(ints(new[STEP])) | (not self.limits.atomic)
        observed = self.context.observed
        for at, time in enumerate(times):
            observed = time if observed is None else max(observed, time)
            self._hold(self.stored + at)
            if turn_ends[at]:
                self._let_through(seqs[at], observed - self.limits.until_us)
        self.context.observed = observed
        clock, wait_us = self.context.clock, self.limits.wall_clock_us
        if clock is not None and clock.tick is not None and wait_us is not None:
            self._let_through_by(clock.tick, clock.now_us - wait_us)
        self.context.marks |= {_RECORDS: self._records, _BYTES: self._bytes}

    def _wait(self, position: int) -> None:
        key = self._keys[position]
        heapq.heappush(self._waiting, (self._since[position], self._ranks[position], key))
        self.held[key] = _Held(position, position)

    def _hold(self, position: int) -> None:
        before = self.held.get(self._keys[position])
        self._bytes += self._size[position]
        if before is None:
            self._records += 1
            self._wait(position)
        else:
            self._bytes -= self._size[before.row]
            self.held[self._keys[position]] = before._replace(row=position)

    def _let_through(self, cause: int, bound: int) -> None:
        """Let through the first to wait, up to a time and until the rest fits."""
        number = 0
        while self._waiting and (self._waiting[0][0] <= bound or self._is_full()):
            since, _, key = heapq.heappop(self._waiting)
            self._leave(key, cause, number)
            self.over = max(self.over, since)
            number += 1
        self.over = max(self.over, bound + 1)

    def _let_through_by(self, tick: int, bound: int) -> None:
        """Let through what came up to a time on the wall clock."""
        arrived = self.rows[ARRIVED].to_list()
        overdue = [key for _, _, key in sorted(self._waiting) if arrived[self.held[key].first] <= bound]
        for number, key in enumerate(overdue):
            self._leave(key, tick, number)

    def _leave(self, key: int, cause: int, number: int) -> None:
        row = self.held.pop(key).row
        self._records -= 1
        self._bytes -= self._size[row]
        self._left.append((row, cause, number))

    def _is_full(self) -> bool:
        limits = self.limits
        full = limits.max_records is not None and self._records > limits.max_records
        full |= limits.max_bytes is not None and self._bytes > limits.max_bytes
        if full and limits.fail_when_full:
            raise BufferFullError(
                f"suppress holds {self._records} records and {self._bytes} bytes in a shard; the limits are"
                f" {limits.max_records} and {limits.max_bytes}.",
                hint="Allow more, let them wait shorter, or take on_full='emit'.",
            )
        return full

    def emitted(self) -> pl.DataFrame:
        """What was let through."""
        rows, causes, numbers = zip(*self._left, strict=True) if self._left else ((), (), ())
        return self.rows[list(rows)].select(
            KEY_HASH, *self.limits.keys, TS, pl.col(EXISTS).alias(LIVE), pl.col("v").alias("v0"),
            pl.Series(PARENT, causes, dtype=pl.Int64), pl.Series(NUMBER, numbers, dtype=pl.Int64),
        )  # fmt: skip

    def changed(self) -> pl.DataFrame:
        """Held rows that changed, and tombstones for those that left; since when they wait is that of the first row."""
        held = [one for one in self.held.values() if one.row >= self.stored]
        held += [_Held(row, row) for row in range(self.stored) if self._keys[row] not in self.held]
        first = self.rows[[one.first for one in held]]
        times = [first[name] for name in (SINCE, ARRIVED) if name in first.columns]
        live = pl.Series(LIVE, [self._keys[one.row] in self.held for one in held], dtype=pl.Boolean)
        rows = self.rows[[one.row for one in held]].with_columns(*times, live)
        return rows.with_columns(pl.when(LIVE).then("v").alias("v"))

    def moved(self) -> pl.DataFrame:
        """The rows by which keys came to wait, and as tombstones those whose keys no longer wait by them."""
        came = [one.first for one in self.held.values() if one.first >= self.stored]
        first = {one.first for one in self.held.values()}
        gone = [row for row in range(self.stored) if row not in first]
        live = pl.Series(LIVE, [True] * len(came) + [False] * len(gone), dtype=pl.Boolean)
        return self.rows.with_columns(self.kid)[came + gone].with_columns(live)
