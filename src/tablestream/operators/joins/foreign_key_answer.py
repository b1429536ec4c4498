"""Second half of a foreign-key join: joins subscriptions with the right table.

Keyed by the foreign key. The operator remembers every subscription (foreign key, left key) with its left value, and
the right table. A message sees the right row as it is at the message's place.

=====================  ===========================================  ==================================
left message           answer (not PAIR)                            time
=====================  ===========================================  ==================================
UNSUBSCRIBE            none                                         --
UNSUBSCRIBE_ANSWER     tombstone                                    max(message, right row if any)
ANSWER_ALWAYS          row; INNER without right row: tombstone      max(message, right row if any)
ANSWER_IF_FOUND        row if there is a right row, else none       max(message, right row)
=====================  ===========================================  ==================================

A right change answers every subscriber, in the order of the left keys, with **its own** time. The answer is a row. If
the right row was deleted, it is a tombstone (INNER) or a row without a right part (LEFT).

PAIR (one to many, keyed by both keys): a tombstone is emitted only if the right row exists (a left row is deleted) or
existed (the right row is deleted); otherwise nothing is. In an atomic step this means before the step: if a right row
was inserted and its left row deleted, the pair never existed.

``keep_right``: unmatched rows of the right table are emitted as well (RIGHT, OUTER, and LEFT of one to many), before
the answers of the step. A right key is *unmatched* if its row exists and nothing is subscribed to it. Per step (per
event, if not atomic):

=============  ============  =================  ============================================
was unmatched  is unmatched  right row changed  emits, keyed (null, right key)
=============  ============  =================  ============================================
any            yes           yes                row, at the right change's time
no             yes           no                 row, at max(left changes, right row)
yes            no            yes                tombstone, at the right change's time
yes            no            no                 tombstone, at max(left changes, right row)
otherwise                                       nothing
=============  ============  =================  ============================================

Steps
    ``atomic``: the right changes of a step come first. A subscriber whose own left row changed in the same step is
    answered for that change alone, unless that change has no answer. Otherwise messages are processed one by one.
    With ``stale``, if a row points at itself and has changed since, the answer to it is dropped and counted, as
    KIP-213's hash does.

``spread``: the subscriptions to one right key live in several shards, each in one of them by its left key, and each of
these shards gets every change of the right row. No rule needs to know of two subscriptions, so nothing else changes but
the order of the answers to one right change: they come by left key within a shard, and the shards take turns.

References
----------
KIP-213; KIP-213's first proposal (``oneToManyJoin``); ``docs/semantics/foreign-key-join.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from tablestream.operators.arrangement import table_rows
from tablestream.operators.events import (
    NEVER,
    are_equal,
    ends,
    expanded_in_parts,
    ints,
    latest,
    pick,
    previous,
    run_start,
    running,
    stored_rows,
)
from tablestream.operators.joins.foreign_key_subscribe import KIND, NEW, Ask, answer_schema, ask_schema
from tablestream.operators.joins.merged_order import OPEN, MergedOrder
from tablestream.operators.joins.subscriptions import Subscriptions
from tablestream.operators.operator import (
    FAN_OUT_ROWS,
    NUMBER,
    PARENT,
    Context,
    Emission,
    HasFinal,
    pointing_trace,
    rows_trace,
    timed_changes,
)
from tablestream.operators.reasons import STALE
from tablestream.state.changes import (
    FOREIGN_HASH,
    KEY_HASH,
    LIVE,
    ROW_TS,
    SEQ,
    STEP,
    TS,
    last_by,
)
from tablestream.state.positions import Bools, Ints, gather, starts
from tablestream.state.trace import Trace
from tablestream.state.trace_spec import TraceSpec

#: Emission number of an answer to a left message: after the fan-out of a right change.
AFTER_FAN_OUT = 1 << 38
#: The mark with the number of the shard, by which a reader of the state finds out which right rows are copies.
SHARD = "shard"
COUNT = "_count"


@dataclass(frozen=True)
class ForeignKeyAnswer(HasFinal):
    """The right half of a foreign-key join.

    Input 0: the messages of `ForeignKeySubscribe`. Input 1: ``_fh``, foreign key, ``_ts``, ``_row_ts``, ``_live``,
    ``v``. Output 0: ``_kh`` (routing hash), left key, with `pair` or `keep_right` also the foreign key, ``_ts``,
    ``_live``, ``v0`` (left value), ``v1`` (right value).
    Cost: the changes, and the subscriptions to every right row that changed. Memory: their keys, and the payload of
    `FAN_OUT_ROWS` answers.
    """

    keep_left: bool
    """LEFT: an unmatched left row is a row of the result."""
    keys: pl.Schema
    foreign_keys: pl.Schema
    """The columns and dtypes of the left table's key and of the foreign key."""
    left_value: pl.DataType
    right_value: pl.DataType
    """The dtypes of the two values."""
    pair: bool = False
    """One to many: the result is keyed by (foreign key, left key)."""
    keep_right: bool = False
    """Whether unmatched right rows are rows of the result."""
    minimal_right: bool = False
    """Whether to ignore tombstones for absent right rows (a filter upstream makes such tombstones)."""
    atomic: bool = True
    """Whether a step emits once per key."""
    stale: bool = False
    """Whether both tables are the same, so that an answer can be outdated when it is made (not if `atomic`)."""
    spread: int | None = None
    """Over how many shards the subscriptions to one right key are spread; None: they live in one. Without
    `keep_right`."""
    needed: tuple[str, ...] | None = None
    """The columns of the right value that readers need: a right row that is written again with the same ones is
    remembered, but answers nobody and keeps its time. None: every change answers."""

    parameters = ("keep_left", "pair", "keep_right", "minimal_right", "spread", "final")
    takes_last = True

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        left = ask_schema(self.foreign_keys, self.keys, self.left_value)
        return left, timed_changes(self.foreign_keys, self.right_value, FOREIGN_HASH)

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        foreign = self.foreign_keys if self.pair or self.keep_right else {}
        return (answer_schema(self.keys, foreign, self.left_value, self.right_value),)

    @property
    def can_be_final(self) -> bool:
        return self.keep_left and not self.keep_right

    @property
    def _subscriptions(self) -> TraceSpec:
        columns = {LIVE: pl.Boolean(), "v": self.left_value}
        return pointing_trace("subscriptions", self.foreign_keys, self.keys, columns)

    @property
    def right_rows(self) -> TraceSpec:
        """The right table."""
        values = {"v": self.right_value}
        return rows_trace("right rows", self.foreign_keys, values, hashed=FOREIGN_HASH)

    @property
    def _unmatched(self) -> UnmatchedRows:
        return UnmatchedRows(self.foreign_keys, self.atomic)

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        counted = (self._unmatched.trace,) if self.keep_right else ()
        return (self._subscriptions, self.right_rows, *counted)

    @property
    def marks(self) -> tuple[str, ...]:
        return () if self.spread is None else (SHARD,)

    @property
    def reasons(self) -> tuple[str, ...]:
        return (STALE,) if self.stale else ()

    @property
    def _foreign(self) -> list[str]:
        return [FOREIGN_HASH, *self.foreign_keys]

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        """Answer the left messages, fan out the right changes, and remember both."""
        left, right = inputs
        if self.spread is not None:
            context.marks[SHARD] = context.shard
        right_rows = context.trace("right rows")
        (table,), (left_id,) = table_rows([(right_rows, right)], [left])
        rights = table.rows
        merged = MergedOrder.of(
            left,
            rights,
            (left_id, table.key),
            atomic=self.atomic,
            minimal_right=self.minimal_right,
            needed=self.needed,
        )
        if self.needed is not None:
            rights = rights.with_columns(gather(rights[ROW_TS], merged.right_timed))
            table = replace(table, rows=rights)
        if self.keep_right:
            changes = self._unmatched.run(merged, left, rights, context.trace(self._unmatched.trace.name))
            yield Emission(0, self._unmatched_rows(changes))
        yield Emission(0, self._answers(left, rights, merged))
        yield from self._fan_out(left, rights, merged, context)
        last = last_by(left, merged.left_id, self.keys)
        context.trace("subscriptions").insert(
            last.select(
                *self._foreign, KEY_HASH, *self.keys, (pl.col(KIND) >= Ask.ANSWER_ALWAYS).alias(LIVE), "v"
            )
        )
        table.remember(right_rows)

    def _unmatched_rows(self, changes: pl.DataFrame) -> pl.DataFrame:
        """Unmatched right rows as rows of the result: the left key and the left value are null."""
        nothing = [pl.lit(None, dtype).alias(name) for name, dtype in self.keys.items()]
        left_value = pl.lit(None, self.left_value).alias("v0")
        number = pl.lit(0, pl.Int64).alias(NUMBER)
        route = pl.col(FOREIGN_HASH).alias(KEY_HASH)
        return changes.select(PARENT, number, route, *nothing, *self.foreign_keys, TS, LIVE, left_value, "v1")

    def _keyed(self) -> list[pl.Expr]:
        """The key columns of a result row with a left row, its routing hash first."""
        if self.pair:
            return [pl.col(FOREIGN_HASH).alias(KEY_HASH), *map(pl.col, [*self.keys, *self.foreign_keys])]
        no_right_key = [pl.lit(None, dtype).alias(name) for name, dtype in self.foreign_keys.items()]
        return [pl.col(KEY_HASH), *map(pl.col, self.keys), *(no_right_key if self.keep_right else [])]

    def _answers(self, left: pl.DataFrame, rights: pl.DataFrame, merged: MergedOrder) -> pl.DataFrame:
        """The answers to left messages: each sees the right row as it is at its place."""
        kind, found = ints(left[KIND]), merged.found
        has = found >= 0
        answered = (kind != Ask.UNSUBSCRIBE) & (has | (kind != Ask.ANSWER_IF_FOUND))
        if self.pair:
            answered &= has & ~((kind == Ask.UNSUBSCRIBE_ANSWER) & self._just_came(left, rights, merged))
        if self.final:
            answered &= merged.left_at > merged.last_right_at
        chosen = np.flatnonzero(answered)
        has, found = has[chosen], found[chosen]
        live = pl.Series((kind[chosen] >= Ask.ANSWER_ALWAYS) & (has | self.keep_left), dtype=pl.Boolean)
        right_ts = gather(rights[ROW_TS], found).fill_null(NEVER)
        return left[chosen].select(
            pl.col(SEQ).alias(PARENT),
            pl.lit(AFTER_FAN_OUT, pl.Int64).alias(NUMBER),
            *self._keyed(),
            pl.max_horizontal(TS, pl.lit(right_ts)).alias(TS),
            live.alias(LIVE),
            pl.when(live).then("v").alias("v0"),
            gather(rights["v"], np.where(live.to_numpy(), found, -1)).alias("v1"),
        )

    def _just_came(self, left: pl.DataFrame, rights: pl.DataFrame, merged: MergedOrder) -> Bools:
        """Whether the right row that a left message found did not exist before the step."""
        if not self.atomic:
            return np.zeros(left.height, dtype=bool)
        step = pick(ints(rights[STEP]), merged.found, NEVER)
        return np.asarray((step == ints(left[STEP])) & ~pick(merged.right_was, merged.found, True))

    def _fan_out(
        self, left: pl.DataFrame, rights: pl.DataFrame, merged: MergedOrder, context: Context
    ) -> Iterator[Emission]:
        """The answers to right changes, in chunks: each change reaches the subscriptions that exist at its place."""
        changes = merged.right_changes(last_only=self.final)
        if not len(changes):
            return
        first = changes[np.unique(merged.right_id[changes], return_index=True)[1]]
        foreign = rights[self._foreign][pl.Series(first)]
        found = context.trace("subscriptions").find(foreign)
        foreign = foreign.hstack([pl.Series("_kid", merged.right_id[first])])
        values = found.column("v")
        parts = Subscriptions.parts(
            left, found.rows, foreign, len(values), list(self.keys), list(self.foreign_keys), merged
        )
        del found  # the keys; the chunks stay, for `values`
        payload = pl.concat([values, left["v"]], rechunk=False)
        number, turns = 1, np.zeros(len(changes), dtype=np.int64)
        for subscriptions in parts:
            low = np.searchsorted(subscriptions.foreign, merged.right_id[changes], "left")
            high = np.searchsorted(subscriptions.foreign, merged.right_id[changes], "right")
            for owner, position in expanded_in_parts(low, high, FAN_OUT_ROWS):
                reached = self._reached(subscriptions, merged, rights, changes[owner], position, context)
                rows = self._fan_rows(
                    subscriptions, rights, changes[owner[reached]], position[reached], payload
                )
                numbers = pl.int_range(number, number + pl.len(), dtype=pl.Int64)
                if self.spread is not None:  # other shards answer the same change
                    numbers = context.among_shards(pl.lit(_in_turn(owner[reached], turns)))
                yield Emission(0, rows.with_columns(numbers.alias(NUMBER)))
                number += rows.height

    def _reached(
        self,
        subscriptions: Subscriptions,
        merged: MergedOrder,
        rights: pl.DataFrame,
        change: Ints,
        position: Ints,
        context: Context,
    ) -> Bools:
        """The subscriptions that a right change answers: those that exist and have no other answer."""
        at, live = merged.right_at[change], merged.right_live[change]
        stands = (subscriptions.start[position] < at) & (at < subscriptions.end[position])
        if self.pair:
            stands &= live | merged.right_was[change]
        if self.final:
            return np.asarray(stands & (subscriptions.end[position] == OPEN))
        same_step = subscriptions.end_step[position] == ints(rights[STEP])[change]
        if self.atomic:
            # A pair that ends is answered only if the right row exists.
            answered = live if self.pair else live | subscriptions.end_answers[position]
            return np.asarray(stands & ~(same_step & answered))
        if self.stale:
            stale = stands & same_step & subscriptions.end_changed[position]
            stale &= self._points_at_itself(subscriptions.keys[position], rights[change])
            context.dropped[STALE] += int(stale.sum())
            stands &= ~stale
        return stands

    def _points_at_itself(self, left: pl.DataFrame, right: pl.DataFrame) -> Bools:
        """Whether the left key equals the right key, row by row."""
        pairs = zip(self.keys, self.foreign_keys, strict=True)
        return are_equal((left[key], right[foreign]) for key, foreign in pairs)

    def _fan_rows(
        self,
        subscriptions: Subscriptions,
        rights: pl.DataFrame,
        change: Ints,
        position: Ints,
        payload: pl.Series,
    ) -> pl.DataFrame:
        """Gather the payload of one chunk of answers."""
        answers = rights.select(SEQ, *self._foreign, TS, LIVE, pl.col("v").alias("v1"))[change]
        answers = answers.hstack(subscriptions.keys[position]).with_columns(
            payload.gather(pl.Series(subscriptions.row[position], dtype=pl.Int64)).alias("v0")
        )
        live = pl.lit(value=True) if self.keep_left else pl.col(LIVE)
        return answers.select(
            pl.col(SEQ).alias(PARENT),
            pl.lit(0, pl.Int64).alias(NUMBER),
            *self._keyed(),
            TS,
            live.alias(LIVE),
            pl.col("v0") if self.keep_left else pl.when(LIVE).then("v0"),
            "v1",
        )


