"""The common order of left messages and right changes of a foreign-key join, key by key, as integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tablestream.operators.arrangement import Arrangement
from tablestream.operators.events import bools, existing, ints, pick, previous, repeats
from tablestream.state.changes import LIVE, SEQ, STEP
from tablestream.state.positions import Bools, Ints, put_back

#: The place after all places.
OPEN = np.iinfo(np.int64).max


@dataclass(frozen=True)
class MergedOrder:
    """Left messages and right rows of one shard, numbered by right key (``id``) and place (``at``).

    The place is the message's number; in an atomic step the right changes come first. Rows of the state have
    place 0. Invariant: among rows of one id, places differ.
    """

    left_id: Ints
    left_at: Ints
    right_id: Ints
    right_at: Ints
    """Right key and place of every left message and of every right row."""
    found: Ints
    """Per left message: the right row as it is at the message's place, or -1."""
    right_live: Bools
    right_was: Bools
    """Per right row: whether it is not a tombstone; whether the row that it replaces existed."""
    right_changed: Bools
    """Per right row: whether it is a change of this micro-batch that is not ignored."""
    right_timed: Ints
    """Per right row: the one whose time it has; it is another one if it changes nothing that readers need."""
    last_right_at: Ints
    """Per left message: the place of the last right change of its key, or -1."""
    arranged: Arrangement
    """All rows: right rows, then left messages."""

    @classmethod
    def of(
        cls,
        left: pl.DataFrame,
        rights: pl.DataFrame,
        keys: tuple[Ints, Ints],
        *,
        atomic: bool,
        minimal_right: bool,
        needed: Sequence[str] | None = None,
    ) -> MergedOrder:
        """Merge left messages and right rows (those of the state first, then changes) into one order.

        `keys`: the numbers of the right keys of both. `needed`: the columns of right rows that readers need; a change
        of others alone is ignored. None: it is not.
        """
        left_id, right_id = keys
        right_at, left_at = _places(left, rights, atomic=atomic)
        arranged = Arrangement.of(np.concatenate([right_id, left_id]), np.concatenate([right_at, left_at]))
        rows, live = len(right_id), bools(rights[LIVE])
        right = arranged.latest(arranged.row < rows)
        left_found = arranged.by_row(right)[rows:]
        replaced = arranged.by_row(previous(right, arranged.begins, -1))[:rows]
        timed = np.arange(rows, dtype=np.int64)
        was = pick(live, replaced, False)
        changed = (ints(rights[SEQ]) > 0) & (live | was | (not minimal_right))
        if needed is not None:
            now = np.where(live & changed, np.arange(len(live)), -1)
            repeated = repeats(rights["v"], needed, now, existing(replaced, live))
            changed &= ~repeated
            counts = np.append(~repeated, np.zeros(len(left_id), dtype=bool))
            timed = arranged.by_row(arranged.latest(counts[arranged.row]))[:rows]
        return cls(
            left_id=left_id,
            left_at=left_at,
            right_id=right_id,
            right_at=right_at,
            found=existing(left_found, live),
            right_live=live,
            right_was=was,
            right_changed=changed,
            right_timed=timed,
            last_right_at=_last_change(right_id, right_at, changed, left_id),
            arranged=arranged,
        )

    def right_changes(self, *, last_only: bool) -> Ints:
        """The positions of the right changes in order of place; with `last_only` the last one of each key."""
        changes = np.flatnonzero(self.right_changed)
        changes = changes[np.argsort(self.right_at[changes], kind="stable")]
        if not last_only:
            return changes
        _, last = np.unique(self.right_id[changes][::-1], return_index=True)
        return changes[np.sort(len(changes) - 1 - last)]


def _places(left: pl.DataFrame, rights: pl.DataFrame, *, atomic: bool) -> tuple[Ints, Ints]:
    """The place of every right row and left message."""
    right_seq, left_seq = ints(rights[SEQ]), ints(left[SEQ])
    if not atomic:
        return right_seq, left_seq
    # Both frames are sorted by place, and steps rise with it: two rising sequences, which a stable sort merges.
    turn = np.concatenate([ints(rights[STEP]) * 2, ints(left[STEP]) * 2 + 1])
    at = put_back(np.arange(1, len(turn) + 1), np.argsort(turn, kind="stable"))
    return np.where(right_seq > 0, at[: len(right_seq)], 0), at[len(right_seq) :]


def _last_change(right_id: Ints, right_at: Ints, changed: Bools, left_id: Ints) -> Ints:
    """Per left message, the place of the last right change of its key, or -1."""
    highest = int(max(right_id.max(initial=-1), left_id.max(initial=-1))) + 1
    last = np.full(highest, -1, dtype=np.int64)
    np.maximum.at(last, right_id[changed], right_at[changed])
    return last[left_id]
