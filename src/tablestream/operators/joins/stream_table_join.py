"""The records of a stream, each with the row of a table that it points at.

=================================  ==================  =================================
record                             inner               left
=================================  ==================  =================================
no value                           dropped, counted    dropped, counted
points at nothing                  dropped, counted    the record, without a row
points at an absent row            nothing             the record, without a row
points at a row                    both                both
=================================  ==================  =================================

The result has the record's key and time. Changes of the table emit nothing. A record is joined with the row that was
written last, whatever the row's time.

``atomic``: a step's changes of the table come before its records. Otherwise messages are processed one by one.

References
----------
Kafka Streams ``KStream.join`` and ``leftJoin`` with a ``KTable`` or a ``GlobalKTable``; KIP-962;
``docs/semantics/streams.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tablestream.operators.arrangement import Arrangement, TableRows, table_rows
from tablestream.operators.events import bools, ints, pick
from tablestream.operators.operator import (
    PARENT,
    Context,
    Emission,
    Pointing,
    keyed_rows,
    rows_trace,
    timed_changes,
)
from tablestream.operators.reasons import NULL_KEY_OR_VALUE
from tablestream.state.changes import (
    FOREIGN_HASH,
    KEY_HASH,
    LIVE,
    SEQ,
    STEP,
    TS,
)
from tablestream.state.positions import Ints, gather
from tablestream.state.trace_spec import TraceSpec


@dataclass(frozen=True)
class StreamTableJoin(Pointing):
    """Look up a row for every record.

    Input 0, the stream: ``_kh``, key, ``_ts``, ``_live``, ``_fh`` (null: it points at nothing), foreign key, ``v``.
    Input 1, the table: ``_fh``, foreign key, ``_ts``, ``_row_ts``, ``_live``, ``v``. Output 0: ``_kh``, key,
    ``_ts``, ``_live``, ``v0``, ``v1``.
    """

    keep_left: bool = False
    """Whether an unmatched record is emitted."""
    atomic: bool = True
    """Whether the table's changes of a step come before its records."""

    parameters = ("keep_left",)
    reasons = (NULL_KEY_OR_VALUE,)
    rejects = True

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        return stream_table_inputs(self.keys, self.foreign_keys, self.value, self.right_value)

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        return (keyed_rows(self.keys, {"v0": self.value, "v1": self.right_value}),)

    @property
    def _table(self) -> TraceSpec:
        return rows_trace("table", self.foreign_keys, {"v": self.right_value}, hashed=FOREIGN_HASH)

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return (self._table,)

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        arrived, changes = inputs
        records = joinable(arrived, context, keep_left=self.keep_left)
        trace = context.trace(self._table.name)
        (table,), (asked,) = table_rows([(trace, changes)], [records])
        found = self._found(table, records, asked)
        if not self.keep_left:
            records, found = records.filter(pl.Series(found >= 0)), found[found >= 0]
        joined = records.select(
            pl.col(SEQ).alias(PARENT), KEY_HASH, *self.keys, TS, LIVE, pl.col("v").alias("v0")
        )
        yield Emission(0, joined.with_columns(gather(table.rows["v"], found).alias("v1")))
        table.remember(trace)

    def _found(self, table: TableRows, records: pl.DataFrame, asked: Ints) -> Ints:
        """The position of the row that each record is joined with; -1 if there is none."""
        rows = table.rows
        # Sorting keeps the order of equal places: a record comes after the changes that it sees.
        place = np.concatenate([ints(rows[SEQ]), self._place(rows, records)])
        arranged = Arrangement.of(np.concatenate([table.key, asked]), place)
        last = arranged.by_row(arranged.latest(arranged.row < rows.height))[rows.height :]
        there = pick(bools(rows[LIVE]), last, False) & bools(records[FOREIGN_HASH].is_not_null())
        return np.where(there, last, -1)

    def _place(self, rows: pl.DataFrame, records: pl.DataFrame) -> Ints:
        """The last place of a change that each record sees."""
        if not self.atomic:
            return ints(records[SEQ])
        return last_places([rows, records])[ints(records[STEP])]


def joinable(arrived: pl.DataFrame, context: Context, *, keep_left: bool) -> pl.DataFrame:
    """Drop and count records without a value and, unless `keep_left`, those that point at nothing."""
    joins = pl.col(LIVE) if keep_left else pl.col(LIVE) & pl.col(FOREIGN_HASH).is_not_null()
    context.reject(NULL_KEY_OR_VALUE, arrived.filter(~joins))
    return arrived.filter(joins)


def last_places(frames: Sequence[pl.DataFrame]) -> Ints:
    """Return the last place of each step; the array's index is the step."""
    steps = np.concatenate([ints(frame[STEP]) for frame in frames])
    last = np.zeros(int(steps.max(initial=0)) + 1, dtype=np.int64)
    np.maximum.at(last, steps, np.concatenate([ints(frame[SEQ]) for frame in frames]))
    return last


def stream_table_inputs(
    keys: pl.Schema, foreign_keys: pl.Schema, value: pl.DataType, right_value: pl.DataType
) -> tuple[pl.Schema, pl.Schema]:
    """The columns of the records of a stream and of the changes of the table that they point at."""
    records = keyed_rows(keys, {FOREIGN_HASH: pl.Int64(), **foreign_keys, "v": value})
    return records, timed_changes(foreign_keys, right_value, FOREIGN_HASH)
