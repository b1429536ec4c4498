"""Aggregates of records that are never taken out again: what is remembered of a group is what is shown of it.

=====================  ==============================================================  ======================
function               result                                                          remembered
=====================  ==============================================================  ======================
``MIN``, ``MAX``       the least, the greatest value that is not null; null if none    that value
``FIRST``, ``LAST``    the value that came first, last; null if that is its value      that value
``COLLECT_LIST``       the values that are not null, in the order in which they came   all of them
``COLLECT_SET``        the same without repetitions                                    all of them
``COUNT_DISTINCT``     how many different values that are not null                     the different values
=====================  ==============================================================  ======================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from tablestream.operators.collected import Kind, comparable, hashable
from tablestream.operators.events import Ints
from tablestream.operators.groups import GroupEvents
from tablestream.operators.totals import Function, Totals


@dataclass(frozen=True)
class Accumulated(Function):
    """An aggregate of a column of records.

    Parameters
    ----------
    kind
        What is made of the values.
    column, of
        The column, and its dtype.
    into
        The dtype of the result, as Spark has it.
    """

    kind: Kind
    column: str
    of: pl.DataType
    into: pl.DataType

    @property
    def result(self) -> pl.DataType:
        return self.into

    @property
    def state(self) -> dict[str, pl.DataType]:
        return {"values": pl.List(self.of)}

    def run(self, events: GroupEvents, base: Sequence[pl.Series], shown: Ints) -> Totals:
        """Take in the records of each group, one by one."""
        stored, wanted = base[0].to_list(), set(shown.tolist())
        groups, values = events.group.tolist(), events.new(self.column).to_list()
        results: list[Any] = []
        kept: list[list[Any]] = []
        seen: set[Any] = set()
        for at, (group, value) in enumerate(zip(groups, values, strict=True)):
            if group == len(kept):
                kept.append(stored[group] or [])
                seen = set(map(hashable, kept[group]))
            self._take(kept[group], seen, value)
            if at in wanted:
                results.append(self._shown(kept[group]))
        state = pl.Series(kept, dtype=pl.List(self.of), strict=True)
        return Totals(pl.Series(results, dtype=self.into, strict=True), [state])

    def _take(self, values: list[Any], seen: set[Any], value: Any) -> None:
        """Take a value in; `seen` are those kept."""
        if self.kind is Kind.LAST or (self.kind is Kind.FIRST and not values):
            values[:] = [value]
        elif value is None or self.kind is Kind.FIRST:
            return
        elif self.kind in {Kind.MIN, Kind.MAX}:
            choose = min if self.kind is Kind.MIN else max
            values[:] = [choose(*values, value, key=comparable)] if values else [value]
        elif self.kind is Kind.COLLECT_LIST:
            values.append(value)
        elif hashable(value) not in seen:
            seen.add(hashable(value))
            values.append(value)

    def _shown(self, values: list[Any]) -> Any:
        if self.kind is Kind.COUNT_DISTINCT:
            return len(values)
        if self.kind in {Kind.COLLECT_LIST, Kind.COLLECT_SET}:
            return list(values)
        return values[0] if values else None
