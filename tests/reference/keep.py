"""The record-at-a-time reference of retention: a table that forgets the rows that have become too old."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tests.reference.steps import Message, Output, Reference

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from tests.reference.steps import Key, Value


class Keep(Reference):
    """Delete the rows that are older than the newest row of their shard by more than a length.

    Each shard has its rows and the largest time that any row had. Per step and shard, first this time moves on; then
    the changes are taken in; then what is older than the bound, the time minus the length, goes.

    =========================================  ===========================================================
    event                                      effect
    =========================================  ===========================================================
    row at or after the bound, or without a    itself
    time
    row before the bound                       counted as dropped; a tombstone, if its key has a row
    tombstone                                  itself, if its key has a row
    a row is before the bound                  a tombstone, at the largest timestamp of the step
    =========================================  ===========================================================

    Parameters
    ----------
    length
        How old a row may be, in the unit of the times.
    by
        (value, key, timestamp) -> a row's time, or None. Its timestamp unless given.
    shard
        Key -> its shard. One shard unless given.
    freezes
        Whether a row that goes is only forgotten, without a tombstone, and a row before the bound leaves it as it is.
        The bound is then that before the step.

    Examples
    --------
    >>> keep = Keep(5)
    >>> [keep.change(0, key, 1, ts) for key, ts in [("a", 1), ("b", 6), ("c", 7), ("a", 1)]]
    [[Output(key='a', value=1, ts=1)], [Output(key='b', value=1, ts=6)], [Output(key='c', value=1, ts=7), \
Output(key='a', value=None, ts=7)], []]
    >>> keep.dropped
    1
    """

    def __init__(
        self,
        length: int,
        by: Callable[[Value, Key, int], int | None] = lambda _value, _key, ts: ts,
        *,
        shard: Callable[[Key], Hashable] = lambda _key: 0,
        freezes: bool = False,
    ) -> None:
        super().__init__(compat=False)
        self._length, self._by, self._shard, self._freezes = length, by, shard, freezes
        self._now: dict[Hashable, int] = {}
        self._rows: defaultdict[Hashable, dict[Key, int | None]] = defaultdict(dict)

    def step(self, messages: Sequence[tuple[int, Key, Value, int]]) -> list[Output]:
        """Answer one step."""
        arrived = [Message(*message) for message in messages]
        shards = dict.fromkeys(self._shard(message.key) for message in arrived)
        return [
            output
            for shard in shards
            for output in self._answer(shard, [one for one in arrived if self._shard(one.key) == shard])
        ]

    def _answer(self, shard: Hashable, arrived: list[Message]) -> Iterator[Output]:
        rows = self._rows[shard]
        times = [None if one.value is None else self._by(one.value, one.key, one.ts) for one in arrived]
        before = self._now.get(shard)
        for time in times:
            if time is not None:
                self._now[shard] = max(time, self._now.get(shard, time))
        now = before if self._freezes else self._now.get(shard)
        for one, time in zip(arrived, times, strict=True):
            there = one.key in rows
            is_late = now is not None and time is not None and time < now - self._length
            self.dropped += is_late
            if is_late and self._freezes:
                continue
            rows.pop(one.key, None)
            if one.value is not None and not is_late:
                rows[one.key] = time
                yield Output(one.key, one.value, one.ts)
            elif there:
                yield Output(one.key, None, one.ts)
        for key in [key for key, time in rows.items() if self._is_old(shard, time)]:
            del rows[key]
            if not self._freezes:
                yield Output(key, None, max(one.ts for one in arrived))

    def _is_old(self, shard: Hashable, time: int | None) -> bool:
        return time is not None and time < self._now[shard] - self._length
