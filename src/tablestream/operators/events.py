"""Changes of one shard as integers: computations on keys, places and times that several operators share.

An operator first sets the payload aside: a change becomes (number of its key, place in the order, number of its
input, position of its row). All rules are applied to such arrays; the payload is gathered once, at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from tablestream.state.changes import in_hash_order
from tablestream.state.positions import Bools, Ints, gather, stable_order, stacked, starts
from tablestream.state.trace import Trace

_T = TypeVar("_T", np.int64, np.bool_)


#: The time before all times, smaller than every other.
NEVER = np.int64(np.iinfo(np.int64).min)


def ints(column: pl.Series) -> Ints:
    """Return an integer column without nulls as an array."""
    return column.cast(pl.Int64).to_numpy()


def bools(column: pl.Series) -> Bools:
    """Return a Boolean column without nulls as an array."""
    return column.to_numpy()


def pick(values: npt.NDArray[_T], positions: Ints, default: _T | int) -> npt.NDArray[_T]:
    """Take the values at some positions; `default` where the position is negative. The dtype is that of the values."""
    if not len(values):
        return np.full(len(positions), default, dtype=values.dtype)
    return np.where(positions >= 0, values.take(positions, mode="clip"), default)


def existing(positions: Ints, live: Bools) -> Ints:
    """Return the positions of rows that exist; -1 where the position is negative or the row is a tombstone."""
    return np.where(pick(live, positions, False), positions, -1)


def ranks(rows: pl.DataFrame, keys: Sequence[str]) -> list[int]:
    """Return the rank of each row's key among the keys of all rows; equal keys have equal ranks."""
    return rows.select(pl.struct(keys).rank("dense").cast(pl.Int64)).to_series().to_list()


def touched_keys(trace: Trace, *frames: pl.DataFrame) -> pl.DataFrame:
    """Return the distinct keys by which a trace has the rows of some frames: the hash and the key's columns."""
    hashes, keys = trace.spec.hash, trace.spec.key
    every = stacked([frame[[hashes, *keys]] for frame in frames])
    sorted_keys = in_hash_order(every, hashes, keys)
    if sorted_keys is None:
        return every.unique(keep="any")
    order, first = sorted_keys
    return every[pl.Series(order[first])]


def stored_rows(trace: Trace, *frames: pl.DataFrame) -> pl.DataFrame:
    """Return the stored rows of all keys that some frames have."""
    return trace.lookup(touched_keys(trace, *frames))


def places(numbers: Ints, asked: Ints) -> Ints:
    """Return where each asked number is among some numbers that differ; -1: nowhere."""
    place = np.full(int(max(numbers.max(initial=-1), asked.max(initial=-1))) + 1, -1, dtype=np.int64)
    place[numbers] = np.arange(len(numbers))
    return place[asked]


def expanded_in_parts(low: Ints, high: Ints, rows: int) -> Iterator[tuple[Ints, Ints]]:
    """Expand half-open ranges of positions, `rows` positions at a time.

    Yields: for every position of every range, in order, the number of its range and the position itself.

    Examples
    --------
    >>> [(o.tolist(), p.tolist()) for o, p in expanded_in_parts(np.array([0, 5]), np.array([3, 6]), 2)]
    [([0, 0], [0, 1]), ([0, 1], [2, 5])]
    """
    ends = np.cumsum(high - low)
    total = int(ends[-1]) if len(ends) else 0
    for begin in range(0, total, rows):
        number = np.arange(begin, min(begin + rows, total), dtype=np.int64)
        owner = np.searchsorted(ends, number, "right")
        yield owner, np.asarray(number - (ends[owner] - high[owner]), dtype=np.int64)


def ends(*columns: Ints | pl.Series) -> Bools:
    """Return whether each row differs from the row after it; nulls are equal. The last row always does."""
    return np.append(starts(*columns)[1:], True)[: len(columns[0])]


def run_start(start: Bools) -> Ints:
    """Return the position where the run of each row starts."""
    return np.maximum.accumulate(np.where(start, np.arange(len(start), dtype=np.int64), 0))


def run_end(start: Bools) -> Ints:
    """Return the position where the run of each row ends."""
    last = np.flatnonzero(np.append(start[1:], True)[: len(start)])
    return np.asarray(last[np.cumsum(start) - 1])


def previous(values: npt.NDArray[_T], start: Bools, default: _T | int | npt.NDArray[_T]) -> npt.NDArray[_T]:
    """Return the value one position before each; `default` where a run starts."""
    return np.where(start, default, np.append(values[:1], values)[: len(values)])


def following(values: npt.NDArray[_T], end: Bools, default: _T | int) -> npt.NDArray[_T]:
    """Return the value one position behind each; `default` where a run ends."""
    return np.where(end, default, np.append(values[1:], values[-1:]))


def latest(marked: Bools, start: Bools) -> Ints:
    """Return the last marked position up to each one, in the same run; -1 if there is none."""
    last = np.maximum.accumulate(np.where(marked, np.arange(len(marked), dtype=np.int64), -1))
    return np.where(last >= run_start(start), last, -1)


def running(moves: Ints, start: Bools) -> Ints:
    """Return running sums of integers of any kind, starting anew at each start."""
    total = np.cumsum(moves)
    before = (total - moves)[start]
    return np.asarray(total - before[np.cumsum(start) - 1])


def by_key(kid: Ints, place: Ints) -> Ints:
    """Return the positions sorted by key and place; places are not negative and differ within a key."""
    return stable_order(kid * (int(place.max(initial=0)) + 1) + place)


def are_equal(columns: Iterable[tuple[pl.Series, pl.Series]]) -> Bools:
    """Compare rows one by one, from pairs of columns; nulls are equal."""
    pairs = (one.eq_missing(other) for one, other in columns)
    return bools(pl.select(pl.all_horizontal(pairs)).to_series())


def same_rows(rows: pl.DataFrame, one: Ints, other: Ints) -> Bools:
    """Compare rows at two lists of positions; nulls are equal, and so are two positions -1."""
    return are_equal((gather(column, one), gather(column, other)) for column in rows)


def repeats(values: pl.Series, columns: Sequence[str], now: Ints, before: Ints) -> Bools:
    """Return whether each value equals the one before in some of its columns.

    `now`, `before`: the positions of both; negative: there is no such row.
    """
    both = (now >= 0) & (before >= 0)
    if not columns or not both.any():
        return both
    same = both.copy()
    same[both] = same_rows(values.struct.unnest()[list(columns)], now[both], before[both])
    return same


def left_and_reached(place: Ints, leaves: Bools, reaches: Bools) -> tuple[Ints, Bools]:
    """List, change by change in the order of their places, what each leaves and then what it reaches.

    Places are positions of rows, of which no two changes share one: memory grows with the largest.

    Returns: the number of the change, and whether the entry is about what it reaches.

    Examples
    --------
    >>> leaves, reaches = np.array([False, True]), np.array([True, True])
    >>> changes, reached = left_and_reached(np.array([7, 5]), leaves, reaches)
    >>> changes.tolist(), reached.tolist()
    ([1, 1, 0], [False, True, True])
    """
    entries = np.full(2 * (int(place.max(initial=-1)) + 1), -1, dtype=np.int64)
    entries[2 * place[leaves]] = np.flatnonzero(leaves)
    entries[2 * place[reaches] + 1] = np.flatnonzero(reaches)
    at = np.flatnonzero(entries >= 0)
    return entries[at], at % 2 == 1
