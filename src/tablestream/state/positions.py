"""Rows by their positions: sorted, compared and gathered in ways that are fast for few rows and for many.

A micro-batch often has a handful of rows per shard. An expression of Polars costs 30 to 150 microseconds however few
rows it gets, so these functions use NumPy, or what Polars does without an expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_T = TypeVar("_T", bound=np.generic)

# Nanoseconds a value: NumPy, Polars, and digits of 16 bits, each sorted by NumPy. 1,000 random hashes: 27, 128 and 30;
# 20,000: 60, 44 and 22; 300,000: 86, 35 and 41. 20,000 values within 32 bits: 55, 40 and 11.
_FEW, _MANY = 1_000, 200_000
#: An odd constant (2**64 over the golden ratio) that spreads one hash before another is added.
MIX = np.int64(-7046029254386353131)


def stable_order(values: Ints) -> Ints:
    """Return the positions of the values in rising order; equal values keep their order.

    The result may be read-only.

    Examples
    --------
    >>> stable_order(np.array([5, 3, 5, 1])).tolist()
    [3, 1, 0, 2]
    """
    if len(values) < _FEW:
        return np.argsort(values, kind="stable")
    low = values.min()
    bits = (int(values.max()) - int(low)).bit_length()
    if bits > 48 and len(values) > _MANY:
        order = pl.DataFrame({"value": values}).select(pl.arg_sort_by("value", maintain_order=True))
        return order.get_column("value").cast(pl.Int64).to_numpy()
    rest = (values - low).view(np.uint64)  # where the difference overflows, its bits are right
    found = np.argsort(rest.astype(np.uint16), kind="stable")
    for digit in range(16, bits, 16):
        found = found[np.argsort((rest >> digit).astype(np.uint16)[found], kind="stable")]
    return found


def put_back(values: npt.NDArray[_T], order: Ints) -> npt.NDArray[_T]:
    """Return values of sorted rows in the order in which the rows came; `order` has the position that each had there.

    Examples
    --------
    >>> put_back(np.array([10, 20, 30]), np.array([2, 0, 1])).tolist()
    [20, 30, 10]
    """
    found = np.empty_like(values)
    found[order] = values
    return found


def all_same(rows: pl.DataFrame, columns: Sequence[str], some: Ints, others: Ints) -> bool:
    """Whether rows at some positions equal those at others; nulls are equal, and so are NaNs."""
    if not len(some):
        return True
    one, other = pl.Series(some), pl.Series(others)
    return all(rows[name][one].equals(rows[name][other], null_equal=True) for name in columns)


def frame_of(table: pa.Table) -> pl.DataFrame:
    """Return an Arrow table as a frame."""
    return cast("pl.DataFrame", pl.from_arrow(table))


def stacked(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Put frames with the same columns one after the other; those without rows cost nothing.

    Examples
    --------
    >>> one = pl.DataFrame({"a": [1]})
    >>> stacked([one.clear(), one, one])["a"].to_list()
    [1, 1]
    """
    return pl.concat([frame for frame in frames if frame.height] or frames[:1], rechunk=False)


def gather(column: pl.Series, positions: Ints) -> pl.Series:
    """Take the rows at some positions; null where the position is negative.

    Examples
    --------
    >>> gather(pl.Series(["a", "b"]), np.array([1, -1])).to_list()
    ['b', None]
    """
    absent = positions < 0
    if absent.all():  # an index of nulls only would be refused
        return column.clear(len(positions))
    index = pl.Series(pa.array(positions, mask=absent)) if absent.any() else pl.Series(positions)
    return column[index]


def differs(column: pl.Series) -> Bools:
    """Return whether each row but the first differs from the row before it; nulls are equal.

    Examples
    --------
    >>> differs(pl.Series(["a", "a", "b"])).tolist()
    [False, True]
    """
    if column.dtype.is_nested() or column.has_nulls():
        return column[1:].ne_missing(column[:-1]).to_numpy()
    return (column[1:] != column[:-1]).to_numpy()


def starts(*columns: Ints | pl.Series) -> Bools:
    """Return whether each row differs from the row before it; nulls are equal. The first row always does."""
    changed = np.zeros(len(columns[0]), dtype=bool)
    changed[:1] = True
    for column in columns:
        changed[1:] |= differs(column) if isinstance(column, pl.Series) else column[1:] != column[:-1]
    return changed


def expanded(first: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return for every position of several half-open ranges, in order, the number of its range and the position itself.

    Examples
    --------
    >>> [part.tolist() for part in expanded(np.array([0, 5]), np.array([3, 6]))]
    [[0, 0, 0, 1], [0, 1, 2, 5]]
    """
    ranges = np.repeat(np.arange(len(first)), end - first)
    ends = np.cumsum(end - first)
    return ranges, np.arange(len(ranges)) + np.repeat(end - ends, end - first)
