"""The time of tombstones that have none, such as a null value of Kafka where the time is a column of the value.

An operator gives such a tombstone the largest time that the shard has seen before it, in the total order and in the
tombstone's lane: its topic partition, or its source if that is no topic. What it deletes is as old, or older. So it
neither is late itself, nor makes others late, whatever clock its record has. The largest times are part of the shard's
state, so the time does not depend on how the input is cut.

======================================  =============================================================
seen before, at this input              time
======================================  =============================================================
changes of the lane                     the largest of their times
nothing since an older version of the   what the operator has observed, if it observes times
library wrote the state
nothing of the lane                     1970-01-01, as for rows of a bootstrap without a time
======================================  =============================================================
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tablestream.operators.events import ints
from tablestream.runtime.rounds import BY_PARTITION, Placed
from tablestream.state.changes import PARTITION, SEQ, TS
from tablestream.state.shard import ShardState

_LANE = "_lane"
#: The source's number, with which the name of a source partition begins.
_SOURCE = r"^([^\t]*)"


def with_times(
    placed: Placed, inputs: Sequence[pl.DataFrame], order: pl.DataFrame, state: ShardState
) -> list[pl.DataFrame]:
    """Give every tombstone a time, and remember the largest ones of each input that may have such tombstones.

    Parameters
    ----------
    inputs
        The messages to the operator, in their order.
    order
        The places of all messages, by ``_seq``.
    """
    timed = []
    for number, (rows, lacks) in enumerate(zip(inputs, placed.lacking, strict=True)):
        if lacks and rows.height:
            lanes = order[PARTITION][pl.Series(ints(rows[SEQ]) - 1)]
            lanes = lanes if lacks == BY_PARTITION else lanes.str.extract(_SOURCE)
            rows = _with_times(placed.name, f"{placed.name}/times {number}", rows, lanes, state)  # noqa: PLW2901
        timed.append(rows)
    return timed


def _with_times(
    name: str, mark: str, rows: pl.DataFrame, lanes: pl.Series, state: ShardState
) -> pl.DataFrame:
    frame = rows.select(TS).with_columns(lanes.alias(_LANE))
    highest = frame.group_by(_LANE).agg(pl.col(TS).max()).rows()
    is_new = state.clock(mark) is None
    known = {lane: state.clock(name) if is_new else state.clock(f"{mark} {lane}") for lane, _ in highest}
    if rows[TS].has_nulls():
        before = pl.col(TS).cum_max().forward_fill().over(_LANE)
        floor = pl.col(_LANE).replace_strict(known, return_dtype=pl.Int64)
        times = pl.coalesce(TS, pl.max_horizontal(before, floor), pl.lit(0, pl.Int64)).alias(TS)
        rows = rows.with_columns(frame.select(times).to_series())
    for lane, time in highest:
        reached = [one for one in (time, known[lane]) if one is not None]
        if reached:
            state.set_clock(f"{mark} {lane}", max(reached))
            state.set_clock(mark, 1)
    return rows
