"""Aggregates of records that are never retracted: the state of a group is small, and its result follows from it.

=====================  ==============================================================  ======================
function               result                                                          remembered
=====================  ==============================================================  ======================
``MIN``, ``MAX``       the least, the greatest value that is not null; null if none    that value
``FIRST``, ``LAST``    the value that arrived first, last; it may be null              that value
``COLLECT_LIST``       the values that are not null, in the order of arrival           all of them
``COLLECT_SET``        the same without repetitions                                    all of them
``COUNT_DISTINCT``     how many different values that are not null                     the different values
``MIN_BY, MAX_BY``     the value with the least, the greatest ``by`` that is not null  it and its ``by``
``STRING_AGG``         the texts that are not null, joined in the order of ``by``      all of them
=====================  ==============================================================  ======================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import polars as pl

from tablestream.operators.cells import cells
from tablestream.operators.cells import column as column_of
from tablestream.operators.reduce.collected import Collected, Kind, comparable, hashable, joined
from tablestream.operators.reduce.groups import GroupEvents
from tablestream.operators.reduce.totals import Function, Totals
from tablestream.state.positions import Ints


@dataclass(frozen=True)
class Accumulated(Function):
    """An aggregate of a column of records.

    Parameters
    ----------
    kind
        Which aggregate.
    column, of
        The column, and its dtype.
    into
        The dtype of the result, as in Spark.
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
        """Add the records of each group, one by one."""
        taken = one_by_one(events, events.new(self.column), base[0], shown, self._made)
        return taken.totals(self.into, pl.List(self.of))

    def recalled(self, rows: pl.Series, base: Sequence[pl.Series]) -> pl.Series:  # noqa: ARG002
        """Return the results for the remembered values."""
        return results_of(base[0], self.into, self._made)

    def _made(self, stored: list[Any] | None) -> Taking:
        return _Kept(self.kind, stored)


@dataclass(frozen=True)
class AccumulatedBy(Function):
    """An aggregate of a column of records in the order of another column.

    Parameters
    ----------
    shows
        Which aggregate, of which columns.
    of, of_by
        The dtypes of the column, and of the one that it is ordered by; None: records stay in the order of arrival.
    """

    shows: Collected
    of: pl.DataType
    of_by: pl.DataType | None

    @property
    def result(self) -> pl.DataType:
        return self.shows.result

    @property
    def state(self) -> dict[str, pl.DataType]:
        return {"values": pl.List(self._pair)}

    @property
    def _pair(self) -> pl.Struct:
        return pl.Struct({"value": self.of} | ({} if self.of_by is None else {"by": self.of_by}))

    def run(self, events: GroupEvents, base: Sequence[pl.Series], shown: Ints) -> Totals:
        """Add the records of each group, one by one."""
        parts = [events.new(self.shows.column).alias("value")]
        parts += [] if self.shows.by is None else [events.new(self.shows.by).alias("by")]
        taken = one_by_one(events, pl.DataFrame(parts).to_struct(), base[0], shown, self._made)
        return taken.totals(self.result, pl.List(self._pair))

    def recalled(self, rows: pl.Series, base: Sequence[pl.Series]) -> pl.Series:  # noqa: ARG002
        """Return the results for the remembered values."""
        return results_of(base[0], self.result, self._made)

    def _made(self, stored: list[Any] | None) -> Taking:
        return (_Joined if self.shows.kind is Kind.STRING_AGG else _First)(self.shows, stored)


class Taking(Protocol):
    """The state of an aggregate of one group, to which values are added one by one."""

    def take(self, value: Any) -> None:
        """Add a value."""

    def result(self) -> Any:
        """The aggregate so far."""

    def stored(self) -> Any:
        """What to remember."""


@dataclass(frozen=True)
class Taken:
    """The outcome: the results to emit, and what to remember of each group."""

    results: list[Any]
    groups: list[Taking]

    def totals(self, result: pl.DataType, state: pl.DataType) -> Totals:
        """Return both as columns."""
        remembered = column_of([one.stored() for one in self.groups], state)
        return Totals(column_of(self.results, result), [remembered])


def one_by_one(
    events: GroupEvents, values: pl.Series, base: pl.Series, shown: Ints, make: Callable[[Any], Taking]
) -> Taken:
    """Add the records of each group one by one; `make` starts from what was remembered, or from None."""
    known, wanted = cells(base), set(shown.tolist())
    taken = Taken([], [])
    records = zip(events.group.tolist(), cells(values), strict=True)
    for at, (group, value) in enumerate(records):
        if group == len(taken.groups):
            taken.groups.append(make(known[group]))
        taken.groups[group].take(value)
        if at in wanted:
            taken.results.append(taken.groups[group].result())
    return taken


def results_of(base: pl.Series, result: pl.DataType, make: Callable[[Any], Taking]) -> pl.Series:
    """Return the results of groups from what was remembered of them."""
    return column_of([make(stored).result() for stored in cells(base)], result)


class _Kept:
    """The remembered values of one group."""

    def __init__(self, kind: Kind, stored: list[Any] | None) -> None:
        self._kind, self._values = kind, stored or []
        self._seen = set(map(hashable, self._values))

    def take(self, value: Any) -> None:
        kind, values = self._kind, self._values
        if kind is Kind.LAST or (kind is Kind.FIRST and not values):
            values[:] = [value]
        elif value is None or kind is Kind.FIRST:
            return
        elif kind in {Kind.MIN, Kind.MAX}:
            choose = min if kind is Kind.MIN else max
            values[:] = [choose(*values, value, key=comparable)] if values else [value]
        elif kind is Kind.COLLECT_LIST:
            values.append(value)
        elif hashable(value) not in self._seen:
            self._seen.add(hashable(value))
            values.append(value)

    def result(self) -> Any:
        if self._kind is Kind.COUNT_DISTINCT:
            return len(self._values)
        if self._kind in {Kind.COLLECT_LIST, Kind.COLLECT_SET}:
            return list(self._values)
        return self._values[0] if self._values else None

    def stored(self) -> list[Any]:
        return self._values


class _First:
    """The record that comes first in an order: of equal ones the oldest if the least is wanted, else the newest."""

    def __init__(self, shows: Collected, stored: list[Any] | None) -> None:
        self._newest, self._stored = shows.kind is Kind.MAX_BY, stored or []

    def take(self, record: dict[str, Any]) -> None:
        if record["by"] is None:
            return
        if self._stored:
            new, old = comparable(record["by"]), comparable(self._stored[0]["by"])
            if not (new >= old if self._newest else new < old):
                return
        self._stored = [record]

    def result(self) -> Any:
        return self._stored[0]["value"] if self._stored else None

    def stored(self) -> list[Any]:
        return self._stored


class _Joined:
    """Texts in an order; nulls of the order come last."""

    def __init__(self, shows: Collected, stored: list[Any] | None) -> None:
        self._shows, self._stored = shows, stored or []

    def take(self, record: dict[str, Any]) -> None:
        if record["value"] is not None:
            self._stored.append(record)

    def result(self) -> str | None:
        by_value, down = self._shows.by is not None, self._shows.descending
        last = [one for one in self._stored if by_value and one["by"] is None]
        ordered = [one for one in self._stored if not by_value or one["by"] is not None]
        if by_value:
            ordered.sort(key=lambda one: comparable(one["by"]), reverse=down)
        return joined([one["value"] for one in (*ordered, *last)], self._shows.delimiter)

    def stored(self) -> list[Any]:
        return self._stored
