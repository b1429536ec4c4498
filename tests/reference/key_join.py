"""The record-at-a-time reference of joins on the key: binary ones, and trees of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from tests.reference.steps import Delta, Inputs, Message, Output, Reference, Row, is_null, pair

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterator, Sequence

    from tests.reference.steps import Joiner, Key, Value

How: TypeAlias = Literal["inner", "left", "right", "outer"]


@dataclass(frozen=True)
class Join:
    """One join of a tree: a side is the number of a port or another join.

    Examples
    --------
    >>> Join(Join(0, 1, "inner"), 2, "left").ports
    (0, 1, 2)
    """

    left: Join | int
    right: Join | int
    how: How = "inner"
    joiner: Joiner = pair

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports at the leaves, from left to right."""
        sides = (self.left, self.right)
        return tuple(port for side in sides for port in ((side,) if isinstance(side, int) else side.ports))

    def has_row(self, left: Value, right: Value) -> bool:
        """Return whether these two sides make a row, which the joiner may yet turn into a tombstone."""
        missing = (left is None, right is None)
        return {
            "inner": not any(missing),
            "left": not missing[0],
            "right": not missing[1],
            "outer": not all(missing),
        }[self.how]

    def combine(self, left: Value, right: Value) -> Value:
        """Return the result's value, None where the join has no row for these two sides."""
        return self.joiner(left, right) if self.has_row(left, right) else None

    def needs(self, *, right: bool) -> bool:
        """Whether there can be a result row only where the named side is present."""
        return self.how in ({"inner", "right"} if right else {"inner", "left"})


