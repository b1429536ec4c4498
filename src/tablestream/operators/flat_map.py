"""Flat map: a record, or a row of a table, becomes one for each element of an array.

Of a stream:

====================================  ==============================================================
record                                emits, with the record's key and time
====================================  ==============================================================
no value, no array, or an empty one   nothing
any other                             a record for each element, in order; a null element has no value
====================================  ==============================================================

Of a table, keyed by the row's key and the element's position, which counts from 0:

=====================  ============================================================
element at a position  emits, for the row's key and the position, at its time
=====================  ============================================================
is new, or another     the element; a null element is a row of nulls
is the same            nothing
is there no more       a tombstone
=====================  ============================================================

No row, no array and an empty array have no elements. With `final` all this compares the rows after a micro-batch with
those before it, and otherwise those after and before a step.

References
----------
Kafka Streams ``KStream.flatMapValues``; ``docs/semantics/streams.md``. Spark's ``posexplode``;
``docs/semantics/other-keys.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tablestream.operators.arrangement import Deltas, TableRows, Turn
from tablestream.operators.events import expanded_in_parts, ints, pick, same_rows
from tablestream.operators.operator import (
    FAN_OUT_ROWS,
    NUMBER,
    PARENT,
    Context,
    Emission,
    HasFinal,
    Operator,
    keyed_changes,
    rows_trace,
)
from tablestream.state.changes import KEY_HASH, LIVE, SEQ, STEP, TS, key_columns
from tablestream.state.positions import Bools, Ints, gather
from tablestream.state.trace_spec import TraceSpec


@dataclass(frozen=True)
class _OfArrays(Operator):
    """Takes arrays apart."""

    keys: pl.Schema
    """The key columns and their dtypes."""
    arrays: pl.DataType
    value: pl.DataType
    """The dtypes of an arriving value, which has only the array, and of an emitted one."""
    takes_apart: bool
    """Whether elements are structs, whose fields become the columns of what is emitted."""

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        return (keyed_changes(self.keys, self.arrays),)

    def _columns(self, elements: pl.Series) -> pl.DataFrame:
        """The columns of elements, by their places: Polars takes a field called `*` for all fields."""
        parts = elements.struct.unnest() if self.takes_apart else elements.to_frame()
        parts.columns = [f"c{number}" for number in range(parts.width)]
        return parts


@dataclass(frozen=True)
class FlatMap(_OfArrays):
    """Expand arrays into records; stateless.

    Notes
    -----
    Input and output 0: ``_kh``, key, ``_ts``, ``_live``, ``v``.
    """

    traces = ()

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
        values = self._columns(unfolded["v"]).to_struct("v")
        made = unfolded.with_columns(pl.col("v").is_not_null().alias(LIVE), values)
        yield Emission(0, made.rename({SEQ: PARENT}).with_columns(pl.when(LIVE).then("v")))


@dataclass(frozen=True)
class Elements(HasFinal, _OfArrays):
    """Expand the arrays of a table.

    Notes
    -----
    Input: ``_kh``, key, ``_ts``, ``_live``, ``v``. Output 0: the same with the position as the last part of the key;
    ``_kh`` is the hash of the row's key. Cost: the elements of the arrays before and after each change.
    """

    keeps_shard = True

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        return (keyed_changes(pl.Schema({**self.keys, self._position: pl.Int32()}), self.value),)

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return (rows_trace("rows", self.keys, {"v": self.arrays}),)

    @property
    def _position(self) -> str:
        return key_columns(len(self.keys) + 1)[-1]

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        (arrived,) = inputs
        trace = context.trace(self.traces[0].name)
        table = TableRows.of(trace, arrived)
        turn = Turn.MICRO_BATCH if self.final else Turn.STEP
        yield from self._emitted(table.deltas(turn, minimal=True))
        table.remember(trace)

    def _emitted(self, deltas: Deltas) -> Iterator[Emission]:
        elements = _Arrays.of(deltas.rows["v"].struct.field("c0"))
        parts = self._columns(elements.flat)
        after, before = (
            elements.of_rows(at, live)
            for at, live in ((deltas.now, deltas.live), (deltas.before, deltas.was))
        )
        longest = np.maximum(after.length, before.length)
        changes = deltas.rows.select(pl.col(SEQ).alias(PARENT), KEY_HASH, *self.keys, TS)
        for of, position in expanded_in_parts(np.zeros_like(longest), longest, FAN_OUT_ROWS):
            now, was = after.at(of, position), before.at(of, position)
            changed = ~same_rows(parts, now, was) | ((now < 0) != (was < 0))
            live = pl.Series(now[changed] >= 0, dtype=pl.Boolean)
            values = pl.select(pl.struct(gather(part, now[changed]) for part in parts)).to_series()
            number = pl.Series(position[changed], dtype=pl.Int64)
            made = changes[deltas.now[of[changed]]].with_columns(
                number.cast(pl.Int32).alias(self._position),
                number.alias(NUMBER),
                live.alias(LIVE),
                pl.when(live).then(values).alias("v"),
            )
            yield Emission(0, made)


@dataclass(frozen=True)
class _Arrays:
    """Arrays one after the other: all their elements, and per array where it begins and how long it is."""

    flat: pl.Series
    start: Ints
    length: Ints

    @classmethod
    def of(cls, arrays: pl.Series) -> _Arrays:
        length = ints(arrays.list.len().cast(pl.Int64).fill_null(0))
        flat = arrays.filter(pl.Series(length > 0, dtype=pl.Boolean)).explode()
        return cls(flat, np.cumsum(length) - length, length)

    def of_rows(self, rows: Ints, live: Bools) -> _Arrays:
        """The arrays of some rows; that of a row that does not exist is empty."""
        length = np.where(live, pick(self.length, rows, 0), 0)
        return _Arrays(self.flat, pick(self.start, rows, 0), length)

    def at(self, array: Ints, position: Ints) -> Ints:
        """The places of elements in `flat`; -1: the array is shorter."""
        return np.where(position < self.length[array], self.start[array] + position, -1)
