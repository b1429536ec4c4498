"""The record-at-a-time reference of grouped aggregates: of a table's rows (KIP-904), and of a stream's records."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from tests.reference.steps import (
    Change,
    Inputs,
    LatestRows,
    Message,
    Operator,
    Output,
    Reference,
    is_null,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tests.reference.steps import Key, Value

    Selector: TypeAlias = Callable[[Value, Key], tuple[Key, Value] | None]
    """(row's value, row's key) -> (group key, what is aggregated), or None."""

    Aggregator: TypeAlias = Callable[[Key, Value, Value], Value]
    """(group key, what is aggregated, aggregate) -> aggregate; None makes a tombstone."""

    Reducer: TypeAlias = Callable[[Value, Value], Value]
    """(aggregate, value) -> aggregate; None makes a tombstone."""


class GroupBy(Operator):
    """Tell groups of the changes of their rows: the first half of a table's aggregate.

    ======================  =====================================================
    row before → after      messages (group key, new, old, time of the change)
    ======================  =====================================================
    no group → no group     none
    no group → g            (g, new, None)
    g → no group            (g, None, old)
    g → g                   (g, new, old): one message, so that nobody sees the
    .                       group without the row
    g → h                   (g, None, old), then (h, new, None)
    ======================  =====================================================

    A row counts in no group when it is absent, when the selector returns None, or when what is to be aggregated
    is None. Nothing is counted as dropped.

    ==============  ==============================================  ==============================
    .               default                                         compat
    ==============  ==============================================  ==============================
    a step is       one change of each row: from its value before   one change after the other
    .               the step to the one after, at the time of the
    .               last; a row that is absent before and after
    .               says nothing
    null group key  a group like any other, as in SQL               the row counts in no group
    ==============  ==============================================  ==============================

    Messages follow the changes; in default mode a row stands where its first change of the step stood.

    Parameters
    ----------
    selector
        (row's value, row's key) -> (group key, what is aggregated), or None. Called for the old value, too.
    silent
        Whether a row that has the same group and the same to be aggregated as before says nothing.
    compat
        Answer message after message, as Kafka Streams does.

    Examples
    --------
    >>> groups = GroupBy(lambda value, key: value)
    >>> groups.step([(0, "a", ("g", 1), 5)])
    [Change(key='g', new=1, old=None, ts=5)]
    >>> groups.step([(0, "a", ("g", 2), 6)])
    [Change(key='g', new=2, old=1, ts=6)]
    >>> groups.step([(0, "a", ("h", 2), 7)])
    [Change(key='g', new=None, old=2, ts=7), Change(key='h', new=2, old=None, ts=7)]
    """

    def __init__(self, selector: Selector, *, silent: bool = False, compat: bool = False) -> None:
        super().__init__(compat=compat)
        self._selector, self._silent = selector, silent
        self._input = Inputs(1, None)

    def step(self, messages: Sequence[tuple[int, Key, Value, int]]) -> list[Change]:
        """Answer one step: messages are (0, key, value or None, timestamp)."""
        arrived = [Message(*message) for message in messages]
        if self.compat:
            changes = [Change(m.key, *d) for applied in self._input.one_by_one(arrived) for m, d in applied]
        else:
            changes = [Change(key, *d) for (_, key), d in self._input.all_at_once(arrived).items()]
        return self.regroup(changes)

    def regroup(self, changes: Iterable[Change]) -> list[Change]:
        """Turn changes that bear their old value into messages to groups, whatever the table was before."""
        return [message for change in changes for message in self._messages(change)]

    def _messages(self, change: Change) -> Iterator[Change]:
        new, old = (self._group(value, change.key) for value in (change.new, change.old))
        if self._silent and new is not None and new == old:
            return
        if new is not None and old is not None and new[0] == old[0]:
            yield Change(new[0], new[1], old[1], change.ts)
            return
        if old is not None:
            yield Change(old[0], None, old[1], change.ts)
        if new is not None:
            yield Change(new[0], new[1], None, change.ts)

    def _group(self, value: Value, key: Key) -> tuple[Key, Value] | None:
        selected = None if value is None else self._selector(value, key)
        if selected is None or selected[1] is None or (self.compat and is_null(selected[0])):
            return None
        return selected


class Aggregate(Operator):
    """Aggregate the rows of each group: the second half of a table's aggregate.

    A message (group key, new, old, ts) is applied to the group's aggregate so:

    ===================  =========================================================================
    message              effect
    ===================  =========================================================================
    old, no aggregate    none: the subtractor is not called
    old, an aggregate    subtractor(group key, old, aggregate)
    new, no aggregate    adder(group key, new, initializer()); without an initializer: new itself
    new, an aggregate    adder(group key, new, aggregate)
    new and old          the old first
    ===================  =========================================================================

    Afterwards the group emits its aggregate, also where it is the same; None deletes the group and is emitted as
    a tombstone, also where there was no group.

    ============  ====================================================  ====================================
    .             default                                               compat
    ============  ====================================================  ====================================
    emits         after a step, each group that had messages once       after every message
    empty group   is deleted; `keep_empty`: as in compat                keeps what the subtractor leaves (a
    .                                                                   count: 0)
    timestamp     the maximum of the group's messages in the step and,  the same, of the one message
    .             if the group was there before it, the group's own
    null key      a group like any other                                refused
    ============  ====================================================  ====================================

    A group is empty when no row counts in it any more. A group that was deleted has no time: it comes back with
    that of its messages alone. Groups stand where their first message of the step stood.

    Parameters
    ----------
    initializer
        () -> aggregate of a group without rows; None: the first value itself is the aggregate (a reduction).
    adder, subtractor
        (group key, what is aggregated, aggregate) -> aggregate; None deletes the group. They must not change the
        aggregate that they are given.
    keep_empty
        Whether a group without rows stays. Compat always keeps it.
    compat
        Answer message after message, as Kafka Streams does.

    Examples
    --------
    >>> total = Aggregate(lambda: 0, lambda key, value, sum: sum + value, lambda key, value, sum: sum - value)
    >>> total.step([("g", 5, None, 1), ("g", 7, None, 4)])
    [Output(key='g', value=12, ts=4)]
    >>> total.step([("g", 6, 5, 2)])
    [Output(key='g', value=13, ts=4)]
    >>> total.step([("g", None, 6, 3), ("g", None, 7, 3)])
    [Output(key='g', value=None, ts=4)]
    """

    def __init__(
        self,
        initializer: Callable[[], Value] | None,
        adder: Aggregator,
        subtractor: Aggregator,
        *,
        keep_empty: bool = False,
        compat: bool = False,
    ) -> None:
        super().__init__(compat=compat)
        self._initializer = initializer
        self._adder = adder
        self._subtractor = subtractor
        self._keeps_empty = keep_empty or compat
        self._groups = LatestRows()
        self._rows: Counter[Key] = Counter()  # how many rows count in a group

    @classmethod
    def count(cls, *, keep_empty: bool = False, compat: bool = False) -> Aggregate:
        """Count the rows of each group.

        Examples
        --------
        >>> Aggregate.count().step([("g", "a", None, 1), ("g", "b", None, 2)])
        [Output(key='g', value=2, ts=2)]
        """
        return cls(
            lambda: 0,
            lambda _key, _value, rows: rows + 1,
            lambda _key, _value, rows: rows - 1,
            keep_empty=keep_empty,
            compat=compat,
        )

    @classmethod
    def reduce(
        cls, adder: Reducer, subtractor: Reducer, *, keep_empty: bool = False, compat: bool = False
    ) -> Aggregate:
        """Combine the values of each group: adder and subtractor are (aggregate, value) -> aggregate.

        Examples
        --------
        >>> Aggregate.reduce(lambda a, b: a + b, lambda a, b: a - b).step([("g", 3, None, 1), ("g", 4, None, 2)])
        [Output(key='g', value=7, ts=2)]
        """
        return cls(
            None,
            lambda _key, value, aggregate: adder(aggregate, value),
            lambda _key, value, aggregate: subtractor(aggregate, value),
            keep_empty=keep_empty,
            compat=compat,
        )

    def step(self, messages: Sequence[tuple[Key, Value, Value, int]]) -> list[Output]:
        """Answer one step: messages are (group key, new or None, old or None, timestamp)."""
        arrived = [Change(*message) for message in messages]
        if self.compat:
            return [self._answer([message]) for message in arrived]
        turns: dict[Key, list[Change]] = {}
        for message in arrived:
            turns.setdefault(message.key, []).append(message)
        return [self._answer(turn) for turn in turns.values()]

    def _answer(self, turn: list[Change]) -> Output:
        """Apply messages to one group and emit it."""
        key = turn[0].key
        if self.compat and is_null(key):
            raise ValueError(f"the group key {key!r} is null")
        before = self._groups.get(key)
        aggregate = None if before is None else before.value
        for message in turn:
            aggregate = self._apply(message, aggregate)
            self._rows[key] += (message.new is not None) - (message.old is not None)
        if not (self._rows[key] or self._keeps_empty):
            aggregate = None
        times = [message.ts for message in turn]
        ts = max(times) if before is None else max(*times, before.ts)
        self._groups.put(key, aggregate, ts)
        return Output(key, aggregate, ts)

    def _apply(self, message: Change, aggregate: Value) -> Value:
        key, new, old, _ = message
        if old is not None and aggregate is not None:
            aggregate = self._subtractor(key, old, aggregate)
        if new is None:
            return aggregate
        if aggregate is not None:
            return self._adder(key, new, aggregate)
        return new if self._initializer is None else self._adder(key, new, self._initializer())


class StreamAggregate(Reference):
    """Aggregate the records of a stream by their key.

    ======================  ========================================================================
    record                  output
    ======================  ========================================================================
    null value              none; counted as dropped
    null key                compat: none, counted as dropped; default: a group like any other
    any other, first of     adder(key, value, initializer()), without an initializer the value
    its key                 itself; at the record's time
    any other               adder(key, value, aggregate) at max(record's time, aggregate's)
    ======================  ========================================================================

    An adder that returns None deletes the aggregate: a tombstone. Default mode: all records of the step are
    applied, then each key emits once. A stream takes nothing back: there is no subtractor.

    Parameters
    ----------
    initializer, adder, compat
        As for `Aggregate`.

    Examples
    --------
    >>> longest = StreamAggregate(str, lambda key, value, aggregate: max(aggregate, value, key=len))
    >>> longest.change(0, "k", "abc", 5)
    [Output(key='k', value='abc', ts=5)]
    >>> longest.step([(0, "k", "a", 3), (0, "k", None, 9)])
    [Output(key='k', value='abc', ts=5)]
    >>> longest.dropped
    1
    """

    def __init__(
        self, initializer: Callable[[], Value] | None, adder: Aggregator, *, compat: bool = False
    ) -> None:
        super().__init__(compat=compat)
        self._aggregate = Aggregate(
            initializer, adder, lambda _key, _value, aggregate: aggregate, compat=compat
        )

    @classmethod
    def count(cls, *, compat: bool = False) -> StreamAggregate:
        """Count the records of each key.

        Examples
        --------
        >>> StreamAggregate.count().step([(0, "k", "a", 1), (0, "k", "b", 2)])
        [Output(key='k', value=2, ts=2)]
        """
        return cls(lambda: 0, lambda _key, _value, records: records + 1, compat=compat)

    @classmethod
    def reduce(cls, adder: Reducer, *, compat: bool = False) -> StreamAggregate:
        """Combine the values of each key: adder is (aggregate, value) -> aggregate.

        Examples
        --------
        >>> StreamAggregate.reduce(max).step([(0, "k", 3, 1), (0, "k", 2, 2)])
        [Output(key='k', value=3, ts=2)]
        """
        return cls(None, lambda _key, value, aggregate: adder(aggregate, value), compat=compat)

    def step(self, messages: Sequence[tuple[int, Key, Value, int]]) -> list[Output]:
        """Answer one step."""
        arrived = [Message(*message) for message in messages]
        counted = [m for m in arrived if m.value is not None and not (self.compat and is_null(m.key))]
        self.dropped += len(arrived) - len(counted)
        return self._aggregate.step([Change(m.key, m.value, None, m.ts) for m in counted])
