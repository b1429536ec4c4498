"""The record-at-a-time reference: every rule of the table algebra in its plainest form.

Slow on purpose, and short enough to check against the rule tables by eye. It is what the columnar operators
are compared with, and it in turn is held to the observed outputs of Kafka Streams. No Spark, no Polars.

One class per operator; a plan is worked by hand: the outputs of one operator's step are the messages of the
next one's.

Examples
--------
>>> flights, planes = TableSource(), TableSource()
>>> join = ForeignKeyJoin(lambda flight, key: flight["plane"], how="left", joiner=lambda f, p: p)
>>> join.step([(ForeignKeyJoin.RIGHT, *out) for out in planes.change(0, "N1", "Airbus", 1)])
[]
>>> join.step([(ForeignKeyJoin.LEFT, *out) for out in flights.change(0, 7, {"plane": "N1"}, 2)])
[Output(key=7, value='Airbus', ts=2)]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.reference.as_of_join import AsOfJoin
from tests.reference.as_of_table import AsOfTableJoin
from tests.reference.foreign_key import ForeignKeyJoin, OneToMany
from tests.reference.groups import Aggregate, GroupBy, StreamAggregate
from tests.reference.keep import Keep
from tests.reference.key_join import Join, KeyJoin
from tests.reference.many_to_many import ManyToMany
from tests.reference.over import Over
from tests.reference.steps import (
    Change,
    Inputs,
    Message,
    Output,
    Reference,
    Row,
    natural_order,
    pair,
)
from tests.reference.streams import StreamGlobalTableJoin, ToTable
from tests.reference.suppress import Suppress
from tests.reference.top import Top
from tests.reference.versions import (
    LatestOnly,
    Version,
    VersionedRows,
    VersionedTable,
    VersionedView,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.reference.steps import Key, Value

__all__ = [
    "Aggregate",
    "AsOfJoin",
    "AsOfTableJoin",
    "Change",
    "Filter",
    "ForeignKeyJoin",
    "GroupBy",
    "Join",
    "Keep",
    "KeyJoin",
    "LatestOnly",
    "ManyToMany",
    "MapValues",
    "Message",
    "OneToMany",
    "Output",
    "Over",
    "Reference",
    "Row",
    "StreamAggregate",
    "StreamGlobalTableJoin",
    "Suppress",
    "TableSource",
    "ToTable",
    "Top",
    "Version",
    "VersionedRows",
    "VersionedTable",
    "VersionedView",
    "natural_order",
    "pair",
]


class TableSource(Reference):
    """Read a change log as a table.

    ==============  ===========================================================
    record          output
    ==============  ===========================================================
    null key        none; counted as dropped
    any other       forwarded with its own timestamp: the same value again, a
    .               tombstone of an absent row and a late record too
    ==============  ===========================================================

    The row that arrived last wins, whatever its timestamp. Compat refuses negative timestamps.

    Examples
    --------
    >>> table = TableSource()
    >>> table.change(0, "a", 1, 5) + table.change(0, "a", None, 3) + table.change(0, None, 2, 9)
    [Output(key='a', value=1, ts=5), Output(key='a', value=None, ts=3)]
    >>> table.dropped
    1
    """

    def __init__(self, *, compat: bool = False) -> None:
        super().__init__(compat=compat)
        self._rows = Inputs(1, None)

    def step(self, messages: Sequence[tuple[int, Key, Value, int]]) -> list[Output]:
        """Answer one step."""
        return [output for message in messages for output in self._read(Message(*message))]

    def rows(self) -> dict[Key, Row]:
        """Return the present table."""
        return dict(self._rows.tables[0].items())

    def _read(self, record: Message) -> Iterator[Output]:
        if self.compat and record.ts < 0:
            raise ValueError(f"record with key {record.key!r} has the negative timestamp {record.ts}")
        if record.key is None:
            self.dropped += 1
        else:
            self._rows.tables[0].put(record.key, record.value, record.ts)
            yield Output(record.key, record.value, record.ts)


class Filter(Reference):
    """Keep the rows that fulfil a predicate; one that no longer does, or is deleted, becomes a tombstone.

    ====================  ============================================
    row before → after    output
    ====================  ============================================
    any → kept            the row, also where it is the same
    kept → not kept       tombstone
    not kept → not kept   nothing; compat over a source that keeps no
    .                     old values: a tombstone each time
    ====================  ============================================

    The predicate is never called for a tombstone. Timestamps are the changes' own.

    Parameters
    ----------
    predicate
        value -> whether the row is kept.
    old_values
        Whether the input sends old values (in Kafka Streams: is materialised). Only compat tells the
        difference.
    compat
        Answer message after message, as Kafka Streams does.

    Examples
    --------
    >>> even = Filter(lambda value: value % 2 == 0)
    >>> [even.change(0, "k", value, ts) for ts, value in enumerate([1, 2, 3, None])]
    [[], [Output(key='k', value=2, ts=1)], [Output(key='k', value=None, ts=2)], []]
    """

    def __init__(
        self, predicate: Callable[[Value], bool], *, old_values: bool = False, compat: bool = False
    ) -> None:
        super().__init__(compat=compat)
        self._predicate = predicate
        self._repeats_tombstones = compat and not old_values
        self._input = Inputs(1, None)

    def step(self, messages: Sequence[tuple[int, Key, Value, int]]) -> list[Output]:
        """Answer one step."""
        arrived = [Message(*message) for message in messages]
        if self.compat:
            changes = [(m.key, delta) for applied in self._input.one_by_one(arrived) for m, delta in applied]
        else:
            changes = [(key, delta) for (_, key), delta in self._input.all_at_once(arrived).items()]
        kept = [(key, self._keep(d.new), self._keep(d.old), d.ts) for key, d in changes]
        return [
            Output(key, new, ts)
            for key, new, old, ts in kept
            if new is not None or old is not None or self._repeats_tombstones
        ]

    def _keep(self, value: Value) -> Value:
        return value if value is not None and self._predicate(value) else None


class MapValues(Reference):
    """Replace each row's value.

    ==============  =======================================================
    change          output, with the change's own timestamp
    ==============  =======================================================
    row             the mapper's value; None makes a tombstone
    tombstone       tombstone, without a call of the mapper
    ==============  =======================================================

    Nothing is held back: a tombstone after a tombstone is emitted too. Default mode: a key's last change of
    the step.

    Examples
    --------
    >>> MapValues(str.upper).change(0, "k", "a", 1)
    [Output(key='k', value='A', ts=1)]
    """

    def __init__(self, mapper: Callable[[Value], Value], *, compat: bool = False) -> None:
        super().__init__(compat=compat)
        self._mapper = mapper

    def step(self, messages: Sequence[tuple[int, Key, Value, int]]) -> list[Output]:
        """Answer one step."""
        arrived = [Message(*message) for message in messages]
        if not self.compat:
            arrived = list({message.key: message for message in arrived}.values())
        return [Output(m.key, None if m.value is None else self._mapper(m.value), m.ts) for m in arrived]
