"""The row with the highest sequence wins, whatever the order of arrival.

``known`` is the sequence of the last change of the key that was emitted.

==============================  ==============================================================
change                          effect
==============================  ==============================================================
a row without a sequence        dropped, counted
a tombstone without a sequence  emitted; it has the sequence of what it deletes, ``known``
sequence below ``known``        dropped, counted
any other, also an equal one    emitted; ``known`` becomes its sequence
==============================  ==============================================================

A tombstone without a sequence where nothing is known leaves nothing to remember. The sequence of any other tombstone is
remembered until its time is more than ``retention`` before the largest time of the shard.

References
----------
Spark's ``create_auto_cdc_flow`` (``sequence_by``); ``docs/semantics/out-of-order.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from tablestream.operators.events import ints, stored_rows
from tablestream.operators.operator import PARENT, Context, Emission, Filled, OfTable, keyed_rows
from tablestream.operators.reasons import NULL_SEQUENCE, SUPERSEDED
from tablestream.state.changes import KEY_HASH, LIVE, SEQ, STEP, TS, last_by, number_keys
from tablestream.state.positions import gather
from tablestream.state.trace_spec import TraceSpec

SEQUENCE, UNTIL = "_sq", "_until"
_NONE, _LOST = -1, -2


@dataclass(frozen=True)
class SequenceBy(OfTable):
    """Emit changes whose sequence is not below that of their row.

    Input: ``_kh``, key, ``_ts``, ``_live``, ``_sq``, ``v``. Output 0: the same without ``_sq``.
    """

    sequence: pl.DataType
    """The dtype of the sequence."""
    retention_us: int | None
    """How long the sequence of a tombstone is remembered, in microseconds; None: forever."""

    parameters = ("retention_us",)
    reasons = (NULL_SEQUENCE, SUPERSEDED)
    rejects = True
    keeps_shard = True

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        return (keyed_rows(self.keys, {SEQUENCE: Filled(self.sequence, "__sequence"), "v": self.value}),)

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        columns = {KEY_HASH: pl.Int64(), **self.keys, SEQUENCE: self.sequence, UNTIL: pl.Int64()}
        schema = pl.Schema({**columns, LIVE: pl.Boolean()})
        return (
            TraceSpec(name="sequences", hash=KEY_HASH, key=tuple(self.keys), schema=schema, expires=UNTIL),
        )

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        (arrived,) = inputs
        (spec,) = self.traces
        trace = context.trace(spec.name)
        has_none = pl.col(SEQUENCE).is_null() & pl.col(LIVE)
        new = arrived.filter(~has_none)
        context.reject(NULL_SEQUENCE, arrived.filter(has_none))
        stored = stored_rows(trace, new)
        places = pl.Series(self._places(stored, new, context), dtype=pl.Int64)
        wins = places != _LOST
        winners = new.filter(wins)
        context.reject(SUPERSEDED, new.filter(~wins))
        yield Emission(0, winners.rename({SEQ: PARENT}).drop(STEP, SEQUENCE))
        sequences = pl.concat([stored[SEQUENCE], new[SEQUENCE]])
        winners = winners.with_columns(gather(sequences, ints(places.filter(wins))).alias(SEQUENCE))
        (kid,) = number_keys(KEY_HASH, self.keys, [winners])
        until = pl.when(~pl.col(LIVE)).then(pl.col(TS) + pl.lit(self.retention_us, pl.Int64)).alias(UNTIL)
        known = last_by(winners, kid).with_columns(until).with_columns(pl.lit(value=True).alias(LIVE))
        trace.insert(known.filter(pl.col(SEQUENCE).is_not_null()), expired_before=context.observed)

    def _places(self, stored: pl.DataFrame, new: pl.DataFrame, context: Context) -> list[int]:
        """Where the sequence of each change is, among the stored ones and the new ones; `_LOST` if it is not emitted.

        That of a tombstone without one is the sequence that is known, `_NONE` if none is.
        """
        ranks = pl.concat([stored[SEQUENCE], new[SEQUENCE]]).rank("dense").cast(pl.Int64).to_list()
        numbers = [one.tolist() for one in number_keys(KEY_HASH, self.keys, [stored, new])]
        until = stored[UNTIL].to_list()
        known = {key: (row, until[row]) for row, key in enumerate(numbers[0])}
        places = []
        for row, (time, live) in enumerate(new.select(TS, LIVE).iter_rows()):
            at, end = known.get(numbers[1][row], (_NONE, None))
            observed = time if context.observed is None else max(time, context.observed)
            context.observed = observed
            if end is not None and end < observed:
                at = _NONE
            mine = stored.height + row
            if ranks[mine] is None:
                mine = at
            elif at != _NONE and ranks[mine] < ranks[at]:
                mine = _LOST
            places.append(mine)
            if mine >= 0:
                kept = live or self.retention_us is None
                known[numbers[1][row]] = (mine, None if kept else time + (self.retention_us or 0))
        return places
