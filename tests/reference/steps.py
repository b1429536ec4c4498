"""What the operators of the reference share: steps, rows, and inputs that share one table.

A **step** is everything that one record of a source causes at one operator: a list of messages, in the
order in which they arrive. An operator answers a step with a list of outputs. There are two ways to work:

- `compat=True`, as Kafka Streams does: one message after the other, each answered before the next is seen;
- otherwise all messages of the step are applied first, and then each output key emits at most once.

In a step of one message the two agree, but for what a class says of its own rule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence

Key: TypeAlias = Any
"""Any hashable value; a tuple for a composite key."""

Value: TypeAlias = Any
"""Opaque; None is a tombstone."""

Joiner: TypeAlias = "Callable[[Value, Value], Value]"
"""(left value or None, right value or None) -> result value; None makes a tombstone."""

KeyOrder: TypeAlias = "Callable[[Key], Any]"
"""Key -> what the key is sorted by where one change reaches many rows."""


class Message(NamedTuple):
    """A change as it arrives at an operator: an upsert, or a tombstone where `value` is None."""

    port: int
    key: Key
    value: Value
    ts: int


class Output(NamedTuple):
    """A change as it leaves an operator."""

    key: Key
    value: Value
    ts: int


class Row(NamedTuple):
    """A present row and the timestamp of the change that wrote it."""

    value: Value
    ts: int


class Delta(NamedTuple):
    """What a change did to one row: its value after and before (None: no row), and the change's timestamp."""

    new: Value
    old: Value
    ts: int


class Change(NamedTuple):
    """A change with the value before it, for operators that need both and keep no table; None: no row."""

    key: Key
    new: Value
    old: Value
    ts: int


def is_null(key: Key) -> bool:
    """Return whether a key is null: it is None, or a part of it is.

    Examples
    --------
    >>> [is_null(key) for key in (None, ("a", None), ("a", 0), "")]
    [True, True, False, False]
    """
    return key is None or (isinstance(key, tuple) and any(part is None for part in key))


def pair(left: Value, right: Value) -> Value:
    """Join two values into a tuple: the default joiner."""
    return (left, right)


def natural_order(key: Key) -> Any:
    """Sort strings by their UTF-8 bytes, tuples part by part, null parts first, anything else by value.

    Examples
    --------
    >>> sorted(["l2", "l10", "l1"], key=natural_order)
    ['l1', 'l10', 'l2']
    >>> sorted([("b", 1), ("a", None), ("a", 0)], key=natural_order)
    [('a', None), ('a', 0), ('b', 1)]
    """
    if isinstance(key, tuple):
        return tuple((part is not None, None if part is None else natural_order(part)) for part in key)
    return key.encode() if isinstance(key, str) else key


class LatestRows:
    """An unversioned table: the row written last wins, whatever its timestamp; a delete leaves no trace."""

    def __init__(self) -> None:
        self._rows: dict[Key, Row] = {}

    def get(self, key: Key) -> Row | None:
        """Return the present row of `key`."""
        return self._rows.get(key)

    def put(self, key: Key, value: Value, ts: int) -> Delta:
        """Write or delete the row of `key` and return what that changed."""
        before = self._rows.get(key)
        if value is None:
            self._rows.pop(key, None)
        else:
            self._rows[key] = Row(value, ts)
        return Delta(value, None if before is None else before.value, ts)

    def items(self) -> Iterator[tuple[Key, Row]]:
        """Iterate over the present rows."""
        yield from self._rows.items()


class Inputs:
    """The tables that stand behind an operator's ports.

    Ports of the same store id read one and the same source table (a self-join). Kafka Streams writes such a
    table before any of its readers sees the change, so in compat the n-th change of a key at each of these
    ports is applied together, before the first of them is answered. Each port keeps its own rows, so that one
    port may see the shared table through a filter or a mapper.

    Parameters
    ----------
    store_ids
        One id per port; equal ids share. None: nothing is shared.
    ports
        How many ports there are.
    silent
        The ports at which a row that is written again with the same value is, in default mode, no message.
    """

    def __init__(
        self, ports: int, store_ids: Sequence[Hashable] | None, silent: Collection[int] = ()
    ) -> None:
        self._silent = silent
        self.tables = [LatestRows() for _ in range(ports)]
        self._store_ids = list(range(ports)) if store_ids is None else list(store_ids)
        if len(self._store_ids) != ports:
            raise ValueError(f"store_ids names {len(self._store_ids)} stores for {ports} ports")

    def one_by_one(self, messages: Iterable[Message]) -> Iterator[list[tuple[Message, Delta]]]:
        """Apply the messages in order, those that share a store together, and yield what was applied."""
        shared: defaultdict[tuple[Hashable, Key, int], list[Message]] = defaultdict(list)
        seen: defaultdict[tuple[int, Key], int] = defaultdict(int)
        for message in messages:
            nth = seen[message.port, message.key]
            seen[message.port, message.key] += 1
            shared[self._store_ids[message.port], message.key, nth].append(message)
        for together in shared.values():
            yield [(message, self._apply(message)) for message in together]

    def all_at_once(self, messages: Iterable[Message]) -> dict[tuple[int, Key], Delta]:
        """Apply the whole step and return its net change per port and key, in order of first arrival."""
        net: dict[tuple[int, Key], Delta] = {}
        for message in messages:
            row = self.tables[message.port].get(message.key)
            if message.port in self._silent and row is not None and row.value == message.value:
                continue
            delta = self._apply(message)
            first = net.get((message.port, message.key), delta)
            net[message.port, message.key] = delta._replace(old=first.old)
        return net

    def _apply(self, message: Message) -> Delta:
        return self.tables[message.port].put(message.key, message.value, message.ts)


class Operator:
    """What every operator of the reference has: its mode, and its count of dropped records.

    Attributes
    ----------
    dropped
        Records dropped so far, as Kafka Streams' `dropped-records-total` counts them.
    """

    def __init__(self, *, compat: bool) -> None:
        self.compat = compat
        self.dropped = 0


class Reference(Operator, ABC):
    """One operator of the reference: feed it steps, read its outputs and its count of dropped records."""

    @abstractmethod
    def step(self, messages: Sequence[tuple[int, Key, Value, int]]) -> list[Output]:
        """Answer one step: messages are (port, key, value or None, timestamp)."""

    def change(self, port: int, key: Key, value: Value, ts: int) -> list[Output]:
        """Answer a step of a single message."""
        return self.step([(port, key, value, ts)])
