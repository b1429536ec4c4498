"""Aggregates of a user's own, declared as a class.

=======================  =========================================  ================================================
the user's class         remembered of a group                      a message
=======================  =========================================  ================================================
can take values back     its state                                  subtracts the old value, adds the new one
cannot                   how many rows have each value (`counted`)  begins anew, and adds all values of the group
=======================  =========================================  ================================================

Null is left out. A state is the value that a restarted query would get. Values that are added anew come in the order of
their bytes, so that a repetition gives the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import polars as pl

from tablestream.base.data_text import cut_text, data_text
from tablestream.errors import ExpressionError, FunctionValueError, TablestreamError
from tablestream.operators.cells import cells
from tablestream.operators.cells import column as column_of
from tablestream.operators.reduce.counted import COUNT, VALUE, Moved, OfCounts
from tablestream.operators.reduce.groups import GroupEvents
from tablestream.operators.reduce.ranked_counts import CELL, stored_values, values_name, values_trace
from tablestream.operators.reduce.totals import Function, Totals
from tablestream.operators.reduce.user_values import IS_NULL, any_reader, writer
from tablestream.state.changes import SEQ
from tablestream.state.positions import Ints
from tablestream.state.trace import Trace
from tablestream.state.trace_spec import TraceSpec


class Methods(Protocol):
    """What the user's class has, see `tablestream.functions.Aggregator`."""

    def zero(self) -> Any:
        """Return the state of a group without values."""

    def add(self, state: Any, value: Any, /) -> Any:
        """Return the state with a value more."""

    def subtract(self, state: Any, value: Any, /) -> Any:
        """Return the state with a value less."""

    def finish(self, state: Any, /) -> Any:
        """Return the result."""


@dataclass(frozen=True)
class _Own:
    """What both kinds have."""

    column: str
    of: pl.DataType
    """The column, and its dtype."""
    into: pl.DataType
    """The dtype of the result."""
    kept: pl.DataType
    """The dtype of the state."""
    name: str
    """What users call the result."""
    methods: Methods | None = field(compare=False)
    """The user's; None where results are read that were computed before."""

    @property
    def result(self) -> pl.DataType:
        """The dtype of the result."""
        return self.into

    def _columns(self, results: Mapping[int, Any], *places: Ints) -> list[pl.Series]:
        """The results at some messages, a column for each of `places`."""
        return [column_of([results[at] for at in some.tolist()], self.into) for some in places]


@dataclass(frozen=True)
class Subtracting(_Own, Function):
    """An aggregate that can take values back."""

    @property
    def state(self) -> dict[str, pl.DataType]:
        return {"state": self.kept, "shown": self.into}

    def run(self, events: GroupEvents, base: Sequence[pl.Series], shown: Ints) -> Totals:
        called, needed = _Called(self, events), set(np.union1d(shown, events.last).tolist())
        known, existed = cells(base[0]), events.existed.tolist()
        states: list[Any] = []
        results: dict[int, Any] = {}
        values = map(called.values, (events.old, events.new))
        moves = zip(events.group.tolist(), *values, events.deletes.tolist(), strict=True)
        for at, (group, old, new, deletes) in enumerate(moves):
            if group == len(states):
                states.append(known[group] if existed[group] else called.zero(at))
            if old is not None:
                states[group] = called.state("subtract", at, states[group], old)
            if new is not None:
                states[group] = called.state("add", at, states[group], new)
            if deletes:
                states[group] = called.zero(at)
            if at in needed:
                results[at] = None if deletes else called.result(at, states[group])
        result, last = self._columns(results, shown, events.last)
        return Totals(result, [column_of(states, self.kept), last])

    def recalled(self, rows: pl.Series, base: Sequence[pl.Series]) -> pl.Series:  # noqa: ARG002
        return base[1]


