"""The record-at-a-time reference of a stream joined with a versioned table, as of the times of its records.

KIP-914, KIP-923.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from tests.reference.steps import Message, Output, Reference, is_null, natural_order, pair
from tests.reference.versions import VersionedRows

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from tests.reference.foreign_key import ForeignKey
    from tests.reference.steps import Joiner, Key, KeyOrder, Value


class Waiting(NamedTuple):
    """A record that waits, the key that it points at, and how many had come before it."""

    record: Message
    table_key: Key
    arrival: int


class AsOfJoin(Reference):
    """Join each record of a stream with the version, valid at its time, of the row that it points at.

    What is dropped, and what a record without a row gives, is as in `StreamGlobalTableJoin`. Without `grace` a record
    is joined when it comes. With `grace` a shard has a time, `buffered`: the largest of the records that waited there.

    ===========================================  ===============================================================
    record                                       is joined
    ===========================================  ===============================================================
    points at nothing (left)                     at once, with null
    older than buffered - grace                  at once: too late to wait; counted as late, not as dropped
    any other                                    when buffered - grace has come to its time, which it may do at
    .                                            once; those that go together by (time, key bytes, arrival)
    ===========================================  ===============================================================

    - A record that finds nothing and is older than the history counts as dropped; Kafka Streams counts none of these.
    - What is joined finds the versions known by then; its time is the record's own.
    - Changes of the table emit nothing; with `table_advances` their times count as those of records that waited, and
      so let others go. Expired changes have been left out by `VersionedTable`.
    - Default: a step's changes of the table come before its records. What waited is a step of its own for whatever
      reads it. Compat takes message after message.
    - Kafka Streams fails for a record with a null key in a left join with grace; here it points at nothing.

    Parameters
    ----------
    mapper
        (record's value, record's key) -> key of the table, or None. Never called for a null value.
    how
        "inner" or "left".
    history
        As for `VersionedRows`.
    grace
        How long records wait, in the unit of the timestamps; None: they do not.
    table_advances
        Whether changes of the table let records go.
    copied
        Whether every shard has the whole table: records wait where their own keys live, and not where those do that
        they point at.
    joiner
        (record's value, row's value or None) -> value.
    shard
        Key -> its shard. One shard unless given.
    key_bytes
        What records are sorted by that leave together and have one time.
    compat
        Answer message after message, as Kafka Streams does.

    Attributes
    ----------
    STREAM, TABLE
        The ports.
    late
        How many records came too late to wait.

    Examples
    --------
    >>> join = AsOfJoin(lambda value, key: key, history=10, grace=2)
    >>> join.step([(1, "k", "old", 1), (0, "k", "r", 5)]), join.change(1, "k", "new", 4)
    ([], [])
    >>> join.change(0, "k", "s", 7)
    [Output(key='k', value=('r', 'new'), ts=5)]
    >>> join.change(0, "k", "t", 2), join.late
    ([Output(key='k', value=('t', 'old'), ts=2)], 1)
    """

    STREAM: ClassVar[int] = 0
    TABLE: ClassVar[int] = 1

    def __init__(
        self,
        mapper: ForeignKey,
        how: Literal["inner", "left"] = "inner",
        *,
        history: int,
        grace: int | None = None,
        table_advances: bool = False,
        copied: bool = False,
        joiner: Joiner = pair,
        shard: Callable[[Key], Hashable] = lambda _key: 0,
        key_bytes: KeyOrder = natural_order,
        compat: bool = False,
    ) -> None:
        super().__init__(compat=compat)
        self.late = 0
        self._mapper = mapper
        self._keeps_stream = how == "left"
        self._grace = grace
        self._table_advances = table_advances
        self._copied = copied
        self._joiner = joiner
        self._shard = shard
        self._key_bytes = key_bytes
        self._table_shard: Callable[[Key], Hashable] = (lambda _key: 0) if copied else shard
        self._table = VersionedRows(history, shard=self._table_shard, compat=compat)
        self._arrivals = 0
        self._waiting: dict[Hashable, list[Waiting]] = {}
        # The largest times of records that waited, and of versions, by shard.
        self._buffered: dict[Hashable, int] = {}
        self._advanced: dict[Hashable, int] = {}

    def step(self, messages: Sequence[tuple[int, Key, Value, int]]) -> list[Output]:
        """Answer one step."""
        arrived = [Message(*message) for message in messages]
        if not self.compat:
            arrived.sort(key=lambda message: message.port == self.STREAM)
        return [output for message in arrived for output in self._answer(message)]

    def _answer(self, message: Message) -> Iterator[Output]:
        if message.port == self.TABLE:
            yield from self._put(message)
            return
        points_at = None if message.value is None else self._mapper(message.value, message.key)
        if message.value is None or (is_null(points_at) and not self._keeps_stream):
            self.dropped += 1
        elif self._grace is None or is_null(points_at):
            yield from self._join(message, points_at)
        else:
            yield from self._wait(Waiting(message, points_at, self._arrivals), self._grace)
            self._arrivals += 1

    def _put(self, change: Message) -> Iterator[Output]:
        self._table.write(change.key, change.value, change.ts)
        if self._table_advances and self._grace is not None:
            at = self._table_shard(change.key)
            self._advanced[at] = max(self._advanced.get(at, change.ts), change.ts)
            yield from self._release(list(self._waiting) if self._copied else [at], self._grace)

    def _wait(self, one: Waiting, grace: int) -> Iterator[Output]:
        shard, ts = self._shard(one.record.key if self._copied else one.table_key), one.record.ts
        time = self._time(shard)
        if time is not None and ts < time - grace:
            self.late += 1
            yield from self._join(one.record, one.table_key)
            return
        self._buffered[shard] = max(self._buffered.get(shard, ts), ts)
        self._waiting.setdefault(shard, []).append(one)
        yield from self._release([shard], grace)

    def _time(self, shard: Hashable) -> int | None:
        """Return the time of a shard, None if nothing has waited in it or moved it."""
        moved = (self._buffered.get(shard), self._advanced.get(0 if self._copied else shard))
        return max((time for time in moved if time is not None), default=None)

    def _release(self, shards: Sequence[Hashable], grace: int) -> Iterator[Output]:
        """Join those whose time has come."""
        due: list[Waiting] = []
        for shard in shards:
            time, waiting = self._time(shard), self._waiting.get(shard, [])
            gone = [one for one in waiting if time is not None and one.record.ts <= time - grace]
            self._waiting[shard] = [one for one in waiting if one not in gone]
            due += gone
        for one in sorted(due, key=lambda one: (one.record.ts, self._key_bytes(one.record.key), one.arrival)):
            yield from self._join(one.record, one.table_key)

    def _join(self, record: Message, table_key: Key) -> Iterator[Output]:
        row = None if is_null(table_key) else self._table.as_of(table_key, record.ts)
        if row is None and not is_null(table_key) and self._table.is_expired(table_key, record.ts):
            self.dropped += not self.compat
        if row is not None or self._keeps_stream:
            yield Output(
                record.key, self._joiner(record.value, None if row is None else row.value), record.ts
            )
