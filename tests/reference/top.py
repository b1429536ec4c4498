"""The record-at-a-time reference of the first rows of groups, by rank."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, TypeAlias

from tests.reference.steps import Change, LatestRows, Operator, Output, is_null

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.reference.steps import Key, Value

    Order: TypeAlias = Sequence[tuple[Callable[[Value], Value], bool]]
    """What rows are sorted by, each with whether the greatest comes first; None is last in any case."""


class Top(Operator):
    """Rank the rows of each group and show the first n: the second half, behind `GroupBy`.

    A message is (group key, new, old, timestamp), where a row is (key, value).

    ====================================  ============================================
    rank, after a turn                    output, by rank rising
    ====================================  ============================================
    shows another key or value            (group, rank): the value
    shows the same                        none
    shows no row any more                 (group, rank): a tombstone
    ====================================  ============================================

    A turn is a step's messages to a group; in compat each message. The time is that of `Aggregate`: the largest of
    the turn's messages and, if the group has rows, of its turns before.

    Parameters
    ----------
    n
        How many rows a group shows.
    order
        The order. Of equal rows the one that came first is before the others; one that is written again comes anew.
    show
        (key, value) -> the result's value.
    ranked
        Whether outputs are keyed by (group, rank). If not, by the group, and of equal rows the one that came last is
        the first.

    Examples
    --------
    >>> best = Top(1, [(lambda row: row[1], True)], lambda row: row)
    >>> best.step([("g", ("a", 5), None, 1), ("g", ("b", 7), None, 4)])
    [Output(key=('g', 1), value=('b', 7), ts=4)]
    >>> best.step([("g", None, ("a", 5), 2)])
    []
    >>> best.step([("g", None, ("b", 7), 3)])
    [Output(key=('g', 1), value=None, ts=4)]
    """

    def __init__(
        self,
        n: int,
        order: Order,
        show: Callable[[Value], Value],
        *,
        ranked: bool = True,
        compat: bool = False,
    ) -> None:
        super().__init__(compat=compat)
        self._n, self._order, self._show, self._ranked = n, order, show, ranked
        self._rows: dict[Key, list[Value]] = {}  # as they came
        self._times = LatestRows()

    def step(self, messages: Sequence[tuple[Key, Value, Value, int]]) -> list[Output]:
        """Answer one step."""
        arrived = [Change(*message) for message in messages]
        turns: dict[object, list[Change]] = {}
        for number, message in enumerate(arrived):
            turns.setdefault(number if self.compat else message.key, []).append(message)
        return [output for turn in turns.values() for output in self._answer(turn)]

    def _answer(self, turn: list[Change]) -> list[Output]:
        group = turn[0].key
        if self.compat and is_null(group):
            raise ValueError(f"the group key {group!r} is null")
        rows = self._rows.setdefault(group, [])
        before = self._first(rows)
        for message in turn:
            if message.old is not None:
                rows.remove(next(row for row in rows if row[0] == message.old[0]))
            if message.new is not None:
                rows.append(message.new)
        known = self._times.get(group)
        ts = max([message.ts for message in turn] + ([] if known is None else [known.ts]))
        self._times.put(group, "there" if rows else None, ts)
        ranks = enumerate(zip_longest(before, self._first(rows)), 1)
        return [
            Output((group, rank) if self._ranked else group, None if new is None else new[1], ts)
            for rank, (old, new) in ranks
            if old != new
        ]

    def _first(self, rows: list[Value]) -> list[tuple[Key, Value]]:
        """The keys of the first rows, and what is shown of them."""
        ranked = list(rows if self._ranked else reversed(rows))
        for of, descending in reversed(self._order):
            there = [row for row in ranked if of(row) is not None]
            nulls = [row for row in ranked if of(row) is None]
            ranked = [*sorted(there, key=of, reverse=descending), *nulls]
        return [(row[0], self._show(row)) for row in ranked[: self._n]]
