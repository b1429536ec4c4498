"""How many rows of a group have each value of a column, and aggregates of these counts.

==========================================  ==========================================
message                                     effect
==========================================  ==========================================
removes a row with a value                  one row fewer has it
adds a row with a value                     one row more has it
null, or neither                            none
==========================================  ==========================================

A value is stored as bytes: two values have the same bytes exactly if they are equal under `hashable`. Their hash is
part of the state, so it does not depend on a library's version.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from json import JSONEncoder
from typing import Any

import numpy as np
import polars as pl

from tablestream.operators.arrangement import Arrangement
from tablestream.operators.cells import cells
from tablestream.operators.cells import column as column_of
from tablestream.operators.events import bools, ends, ints, pick, places, running
from tablestream.operators.reduce.collected import hashable, without_minus_zero
from tablestream.operators.reduce.groups import GroupEvents
from tablestream.state.changes import FOREIGN_HASH, LIVE, number_keys, stable_hash
from tablestream.state.positions import MIX, Bools, Ints
from tablestream.state.trace import Trace
from tablestream.state.trace_spec import TraceSpec

VALUE_HASH, VALUE, COUNT = "_vh", "_value", "_count"
_AT, _MOVE, _CELL = "_at", "_move", "_cell"


@dataclass(frozen=True)
class Moved:
    """The values that messages remove and add, in the order of the messages; a message removes before it adds."""

    rows: pl.DataFrame
    """``_vh``, the group's key without its hash, and the value as bytes: keys of the trace of counts."""
    values: pl.Series
    at: Ints
    """The position of the message among all messages."""
    before: Ints
    after: Ints
    """How many rows of the group have the value before and after."""
    arranged: Arrangement
    """The moves of each value of a group, in their order."""

    @property
    def last(self) -> Ints:
        """The positions here of the last move of each value of a group whose count has changed."""
        of = self.arranged
        first, last = of.row[of.begins], of.row[ends(of.key)]
        return np.asarray(last[self.after[last] != self.before[first]])


class OfCounts(ABC):
    """An aggregate of a column's values that needs to know how many rows have each of them."""

    column: str
    of: pl.DataType
    """The column, and its dtype."""

    @property
    @abstractmethod
    def result(self) -> pl.DataType:
        """The dtype of the result."""

    @property
    @abstractmethod
    def state(self) -> dict[str, pl.DataType]:
        """What is remembered of a group, by names that no other aggregate has."""

    def traces(self, group_keys: pl.Schema) -> tuple[TraceSpec, ...]:  # noqa: ARG002
        """Its own traces."""
        return ()

    @abstractmethod
    def run(
        self, events: GroupEvents, moved: Moved, shown: Ints, trace: Callable[[str], Trace]
    ) -> tuple[pl.Series, dict[str, pl.Series]]:
        """Return the results at some messages, and what to remember of each group."""

    @abstractmethod
    def recalled(self, groups: pl.DataFrame, trace: Callable[[str], Trace]) -> pl.Series:
        """Return the remembered results of some groups."""


@dataclass(frozen=True)
class CountDistinct(OfCounts):
    """Count the different values that are not null."""

    column: str
    of: pl.DataType

    @property
    def result(self) -> pl.DataType:
        return pl.Int64()

    @property
    def state(self) -> dict[str, pl.DataType]:
        return {self._total: pl.Int64()}

    @property
    def _total(self) -> str:
        return f"distinct_{self.column}"

    def run(
        self,
        events: GroupEvents,
        moved: Moved,
        shown: Ints,
        trace: Callable[[str], Trace],  # noqa: ARG002
    ) -> tuple[pl.Series, dict[str, pl.Series]]:
        changes = np.zeros(len(events), dtype=np.int64)
        comes, goes = (moved.before == 0) & (moved.after == 1), (moved.before == 1) & (moved.after == 0)
        np.add.at(changes, moved.at, comes.astype(np.int64) - goes)
        distinct = events.running(changes, events.remembered(self._total))
        result, state = (pl.Series(distinct[where], dtype=pl.Int64) for where in (shown, events.last))
        return result, {self._total: state}

    def recalled(self, groups: pl.DataFrame, trace: Callable[[str], Trace]) -> pl.Series:  # noqa: ARG002
        return groups[self._total]


