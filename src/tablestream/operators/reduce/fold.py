"""Second half of a grouping with the user's own functions, called as Kafka Streams calls them.

A message may carry an old row, a new row, or both; the old one is subtracted first.

===================  =====================================================================
message              effect
===================  =====================================================================
old, no aggregate    none: the subtractor is not called
old, an aggregate    ``subtractor(key, old, aggregate)``
new, no aggregate    ``adder(key, new, initializer())``; a reduction: the new row itself
new, an aggregate    ``adder(key, new, aggregate)``
===================  =====================================================================

A function that returns None deletes the group: a tombstone is emitted. Removing the last row deletes it, too, unless
``keep_empty`` is set.

References
----------
KIP-904; Kafka Streams ``KGroupedTable.aggregate``, ``reduce``; ``docs/semantics/groups.md``.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from tablestream.base.data_text import cut_text, data_text
from tablestream.errors import ExpressionError, FunctionValueError, TablestreamError
from tablestream.operators.cells import cells, column, dtype
from tablestream.operators.operator import Context, Emission
from tablestream.operators.reasons import FAILED
from tablestream.operators.reduce.groups import GroupEvents, groups_changes, groups_trace
from tablestream.operators.reduce.parts import OneResult, has_any_size
from tablestream.operators.reduce.regroup import OLD
from tablestream.operators.reduce.user_values import DELETES, IS_NULL, misfit, reader, writer
from tablestream.state.changes import LIVE, NOTHING, SEQ
from tablestream.state.positions import Bools
from tablestream.state.trace_spec import TraceSpec

AGGREGATE = "aggregate"
#: Of a stored group: it has an aggregate. One that a function deleted may be remembered, for its number of rows.
_EXISTS = pl.col(AGGREGATE).is_not_null()
#: Stands for a result that nobody reads.
_REPLACED = ()


@dataclass(frozen=True)
class UserFunctions:
    """The user's functions of (group key, row, aggregate)."""

    initializer: Callable[[], Any] | None
    """() -> aggregate of a group without rows. None: the first row is the aggregate."""
    adder: Callable[[Any, Any, Any], Any]
    subtractor: Callable[[Any, Any, Any], Any]
    """(group key, row, aggregate) -> aggregate, or None to delete the group. Rows are named tuples. So are keys and
    aggregates of several columns; a key or an aggregate of one column is its value."""
    key: tuple[str, ...]
    row: tuple[str, ...]
    aggregate: tuple[str, ...]
    """The names of the columns."""
    text: str = "functions"
    """The functions' names and version, which a restarted plan compares."""

    @property
    def may_fail(self) -> bool:
        """Whether there may be a row for which a function raises."""
        return True


