"""Run one round on one shard: number the messages, run the operators, give a place to what they emit.

Only this module computes the total order. Before the operators run, one sort gives every message of the slice a dense
number, and operators see only these numbers. Afterwards an emitted row takes its parent's place and one more hop:
(emission number, rank of the port).

A tombstone may have no time, such as a null value of Kafka where the time is a column of the value. It gets the largest
time that the shard has seen before it, in the total order and in the tombstone's lane: its topic partition, or its
source if that is no topic. What it deletes is as old, or older. So it neither is late itself, nor makes others late,
whatever clock its record has. The largest times are part of the shard's state, so the time does not depend on how the
input is cut.

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

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import polars as pl

from tablestream.errors import TablestreamError
from tablestream.operators.events import ints
from tablestream.operators.operator import NUMBER, PARENT, Context, Emission, WallClock
from tablestream.runtime.alignment import Alignment
from tablestream.runtime.drops import example_text, place_text
from tablestream.runtime.measures import ALIGNMENT, Counts
from tablestream.runtime.order import number_messages, split_steps
from tablestream.runtime.ports import RANKS, Port
from tablestream.runtime.rounds import BY_PARTITION, Placed, Round
from tablestream.runtime.slices import Inbox
from tablestream.state.changes import (
    PARTITION,
    POSITION,
    ROOT,
    ROW_TS,
    SEQ,
    STEP,
    STEP_HOPS,
    TIME,
    TS,
    hop_columns,
)
from tablestream.state.positions import stable_order
from tablestream.state.shard import ShardState

_NUMBERS = {SEQ: pl.Int64(), STEP: pl.Int64()}
#: After every time that a record can have.
_LAST_TIME = (1 << 63) - 1
_LANE = "_lane"
#: The source's number, with which the name of a source partition begins.
_SOURCE = r"^([^\t]*)"


def run_round(
    work: Round,
    slices: Iterable[Inbox],
    state: ShardState,
    counts: Counts,
    clock: WallClock | None = None,
    shard: tuple[int, int] = (0, 1),
) -> Iterator[tuple[Port, pl.DataFrame]]:
    """Run the operators of a round over one shard's messages.

    Parameters
    ----------
    work
        The round.
    slices
        The messages; if they are many, one slice after the other (see `runtime.slices`). An operator's memory is then
        bounded by a slice and the state that it touches.
    state
        The shard's state. It is changed, but not committed.
    counts
        Counts what operators drop, receive and emit.
    clock
        The time, for a round that follows the wall clock. What the clock causes comes after all messages.
    shard
        The number of this shard, from 0, and how many shards there are.

    Yields
    ------
    Port, DataFrame
        Messages with one hop more than those that arrived.
    """
    if work.alignment is not None:
        for inbox in slices:
            yield from _align(work.alignment, inbox, state, counts)
        return
    hops = hop_columns(work.number)
    run = partial(_run, hop=work.number, state=state, counts=counts, clock=clock, shard=shard)
    for order, arrived in map(partial(_numbered, work), slices):
        for placed in work.operators:
            inputs = [arrived[port] for port in placed.inputs]
            if any(frame.height for frame in inputs):
                inputs = split_steps(order, hops, inputs)
                inputs = with_times(placed, inputs, order, state) if any(placed.lacking) else inputs
                yield from run(placed, inputs, order)
                del inputs
        del order, arrived  # before the next slice is opened
    if clock is not None:
        order = _tick(hops, shard[0])
        clock.tick, clock.wake_us = len(order), None  # operators that still wait ask again
        for placed in work.operators:
            if placed.operator.needs_clock:
                inputs = [pl.DataFrame(schema={**one, **_NUMBERS}) for one in placed.operator.inputs]
                yield from run(placed, inputs, order)


def _numbered(work: Round, inbox: Inbox) -> tuple[pl.DataFrame, dict[int, pl.DataFrame]]:
    """Return the places of a slice's messages, sorted, and by port the messages, numbered and in this order."""
    hops = hop_columns(work.number)
    time = next((frame.schema[TIME] for frames in inbox.values() for frame in frames), pl.Int64())
    split = any(STEP_HOPS in frame.columns for frames in inbox.values() for frame in frames)
    places = [*ROOT, *hops, STEP_HOPS] if split else [*ROOT, *hops]
    arrived = {
        port: _concat(inbox.get(port, ()), schema, places, time) for port, schema in work.schemas.items()
    }
    order, numbers = number_messages([arrived[port][places] for port in arrived], hops)
    for (port, frame), number in zip(arrived.items(), numbers, strict=True):
        numbered = frame[list(work.schemas[port])].hstack(number)
        in_order = number[SEQ].is_sorted()
        arrived[port] = numbered if in_order else numbered[pl.Series(stable_order(ints(number[SEQ])))]
    return order, arrived


