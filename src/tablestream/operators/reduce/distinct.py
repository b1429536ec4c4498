"""Count a group's different non-null values, from the number of rows that have each value.

==========================================  ==========================================
message                                     effect
==========================================  ==========================================
removes the last row with a value           one value fewer
adds the first row with a value             one value more
any other                                   none
==========================================  ==========================================

A value is stored as bytes: two values have the same bytes exactly if they are equal under `hashable`. Their hash is
part of the state, so it does not depend on a library's version.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from json import JSONEncoder
from typing import Any

import numpy as np
import polars as pl

from tablestream.operators.cells import cells
from tablestream.operators.events import bools, ends, ints, running
from tablestream.operators.reduce.collected import hashable
from tablestream.operators.reduce.groups import GroupEvents
from tablestream.state.changes import FOREIGN_HASH, LIVE, number_keys, stable_hash
from tablestream.state.positions import MIX, Bools, Ints, starts
from tablestream.state.trace import Trace, TraceSpec

_VALUE_HASH, _VALUE, _COUNT = "_vh", "_value", "_count"
_AT, _MOVE = "_at", "_move"


@dataclass(frozen=True)
class Distinct:
    """Count the different values of a column.

    Parameters
    ----------
    column
        The column.
    group_keys
        The columns and dtypes of the group's key.
    """

    column: str
    group_keys: pl.Schema

    @property
    def trace(self) -> TraceSpec:
        """How many rows of a group have each value."""
        columns = {_VALUE_HASH: pl.Int64(), **self.group_keys, _VALUE: pl.Binary()}
        return TraceSpec(
            name=f"values of {self.column}",
            number=0,
            hash=_VALUE_HASH,
            key=(*self.group_keys, _VALUE),
            schema=pl.Schema({**columns, LIVE: pl.Boolean(), _COUNT: pl.Int64()}),
        )

    @property
    def state(self) -> dict[str, pl.DataType]:
        """The dtypes of what is remembered of a group."""
        return {self._total: pl.Int64()}

    @property
    def _total(self) -> str:
        return f"distinct_{self.column}"

    def recalled(self, groups: pl.DataFrame) -> pl.Series:
        """Return the remembered counts of groups."""
        return groups[self._total]

    def run(self, events: GroupEvents, shown: Ints, trace: Trace) -> tuple[pl.Series, dict[str, pl.Series]]:
        """Return the counts at some messages, and what to remember of each group."""
        moved = self._moved(events)
        at, move = ints(moved[_AT]), ints(moved[_MOVE])
        values = moved.drop(_AT, _MOVE)
        keys = [*self.group_keys, _VALUE]
        known = trace.lookup(values.unique())
        ids, known_ids = (ints(one) for one in number_keys(_VALUE_HASH, keys, [values, known]))
        counts = np.zeros(int(ids.max(initial=-1)) + 1, dtype=np.int64)
        counts[known_ids] = ints(known[_COUNT])
        order = np.argsort(ids, kind="stable")
        after = running(move[order], starts(ids[order])) + counts[ids[order]]
        last = ends(ids[order])
        differ = after[last] != counts[ids[order[last]]]
        left = pl.Series(_COUNT, after[last][differ], dtype=pl.Int64)
        trace.insert(values[order[last][differ]].with_columns(left, (left > 0).alias(LIVE)))
        changes = np.zeros(len(events), dtype=np.int64)
        np.add.at(changes, at[order], np.where(move[order] > 0, after == 1, -(after == 0).astype(np.int64)))
        distinct = events.running(changes, events.remembered(self._total))
        result, state = (pl.Series(distinct[where], dtype=pl.Int64) for where in (shown, events.last))
        return result, {self._total: state}

    def _moved(self, events: GroupEvents) -> pl.DataFrame:
        """The values that messages remove and add, in the order of the messages, as keys of the trace."""
        old = _present(events.old(self.column), events.removes, -1)
        new = _present(events.new(self.column), events.adds, 1)
        moved = pl.concat([old, new]).sort(_AT, _MOVE)
        groups = events.messages.select(FOREIGN_HASH, *self.group_keys)[moved[_AT]]
        spread = ints(groups[FOREIGN_HASH]) * MIX
        hashes = np.array([stable_hash(value) for value in moved[_VALUE]], dtype=np.int64) ^ spread
        return groups.drop(FOREIGN_HASH).hstack(moved).with_columns(pl.Series(_VALUE_HASH, hashes))


def _present(values: pl.Series, there: Bools, move: int) -> pl.DataFrame:
    """The non-null values of some messages: the message, the change in rows, and the value as bytes."""
    at = np.flatnonzero(there & bools(values.is_not_null()))
    found = [value_bytes(value) for value in cells(values[at])]
    moves = np.full(len(at), move, dtype=np.int64)
    return pl.DataFrame({_AT: at, _MOVE: moves, _VALUE: pl.Series(found, dtype=pl.Binary)})


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
