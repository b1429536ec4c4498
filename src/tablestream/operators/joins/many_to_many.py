"""Join of two tables on values that are no key of either: each left row with each right row of the same value.

The *join value* is what a row is matched by: one column or several. Both sides send their changes to the values
concerned, as the many of a one-to-many join do (`PairSubscribe`). At its value a side's row stands for an interval of
steps, from the step that wrote it to the step that wrote it again or took it away. A pair is a row of the result where
the intervals of its two rows overlap.

A step at one join value. ``l`` and ``r`` are the left and the right row of a pair, before and after the step:

==================  ==================  ==========================================================
l                   r                   emits for the pair
==================  ==================  ==========================================================
there after it      there after it      the row, if the step wrote one of them; else nothing
there before it     there before it     a tombstone, if not both are there after it
any other                               nothing: the pair was not there, and is not
==================  ==================  ==========================================================

- The time is the larger of the times of both rows; of a row that the step wrote or took away, the change's time counts.
- A change answers in the order of the other side's keys. A change of both sides is the left one's.
- A row that moves leaves its old value before it comes to the new one. If one step moves both rows of a pair to the
  same value (a table that is joined to itself), the old value emits no tombstone: the pair is written at the new one.
- A row whose join value has a null part has no pair.

References
----------
``docs/semantics/many-to-many.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tablestream.operators.events import (
    NEVER,
    are_equal,
    bools,
    ends,
    expanded_in_parts,
    following,
    ints,
    pick,
    touched_keys,
)
from tablestream.operators.joins.foreign_key_subscribe import (
    KIND,
    TO_RIGHT,
    Ask,
    ForeignKeySubscribe,
)
from tablestream.operators.joins.merged_order import OPEN
from tablestream.operators.operator import (
    FAN_OUT_ROWS,
    NUMBER,
    PARENT,
    Context,
    Emission,
    Operator,
    keyed_rows,
    numbered_on,
    pointing_trace,
)
from tablestream.state.changes import FOREIGN_HASH, KEY_HASH, LIVE, SEQ, STEP, TS, last_by, number_keys
from tablestream.state.positions import MIX, Bools, Ints, gather
from tablestream.state.trace import Found
from tablestream.state.trace_spec import TraceSpec

#: The hash of the join value to which a row moves, in the message to the one that it leaves; null: to none.
TARGET = "_to"


def _target(name: str) -> str:
    """The column of a part of the join value to which a row moves."""
    return f"{TARGET}{name}"


@dataclass(frozen=True)
class PairSubscribe(ForeignKeySubscribe):
    """Send the changes of one side to the join values concerned.

    Output 0: that of `ForeignKeySubscribe`; with `tells_target` also ``_to`` and ``_to_f0``, ...
    """

    tells_target: bool = False
    """Whether the message to a value that a row leaves says to which one the row moves."""
    counts_nulls: bool = True
    """Whether rows without a join value are counted as dropped."""

    @property
    def rejects(self) -> bool:
        return self.counts_nulls

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        target = {FOREIGN_HASH: pl.Int64(), **self.foreign_keys} if self.tells_target else {}
        named = {_target(name): kind for name, kind in target.items()}
        return (pl.Schema({**super().outputs[TO_RIGHT], **named}),)

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        for sent in super().run(inputs, context):
            yield Emission(TO_RIGHT, self._with_targets(sent.rows) if self.tells_target else sent.rows)

    def _with_targets(self, messages: pl.DataFrame) -> pl.DataFrame:
        """Add where rows move: such a row sends two messages one after the other, to the value that it leaves first."""
        moves = (pl.col(NUMBER) == 0) & (pl.col(PARENT) == pl.col(PARENT).shift(-1))
        return messages.with_columns(
            pl.when(moves).then(pl.col(name).shift(-1)).alias(_target(name))
            for name in (FOREIGN_HASH, *self.foreign_keys)
        )


@dataclass(frozen=True)
class ManyToMany(Operator):
    """Join the rows of both sides that have one join value.

    Inputs: the messages of `PairSubscribe` of either side. Output 0: ``_kh``, the left key, the right key as
    `right_keys`, ``_ts``, ``_live``, ``v0``, ``v1``. Cost: for each message the other side's rows at its value, also
    those that the same micro-batch writes, and the pairs emitted. Memory: the keys of these rows, and the payload of
    `FAN_OUT_ROWS` pairs.
    """

    keys: tuple[pl.Schema, pl.Schema]
    """The columns and dtypes of the left key and of the right one."""
    join_keys: pl.Schema
    """Those of the join value."""
    right_keys: tuple[str, ...]
    """The names of the right key's columns in the result."""
    values: tuple[pl.DataType, pl.DataType]
    """The dtypes of both values."""
    moves_pairs: bool = False
    """Whether a step can move both rows of a pair: both sides depend on one source."""

    parameters = ("moves_pairs",)
    takes_last = True

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        value = {FOREIGN_HASH: pl.Int64(), **self.join_keys}
        target = {_target(name): kind for name, kind in value.items()} if self.moves_pairs else {}
        return tuple(
            pl.Schema(
                {**value, KEY_HASH: pl.Int64(), **keys, TS: pl.Int64(), KIND: pl.Int8(), **target, "v": kind}
            )
            for keys, kind in zip(self.keys, self.values, strict=True)
        )

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        right = dict(zip(self.right_keys, self.keys[1].values(), strict=True))
        return (
            keyed_rows(pl.Schema({**self.keys[0], **right}), {"v0": self.values[0], "v1": self.values[1]}),
        )

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return self._trace(0, "left rows"), self._trace(1, "right rows")

    def _trace(self, side: int, name: str) -> TraceSpec:
        columns = {TS: pl.Int64(), LIVE: pl.Boolean(), "v": self.values[side]}
        return pointing_trace(name, self.join_keys, self.keys[side], columns)

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        traces = [context.trace(spec.name) for spec in self.traces]
        # What a side has in the state matters where the other side changes.
        asked = zip(traces, reversed(inputs), strict=True)
        found = [trace.find(touched_keys(trace, frame)) for trace, frame in asked]
        ids = number_keys(FOREIGN_HASH, self.join_keys, [*inputs, *(one.rows for one in found)])
        sides = [
            _Messages.of(frame, of, keys) for frame, of, keys in zip(inputs, ids, self.keys, strict=False)
        ]
        yield from numbered_on(
            rows
            for side, (mine, theirs) in enumerate((sides, sides[::-1]))
            for rows in self._changes(
                mine, _Versions.of(theirs, found[1 - side], ids[3 - side], mine.values), side
            )
        )
        for trace, one in zip(traces, sides, strict=True):
            last = last_by(one.rows, one.values, one.keys)
            live = (last[KIND] >= Ask.ANSWER_ALWAYS).alias(LIVE)
            trace.insert(last.with_columns(live)[[*trace.spec.schema]])

    def _changes(self, mine: _Messages, stands: _Versions, side: int) -> Iterator[pl.DataFrame]:
        """The pairs that messages of one side write or take away, in chunks."""
        low, high = stands.at(mine.values)
        for message, row in expanded_in_parts(low, high, FAN_OUT_ROWS):
            at, start, end = mine.step[message], stands.start[row], stands.end[row]
            is_there, was_there = (start <= at) & (at < end), (start < at) & (at <= end)
            ending = np.where(end == at, stands.ending[row], -1)
            gone = ~pick(stands.messages.live, ending, True)
            if side == 0:
                was_there &= ~self._moves_together(mine, message, stands.messages, np.where(gone, ending, -1))
            else:  # what changes on both sides in one step is the left side's
                is_there &= start < at
                was_there &= ~gone
            some = np.flatnonzero(np.where(mine.live[message], is_there, was_there))
            time = np.where(ending >= 0, pick(stands.messages.ts, ending, NEVER), stands.ts[row])
            yield self._pairs(mine, message[some], stands, row[some], time[some], side)

    def _moves_together(self, left: _Messages, message: Ints, right: _Messages, ending: Ints) -> Bools:
        """Whether both rows of each pair move to the same value: by `message`, and by `ending` (-1: by none)."""
        same = np.zeros(len(message), dtype=bool)
        if not self.moves_pairs:
            return same
        both = np.flatnonzero(ending >= 0)
        if len(both):
            columns = [_target(name) for name in (FOREIGN_HASH, *self.join_keys)]
            one, other = left.rows[columns][message[both]], right.rows[columns][ending[both]]
            same[both] = are_equal(zip(one, other, strict=True)) & bools(one[columns[0]].is_not_null())
        return same

    def _pairs(
        self, mine: _Messages, message: Ints, stands: _Versions, row: Ints, row_ts: Ints, side: int
    ) -> pl.DataFrame:
        """The rows of the result for messages of one side and versions of the other."""
        live = mine.live[message]
        keys = [mine.rows[[KEY_HASH, *mine.keys]][message], stands.keys[row]]
        values = [
            gather(mine.rows["v"], np.where(live, message, -1)),
            gather(stands.payload, np.where(live, stands.row[row], -1)),
        ]
        left, right = keys[side], keys[1 - side]
        named = (one.alias(name) for name, one in zip(self.right_keys, right.drop(KEY_HASH), strict=True))
        return pl.DataFrame(
            [
                mine.rows[SEQ][message].alias(PARENT),
                pl.Series(KEY_HASH, (ints(left[KEY_HASH]) * MIX) ^ ints(right[KEY_HASH])),
                *left.drop(KEY_HASH),
                *named,
                pl.Series(TS, np.maximum(mine.ts[message], row_ts)),
                pl.Series(LIVE, live, dtype=pl.Boolean),
                values[side].alias("v0"),
                values[1 - side].alias("v1"),
            ]
        )


