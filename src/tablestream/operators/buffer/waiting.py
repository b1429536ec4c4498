"""Rows that wait: what releases them, in which order they leave, and what the state takes in.

An operator reads the stored rows that may be due, puts the arriving ones behind them, and lets rows wait and leave.
`ReleaseRule` is the rule by time, and `Waiting` follows it. An operator that waits for something else, such as an
event, has its own rule. `changed` is what the state of each takes in.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tablestream.operators.buffer.time_index import BEGIN, TimeIndex, by_time, latest
from tablestream.operators.events import bools, ranks
from tablestream.operators.operator import NUMBER, PARENT, Context
from tablestream.state.changes import KEY_HASH, LIVE, SEQ, STEP
from tablestream.state.trace_spec import TraceSpec

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
    """When a row is due, and what comes too late. Rows leave in the order of (time, key, arrival).

    ==================================================  ======================================================
    row                                                 is
    ==================================================  ======================================================
    its time is at or before ``now - wait_us``          due
    it has waited for ``wall_clock_us`` on the clock    due
    its time was before ``now - wait_us`` when it came  late; counted as ``late``, if that is given
    ==================================================  ======================================================

    ``now`` is stream time, the largest time so far. The state has it in `mark`, or else in `Context.observed`.
    """

    wait_us: int
    wall_clock_us: int | None = None
    mark: str | None = None
    late: str | None = None

    def stream_time(self, context: Context) -> int:
        """The stream time that the state has; `BEGIN` if there is none yet."""
        known = context.observed if self.mark is None else context.marks.get(self.mark)
        return BEGIN if known is None else known

    def due(self, context: Context, *arriving: pl.Series) -> pl.DataFrame:
        """Read the rows that are due once all of some times have arrived, in no particular order."""
        newest = max(latest(self.stream_time(context), times) for times in arriving)
        return TimeIndex.of(context, WAITING).until(newest - self.wait_us)

    def clock_bound(self, context: Context) -> int | None:
        """Until when on the wall clock a row that is due by it arrived; None if the clock does not run here."""
        if context.clock is None or context.clock.tick is None or self.wall_clock_us is None:
            return None
        return context.clock.now_us - self.wall_clock_us

    def overdue(self, context: Context) -> list[pl.DataFrame]:
        """Read the rows that are due by the wall clock, if it runs here."""
        bound = self.clock_bound(context)
        return [] if bound is None else [TimeIndex.of(context, BY_ARRIVAL).until(bound)]


def numbered(new: pl.DataFrame, columns: Sequence[str], context: Context) -> pl.DataFrame:
    """Number arriving rows: ``_seq``, ``_step``, and some columns, with arrival number and wall-clock time added."""
    numbers = context.number(new.height, ARRIVALS).alias(ARRIVAL)
    now = pl.lit(context.now_us, pl.Int64).alias(ARRIVED)
    return new.with_columns(numbers, now).select(SEQ, STEP, *columns)


def waiting_by_key(
    name: str, time: str, keys: pl.Schema, row: Mapping[str, pl.DataType], *, clock: bool
) -> tuple[TraceSpec, ...]:
    """Describe the trace of rows of which each key has one that waits, and the indexes that have its keys.

    `time`: the column with the times of rows. `row`: the others. `clock`: whether rows leave by the clock, too.
    """
    key = {KEY_HASH: pl.Int64(), **keys}
    times = {time: WAITING} | ({ARRIVED: BY_ARRIVAL} if clock else {})
    schema = pl.Schema(key | dict.fromkeys(times, pl.Int64()) | dict(row))
    indexes = (by_time(index, column, key, tuple(keys), KEY_HASH) for column, index in times.items())
    return (TraceSpec(name, schema, tuple(keys)), *indexes)


def changed(rows: pl.DataFrame, stored: int, waits: pl.Expr | pl.Series) -> pl.DataFrame:
    """Return what a trace takes in: tombstones of stored rows that left, and the arrived rows that wait.

    `rows`: so many stored ones, then those that arrived. `waits`: whether each waits now.

    Examples
    --------
    >>> rows = pl.DataFrame({"_arrival": [1, 2, 3, 4], "v": ["a", "b", "c", "d"]})
    >>> changed(rows, 2, pl.col("v").is_in(["a", "d"])).rows()
    [(2, None, False), (4, 'd', True)]
    """
    now = bools(waits if isinstance(waits, pl.Series) else rows.select(waits).to_series())
    places = np.flatnonzero(now != (np.arange(rows.height) < stored))
    found: pl.DataFrame = rows[places].with_columns(pl.Series(LIVE, now[places]))
    return found.with_columns(pl.when(LIVE).then("v").alias("v")) if "v" in rows.columns else found


def released(rows: pl.DataFrame, left: Sequence[tuple[int, int, int]]) -> pl.DataFrame:
    """Return the rows that leave, by position, the message that caused it, and their order among those of the cause."""
    positions, causes, numbers = zip(*left, strict=True) if left else ((), (), ())
    places = [pl.Series(PARENT, causes, pl.Int64), pl.Series(NUMBER, numbers, pl.Int64)]
    return rows[list(positions)].hstack(places)


class Waiting:
    """Rows that wait for their time, among those that waited before and those that arrive.

    Parameters
    ----------
    rule, context
        The rule, and the state of the operator.
    stored, new
        The rows that waited, in the order of their arrival, and those that arrive, with ``_seq`` and ``_step``.
    time, keys
        The column with the times, and those of the keys.

    Attributes
    ----------
    rows, stored
        So many stored ones (``_seq`` 0), then those that arrive.
    waits
        Whether each row waits. One that is set to false leaves unseen.

    Examples
    --------
    >>> from collections import Counter
    >>> context = Context(lambda name: None, Counter())
    >>> new = pl.DataFrame({"k": ["b", "a", "c", "a"], "t": [5, 5, 9, 4], "_seq": [1, 2, 3, 4], "_step": [1, 2, 3, 4]})
    >>> waiting = Waiting(ReleaseRule(4, late="late"), context, new.clear(), new, "t", ["k"])
    >>> [list(waiting.take(row)) for row in range(4)], context.dropped
    ([[], [], [1, 0], [3]], Counter({'late': 1}))
    """

    def __init__(
        self,
        rule: ReleaseRule,
        context: Context,
        stored: pl.DataFrame,
        new: pl.DataFrame,
        time: str,
        keys: Sequence[str],
    ) -> None:
        self._rule, self.context, self.stored = rule, context, stored.height
        self.now = rule.stream_time(context)
        before = stored.with_columns(pl.lit(0, pl.Int64).alias(SEQ), pl.lit(0, pl.Int64).alias(STEP))
        self.rows = pl.concat([before.select(new.columns), new])
        self._times = self.rows[time].to_list()
        self._ranks = ranks(self.rows, keys) if keys else [0] * self.rows.height
        self.waits = [row < self.stored for row in range(self.rows.height)]
        self._heap = list(zip(self._times, self._ranks, range(self.stored), strict=False))
        self._over = BEGIN  # rows that waited before this time were released
        heapq.heapify(self._heap)

    def hold(self, row: int) -> None:
        """Let a row wait."""
        self.waits[row] = True
        heapq.heappush(self._heap, (self._times[row], self._ranks[row], row))

    def advance(self, time: int) -> None:
        """Take in a time."""
        self.now = max(self.now, time)

    def take(self, row: int) -> Iterator[int]:
        """Let a row wait, and release what is due then. A row that is late is counted, and released at once."""
        if self.is_late(row):
            return iter((row,))
        self.hold(row)
        self.advance(self._times[row])
        return self.due()

    def is_late(self, row: int) -> bool:
        """Whether a row comes too late to wait; it is counted."""
        if self._times[row] >= self.now - self._rule.wait_us:
            return False
        if self._rule.late is not None:
            self.context.tell(self._rule.late, 1, self.rows, row)
        return True

    def due(self, is_full: Callable[[], bool] | None = None) -> Iterator[int]:
        """Release the rows that are due, and the first ones as long as the buffer is full."""
        heap, bound = self._heap, self.now - self._rule.wait_us
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
        """Release the rows that are due by the wall clock."""
        bound = self._rule.clock_bound(self.context)
        if bound is None:
            return []
        arrived = self.rows[ARRIVED].to_list()
        gone = [row for _, _, row in sorted(self._heap) if self.waits[row] and arrived[row] <= bound]
        for row in gone:
            self.waits[row] = False
        return gone

    def remember(self) -> None:
        """Write stream time and the waiting rows; ask to run again for the first. Running too early does no harm."""
        context, clock, wait_us = self.context, self.context.clock, self._rule.wall_clock_us
        if self.now > BEGIN:
            if self._rule.mark is None:
                context.observed = self.now
            else:
                context.marks[self._rule.mark] = self.now
        rows = changed(self.rows, self.stored, pl.Series(self.waits, dtype=pl.Boolean))
        TimeIndex.of(context, WAITING).update(rows, self._over)
        if clock is not None and wait_us is not None:
            arrived, bound = TimeIndex.of(context, BY_ARRIVAL), self._rule.clock_bound(context)
            arrived.update(rows, BEGIN if bound is None else bound + 1)
            first = arrived.bound()
            if first is not None:
                clock.wake(first + wait_us)
