"""Second half of a grouping: declared aggregates of the rows of each group.

A *turn* is one message, or with ``atomic`` all messages of a step to one group. Each turn emits once.

============  ===========================  ====================================================
rows before   rows after                   emits, at the time that `groups` gives
============  ===========================  ====================================================
any           some                         the aggregates, even if they did not change
any           none                         a tombstone; with ``keep_empty`` the aggregates
============  ===========================  ====================================================

References
----------
KIP-904; Kafka Streams ``KGroupedTable``; ``docs/semantics.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from tablestream.operators.operator import CanBeThin, Context, Emission
from tablestream.operators.reduce.collected import Collected, Kind
from tablestream.operators.reduce.distinct import Distinct
from tablestream.operators.reduce.groups import ROWS, GroupEvents, groups_changes, groups_trace
from tablestream.operators.reduce.members import Members
from tablestream.operators.reduce.parts import Parts, has_any_size
from tablestream.operators.reduce.regroup import message_schema
from tablestream.operators.reduce.totals import Function
from tablestream.state.changes import FOREIGN_HASH, LIVE, TS
from tablestream.state.positions import Ints
from tablestream.state.trace import Trace, TraceSpec


@dataclass(frozen=True)
class Aggregate(CanBeThin):
    """Maintain declared aggregates of groups.

    Parameters
    ----------
    keys, group_keys
        The columns and dtypes of the table's key and of the group's.
    value
        The dtype of the part of a row that is aggregated.
    functions
        The aggregates: running totals, and others.
    keep_empty
        Whether the result keeps a group without rows.
    atomic
        Whether a step emits once per group.

    Notes
    -----
    Input: the messages of `Regroup`. Output 0: ``_kh``, group key as ``_k0``, ..., ``_ts``, ``_live``, ``v0``
    with a field ``c0``, ``c1``, ... per function. Cost: the messages, and the cost given in `members`; with lists and
    sets all rows of the groups that have messages.
    """

    keys: pl.Schema
    group_keys: pl.Schema
    value: pl.DataType
    functions: tuple[Function | Collected, ...]
    keep_empty: bool = False
    atomic: bool = True

    keeps_shard = True
    takes_last = True

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        return (message_schema(self.keys if self.needs_row_keys else None, self.group_keys, self.value),)

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
    def _collected(self) -> list[tuple[int, Collected]]:
        return [(n, one) for n, one in enumerate(self.functions) if isinstance(one, Collected)]

    @property
    def _distinct(self) -> dict[str, Distinct]:
        """The distinct counter of each column whose different values are counted."""
        columns = [one.column for _, one in self._collected if one.kind is Kind.COUNT_DISTINCT]
        return {column: Distinct(column, self.group_keys) for column in columns}

    @property
    def _members(self) -> Members | None:
        """The rows of the groups, if a function needs them."""
        functions = tuple(one for _, one in self._collected if one.kind is not Kind.COUNT_DISTINCT)
        return Members(self.keys, self.group_keys, self.value, functions) if functions else None

    @property
    def _groups(self) -> TraceSpec:
        columns = {
            f"a{number}_{name}": kind
            for number, function in self._totals
            for name, kind in function.state.items()
        }
        for part in (*self._distinct.values(), self._members):
            columns |= part.state if part is not None else {}
        return groups_trace(self.group_keys, columns)

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        members, distinct = self._members, self._distinct.values()
        specs = [self._groups, *(members.traces if members else ()), *(one.trace for one in distinct)]
        return tuple(replace(spec, number=number) for number, spec in enumerate(specs))

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        """Apply the messages, emit the result of each turn, and remember it."""
        (arrived,) = inputs
        events = self._events(arrived, context)
        parts = Parts(events, self._largest(events))
        for _, messages in parts:
            part = events if len(messages) == len(events) else self._events(messages, context)
            emission = self._applied(part, context)
            parts.made(emission.rows.estimated_size())
            yield emission

    def _events(self, messages: pl.DataFrame, context: Context) -> GroupEvents:
        trace = context.trace(self._groups.name)
        return GroupEvents.of(messages, trace, list(self.group_keys), atomic=self.atomic)

    def _largest(self, events: GroupEvents) -> float | None:
        """About how large the largest result is before the messages; None: results are small, or few are emitted."""
        kinds = [one.result for one in self.functions]
        if self.final or self.thin or not any(map(has_any_size, kinds)):
            return None
        a_value = events.messages["v"].estimated_size() / max(len(events), 1)
        rows = events.remembered(ROWS).max(initial=1) if any(isinstance(one, pl.List) for one in kinds) else 1
        return float(rows * a_value)

    def _applied(self, events: GroupEvents, context: Context) -> Emission:
        """Apply messages, return the result of each turn, and remember it."""
        after = (events.rows[events.turn_end] > 0) | self.keep_empty
        answer = events.answered(after, list(self.group_keys), final=self.final, thin=self.thin)
        results, state = self._results(events, events.turn_end[answer.turns], context)
        values = pl.struct(pl.lit(results[n]).alias(f"c{n}") for n in range(len(self.functions)))
        context.trace(self._groups.name).insert(answer.kept.with_columns(**state))
        return Emission(0, answer.emitted.with_columns(pl.when(LIVE).then(values).alias("v0")))

    def recalled(self, trace: Callable[[str], Trace]) -> Iterator[pl.DataFrame]:
        """Yield the remembered groups: ``_fh``, group key, ``_ts`` and ``v``, in frames of bounded size.

        Parameters
        ----------
        trace
            Returns a trace that the operator declared, by name.
        """
        for groups in trace(self._groups.name).frames():
            columns: dict[int, pl.Series] = {}
            for number, function in self._totals:
                base = [groups[f"a{number}_{name}"] for name in function.state]
                columns[number] = function.recalled(groups[ROWS], base)
            counts = {column: one.recalled(groups) for column, one in self._distinct.items()}
            rows = self._members.recalled(groups, trace) if self._members else []
            columns |= self._of_collected(counts, rows)
            value = pl.struct(pl.lit(columns[n]).alias(f"c{n}") for n in range(len(self.functions)))
            yield groups.select(FOREIGN_HASH, *self.group_keys, TS, value.alias("v"))

    def _results(
        self, events: GroupEvents, shown: Ints, context: Context
    ) -> tuple[dict[int, pl.Series], dict[str, pl.Series]]:
        """The aggregates at some messages, by function number, and what to remember of the groups."""
        results: dict[int, pl.Series] = {}
        state: dict[str, pl.Series] = {}
        for number, function in self._totals:
            base = [events.groups[f"a{number}_{name}"] for name in function.state]
            totals = function.run(events, base, shown)
            results[number] = totals.result
            names = (f"a{number}_{name}" for name in function.state)
            state |= dict(zip(names, totals.state, strict=True))
        counts = {}
        for column, distinct in self._distinct.items():
            counts[column], kept = distinct.run(events, shown, context.trace(distinct.trace.name))
            state |= kept
        rows, kept = self._members.run(events, shown, context.trace) if self._members else ([], {})
        return results | self._of_collected(counts, rows), state | kept

    def _of_collected(
        self, counts: Mapping[str, pl.Series], rows: Sequence[pl.Series]
    ) -> dict[int, pl.Series]:
        """Results by function number, from the counts by column and the results of `Members`."""
        others = iter(rows)
        return {
            number: counts[one.column] if one.kind is Kind.COUNT_DISTINCT else next(others)
            for number, one in self._collected
        }
