"""Unmatched rows of the right table: what right and outer foreign-key joins emit in addition.

A right key is *unmatched* if its row exists and nothing is subscribed to it. Per step (per event, if not atomic):

=============  ============  =================  ============================================
was unmatched  is unmatched  right row changed  emits, keyed (null, right key)
=============  ============  =================  ============================================
any            yes           yes                row, at the right change's time
no             yes           no                 row, at max(left changes, right row)
yes            no            yes                tombstone, at the right change's time
yes            no            no                 tombstone, at max(left changes, right row)
otherwise                                       nothing
=============  ============  =================  ============================================
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from tablestream.operators.events import ends, ints, latest, never, pick, previous, running, touched_keys
from tablestream.operators.joins.foreign_key_subscribe import KIND, NEW, Ask
from tablestream.operators.joins.merged_order import MergedOrder
from tablestream.operators.operator import PARENT
from tablestream.state.changes import FOREIGN_HASH, LIVE, ROW_TS, SEQ, STEP, TS
from tablestream.state.positions import Ints, gather
from tablestream.state.trace import Trace, TraceSpec

COUNT = "_count"


@dataclass(frozen=True)
class UnmatchedRows:
    """Counts the subscriptions of each right key, to find the unmatched right rows.

    Parameters
    ----------
    foreign_keys
        The columns and dtypes of the right key.
    atomic
        Whether a step is compared as a whole.
    """

    foreign_keys: pl.Schema
    atomic: bool

    @property
    def trace(self) -> TraceSpec:
        """How many subscriptions each right key has; keys without any are left out."""
        columns = {FOREIGN_HASH: pl.Int64(), **self.foreign_keys, LIVE: pl.Boolean(), COUNT: pl.Int64()}
        return TraceSpec(
            name="subscription counts",
            number=2,
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
        stored = trace.lookup(touched_keys([keys]))
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
        unmatched = pick(merged.right_live, right, np.False_) & (count == 0)
        first, end = arranged.turns(step if self.atomic else np.arange(len(order)))
        was = previous(unmatched, arranged.begins, np.False_)[first]
        changed = is_right.copy()
        changed[is_right] = merged.right_changed[order[is_right]]
        change = latest(changed, arranged.begins)[end]
        by_right = change >= first
        emits = (seq[first] > 0) & ((unmatched[end] & (by_right | ~was)) | (was & ~unmatched[end]))
        row_ts = pick(ints(rights[ROW_TS]), right[end], never())
        left_ts = np.maximum.reduceat(np.where(is_right, never(), ts), first) if len(first) else first
        time = np.where(by_right, ts[change], np.maximum(left_ts, row_ts))
        value = np.where(unmatched[end], right[end], -1)
        changes: pl.DataFrame = keys[first[emits]]
        return changes.with_columns(
            pl.Series(PARENT, seq[first][emits], dtype=pl.Int64),
            pl.Series(TS, time[emits], dtype=pl.Int64),
            pl.Series(LIVE, unmatched[end][emits], dtype=pl.Boolean),
            gather(rights["v"], value[emits]).alias("v1"),
        )
