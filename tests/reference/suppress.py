"""The record-at-a-time reference of suppress: a table's changes held back, the last of each key let through."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from tests.reference.steps import Change, LatestRows, Message, Output, Reference, natural_order

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from tests.reference.steps import Key, KeyOrder, Value

    Size: TypeAlias = Callable[[Key, Value], int]
    """(key, value or None) -> bytes."""


class Held(NamedTuple):
    """The last change of a key, and the time of the first one since the key was last let through."""

    since: int
    change: Change


@dataclass
class Buffer:
    """What one shard holds, and the highest timestamp that it has seen."""

    observed: int
    held: dict[Key, Held] = field(default_factory=dict)

    def hold(self, change: Change) -> None:
        """Take a change in; a later one takes an earlier one's place, but not its time of waiting."""
        self.observed = max(self.observed, change.ts)
        before = self.held.get(change.key)
        self.held[change.key] = Held(change.ts if before is None else before.since, change)


def text_bytes(key: Key, value: Value) -> int:
    """Measure a key and a value as UTF-8 text; a tombstone has no value.

    Examples
    --------
    >>> text_bytes("é", 10), text_bytes("k", None)
    (4, 1)
    """
    return sum(len(str(part).encode()) for part in (key, value) if part is not None)


class Suppress(Reference):
    """Hold changes back and let through the last one of each key.

    Each shard has a buffer and an observed time, the highest timestamp of any change that it got. A key waits
    *since* the timestamp of its first change in the buffer.

    ======================================  ==================================================================
    event                                   effect
    ======================================  ==================================================================
    change of a key that is not held        held, since its timestamp
    change of a key that is held            takes the place of the held one, value and timestamp; since stays
    since ≤ observed - until                let through: the held value, a tombstone too (also of a key that
    .                                       was never let through), at the held change's timestamp
    more than `max_records` or `max_bytes`  on_full "emit": the first to wait is let through, until the rest
    remain held                             fits; "fail": an error
    ======================================  ==================================================================

    - Keys leave in the order of (since, key bytes). A key that has left is forgotten: it may be held again.
    - The limits are a shard's own. Nothing leaves without a new change in the shard; there is no wall clock.
    - Default: all changes of a step are held, then keys leave, shard by shard in the order of their first
      changes. Compat: keys leave after every change.
    - Old values (`changes`): what the key had when it last left. Compat: the old value of the held change, which
      may never have been let through: a defect of Kafka Streams.

    Parameters
    ----------
    until
        How long a key waits, in the unit of the timestamps; 0 lets every change through.
    max_records, max_bytes
        How much a shard may hold; None: any amount.
    on_full
        "emit" or "fail".
    size
        (key, value or None) -> how many bytes a held row counts for `max_bytes`.
    shard
        Key -> its shard. One shard unless given.
    key_bytes
        What keys are sorted by where they have waited since the same time.
    compat
        Answer message after message, as Kafka Streams does.

    Examples
    --------
    >>> suppress = Suppress(5)
    >>> suppress.step([(0, "a", 1, 0)]), suppress.step([(0, "a", 2, 3)]), suppress.step([(0, "b", 1, 4)])
    ([], [], [])
    >>> suppress.step([(0, "c", 1, 5)])
    [Output(key='a', value=2, ts=3)]
    >>> Suppress(5, max_records=1, on_full="fail").step([(0, "a", 1, 0), (0, "b", 1, 1)])
    Traceback (most recent call last):
        ...
    BufferError: buffer exceeded its max capacity: it holds 2 of 1 records and 4 of any number of bytes
    """

    def __init__(
        self,
        until: int,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        on_full: Literal["emit", "fail"] = "emit",
        size: Size = text_bytes,
        shard: Callable[[Key], Hashable] = lambda _key: 0,
        key_bytes: KeyOrder = natural_order,
        compat: bool = False,
    ) -> None:
        super().__init__(compat=compat)
        self._until = until
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._fails_when_full = on_full == "fail"
        self._size = size
        self._shard = shard
        self._key_bytes = key_bytes
        self._buffers: dict[Hashable, Buffer] = {}
        self._input, self._result = LatestRows(), LatestRows()

    def step(self, messages: Sequence[tuple[int, Key, Value, int]]) -> list[Output]:
        """Answer one step."""
        return [Output(change.key, change.new, change.ts) for change in self.changes(messages)]

    def changes(self, messages: Sequence[tuple[int, Key, Value, int]]) -> list[Change]:
        """Answer one step with changes that bear their old values."""
        arrived = [Message(*message) for message in messages]
        turns = [[message] for message in arrived] if self.compat else [arrived]
        return [change for turn in turns for change in self._answer(turn)]

    def _answer(self, turn: list[Message]) -> Iterator[Change]:
        for _, key, value, ts in turn:
            change = Change(key, *self._input.put(key, value, ts))
            self._buffers.setdefault(self._shard(key), Buffer(ts)).hold(change)
        for shard in dict.fromkeys(self._shard(message.key) for message in turn):
            yield from self._let_through(self._buffers[shard])

    def _let_through(self, buffer: Buffer) -> Iterator[Change]:
        waiting = sorted(buffer.held.items(), key=lambda row: (row[1].since, self._key_bytes(row[0])))
        for key, (since, held) in waiting:
            if since > buffer.observed - self._until and not self._is_full(buffer):
                return
            buffer.held.pop(key)
            result = Change(key, *self._result.put(key, held.new, held.ts))
            yield held if self.compat else result

    def _is_full(self, buffer: Buffer) -> bool:
        """Whether a buffer holds too much, which is an error where it is to be one."""
        records = len(buffer.held)
        size = sum(self._size(key, row.change.new) for key, row in buffer.held.items())
        limits = ((records, self._max_records), (size, self._max_bytes))
        is_full = any(limit is not None and amount > limit for amount, limit in limits)
        if is_full and self._fails_when_full:
            of = ["any number of" if limit is None else limit for _, limit in limits]
            raise BufferError(
                "buffer exceeded its max capacity: "
                f"it holds {records} of {of[0]} records and {size} of {of[1]} bytes"
            )
        return is_full
