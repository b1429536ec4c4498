"""The record-at-a-time reference of streams: joined with a global table, and read as a table.

A stream's messages are records: `value` may be None, and so may the key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from tests.reference.steps import LatestRows, Message, Output, Reference, is_null, pair

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.reference.foreign_key import ForeignKey
    from tests.reference.steps import Joiner, Key, Value


class StreamGlobalTableJoin(Reference):
    """Join each record of a stream with the row of a global table that it points at.

    ===============================  ==================  =================================
    record of the stream             inner               left
    ===============================  ==================  =================================
    null value                       dropped, counted    dropped, counted
    points at nothing                dropped, counted    joined with null
    points at an absent row          nothing             joined with null
    points at a row                  joined              joined
    ===============================  ==================  =================================

    - The record's key plays no part and may be null; the result has the record's key and time.
    - Changes of the global table emit nothing; the row written last wins, whatever its timestamp. Records that
      have no key are dropped by the source that reads it.
    - Results are records: each is emitted, also in default mode. There the table's changes of a step are applied
      before its records are joined; compat takes message after message.

    Parameters
    ----------
    mapper
        (record's value, record's key) -> key of the global table, or None. Never called for a null value.
    how
        "inner" or "left".
    joiner
        (record's value, row's value or None) -> value.
    compat
        Answer message after message, as Kafka Streams does.

    Attributes
    ----------
    STREAM, TABLE
        The ports.

    Examples
    --------
    >>> join = StreamGlobalTableJoin(lambda value, key: value, how="left")
    >>> join.change(StreamGlobalTableJoin.TABLE, "x", "X", 9)
    []
    >>> join.step([(0, "a", "x", 1), (0, None, "y", 2), (0, "a", None, 3)])
    [Output(key='a', value=('x', 'X'), ts=1), Output(key=None, value=('y', None), ts=2)]
    >>> join.dropped
    1
    """

    STREAM: ClassVar[int] = 0
    TABLE: ClassVar[int] = 1

    def __init__(
        self,
        mapper: ForeignKey,
        how: Literal["inner", "left"] = "inner",
        *,
        joiner: Joiner = pair,
        compat: bool = False,
    ) -> None:
        super().__init__(compat=compat)
        self._mapper = mapper
        self._joiner = joiner
        self._keeps_stream = how == "left"
        self._table = LatestRows()

    def step(self, messages: Sequence[tuple[int, Key, Value, int]]) -> list[Output]:
        """Answer one step."""
        arrived = [Message(*message) for message in messages]
        if not self.compat:
            arrived.sort(key=lambda message: message.port == self.STREAM)
        return [output for message in arrived for output in self._answer(message)]

    def _answer(self, message: Message) -> Iterator[Output]:
        _, key, value, ts = message
        if message.port == self.TABLE:
            self._table.put(key, value, ts)
            return
        table_key = None if value is None else self._mapper(value, key)
        if value is None or (is_null(table_key) and not self._keeps_stream):
            self.dropped += 1
            return
        row = None if is_null(table_key) else self._table.get(table_key)
        if row is not None or self._keeps_stream:
            yield Output(key, self._joiner(value, None if row is None else row.value), ts)


class ToTable(Reference):
    """Read a stream as a table: its records are upserts, or tombstones where the value is null.

    ==============  =============================================================
    record          output
    ==============  =============================================================
    null key        none; counted as dropped
    any other       forwarded with its own timestamp: the same value again, a
    .               tombstone of an absent row and a late record too
    ==============  =============================================================

    These are the rules of `TableSource`. But one record of a stream may have become several on its way here: in
    default mode a key's last record of the step is forwarded.

    Examples
    --------
    >>> records = [(0, "a", 1, 5), (0, None, 1, 5), (0, "a", 2, 4)]
    >>> ToTable().step(records)
    [Output(key='a', value=2, ts=4)]
    >>> ToTable(compat=True).step(records)
    [Output(key='a', value=1, ts=5), Output(key='a', value=2, ts=4)]
    """

    def __init__(self, *, compat: bool = False) -> None:
        super().__init__(compat=compat)

    def step(self, messages: Sequence[tuple[int, Key, Value, int]]) -> list[Output]:
        """Answer one step."""
        arrived = [Message(*message) for message in messages]
        keyed = [message for message in arrived if not is_null(message.key)]
        self.dropped += len(arrived) - len(keyed)
        if not self.compat:
            keyed = list({message.key: message for message in keyed}.values())
        return [Output(message.key, message.value, message.ts) for message in keyed]
