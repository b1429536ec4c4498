"""The record-at-a-time reference of the foreign-key join, and of that join seen from the one: one to many."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from tests.reference.steps import Delta, Inputs, Message, Output, Reference, natural_order, pair

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterator, Sequence

    from tests.reference.key_join import How
    from tests.reference.steps import Joiner, Key, KeyOrder, Value

    ForeignKey: TypeAlias = Callable[[Value, Key], Key]
    """(row's value, row's key) -> the key it points at, or None."""


@dataclass(frozen=True)
class Move:
    """A left row's change, with the right keys that it pointed at before and points at after (or None)."""

    key: Key
    change: Delta
    old_fk: Key
    new_fk: Key


class _Pointing(Reference):
    """What the two joins share: left rows that point at right keys, and right rows that nothing points at.

    A step is settled in this order: right changes and left changes are applied; the unmatched right rows are
    compared before and after; then come the answers that right changes drive, then those that left changes
    drive. Compat settles each message by itself, so there it is the order of a single change.
    """

    _keeps_unmatched: bool

    def __init__(
        self,
        foreign_key: ForeignKey,
        *,
        joiner: Joiner,
        store_ids: Sequence[Hashable] | None,
        key_bytes: KeyOrder,
        silent: Collection[int],
        compat: bool,
    ) -> None:
        super().__init__(compat=compat)
        self._foreign_key = foreign_key
        self._joiner = joiner
        self._key_bytes = key_bytes
        self._inputs = Inputs(2, store_ids, silent)
        self._left, self._right = (self._inputs.tables[port] for port in (0, 1))
        # right key -> {left key: the left value that points at it}
        self._pointers: dict[Key, dict[Key, Value]] = {}

    def step(self, messages: Sequence[tuple[int, Key, Value, int]]) -> list[Output]:
        """Answer one step."""
        arrived = [Message(*message) for message in messages]
        return list(self._message_by_message(arrived) if self.compat else self._whole_step(arrived))

    def _message_by_message(self, messages: list[Message]) -> Iterator[Output]:
        for together in self._inputs.one_by_one(messages):
            # Where one change comes in both roles, the right one is answered first.
            for message, delta in sorted(together, key=lambda applied: -applied[0].port):
                one = {message.key: delta}
                yield from self._settle({}, one) if message.port == 0 else self._settle(one, {})

    def _whole_step(self, messages: list[Message]) -> Iterator[Output]:
        net = self._inputs.all_at_once(messages)
        rights, lefts = ({key: d for (at, key), d in net.items() if at == port} for port in (1, 0))
        yield from self._settle(rights, lefts)

    def _settle(self, rights: dict[Key, Delta], lefts: dict[Key, Delta]) -> Iterator[Output]:
        moves = [
            Move(key, change, self._points_at(change.old, key), self._points_at(change.new, key))
            for key, change in lefts.items()
        ]
        reached = [
            (right_key, left_key, value)
            for right_key in rights
            for left_key, value in self._pointers_at(right_key)
            if left_key not in lefts  # a left row that changes itself answers once, for both
        ]
        foreign_keys = [fk for move in moves for fk in (move.old_fk, move.new_fk) if fk is not None]
        touched = dict.fromkeys([*rights, *foreign_keys])
        pointed_at_before = {right_key for right_key in touched if self._pointers.get(right_key)}
        for move in moves:
            self._point(move)
        for right_key in touched:
            yield from self._unmatched(
                right_key, rights.get(right_key), moves, right_key in pointed_at_before
            )
        for right_key, left_key, value in reached:
            yield from self._right_driven(right_key, rights[right_key], left_key, value)
        for move in moves:
            yield from self._left_driven(move, rights)

    def _points_at(self, value: Value, key: Key) -> Key:
        return None if value is None else self._foreign_key(value, key)

    def _pointers_at(self, right_key: Key) -> list[tuple[Key, Value]]:
        rows = self._pointers.get(right_key, {})
        return sorted(rows.items(), key=lambda row: self._key_bytes(row[0]))

    def _point(self, move: Move) -> None:
        if move.old_fk is not None:
            self._pointers[move.old_fk].pop(move.key)
        if move.new_fk is not None:
            self._pointers.setdefault(move.new_fk, {})[move.key] = move.change.new

    def _unmatched(
        self, right_key: Key, change: Delta | None, moves: list[Move], pointed_at_before: bool
    ) -> Iterator[Output]:
        """Emit what a step does to the result's row for a right row that no left row points at."""
        row = self._right.get(right_key)
        was_there = row is not None if change is None else change.old is not None
        before = was_there and not pointed_at_before
        after = row is not None and not self._pointers.get(right_key)
        if not self._keeps_unmatched or not (before or after):
            return
        if change is not None:
            ts = change.ts
        elif before == after or row is None:
            return
        else:
            ts = max(row.ts, *(m.change.ts for m in moves if right_key in {m.old_fk, m.new_fk}))
        value = self._unmatched_value(row.value) if after and row is not None else None
        yield Output(self._unmatched_key(right_key), value, ts)

    def _left_ts(self, move: Move, right_key: Key) -> int:
        """Timestamp of an answer that a left change drives: the maximum with the right row's, if any."""
        row = self._right.get(right_key)
        return move.change.ts if row is None else max(move.change.ts, row.ts)

    @abstractmethod
    def _unmatched_key(self, right_key: Key) -> Key: ...

    @abstractmethod
    def _unmatched_value(self, value: Value) -> Value: ...

    @abstractmethod
    def _right_driven(
        self, right_key: Key, change: Delta, left_key: Key, value: Value
    ) -> Iterator[Output]: ...

    @abstractmethod
    def _left_driven(self, move: Move, rights: dict[Key, Delta]) -> Iterator[Output]: ...


