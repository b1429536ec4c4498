"""Alignment: records wait until every source partition has passed them, so the order does not depend on micro-batches.

A *lane* is what keeps arriving in order: a source partition, or a source of files as a whole. In each micro-batch
every shard receives how far each lane has come. A record's time in the order is the running maximum of its lane, from
the start of the lane.

======================================================  =========================================================
record                                                  is released
======================================================  =========================================================
its time is before the time of the lane that is         now, with the others in the order of (time, source
furthest behind                                         partition, position)
any other                                               when that lane has passed it
======================================================  =========================================================

Waiting records are in an index by their time in the order. The index converts numbers and times to integers. Text has
no integer that keeps its order: if the order is by text, all waiting records are read in every micro-batch.

A source from which nothing has arrived holds back everything. A lane that was silent for ``idle_us`` (by the
micro-batch's recorded time) no longer holds others back. Its later records may be late, and are released at once. A
lane is silent, too, while its records have no time of their own, such as tombstones of a database's table. In a
user's order, a tombstone without a value of it waits with the records before it in its source partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from tablestream.operators.buffer.time_index import BEGIN, TimeIndex, by_time
from tablestream.operators.buffer.waiting import ARRIVAL, ARRIVALS, EXISTS, changed
from tablestream.operators.cells import cell_type, cells, column
from tablestream.operators.operator import Context
from tablestream.runtime.order import lowest
from tablestream.runtime.ports import Port
from tablestream.state.changes import LIVE, PARTITION, POSITION, ROOT, ROW_TS, TIME
from tablestream.state.trace import Trace
from tablestream.state.trace_spec import TraceSpec

#: Of a lane: its name, how far it has come, and when it last sent records, in microseconds since 1970.
LANE, HEARD = "_lane", "_heard"
#: Whether a record of the source partition had a time of its own.
TIMED = "_timed"
_ZERO, _RANK, _INDEXED = "_zero", "_h0", "_at"
_LARGEST = float(1 << 62)


@dataclass(frozen=True)
class Held:
    """Messages to one port that wait: where they arrive, where they go, and their columns without the order columns.

    `ordered`: they have the user's own order, which is used unchanged.
    """

    number: int
    target: Port
    schema: pl.Schema
    ordered: bool


@dataclass(frozen=True)
class Alignment:
    """The round in which records wait."""

    progress: Port
    """The port at which every shard receives how far the lanes have come."""
    held: tuple[Held, ...]
    """The messages that wait."""
    sources: int
    """How many sources the plan has."""
    time: pl.DataType
    """The dtype of times in the order."""
    idle_us: int | None
    """The microseconds of silence after which a lane no longer holds others back. None: it always does."""

    @property
    def lanes(self) -> TraceSpec:
        """The trace of the lanes."""
        columns = {_ZERO: pl.Int64(), LANE: pl.String(), TIME: self.time, HEARD: pl.Int64()}
        return TraceSpec("lanes", pl.Schema({**columns, LIVE: pl.Boolean()}), (LANE,), hash=_ZERO)

    def waiting(self, held: Held) -> TraceSpec:
        """The trace of the messages that wait for a port."""
        place = {TIME: self.time, PARTITION: pl.String(), POSITION: pl.Int64(), _RANK: pl.Int64()}
        message = {EXISTS if name == LIVE else name: kind for name, kind in held.schema.items()}
        number = 1 + self.held.index(held)
        columns = {ARRIVAL: pl.Int64(), **place, **message}
        name = f"waiting {number}: {held.target.label}"
        return by_time(name, _INDEXED, columns, [ARRIVAL], ARRIVAL)

    @property
    def marks(self) -> tuple[str, ...]:
        """How many messages have arrived, and the starts of the indexes."""
        return (ARRIVALS, *(self.waiting(held).name for held in self.held))

    @cached_property
    def traces(self) -> tuple[TraceSpec, ...]:
        """All traces of the alignment."""
        return (self.lanes, *(self.waiting(held) for held in self.held))

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports that it reads."""
        return (self.progress.number, *(held.number for held in self.held))

    @property
    def description(self) -> tuple[str, ...]:
        """What the state means."""
        idle = (
            "" if self.idle_us is None else f", a lane that is silent for {self.idle_us} us is not waited for"
        )
        remembered = (f"  {spec.name} by ({', '.join(spec.key)})" for spec in self.traces)
        return (f"align: {self.sources} sources{idle}", *remembered)

    def release(
        self, inbox: Mapping[int, Sequence[pl.DataFrame]], context: Context
    ) -> Iterator[tuple[Port, pl.DataFrame]]:
        """Take messages in, and release those that every lane has passed."""
        lanes = _Lanes(self, context.trace(self.lanes.name))
        lanes.hear(inbox.get(self.progress.number, ()))
        bound = lanes.bound()
        for held in self.held:
            spec = self.waiting(held)
            new = []
            for frame in inbox.get(held.number, ()):
                numbered = frame.with_columns(context.number(frame.height, ARRIVALS).alias(ARRIVAL))
                new.append(self._message(held, spec, numbered, lanes.floors))
            gone = self._gone(new, bound, spec, context)
            if gone.height:
                yield held.target, gone.drop(_INDEXED, ARRIVAL, LIVE).rename({EXISTS: LIVE})

    def _gone(
        self, new: Sequence[pl.DataFrame], bound: Any, spec: TraceSpec, context: Context
    ) -> pl.DataFrame:
        """Take the messages before a bound, and remember the others."""
        index = TimeIndex.of(context, spec.name)
        read, over = (BEGIN, BEGIN) if bound is None else self._range(bound)
        stored = index.until(read)
        rows = pl.concat([stored, *new])
        is_before = pl.col(TIME).is_null() | (pl.col(TIME) < pl.lit(column([bound], self.time)))
        goes = pl.lit(bound is not None) & is_before
        index.update(changed(rows, stored.height, ~goes), over)
        return rows.filter(goes)

    def _range(self, bound: Any) -> tuple[int, int]:
        """Return the last index time to read for messages before a bound, and the time before which none remain."""
        at = pl.select(_indexed(pl.lit(column([bound], self.time)), self.time)).item()
        return (at - 1, at) if self.time.is_integer() or self.time.is_temporal() else (at, at)

    def _message(
        self, held: Held, spec: TraceSpec, numbered: pl.DataFrame, floors: Mapping[str, Any]
    ) -> pl.DataFrame:
        """Messages in the form in which they wait, with the running maximum of their lanes."""
        time = pl.col(TIME).cast(self.time)
        known = pl.col(PARTITION).replace_strict(floors, default=None, return_dtype=self.time)
        if held.ordered:  # what has no order, and nothing before it here, is behind the records before
            has_none = time.is_null() | (time == lowest(self.time))
            time = pl.when(has_none).then(pl.coalesce(known, time)).otherwise(time).alias(TIME)
        else:
            time = pl.max_horizontal(time, known)
        rows = numbered.rename({LIVE: EXISTS}).with_columns(time, pl.lit(value=True).alias(LIVE))
        rows = rows.with_columns(_indexed(pl.col(TIME), self.time).alias(_INDEXED))
        if ROW_TS in spec.schema and ROW_TS not in rows.columns:
            rows = rows.with_columns(pl.lit(None, pl.Int64).alias(ROW_TS))
        return rows.select(list(spec.schema)).cast(spec.schema)


