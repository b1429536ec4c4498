"""Join of two versioned tables on their key, as of every time that both remember.

The result at a time is the join of the rows that are valid then. A change of one side is a version, valid until the
next version of that side. In between, the result changes where the version begins and wherever a version of the
other side begins. `result_history` says which of these changes are emitted.

======  =======================================
how     the result is a row where
======  =======================================
inner   both sides have one
left    the left side has one
right   the right side has one
outer   one of them has one
======  =======================================

``observed`` is the largest time of both sides in the shard. Versions that ended before ``observed - history`` are
forgotten: no row is valid there. A change is too late, and counted, if it is older than that and not the latest of its
row.

References
----------
KIP-914 ("Attempt 2"); ``docs/semantics/joining-histories.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import polars as pl

from tablestream.operators.events import ints
from tablestream.operators.joins.key_join import How, exists
from tablestream.operators.joins.result_history import END, ResultHistory
from tablestream.operators.operator import Context, Emission, Operator, keyed_changes
from tablestream.operators.reasons import EXPIRED
from tablestream.operators.versions import BOUND, INPUT, POSITION, OpenVersions, Versions, columns_of
from tablestream.state.changes import KEY_HASH, LATEST, LIVE, SEQ, STEP, TS
from tablestream.state.positions import gather
from tablestream.state.trace_spec import TraceSpec

#: A piece of the result: the change that causes it, its time span, and the places of both rows; -1: none.
_PIECE: Mapping[str, type[pl.DataType]] = dict.fromkeys(
    (INPUT, POSITION, SEQ, STEP, TS, END, "left", "right"), pl.Int64
)


@dataclass(frozen=True)
class HistoryJoin(Operator):
    """Join two versioned tables on their key.

    Inputs: ``_kh``, key, ``_ts``, ``_live``, ``v``, ``_latest``. The output is that of `ResultHistory`.
    """

    how: How
    """Which rows the result has."""
    keys: pl.Schema
    """The key columns and their dtypes."""
    values: tuple[pl.DataType, pl.DataType]
    """The dtypes of both values."""
    history_us: int
    """How far back the result is maintained, in microseconds."""

    parameters = ("history_us",)
    reasons = (EXPIRED,)
    rejects = True
    keeps_shard = True

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        latest = {LATEST: pl.Boolean()}
        return tuple(pl.Schema({**keyed_changes(self.keys, value), **latest}) for value in self.values)

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        return self._result.outputs

    @property
    def _sides(self) -> tuple[Versions, Versions]:
        left, right = (
            Versions(KEY_HASH, self.keys, value, self.history_us, name=name)
            for name, value in zip(("left", "right"), self.values, strict=True)
        )
        return left, right

    @property
    def _result(self) -> ResultHistory:
        return ResultHistory(self.keys, self.values, self.history_us)

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return (*(side.trace for side in self._sides), *self._result.traces)

    @property
    def marks(self) -> tuple[str, ...]:
        return self._result.marks

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        changes = self._sides[0].in_time(inputs, context)
        keys = [frame.select(KEY_HASH, *self.keys) for frame in inputs]
        sides = [
            versions.opened(context.trace(versions.name), mine, other)
            for versions, mine, other in zip(self._sides, inputs, reversed(keys), strict=True)
        ]
        pieces = columns_of(_pieces(changes, sides), _PIECE)
        place = pieces[POSITION] + pieces[INPUT] * inputs[0].height
        found = pl.concat(keys)[place].hstack(pieces.select(SEQ, STEP, TS, END, "left", "right"))
        yield Emission(0, self._result.shown(self._rows(found, sides), context))
        for versions, side in zip(self._sides, sides, strict=True):
            side.remember(context.trace(versions.name), context.observed)

    def _rows(self, pieces: pl.DataFrame, sides: Sequence[OpenVersions]) -> pl.DataFrame:
        """The pieces as messages to `ResultHistory`."""
        left, right = (ints(pieces[name]) for name in ("left", "right"))
        live = exists(self.how, left >= 0, right >= 0)
        return pieces.drop("left", "right").with_columns(
            pl.Series(LIVE, live, dtype=pl.Boolean),
            gather(sides[0].payload, np.where(live, left, -1)).alias("v0"),
            gather(sides[1].payload, np.where(live, right, -1)).alias("v1"),
        )


def _pieces(changes: pl.DataFrame, sides: Sequence[OpenVersions]) -> Iterator[tuple[int | None, ...]]:
    """Write the changes, step by step, and cut the time in which each is valid into pieces."""
    rows = changes.select(STEP, SEQ, TS, LIVE, BOUND, INPUT, POSITION).iter_rows()
    for step, together in groupby(rows, key=lambda row: row[0]):
        written = list(together)
        for _, _, time, is_row, _, side, at in written:
            sides[side].put(at, time, exists=is_row)
        bound = written[-1][4]
        for _, seq, time, _, _, side, at in written:
            mine, other = sides[side].written(at), sides[1 - side].asked(at)
            mine.forget(bound)
            other.forget(bound)
            row = mine.as_of(time, None)
            for begin, end, found in other.during(time, mine.end(time)):
                left, right = (row, found) if side == 0 else (found, row)
                yield side, at, seq, step, begin, end, left, right
