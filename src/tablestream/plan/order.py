"""The total order of messages: root first, then hop by hop, parent before child.

Most messages differ in their time alone, and come in runs that are sorted already. So they are sorted by time with
a sort that merges runs, and only those that share a time are sorted by the rest of their place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from tablestream.operators.events import Ints, ints
from tablestream.state.changes import PARTITION, POSITION, ROOT, SEQ, STEP, TIME


def sorted_positions(places: pl.DataFrame, hops: Sequence[str]) -> Ints:
    """Return the positions of messages in the total order.

    Parameters
    ----------
    places
        Their order columns: root, then `hops`.
    """
    if not places.schema[TIME].is_integer():
        return ints(places.select(pl.arg_sort_by(*_sort_keys(places, hops))).to_series())
    time = ints(places[TIME])
    positions = np.argsort(time, kind="stable")
    time = time[positions]
    same = time[1:] == time[:-1]
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same)) if len(time) else positions
    if len(tied):
        rest = places[positions[tied]]
        if not _is_sorted(rest, hops):
            within = ints(rest.select(pl.arg_sort_by(*_sort_keys(rest, hops))).to_series())
            positions[tied] = positions[tied][within]
    return positions


def _is_sorted(places: pl.DataFrame, hops: Sequence[str]) -> bool:
    """Whether messages sorted by time are in order also where times are equal."""
    risen = pl.col(TIME) > pl.col(TIME).shift(1)
    equal = pl.col(TIME) == pl.col(TIME).shift(1)
    for name in (PARTITION, POSITION, *hops):
        before = pl.col(name).shift(1)
        risen, equal = risen | (equal & (pl.col(name) > before)), equal & (pl.col(name) == before)
    return bool(places.select((risen | equal).all()).item())


def number_messages(
    places: Sequence[pl.DataFrame], hops: Sequence[str]
) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    """Number messages by their place in the total order.

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
    positions = sorted_positions(every, hops)
    order = every[positions]
    fresh = order.select(
        pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift(1)) for name in ROOT)
        | (pl.int_range(pl.len()) == 0)
    )
    seq, step = np.empty(len(positions), dtype=np.int64), np.empty(len(positions), dtype=np.int64)
    seq[positions] = np.arange(1, len(positions) + 1)
    step[positions] = np.cumsum(fresh.to_series().to_numpy())
    numbers, start = [], 0
    for frame in places:
        end = start + frame.height
        numbers.append(pl.DataFrame({SEQ: seq[start:end], STEP: step[start:end]}))
        start = end
    return order, numbers


def in_order(frames: Sequence[pl.DataFrame], hops: Sequence[str]) -> pl.DataFrame:
    """Put messages to one output into the total order; hops that a message did not take are 0."""
    filled = [
        frame.with_columns(pl.lit(0, pl.Int64).alias(name) for name in hops if name not in frame.columns)
        for frame in frames
    ]
    every = pl.concat(filled, how="diagonal") if len(filled) > 1 else filled[0]
    return every[sorted_positions(every, hops)]


def slices(steps: Sequence[pl.Series], rows: int) -> Iterator[tuple[int, int]]:
    """Cut numbered messages into parts of about `rows`, never inside a step.

    Parameters
    ----------
    steps
        The ``_step`` of all messages.

    Yields
    ------
    first, last
        Steps, both included.
    """
    counts = np.bincount(np.concatenate([ints(step) for step in steps]))
    running = np.cumsum(counts)
    first, taken = 1, 0
    while first < len(counts):
        last = min(max(int(np.searchsorted(running, taken + rows, "right")) - 1, first), len(counts) - 1)
        yield first, last
        first, taken = last + 1, int(running[last])


def _sort_keys(places: pl.DataFrame, hops: Sequence[str]) -> list[pl.Expr]:
    """What to sort by: columns that hold one value only are left out, and partitions become numbers."""
    keys = [pl.col(TIME)]
    if places[PARTITION].n_unique() > 1:
        keys.append(pl.col(PARTITION).rank("dense"))
    keys.append(pl.col(POSITION))
    return keys + [pl.col(hop) for hop in hops if places[hop].n_unique() > 1]