def _indexed(time: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """Map the order's times to integers; a later time never gets a smaller integer. Null is before all times."""
    if kind.is_integer() or kind.is_temporal():
        return time.to_physical().cast(pl.Int64).fill_null(BEGIN)
    if kind.is_numeric():
        whole = time.cast(pl.Float64).fill_nan(_LARGEST).floor().clip(-_LARGEST, _LARGEST)
        return whole.cast(pl.Int64).fill_null(BEGIN)
    return pl.lit(0, pl.Int64)


class _Lanes:
    """How far each lane has come; `floors`: by source partition, how far its lane had come before it."""

    def __init__(self, alignment: Alignment, trace: Trace) -> None:
        self._alignment, self._trace = alignment, trace
        rows = zip(*map(cells, trace.scan().select(LANE, TIME, HEARD)), strict=True)
        self._known: dict[str, tuple[Any, int]] = {lane: (time, heard) for lane, time, heard in rows}
        self.floors: dict[str, Any] = {}

    def hear(self, progress: Sequence[pl.DataFrame]) -> None:
        """Take in the positions of source partitions in the micro-batch, in the partitions' order."""
        if not progress:
            return
        frames = [
            frame.select(PARTITION, pl.col(TIME).cast(self._alignment.time), LANE, HEARD, TIMED)
            for frame in progress
        ]
        of_partition = pl.concat(frames).group_by(PARTITION, LANE).agg(pl.col(TIME, HEARD, TIMED).max())
        heard = set()
        for partition, lane, time, now, timed in zip(*map(cells, of_partition.sort(PARTITION)), strict=True):
            before, last = self._known.get(lane, (None, now))
            if before is not None:
                self.floors[partition] = before
            reached = [one for one in (before, time) if one is not None]
            if not reached:  # tombstones without an order came first
                continue
            self._known[lane] = (max(reached), max(last, now) if timed else last)
            heard.add(lane)
        changed = [(0, lane, *self._known[lane], True) for lane in sorted(heard)]
        schema = self._trace.spec.schema
        kinds = {name: cell_type(kind) for name, kind in schema.items()}
        self._trace.insert(pl.DataFrame(changed, kinds, orient="row").cast(schema))

    def bound(self) -> Any:
        """The time of the lane that is furthest behind; None if a source has sent nothing yet."""
        if len({lane.split("\t")[0] for lane in self._known}) < self._alignment.sources:
            return None
        idle_us, now = self._alignment.idle_us, max(heard for _, heard in self._known.values())
        return min(time for time, heard in self._known.values() if idle_us is None or heard >= now - idle_us)


def progress_of(places: pl.DataFrame, lane: pl.Expr, now_us: int) -> pl.DataFrame:
    """Describe how far some source partitions have come.

    `places`: the order columns of their records; with a column `TIMED` if some have no time of their own. `lane`: the
    lane of each. `now_us`: the micro-batch's recorded time, in microseconds since 1970.
    """
    if TIMED not in places.columns:
        places = places.with_columns(pl.lit(value=True).alias(TIMED))
    furthest = places.group_by(PARTITION).agg(pl.col(TIME, POSITION, TIMED).max())
    rank = pl.lit(0, pl.Int64).alias(_RANK)
    now = pl.lit(now_us, pl.Int64).alias(HEARD)
    return furthest.select(*ROOT, rank, lane.alias(LANE), now, TIMED)