def counts_trace(column: str, group_keys: pl.Schema) -> TraceSpec:
    """How many rows of a group have each value of a column."""
    columns = {VALUE_HASH: pl.Int64(), **group_keys, VALUE: pl.Binary()}
    return TraceSpec(
        name=f"values of {column}",
        hash=VALUE_HASH,
        key=(*group_keys, VALUE),
        schema=pl.Schema({**columns, LIVE: pl.Boolean(), COUNT: pl.Int64()}),
    )


def count_values(events: GroupEvents, column: str, trace: Trace) -> Moved:
    """Apply messages to the counts of a column's values, and remember them."""
    moved = _moved(events, column, list(trace.spec.key[:-1]))
    at, move, values = ints(moved[_AT]), ints(moved[_MOVE]), moved[_CELL]
    rows = moved.drop(_AT, _MOVE, _CELL)
    known = trace.lookup(rows.unique())
    ids, known_ids = number_keys(VALUE_HASH, trace.spec.key, [rows, known])
    arranged = Arrangement.of(ids)
    counts = pick(ints(known[COUNT]), places(known_ids, ids), 0)
    after = counts + arranged.by_row(running(move[arranged.row], arranged.begins))
    found = Moved(rows, values, at, after - move, after, arranged)
    last = found.last
    left = pl.Series(COUNT, after[last], dtype=pl.Int64)
    # With Kafka Streams' defects fewer than no rows may have a value: the next one that has it makes it none.
    trace.insert(rows[last].with_columns(left, (left != 0).alias(LIVE)))
    return found


def _moved(events: GroupEvents, column: str, group_keys: list[str]) -> pl.DataFrame:
    """The values that messages remove and add, as keys of the trace, with what they do."""
    old = _present(events.old(column), events.removes, -1)
    new = _present(events.new(column), events.adds, 1)
    moved = pl.concat([old, new]).sort(_AT, _MOVE)
    groups = events.messages.select(FOREIGN_HASH, *group_keys)[moved[_AT]]
    spread = ints(groups[FOREIGN_HASH]) * MIX
    hashes = np.array([stable_hash(value) for value in moved[VALUE]], dtype=np.int64) ^ spread
    keys = groups.select(pl.Series(VALUE_HASH, hashes), *group_keys)
    return keys.hstack(moved.select(VALUE, _AT, _MOVE, _CELL))


def _present(values: pl.Series, there: Bools, move: int) -> pl.DataFrame:
    """The non-null values of some messages: the message, the change in rows, and the value, also as bytes."""
    at = np.flatnonzero(there & bools(values.is_not_null()))
    found = values[at]
    if found.dtype.is_float() or found.dtype.is_nested():
        found = column_of(list(map(without_minus_zero, cells(found))), found.dtype)
    as_bytes = pl.Series([value_bytes(value) for value in cells(found)], dtype=pl.Binary)
    moves = np.full(len(at), move, dtype=np.int64)
    return pl.DataFrame({_AT: at, _MOVE: moves, VALUE: as_bytes, _CELL: found})


def value_bytes(value: Any) -> bytes:
    """Encode a cell of a column so that two cells have the same bytes exactly if they are equal.

    Examples
    --------
    >>> value_bytes(-0.0) == value_bytes(0.0), value_bytes({"a": [float("nan"), None]})
    (True, b'[["a",["NaN",null]]]')
    """
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    return b"%d" % value if isinstance(value, int) else _JSON.encode(hashable(value)).encode()


def _plain(value: Any) -> str:
    """The text of a value that JSON cannot represent."""
    if isinstance(value, Decimal):
        return "{}/{}".format(*value.as_integer_ratio())
    if isinstance(value, timedelta):
        return str(value // timedelta(microseconds=1))
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(f"a value of type {type(value).__name__} has no bytes")


_JSON = JSONEncoder(separators=(",", ":"), default=_plain)
