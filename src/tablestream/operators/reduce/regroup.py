"""First half of a grouping: a change of a row becomes messages to its old and new groups.

Keyed by the table's key. The operator remembers each row's group, and the part of the row that is aggregated.

``g`` is the group that the row belonged to before ("none" if there was no row, or it had no group), ``n`` the one now.

======  ======  ================================================
before  now     messages
======  ======  ================================================
none    none    nothing
none    n       the new row to n
g       none    the old row to g
g       n = g   one message to g, with the old row and the new
g       n       the old row to g, then the new row to n
======  ======  ================================================

``atomic``: a step's changes of a row are one change, from the row before the step to the row after it.

References
----------
KIP-904; Kafka Streams ``KTable.groupBy``; ``docs/semantics/groups.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tablestream.operators.arrangement import Deltas, TableRows, Turn
from tablestream.operators.events import (
    bools,
    ints,
    left_and_reached,
    pick,
    repeats,
    same_rows,
)
from tablestream.operators.operator import NUMBER, PARENT, Context, Emission, Operator, keyed_rows
from tablestream.state.changes import FOREIGN_HASH, KEY_HASH, LIVE, SEQ, STEP, TS
from tablestream.state.positions import gather
from tablestream.state.trace_spec import TraceSpec

#: Columns of a message: the old row, and whether the message has an old row and a new one.
OLD, WAS, IS = "old", "_was", "_is"


@dataclass(frozen=True)
class Regroup(Operator):
    """Send the changes of rows to their groups.

    Input: ``_kh``, key, ``_ts``, ``_live``, ``_fh`` (hash of the group; null: the row has no group), group key,
    ``v``. Output 0: ``_fh``, group key, ``_kh``, key (both only if `sends_keys`), ``_ts``, ``_was``, ``_is``,
    ``old``, ``v``.
    """

    keys: pl.Schema
    group_keys: pl.Schema
    """The columns and dtypes of the table's key and of the group's."""
    value: pl.DataType
    """The dtype of the part of a row that is aggregated."""
    atomic: bool = True
    """Whether a step's changes of a row are one change."""
    sends_keys: bool = True
    """Whether messages have the row's key. What keeps no rows can do without."""
    repeats: bool = True
    """Whether a row that is written again with the same group and value is a message."""

    takes_last = True

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        return (keyed_rows(self.keys, {FOREIGN_HASH: pl.Int64(), **self.group_keys, "v": self.value}),)

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        return (message_schema(self.keys if self.sends_keys else None, self.group_keys, self.value),)

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        columns = {KEY_HASH: pl.Int64(), **self.keys, LIVE: pl.Boolean(), FOREIGN_HASH: pl.Int64()}
        schema = pl.Schema({**columns, **self.group_keys, "v": self.value})
        return (TraceSpec(name="grouped rows", hash=KEY_HASH, key=tuple(self.keys), schema=schema),)

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        (arrived,) = inputs
        trace = context.trace(self.traces[0].name)
        table = TableRows.of(trace, arrived.select(SEQ, STEP, TS, *trace.spec.schema))
        yield Emission(0, self._messages(table.deltas(Turn.STEP if self.atomic else Turn.MESSAGE)))
        table.remember(trace)

    def _messages(self, deltas: Deltas) -> pl.DataFrame:
        """The messages, in the order of the changes."""
        rows, now, before = deltas.rows, deltas.now, deltas.before
        counts = bools(rows[FOREIGN_HASH].is_not_null() & rows[LIVE])
        has, had = counts[now], pick(counts, before, False)
        stays = has & had & same_rows(rows.select(FOREIGN_HASH, *self.group_keys), now, before)
        if not self.repeats:
            again = stays & repeats(rows["v"], rows["v"].struct.fields, now, np.where(stays, before, -1))
            stays, has, had = stays & ~again, has & ~again, had & ~again
        cause = ints(rows[SEQ])[deltas.first]
        turn, new = left_and_reached(deltas.first, had & ~stays, has)
        was = ~new | stays[turn]
        group = rows.select(FOREIGN_HASH, *self.group_keys)[np.where(new, now[turn], before[turn])]
        key = (KEY_HASH, *self.keys) if self.sends_keys else ()
        change = rows.select(*key, TS)[now[turn]]
        messages: pl.DataFrame = group.hstack(change).with_columns(
            pl.Series(PARENT, cause[turn], dtype=pl.Int64),
            pl.Series(NUMBER, new, dtype=pl.Boolean).cast(pl.Int64),
            pl.Series(WAS, was, dtype=pl.Boolean),
            pl.Series(IS, new, dtype=pl.Boolean),
            gather(rows["v"], np.where(was, before[turn], -1)).alias(OLD),
            gather(rows["v"], np.where(new, now[turn], -1)).alias("v"),
        )
        return messages


def message_schema(keys: pl.Schema | None, group_keys: pl.Schema, value: pl.DataType) -> pl.Schema:
    """The columns of the messages to groups. `keys`: those of the row's key; None: it does not travel."""
    key = {} if keys is None else {KEY_HASH: pl.Int64(), **keys}
    head = {FOREIGN_HASH: pl.Int64(), **group_keys, **key, TS: pl.Int64()}
    return pl.Schema({**head, WAS: pl.Boolean(), IS: pl.Boolean(), OLD: value, "v": value})