def _in_turn(change: Ints, answers: Ints) -> pl.Series:
    """Number the answers to each change, after those of earlier chunks, which `answers` counts; count these, too."""
    rows = np.arange(len(change), dtype=np.int64)
    number = answers[change] + rows - run_start(starts(change))
    answers += np.bincount(change, minlength=len(answers))
    return pl.Series(number)


@dataclass(frozen=True)
class UnmatchedRows:
    """Counts the subscriptions of each right key, to find the unmatched right rows."""

    foreign_keys: pl.Schema
    """The columns and dtypes of the right key."""
    atomic: bool
    """Whether a step is compared as a whole."""

    @property
    def trace(self) -> TraceSpec:
        """How many subscriptions each right key has; keys without any are left out."""
        columns = {FOREIGN_HASH: pl.Int64(), **self.foreign_keys, LIVE: pl.Boolean(), COUNT: pl.Int64()}
        return TraceSpec(
            name="subscription counts",
            hash=FOREIGN_HASH,
            key=tuple(self.foreign_keys),
            schema=pl.Schema(columns),
        )

    def run(
        self, merged: MergedOrder, left: pl.DataFrame, rights: pl.DataFrame, trace: Trace
    ) -> pl.DataFrame:
        """Return the changes of unmatched rows: ``_parent``, ``_fh``, right key, ``_ts``, ``_live``, ``v1``."""
        columns = [FOREIGN_HASH, *self.foreign_keys]
        keys = pl.concat([rights.select(columns), left.select(columns)])[merged.arranged.row]
        stored = stored_rows(trace, keys)
        known = keys.join(stored, on=columns, how="left", nulls_equal=True, maintain_order="left")
        base = ints(known[COUNT].fill_null(0))
        coming = (ints(left[KIND]) >= Ask.ANSWER_ALWAYS) & left[NEW].to_numpy()
        leaving = ints(left[KIND]) < Ask.ANSWER_ALWAYS
        moves = np.concatenate([np.zeros(rights.height, dtype=np.int64), coming.astype(np.int64) - leaving])
        count = base + running(moves[merged.arranged.row], merged.arranged.begins)
        last = np.flatnonzero(ends(merged.arranged.key))
        counted = keys[last].with_columns(
            pl.Series(LIVE, count[last] > 0, dtype=pl.Boolean), pl.Series(COUNT, count[last], dtype=pl.Int64)
        )
        trace.insert(counted.filter(pl.Series(count[last] != base[last], dtype=pl.Boolean)))
        return self._changes(merged, left, rights, count, keys)

    def _changes(
        self, merged: MergedOrder, left: pl.DataFrame, rights: pl.DataFrame, count: Ints, keys: pl.DataFrame
    ) -> pl.DataFrame:
        """Compare each right key before and after each step (or event)."""
        arranged = merged.arranged
        order = arranged.row
        seq, step, ts = (
            np.concatenate([ints(rights[name]), ints(left[name])])[order] for name in (SEQ, STEP, TS)
        )
        is_right = order < rights.height
        right = arranged.latest(is_right)
        unmatched = pick(merged.right_live, right, False) & (count == 0)
        first, end = arranged.turns(step if self.atomic else np.arange(len(order)))
        was = previous(unmatched, arranged.begins, False)[first]
        changed = is_right.copy()
        changed[is_right] = merged.right_changed[order[is_right]]
        change = latest(changed, arranged.begins)[end]
        by_right = change >= first
        emits = (seq[first] > 0) & ((unmatched[end] & (by_right | ~was)) | (was & ~unmatched[end]))
        row_ts = pick(ints(rights[ROW_TS]), right[end], NEVER)
        left_ts = np.maximum.reduceat(np.where(is_right, NEVER, ts), first) if len(first) else first
        time = np.where(by_right, ts[change], np.maximum(left_ts, row_ts))
        value = np.where(unmatched[end], right[end], -1)
        changes: pl.DataFrame = keys[first[emits]]
        return changes.with_columns(
            pl.Series(PARENT, seq[first][emits], dtype=pl.Int64),
            pl.Series(TS, time[emits], dtype=pl.Int64),
            pl.Series(LIVE, unmatched[end][emits], dtype=pl.Boolean),
            gather(rights["v"], value[emits]).alias("v1"),
        )
