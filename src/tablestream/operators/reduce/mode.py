"""The mode: the value that most rows of a group have.

====================================  =================================================
the group's values                    result
====================================  =================================================
none that is not null                 null
one that most rows have               that value
several that equally many rows have   the least of them
====================================  =================================================

Every value that is not a head ranks after the bound: the count and the value of the last head when heads were chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any

import polars as pl

from tablestream.operators.reduce.ranked_counts import SHORT, OfRankedCounts, Picker


@dataclass(frozen=True)
class Mode(OfRankedCounts):
    """The most frequent value of a column."""

    numbers = ("count",)
    values = ("value",)

    column: str
    of: pl.DataType

    @property
    def result(self) -> pl.DataType:
        return self.of

    @property
    def word(self) -> str:
        return f"mode_{self.column}"

    def picker(self, counts: dict[Any, int], bound: Mapping[str, Any] | None) -> Picker:
        """Begin with values."""
        return _MostFrequent(counts, bound or {})

    def cell(self, picked: Any, cell_of: Callable[[Any], Any]) -> Any:
        """Return the value."""
        return cell_of(picked)


class _MostFrequent:
    """Finds the greatest count in a heap, which also has counts that are no longer right."""

    def __init__(self, counts: dict[Any, int], bound: Mapping[str, Any]) -> None:
        self.counts = counts
        self._bound = None if bound.get("count") is None else (-bound["count"], bound["value"])
        self._heap = [(-count, value) for value, count in counts.items()]
        heapify(self._heap)

    def take(self, value: Any, before: int, after: int) -> None:  # noqa: ARG002
        self.counts.pop(value, None)
        if after > 0 and self._is_head((-after, value)):
            self.counts[value] = after
            heappush(self._heap, (-after, value))

    def _is_head(self, rank: tuple[int, Any]) -> bool:
        return self._bound is None or rank <= self._bound

    def pick(self) -> Any:
        while self._heap and self.counts.get(self._heap[0][1]) != -self._heap[0][0]:
            heappop(self._heap)
        if self._heap:
            return self._heap[0][1]
        return None if self._bound is None else SHORT

    def bound(self, most: int) -> Mapping[str, Any]:
        if len(self.counts) > 2 * most:
            ranks = sorted((-count, value) for value, count in self.counts.items())[:most]
            self.counts, self._bound = {value: -count for count, value in ranks}, ranks[-1]
        if self._bound is None:
            return {}
        return {"count": -self._bound[0], "value": self._bound[1]}
