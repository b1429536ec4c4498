"""Window functions: what a row is told of the other rows of its partition, in an order of them.

Rows with equal values in the order are *peers*. They stand in the order of their keys. A frame has the rows of the
partition that are not further from the row than its bounds.

Each step that changes a partition computes it anew, as it is after the step, and emits:

=====================================  ===================================================
a row of the partition                 emits
=====================================  ===================================================
that the step wrote                    the row with its functions' values
another one, of which a value changed  the same
another one                            nothing
that was deleted                       a tombstone
that went to another partition         nothing here: it is written there
=====================================  ===================================================

The time is the largest one of the step's changes of the partition. ``thin``: all steps of a micro-batch are as one, but
for its tombstones. Partitions are worked off in slabs of about `SLAB_ROWS` rows.

References
----------
SQL's ``OVER (PARTITION BY ... ORDER BY ...)``; ``docs/semantics/windows.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tablestream.operators.arrangement import Arrangement
from tablestream.operators.events import bools, ends, following, ints, previous, same_rows, stored_rows
from tablestream.operators.operator import (
    NUMBER,
    PARENT,
    CanBeThin,
    Context,
    Emission,
    keyed_rows,
    numbered_on,
    pointing_trace,
)
from tablestream.operators.reduce.frame_aggregates import OfFrame
from tablestream.operators.reduce.frames import Frame, Frames, Use
from tablestream.operators.reduce.ranking import sorted_by
from tablestream.operators.reduce.regroup import IS, Regroup
from tablestream.state.changes import FOREIGN_HASH, KEY_HASH, LIVE, SEQ, STEP, TS, last_by, number_keys
from tablestream.state.positions import Bools, Ints, expanded, put_back, stable_order, starts
from tablestream.state.trace_spec import TraceSpec

#: Whether a row that leaves a partition comes to another one.
MOVES = "_moves"
#: About so many rows of partitions, as they are after each step, are in memory.
SLAB_ROWS = 1_000_000


@dataclass(frozen=True)
class Partition(Regroup):
    """Send the changes of rows to their partitions; say of a row that leaves one whether it comes to another."""

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        return (pl.Schema({**super().outputs[0], MOVES: pl.Boolean()}),)

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        for sent in super().run(inputs, context):
            again = pl.col(PARENT).eq_missing(pl.col(PARENT).shift(-1)) & (pl.col(NUMBER) == 0)
            yield Emission(0, sent.rows.with_columns(again.alias(MOVES)))


@dataclass(frozen=True)
class Over(CanBeThin):
    """Maintain window functions of the rows of partitions.

    Input: the messages of `Partition`. Output 0: ``_kh``, key, ``_ts``, ``_live``, ``v0``. Cost: per step, the rows of
    the partitions that it changes.
    """

    keys: pl.Schema
    partition_keys: pl.Schema
    """The columns and dtypes of the table's key and of the partition's."""
    value: pl.DataType
    result: pl.Struct
    """The dtype of what is remembered of a row, and of the value in the result: some first fields of `value`, then the
    functions' values."""
    order: tuple[tuple[str, bool], ...]
    """The fields that rows are ordered by, each with whether the greatest comes first. Nulls are less than all
    others."""
    uses: tuple[Use | OfFrame, ...]
    """The functions."""
    frame: Frame
    """The rows that they see."""

    parameters = ("order", "thin")
    takes_last = True
    can_be_final = False

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        head = {FOREIGN_HASH: pl.Int64(), **self.partition_keys, KEY_HASH: pl.Int64(), **self.keys}
        marks = {IS: pl.Boolean(), MOVES: pl.Boolean()}
        return (pl.Schema({**head, TS: pl.Int64(), **marks, "v": self.value}),)

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        return (keyed_rows(self.keys, {"v0": self.result}),)

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        columns = {LIVE: pl.Boolean(), "v": self.value}
        return (pointing_trace("partition rows", self.partition_keys, self.keys, columns),)

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        """Compute the partitions anew that messages change, emit what changed, and remember their rows."""
        (arrived,) = inputs
        (spec,) = self.traces
        trace = context.trace(spec.name)
        stored = stored_rows(trace, arrived)
        stored_of, of = number_keys(FOREIGN_HASH, self.partition_keys, [stored, arrived])
        turns = _Turns.of_messages(
            of, ints(arrived[STEP]), ints(arrived[SEQ]), ints(arrived[TS]), together=self.thin
        )
        arrived = arrived.with_columns(arrived[IS].alias(LIVE))
        yield Emission(0, self._tombstones(arrived, turns))
        rows = pl.concat([stored[[*spec.schema]], arrived[[*spec.schema]]])
        versions = self._versions(rows, np.concatenate([stored_of, of]), turns)
        changes = (self._changes(slab, turns) for slab in versions.slabs())
        yield from numbered_on(changes, first=arrived.height)
        trace.insert(last_by(arrived, of, self.keys)[[*spec.schema]])

    def _tombstones(self, arrived: pl.DataFrame, turns: _Turns) -> pl.DataFrame:
        """Tombstones for rows that are deleted."""
        gone = np.flatnonzero(_deleted(arrived))
        turn = turns.of[gone]
        parents = ints(arrived[SEQ])[gone] if self.thin else turns.last[turn]
        times = ints(arrived[TS])[gone] if self.thin else turns.ts[turn]
        return arrived[[KEY_HASH, *self.keys, LIVE]][gone].with_columns(
            pl.Series(PARENT, parents),
            pl.Series(TS, times),
            pl.Series(NUMBER, gone),
            pl.lit(None, self.result).alias("v0"),
        )

    def _versions(self, rows: pl.DataFrame, of: Ints, turns: _Turns) -> _Versions:
        """Arrange the stored rows, then those of messages: when each begins and ends."""
        keys, place = list(self.keys), np.zeros(rows.height, dtype=np.int64)
        place[rows.height - len(turns.number) :] = turns.number
        frame = rows[keys].hstack([pl.Series("_of", of), pl.Series("_turn", place)])
        order = ints(frame.select(pl.arg_sort_by("_of", *keys, "_turn", maintain_order=True)).to_series())
        arranged = np.cumsum(starts(*frame[["_of", *keys]][order])) - 1
        end = following(place[order], ends(arranged), np.iinfo(np.int64).max)
        member = put_back(arranged, order)
        stays = bools(rows[LIVE])[order] & (place[order] < end)
        at = order[stays]
        return self._ordered(rows[at], of[at], place[at], end[stays], member[at], turns)

    def _ordered(
        self, rows: pl.DataFrame, of: Ints, start: Ints, end: Ints, member: Ints, turns: _Turns
    ) -> _Versions:
        """Sort versions by partition and order; rows that are equal in it by their keys."""
        values = [(rows["v"].struct.field(name), down) for name, down in self.order]
        parts = [part for one, down in values for part in ((one.is_not_null(), down), *sorted_by(one, down))]
        by = [part.alias(f"_by{number}") for number, (part, _) in enumerate(parts)]
        frame = pl.DataFrame([pl.Series("_of", of), *by, *rows[[*self.keys]]])
        downwards = [False, *(down for _, down in parts), *(False for _ in self.keys)]
        last = [True] * (1 + len(parts)) + [False] * len(self.keys)  # in an order nulls are told apart before
        sorting = pl.arg_sort_by(frame.columns, descending=downwards, nulls_last=last, maintain_order=True)
        order = ints(frame.select(sorting).to_series())
        peers = np.cumsum(starts(*frame[["_of", *(one.name for one in by)]][order])) - 1
        return _Versions(rows[order], of[order], start[order], end[order], member[order], peers, turns.counts)

    def _changes(self, slab: _Slab, turns: _Turns) -> pl.DataFrame:
        """What the turns of a slab change."""
        versions, (version, turn) = slab.versions, slab.rows()
        of = versions.of[version]
        begins, peers = starts(of, turn), versions.peers[version]
        frames = Frames(versions.rows["v"], version, begins, peers, self.frame, self.order)
        values = pl.DataFrame([one.of(frames).alias(f"w{number}") for number, one in enumerate(self.uses)])
        shown = np.flatnonzero((turn > slab.low[of]) & ~self._repeats(versions, version, turn, values))
        made, rows = turns.at(of[shown], turn[shown]), versions.rows[version[shown]]
        kinds = list(self.result.to_schema().items())
        own = [rows["v"].struct.field(f"c{number}") for number in range(len(kinds) - len(self.uses))]
        fields = [*own, *values[pl.Series(shown)]]
        named = [one.cast(kind).alias(name) for one, (name, kind) in zip(fields, kinds, strict=True)]
        return rows[[KEY_HASH, *self.keys, LIVE]].with_columns(
            pl.Series(PARENT, turns.last[made]),
            pl.Series(TS, turns.ts[made]),
            pl.DataFrame(named).to_struct("v0"),
        )

    def _repeats(self, versions: _Versions, version: Ints, turn: Ints, values: pl.DataFrame) -> Bools:
        """Whether each row is as it was a turn before."""
        order = np.lexsort((turn, versions.member[version]))
        begins, at = starts(versions.member[version][order]), turn[order]
        follows = previous(at, begins, -2) == at - 1
        before = np.where(follows, previous(order, begins, -1), -1)
        same = (before >= 0) & (version[order] == version[before]) & same_rows(values, order, before)
        return put_back(same, order)


