"""A foreign-key join with a global table: both halves run in one operator.

The rules are those of `foreign_key_subscribe` and `foreign_key_answer`. The messages of the first half do not travel:
each takes a place right after the left change that caused it, and is answered in the same shard. Changes of the right
table go to every shard.

`RightRows` is a left foreign-key join, with a global table or not, that emits only the right row: the lookup of a star
join. The answer to a left key is the right row that it points at, or a tombstone if there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import polars as pl

from tablestream.operators.joins.foreign_key_answer import AFTER_FAN_OUT, ForeignKeyAnswer
from tablestream.operators.joins.foreign_key_subscribe import TO_RIGHT, ForeignKeySubscribe
from tablestream.operators.operator import NUMBER, PARENT, Context, Emission, HasFinal, Operator
from tablestream.state.changes import KEY_HASH, LIVE, SEQ, STEP, TS
from tablestream.state.trace_spec import TraceSpec

#: Places per message: one for a right change, the others for what a left change causes.
_PLACES = 4


@dataclass(frozen=True)
class GlobalJoin(HasFinal):
    """Both halves of a foreign-key join, for a right table that every shard has.

    Input 0: that of the first half. Input 1: the right changes. Output 0: that of the second half.
    """

    subscribe: ForeignKeySubscribe
    answer: ForeignKeyAnswer
    """The halves."""

    takes_last = True

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        return (*self.subscribe.inputs, self.answer.inputs[1])

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        return self.answer.outputs

    @property
    def can_be_final(self) -> bool:
        return self.answer.can_be_final

    @property
    def rejects(self) -> bool:
        return self.subscribe.rejects

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return (*self.subscribe.traces, *self.answer.traces)

    @property
    def reasons(self) -> tuple[str, ...]:
        return (*self.subscribe.reasons, *self.answer.reasons)

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        left, right = inputs
        subscribe, answer = (replace(half, final=self.final) for half in (self.subscribe, self.answer))
        sent: list[pl.DataFrame] = []
        for emission in subscribe.run([left], context):
            if emission.output == TO_RIGHT:
                sent.append(emission.rows)
            else:
                rows = emission.rows.with_columns(pl.col(NUMBER) + AFTER_FAN_OUT + _PLACES)
                yield Emission(0, rows)
        messages = self._placed(pl.concat(sent), left)
        changes = right.with_columns(pl.col(SEQ) * _PLACES)
        first: dict[int, int] = {}
        for emission in answer.run([messages, changes], context):
            cause, behind = pl.col(PARENT) // _PLACES, pl.col(PARENT) % _PLACES
            # A right change goes to every shard, and each shard numbers its answers from 0.
            own = context.among_shards(pl.col(NUMBER) - self._first(emission.rows, first))
            number = pl.when(behind == 0).then(own).otherwise(NUMBER) + behind
            yield Emission(0, emission.rows.with_columns(cause.alias(PARENT), number.alias(NUMBER)))

    @staticmethod
    def _first(rows: pl.DataFrame, known: dict[int, int]) -> pl.Series:
        """The first emission number of each row's cause; a large fan-out is split into several emissions."""
        for cause, number in rows.group_by(PARENT).agg(pl.col(NUMBER).min()).iter_rows():
            known.setdefault(cause, number)
        return rows[PARENT].replace_strict(list(known), list(known.values()), return_dtype=pl.Int64)

    @staticmethod
    def _placed(messages: pl.DataFrame, left: pl.DataFrame) -> pl.DataFrame:
        """Place the messages of the first half after the changes that caused them."""
        steps = left.select(pl.col(SEQ).alias(PARENT), STEP)
        place = pl.col(PARENT) * _PLACES + 1 + pl.col(NUMBER)
        placed = messages.join(steps, on=PARENT, how="left", maintain_order="left").with_columns(
            place.alias(SEQ)
        )
        return placed.drop(PARENT, NUMBER).sort(SEQ)


@dataclass(frozen=True)
class RightRows(Operator):
    """What emits only the right rows of a left foreign-key join: one half of it, or both halves if it is global.

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
