"""The total order of messages: root first, then hop by hop, parent before child.

Most messages differ only in their time, and arrive in runs that are already sorted. So they are sorted by time with
a sort that merges runs, and only messages with the same time are sorted by the rest of their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
import polars as pl

from tablestream.operators.events import ints
from tablestream.runtime.ports import RANKS
from tablestream.state.changes import BOOTSTRAP, PARTITION, POSITION, ROOT, SEQ, STEP, STEP_HOPS, TIME
from tablestream.state.positions import Ints, differs, put_back, stacked, starts


def sorted_positions(places: pl.DataFrame, hops: Sequence[str]) -> Ints:
    """Return the positions of messages in the total order.

    `places`: their order columns: root, then `hops`.
    """
    if not places.schema[TIME].is_integer():
        return ints(places.select(pl.arg_sort_by(*_sort_keys(places, hops))).to_series())
    time = ints(places[TIME])
    positions = np.argsort(time, kind="stable")
    time = time[positions]
    same = time[1:] == time[:-1]
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same)) if len(time) else positions
    if len(tied):
        at = positions[tied]
        time, partitions = time[tied], places[PARTITION][pl.Series(at)]
        rest = [ints(places[name])[at] for name in (POSITION, *hops)]
        if _differ_within(time, partitions) or not _are_sorted([time, *rest]):
            keys = [time, _partition_numbers(partitions), *rest]
            positions[tied] = at[np.lexsort(keys[::-1])]
    return positions


def lowest(kind: pl.DataType) -> pl.Expr:
    """What sorts before every time of a type, or as the lowest: null sorts first, but integers are sorted without."""
    return pl.lit(0, kind).lower_bound() if kind.is_integer() else pl.lit(None, kind)


def _differ_within(time: Ints, partitions: pl.Series) -> bool:
    """Whether two source partitions have records with the same time."""
    return bool((differs(partitions) & (time[1:] == time[:-1])).any())


def _partition_numbers(partitions: pl.Series) -> Ints:
    """Number source partitions in their order."""
    changes = starts(partitions)
    runs = partitions[pl.Series(np.flatnonzero(changes))].to_list()
    numbers = {name: number for number, name in enumerate(sorted(set(runs)))}
    return np.repeat([numbers[name] for name in runs], np.diff(np.flatnonzero(changes), append=len(changes)))


def _are_sorted(keys: Sequence[Ints]) -> bool:
    """Whether rows of some columns are in lexicographic order."""
    undecided = np.ones(len(keys[0]) - 1, dtype=bool)
    for key in keys:
        if (undecided & (key[1:] < key[:-1])).any():
            return False
        undecided &= key[1:] == key[:-1]
    return True


def number_messages(
    places: Sequence[pl.DataFrame], hops: Sequence[str]
) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    """Number messages by their place in the total order.

    `places`: frames of order columns: root, then `hops`. Returns `order`: all places, sorted. Returns `numbers`: per
    frame, ``_seq`` (from 1) and ``_step`` (from 1, equal for what one record caused) of its rows. What bootstraps
    caused is the first step. Where operators upstream split steps, `split_steps` numbers them anew.
    """
    every = stacked(places)
    positions = sorted_positions(every, hops)
    order = every[pl.Series(positions)]
    seq = put_back(np.arange(1, len(positions) + 1), positions)
    step = put_back(_numbered_steps(order, [order[hop] // RANKS for hop in hops[:1]]), positions)
    bounds = accumulate((frame.height for frame in places), initial=0)
    return order, [
        pl.DataFrame({SEQ: seq[begin:end], STEP: step[begin:end]}) for begin, end in pairwise(bounds)
    ]


def split_steps(
    order: pl.DataFrame, hops: Sequence[str], frames: Sequence[pl.DataFrame]
) -> list[pl.DataFrame]:
    """Number the steps anew where operators upstream made a step of each record that they let go.

    What such an operator lets go can stand between messages of the record that caused it. So steps are numbered for
    each operator: only what it gets itself can divide a step. Where no operator splits steps, they stay as they are.

    `order`: the places of all messages, sorted. `frames`: the messages to one operator, with ``_seq`` and ``_step``.
    """
    if STEP_HOPS not in order.columns:
        return list(frames)
    own = np.sort(np.concatenate([ints(frame[SEQ]) for frame in frames]))
    places = order[pl.Series(own - 1)]
    steps = np.zeros(len(order), dtype=np.int64)
    steps[own - 1] = _numbered_steps(places, _hops_of_step(places, hops))
    return [frame.with_columns(pl.Series(STEP, steps[ints(frame[SEQ]) - 1])) for frame in frames]


def _numbered_steps(order: pl.DataFrame, own: Sequence[pl.Series]) -> Ints:
    """Number the steps of sorted messages from 1: a step has one root, and one value of each of its `own` columns."""
    fresh = starts(*order[ROOT], *own)
    fresh[: _bootstrapped(order)] = False
    fresh[:1] = True
    return np.cumsum(fresh)


def _bootstrapped(order: pl.DataFrame) -> int:
    """How many of the sorted messages come from bootstraps: these are the first."""
    if order.is_empty() or order[PARTITION][0] != BOOTSTRAP:
        return 0
    return int((order[PARTITION] == BOOTSTRAP).sum())


def _hops_of_step(order: pl.DataFrame, hops: Sequence[str]) -> list[pl.Series]:
    """How many hops are part of a step, and these hops; of the last one only the emission number, not the port.

    The emission number of the first hop is always part of it: it is the number of a record among those of one root.
    Hops that are no part are 0.
    """
    depth = pl.col(STEP_HOPS)
    own = [
        pl.when(depth > number + 1)
        .then(hop)
        .when((depth == number + 1) | (number == 0))
        .then(pl.col(hop) // RANKS)
        .otherwise(0)
        for number, hop in enumerate(hops)
    ]
    named = (one.alias(hop) for one, hop in zip(own, hops, strict=True))
    return order.select(depth, *named).get_columns()


def in_order(frames: Sequence[pl.DataFrame], hops: Sequence[str]) -> pl.DataFrame:
    """Sort messages to one output by the total order; hops that a message did not take are 0."""
    filled = [
        frame.with_columns(pl.lit(0, pl.Int64).alias(name) for name in hops if name not in frame.columns)
        for frame in frames
    ]
    every = pl.concat(filled, how="diagonal") if len(filled) > 1 else filled[0]
    every = every.rechunk()  # or each column would be gathered from a piece for each blob, in twice the time
    return every[sorted_positions(every, hops)]


def _sort_keys(places: pl.DataFrame, hops: Sequence[str]) -> list[pl.Expr]:
    """The columns to sort by: columns with a single value are left out, and partitions become numbers."""
    keys = [pl.col(TIME)]
    if places[PARTITION].n_unique() > 1:
        keys.append(pl.col(PARTITION).rank("dense"))
    keys.append(pl.col(POSITION))
    return keys + [pl.col(hop) for hop in hops if places[hop].n_unique() > 1]