class ForeignKeyJoin(_Pointing):
    """Join each left row with the right row that it points at (KIP-213).

    A left row changes; f, g are foreign keys, "answer" is the joined row, a tombstone where there is none:

    ==============  ==========  ======================================  ================================
    left row        points at   inner, right                            left, outer
    ==============  ==========  ======================================  ================================
    written         null, f→f   null: dropped, counted;                 the answer, with null where
    .                           f: the answer if the right row exists   there is no right row
    written         null→f      the answer if the right row exists      the answer
    written         f→g         the answer                              the answer
    written         f→null      tombstone; counted as dropped           the answer, with null
    deleted         f           tombstone                               tombstone
    deleted         null        nothing                                 tombstone if there was a row
    ==============  ==========  ======================================  ================================

    A right row changes: every left row that points at it answers, in the order of the left keys' bytes, also
    where the value is the same or there was nothing to delete. Deleted: tombstones in inner and right, the
    row with null in left and outer.

    ============================  ================================================================
    timestamp of                  is
    ============================  ================================================================
    a left change's answer        max(left change, right row looked up), where there is one. The row
    .                             looked up is that of the new foreign key; for a tombstone of inner
    .                             that of the old one; none for a delete in left
    a right change's answer       the right change's own, even where the left row is newer
    ============================  ================================================================

    **right, outer** have keys (left key, right key). A row with a left row has key (left key, None) and
    follows inner or left. A right row that no left row points at is a row (None, right key):

    - it appears, or changes, when it stands alone after the step and either the right row changed or it did
      not stand alone before; it goes, by a tombstone, when it stood alone before and does not after;
    - timestamp: the right change's own if the right row changed in the step, else the maximum of the right
      row's and those of the left changes that came to it or left it;
    - these rows leave first in a step: of changed right keys in order, then of old and new foreign keys.

    **Steps.** Default: all right changes are applied, then all left changes. A left key emits once: if its
    left row changed and the table above answers, that answer, with the right row as it is after the step;
    otherwise the answer that the right change drives. Compat: message after message; where both ports read
    one table (`store_ids`), it is written first, then the right role answers, then the left role, and an
    answer made for a left value that is no longer there is dropped and counted.

    Parameters
    ----------
    foreign_key
        (left value, left key) -> right key, or None.
    how
        "inner", "left", "right" or "outer".
    joiner
        (left value or None, right value or None) -> value; None makes a tombstone.
    store_ids
        Two ids; equal ones say that both ports read one source table. Only compat tells the difference.
    key_bytes
        What left keys are sorted by where a right change reaches several of them.
    silent
        The ports at which, in default mode, a row that is written again with the same value is no message.
    compat
        Answer message after message, as Kafka Streams does.

    Attributes
    ----------
    LEFT, RIGHT
        The ports.

    Examples
    --------
    >>> join = ForeignKeyJoin(lambda value, key: value[0], how="left")
    >>> join.change(ForeignKeyJoin.LEFT, "a", ("x", 1), 5)
    [Output(key='a', value=(('x', 1), None), ts=5)]
    >>> join.change(ForeignKeyJoin.RIGHT, "x", "X", 2)
    [Output(key='a', value=(('x', 1), 'X'), ts=2)]
    >>> join.step([(0, "a", ("y", 2), 6), (1, "y", "Y", 6)])
    [Output(key='a', value=(('y', 2), 'Y'), ts=6)]

    >>> outer = ForeignKeyJoin(lambda value, key: value, how="outer")
    >>> outer.change(1, "x", "X", 1)
    [Output(key=(None, 'x'), value=(None, 'X'), ts=1)]
    >>> outer.change(0, "a", "x", 2)
    [Output(key=(None, 'x'), value=None, ts=2), Output(key=('a', None), value=('x', 'X'), ts=2)]
    """

    LEFT: ClassVar[int] = 0
    RIGHT: ClassVar[int] = 1

    def __init__(
        self,
        foreign_key: ForeignKey,
        how: How = "inner",
        *,
        joiner: Joiner = pair,
        store_ids: Sequence[Hashable] | None = None,
        key_bytes: KeyOrder = natural_order,
        silent: Collection[int] = (),
        compat: bool = False,
    ) -> None:
        super().__init__(
            foreign_key,
            joiner=joiner,
            store_ids=store_ids,
            key_bytes=key_bytes,
            silent=silent,
            compat=compat,
        )
        self._keeps_left = how in {"left", "outer"}
        self._keeps_unmatched = how in {"right", "outer"}

    def _unmatched_key(self, right_key: Key) -> Key:
        return (None, right_key)

    def _unmatched_value(self, value: Value) -> Value:
        return self._joiner(None, value)

    def _answer(self, left_key: Key, left: Value, right: Value, ts: int) -> Output:
        has_row = left is not None and (right is not None or self._keeps_left)
        key = (left_key, None) if self._keeps_unmatched else left_key
        return Output(key, self._joiner(left, right) if has_row else None, ts)

    def _right_driven(self, right_key: Key, change: Delta, left_key: Key, value: Value) -> Iterator[Output]:
        del right_key
        row = self._left.get(left_key)
        if self.compat and (row is None or row.value != value):
            self.dropped += 1  # Kafka Streams' hash check: only a row that points at itself gets here
        else:
            yield self._answer(left_key, value, change.new, change.ts)

    def _left_driven(self, move: Move, rights: dict[Key, Delta]) -> Iterator[Output]:
        new, old, _ = move.change
        if self._keeps_left:
            if new is not None or old is not None:
                yield self._looked_up(move, move.new_fk)
        elif move.new_fk is None:
            self.dropped += new is not None
            if move.old_fk is not None:
                yield self._looked_up(move, move.old_fk)
        elif self._right.get(move.new_fk) is not None or move.old_fk not in {None, move.new_fk}:
            yield self._looked_up(move, move.new_fk)
        elif move.old_fk is not None and move.new_fk in rights:
            yield self._answer(move.key, new, None, rights[move.new_fk].ts)

    def _looked_up(self, move: Move, right_key: Key) -> Output:
        """Answer a left change from the right row at `right_key`; one that was left only lends its time."""
        row = self._right.get(right_key)
        right = row.value if row is not None and right_key == move.new_fk else None
        return self._answer(move.key, move.change.new, right, self._left_ts(move, right_key))


