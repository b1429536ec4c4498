"""Second half of a grouping: declared aggregates of the rows of each group.

============  ===========================  ====================================================
rows before   rows after                   emits, at the time that `groups` gives
============  ===========================  ====================================================
any           some                         the aggregates, even if they did not change
any           none                         a tombstone; with ``keep_empty`` the aggregates
============  ===========================  ====================================================

References
----------
KIP-904; Kafka Streams ``KGroupedTable``; ``docs/semantics/groups.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import polars as pl

from tablestream.operators.operator import Context, Emission
from tablestream.operators.reduce.collected import Collected
from tablestream.operators.reduce.counted import OfCounts, count_values, counts_trace
from tablestream.operators.reduce.groups import ROWS, GroupEvents, groups_changes, groups_trace
from tablestream.operators.reduce.members import Members
from tablestream.operators.reduce.parts import OneResult, has_any_size
from tablestream.operators.reduce.ranked_counts import remember_values, values_name
from tablestream.operators.reduce.totals import Function
from tablestream.state.changes import FOREIGN_HASH, LIVE, TS
from tablestream.state.positions import Ints
from tablestream.state.trace import Trace
from tablestream.state.trace_spec import TraceSpec

AnyFunction: TypeAlias = Function | Collected | OfCounts
"""A running total, an aggregate of a group's rows, or one of how many rows have each value."""


