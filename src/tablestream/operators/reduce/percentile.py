"""Exact percentiles: the value at a share of a group's values, in their order; between two values, a mean of both.

====================================  =========================================================================
the group's values                    result
====================================  =========================================================================
none that is not null                 null
n that are not null                   with p = share * (n - 1): the value at place p, counted from 0; between two
.                                     places the two values, each weighted by how near it is
====================================  =========================================================================

NaN is the greatest value. The heads are all values from a lowest to a highest one; how many rows have a value below
the lowest one is known, and how many rows have any value.

References
----------
Spark's ``percentile``, which computes the same.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from tablestream.operators.reduce.ranked_counts import SHORT, OfRankedCounts, Picker


@dataclass(frozen=True)
class Percentile(OfRankedCounts):
    """A percentile of a column of numbers.

    Parameters
    ----------
    column, of
        The column, and its dtype.
    share
        From 0 to 1.
    """

    numbers = ("below", "rows")
    values = ("low", "high")

    column: str
    of: pl.DataType
    share: float

    @property
    def result(self) -> pl.DataType:
        return pl.Float64()

    @property
    def word(self) -> str:
        return f"percentile_{self.share}_{self.column}"

    def picker(self, counts: dict[Any, int], bound: Mapping[str, Any] | None) -> Picker:
        """Begin with values."""
        return _Middle(counts, bound, self.share)

    def cell(self, picked: Any, cell_of: Callable[[Any], Any]) -> Any:
        """Return the value between two values."""
        low, high, place = picked
        if low == high:
            return float(cell_of(low))
        return (math.ceil(place) - place) * float(cell_of(low)) + (place - math.floor(place)) * float(
            cell_of(high)
        )


class _Middle:
    """Finds the value at a place among sorted values by going on from the one that was found before."""

    def __init__(self, counts: dict[Any, int], bound: Mapping[str, Any] | None, share: float) -> None:
        self.counts, self._share = counts, share
        self._values = sorted(counts)
        known = bound or {"below": 0, "rows": sum(counts.values()), "low": None, "high": None}
        self._below, self._rows, self._low, self._high = (
            known[name] for name in ("below", "rows", "low", "high")
        )
        self._at, self._before = 0, self._below  # a value, and how many rows have a lesser one

    def take(self, value: Any, before: int, after: int) -> None:
        before, after = max(before, 0), max(after, 0)
        self._rows += after - before
        if self._high is not None and value > self._high:
            return
        if self._low is not None and value < self._low:
            self._below += after - before
            self._before += after - before
            return
        place = bisect_left(self._values, value)
        if place < self._at:
            self._before += after - before
        if before == 0 and after:
            self._values.insert(place, value)
            self._at += place < self._at
        elif before and after == 0:
            del self._values[place]
            self._at -= place < self._at
        if after:
            self.counts[value] = after
        else:
            self.counts.pop(value, None)

    def pick(self) -> Any:
        if self._rows == 0:
            return None
        place = self._share * (self._rows - 1)
        low, high = self._value(math.floor(place)), self._value(math.ceil(place))
        return SHORT if low is None or high is None else (low, high, place)

    def _value(self, place: int) -> Any:
        """The value of the row at a place; None if it is not known."""
        while self._at and self._before > place:
            self._at -= 1
            self._before -= self.counts[self._values[self._at]]
        while self._at < len(self._values) and self._before + self.counts[self._values[self._at]] <= place:
            self._before += self.counts[self._values[self._at]]
            self._at += 1
        is_known = self._before <= place and self._at < len(self._values)
        return self._values[self._at] if is_known else None

    def bound(self, most: int) -> Mapping[str, Any]:
        if len(self._values) > 2 * most:
            begin = max(0, min(self._at - most // 2, len(self._values) - most))
            dropped = self._values[:begin]
            self._below += sum(self.counts[value] for value in dropped)
            end = begin + most
            self._low = self._values[begin] if begin else self._low
            self._high = self._values[end - 1] if end < len(self._values) else self._high
            self._values = self._values[begin:end]
            self.counts = {value: self.counts[value] for value in self._values}
        return {"below": self._below, "rows": self._rows, "low": self._low, "high": self._high}
