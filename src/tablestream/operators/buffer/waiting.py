"""Rows that wait until stream time reaches their time, and are emitted in the order of (time, key, arrival)."""

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

#: Of a waiting row: its number among all that ever waited here, and when it arrived, on the wall clock.
ARRIVAL, ARRIVED = "_arrival", "_arrived"
#: The traces of waiting rows: by their times, and by when they arrived on the wall clock.
WAITING, BY_ARRIVAL = "waiting", "arrived"
#: The mark that counts the rows that arrived.
ARRIVALS = "arrivals"


def numbered(new: pl.DataFrame, columns: Sequence[str], context: Context) -> pl.DataFrame:
    """Number arriving rows: ``_seq``, ``_step``, and some columns, with arrival number and wall-clock time added."""
    numbers = context.number(new.height, ARRIVALS).alias(ARRIVAL)
    now = pl.lit(0 if context.clock is None else context.clock.now_us, pl.Int64).alias(ARRIVED)
    return new.with_columns(numbers, now).select(SEQ, STEP, *columns)


def with_waiting(
    stored: pl.DataFrame, new: pl.DataFrame, columns: Sequence[str], context: Context
) -> pl.DataFrame:
    """Put waiting rows (``_seq`` 0) before the arriving ones, and number the latter."""
    coming, zero = numbered(new, columns, context), pl.lit(0, pl.Int64)
    stored = stored.sort(ARRIVAL).with_columns(zero.alias(SEQ), zero.alias(STEP))
    return pl.concat([stored.select(coming.columns), coming])


def overdue(context: Context, wait_us: int | None) -> pl.DataFrame | None:
    """Read the rows that have waited long enough on the wall clock; None if the clock does not run here."""
    if context.clock is None or context.clock.tick is None or wait_us is None:
        return None
    return TimeIndex.of(context, BY_ARRIVAL).until(context.clock.now_us - wait_us)


@dataclass
class Waiting:
    """Waiting rows, among the rows that waited before and those that arrive.

    Parameters
    ----------
    rows
        The rows that waited (``_seq`` 0), in the order of their arrival, then those that arrive.
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
    _over: int = BEGIN  # rows that waited before this time were released

    def __post_init__(self) -> None:
        """Load the rows that waited."""
        self._ranks = ranks(self.rows, self.keys) if self.keys else [0] * self.rows.height
        self.stored = int((self.rows[SEQ] == 0).sum())
        for row in range(self.stored):
            self.hold(row)

    def hold(self, row: int) -> None:
        """Let a row wait."""
        heapq.heappush(self._heap, (self.times[row], self._ranks[row], row))

    def due(self, bound: int, is_full: Callable[[], bool] = lambda: False) -> Iterator[int]:
        """Release the rows with a time up to a bound, and the first ones as long as the buffer is full."""
        while self._heap and (self._heap[0][0] <= bound or is_full()):
            time, _, row = heapq.heappop(self._heap)
            self._over = max(self._over, time)
            yield row
        self._over = max(self._over, bound + 1)

    def overdue(self, clock: WallClock, wait_us: int | None) -> list[int]:
        """Release the rows that have waited long enough on the wall clock, if the clock runs now."""
        if clock.tick is None or wait_us is None:
            return []
        arrived, bound = self.rows[ARRIVED].to_list(), clock.now_us - wait_us
        gone = [row for _, _, row in sorted(self._heap) if arrived[row] <= bound]
        self._heap = [one for one in self._heap if arrived[one[2]] > bound]
        heapq.heapify(self._heap)
        return gone

    def remember(self, context: Context, wait_us: int | None = None) -> None:
        """Write the waiting rows, and ask to run again for the first. Running too early does no harm."""
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
        """Tombstones of the rows that no longer wait, and the rows that began to wait."""
        waits = np.zeros(self.rows.height, dtype=bool)
        waits[[row for _, _, row in self._heap]] = True
        changed = np.flatnonzero(waits != (np.arange(self.rows.height) < self.stored))
        rows: pl.DataFrame = self.rows[changed].with_columns(pl.Series(LIVE, waits[changed]))
        return rows.with_columns(pl.when(LIVE).then("v").alias("v"))