@dataclass(frozen=True)
class Anew(_Own, OfCounts):
    """An aggregate that is computed anew from all values of its group."""

    @property
    def state(self) -> dict[str, pl.DataType]:
        return {f"own_{self.name}": self.into}

    def traces(self, group_keys: pl.Schema) -> tuple[TraceSpec, ...]:
        return (values_trace(values_name(self.column), group_keys, self.of),)

    def run(
        self, events: GroupEvents, moved: Moved, shown: Ints, trace: Callable[[str], Trace]
    ) -> tuple[pl.Series, dict[str, pl.Series]]:
        """Compute the group's result at each message that emits."""
        called = _Called(self, events)
        values = self._values(events, trace(values_name(self.column)))
        moves = zip(
            moved.at.tolist(), moved.rows[VALUE], cells(moved.values), moved.after.tolist(), strict=True
        )
        move = next(moves, None)
        results: dict[int, Any] = {}
        for at in np.union1d(shown, events.last).tolist():
            while move is not None and move[0] <= at:
                _, name, cell, count = move
                values[int(events.group[move[0]])][name] = cell, count
                move = next(moves, None)
            group = sorted(values[int(events.group[at])].items(), key=lambda item: item[0])
            results[at] = None if events.deletes[at] else called.whole(at, [one for _, one in group])
        result, last = self._columns(results, shown, events.last)
        return result, dict.fromkeys(self.state, last)

    def _values(self, events: GroupEvents, trace: Trace) -> list[dict[bytes, tuple[Any, int]]]:
        """The values of each group that has messages, by their bytes, each with its count."""
        rows, numbers = stored_values(events, trace, np.ones(len(events.first), dtype=bool))
        found: list[dict[bytes, tuple[Any, int]]] = [{} for _ in events.first]
        for group, name, cell, count in zip(
            numbers, rows[VALUE], cells(rows[CELL]), rows[COUNT], strict=True
        ):
            found[group][name] = cell, count
        return found

    def recalled(self, groups: pl.DataFrame, trace: Callable[[str], Trace]) -> pl.Series:  # noqa: ARG002
        return groups[f"own_{self.name}"]


class _Called:
    """Calls the user's methods with values as Python has them; states and results are cells."""

    def __init__(self, own: _Own, events: GroupEvents) -> None:
        assert own.methods is not None  # noqa: S101 - it is None only where results are read
        self._own, self._events, self._methods = own, events, own.methods
        self._value, self._of = (any_reader(kind, own.name) for kind in (own.of, own.kept))
        self._state, self._result = (writer(kind, own.name, IS_NULL) for kind in (own.kept, own.into))

    def values(self, of: Callable[[str], pl.Series]) -> list[Any]:
        """The values of messages; None where there is none."""
        return list(map(self._value, cells(of(self._own.column))))

    def zero(self, at: int) -> Any:
        """The state of a group without values."""
        return self._call(self._state, at, self._methods.zero)

    def state(self, method: str, at: int, state: Any, value: Any) -> Any:
        """The state after a call."""
        return self._call(self._state, at, getattr(self._methods, method), self._of(state), value)

    def result(self, at: int, state: Any) -> Any:
        """The result for a state."""
        return self._call(self._result, at, self._methods.finish, self._of(state))

    def whole(self, at: int, values: Sequence[tuple[Any, int]]) -> Any:
        """The result for values, each of which so many rows have."""
        state = self.zero(at)
        for cell, count in values:
            for _ in range(count):
                state = self.state("add", at, state, self._value(cell))
        return self.result(at, state)

    def _call(self, taken: Callable[[Any], Any], at: int, method: Callable[..., Any], *given: Any) -> Any:
        try:
            return taken(method(*given))
        except Exception as error:  # noqa: BLE001 - the method is the user's
            cause = error.__cause__ if isinstance(error, FunctionValueError) else error
            raise self._failed(error, at, getattr(method, "__qualname__", "a method"), given) from cause

    def _failed(self, error: Exception, at: int, method: str, given: Sequence[Any]) -> TablestreamError:
        shown = f"{method}({', '.join(map(data_text, given))}) for the group {self._events.group_shown(at)}"
        seq = int(self._events.messages[SEQ][at])
        if isinstance(error, FunctionValueError):
            return FunctionValueError(f"{error.reason} It was called as {shown}.", hint=error.hint).of_row(
                seq
            )
        return ExpressionError(
            f"{shown} raised {type(error).__name__}: {cut_text(str(error))}.",
            hint="Correct the method and keep its class's name: the query then goes on with its checkpoint.",
        ).of_row(seq)
