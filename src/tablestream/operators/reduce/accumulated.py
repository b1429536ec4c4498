"""Aggregates of records that are never retracted: the state of a group is small, and its result follows from it.

===========================  ==============================================================  ========================
function (see `collected`)   result                                                          remembered
===========================  ==============================================================  ========================
of the first row             the value of the record that is first in the function's order   that record
of all rows                  the values that are not null; as a list, a set, joined          their records
``COUNT_DISTINCT``           how many different values that are not null                     the different values
===========================  ==============================================================  ========================

A record is its value. Of functions that are ordered by another column, and of texts, it is a struct of both.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from operator import ge, gt, itemgetter, lt
from typing import Any, Protocol

import polars as pl

from tablestream.operators.cells import cells
from tablestream.operators.cells import column as column_of
from tablestream.operators.reduce.collected import Collected, Kind, comparable, hashable
from tablestream.operators.reduce.groups import GroupEvents
from tablestream.operators.reduce.totals import Function, Totals
from tablestream.state.positions import Ints


class Taking(Protocol):
    """The state of an aggregate of one group, to which records are added one by one."""

    def take(self, record: Any) -> None:
        """Add a record."""

    def result(self) -> Any:
        """The aggregate so far."""

    def stored(self) -> Any:
        """What to remember."""


class OneByOne(Function):
    """An aggregate to which records are added one by one."""

    column: str

    @abstractmethod
    def began(self, stored: Any) -> Taking:
        """Begin with what was remembered of a group, or with None."""

    def records(self, events: GroupEvents) -> pl.Series:
        """What is taken of each record."""
        return events.new(self.column)

    def run(self, events: GroupEvents, base: Sequence[pl.Series], shown: Ints) -> Totals:
        """Add the records of each group, one by one."""
        known, wanted = cells(base[0]), set(shown.tolist())
        groups: list[Taking] = []
        results: list[Any] = []
        records = zip(events.group.tolist(), cells(self.records(events)), strict=True)
        for at, (group, record) in enumerate(records):
            if group == len(groups):
                groups.append(self.began(known[group]))
            groups[group].take(record)
            if at in wanted:
                results.append(groups[group].result())
        (kept,) = self.state.values()
        return Totals(column_of(results, self.result), [column_of([one.stored() for one in groups], kept)])

    def recalled(self, rows: pl.Series, base: Sequence[pl.Series]) -> pl.Series:  # noqa: ARG002
        return column_of([self.began(stored).result() for stored in cells(base[0])], self.result)


@dataclass(frozen=True)
class Accumulated(OneByOne):
    """An aggregate of a column of records."""

    shows: Collected
    """Which aggregate."""
    of: pl.DataType
    of_by: pl.DataType | None = None
    """The dtypes of its column, and of the one that orders the records; None: they stay in the order of arrival."""

    @property
    def result(self) -> pl.DataType:
        return self.shows.result

    @property
    def state(self) -> dict[str, pl.DataType]:
        both = pl.Struct({"value": self.of} | ({} if self.of_by is None else {"by": self.of_by}))
        return {"values": pl.List(both if self._are_structs else self.of)}

    @property
    def _are_structs(self) -> bool:
        return self.of_by is not None or self.shows.kind is Kind.STRING_AGG

    def records(self, events: GroupEvents) -> pl.Series:
        values = events.new(self.shows.column)
        if not self._are_structs:
            return values
        by = [] if self.shows.by is None else [events.new(self.shows.by).alias("by")]
        return pl.DataFrame([values.alias("value"), *by]).to_struct()

    def began(self, stored: list[Any] | None) -> Taking:
        texts = self.shows.kind is Kind.STRING_AGG
        return (_Texts if texts else _All if self.shows.is_list else _First)(self.shows, stored or [])


class _First:
    """The record that comes first in an order."""

    def __init__(self, shows: Collected, stored: list[Any]) -> None:
        self._value = _itself if shows.by is None else _value
        self._by = _by if shows.by is not None else _itself if shows.order.columns else _arrival
        # Equal values are one result, so the greatest one stays; of records with an equal ``by`` the newest is first.
        self._is_before = {Kind.MAX: gt, Kind.MAX_BY: ge, Kind.LAST: ge}.get(shows.kind, lt)
        self._records = stored
        self._rank: Any = comparable(self._by(stored[0])) if stored else None

    def take(self, record: Any) -> None:
        by = self._by(record)
        if by is None:
            return
        rank = comparable(by)
        if not self._records or self._is_before(rank, self._rank):
            self._records, self._rank = [record], rank

    def result(self) -> Any:
        return self._value(self._records[0]) if self._records else None

    def stored(self) -> list[Any]:
        return self._records


class _All:
    """All values; of a set, the different ones."""

    def __init__(self, shows: Collected, stored: list[Any]) -> None:
        self._shows, self._records = shows, stored
        self._seen = set(map(hashable, stored)) if shows.is_set else None

    def take(self, record: Any) -> None:
        if record is None:
            return
        if self._seen is not None:
            value = hashable(record)
            if value in self._seen:
                return
            self._seen.add(value)
        self._records.append(record)

    def result(self) -> Any:
        return self._shows.of_present(self._records)

    def stored(self) -> list[Any]:
        return self._records


class _Texts(_All):
    """All texts; those that nothing orders come last."""

    def take(self, record: Any) -> None:
        if record["value"] is not None:
            self._records.append(record)

    def result(self) -> Any:
        records = self._records
        if self._shows.by is not None:
            records = [one for one in self._records if one["by"] is not None]
            records.sort(key=lambda one: comparable(one["by"]), reverse=self._shows.descending)
            records += [one for one in self._records if one["by"] is None]
        return self._shows.of_present([one["value"] for one in records])


_value, _by = itemgetter("value"), itemgetter("by")


def _itself(record: Any) -> Any:
    return record


def _arrival(record: Any) -> Any:  # noqa: ARG001
    """What orders records by their arrival: nothing else."""
    return ()