@dataclass(frozen=True)
class _Turns:
    """The turns of partitions: all messages of one step to one partition, or all of a micro-batch."""

    number: Ints
    """Per message, the number of its turn in its partition, from 1."""
    of: Ints
    """Per message, the position of its turn."""
    last: Ints
    ts: Ints
    """Per turn, the place of its last message, and its time."""
    first: Ints
    counts: Ints
    """Per partition, the position of its first turn, and how many it has."""

    @classmethod
    def of_messages(cls, partition: Ints, step: Ints, seq: Ints, ts: Ints, *, together: bool) -> _Turns:
        """Find the turns of messages, which come in the order of their places."""
        arranged = Arrangement.of(partition)
        order = arranged.row
        first, last = arranged.turns(np.zeros_like(step) if together else step[order])
        of = arranged.by_row(np.repeat(np.arange(len(first)), last - first + 1))
        counts = np.bincount(arranged.key[first])
        before = np.cumsum(counts) - counts
        times = np.maximum.reduceat(ts[order], first) if len(first) else first
        return cls(of - before[partition] + 1, of, seq[order][last], times, before, counts)

    def at(self, partition: Ints, number: Ints) -> Ints:
        """The position of a turn of a partition."""
        return np.asarray(self.first[partition] + number - 1)


@dataclass(frozen=True)
class _Versions:
    """The versions of the rows of partitions, sorted by partition and, within it, by the order."""

    rows: pl.DataFrame
    """The versions, with the columns of the trace."""
    of: Ints
    """The partition of each."""
    start: Ints
    end: Ints
    """The turn that writes it, and the one that ends it; 0: it is of the state."""
    member: Ints
    """The number of its row."""
    peers: Ints
    """A number that those with equal values in the order share."""
    counts: Ints
    """How many turns each partition has."""

    def slabs(self) -> Iterator[_Slab]:
        """Divide what turns show: several partitions with all of their turns, or some turns of a large partition."""
        rows = np.bincount(self.of, minlength=len(self.counts))
        size = rows * (self.counts + 1)
        small = size <= SLAB_ROWS
        batch = np.where(small, np.cumsum(np.where(small, size, 0)) // SLAB_ROWS, -1)
        for number in np.unique(batch[small]).tolist():
            mine = batch == number
            yield _Slab(self, np.zeros(len(rows), dtype=np.int64), np.where(mine, self.counts, -1))
        for one in np.flatnonzero(~small).tolist():
            width, last = max(1, SLAB_ROWS // int(rows[one])), int(self.counts[one])
            for low in range(0, last, width):
                mine = np.arange(len(rows)) == one
                yield _Slab(self, np.where(mine, low, 0), np.where(mine, min(low + width, last), -1))


@dataclass(frozen=True)
class _Slab:
    """Partitions after some turns: from `low`, with which the next one is compared, to `high` (-1: after none)."""

    versions: _Versions
    low: Ints
    high: Ints

    def rows(self) -> tuple[Ints, Ints]:
        """The versions that there are after each turn, sorted by partition, turn and order; and the turns."""
        versions = self.versions
        first = np.maximum(versions.start, self.low[versions.of])
        count = np.maximum(np.minimum(versions.end, self.high[versions.of] + 1) - first, 0)
        version, turn = expanded(first, first + count)
        order = stable_order(versions.of[version] * (int(turn.max(initial=0)) + 1) + turn)
        return version[order], turn[order]


def _deleted(arrived: pl.DataFrame) -> Bools:
    """Whether each message tells that a row is deleted."""
    return bools(~arrived[IS] & ~arrived[MOVES])
