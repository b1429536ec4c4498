"""Rows whose key changed: their unknown columns are those of the row under the old key.

A database that moves a row to another key tells of a delete and a new row. Columns that did not change may be unknown
in the new row, and its old key may be in another shard. So all rows that were moved once are known to one shard. It
processes, in their order:

==================================================  ===============================================================
message                                             effect
==================================================  ===============================================================
a row leaves for another key                        what it was waits for the row under the new key, or fills it
a row moved here, and the one it was has arrived    its unknown columns are filled
a row moved here before the one it was              it waits, and so do all later changes of its key
a change of a row that was moved                    its unknown columns are those of the filled row
a column that the row under the old key did not     dropped and counted
know either
==================================================  ===============================================================

All other changes pass through, in any shard. What waits here waits for a message and not for a time, and each message
may release others: so it has queues, and no `buffer.waiting.ReleaseRule`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tablestream.operators.buffer.waiting import ARRIVAL, ARRIVALS, EXISTS, WAITING, changed, released
from tablestream.operators.captured.captured_rows import UNKNOWN, filled_reason
from tablestream.operators.captured.captured_table import (
    LEFT,
    MOVE,
    MOVED,
    changes_of_captured,
)
from tablestream.operators.events import stored_rows
from tablestream.operators.operator import NUMBER, PARENT, Context, Emission, OfTable
from tablestream.operators.reasons import UNKNOWN_VALUE
from tablestream.state.changes import KEY_HASH, LIVE, SEQ, STEP, TS, number_keys
from tablestream.state.positions import gather
from tablestream.state.trace_spec import TraceSpec

_ROWS, _LEAVING, _HASH = "rows", "leaving", "_h"
#: Of each column of a row, the place of its value in the pool; -1: unknown.
Parts = list[int]
_ZERO = pl.lit(0, pl.Int64).alias(_HASH)


@dataclass(frozen=True)
class MovedRows(OfTable):
    """Fill the unknown columns of rows that were moved to another key.

    Input 0: what `CapturedTable` emits, by its ``_fh``. Output 0: ``_kh``, key, ``_ts``, ``_live``, ``v``.
    """

    columns: tuple[str, ...]
    """The names of the value's columns."""

    marks = (ARRIVALS,)
    rejects = True

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        return (changes_of_captured(self.keys, self.value),)

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        key = {KEY_HASH: pl.Int64(), **self.keys}
        head = {_HASH: pl.Int64(), ARRIVAL: pl.Int64(), MOVE: pl.String(), UNKNOWN: pl.List(pl.Int16())}
        message = {**key, TS: pl.Int64(), EXISTS: pl.Boolean(), LEFT: pl.Boolean()}
        row = {LIVE: pl.Boolean(), "v": self.value}
        return (
            TraceSpec(_ROWS, pl.Schema({**key, **row}), tuple(self.keys), hash=KEY_HASH),
            TraceSpec(_LEAVING, pl.Schema({**head, **row}), (ARRIVAL,), hash=_HASH),
            TraceSpec(WAITING, pl.Schema({**head, **message, **row}), (ARRIVAL,), hash=_HASH),
        )

    @property
    def reasons(self) -> tuple[str, ...]:
        return (UNKNOWN_VALUE, *map(filled_reason, self.columns))

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        """Pass on the rows that were never moved; fill the others."""
        (arrived,) = inputs
        others = arrived.filter(~pl.col(MOVED)).rename({SEQ: PARENT})
        yield Emission(0, others.select(PARENT, *self.outputs[0]))
        moved = arrived.filter(MOVED)
        if moved.height:
            yield Emission(0, _Moves(self, moved, context).run())


