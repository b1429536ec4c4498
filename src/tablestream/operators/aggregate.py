"""Second half of a grouping: declared aggregates of the rows of each group.

A *turn* is one message, or with ``atomic`` all messages of a step to one group. Each turn emits once.

============  ===========================  ====================================================
rows before   rows after                   emits, at the time that `groups` gives
============  ===========================  ====================================================
any           some                         the aggregates, also where they are the same
any           none                         a tombstone; with ``keep_empty`` the aggregates
============  ===========================  ====================================================

References
----------
KIP-904; Kafka Streams ``KGroupedTable``; ``docs/semantics.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from tablestream.operators.collected import Collected, Members
from tablestream.operators.events import Ints, touched_keys
from tablestream.operators.groups import ROWS, GroupEvents, groups_changes, groups_trace
from tablestream.operators.operator import CanBeFinal, Context, Emission
from tablestream.operators.regroup import message_schema
from tablestream.operators.totals import Function, Totals
from tablestream.state.changes import FOREIGN_HASH, LIVE, TS
from tablestream.state.trace import Trace, TraceSpec


@dataclass(frozen=True)
class Aggregate(CanBeFinal):
    """Keep declared aggregates of groups.

    Parameters
    ----------
    keys, group_keys
        The columns and dtypes of the table's key and of the group's.
    value
        The dtype of what is aggregated of a row.
    functions
        The aggregates: running totals, and what needs the rows of the group.
    keep_empty
        Whether a group without rows stays.
    atomic
        Whether a step emits once per group.
    final
        Whether only the last change per group and micro-batch leaves.

    Notes
    -----
    Input: the messages of `Regroup`. Output 0: ``_kh``, group key as ``_k0``, ..., ``_ts``, ``_live``, ``v0``
    with a field ``c0``, ``c1``, ... per function. Cost: the messages; with `Collected` functions also all rows
    of the groups that have messages.
    """

    keys: pl.Schema
    group_keys: pl.Schema
    value: pl.DataType
    functions: tuple[Function | Collected, ...]
    keep_empty: bool = False
    atomic: bool = True

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        return (message_schema(self.keys, self.group_keys, self.value),)

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
    def _groups(self) -> TraceSpec:
        return groups_trace(
            self.group_keys,
            {
                f"a{number}_{name}": kind
                for number, function in self._totals
                for name, kind in function.state.items()
            },
        )

    @property
    def _members(self) -> Members:
        return Members(self.keys, self.group_keys, self.value, tuple(one for _, one in self._collected))

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return (self._groups, *([self._members.trace] if self._collected else []))

    @property
    def reasons(self) -> tuple[str, ...]:
        return ()

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        """Apply the messages, emit what each turn leaves, and remember it."""
        (arrived,) = inputs
        trace = context.trace(self._groups.name)
        touched = touched_keys([arrived.select(FOREIGN_HASH, *self.group_keys)])
        events = GroupEvents.of(arrived, trace.lookup(touched), list(self.group_keys), atomic=self.atomic)
        after = (events.rows[events.turn_end] > 0) | self.keep_empty
        answer = events.answered(after, list(self.group_keys), final=self.final)
        results = self._results(events, events.turn_end[answer.turns], touched, context)
        values = pl.struct(pl.lit(results[n].result).alias(f"c{n}") for n in range(len(self.functions)))
        yield Emission(0, answer.emitted.with_columns(pl.when(LIVE).then(values).alias("v0")))
        state = (
            series.alias(f"a{number}_{name}")
            for number, function in self._totals
            for name, series in zip(function.state, results[number].state, strict=True)
        )
        trace.insert(answer.kept.with_columns(state))

    def recalled(self, trace: Callable[[str], Trace]) -> Iterator[pl.DataFrame]:
        """Yield the groups as they are remembered: ``_fh``, group key, ``_ts`` and ``v``, in frames of bounded size.

        Parameters
        ----------
        trace
            Gives the trace of a name that the operator declared.
        """
        for groups in trace(self._groups.name).frames():
            columns: dict[int, pl.Series] = {}
            for number, function in self._totals:
                base = [groups[f"a{number}_{name}"] for name in function.state]
                columns[number] = function.recalled(groups[ROWS], base)
            if self._collected:
                recalled = self._members.recalled(groups, trace(self._members.trace.name))
                columns |= {number: one for (number, _), one in zip(self._collected, recalled, strict=True)}
            value = pl.struct(pl.lit(columns[n]).alias(f"c{n}") for n in range(len(self.functions)))
            yield groups.select(FOREIGN_HASH, *self.group_keys, TS, value.alias("v"))

    def _results(
        self, events: GroupEvents, shown: Ints, touched: pl.DataFrame, context: Context
    ) -> list[Totals]:
        """The aggregates at some messages, and what is to be remembered of them."""
        results: dict[int, Totals] = {}
        for number, function in self._totals:
            base = [events.groups[f"a{number}_{name}"] for name in function.state]
            results[number] = function.run(events, base, shown)
        if self._collected:
            members = self._members
            columns = members.run(events, shown, touched, context.trace(members.trace.name))
            for (number, _), column in zip(self._collected, columns, strict=True):
                results[number] = Totals(column, [])
        return [results[number] for number in range(len(self.functions))]