@dataclass(frozen=True)
class _Messages:
    """The messages of one side, in the order of their places."""

    rows: pl.DataFrame
    keys: tuple[str, ...]
    """The messages, and the names of the key's columns."""
    values: Ints
    step: Ints
    ts: Ints
    live: Bools
    """Of each message the number of its join value, its step, its time, and whether the row is at the value after
    it."""

    @classmethod
    def of(cls, rows: pl.DataFrame, values: Ints, keys: pl.Schema) -> _Messages:
        """Take the messages apart."""
        live = ints(rows[KIND]) >= Ask.ANSWER_ALWAYS
        return cls(rows, tuple(keys), values, ints(rows[STEP]), ints(rows[TS]), live)


@dataclass(frozen=True)
class _Versions:
    """The rows that one side had at some join values in a micro-batch, sorted by value, key and step."""

    messages: _Messages
    """Those of the side."""
    keys: pl.DataFrame
    ts: Ints
    """``_kh``, the key and the time of each version."""
    value: Ints
    start: Ints
    end: Ints
    """The number of its value, and the steps between which it stands: the first one included, the last one not."""
    ending: Ints
    """The position of the message that ends it; -1: none does."""
    payload: pl.Series
    row: Ints
    """The values of the state and of the messages, and where each version's is among them."""

    @classmethod
    def of(cls, messages: _Messages, found: Found, values: Ints, wanted: Ints) -> _Versions:
        """Arrange the stored rows, of which `values` has the values, and the messages that are at the wanted ones."""
        is_wanted = np.zeros(
            1 + max(int(one.max(initial=-1)) for one in (messages.values, wanted)), dtype=bool
        )
        is_wanted[wanted] = True
        mine = np.flatnonzero(is_wanted[messages.values])
        columns, stored = [KEY_HASH, *messages.keys], found.rows.height
        payload, place = found.column("v"), ints(found.rows["_row"])
        keys = pl.concat([found.rows[columns], messages.rows[columns][mine]], rechunk=False)
        value = np.concatenate([values, messages.values[mine]])
        step = np.concatenate([np.zeros(stored, dtype=np.int64), messages.step[mine]])
        by = keys[columns[1:]].hstack([pl.Series("_value", value), pl.Series("_step", step)])
        order = ints(
            by.select(pl.arg_sort_by("_value", *columns[1:], "_step", maintain_order=True)).to_series()
        )
        keys, value, step = keys[order], value[order], step[order]
        row = np.concatenate([place, mine + payload.len()])[order]
        ts = np.concatenate([ints(gather(found.column(TS), place)), messages.ts[mine]])[order]
        message = row - payload.len()
        last = ends(value, *keys[columns[1:]])
        live = np.flatnonzero(pick(messages.live, message, True))
        return cls(
            messages,
            keys[live],
            ts[live],
            value[live],
            step[live],
            following(step, last, OPEN)[live],
            following(message, last, -1)[live],
            pl.concat([payload, messages.rows["v"]], rechunk=False),
            row[live],
        )

    def at(self, values: Ints) -> tuple[Ints, Ints]:
        """The positions at which the versions of each value begin and end."""
        bounds = np.searchsorted(self.value, np.arange(int(values.max(initial=-1)) + 2))
        return bounds[values], bounds[values + 1]
