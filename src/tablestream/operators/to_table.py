"""Turns the records of a stream into the changes of a table.

================================  ==============================================================
record                            emits
================================  ==============================================================
a needed part of the key is null  nothing; dropped, counted
any other                         the record: a row, or a tombstone if it has no value
================================  ==============================================================

``atomic``: of several records of a step with one key, only the last is emitted.

References
----------
Kafka Streams ``KStream.toTable``; ``docs/semantics/streams.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import polars as pl

from tablestream.operators.operator import PARENT, Context, Emission, OfTable
from tablestream.operators.reasons import NULL_KEY
from tablestream.state.changes import SEQ, STEP


@dataclass(frozen=True)
class ToTable(OfTable):
    """Read records as upserts and tombstones; stateless.

    Input and output 0: ``_kh``, key, ``_ts``, ``_live``, ``v``.
    """

    atomic: bool = True
    """Whether a step emits once per key."""
    nullable: tuple[bool, ...] = ()
    """Which parts of the key may be null; empty: none."""

    traces = ()
    reasons = (NULL_KEY,)
    rejects = True
    keeps_shard = True

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        (arrived,) = inputs
        needed = [name for name, can_be_null in zip_longest(self.keys, self.nullable) if not can_be_null]
        has_key = pl.all_horizontal(pl.lit(value=True), pl.col(needed).is_not_null())
        keyed = arrived.filter(has_key)
        context.reject(NULL_KEY, arrived.filter(~has_key))
        if self.atomic:
            keyed = keyed.unique([STEP, *self.keys], keep="last", maintain_order=True)
        yield Emission(0, keyed.rename({SEQ: PARENT}).drop(STEP))
