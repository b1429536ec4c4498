"""An index of waiting rows by time, which reads only the rows that are due.

A time index is a trace whose hash column is the time itself. Its chunks hold ranges of times, so the rows up to a time
are read without opening later chunks. A row is removed by a tombstone. The *start*, one of the shard's marks, says
how much of the front of the index is done: neither removed rows nor their tombstones are read again.

Invariant
    No waiting row has a time before the start. A start that is too early costs reading, but changes no result.

============  =========================================================================================
call          cost
============  =========================================================================================
``until``     the rows from the start up to the time
``first``     so many rows in each run, all with the last one's time, and once the removed rows before them
``bound``     a row in each run
``update``    the rows that are added and removed, as with any trace
============  =========================================================================================

Each call opens at most one chunk per run more than these rows fill, and a trace has few runs (see `state.merge`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from tablestream.operators.events import ints
from tablestream.operators.operator import Context
from tablestream.state.changes import LIVE
from tablestream.state.trace import Trace
from tablestream.state.trace_spec import TraceSpec

#: Before and after all times. `END` is also the start of an index in which nothing waits.
BEGIN, END = -(1 << 63), (1 << 63) - 1


def latest(known: int | None, times: pl.Series) -> int:
    """Return the largest of a known time and others; `BEGIN` if there is none."""
    return int(ints(times).max(initial=BEGIN if known is None else known))


def by_time(
    name: str,
    time: str,
    columns: Mapping[str, pl.DataType],
    unique: Sequence[str],
    unique_hash: str,
) -> TraceSpec:
    """Describe the trace of a time index.

    `name`, `unique_hash`: as in `TraceSpec`. `time`: the Int64 column of the times. `columns`: the dtypes of the other
    columns. `unique`: the columns that distinguish rows with the same time.
    """
    schema = pl.Schema({time: pl.Int64(), **columns, LIVE: pl.Boolean()})
    return TraceSpec(name, schema, (time,), tuple(unique), hash=time, unique_hash=unique_hash)


@dataclass(frozen=True)
class TimeIndex:
    """The waiting rows of a trace, by time.

    Examples
    --------
    >>> from tablestream.state.cache import NoCache
    >>> from tablestream.state.shard import ShardState
    >>> from tablestream.state.store import MemoryStore
    >>> spec = by_time("waiting", "_ts", {"n": pl.Int64()}, ["n"], "n")
    >>> index = TimeIndex(ShardState(MemoryStore(), NoCache(), [spec], "").trace("waiting"), {}, "waiting")
    >>> index.update(pl.DataFrame({"_ts": [5, 7, 9], "n": [1, 2, 3], "_live": True}))
    >>> due = index.until(7)
    >>> due.rows(), index.first(1).rows()
    ([(5, 1, True), (7, 2, True)], [(5, 1, True)])
    >>> index.update(due.with_columns(_live=False), over=8)
    >>> index.until(8).rows(), index.first(1).rows()
    ([], [(9, 3, True)])
    """

    trace: Trace
    """A trace that `by_time` describes."""
    marks: dict[str, int]
    """The shard's marks."""
    mark: str
    """The name of the mark with the start of this index; the operator declares it."""

    @classmethod
    def of(cls, context: Context, name: str) -> TimeIndex:
        """Open an index of an operator; its mark has the name of its trace."""
        return cls(context.trace(name), context.marks, name)

    @property
    def start(self) -> int:
        """The time before which nothing waits."""
        return self.marks.get(self.mark, END)

    def until(self, time: int) -> pl.DataFrame:
        """Read the rows that wait up to a time, in no particular order."""
        return self.trace.between(self.start, time)

    def first(self, rows: int) -> pl.DataFrame:
        """Read the first waiting rows, in no order: at least so many if there are, and all with the last one's time."""
        stored = rows
        while True:
            end = self.trace.reach(self.start, stored)
            found = self.trace.between(self.start, END if end is None else end)
            if end is None or found.height >= rows:
                break
            stored *= 8
        self.marks[self.mark] = self._earliest(found)
        return found

    def bound(self) -> int | None:
        """Return a time before which nothing waits: that of a waiting or removed row; None if there is neither."""
        return self.trace.reach(self.start, 1)

    def update(self, changed: pl.DataFrame, over: int = BEGIN) -> None:
        """Insert new rows, and tombstones of removed ones.

        `changed`: rows of the trace. One that is removed and added again appears twice, and the last one counts.
        `over`: all rows that waited before this time were removed; new rows may be earlier.
        """
        changed = changed.unique(self.trace.spec.identity, keep="last", maintain_order=True)
        self.marks[self.mark] = min(max(self.start, over), self._earliest(changed.filter(LIVE)))
        self.trace.insert(changed)

    def _earliest(self, rows: pl.DataFrame) -> int:
        return int(ints(rows[self.trace.spec.hash]).min(initial=END))
