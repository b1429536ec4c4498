"""The record-at-a-time reference of the join on values that are no key of either table."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tests.reference.steps import Delta, Inputs, Message, Output, Reference, pair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.reference.steps import Joiner, Key, Value

    JoinValue = Callable[[Value, Key], Key]
    """(row's value, row's key) -> what the row is matched by, or None."""


class ManyToMany(Reference):
    """Join each left row with each right row of the same join value; the result's key is (left key, right key).

    =========================  ======================================================
    a pair, before → after     output
    =========================  ======================================================
    any → there                the joined row, if the step changed one of its rows
    there → not there          tombstone
    not there → not there      nothing
    =========================  ======================================================

    A pair is there if both rows are, and their join values are equal and not null. The timestamp is the larger one of
    both sides: a row's own or, where the step changed the row, the change's. A step that moves both rows of a pair to
    another value emits the pair once. Rows without a join value are counted as dropped.

    Parameters
    ----------
    left_value, right_value
        (row's value, row's key) -> the join value, or None.
    joiner
        (left value, right value) -> value; None makes a tombstone.

    Examples
    --------
    >>> join = ManyToMany(lambda value, key: value[0], lambda value, key: value[0])
    >>> join.change(ManyToMany.LEFT, "l", "x1", 5)
    []
    >>> join.change(ManyToMany.RIGHT, "r", "x2", 3)
    [Output(key=('l', 'r'), value=('x1', 'x2'), ts=5)]
    >>> join.change(ManyToMany.RIGHT, "r", "y2", 7)
    [Output(key=('l', 'r'), value=None, ts=7)]
    """

    LEFT: ClassVar[int] = 0
    RIGHT: ClassVar[int] = 1

    def __init__(self, left_value: JoinValue, right_value: JoinValue, *, joiner: Joiner = pair) -> None:
        super().__init__(compat=False)
        self._by = (left_value, right_value)
        self._joiner = joiner
        self._inputs = Inputs(2, None)

    def step(self, messages: Sequence[tuple[int, Key, Value, int]]) -> list[Output]:
        """Answer one step."""
        net = self._inputs.all_at_once(Message(*message) for message in messages)
        for (port, key), delta in net.items():
            self.dropped += delta.new is not None and self._value(port, key, delta.new) is None
        return list(self._settle(net))

    def _settle(self, net: dict[tuple[int, Key], Delta]) -> Iterator[Output]:
        for left, right in self._pairs(net):
            sides = ((0, left), (1, right))
            now = [self._row(port, key, net) for port, key in sides]
            before = [
                net[port, key].old if (port, key) in net else row[0]
                for (port, key), row in zip(sides, now, strict=True)
            ]
            ts = max(row[1] for row in now)
            if self._match(left, right, now[0][0], now[1][0]):
                yield Output((left, right), self._joiner(now[0][0], now[1][0]), ts)
            elif self._match(left, right, *before):
                yield Output((left, right), None, ts)

    def _pairs(self, net: dict[tuple[int, Key], Delta]) -> Iterator[tuple[Key, Key]]:
        """All pairs of which the step changed a row."""
        every = [
            dict.fromkeys([*(key for key, _ in table.items()), *(key for at, key in net if at == port)])
            for port, table in enumerate(self._inputs.tables)
        ]
        return (
            (left, right) for left in every[0] for right in every[1] if (0, left) in net or (1, right) in net
        )

    def _row(self, port: int, key: Key, net: dict[tuple[int, Key], Delta]) -> tuple[Value, int]:
        """A row after the step, and the time that counts."""
        if (port, key) in net:
            return net[port, key].new, net[port, key].ts
        row = self._inputs.tables[port].get(key)
        assert row is not None
        return row.value, row.ts

    def _match(self, left: Key, right: Key, left_row: Value, right_row: Value) -> bool:
        values = self._value(0, left, left_row), self._value(1, right, right_row)
        return values[0] is not None and values[0] == values[1]

    def _value(self, port: int, key: Key, value: Value) -> Key:
        return None if value is None else self._by[port](value, key)
