"""The record-at-a-time reference of a table joined with a versioned table, as of a time of each row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from tests.reference.steps import Message, Operator, Output, pair

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from tests.reference.steps import Joiner, Key, Value

    Pointer = Callable[[Value, Key], tuple[Key, int] | None]
    """(row's value, row's key) -> the key that it points at and the time as of which it does, or None."""


class Version(NamedTuple):
    """A version of a right row; `written` tells one that was written again from the one before."""

    begin: int
    written: int
    value: Value


@dataclass
class LeftRow:
    """A left row, what it points at, and the version that it has."""

    value: Value
    ts: int
    pointer: tuple[Key, int] | None
    has: Version | None = None


@dataclass
class RightRow:
    """The versions of a right row that are known, tombstones, too."""

    versions: dict[int, Version] = field(default_factory=dict)

    def known_since(self, bound: int | None) -> float:
        """Since when all versions are known, if those that ended up to `bound` are forgotten."""
        return float("-inf") if bound is None else min([bound, *self._kept(bound)])

    def forget(self, bound: int) -> None:
        """Forget the versions that ended up to `bound`."""
        self.versions = {begin: self.versions[begin] for begin in self._kept(bound)}

    def _kept(self, bound: int) -> list[int]:
        """When the versions begin that ended later. A tombstone that nothing follows ends as it begins."""
        begins = sorted(self.versions)
        ends: list[float] = [*begins[1:], float("inf")]
        if begins and self.versions[begins[-1]].value is None:
            ends[-1] = begins[-1]
        return [begin for begin, end in zip(begins, ends, strict=False) if end > bound]

    def found(self, as_of: int, *, forward: bool) -> Version | None:
        """Return the row that is found as of a time."""
        if forward:
            rows = [one for one in self.versions.values() if one.begin >= as_of and one.value is not None]
            return min(rows, default=None)
        newest = max((one for one in self.versions.values() if one.begin <= as_of), default=None)
        return newest if newest is not None and newest.value is not None else None


class AsOfTableJoin(Operator):
    """Join each row of a table with the version of the row that it points at, as of a time of its own.

    Backward, the version that is valid then is found; forward, the first row that begins then or later. A result has
    the time of its left row. What a left row points at is a right key and a time, together.

    Left changes, by what the row pointed at before and points at now:

    ==========  ==================  ==============================================  ==========================
    change      pointed at          inner                                           left
    ==========  ==================  ==============================================  ==========================
    written     nothing now         a tombstone if it pointed at something; counted the row alone
    written     the same, or at     the joined row, if something is found           the row, joined or alone
    .           nothing before
    written     something else      the joined row, or a tombstone                  the row, joined or alone
    deleted     something           a tombstone                                     a tombstone
    deleted     nothing             nothing                                         a tombstone
    ==========  ==================  ==============================================  ==========================

    A right change answers the left rows that find another version than before, or the same one written again, by
    as-of time and key: joined; if nothing is found any more, alone (left) or by a tombstone (inner).

    What was found at times before `RightRow.known_since` is not known any more: right changes leave such left rows
    alone; one that is written again, and points at the same, keeps what it has; any other finds nothing, counted.

    A step's right changes come before its left ones, and each left row is answered once: for its own change, if that
    has an answer. In both modes.

    Parameters
    ----------
    pointer
        What a row points at, and as of when.
    how
        "inner" or "left".
    history
        How far back versions are known, in the unit of the timestamps.
    forward
        Which of the two is found.
    joiner
        (left value, right value or None) -> result value.
    shard
        Key -> its shard, which has an observed time of its own. One shard unless given.

    Examples
    --------
    >>> join = AsOfTableJoin(lambda value, key: ("p", value), history=10)
    >>> join.change(1, "p", "dear", 2), join.change(0, "o", 5, 5)
    ([], [Output(key='o', value=(5, 'dear'), ts=5)])
    >>> join.change(1, "p", "cheap", 4), join.change(1, "p", "later", 6)
    ([Output(key='o', value=(5, 'cheap'), ts=5)], [])
    >>> join.change(0, "o", 3, 7), join.change(0, "o", None, 8)
    ([Output(key='o', value=(3, 'dear'), ts=7)], [Output(key='o', value=None, ts=8)])
    """

    LEFT: ClassVar[int] = 0
    RIGHT: ClassVar[int] = 1

    def __init__(
        self,
        pointer: Pointer,
        how: Literal["inner", "left"] = "inner",
        *,
        history: int,
        forward: bool = False,
        joiner: Joiner = pair,
        shard: Callable[[Key], Hashable] = lambda _key: 0,
        compat: bool = False,
    ) -> None:
        super().__init__(compat=compat)
        self._pointer, self._keeps_left, self._history = pointer, how == "left", history
        self._forward, self._joiner, self._shard = forward, joiner, shard
        self._left: dict[Key, LeftRow] = {}
        self._right: dict[Key, RightRow] = {}
        self._observed: dict[Hashable, int] = {}
        self._written = 0

    def change(self, port: int, key: Key, value: Value, ts: int) -> list[Output]:
        """Answer a step of a single message."""
        return self.step([(port, key, value, ts)])

    def step(self, messages: Sequence[tuple[int, Key, Value, int]]) -> list[Output]:
        """Answer one step."""
        arrived = [Message(*message) for message in messages]
        had: dict[Key, Version | None] = {}  # what the left rows had that the step's right changes concern
        for message in arrived:
            if message.port == self.RIGHT:
                self._put(message, had)
        reached = {key for key, before in had.items() if self._left[key].has != before}
        changed = {message.key: message for message in arrived if message.port == self.LEFT}
        own = {key: self._left_change(message, key in reached) for key, message in changed.items()}
        answers = [output for key in own for output in own[key]]
        return [*self._corrections(reached - set(changed)), *answers]

    def _bound(self, key: Key) -> int | None:
        observed = self._observed.get(self._shard(key))
        return None if observed is None else observed - self._history

    def _put(self, message: Message, had: dict[Key, Version | None]) -> None:
        """Write a version, and give it to the left rows that find it; `had`: what they had before the step."""
        shard = self._shard(message.key)
        self._observed[shard] = max(self._observed.get(shard, message.ts), message.ts)
        right = self._right.setdefault(message.key, RightRow())
        bound = self._observed[shard] - self._history
        since = right.known_since(bound)
        right.forget(bound)
        self._written += 1
        right.versions[message.ts] = Version(message.ts, self._written, message.value)
        for key, row in self._left.items():
            if row.pointer is None or row.pointer[0] != message.key or row.pointer[1] < since:
                continue
            found = right.found(row.pointer[1], forward=self._forward)
            if found != row.has:
                had.setdefault(key, row.has)
                row.has = found

    def _corrections(self, reached: set[Key]) -> Iterator[Output]:
        """Answer left rows that find something else, by their as-of times."""
        rows = [(row.pointer, key, row) for key, row in self._left.items() if key in reached]
        for _, key, row in sorted(rows, key=lambda one: (one[0][1], one[1]) if one[0] else ()):
            yield self._answer(key, row)

    def _left_change(self, message: Message, reached: bool) -> list[Output]:
        """Answer a left change; `reached`: a right change of the step concerns the row as it was."""
        old = self._left.pop(message.key, None)
        if message.value is None:
            gone = old is not None and (self._keeps_left or old.pointer is not None)
            return [Output(message.key, None, message.ts)] if gone else []
        row = LeftRow(message.value, message.ts, self._pointer(message.value, message.key))
        self._left[message.key] = row
        was = None if old is None else old.pointer
        if row.pointer is None and not self._keeps_left:
            self.dropped += 1
            return [] if was is None else [Output(message.key, None, message.ts)]
        row.has = self._looked_up(row, old)
        if self._keeps_left or row.has is not None or was not in {None, row.pointer}:
            return [self._answer(message.key, row)]
        return [Output(message.key, None, old.ts)] if reached and old is not None else []

    def _looked_up(self, row: LeftRow, old: LeftRow | None) -> Version | None:
        """Return what a left row finds that was written."""
        if row.pointer is None:
            return None
        key, as_of = row.pointer
        right = self._right.get(key, RightRow())
        if as_of >= right.known_since(self._bound(key)):
            return right.found(as_of, forward=self._forward)
        if old is not None and old.pointer == row.pointer:
            return old.has
        self.dropped += 1
        return None

    def _answer(self, key: Key, row: LeftRow) -> Output:
        right = None if row.has is None else row.has.value
        exists = right is not None or self._keeps_left
        return Output(key, self._joiner(row.value, right) if exists else None, row.ts)
