"""The record-at-a-time reference of window functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.reference.steps import Inputs, Message, Output, Reference, natural_order

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.reference.steps import Key, Value


class Over(Reference):
    """Tell each row of the others of its partition.

    =============================================  ===================
    a row, after a step that changes a partition   output
    =============================================  ===================
    is written, or is told something else          the row
    is deleted                                     tombstone
    any other                                      nothing
    =============================================  ===================

    The timestamp is the largest one of the step's changes of the row's partition. A row that is written again with the
    same value is no change.

    Parameters
    ----------
    partition
        (row's value, row's key) -> its partition.
    order, descending
        What a row's value is ordered by, null before all others; rows with equal ones are ordered by their keys.
    function
        (value and order of each row of a partition, sorted; the number of a row) -> what the row is told.
    """

    def __init__(
        self,
        partition: Callable[[Value, Key], Key],
        order: Callable[[Value], str | None],
        function: Callable[[list[tuple[Value, str | None]], int], Value],
        *,
        descending: bool = False,
    ) -> None:
        super().__init__(compat=False)
        self._partition, self._order, self._function = partition, order, function
        self._descending = descending
        self._inputs = Inputs(1, None, [0])
        self._shown: dict[Key, Value] = {}

    def step(self, messages: Sequence[tuple[int, Key, Value, int]]) -> list[Output]:
        """Answer one step."""
        net = self._inputs.all_at_once(Message(*message) for message in messages)
        written = {key: delta for (_, key), delta in net.items() if delta.new != delta.old}
        times: dict[Key, int] = {}
        for key, delta in written.items():
            for value in (one for one in (delta.old, delta.new) if one is not None):
                of = self._partition(value, key)
                times[of] = max(times.get(of, delta.ts), delta.ts)
        gone = [key for key, delta in written.items() if delta.new is None]
        outputs = [Output(key, None, times[self._partition(written[key].old, key)]) for key in gone]
        for of, ts in times.items():
            for key, value in self._told(of).items():
                if key in written or self._shown.get(key) != value:
                    outputs.append(Output(key, value, ts))
                    self._shown[key] = value
        return outputs

    def _told(self, of: Key) -> dict[Key, Value]:
        rows: list[tuple[Key, Any, str | None]] = [
            (key, row.value, self._order(row.value))
            for key, row in self._inputs.tables[0].items()
            if self._partition(row.value, key) == of
        ]
        rows.sort(key=lambda row: natural_order(row[0]))
        rows.sort(key=lambda row: (row[2] is not None, (row[2] or "").encode()), reverse=self._descending)
        pairs = [row[1:] for row in rows]
        return {row[0]: self._function(pairs, number) for number, row in enumerate(rows)}