@dataclass(frozen=True)
class Fold(OneResult):
    """Maintain an aggregate per group with the user's functions.

    Output 0: that of `Aggregate`. One Python call per added or removed row.
    """

    aggregate: pl.DataType
    """The dtype of the aggregate: like the aggregated part of a row a struct of ``c0``, ``c1``, ..."""
    functions: UserFunctions
    """The user's functions."""
    subtracts: bool = True
    """Whether rows may be removed. If not, nothing is remembered of a group that a function deleted."""
    on_error: str = "fail"
    """What becomes of a row for which a function raises: it ends the query (``fail``), or is left out as if it had not
    arrived, and counted. Then no row is ever removed: the function for that might never have got it."""

    exists = _EXISTS
    needs_row_keys = False

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        return (groups_changes(self.group_keys, self.aggregate),)

    @property
    def _groups(self) -> TraceSpec:
        return groups_trace(self.group_keys, {AGGREGATE: self.aggregate})

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return (self._groups,)

    def _largest(self, events: GroupEvents) -> float | None:
        if self.final or self.thin or not has_any_size(self.aggregate):
            return None
        return events.groups[AGGREGATE].estimated_size() / max(events.groups.height, 1)

    def _applied(self, events: GroupEvents, context: Context) -> Emission:
        shape = self._shape
        results, failed = self._folded(events, shape)
        if failed:
            left_out = events.mask(failed)
            rows, rest = events.messages.filter(left_out), events.messages.filter(~left_out)
            if self.on_error == "reject":
                context.reject(FAILED, rows)
            else:
                context.tell(FAILED, rows.height, rows)
            if rest.is_empty():
                return Emission(0, rest)
            events = self._events(rest, context)
            results, _ = self._folded(events, shape)
        answer = events.answered(
            np.array([result is not None for result in results], dtype=bool),
            list(self.group_keys),
            final=self.final,
            thin=self.thin,
        )
        needed = np.union1d(answer.turns, answer.last)
        aggregates = shape.structs([results[turn] for turn in needed])
        emitted, last = (aggregates[np.searchsorted(needed, turns)] for turns in (answer.turns, answer.last))
        kept = answer.kept.with_columns(last.alias(AGGREGATE))
        context.trace("groups").insert(kept if self.subtracts else kept.with_columns(_EXISTS.alias(LIVE)))
        return Emission(0, answer.emitted.with_columns(emitted.alias("v0")))

    @property
    def _shape(self) -> _Shape:
        """How users see an aggregate; that of a reduction is a row."""
        user = self.functions
        if user.initializer is None:
            return _Shape("Row", user.row, _parts(self.aggregate), always=True)
        return _Shape("Aggregate", user.aggregate, _parts(self.aggregate))

    def _folded(self, events: GroupEvents, shape: _Shape) -> tuple[list[Any], list[int]]:
        """Call the functions; return the aggregate after each turn as cells, None where there is none.

        Also returns the messages for which a function raised, if they are to be left out.
        """
        user = self.functions
        row = _Shape("Row", user.row, _parts(self.value), always=True)
        group_key = _Shape("Key", user.key, list(self.group_keys.values()))
        keys = group_key.seen_in(events.messages[events.first].select(list(self.group_keys)))
        known = shape.list_where(events.groups[AGGREGATE], events.existed)
        old = row.list_where(events.messages[OLD], events.removes)
        new = row.list_where(events.messages["v"], events.adds)
        ends = events.mask(events.turn_end)
        results: list[Any] = []
        lean, is_first = self.final or self.thin, True
        failed: list[int] = []
        current, aggregate, key, found = -1, None, None, None
        # The names are local because the loop runs once per message. What a function returns becomes cells at once, and
        # the next call gets the value rebuilt from them: the same value that it would get after a restart.
        initializer, adder, subtractor = user.initializer, user.adder, user.subtractor
        seen, taken = shape.seen, shape.taken
        messages = zip(events.group.tolist(), old, new, ends.tolist(), events.deletes.tolist(), strict=True)
        for at, (group, removed, added, is_end, deletes) in enumerate(messages):
            if group != current:
                current, aggregate, key, is_first = group, known[group], keys[group], True
            try:
                if removed is not None and aggregate is not None:
                    found = taken(subtractor(key, removed, aggregate))
                    aggregate = None if found is None else seen(found)
                if added is not None:
                    if aggregate is None and initializer is not None:
                        found = taken(initializer())
                        aggregate = None if found is None else seen(found)
                        found = taken(adder(key, added, aggregate))
                    else:
                        found = taken(added if aggregate is None else adder(key, added, aggregate))
                    aggregate = None if found is None else seen(found)
            except Exception as error:  # noqa: BLE001 - the function is the user's
                if self.on_error == "fail":
                    # The cause of an error of the library would show its message first, which says less.
                    cause = error.__cause__ if isinstance(error, FunctionValueError) else error
                    raise _failed(error, key, added if removed is None else removed, events, at) from cause
                failed.append(at)  # what follows is computed again without it
            if is_end:
                aggregate = None if deletes else aggregate
                if lean and not is_first and results[-1] is not None:
                    results[-1] = _REPLACED
                results.append(None if aggregate is None else found)
                is_first = False
        return results, failed


