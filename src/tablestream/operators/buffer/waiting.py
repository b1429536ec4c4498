"""Rows that wait: what releases them, in which order they leave, and what the state takes in.

A row waits from the micro-batch in which it arrives to the one in which its rule releases it. An operator reads the
stored rows that may be due, puts the arriving ones behind them, and lets rows wait and leave, one by one. Afterwards
`changed` says what became different. `ReleaseRule` is the rule by time. An operator that waits for something else,
such as an event, has a rule of its own, and shares `changed`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tablestream.operators.buffer.time_index import BEGIN, TimeIndex, latest
from tablestream.operators.events import bools, ranks
from tablestream.operators.operator import NUMBER, PARENT, Context
from tablestream.state.changes import LIVE, SEQ, STEP

#: Of a waiting row: its number among all that ever waited here, and when it arrived, on the wall clock.
ARRIVAL, ARRIVED = "_arrival", "_arrived"
#: Of a waiting message, whether it has a value; ``_live`` says whether it waits.
EXISTS = "_exists"
#: The traces of waiting rows: by their times, and by when they arrived on the wall clock.
WAITING, BY_ARRIVAL = "waiting", "arrived"
#: The mark that counts the rows that arrived.
ARRIVALS = "arrivals"


@dataclass(frozen=True)
class ReleaseRule:
    """When a row is due, and how one that comes too late is counted. Rows leave in the order of (time, key, arrival).

    ==================================================  =============================================
    row                                                 is
    ==================================================  =============================================
    its time is at or before ``now - wait_us``          due
    it has waited for ``wall_clock_us`` on the clock    due
    its time was before that when it arrived            late
    any other                                           waits
    ==================================================  =============================================

    Parameters
    ----------
    wait_us
        How long a row waits, in microseconds of stream time, ``now``.
    wall_clock_us
        The longest time that it waits on the wall clock. None: there is no such limit.
    now
        The mark with the stream time. None: it is `Context.observed`.
    late
        The reason that late rows are counted by. None: they are not counted.
    """

    wait_us: int
    wall_clock_us: int | None = None
    now: str | None = None
    late: str | None = None

    def stream_time(self, context: Context) -> int:
        """The stream time that the state has; `BEGIN` if there is none yet."""
        known = context.observed if self.now is None else context.marks.get(self.now)
        return BEGIN if known is None else known

    def due(self, context: Context, *arriving: pl.Series) -> pl.DataFrame:
        """Read the rows that are due once all of some times have arrived, in no particular order."""
        newest = max(latest(self.stream_time(context), times) for times in arriving)
        return TimeIndex.of(context, WAITING).until(newest - self.wait_us)

    def overdue(self, context: Context) -> pl.DataFrame | None:
        """Read the rows that have waited long enough on the wall clock; None if the clock does not run here."""
        if context.clock is None or context.clock.tick is None or self.wall_clock_us is None:
            return None
        return TimeIndex.of(context, BY_ARRIVAL).until(context.clock.now_us - self.wall_clock_us)


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


def changed(rows: pl.DataFrame, stored: int, waits: pl.Expr) -> pl.DataFrame:
    """Return what a trace takes in: tombstones of stored rows that left, and the arrived rows that wait.

    `rows`: so many stored ones, then those that arrived. `waits`: whether each waits now.

    Examples
    --------
    >>> rows = pl.DataFrame({"_arrival": [1, 2, 3, 4], "v": ["a", "b", "c", "d"]})
    >>> changed(rows, 2, pl.col("v").is_in(["a", "d"])).rows()
    [(2, None, False), (4, 'd', True)]
    """
    now = bools(rows.select(waits).to_series())
    places = np.flatnonzero(now != (np.arange(rows.height) < stored))
    found: pl.DataFrame = rows[places].with_columns(pl.Series(LIVE, now[places]))
    return found.with_columns(pl.when(LIVE).then("v").alias("v") if "v" in rows.columns else [])


def released(rows: pl.DataFrame, left: Sequence[tuple[int, int, int]]) -> pl.DataFrame:
    """Return the messages that leave, by position in `rows`, cause, and number among those of the cause."""
    positions, causes, numbers = zip(*left, strict=True) if left else ((), (), ())
    return rows[list(positions)].with_columns(
        pl.Series(PARENT, causes, dtype=pl.Int64),
        pl.Series(NUMBER, numbers, dtype=pl.Int64),
        pl.col(EXISTS).alias(LIVE),
    )


@dataclass
class Waiting:
    """Rows that wait for their time, among the rows that waited before and those that arrive.

    Parameters
    ----------
    rule, context
        The rule, and the state of the operator.
    rows
        The rows that waited (``_seq`` 0), in the order of their arrival, then those that arrive.
    times
        The time of each.
    keys
        The columns of their keys.

    Attributes
    ----------
    now
        Stream time.
    waits
        Whether each row waits. One that is set to false leaves unseen.

    Examples
    --------
    >>> from collections import Counter
    >>> context = Context(lambda name: None, Counter())
    >>> rows = pl.DataFrame({"k": ["b", "a", "c", "a"], "_seq": [1, 2, 3, 4]})
    >>> waiting = Waiting(ReleaseRule(4, late="late"), context, rows, [5, 5, 9, 4], ["k"])
    >>> [list(waiting.take(row)) for row in range(4)], context.dropped
    ([[], [], [1, 0], [3]], Counter({'late': 1}))
    """

    rule: ReleaseRule
    context: Context
    rows: pl.DataFrame
    times: Sequence[int]
    keys: Sequence[str]
    _over: int = BEGIN  # rows that waited before this time were released

    def __post_init__(self) -> None:
        """Load the rows that waited."""
        self.now = self.rule.stream_time(self.context)
        self.stored = int((self.rows[SEQ] == 0).sum())
        self.waits = [row < self.stored for row in range(self.rows.height)]
        self._ranks = ranks(self.rows, self.keys) if self.keys else [0] * self.rows.height
        self._heap = list(zip(self.times, self._ranks, range(self.stored), strict=False))
        heapq.heapify(self._heap)

    def hold(self, row: int) -> None:
        """Let a row wait."""
        self.waits[row] = True
        heapq.heappush(self._heap, (self.times[row], self._ranks[row], row))

    def advance(self, time: int) -> None:
        """Take in a time."""
        self.now = max(self.now, time)

    def take(self, row: int) -> Iterator[int]:
        """Let a row wait, and release what is due then. A row that is late is counted, and released at once."""
        time = self.times[row]
        if time < self.now - self.rule.wait_us:
            if self.rule.late is not None:
                self.context.tell(self.rule.late, 1, self.rows, row)
            return iter((row,))
        self.hold(row)
        self.advance(time)
        return self.due()

    def due(self, is_full: Callable[[], bool] | None = None) -> Iterator[int]:
        """Release the rows that are due, and the first ones as long as the buffer is full."""
        heap, bound = self._heap, self.now - self.rule.wait_us
        while heap and (heap[0][0] <= bound or (is_full is not None and is_full())):
            time, _, row = heapq.heappop(heap)
            if time > bound:
                self._over = max(self._over, time)
            if self.waits[row]:
                self.waits[row] = False
                yield row
        if bound >= self._over:
            self._over = bound + 1

    def overdue(self) -> list[int]:
        """Release the rows that have waited long enough on the wall clock, if the clock runs now."""
        clock, wait_us = self.context.clock, self.rule.wall_clock_us
        if clock is None or clock.tick is None or wait_us is None:
            return []
        arrived, bound = self.rows[ARRIVED].to_list(), clock.now_us - wait_us
        gone = [row for _, _, row in sorted(self._heap) if self.waits[row] and arrived[row] <= bound]
        for row in gone:
            self.waits[row] = False
        return gone

    def remember(self) -> None:
        """Write the waiting rows, and ask to run again for the first. Running too early does no harm."""
        self._remember_time()
        rows = changed(self.rows, self.stored, pl.lit(pl.Series(self.waits, dtype=pl.Boolean)))
        TimeIndex.of(self.context, WAITING).update(rows, self._over)
        clock, wait_us = self.context.clock, self.rule.wall_clock_us
        if clock is not None and wait_us is not None:
            arrived = TimeIndex.of(self.context, BY_ARRIVAL)
            arrived.update(rows, BEGIN if clock.tick is None else clock.now_us - wait_us + 1)
            first = arrived.bound()
            if first is not None:
                clock.wake(first + wait_us)

    def _remember_time(self) -> None:
        if self.now > BEGIN and self.rule.now is None:
            self.context.observed = self.now
        elif self.now > BEGIN:
            self.context.marks[self.rule.now or ""] = self.now
