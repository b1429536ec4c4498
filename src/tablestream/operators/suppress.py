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

import numpy as np
import polars as pl

from tablestream.errors import BufferFullError
from tablestream.operators.cells import KEY, VALUE, dtype
from tablestream.operators.events import Ints, ends, ints
from tablestream.operators.operator import NUMBER, PARENT, Context, Emission, WallClock, keyed_changes
from tablestream.operators.upsert import Upsert
from tablestream.state.changes import KEY_HASH, LIVE, ROW_TS, SEQ, STEP, TS, number_keys
from tablestream.state.trace import TraceSpec

SINCE, EXISTS, ARRIVED = "_since", "_exists", "_arrived"


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
    Input: ``_kh``, key, ``_ts``, ``_live``, ``v``. Output 0: the same with ``v0``. Cost: the changes, and in every
    micro-batch with changes all that the shard holds.
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
    def traces(self) -> tuple[TraceSpec, ...]:
        head = {KEY_HASH: pl.Int64(), **self.keys, TS: pl.Int64(), LIVE: pl.Boolean()}
        clocked = {} if self.wall_clock_us is None else {ARRIVED: pl.Int64()}
        schema = pl.Schema({**head, SINCE: pl.Int64(), **clocked, EXISTS: pl.Boolean(), "v": self.value})
        held = TraceSpec(name="held", number=0, hash=KEY_HASH, key=tuple(self.keys), schema=schema)
        (rows,) = self._rows.traces
        return (held, replace(rows, number=1)) if self.quiet else (held,)

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
        trace = context.trace("held")
        held = trace.scan()
        new = arrived.rename({LIVE: EXISTS}).with_columns(pl.col(TS).alias(SINCE))
        zero = pl.lit(0, pl.Int64)
        columns = [KEY_HASH, *self.keys, TS, SINCE, EXISTS, "v", SEQ, STEP]
        if context.clock is not None and self.wall_clock_us is not None:
            columns.append(ARRIVED)
            new = new.with_columns(pl.lit(context.clock.now_us, pl.Int64).alias(ARRIVED))
        rows = pl.concat(
            [held.with_columns(zero.alias(SEQ), zero.alias(STEP)).select(columns), new.select(columns)]
        )
        (kid,) = number_keys(KEY_HASH, list(self.keys), [rows])
        buffer = _Buffer(self, self._ranks(rows, ints(kid)), self._sizes(rows), context.observed)
        buffer.work(rows, ints(kid), held.height)
        if context.clock is not None and self.wall_clock_us is not None:
            buffer.let_through_by(context.clock, self.wall_clock_us, rows[ARRIVED].to_list())
        context.observed = buffer.observed
        emitted = rows[buffer.rows].select(
            KEY_HASH, *self.keys, TS, pl.col(EXISTS).alias(LIVE), pl.col("v").alias("v0")
        )
        yield Emission(
            0,
            emitted.with_columns(
                pl.Series(PARENT, buffer.causes, dtype=pl.Int64),
                pl.Series(NUMBER, buffer.numbers, dtype=pl.Int64),
            ),
        )
        trace.insert(self._changed(rows, ints(kid), buffer))

    def _changes(self, arrived: pl.DataFrame, context: Context) -> pl.DataFrame:
        """Leave out tombstones for absent rows."""
        told = self._rows.run([arrived.with_columns(pl.col(TS).alias(ROW_TS))], context)
        kept = pl.concat([emission.rows.select(pl.col(PARENT).alias(SEQ)) for emission in told])
        return arrived.join(kept, on=SEQ, how="semi", maintain_order="left")

    def _changed(self, rows: pl.DataFrame, kid: Ints, buffer: _Buffer) -> pl.DataFrame:
        """What is to be remembered anew: rows that are held, and tombstones for those that have left."""
        last = np.full(int(kid.max(initial=-1)) + 1, -1, dtype=np.int64)
        last[kid] = np.arange(len(kid))
        seq = ints(rows[SEQ])
        known = np.flatnonzero(last >= 0).tolist()
        touched = [k for k in known if seq[last[k]] > 0 or k not in buffer.held]
        held = [buffer.held.get(k) for k in touched]
        place = [last[k] if one is None else one.row for k, one in zip(touched, held, strict=True)]
        remembered = rows[place].with_columns(
            pl.Series(LIVE, [one is not None for one in held], dtype=pl.Boolean),
            pl.Series(SINCE, [0 if one is None else one.since for one in held], dtype=pl.Int64),
            *self._arrived(rows, held),
        )
        return remembered.with_columns(pl.when(LIVE).then("v").alias("v")).select(list(self.traces[0].schema))

    def _arrived(self, rows: pl.DataFrame, held: Sequence[_Held | None]) -> list[pl.Series]:
        """When what is held was first held, on the wall clock."""
        if self.wall_clock_us is None:
            return []
        arrived = rows[ARRIVED].to_list()
        return [
            pl.Series(ARRIVED, [0 if one is None else arrived[one.first] for one in held], dtype=pl.Int64)
        ]

    def _ranks(self, rows: pl.DataFrame, kid: Ints) -> list[int]:
        """The place of each key among the keys."""
        distinct = rows.select(*self.keys, pl.Series("_kid", kid)).unique("_kid", keep="any").sort(*self.keys)
        ranks = np.zeros(int(kid.max(initial=-1)) + 1, dtype=np.int64)
        ranks[ints(distinct["_kid"])] = np.arange(distinct.height)
        return ranks.tolist()

    def _sizes(self, rows: pl.DataFrame) -> list[int] | None:
        if self.max_bytes is None:
            return None
        columns = (_encodable(pl.col(name), rows.schema[name]).alias(name) for name in (*self.keys, "v"))
        text = pl.struct(columns).struct.json_encode().str.len_bytes()
        return rows.select(text.cast(pl.Int64)).to_series().to_list()