class OneToMany(_Pointing):
    """Join one row with the many rows that point at it; the result's key is (one key, many key).

    ===========================  ==============================================  =========================
    change                       output                                          timestamp
    ===========================  ==============================================  =========================
    many written, points at f    (f, many) if the one f exists                   max(many change, one row)
    many leaves f: deleted,      tombstone for (f, many) if the one f exists,    max(many change, one row)
    moved or pointing nowhere    before the new pair
    many written, points         counted as dropped                              .
    nowhere
    one written                  every pair, in the order of the many keys'      the one change's
    .                            bytes, also where the value is the same
    one deleted                  tombstone for every pair, if there was a row    the one change's
    ===========================  ==============================================  =========================

    `how="left"` keeps a one that no many row points at as (one key, None), with the rules of `ForeignKeyJoin`
    for such rows: they appear, change and go before the pairs of the step.

    **Steps.** Default: a pair emits once. A pair whose many row changed goes by the many's rules, with the
    one's row as it is after the step; if the one was deleted in the same step, a pair that was there goes
    with the one change's timestamp; a pair that was not there before the step gets no tombstone. Compat:
    message by message; where both ports read one table, the one's role before the many's.

    Parameters
    ----------
    foreign_key
        (many value, many key) -> one key, or None.
    how
        "inner" or "left".
    joiner
        (one value, many value or None) -> value; None makes a tombstone.
    store_ids, key_bytes, silent, compat
        As for `ForeignKeyJoin`.

    Attributes
    ----------
    MANY, ONE
        The ports: those of the foreign-key join that it is, so the many is port 0.

    Examples
    --------
    >>> join = OneToMany(lambda value, key: value)
    >>> join.change(OneToMany.MANY, "b1", "a", 1)
    []
    >>> join.change(OneToMany.ONE, "a", "A", 2)
    [Output(key=('a', 'b1'), value=('A', 'a'), ts=2)]
    >>> join.change(OneToMany.MANY, "b1", "c", 3)
    [Output(key=('a', 'b1'), value=None, ts=3)]
    """

    MANY: ClassVar[int] = 0
    ONE: ClassVar[int] = 1

    def __init__(
        self,
        foreign_key: ForeignKey,
        how: Literal["inner", "left"] = "inner",
        *,
        joiner: Joiner = pair,
        store_ids: Sequence[Hashable] | None = None,
        key_bytes: KeyOrder = natural_order,
        silent: Collection[int] = (),
        compat: bool = False,
    ) -> None:
        super().__init__(
            foreign_key,
            joiner=joiner,
            store_ids=store_ids,
            key_bytes=key_bytes,
            silent=silent,
            compat=compat,
        )
        self._keeps_unmatched = how == "left"

    def _unmatched_key(self, right_key: Key) -> Key:
        return (right_key, None)

    def _unmatched_value(self, value: Value) -> Value:
        return self._joiner(value, None)

    def _right_driven(self, right_key: Key, change: Delta, left_key: Key, value: Value) -> Iterator[Output]:
        if change.new is not None:
            yield Output((right_key, left_key), self._joiner(change.new, value), change.ts)
        elif change.old is not None:
            yield Output((right_key, left_key), None, change.ts)

    def _left_driven(self, move: Move, rights: dict[Key, Delta]) -> Iterator[Output]:
        if move.change.new is not None and move.new_fk is None:
            self.dropped += 1
        if move.old_fk is not None and move.old_fk != move.new_fk:
            yield from self._pair_goes(move, rights)
        if move.new_fk is None:
            return
        row = self._right.get(move.new_fk)
        if row is not None:
            value = self._joiner(row.value, move.change.new)
            yield Output((move.new_fk, move.key), value, self._left_ts(move, move.new_fk))
        elif move.old_fk == move.new_fk:
            yield from self._pair_goes(move, rights)

    def _pair_goes(self, move: Move, rights: dict[Key, Delta]) -> Iterator[Output]:
        """Emit the tombstone of the pair that was there before the step, if it was."""
        row, one_change = self._right.get(move.old_fk), rights.get(move.old_fk)
        there_before = row is not None if one_change is None else one_change.old is not None
        if there_before:
            ts = one_change.ts if row is None and one_change is not None else self._left_ts(move, move.old_fk)
            yield Output((move.old_fk, move.key), None, ts)
