"""Remember which rows a table has, and emit each change with the row before it.

=========  ========  ==============================================================================
before     change    emits
=========  ========  ==============================================================================
any        row       the row, with the row before if `keep_old`
row        tombston  the tombstone, with the row before if `keep_old`
none       tombston  nothing if `minimal`, else the tombstone
=========  ========  ==============================================================================

`final`: only the last change of each key and micro-batch is emitted, and none if the row was absent before and is
absent after. "Before" then means before the micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tablestream.operators.arrangement import Deltas, TableRows, Turn
from tablestream.operators.events import repeats
from tablestream.operators.operator import PARENT, Context, Emission, OfTable, rows_trace, timed_changes
from tablestream.state.changes import KEY_HASH, LIVE, ROW_TS, SEQ, TS
from tablestream.state.positions import gather
from tablestream.state.trace_spec import TraceSpec

OLD = "old"


@dataclass(frozen=True)
class Upsert(OfTable):
    """Remember a table by its key.

    Input and output 0: ``_kh``, key, ``_ts``, ``_live``, ``v``; the output also has ``old``.
    """

    keep_old: bool = False
    """Whether the row before is remembered and emitted (as ``old``). If not, only its existence is remembered."""
    minimal: bool = True
    """Whether to leave out tombstones for absent rows."""
    final: bool = False
    """Whether to emit only the last change per key and micro-batch."""
    keep_rows: bool = False
    """Whether to remember rows only for readers of the state."""
    whole_steps: bool = False
    """Whether to emit only the last change per key and step, and none if the row is then as before."""
    repeats: bool = True
    """With `keep_old`, whether a row that is written again with the same value is emitted."""

    parameters = ("keep_old", "minimal", "final", "whole_steps")
    keeps_shard = True
    takes_last = True

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        return (timed_changes(self.keys, self.value),)

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        old = {OLD: self.value} if self.keep_old else {}
        return (pl.Schema({**self.inputs[0], **old}),)

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return (
            rows_trace("rows", self.keys, {"v": self.value} if self._keeps_values or self.keep_rows else {}),
        )

    @property
    def _keeps_values(self) -> bool:
        """Whether it compares or emits what was before."""
        return self.keep_old or self.whole_steps

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        (arrived,) = inputs
        trace = context.trace(self.traces[0].name)
        table = TableRows.of(trace, arrived)
        turn = Turn.MICRO_BATCH if self.final else Turn.STEP if self.whole_steps else Turn.MESSAGE
        yield Emission(0, self._emitted(table.deltas(turn, minimal=self.minimal)))
        table.remember(trace)

    def _emitted(self, deltas: Deltas) -> pl.DataFrame:
        """The change of each turn, with the row before it."""
        chosen = np.ones(len(deltas.now), dtype=bool)
        if self.final or self.whole_steps:
            chosen = deltas.live | deltas.was
        rows = deltas.rows
        if self.whole_steps or (self.keep_old and not self.repeats):
            before = np.where(deltas.live & deltas.was, deltas.before, -1)
            chosen &= ~repeats(rows["v"], rows["v"].struct.fields, deltas.now, before)
        changes = rows.select(pl.col(SEQ).alias(PARENT), KEY_HASH, *self.keys, TS, ROW_TS, LIVE, "v")
        old = [gather(rows["v"], deltas.before[chosen]).alias(OLD)] if self.keep_old else []
        return changes[deltas.now[chosen]].with_columns(old)