def _encodable(value: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """A value of which Polars can make JSON: it takes no bytes (here in base 64), and only text as a map's keys."""
    if isinstance(kind, pl.Binary):
        return value.bin.encode("base64")
    if isinstance(kind, pl.Map):
        pairs = pl.List(pl.Struct({KEY: kind.key, VALUE: kind.value}))
        return _encodable(value.cast(pairs), pairs)
    if isinstance(kind, pl.List):
        return value.list.eval(_encodable(pl.element(), dtype(kind.inner)))
    if isinstance(kind, pl.Struct) and kind.fields:
        parts = (
            _encodable(value.struct.field(one.name), dtype(one.dtype)).alias(one.name) for one in kind.fields
        )
        return pl.when(value.is_not_null()).then(pl.struct(parts))
    return value


class _Held(NamedTuple):
    """What is held of a key: since when, and the positions of its row and of the one that came first."""

    since: int
    row: int
    first: int


@dataclass
class _Buffer:
    """What a shard holds while its changes are worked off.

    Attributes
    ----------
    held
        By key.
    rows, causes, numbers
        Of what was let through: positions, the messages that let them through, and their order there.
    """

    limits: Suppress
    ranks: list[int]
    sizes: list[int] | None
    observed: int | None
    held: dict[int, _Held] = field(default_factory=dict)
    rows: list[int] = field(default_factory=list)
    causes: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    _waiting: list[tuple[int, int, int]] = field(default_factory=list)
    _bytes: int = 0

    def work(self, rows: pl.DataFrame, kid: Ints, stored: int) -> None:
        """Take in what is held, then the changes, turn by turn."""
        keys, times, since = kid.tolist(), rows[TS].to_list(), rows[SINCE].to_list()
        for position in range(stored):
            self._hold(keys[position], since[position], position)
        turn_ends = ends(ints(rows[STEP])) | (not self.limits.atomic)
        seqs = rows[SEQ].to_list()
        for position in range(stored, len(keys)):
            self.observed = times[position] if self.observed is None else max(self.observed, times[position])
            self._hold(keys[position], times[position], position)
            if turn_ends[position]:
                self._let_through(seqs[position])

    def _hold(self, key: int, since: int, position: int) -> None:
        before = self.held.get(key)
        if before is None:
            heapq.heappush(self._waiting, (since, self.ranks[key], key))
        elif self.sizes is not None:
            self._bytes -= self.sizes[before.row]
        self.held[key] = _Held(since, position, position) if before is None else before._replace(row=position)
        self._bytes += 0 if self.sizes is None else self.sizes[position]

    def let_through_by(self, clock: WallClock, wait_us: int, arrived: Sequence[int]) -> None:
        """Let through what has waited long enough on the wall clock, and ask to be woken for the rest."""
        if clock.tick is not None:
            waiting = sorted((one.since, self.ranks[key], key) for key, one in self.held.items())
            overdue = [
                key for _, _, key in waiting if arrived[self.held[key].first] <= clock.now_us - wait_us
            ]
            for number, key in enumerate(overdue):
                self._leave(key, clock.tick, number)
        if self.held:
            clock.wake(min(arrived[one.first] for one in self.held.values()) + wait_us)

    def _let_through(self, cause: int) -> None:
        assert self.observed is not None  # noqa: S101 - a change came
        number = 0
        while self._waiting and (
            self._waiting[0][0] <= self.observed - self.limits.until_us or self._is_full()
        ):
            self._leave(heapq.heappop(self._waiting)[2], cause, number)
            number += 1

    def _leave(self, key: int, cause: int, number: int) -> None:
        row = self.held.pop(key).row
        self._bytes -= 0 if self.sizes is None else self.sizes[row]
        self.rows.append(row)
        self.causes.append(cause)
        self.numbers.append(number)

    def _is_full(self) -> bool:
        limits = self.limits
        full = limits.max_records is not None and len(self.held) > limits.max_records
        full |= limits.max_bytes is not None and self._bytes > limits.max_bytes
        if full and limits.fail_when_full:
            raise BufferFullError(
                f"suppress holds {len(self.held)} records and {self._bytes} bytes in a shard; the limits are"
                f" {limits.max_records} and {limits.max_bytes}.",
                hint="Allow more, let them wait shorter, or take on_full='emit'.",
            )
        return full