class _Moves:
    """The messages of moved rows in one micro-batch, with those that wait.

    `operator`, `context`: the operator, and its state. `arrived`: the messages, in their order.
    """

    def __init__(self, operator: MovedRows, arrived: pl.DataFrame, context: Context) -> None:
        self._operator, self._arrived, self._context = operator, arrived, context
        self._waiting = context.trace(WAITING).scan().sort(ARRIVAL)
        self._leaving = context.trace(_LEAVING).scan().sort(ARRIVAL)
        stored = stored_rows(context.trace(_ROWS), arrived, self._waiting)
        self._messages = self._all_messages()
        known, numbers = number_keys(KEY_HASH, operator.keys, [stored, self._messages])
        self._kids = numbers.tolist()
        parts = [stored["v"], self._leaving["v"], self._messages["v"]]
        self._pool = pl.concat(parts, rechunk=False).struct.unnest()
        width = len(operator.columns)
        self._rows: dict[int, Parts | None] = {kid: [at] * width for at, kid in enumerate(known.tolist())}
        #: The rows that left, and of each move which of them wait; None: the row under the new key did not need it.
        self._leavers: list[tuple[str, Parts | None]] = []
        self._left: dict[str, deque[int]] = defaultdict(deque)
        for at, (move, unknown, row) in enumerate(
            self._leaving.select(MOVE, UNKNOWN, pl.col("v").is_null()).iter_rows(), start=stored.height
        ):
            self._note(move, None if row and unknown is None else self._parts(at, unknown))
        self._first = stored.height + self._leaving.height
        self._queues: dict[int, deque[int]] = defaultdict(deque)
        self._awaited: dict[str, deque[int]] = defaultdict(deque)
        self._emitted: list[tuple[int, int, int]] = []
        self._values_of: list[Parts | None] = []
        self._changed: set[int] = set()

    def _all_messages(self) -> pl.DataFrame:
        """The messages that wait, then those that arrive."""
        numbers = self._context.number(self._arrived.height, ARRIVALS).alias(ARRIVAL)
        arrived = self._arrived.with_columns(pl.col(LIVE).alias(EXISTS), numbers, _ZERO)
        return pl.concat([self._waiting, arrived.select(self._waiting.columns)])

    def _parts(self, at: int, unknown: list[int] | None) -> Parts:
        """The parts of a row at a place of the pool."""
        parts = [at] * len(self._operator.columns)
        for number in unknown or ():
            parts[number] = -1
        return parts

    def run(self) -> pl.DataFrame:
        """Process the messages in their order; return what is emitted."""
        self._columns = self._messages.select(EXISTS, UNKNOWN, MOVE, LEFT).rows()
        for at in range(self._waiting.height):
            self._queues[self._kids[at]].append(at)
            move = self._columns[at][2]
            if len(self._queues[self._kids[at]]) == 1 and move is not None:
                self._awaited[move].append(self._kids[at])
        for number, seq in enumerate(self._arrived[SEQ], start=self._waiting.height):
            self._take(number, seq)
        self._remember()
        rows = released(self._messages.drop("v"), self._emitted)
        columns = pl.col(EXISTS).alias(LIVE), self._values(self._values_of).alias("v")
        return rows.with_columns(columns).select(PARENT, NUMBER, *self._operator.outputs[0])

    def _take(self, at: int, seq: int) -> None:
        """Process a message, or let it wait behind others of its key."""
        queue = self._queues[self._kids[at]]
        if queue or not self._process(at, seq):
            queue.append(at)

    def _process(self, at: int, seq: int) -> bool:
        """Process a message; return whether it need not wait."""
        live, unknown, move, left = self._columns[at]
        kid, parts = self._kids[at], self._parts(self._first + at, unknown)
        if left:
            self._fill(parts, self._rows.get(kid))
            self._leave(move, parts, seq)
            return True
        if live and move is not None:
            if not self._come(move, parts, kid):
                return False
        elif live:
            self._fill(parts, self._rows.get(kid))
        if live and -1 in parts:
            self._context.reject(UNKNOWN_VALUE, self._rejected(at, seq))
            return True
        self._rows[kid] = parts if live else None
        self._changed.add(kid)
        self._emitted.append((at, seq, len(self._emitted)))
        self._values_of.append(self._rows[kid])
        return True

    def _come(self, move: str, parts: Parts, kid: int) -> bool:
        """Fill a row that was moved here from the one that left; return whether it need not wait for that."""
        left = self._left[move]
        if left and self._leavers[left[0]][1] is not None:
            self._fill(parts, self._leavers[left.popleft()][1])
        elif -1 in parts:
            self._awaited[move].append(kid)
            return False
        else:
            self._note(move, None)
        return True

    def _note(self, move: str, parts: Parts | None) -> None:
        self._left[move].append(len(self._leavers))
        self._leavers.append((move, parts))

    def _leave(self, move: str, parts: Parts, seq: int) -> None:
        """Take note of what a row was that leaves, and go on with the one that waits for it."""
        left = self._left[move]
        if left and self._leavers[left[0]][1] is None:
            left.popleft()
            return
        self._note(move, parts)
        if not self._awaited[move]:
            return
        queue = self._queues[self._awaited[move].popleft()]
        while queue and self._process(queue[0], seq):
            queue.popleft()

    def _fill(self, parts: Parts, known: Parts | None) -> None:
        """Take unknown parts from a row."""
        for number, part in enumerate(parts):
            if part < 0 and known is not None and known[number] >= 0:
                parts[number] = known[number]
                self._context.dropped[filled_reason(self._operator.columns[number])] += 1

    def _rejected(self, at: int, seq: int) -> pl.DataFrame:
        zeros = pl.lit(seq, pl.Int64).alias(SEQ), pl.lit(0, pl.Int64).alias(STEP)
        return self._messages[at].select(
            *zeros, KEY_HASH, *self._operator.keys, TS, pl.col(EXISTS).alias(LIVE), "v"
        )

    def _values(self, parts: Sequence[Parts | None]) -> pl.Series:
        """Put values together; null where there are no parts."""
        nothing = [-1] * len(self._operator.columns)
        table = np.array([nothing if one is None else one for one in parts], dtype=np.int64)
        table = table.reshape(len(parts), len(nothing))
        columns = [gather(column, table[:, number]) for number, column in enumerate(self._pool)]
        exists = pl.Series([one is not None for one in parts], dtype=pl.Boolean)
        return pl.select(pl.when(exists).then(pl.struct(columns))).to_series().cast(self._operator.value)

    def _remember(self) -> None:
        """Store the rows that changed, and what waits."""
        place = {kid: at for at, kid in enumerate(self._kids)}
        kids = sorted(self._changed)
        parts = [self._rows[kid] for kid in kids]
        rows = self._messages[[place[kid] for kid in kids]].select(KEY_HASH, *self._operator.keys)
        exists = pl.Series(LIVE, [one is not None for one in parts], dtype=pl.Boolean)
        self._context.trace(_ROWS).insert(rows.with_columns(exists, self._values(parts).alias("v")))
        self._store_leaving()
        waits = pl.int_range(pl.len()).is_in([at for queue in self._queues.values() for at in queue])
        self._context.trace(WAITING).insert(changed(self._messages, self._waiting.height, waits))

    def _store_leaving(self) -> None:
        """Store the rows that left, and for which none has come; the state has nothing else of them."""
        stored = self._leaving.height
        stay = sorted(at for rows in self._left.values() for at in rows)
        noted = [self._leavers[at] for at in stay if at >= stored]
        moves, parts = [move for move, _ in noted], [one for _, one in noted]
        unknown = [None if one is None else [n for n, part in enumerate(one) if part < 0] for one in parts]
        new = pl.DataFrame({MOVE: moves, UNKNOWN: unknown}, {MOVE: pl.String(), UNKNOWN: pl.List(pl.Int16())})
        numbers = self._context.number(new.height, ARRIVALS).alias(ARRIVAL)
        there = pl.lit(value=True).alias(LIVE)
        new = new.with_columns(self._values(parts).alias("v"), numbers, _ZERO, there)
        rows = pl.concat([self._leaving, new.select(self._leaving.columns)])
        place = pl.int_range(pl.len())
        waits = (place >= stored) | place.is_in(stay)
        self._context.trace(_LEAVING).insert(changed(rows, stored, waits))
