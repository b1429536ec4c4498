"""Subscriptions: how long each left row pointed at a right key, as intervals of places in the total order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from tablestream.operators.events import bools, ends, following, ints, pick
from tablestream.operators.joins.foreign_key_subscribe import CHANGED, KIND, Ask
from tablestream.operators.joins.merged_order import OPEN, MergedOrder
from tablestream.state.changes import FOREIGN_HASH, KEY_HASH, STEP, number_keys
from tablestream.state.positions import Bools, Ints, stable_order

#: About so many subscriptions are in memory with their intervals.
PART_ROWS = 500_000


@dataclass(frozen=True)
class Subscriptions:
    """The subscriptions of left rows to right keys, sorted by right key, then left key, then place.

    A subscription lasts from one message about it (place ``start``) to the next (``end``, or `OPEN`).
    """

    keys: pl.DataFrame
    """``_kh`` and the left key."""
    foreign: Ints
    start: Ints
    end: Ints
    """Number of the right key, and the open interval of places."""
    row: Ints
    """Position of the left value: first the trace's rows, then the messages."""
    end_step: Ints
    end_answers: Bools
    end_changed: Bools
    """Of the message that ends the subscription: its step (-1: none), whether it is answered whatever the right row is,
    and whether the left row changed."""

    @classmethod
    def parts(
        cls,
        left: pl.DataFrame,
        stored: pl.DataFrame,
        stored_foreign: pl.DataFrame,
        stored_rows: int,
        keys: Sequence[str],
        foreign_keys: Sequence[str],
        merged: MergedOrder,
    ) -> Iterator[Subscriptions]:
        """Find the subscriptions to some right keys, part by part in their order, to bound the memory they take.

        `left`: the left messages. `stored`: the subscriptions in the state to those right keys, with their position
        ``_row``. `stored_foreign`: those right keys, with their number ``_kid``. `stored_rows`: how many rows the state
        has; the values of the messages follow them.
        """
        wanted = np.zeros(
            int(max(merged.left_id.max(initial=-1), merged.right_id.max(initial=-1))) + 1, dtype=bool
        )
        wanted[ints(stored_foreign["_kid"])] = True
        mine = np.flatnonzero(wanted[merged.left_id])
        ids, known = number_keys(FOREIGN_HASH, foreign_keys, [stored_foreign, stored])
        kids = np.empty(len(ids), dtype=np.int64)
        kids[ids] = ints(stored_foreign["_kid"])
        key = [KEY_HASH, *keys]
        old = stored[[*key, "_row"]].hstack(
            [pl.Series("_kid", kids[known]), pl.Series("_at", np.zeros(stored.height, dtype=np.int64))]
        )
        new = left[key][pl.Series(mine)].hstack(
            [
                pl.Series("_row", mine + stored_rows),
                pl.Series("_kid", merged.left_id[mine]),
                pl.Series("_at", merged.left_at[mine]),
            ]
        )
        every = pl.concat([old, new], rechunk=False)
        order = _order(every, keys)
        bounds = pairwise(_bounds(ints(every["_at"]), order))
        # Not a generator function: it would hold all of the above, while this holds what it needs.
        return (cls._between(every[order[begin:end]], keys, left, stored_rows) for begin, end in bounds)

    @classmethod
    def _between(
        cls, every: pl.DataFrame, keys: Sequence[str], left: pl.DataFrame, stored_rows: int
    ) -> Subscriptions:
        """End every subscription at the next message about the same subscription."""
        last = ends(*every[["_kid", *keys]])
        start, row = ints(every["_at"]), ints(every["_row"])
        began = row - stored_rows
        message = following(began, last, -1)
        step, kind, changed = ints(left[STEP]), ints(left[KIND]), bools(left[CHANGED])
        keep = np.flatnonzero(pick(kind >= Ask.ANSWER_ALWAYS, began, True))
        return cls(
            keys=every.select(KEY_HASH, *keys)[keep],
            foreign=ints(every["_kid"])[keep],
            start=start[keep],
            end=following(start, last, OPEN)[keep],
            row=row[keep],
            end_step=pick(step, message, -1)[keep],
            end_answers=pick(kind != Ask.ANSWER_IF_FOUND, message, False)[keep],
            end_changed=pick(changed, message, False)[keep],
        )


def _order(every: pl.DataFrame, keys: Sequence[str]) -> pl.Series:
    """Sort subscriptions, which come in the order of their places, by right key, then left key, then place."""
    key = every[keys[0]]
    if len(keys) > 1 or not key.dtype.is_signed_integer() or key.has_nulls():
        return every.select(pl.arg_sort_by("_kid", *keys, "_at")).to_series()
    order = stable_order(ints(key))  # in a third of the time
    return pl.Series(order[stable_order(ints(every["_kid"])[order])])


def _bounds(at: Ints, order: pl.Series) -> list[int]:
    """Where to divide subscriptions, in their order: before one from the state, the first of its two keys.

    What two messages say of the same two keys is never divided: it makes one subscription.
    """
    stored, bounds = np.flatnonzero(at[order.to_numpy()] == 0), [0]
    while (next_one := int(np.searchsorted(stored, bounds[-1] + PART_ROWS))) < len(stored):
        bounds.append(int(stored[next_one]))
    return [*bounds, len(order)]
