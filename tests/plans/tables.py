"""Plans over tables of strings: the nodes, with expressions that are Python functions.

A table has a key of one or more strings and one string column, its value.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tablestream.topology.nodes import (
    Field,
    Fields,
    Filter,
    ForeignKeyJoin,
    How,
    KeyJoin,
    Named,
    Node,
    OneToMany,
    Select,
    Source,
)

if TYPE_CHECKING:
    from collections.abc import Callable

Key: TypeAlias = tuple[str | None, ...]
Value: TypeAlias = str | None
Joiner: TypeAlias = "Callable[[Value, Value], Value]"
ForeignKey: TypeAlias = "Callable[[str, Key], str | Key | None]"
"""(value, key) -> the key pointed at; a single string for a key of one part."""

STRING = json.dumps("string")
VALUE = (Field("v", STRING),)


class Record(NamedTuple):
    """An input record of a source; a single string is a key of one part, none a null key."""

    source: Source
    key: str | Key | None
    value: Value
    ts: int

    @property
    def parts(self) -> Key | None:
        """The key as a tuple; none if a part is null."""
        parts = self.key if isinstance(self.key, tuple) else (self.key,)
        return None if None in parts else parts


class Change(NamedTuple):
    """A change of an output: key parts, value (none: a tombstone; with ``before``: old and new), time."""

    key: Key
    value: Any
    ts: int


@dataclass(frozen=True)
class Python:
    """A Python function as an expression."""

    function: Callable[..., Any]

    @property
    def text(self) -> str:
        """The function's name."""
        return getattr(self.function, "__name__", "function")


def source(name: str, *, width: int = 1) -> Source:
    """Declare a change log whose key has `width` parts."""
    return Source(name, "", _key(width), VALUE, frame=None, text="")


def filtered(parent: Node, condition: Callable[[str], bool], *, negate: bool = False) -> Filter:
    """Declare a filter."""
    return Filter(f"{parent.name}_filter", "", parent.key, VALUE, parent, Python(condition), negate)


def mapped(parent: Node, function: Callable[[str], Value], *, total: bool = False) -> Select:
    """Declare a select; `total`: the function never returns none, so no row goes."""
    gone = None if total else Python(lambda value: function(value) is None)
    return Select(f"{parent.name}_map", "", parent.key, VALUE, parent, (Named("v", Python(function)),), gone)


def pair(left: Value, right: Value) -> str:
    """Join two values as text."""
    return f"({'null' if left is None else left},{'null' if right is None else right})"


def points(number: int) -> ForeignKey:
    """Give a foreign key: the `number`-th of the pointers ``|x`` in a value, none if it has fewer."""

    def pointer(value: str, key: Key) -> str | None:
        del key
        found = re.findall(r"\|([^|,()]*)", value)
        return found[number] if number < len(found) else None

    return pointer


def key_join(left: Node, right: Node, how: How = "inner", joiner: Joiner | None = None) -> KeyJoin:
    """Declare a key join; a joiner other than `pair` may return none, which deletes."""
    name, select, gone = f"{left.name}_{right.name}", *_select(joiner)
    return KeyJoin(name, "", left.key, VALUE, left, right, how, select, gone)


def foreign_key_join(
    left: Node, right: Node, how: How = "inner", on: ForeignKey | None = None, joiner: Joiner | None = None
) -> ForeignKeyJoin:
    """Declare a foreign-key join, by default on the value's first pointer."""
    width = len(left.key) + (len(right.key) if how in {"right", "outer"} else 0)
    name, select, gone = f"{left.name}_{right.name}", *_select(joiner)
    return ForeignKeyJoin(
        name, "", _key(width), VALUE, left, right, how, select, gone, _on(on, right), right.key
    )


def one_to_many(
    one: Node, many: Node, how: How = "inner", on: ForeignKey | None = None, joiner: Joiner | None = None
) -> OneToMany:
    """Declare the join seen from the one, by default on the first pointer of the many's value."""
    width = len(one.key) + len(many.key)
    name, select, gone = f"{one.name}_{many.name}", *_select(joiner)
    return OneToMany(name, "", _key(width), VALUE, one, many, how, select, gone, _on(on, one), one.key)


def _key(width: int) -> Fields:
    return tuple(Field(f"k{number}", STRING) for number in range(width))


def _select(joiner: Joiner | None) -> tuple[tuple[Named, ...], Python | None]:
    gone = None if joiner is None else Python(lambda left, right: joiner(left, right) is None)
    return (Named("v", Python(joiner or pair)),), gone


def _on(on: ForeignKey | None, pointed_at: Node) -> tuple[Python, ...]:
    """One expression per part of the key pointed at, over value and key."""
    whole = on or points(0)

    def part(number: int) -> Python:
        def nth(value: str, key: Key) -> str | None:
            found = whole(value, key)
            return found[number] if isinstance(found, tuple) else found

        return Python(nth)

    return tuple(part(number) for number in range(len(pointed_at.key)))


def foreign_key_of(join: ForeignKeyJoin | OneToMany, value: Value, key: Key) -> Key | None:
    """Evaluate a join's foreign key; none if the row is absent or a part is null."""
    if value is None:
        return None
    parts = tuple(part.function(value, key) for part in join.on if isinstance(part, Python))
    return None if None in parts else parts


def call(expression: object, *arguments: Any) -> Any:
    """Evaluate an expression."""
    assert isinstance(expression, Python)
    return expression.function(*arguments)
