"""Second half of a grouping with the user's own functions, called as Kafka Streams calls them.

A message may bear an old row, a new row, or both; the old one is subtracted first.

===================  =====================================================================
message              effect
===================  =====================================================================
old, no aggregate    none: the subtractor is not called
old, an aggregate    ``subtractor(key, old, aggregate)``
new, no aggregate    ``adder(key, new, initializer())``; a reduction: the new row itself
new, an aggregate    ``adder(key, new, aggregate)``
===================  =====================================================================

A function that returns None deletes the group: a tombstone. So does, unless ``keep_empty``, the last row that leaves.
A *turn* (one message, or with ``atomic`` all of a step to one group) emits once.

References
----------
KIP-904; Kafka Streams ``KGroupedTable.aggregate``, ``reduce``; ``docs/semantics.md``.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import polars as pl

from tablestream.operators.events import Bools, touched_keys
from tablestream.operators.groups import GroupEvents, groups_trace, message_schema
from tablestream.operators.operator import Context, Emission
from tablestream.operators.regroup import OLD
from tablestream.state.changes import FOREIGN_HASH, LIVE
from tablestream.state.trace import TraceSpec

AGGREGATE = "aggregate"


@dataclass(frozen=True)
class UserFunctions:
    """What a user gave: functions of (group key, row, aggregate).

    Parameters
    ----------
    initializer
        () -> aggregate of a group without rows; None: the first row is the aggregate.
    adder, subtractor
        (group key, row, aggregate) -> aggregate, or None to delete the group. Rows, and keys and aggregates of
        several columns, are named tuples; a key or an aggregate of one column is its value.
    key, row, aggregate
        The names of the columns.
    text
        The functions' names and version: what a restarted plan is compared by.
    """

    initializer: Callable[[], Any] | None
    adder: Callable[[Any, Any, Any], Any]
    subtractor: Callable[[Any, Any, Any], Any]
    key: tuple[str, ...]
    row: tuple[str, ...]
    aggregate: tuple[str, ...]
    text: str = "functions"


@dataclass(frozen=True)
class Fold:
    """Keep an aggregate per group by the user's functions.

    Parameters
    ----------
    keys, group_keys
        The columns and dtypes of the table's key and of the group's.
    value, aggregate
        The dtypes of what is aggregated of a row, and of the aggregate: structs of ``c0``, ``c1``, ...
    functions
        The user's.
    keep_empty, atomic, final
        As for `Aggregate`.

    Notes
    -----
    Input: the messages of `Regroup`. Output 0: as `Aggregate`'s. One Python call per row that comes or goes.
    """

    keys: pl.Schema
    group_keys: pl.Schema
    value: pl.DataType
    aggregate: pl.DataType
    functions: UserFunctions
    keep_empty: bool = False
    atomic: bool = True
    final: bool = False

    @property
    def inputs(self) -> tuple[pl.Schema, ...]:
        return (message_schema(self.keys, self.group_keys, self.value),)

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        return (groups_trace(self.group_keys, {AGGREGATE: self.aggregate}),)

    @property
    def reasons(self) -> tuple[str, ...]:
        return ()

    def run(self, inputs: Sequence[pl.DataFrame], context: Context) -> Iterator[Emission]:
        """Apply the messages, emit what each turn leaves, and remember it."""
        (arrived,) = inputs
        trace = context.trace("groups")
        stored = trace.lookup(touched_keys([arrived.select(FOREIGN_HASH, *self.group_keys)]))
        # A group that a function deleted is remembered for its number of rows.
        stored = stored.with_columns(pl.col(AGGREGATE).is_not_null().alias(LIVE))
        events = GroupEvents.of(arrived, stored, list(self.group_keys), atomic=self.atomic)
        results = self._folded(events)
        answer = events.answered(
            np.array([result is not None for result in results], dtype=bool),
            list(self.group_keys),
            final=self.final,
        )
        column = pl.Series(results, dtype=self.aggregate, strict=True)
        yield Emission(0, answer.emitted.with_columns(column.gather(answer.turns).alias("v0")))
        trace.insert(answer.kept.with_columns(column.gather(answer.last).alias(AGGREGATE)))

    def _folded(self, events: GroupEvents) -> list[dict[str, Any] | None]:
        """Call the functions; return the aggregate after each turn, as the fields of a struct."""
        user = self.functions
        row, group_key = _Shape("Row", user.row, always=True), _Shape("Key", user.key)
        shape = row if user.initializer is None else _Shape("Aggregate", user.aggregate)
        keys = [
            group_key.seen(one) for one in events.messages[events.first].select(list(self.group_keys)).rows()
        ]
        known = [
            shape.seen(parts) if there else None
            for parts, there in zip(_parts(events.groups[AGGREGATE]), events.existed.tolist(), strict=True)
        ]
        old = row.list_where(events.messages[OLD], events.removes)
        new = row.list_where(events.messages["v"], events.adds)
        ends = np.zeros(len(events), dtype=bool)
        ends[events.turn_end] = True
        gone = (events.rows <= 0) & (not self.keep_empty)
        results: list[dict[str, Any] | None] = []
        current, aggregate, key = -1, None, None
        # The names are local: a message costs its calls.
        initializer, adder, subtractor, taken = user.initializer, user.adder, user.subtractor, shape.taken
        messages = zip(events.group.tolist(), old, new, ends.tolist(), gone.tolist(), strict=True)
        for group, removed, added, is_end, is_gone in messages:
            if group != current:
                current, aggregate, key = group, known[group], keys[group]
            if removed is not None and aggregate is not None:
                aggregate = taken(subtractor(key, removed, aggregate))
            if added is not None:
                if aggregate is None and initializer is None:
                    aggregate = added
                else:
                    before = aggregate
                    if before is None and initializer is not None:
                        before = taken(initializer())
                    aggregate = taken(adder(key, added, before))
            if is_end:
                aggregate = None if is_gone else aggregate
                results.append(None if aggregate is None else shape.fields(aggregate))
        return results


class _Shape:
    """What users see of some columns: the value of a single one, or a named tuple.

    Parameters
    ----------
    name
        Of the tuple.
    columns
        Its fields.
    always
        Whether a single column is a tuple, too.
    """

    def __init__(self, name: str, columns: tuple[str, ...], *, always: bool = False) -> None:
        self._columns = columns
        self._fields = [f"c{number}" for number in range(len(columns))]
        self._tuple: Any = namedtuple(name, columns, rename=True)  # type: ignore[misc]  # noqa: PYI024
        self._single = len(columns) == 1 and not always
        #: What is handed to a function.
        self.seen: Callable[[tuple[Any, ...]], Any] = itemgetter(0) if self._single else _maker(self._tuple)

    def list_where(self, values: pl.Series, wanted: Bools) -> list[Any]:
        """Structs as they are handed to a function, None where they are not wanted."""
        places = np.flatnonzero(wanted)
        seen: list[Any] = [None] * len(wanted)
        for place, one in zip(places.tolist(), map(self.seen, _parts(values.gather(places))), strict=True):
            seen[place] = one
        return seen

    def taken(self, value: Any) -> Any:
        """What a function returned, a dictionary or a tuple of any kind, as it is handed to the next."""
        if value is None or self._single or type(value) is self._tuple:
            return value
        if isinstance(value, dict):
            return self._tuple._make([value[column] for column in self._columns])
        return self._tuple._make(value if isinstance(value, tuple | list) else (value,))

    def fields(self, value: Any) -> dict[str, Any]:
        """The fields of a struct."""
        parts = (value,) if self._single else value
        return dict(zip(self._fields, parts, strict=True))


def _maker(named: Any) -> Callable[[tuple[Any, ...]], Any]:
    return named._make  # type: ignore[no-any-return]


def _parts(values: pl.Series) -> list[tuple[Any, ...]]:
    """Structs as tuples; one that is null is a tuple of nulls."""
    return values.struct.unnest().rows()
