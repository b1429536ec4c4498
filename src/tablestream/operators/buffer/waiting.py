"""Rows that wait until time has come to theirs, and leave in the order of (time, key, arrival)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from tablestream.operators.buffer.time_index import BEGIN, TimeIndex
from tablestream.operators.events import ranks
from tablestream.operators.operator import Context, WallClock
from tablestream.state.changes import LIVE, SEQ, STEP

#: Of a row that waits: its number among all that ever waited here, and when it came, on the wall clock.
ARRIVAL, ARRIVED = "_arrival", "_arrived"
#: The traces of those who wait, by their times and by when they came on the wall clock.
WAITING, BY_ARRIVAL = "waiting", "arrived"
#: The mark that counts those who came.
ARRIVALS = "arrivals"
#: Counted, and not dropped: what is too late to wait.
LATE = "late"


def numbered(new: pl.DataFrame, columns: Sequence[str], context: Context) -> pl.DataFrame:
    """Number those who come: ``_seq``, ``_step``, and some columns, of which arrival and time on the clock are made."""
    first = context.marks.get(ARRIVALS, 0)
    context.marks[ARRIVALS] = first + new.height
    numbers = pl.int_range(first, first + new.height, dtype=pl.Int64, eager=True).alias(ARRIVAL)
    now = pl.lit(0 if context.clock is None else context.clock.now_us, pl.Int64).alias(ARRIVED)
    return new.with_columns(numbers, now).select(SEQ, STEP, *columns)


def with_waiting(
    stored: pl.DataFrame, new: pl.DataFrame, columns: Sequence[str], context: Context
) -> pl.DataFrame:
    """Put those who wait (``_seq`` 0) before those who come, and number these."""
    coming, zero = numbered(new, columns, context), pl.lit(0, pl.Int64)
    stored = stored.sort(ARRIVAL).with_columns(zero.alias(SEQ), zero.alias(STEP))
    return pl.concat([stored.select(coming.columns), coming])


def overdue(context: Context, wait_us: int | None) -> pl.DataFrame | None:
    """Read who has waited long enough on the wall clock, from the index by arrival; None if it is not its turn."""
    if context.clock is None or context.clock.tick is None or wait_us is None:
        return None
    return TimeIndex.of(context, BY_ARRIVAL).until(context.clock.now_us - wait_us)


@dataclass
class Waiting:
    """Who waits, among rows of which the first waited before.

    Parameters
    ----------
    rows
        Those who waited (``_seq`` 0), in the order of their arrival, then those who come.
    times
        The time of each.
    keys
        The columns of their keys.

    Examples
    --------
    >>> rows = pl.DataFrame({"k": ["b", "a", "c"], "_seq": [1, 2, 3]})
    >>> waiting = Waiting(rows, [5, 5, 9], ["k"])
    >>> for row in range(3):
    ...     waiting.hold(row)
    >>> list(waiting.due(5)), list(waiting.due(5)), list(waiting.due(9))
    ([1, 0], [], [2])
    """

    rows: pl.DataFrame
    times: Sequence[int]
    keys: Sequence[str]
    _heap: list[tuple[int, int, int]] = field(default_factory=list)
    _over: int = BEGIN  # who waited before this time has left

    def __post_init__(self) -> None:
        """Take over who waited."""
        self._ranks = ranks(self.rows, self.keys) if self.keys else [0] * self.rows.height
        self.stored = int((self.rows[SEQ] == 0).sum())
        for row in range(self.stored):
            self.hold(row)

    def hold(self, row: int) -> None:
        """Let a row wait."""
        heapq.heappush(self._heap, (self.times[row], self._ranks[row], row))

    def due(self, bound: int, is_full: Callable[[], bool] = lambda: False) -> Iterator[int]:
        """Let go those whose time is up to a bound, and the first ones for as long as there is no room."""
        while self._heap and (self._heap[0][0] <= bound or is_full()):
            time, _, row = heapq.heappop(self._heap)
            self._over = max(self._over, time)
            yield row
        self._over = max(self._over, bound + 1)

    def overdue(self, clock: WallClock, wait_us: int | None) -> list[int]:
        """Let go those who have waited long enough on the wall clock, at its turn."""
        if clock.tick is None or wait_us is None:
            return []
        arrived, bound = self.rows[ARRIVED].to_list(), clock.now_us - wait_us
        gone = [row for _, _, row in sorted(self._heap) if arrived[row] <= bound]
        self._heap = [one for one in self._heap if arrived[one[2]] > bound]
        heapq.heapify(self._heap)
        return gone

    def remember(self, context: Context, wait_us: int | None = None) -> None:
        """Write who waits, and ask to be woken for the first; waking too early, as that one left, does no harm."""
        changed = self._changed()
        TimeIndex.of(context, WAITING).update(changed, self._over)
        clock = context.clock
        if clock is not None and wait_us is not None:
            arrived = TimeIndex.of(context, BY_ARRIVAL)
            arrived.update(changed, BEGIN if clock.tick is None else clock.now_us - wait_us + 1)
            first = arrived.bound()
            if first is not None:
                clock.wake(first + wait_us)

    def _changed(self) -> pl.DataFrame:
        """Who waited and does no more, as tombstones, and who waits from now on."""
        waits = np.zeros(self.rows.height, dtype=bool)
        waits[[row for _, _, row in self._heap]] = True
        changed = np.flatnonzero(waits != (np.arange(self.rows.height) < self.stored))
        rows: pl.DataFrame = self.rows[changed].with_columns(pl.Series(LIVE, waits[changed]))
        return rows.with_columns(pl.when(LIVE).then("v").alias("v"))
