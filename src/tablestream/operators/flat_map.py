"""Flat map: a record becomes one record for each element of an array.

====================================  ==============================================================
record                                emits, with the record's key and time
====================================  ==============================================================
no value, no array, or an empty one   nothing
any other                             a record for each element, in order; a null element has no value
====================================  ==============================================================

References
----------
Kafka Streams ``KStream.flatMapValues``; ``docs/semantics/streams.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from tablestream.operators.operator import NUMBER, PARENT, Context, Emission, Operator, keyed_changes
from tablestream.state.changes import LIVE, SEQ, STEP


@dataclass(frozen=True)
class FlatMap(Operator):
    """Expand arrays into records; stateless.

    Parameters
    ----------
    keys
        The key columns and their dtypes.
    arrays, value
        The dtypes of an arriving record's value, which has only the array, and of an emitted one's.
    takes_apart
        Whether elements are structs, whose fields become the columns of the emitted records.

    Notes
    -----
    Input and output 0: ``_kh``, key, ``_ts``, ``_live``, ``v``.
    """

    keys: pl.Schema
    arrays: pl.DataType
    value: pl.DataType
    takes_apart: bool

    traces = ()

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        return (keyed_changes(self.keys, self.arrays),)

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        return (keyed_changes(self.keys, self.value),)

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:  # noqa: ARG002
        (arrived,) = inputs
        unfolded = (
            arrived.drop(STEP)
            .with_columns(pl.col("v").struct.field("c0").alias("v"))
            .filter(pl.col("v").list.len() > 0)
            .with_columns(pl.int_ranges(pl.col("v").list.len()).alias(NUMBER))
            .explode("v", NUMBER)
        )
        # By their places: Polars takes a field called `*` for all fields.
        parts = unfolded["v"].struct.unnest() if self.takes_apart else unfolded.select("v")
        parts.columns = [f"c{number}" for number in range(parts.width)]
        made = unfolded.with_columns(pl.col("v").is_not_null().alias(LIVE), parts.to_struct("v"))
        yield Emission(0, made.rename({SEQ: PARENT}).with_columns(pl.when(LIVE).then("v")))
