"""Declared aggregates as window functions: the rows of each frame are records of a group, which is then forgotten.

Frames that begin with their partition share a group: each is the group after so many of its records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from tablestream.operators.events import previous
from tablestream.operators.operator import PARENT, Context
from tablestream.operators.reduce.aggregate import Aggregate, AnyFunction
from tablestream.operators.reduce.frames import Frames
from tablestream.operators.reduce.regroup import IS, OLD, WAS
from tablestream.state.changes import FOREIGN_HASH, SEQ, STEP, TS
from tablestream.state.forgotten import forgotten_traces
from tablestream.state.positions import Ints, expanded, gather, starts

#: About so many rows of frames are in memory.
FRAME_ROWS = 1_000_000
_GROUP = pl.Schema({"_f0": pl.Int64()})
#: The group of frames without rows.
_EMPTY = -1


@dataclass(frozen=True)
class OfFrame:
    """A declared aggregate of each frame."""

    function: AnyFunction
    """The aggregate, of records."""
    columns: tuple[str, ...]
    """The fields that it reads."""

    def of(self, frames: Frames) -> pl.Series:
        """The value of each row."""
        if not len(frames.row):
            return pl.Series(dtype=self.function.result)
        bounds, frame_of = np.unique(np.stack([frames.first, frames.after]), axis=1, return_inverse=True)
        begins, ends = bounds[:, bounds[0] < bounds[1]]
        slabs = _running(begins, ends) if frames.frame.start is None else _apart(begins, ends)
        of_none = self._aggregated(frames, *(np.array([one]) for one in (_EMPTY, _EMPTY, 0)))
        found = pl.concat([of_none, *(self._aggregated(frames, *slab) for slab in slabs)])
        numbers = np.where(bounds[0] < bounds[1], np.cumsum(bounds[0] < bounds[1]), 0)
        return gather(found, numbers[frame_of.ravel()])

    def _aggregated(self, frames: Frames, rows: Ints, groups: Ints, turns: Ints) -> pl.Series:
        """The aggregates of groups after each turn, of rows in the order of groups and turns; -1 is no row."""
        value = pl.Struct({one: frames.values.struct.schema[one] for one in self.columns})
        operator = Aggregate(pl.Schema(), _GROUP, value, (self.function,), keep_empty=True)
        taken, is_row = pl.Series(frames.row[rows]), pl.lit(pl.Series(rows >= 0))
        fields = pl.DataFrame([frames.values.struct.field(one)[taken] for one in self.columns])
        group, number = pl.Series(groups), pl.int_range(1, len(rows) + 1, dtype=pl.Int64, eager=True)
        messages = pl.DataFrame({FOREIGN_HASH: group, "_f0": group, SEQ: number, STEP: pl.Series(turns)})
        messages = messages.with_columns(
            pl.lit(0, pl.Int64).alias(TS),
            pl.lit(value=False).alias(WAS),
            is_row.alias(IS),
            pl.lit(None, value).alias(OLD),
            pl.when(is_row).then(pl.lit(fields.to_struct())).alias("v"),
        )
        context = Context(forgotten_traces(operator.traces), Counter())
        told = [one.rows for one in operator.run([messages], context)]
        return pl.concat(told).sort(PARENT)["v0"].struct.field("c0")


def _running(begins: Ints, ends: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
    """The rows of partitions with the group and the turn of each: each frame has the rows of those before it."""
    if len(begins):
        yield _slab(previous(ends, starts(begins), begins), ends, begins)


def _apart(begins: Ints, ends: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
    """The rows of frames with the group and the turn of each: each frame is a group."""
    slab = np.cumsum(ends - begins) // FRAME_ROWS
    for one in np.unique(slab).tolist():
        yield _slab(begins[slab == one], ends[slab == one], np.flatnonzero(slab == one))


def _slab(begins: Ints, ends: Ints, groups: Ints) -> tuple[Ints, Ints, Ints]:
    """The rows between bounds, one range after the other, with the group and the number of each range."""
    turn, rows = expanded(begins, ends)
    return rows, groups[turn], turn
