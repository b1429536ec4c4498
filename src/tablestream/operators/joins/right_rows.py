"""A left foreign-key join that emits only the right row: the lookup of a star join.

The answer to a left key is the right row that it points at, or a tombstone if there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from tablestream.operators.joins.foreign_key_answer import ForeignKeyAnswer
from tablestream.operators.joins.foreign_key_subscribe import ForeignKeySubscribe
from tablestream.operators.joins.global_join import GlobalJoin
from tablestream.operators.operator import NUMBER, PARENT, Context, Emission, Operator
from tablestream.state.changes import KEY_HASH, LIVE, TS
from tablestream.state.trace_spec import TraceSpec


@dataclass(frozen=True)
class RightRows(Operator):
    """One half of such a join, or both halves.

    Inputs: those of the half. The output with the answers: ``_kh``, key, ``_ts``, ``_live``, ``v``.
    """

    join: ForeignKeySubscribe | ForeignKeyAnswer | GlobalJoin
    """The half."""
    output: int
    """The number of the output with the answers."""
    keys: tuple[str, ...]
    """The columns of the left key."""

    takes_last = True

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        return self.join.inputs

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        made = list(self.join.outputs)
        columns = {name: made[self.output][name] for name in (KEY_HASH, *self.keys, TS, LIVE)}
        made[self.output] = pl.Schema({**columns, "v": made[self.output]["v1"]})
        return tuple(made)

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return self.join.traces

    @property
    def reasons(self) -> tuple[str, ...]:
        return self.join.reasons

    @property
    def rejects(self) -> bool:
        return self.join.rejects

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        columns = (PARENT, NUMBER, KEY_HASH, *self.keys, TS)
        for emission in self.join.run(inputs, context):
            if emission.output != self.output:
                yield emission
                continue
            there = pl.col("v1").is_not_null().alias(LIVE)
            yield Emission(self.output, emission.rows.select(*columns, there, pl.col("v1").alias("v")))