@dataclass(frozen=True)
class Aggregate(OneResult):
    """Maintain declared aggregates of groups.

    Output 0: ``_kh``, group key as ``_k0``, ..., ``_ts``, ``_live``, ``v0``
    with a field ``c0``, ``c1``, ... per function. Cost: the messages, and the cost given in `members`; with lists and
    sets all rows of the groups that have messages.
    """

    functions: tuple[AnyFunction, ...]
    """The aggregates: running totals, and others."""

    takes_last = True

    @property
    def needs_row_keys(self) -> bool:
        """Whether messages must have the key of their row: if a function needs the rows of the groups."""
        return self._members is not None

    @property
    def outputs(self) -> tuple[pl.Schema, ...]:
        results = {f"c{number}": function.result for number, function in enumerate(self.functions)}
        return (groups_changes(self.group_keys, pl.Struct(results)),)

    @property
    def _totals(self) -> list[tuple[int, Function]]:
        return [(n, one) for n, one in enumerate(self.functions) if isinstance(one, Function)]

    @property
    def _counted(self) -> dict[str, list[OfCounts]]:
        """The aggregates of how many rows have each value, by column."""
        found: dict[str, list[OfCounts]] = {}
        for one in dict.fromkeys(one for one in self.functions if isinstance(one, OfCounts)):
            found.setdefault(one.column, []).append(one)
        return found

    @property
    def _members(self) -> Members | None:
        """The rows of the groups, if a function needs them."""
        functions = tuple(one for one in self.functions if isinstance(one, Collected))
        return Members(self.keys, self.group_keys, self.value, functions) if functions else None

    @property
    def _groups(self) -> TraceSpec:
        columns: dict[str, pl.DataType] = {}
        for number, function in self._totals:
            columns |= zip(_state_columns(number, function), function.state.values(), strict=True)
        for counted in self._counted.values():
            for one in counted:
                columns |= one.state
        return groups_trace(self.group_keys, columns | (self._members.state if self._members else {}))

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        members = self._members
        specs = [self._groups, *(members.traces if members else ())]
        specs += (counts_trace(column, self.group_keys) for column in self._counted)
        counted = (one.traces(self.group_keys) for functions in self._counted.values() for one in functions)
        specs += {spec.name: spec for traces in counted for spec in traces}.values()
        return tuple(specs)

    def _largest(self, events: GroupEvents) -> float | None:
        kinds = [one.result for one in self.functions]
        if self.final or self.thin or not any(map(has_any_size, kinds)):
            return None
        a_value = events.messages["v"].estimated_size() / max(len(events), 1)
        lists = any(isinstance(one, Collected) and one.is_list for one in self.functions)
        rows = (
            events.remembered(ROWS).max(initial=1)
            if lists or any(isinstance(one, pl.List) for one in kinds)
            else 1
        )
        return float(rows * a_value)

    def _applied(self, events: GroupEvents, context: Context) -> Emission:
        after = ~events.deletes[events.turn_end]
        answer = events.answered(after, list(self.group_keys), final=self.final, thin=self.thin)
        results, state = self._results(events, events.turn_end[answer.turns], context)
        values = pl.struct(pl.lit(results[n]).alias(f"c{n}") for n in range(len(self.functions)))
        context.trace(self._groups.name).insert(answer.kept.with_columns(**state))
        return Emission(0, answer.emitted.with_columns(pl.when(LIVE).then(values).alias("v0")))

    def recalled(self, trace: Callable[[str], Trace], hashed: int | None = None) -> Iterator[pl.DataFrame]:
        """Yield the remembered groups: ``_fh``, group key, ``_ts`` and ``v``, in frames of bounded size.

        `trace`: returns a trace that the operator declared, by name. `hashed`: only the groups of this hash.
        """
        for groups in trace(self._groups.name).frames(hashed):
            columns: dict[int, pl.Series] = {}
            for number, function in self._totals:
                base = [groups[name] for name in _state_columns(number, function)]
                columns[number] = function.recalled(groups[ROWS], base)
            counts = {one: one.recalled(groups, trace) for of in self._counted.values() for one in of}
            rows = self._members.recalled(groups, trace) if self._members else []
            columns |= self._others(counts, rows)
            value = pl.struct(pl.lit(columns[n]).alias(f"c{n}") for n in range(len(self.functions)))
            yield groups.select(FOREIGN_HASH, *self.group_keys, TS, value.alias("v"))

    def _results(
        self, events: GroupEvents, shown: Ints, context: Context
    ) -> tuple[dict[int, pl.Series], dict[str, pl.Series]]:
        """The aggregates at some messages, by function number, and what to remember of the groups."""
        results: dict[int, pl.Series] = {}
        state: dict[str, pl.Series] = {}
        for number, function in self._totals:
            names = _state_columns(number, function)
            totals = function.run(events, [events.groups[name] for name in names], shown)
            results[number] = totals.result
            state |= zip(names, totals.state, strict=True)
        counts, kept = self._of_counts(events, shown, context.trace)
        state |= kept
        rows, kept = self._members.run(events, shown, context.trace) if self._members else ([], {})
        return results | self._others(counts, rows), state | kept

    def _of_counts(
        self, events: GroupEvents, shown: Ints, trace: Callable[[str], Trace]
    ) -> tuple[dict[OfCounts, pl.Series], dict[str, pl.Series]]:
        """The aggregates of how many rows have each value, and what to remember of the groups."""
        results: dict[OfCounts, pl.Series] = {}
        state: dict[str, pl.Series] = {}
        for column, functions in self._counted.items():
            moved = count_values(events, column, trace(counts_trace(column, self.group_keys).name))
            for one in functions:
                results[one], kept = one.run(events, moved, shown, trace)
                state |= kept
            if any(one.traces(self.group_keys) for one in functions):
                remember_values(events, moved, trace(values_name(column)))
        return results, state

    def _others(
        self, counts: Mapping[OfCounts, pl.Series], rows: Sequence[pl.Series]
    ) -> dict[int, pl.Series]:
        """Results by function number, from those of counts and of `Members`."""
        of_rows = iter(rows)
        return {
            number: counts[one] if isinstance(one, OfCounts) else next(of_rows)
            for number, one in enumerate(self.functions)
            if not isinstance(one, Function)
        }


def _state_columns(number: int, function: Function) -> list[str]:
    """The columns in which the state of a running total is remembered."""
    return [f"a{number}_{name}" for name in function.state]