def _align(
    alignment: Alignment, inbox: Inbox, state: ShardState, counts: Counts
) -> Iterator[tuple[Port, pl.DataFrame]]:
    """Release the records that every lane has passed."""
    held = [frame.height for one in alignment.held for frame in inbox.get(one.number, ())]
    counts.rows_in[ALIGNMENT] += sum(held)
    context = Context(state.trace, Counter(), marks=_marks(ALIGNMENT, alignment.marks, state))
    for port, messages in alignment.release(inbox, context):
        counts.rows_out[ALIGNMENT] += messages.height
        yield port, messages
    _keep(ALIGNMENT, context.marks, state)


def _marks(owner: str, names: Sequence[str], state: ShardState) -> dict[str, int]:
    """The marks that have a value."""
    return {name: mark for name in names if (mark := state.clock(f"{owner}/{name}")) is not None}


def _keep(owner: str, marks: Mapping[str, int], state: ShardState) -> None:
    """Store marks."""
    for name, mark in marks.items():
        state.set_clock(f"{owner}/{name}", mark)


def _tick(hops: Sequence[str], shard: int) -> pl.DataFrame:
    """The place after all others of the micro-batch. Times are integers if a plan follows the wall clock."""
    place = {TIME: _LAST_TIME, PARTITION: "~", POSITION: shard}
    return pl.DataFrame([place | dict.fromkeys(hops, 0)])


def _run(
    placed: Placed,
    inputs: Sequence[pl.DataFrame],
    order: pl.DataFrame,
    *,
    hop: int,
    state: ShardState,
    counts: Counts,
    clock: WallClock | None,
    shard: tuple[int, int],
) -> Iterator[tuple[Port, pl.DataFrame]]:
    """Run one operator and give what it emits a place in the order."""
    observed = state.clock(placed.name)
    marks = _marks(placed.name, placed.operator.marks, state)
    rejected: list[tuple[int, str, pl.DataFrame]] | None = [] if placed.rejecting else None
    context = Context(
        lambda name: state.trace(f"{placed.name}/{name}"),
        Counter(),
        observed,
        clock,
        marks,
        *shard,
        rejected=rejected,
    )
    counts.rows_in[placed.name] += sum(rows.height for rows in inputs)
    for emission in _emissions(placed, inputs, context, order):
        if emission.rows.is_empty():
            continue
        counts.rows_out[placed.name] += emission.rows.height
        rows = emission.rows
        number = ints(rows[NUMBER]) if NUMBER in rows.columns else np.zeros(rows.height, dtype=np.int64)
        place = order[pl.Series(ints(rows[PARENT]) - 1)]
        if placed.operator.splits_steps:
            place = place.with_columns(pl.lit(hop + 1, pl.Int64).alias(STEP_HOPS))
        carried = [column for column in rows.get_columns() if column.name not in {PARENT, NUMBER}]
        for port in placed.targets[emission.output]:
            last = pl.Series(f"_h{hop}", number * RANKS + port.rank)
            yield port, place.hstack([last, *carried])
    for of_input, reason, rows in rejected or ():
        yield from _rejections(placed, of_input, reason, rows, order, hop)
    if context.observed is not None and context.observed != observed:
        state.set_clock(placed.name, context.observed)
    _keep(placed.name, context.marks, state)
    for reason, count in context.dropped.items():
        example = partial(_example, placed, context.examples.get(reason), order)
        counts.drops.add(placed.name, reason, count, example, placed.where)