def _failed(error: Exception, key: Any, row: Any, events: GroupEvents, at: int) -> TablestreamError:
    """The error for a row for which a function raised, or returned what does not fit."""
    shown = f"for the group {data_text(key)}, with the row {data_text(row)}"
    seq = int(events.messages[SEQ][at])
    if isinstance(error, FunctionValueError):
        return FunctionValueError(f"{error.reason} It was called {shown}.", hint=error.hint).of_row(seq)
    said = f"{type(error).__name__}: {cut_text(str(error))}"
    return ExpressionError(
        f"A function raised {said}. It was called {shown}.",
        hint='Correct it and keep its name: the query then goes on with its checkpoint. For a stream, on_error="reject"'
        " leaves such records out.",
    ).of_row(seq)


class _Shape:
    """How users see some columns: the value of a single column, or a named tuple.

    `name`: the name of the tuple's class. `columns`, `kinds`: its fields, and their dtypes. `always`: whether a single
    column is a tuple, too.
    """

    def __init__(
        self, name: str, columns: tuple[str, ...], kinds: Sequence[pl.DataType], *, always: bool = False
    ) -> None:
        self._columns, self._kinds = columns, kinds
        self._tuple: Any = namedtuple(name, columns, rename=True)  # type: ignore[misc]  # noqa: PYI024
        self._single = len(columns) == 1 and not always
        self._readers = [reader(kind, name) for kind, name in zip(kinds, columns, strict=True)]
        none = DELETES if self._single else IS_NULL
        self._writers = [writer(kind, name, none) for kind, name in zip(kinds, columns, strict=True)]
        self._is_plain, self._names = not any(self._readers), set(columns)

    def seen_in(self, frame: pl.DataFrame) -> list[Any]:
        """The rows of a frame with such columns, as functions receive them."""
        parts = [
            cells(one) if read is None else list(map(read, cells(one)))
            for one, read in zip(frame, self._readers, strict=True)
        ]
        if not parts:
            return [self._tuple()] * frame.height
        return parts[0] if self._single else list(map(self._tuple._make, zip(*parts, strict=True)))

    def list_where(self, values: pl.Series, wanted: Bools) -> list[Any]:
        """Structs as functions receive them, None where they are not wanted."""
        places = np.flatnonzero(wanted)
        seen: list[Any] = [None] * len(wanted)
        rows = self.seen_in(values.gather(places).struct.unnest().drop(NOTHING, strict=False))
        for place, one in zip(places.tolist(), rows, strict=True):
            seen[place] = one
        return seen

    def seen(self, found: Any) -> Any:
        """Cells as functions receive them."""
        if not self._is_plain:
            parts = (found,) if self._single else found
            parts = [
                one if read is None else read(one) for one, read in zip(parts, self._readers, strict=True)
            ]
            found = parts[0] if self._single else parts
        return found if self._single else self._tuple._make(found)

    def taken(self, value: Any) -> Any:
        """What a function returned (a dictionary or any kind of tuple) as cells; None for None."""
        if value is None:
            return None
        if self._single:
            return self._writers[0](value)
        parts: Sequence[Any] = value if isinstance(value, tuple | list) else (value,)
        if isinstance(value, dict) and value.keys() == self._names:
            parts = [value[name] for name in self._columns]
        if len(parts) != len(self._columns):
            columns = ", ".join(self._columns)
            wanted = f"a dict or a tuple of {columns}"
            raise misfit(value, columns, f"{len(self._columns)} columns", wanted, DELETES)
        return [write(one) for one, write in zip(parts, self._writers, strict=True)]

    def structs(self, found: Sequence[Any]) -> pl.Series:
        """Cells of several rows as structs; null for None."""
        there = pl.Series([one is not None for one in found], dtype=pl.Boolean)
        nothing = [None] * len(self._columns)
        parts = [found] if self._single else zip(*(one or nothing for one in found), strict=True)
        columns = [column(part, kind) for part, kind in zip(parts, self._kinds, strict=True)]
        fields = [one.alias(f"c{number}") for number, one in enumerate(columns)]
        fields = fields or [pl.Series(NOTHING, [None] * len(found), dtype=pl.Boolean)]
        return pl.select(pl.when(there).then(pl.struct(fields))).to_series()


def _parts(kind: pl.DataType) -> list[pl.DataType]:
    """The dtypes of the fields of a struct."""
    assert isinstance(kind, pl.Struct)  # noqa: S101 - values are such
    return [dtype(one.dtype) for one in kind.fields if one.name != NOTHING]
