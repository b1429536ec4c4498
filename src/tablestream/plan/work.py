"""The work of one round on one shard: number the messages, run the operators, place what they emit.

The total order lives here and nowhere else. On the way in, every message of the shard's micro-batch gets a dense
number by sorting once; operators see numbers only. On the way out, an emitted row takes its parent's place and
one more hop: (emission number, rank of the port).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from tablestream.operators.events import ints
from tablestream.operators.operator import NUMBER, PARENT, Context
from tablestream.plan.rounds import RANKS, Placed, Port, Round
from tablestream.state.changes import PARTITION, POSITION, ROOT, SEQ, STEP, TIME, hop_columns
from tablestream.state.trace import ShardState


def work_off(
    work: Round,
    inbox: Mapping[int, Sequence[pl.DataFrame]],
    state: ShardState,
    dropped: Counter[tuple[str, str]],
) -> Iterator[tuple[Port, pl.DataFrame]]:
    """Run the operators of a round over one shard's messages.

    Parameters
    ----------
    work
        The round.
    inbox
        Per port read in this round, frames of messages with their order columns, in any order.
    state
        What the shard remembers. It is changed, and not committed.
    dropped
        Counts what operators drop, by operator and reason.

    Yields
    ------
    Port, DataFrame
        Messages with one hop more than those that came.
    """
    hops = hop_columns(work.number)
    arrived = {port: _concat(inbox.get(port, ()), schema, hops) for port, schema in work.schemas.items()}
    order, numbers = number_messages([arrived[port].select(*ROOT, *hops) for port in arrived], hops)
    for (port, frame), number in zip(arrived.items(), numbers, strict=True):
        arrived[port] = frame.drop(*ROOT, *hops).hstack(number).sort(SEQ)
    for placed in work.operators:
        inputs = [arrived[port] for port in placed.inputs]
        if any(frame.height for frame in inputs):
            yield from _run(placed, inputs, order, work.number, state, dropped)


def _run(
    placed: Placed,
    inputs: Sequence[pl.DataFrame],
    order: pl.DataFrame,
    hop: int,
    state: ShardState,
    dropped: Counter[tuple[str, str]],
) -> Iterator[tuple[Port, pl.DataFrame]]:
    """Run one operator and give what it emits a place in the order."""
    context = Context(trace=lambda name: state.trace(f"{placed.name}/{name}"), dropped=Counter())
    for emission in placed.operator.run(inputs, context):
        if emission.rows.is_empty():
            continue
        rows = emission.rows if NUMBER in emission.rows.columns else emission.rows.with_columns(_zero(NUMBER))
        place = order[ints(rows[PARENT]) - 1]
        for port in placed.targets[emission.output]:
            last = (rows[NUMBER] * RANKS + port.rank).alias(f"_h{hop}")
            yield port, place.with_columns(last).hstack(rows.drop(PARENT, NUMBER))
    dropped.update({(placed.name, reason): count for reason, count in context.dropped.items() if count})


def number_messages(
    places: Sequence[pl.DataFrame], hops: Sequence[str]
) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    """Sort messages by their place in the total order.

    Parameters
    ----------
    places
        Frames of order columns: root, then `hops`.

    Returns
    -------
    order
        All places, sorted.
    numbers
        Per frame, ``_seq`` (from 1) and ``_step`` (from 1, equal for equal roots) of its rows.
    """
    every = pl.concat(places)
    sorting = _sort_keys(every, hops)
    index = ints(every.select(pl.arg_sort_by(*sorting)).to_series())
    order = every[index]
    fresh = order.select(
        pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift(1)) for name in ROOT)
        | (pl.int_range(pl.len()) == 0)
    )
    seq, step = np.empty(len(index), dtype=np.int64), np.empty(len(index), dtype=np.int64)
    seq[index] = np.arange(1, len(index) + 1)
    step[index] = np.cumsum(fresh.to_series().to_numpy())
    numbers, start = [], 0
    for frame in places:
        end = start + frame.height
        numbers.append(pl.DataFrame({SEQ: seq[start:end], STEP: step[start:end]}))
        start = end
    return order, numbers


def _sort_keys(every: pl.DataFrame, hops: Sequence[str]) -> list[pl.Expr]:
    """What to sort by: columns that hold one value only are left out, and partitions become numbers."""
    keys = [pl.col(TIME)]
    if every[PARTITION].n_unique() > 1:
        keys.append(pl.col(PARTITION).rank("dense"))
    keys.append(pl.col(POSITION))
    return keys + [pl.col(hop) for hop in hops if every[hop].n_unique() > 1]


def _concat(frames: Sequence[pl.DataFrame], schema: pl.Schema, hops: Sequence[str]) -> pl.DataFrame:
    """Put the messages of a port together; hops that a message did not take are 0, absent row times null."""
    columns = [*ROOT, *hops, *schema]
    filled = [
        frame.select(
            name
            if name in frame.columns
            else _zero(name)
            if name in hops
            else pl.lit(None, schema[name]).alias(name)
            for name in columns
        )
        for frame in frames
    ]
    if filled:
        return pl.concat(filled, rechunk=False)
    time = pl.Schema({TIME: pl.Int64(), PARTITION: pl.String(), POSITION: pl.Int64()})
    return pl.DataFrame(schema={**time, **dict.fromkeys(hops, pl.Int64()), **schema})


def _zero(name: str) -> pl.Expr:
    return pl.lit(0, pl.Int64).alias(name)


def in_order(frames: Sequence[pl.DataFrame], hops: Sequence[str], last_only: bool) -> pl.DataFrame:
    """Put messages to one output into the total order; with `last_only` the last per key of them.

    Hops that a message did not take are 0.
    """
    filled = [
        frame.with_columns(_zero(name) for name in hops if name not in frame.columns) for frame in frames
    ]
    every = pl.concat(filled, how="diagonal") if len(filled) > 1 else filled[0]
    every = every[every.select(pl.arg_sort_by(*_sort_keys(every, hops))).to_series()]
    if last_only:
        keys = [name for name in every.columns if name.startswith(("_k", "_f"))]
        every = every.unique(keys, keep="last", maintain_order=True)
    return every
