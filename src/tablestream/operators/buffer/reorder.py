"""Reordering: holds changes or records for a while and emits them in the order of their times.

``observed`` is the largest time that the shard has seen.

==================================  =========================================================================
change                              effect
==================================  =========================================================================
its time is before                  emitted at once, late; counted, but not dropped
``observed - bound``
any other                           waits until ``observed - bound`` reaches its time
==================================  =========================================================================

Changes that are emitted together come in the order of (time, key, arrival).

References
----------
KIP-914, "long-term vision"; ``docs/semantics/out-of-order.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from tablestream.operators.buffer.time_index import by_time
from tablestream.operators.buffer.waiting import (
    ARRIVAL,
    ARRIVALS,
    EXISTS,
    WAITING,
    ReleaseRule,
    Waiting,
    numbered,
    released,
)
from tablestream.operators.operator import NUMBER, PARENT, Context, Emission, OfTable
from tablestream.operators.reasons import LATE
from tablestream.state.changes import KEY_HASH, LIVE, SEQ, TS
from tablestream.state.trace_spec import TraceSpec


@dataclass(frozen=True)
class Reorder(OfTable):
    """Sort changes by time, within a bound.

    Input and output 0: ``_kh``, key, ``_ts``, ``_live``, ``v``. Cost: the changes that arrive, and those that are
    emitted.
    """

    bound_us: int
    """How long changes wait, in microseconds of stream time."""
    splits_steps: bool = True
    """Whether each emitted change is a step of its own, as if it had arrived in order."""

    parameters = ("bound_us",)
    marks = (ARRIVALS, WAITING)
    reasons = (LATE,)
    keeps_shard = True

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        columns = {KEY_HASH: pl.Int64(), **self.keys, ARRIVAL: pl.Int64()}
        columns |= {EXISTS: pl.Boolean(), "v": self.value}
        return (by_time(WAITING, TS, columns, [ARRIVAL], ARRIVAL),)

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        (spec,), rule = self.traces, ReleaseRule(self.bound_us, late=LATE)
        new = numbered(inputs[0].with_columns(pl.col(LIVE).alias(EXISTS)), list(spec.schema), context)
        waiting = Waiting(rule, context, rule.due(context, new[TS]).sort(ARRIVAL), new, TS, list(self.keys))
        rows = waiting.rows
        causes = rows[SEQ].to_list()
        left = [
            (one, causes[row], number)
            for row in range(waiting.stored, rows.height)
            for number, one in enumerate(waiting.take(row))
        ]
        live = pl.col(EXISTS).alias(LIVE)
        yield Emission(0, released(rows, left).select(PARENT, NUMBER, KEY_HASH, *self.keys, TS, live, "v"))
        waiting.remember()
