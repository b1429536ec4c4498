"""The versions of groups' rows in a micro-batch: the stored ones, then those that messages add.

A *version* is a row from the message that adds it to the message that removes it. Versions are numbered: first the
stored ones, then those that messages add, in the order of the messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tablestream.operators.arrangement import Arrangement
from tablestream.operators.events import bools, pick, places
from tablestream.operators.reduce.groups import GroupEvents
from tablestream.state.changes import FOREIGN_HASH, KEY_HASH, number_keys
from tablestream.state.positions import Bools, Ints

#: When a row arrived: it rises within a group. A row that changes gets a new number.
TURN = "_turn"


@dataclass(frozen=True)
class RowVersions:
    """The versions of the rows of some groups."""

    rows: pl.DataFrame
    """The versions, with the columns of the trace of rows."""
    group: Ints
    """The number of each version's group."""
    stored: int
    """How many of them are stored."""
    at: Ints
    """The positions of the groups' messages among all messages."""
    brought: Ints
    taken: Ints
    """Per message, the version that it adds and the one that it removes; -1: none, or none that is known here."""

    @classmethod
    def of(
        cls,
        events: GroupEvents,
        arrived: pl.DataFrame,
        at: Ints,
        stored: pl.DataFrame,
        group: Ints,
        keys: Sequence[str],
    ) -> RowVersions:
        """Combine stored rows (`group` has their groups) with the rows that messages add.

        `arrived`: the row that each message adds, with the columns of `stored`. `at`: the positions of the messages of
        these groups. `keys`: the columns of the table's key.
        """
        adds, new = events.adds[at], arrived[at]
        brought = np.where(adds, stored.height + np.cumsum(adds) - 1, -1)
        of_message = events.group[at]
        rows = pl.concat([stored, new.filter(pl.Series(adds, dtype=pl.Boolean))])
        before = _before((stored, new), (group, of_message), brought, keys)
        taken = np.where(events.removes[at], before, -1)
        return cls(rows, np.concatenate([group, of_message[adds]]), stored.height, at, brought, taken)

    @property
    def is_left(self) -> Bools:
        """Whether each version still exists after the last message."""
        left = np.ones(self.rows.height, dtype=bool)
        left[self.taken[self.taken >= 0]] = False
        return left

    def part(self, versions: Ints) -> tuple[pl.DataFrame, Ints]:
        """Some of the versions, and their groups."""
        return self.rows[versions], self.group[versions]


def _before(
    frames: tuple[pl.DataFrame, pl.DataFrame], groups: tuple[Ints, Ints], brought: Ints, keys: Sequence[str]
) -> Ints:
    """The version of each message's row before it, in its group; -1 if none is known.

    Of each pair of frames and groups, the first is for stored rows and the second for messages.
    """
    stored, new = frames
    touched = np.flatnonzero(bools(stored[KEY_HASH].is_in(new[KEY_HASH].implode())))
    ids = np.concatenate(number_keys(KEY_HASH, keys, [stored[touched], new]))
    group = np.concatenate([groups[0][touched], groups[1]])
    rows = ids * (int(group.max(initial=-1)) + 1) + group
    arranged = Arrangement.of(rows)
    before = pick(np.concatenate([touched, brought]), arranged.before, -1)
    return arranged.by_row(before)[len(touched) :]


def group_numbers(groups: pl.DataFrame, rows: pl.DataFrame, group_keys: Sequence[str]) -> Ints:
    """Return the position of each row's group in `groups`, which contains it."""
    ids, row_ids = number_keys(FOREIGN_HASH, group_keys, [groups, rows])
    return places(ids, row_ids)