def _emissions(
    placed: Placed, inputs: Sequence[pl.DataFrame], context: Context, order: pl.DataFrame
) -> Iterator[Emission]:
    """Run an operator; an error that it raises names the operator, the user's line, and where its row comes from."""
    try:
        yield from placed.operator.run(inputs, context)
    except TablestreamError as error:
        place = "" if error.seq is None else place_text(*order[[PARTITION, POSITION]].row(error.seq - 1))
        raise error.at(placed.name, placed.where, place).with_traceback(
            error.__traceback__
        ) from error.__cause__


def _example(placed: Placed, found: tuple[int, pl.DataFrame] | None, order: pl.DataFrame) -> str:
    """Say which message an operator dropped: its key, and where the record is that caused it."""
    if found is None:
        return example_text(None, 0)
    of_input, row = found
    shown = placed.shown[of_input] if placed.shown else None
    key = "" if shown is None else shown.key_text(row)
    seq = row[SEQ].item() if SEQ in row.columns else 0
    if seq < 1:  # it has waited since an earlier micro-batch
        return example_text(None, 0, key)
    place = order[seq - 1]
    return example_text(place[PARTITION].item(), place[POSITION].item(), key)


def _rejections(
    placed: Placed, of_input: int, reason: str, rows: pl.DataFrame, order: pl.DataFrame, hop: int
) -> Iterator[tuple[Port, pl.DataFrame]]:
    """Send messages that an operator dropped to the ports that read them."""
    shown, place = placed.shown[of_input], order[ints(rows[SEQ]) - 1]
    if shown is None:  # not a record, but a message that another operator made from one
        return
    for port in placed.rejecting:
        messages = place.with_columns(pl.lit(port.rank, pl.Int64).alias(f"_h{hop}")).hstack(
            rows.drop(SEQ, STEP)
        )
        yield port, shown.rejected(messages, [*place.columns, f"_h{hop}"], placed.name, reason)


def _concat(
    frames: Sequence[pl.DataFrame], schema: pl.Schema, places: Sequence[str], time: pl.DataType
) -> pl.DataFrame:
    """Concatenate the messages of a port. Hops that a message did not take are 0, absent row times null.

    Any other missing column is an error. Spark passes timestamps in the time zone of its session; state keeps them in
    UTC.
    """
    columns, hops = [*places, *schema], places[len(ROOT) :]
    filled = [_filled(frame, hops, has_row_ts=ROW_TS in schema)[columns] for frame in frames]
    types: dict[str, pl.DataType] = {TIME: time, PARTITION: pl.String(), POSITION: pl.Int64()}
    types |= {**dict.fromkeys(hops, pl.Int64()), **schema}
    if not filled:
        return pl.DataFrame(schema=types)
    return pl.concat(
        [one if one.schema == types else one.cast(pl.Schema(types)) for one in filled], rechunk=False
    )


def _filled(frame: pl.DataFrame, hops: Sequence[str], *, has_row_ts: bool) -> pl.DataFrame:
    """Add the columns that a message may lack."""
    zeros = np.zeros(frame.height, dtype=np.int64)
    added = [pl.Series(hop, zeros) for hop in hops if hop not in frame.columns]
    if has_row_ts and ROW_TS not in frame.columns:
        added.append(pl.Series(ROW_TS, [], dtype=pl.Int64).clear(frame.height))
    return frame.hstack(added)


def with_times(
    placed: Placed, inputs: Sequence[pl.DataFrame], order: pl.DataFrame, state: ShardState
) -> list[pl.DataFrame]:
    """Give every tombstone a time, and remember the largest ones of each input that may have such tombstones.

    `inputs`: the messages to the operator, in their order. `order`: the places of all messages, by ``_seq``.
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
