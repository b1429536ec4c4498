"""What the rows of groups were in a micro-batch: as they are stored, then as the messages change them.

A *version* is a row from the message that brings it to the message that takes it out. Versions are numbered: those
that are stored first, then those that messages bring, in the order of the messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tablestream.operators.events import Bools, Ints, bools, ints, starts
from tablestream.operators.groups import GroupEvents
from tablestream.state.changes import FOREIGN_HASH, KEY_HASH, number_keys

#: When a row came: it rises within a group. A row that changes comes anew.
TURN = "_turn"


@dataclass(frozen=True)
class RowVersions:
    """The versions of the rows of some groups.

    Attributes
    ----------
    rows
        The versions, with the columns of the trace of rows.
    group
        The number of each version's group.
    stored
        How many of them are stored.
    at
        The positions of the groups' messages among all messages.
    brought, taken
        Of each of these messages, the version that it brings and the one that it takes out; -1: none, or none that
        is known here.
    """

    rows: pl.DataFrame
    group: Ints
    stored: int
    at: Ints
    brought: Ints
    taken: Ints

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
        """Put stored rows, of which `group` are the groups, and what messages bring beside each other.

        Parameters
        ----------
        arrived
            The row that each message brings, with the columns of `stored`.
        at
            The positions of the messages of these groups.
        keys
            The columns of the table's key.
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
        """Whether each version is there after the last message."""
        left = np.ones(self.rows.height, dtype=bool)
        left[self.taken[self.taken >= 0]] = False
        return left

    def part(self, versions: Ints) -> tuple[pl.DataFrame, Ints]:
        """Some of the versions, and their groups."""
        return self.rows[versions], self.group[versions]


def _before(
    frames: tuple[pl.DataFrame, pl.DataFrame], groups: tuple[Ints, Ints], brought: Ints, keys: Sequence[str]
) -> Ints:
    """The version of each message's row before it, in its group; -1 where none is known.

    Frames and groups are of what is stored, and of the messages.
    """
    stored, new = frames
    touched = np.flatnonzero(bools(stored[KEY_HASH].is_in(new[KEY_HASH].implode())))
    ids = np.concatenate([ints(one) for one in number_keys(KEY_HASH, keys, [stored[touched], new])])
    group = np.concatenate([groups[0][touched], groups[1]])
    rows = ids * (int(group.max(initial=-1)) + 1) + group
    version = np.concatenate([touched, brought])
    order = np.argsort(rows, kind="stable")
    before = np.empty(len(rows), dtype=np.int64)
    before[order] = np.where(starts(rows[order]), -1, np.append(-1, version[order])[:-1])
    return before[len(touched) :]


def group_numbers(groups: pl.DataFrame, rows: pl.DataFrame, group_keys: Sequence[str]) -> Ints:
    """Return for each row the position of its group in `groups`, in which it is."""
    ids, row_ids = (ints(one) for one in number_keys(FOREIGN_HASH, group_keys, [groups, rows]))
    place = np.empty(int(ids.max(initial=-1)) + 1, dtype=np.int64)
    place[ids] = np.arange(len(ids))
    return place[row_ids]