class KeyJoin(Reference):
    """Join tables on their key.

    A side of a join changes from `old` to `new` at `ts`; `other` is the present row of the other side, or
    none.

    ===========  ==============================  ====================================
    join         nothing is emitted when         otherwise
    ===========  ==============================  ====================================
    inner        other is none                   the joined row; `new` null: tombstone
    left, right  of the side that must be there  the joined row; `new` null: tombstone
    .            changes: other is none and
    .            `new` and `old` are null
    left, right  of the optional side changes:   the joined row, never a tombstone
    .            other is none
    outer        other is none and `new` and     the joined row; both sides null:
    .            `old` are null                  tombstone
    ===========  ==============================  ====================================

    - Timestamp: the maximum of `ts` and that of `other`, where there is one; tombstones too.
    - Tombstones are not minimal and equal values are emitted again, as in Kafka Streams, but for `silent` ports.
    - In a tree, the row of a join read as `other` has the maximum timestamp of its present rows.
    - Both sides change in one step (default mode): emitted once, iff there is a row after the step or there
      was one before (also one that the joiner deletes); timestamp: the maximum of both changes'.
    - Compat: one message after the other. Ports of one store id (a self-join) see their table already
      changed, so an update gives the result once per port, and an inner self-join emits nothing for a delete.
    - A key with a null has no match: `other` is none, and rows of such a key are not joined with each other, also not
      a row with itself. Not so in an outer join, in compat, and with `nulls_match`.
    - Outputs follow their messages; in default mode a key stands where its first message stood.

    Parameters
    ----------
    tree
        The join, or "inner", "left", "right", "outer" for the join of port 0 with port 1.
    joiner
        For a binary join given by its name.
    store_ids
        One id per port: ports of equal ids read one source table. Only compat tells the difference.
    nulls_match
        Keys with a null are equal; for the lookups of a star join, which come under the keys of its own rows.
    silent
        The ports at which, in default mode, a row that is written again with the same value is no message.
    compat
        Answer message after message, as Kafka Streams does.

    Examples
    --------
    >>> join = KeyJoin("left")
    >>> join.change(0, "k", "a", 3)
    [Output(key='k', value=('a', None), ts=3)]
    >>> join.change(1, "k", "b", 2)
    [Output(key='k', value=('a', 'b'), ts=3)]
    >>> join.step([(0, "k", None, 4), (1, "k", "c", 6)])
    [Output(key='k', value=None, ts=6)]
    """

    def __init__(
        self,
        tree: Join | How,
        *,
        joiner: Joiner = pair,
        store_ids: Sequence[Hashable] | None = None,
        silent: Collection[int] = (),
        compat: bool = False,
        nulls_match: bool = False,
    ) -> None:
        super().__init__(compat=compat)
        self._nulls_match = nulls_match or compat
        self._tree = Join(0, 1, tree, joiner) if isinstance(tree, str) else tree
        if sorted(self._tree.ports) != list(range(len(self._tree.ports))):
            raise ValueError(f"the tree's ports must be 0, 1, 2, ..., each once; they are {self._tree.ports}")
        self._inputs = Inputs(len(self._tree.ports), store_ids, silent)

    def step(self, messages: Sequence[tuple[int, Key, Value, int]]) -> list[Output]:
        """Answer one step."""
        arrived = [Message(*message) for message in messages]
        return list(self._message_by_message(arrived) if self.compat else self._whole_step(arrived))

    def _message_by_message(self, messages: list[Message]) -> Iterator[Output]:
        for together in self._inputs.one_by_one(messages):
            for message, delta in together:
                yield from self._outputs(message.key, {message.port: delta})

    def _whole_step(self, messages: list[Message]) -> Iterator[Output]:
        by_key: dict[Key, dict[int, Delta]] = {}
        for (port, key), delta in self._inputs.all_at_once(messages).items():
            by_key.setdefault(key, {})[port] = delta
        for key, changed in by_key.items():
            yield from self._outputs(key, changed)

    def _outputs(self, key: Key, changed: dict[int, Delta]) -> Iterator[Output]:
        result = self._change(self._tree, key, changed)
        if result is not None:
            yield Output(key, result.new, result.ts)

    def _meets(self, join: Join, key: Key) -> bool:
        """Whether the rows that both sides have under a key are joined."""
        return not is_null(key) or join.how == "outer" or self._nulls_match

    def _row(self, side: Join | int, key: Key) -> Row | None:
        """Read the present row of an input, or of a join as its inputs now make it."""
        if isinstance(side, int):
            return self._inputs.tables[side].get(key)
        left, right = self._row(side.left, key), self._row(side.right, key)
        if not self._meets(side, key):
            left, right = (None, right) if side.how == "right" else (left, None)
        value = side.combine(left and left.value, right and right.value)
        return None if value is None else Row(value, max(row.ts for row in (left, right) if row is not None))

    def _change(self, side: Join | int, key: Key, changed: dict[int, Delta]) -> Delta | None:
        """Follow changed inputs up the tree: what `side` emits, or None."""
        if isinstance(side, int):
            return changed.get(side)
        left, right = self._change(side.left, key, changed), self._change(side.right, key, changed)
        meets = self._meets(side, key)
        if left is not None and right is not None and meets:
            return _both_sides(side, left, right)
        found = None
        if left is not None:
            other = self._row(side.right, key) if meets else None
            found = _one_side(side, left, other, from_right=False)
        if right is not None and found is None:
            other = self._row(side.left, key) if meets else None
            found = _one_side(side, right, other, from_right=True)
        return found


def _one_side(join: Join, change: Delta, other: Row | None, *, from_right: bool) -> Delta | None:
    if other is None and (join.needs(right=not from_right) or (change.new is None and change.old is None)):
        return None
    other_value = None if other is None else other.value
    new, old = (
        join.combine(other_value, value) if from_right else join.combine(value, other_value)
        for value in (change.new, change.old)
    )
    return Delta(new, old, change.ts if other is None else max(change.ts, other.ts))


def _both_sides(join: Join, left: Delta, right: Delta) -> Delta | None:
    if not (join.has_row(left.new, right.new) or join.has_row(left.old, right.old)):
        return None
    new, old = join.combine(left.new, right.new), join.combine(left.old, right.old)
    return Delta(new, old, max(left.ts, right.ts))
