"""First half of a foreign-key join: a change of a left row becomes messages to its old and new foreign keys.

Keyed by the left table's key. The operator remembers only the foreign key of every left row.

``f`` is the foreign key before the change ("none" if there was no row or it was null), ``n`` the one after it.

INNER (and RIGHT, except for its unmatched right rows)

==========  ======  ======  =============================================
new row     before  now     messages
==========  ======  ======  =============================================
present     --      none    dropped, counted; UNSUBSCRIBE_ANSWER to f if any
present     none    n       ANSWER_IF_FOUND to n
present     n       n       ANSWER_IF_FOUND to n
present     f       n       UNSUBSCRIBE to f; ANSWER_ALWAYS to n
absent      f       --      UNSUBSCRIBE_ANSWER to f
absent      none    --      nothing
==========  ======  ======  =============================================

LEFT (and OUTER)

===============================  ======  ======  =================================
row                              before  now     messages
===============================  ======  ======  =================================
absent before and now            --      --      nothing
any other                        f       n != f  UNSUBSCRIBE to f, then as below
any other                        --      n       ANSWER_ALWAYS to n
any other                        --      none    the answer itself: no right row
===============================  ======  ======  =================================

PAIR (one to many): as INNER, but a changed foreign key sends UNSUBSCRIBE_ANSWER to f and ANSWER_IF_FOUND to n.

References
----------
KIP-213; KAFKA-18713, KAFKA-16407 (the rules since 4.1); ``docs/semantics/foreign-key-join.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum

import numpy as np
import polars as pl

from tablestream.operators.arrangement import Deltas, TableRows, Turn
from tablestream.operators.events import (
    bools,
    ints,
    left_and_reached,
    pick,
    same_rows,
)
from tablestream.operators.operator import NUMBER, PARENT, Context, Emission, Filled, HasFinal, keyed_rows
from tablestream.operators.reasons import NULL_FOREIGN_KEY
from tablestream.state.changes import FOREIGN_HASH, KEY_HASH, LIVE, SEQ, TS
from tablestream.state.positions import Bools, Ints, gather
from tablestream.state.trace_spec import TraceSpec


class Rules(Enum):
    """Which of the tables above applies."""

    INNER = "inner"
    LEFT = "left"
    PAIR = "pair"


class Ask(IntEnum):
    """What a message asks of the right side. The first two end a subscription; the others make or renew it."""

    UNSUBSCRIBE = 0
    UNSUBSCRIBE_ANSWER = 1
    ANSWER_ALWAYS = 2
    ANSWER_IF_FOUND = 3


KIND, NEW, CHANGED = "_kind", "_new", "_changed"
VALUE_HASH = "_vh"

#: Outputs of the operator.
TO_RIGHT, TO_RESULT = 0, 1


def ask_schema(foreign_keys: Mapping[str, pl.DataType], keys: pl.Schema, value: pl.DataType) -> pl.Schema:
    """The columns of messages to the right side; `foreign_keys`: those by which they go there."""
    row = {FOREIGN_HASH: pl.Int64(), **foreign_keys, KEY_HASH: pl.Int64(), **keys, TS: pl.Int64()}
    return pl.Schema({**row, KIND: pl.Int8(), NEW: pl.Boolean(), CHANGED: pl.Boolean(), "v": value})


def answer_schema(
    keys: pl.Schema, foreign_keys: Mapping[str, pl.DataType], value: pl.DataType, right_value: pl.DataType
) -> pl.Schema:
    """The columns of answers; `foreign_keys`: those that are part of their key."""
    return keyed_rows(pl.Schema({**keys, **foreign_keys}), {"v0": value, "v1": right_value})


@dataclass(frozen=True)
class ForeignKeySubscribe(HasFinal):
    """The left half of a foreign-key join.

    Input: ``_kh``, key, ``_ts``, ``_live``, ``_fh`` (null: the foreign key is null), foreign key, ``v``.
    Output 0: ``_fh``, foreign key, ``_kh``, key, ``_ts``, ``_kind``, ``_new`` (not subscribed there before),
    ``_changed``, ``v``. Output 1: answers that need no right row, in the columns of `ForeignKeyAnswer`.
    """

    rules: Rules
    """Which table of messages applies."""
    keys: pl.Schema
    foreign_keys: pl.Schema
    """The columns and dtypes of the left table's key and of the foreign key."""
    value: pl.DataType
    right_value: pl.DataType
    """The dtypes of the two values."""
    keep_right: bool = False
    """Whether the result's key includes the right key."""
    compare_values: bool = False
    """Whether messages say if the value changed (self-joins in compat mode need it). The input then has ``_vh``, a hash
    of the value."""

    parameters = ("rules", "keep_right", "final")
    takes_last = True

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        columns = {FOREIGN_HASH: pl.Int64(), **self.foreign_keys, "v": self.value}
        hashed = {VALUE_HASH: Filled(pl.Int64(), "{value_hash}")} if self.compare_values else {}
        return (keyed_rows(self.keys, {**columns, **hashed}),)

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        unmatched = self.keep_right or self.rules is Rules.PAIR
        answers = answer_schema(
            self.keys, self.foreign_keys if unmatched else {}, self.value, self.right_value
        )
        return ask_schema(self.foreign_keys, self.keys, self.value), answers

    @property
    def can_be_final(self) -> bool:
        return self.rules is Rules.LEFT and not self.keep_right

    @property
    def rejects(self) -> bool:
        return self.rules is not Rules.LEFT

    @property
    def _trace(self) -> TraceSpec:
        columns = {KEY_HASH: pl.Int64(), **self.keys, LIVE: pl.Boolean(), FOREIGN_HASH: pl.Int64()}
        columns |= dict(self.foreign_keys)
        if self.compare_values:
            columns[VALUE_HASH] = pl.Int64()
        return TraceSpec(name="foreign keys", hash=KEY_HASH, key=tuple(self.keys), schema=pl.Schema(columns))

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return (self._trace,)

    @property
    def reasons(self) -> tuple[str, ...]:
        return (NULL_FOREIGN_KEY,) if self.rejects else ()

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        (arrived,) = inputs
        trace = context.trace(self._trace.name)
        table = TableRows.of(trace, arrived[[SEQ, *trace.spec.schema]])
        moves = self._moves(table, arrived.height)
        if self.rejects:
            context.reject(NULL_FOREIGN_KEY, arrived[moves.message[moves.live & ~moves.has]])
        yield Emission(TO_RIGHT, self._messages(moves, arrived))
        if self.rules is Rules.LEFT:
            yield Emission(TO_RESULT, self._direct_answers(moves, arrived))
        table.remember(trace)

    def _moves(self, table: TableRows, messages: int) -> _Pointing:
        """Compare the foreign key of each row with that of the row it replaces."""
        rows = table.rows
        deltas = table.deltas(Turn.MICRO_BATCH if self.final else Turn.MESSAGE, minimal=True)
        points = bools(rows[FOREIGN_HASH].is_not_null() & rows[LIVE])
        foreign = rows[[FOREIGN_HASH, *self.foreign_keys]]
        return _Pointing(
            deltas=deltas,
            message=deltas.now - (rows.height - messages),
            has=points[deltas.now],
            had=pick(points, deltas.before, False),
            same=same_rows(foreign, deltas.now, deltas.before),
        )

    def _messages(self, moves: _Pointing, arrived: pl.DataFrame) -> pl.DataFrame:
        """The messages to old and new foreign keys, in the order of the changes."""
        leaving, leave_kind = moves.leaving(self.rules)
        coming, come_kind = moves.coming(self.rules)
        now, before = moves.deltas.now, moves.deltas.before
        move, comes = left_and_reached(now, leaving, coming)
        foreign = moves.deltas.rows[[FOREIGN_HASH, *self.foreign_keys]]
        address = foreign[np.where(comes, now[move], before[move])]
        message = moves.message[move]
        change = arrived.select(pl.col(SEQ).alias(PARENT), KEY_HASH, *self.keys, TS)[message]
        messages: pl.DataFrame = address.hstack(change).with_columns(
            gather(arrived["v"], np.where(comes, message, -1)).alias("v"),
            pl.Series(KIND, np.where(comes, come_kind[move], leave_kind[move]), dtype=pl.Int8),
            pl.Series(NEW, comes & ~(moves.had & moves.same)[move], dtype=pl.Boolean),
            pl.Series(NUMBER, comes, dtype=pl.Boolean).cast(pl.Int64),
            pl.Series(CHANGED, self._changed(moves.deltas)[move], dtype=pl.Boolean),
        )
        return messages

    def _changed(self, deltas: Deltas) -> Bools:
        """Whether the row differs from the one before."""
        if not self.compare_values:
            return np.ones(len(deltas.now), dtype=bool)
        hashes = ints(deltas.rows[VALUE_HASH].fill_null(0))
        same = (hashes[deltas.now] == hashes[deltas.before]) & deltas.live & deltas.was
        return np.asarray(~same)

    def _direct_answers(self, moves: _Pointing, arrived: pl.DataFrame) -> pl.DataFrame:
        """LEFT: rows with a null foreign key, and deletes, are answered without a right row."""
        mine = (moves.live | moves.deltas.was) & ~moves.has
        right = {**(self.foreign_keys if self.keep_right else {}), "v1": self.right_value}
        answers = arrived.select(
            pl.col(SEQ).alias(PARENT), KEY_HASH, *self.keys, TS, LIVE, pl.col("v").alias("v0")
        )
        return answers[moves.message[mine]].with_columns(
            pl.lit(1, pl.Int64).alias(NUMBER),
            *(pl.lit(None, kind).alias(name) for name, kind in right.items()),
        )


@dataclass(frozen=True)
class _Pointing:
    """The changes of left rows, and what they do to foreign keys.

    ``message``: the change's position among the messages; ``has``, ``had``: the row has, had a foreign key; ``same``:
    both are equal, or both null.
    """

    deltas: Deltas
    message: Ints
    has: Bools
    had: Bools
    same: Bools

    @property
    def live(self) -> Bools:
        """Whether the left row exists."""
        return self.deltas.live

    def leaving(self, rules: Rules) -> tuple[Bools, Ints]:
        """Which changes end a subscription, and with which kind of message."""
        leaves = self.had & ~(self.has & self.same)
        silent = (self.has | (rules is Rules.LEFT)) & (rules is not Rules.PAIR)
        return leaves, np.where(silent, Ask.UNSUBSCRIBE, Ask.UNSUBSCRIBE_ANSWER).astype(np.int64)

    def coming(self, rules: Rules) -> tuple[Bools, Ints]:
        """Which changes make or renew a subscription, and with which kind of message."""
        always = ((self.had & ~self.same) | (rules is Rules.LEFT)) & (rules is not Rules.PAIR)
        return self.has, np.where(always, Ask.ANSWER_ALWAYS, Ask.ANSWER_IF_FOUND).astype(np.int64)
