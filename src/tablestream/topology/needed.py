"""Which columns of its tables a plan needs.

An operator that knows the row before a change can leave the change out if no column that anyone needs is another one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tablestream.topology.graph import ancestors
from tablestream.topology.nodes import (
    Aggregate,
    Expression,
    Filter,
    ForeignKeyJoin,
    Join,
    ManyToMany,
    Named,
    Node,
    OneToMany,
    Select,
    Top,
)

#: What stands before the names of columns in the expressions of a join: ``__left.x`` is column ``x`` of its left side.
SIDES = "__left", "__right"
_SIDE = rf"\b({'|'.join(SIDES)})\."
_OF_SIDE = re.compile(_SIDE)
#: A column of a side under its own name; what says whether a side has a row, which is called as no column is.
_SAME_NAME = re.compile(rf"{_SIDE}(.{{1,100}}?) AS (?:`\2`|\2(?!\w))")
_FLAG = re.compile(rf"{_SIDE}(?=[\s),;]|$)")


def sides_named(text: str, names: Sequence[str]) -> str:
    """Write an expression of a join for people: with the names of its tables, and each column once.

    Examples
    --------
    >>> sides_named("(__left.n AS n * __right.price AS price)", ["orders", "prices"])
    '(orders.n * prices.price)'
    >>> sides_named("__left.a AS a - __right.b AS b", ["t", "t"]), sides_named("__right. IS NULL", ["t", "u"])
    ('left.a - right.b', 'u.exists IS NULL')
    """
    if len(names) != len(SIDES):
        return text
    left, right = ("left", "right") if names[0] == names[1] else names
    text = _FLAG.sub(r"\1.exists", _SAME_NAME.sub(r"\1.\2", text))
    return _OF_SIDE.sub(lambda found: f"{left if found[1] == SIDES[0] else right}.", text)


def needed_columns(
    outputs: Iterable[Node], rejecting: Collection[Node] = ()
) -> dict[tuple[Node, int], tuple[bool, ...]]:
    """Return which columns of its two tables each join needs for some outputs, of which all columns are needed.

    `rejecting`: the tables that a row leaves for which an expression fails, whether or not the expression's column is
    needed. Returns: by join and the number of the parent: for each column of the parent's value, whether the join needs
    it.
    """
    given = list(outputs)
    needs = _Needs(rejecting)
    for node in given:
        needs.found[node] = {one.name for one in node.value}
    joins = dict[tuple[Node, int], tuple[bool, ...]]()
    for node in sorted(ancestors(*given), key=lambda one: one.serial, reverse=True):
        for side, parent in enumerate(node.parents):
            names = needs.of(node, side)
            needs.found.setdefault(parent, set()).update(names)
            if isinstance(node, Join):
                joins[node, side] = tuple(one.name in names for one in parent.value)
    return joins


@dataclass
class _Needs:
    """The names of the columns that are needed of each table, found from the outputs to the sources."""

    rejecting: Collection[Node]
    found: dict[Node, set[str]] = field(default_factory=dict)

    def of(self, node: Node, side: int) -> set[str]:
        """What a node needs of a parent for the columns that are needed of itself."""
        parent = node.parents[side]
        value, key = {one.name for one in parent.value}, {one.name for one in parent.key}
        names: set[str] = set()
        for used in self._asked(node, side):
            # What is not known, or not found, may be any column.
            names |= value if used is None or not used <= value | key else used & value
        return names

    def _asked(self, node: Node, side: int) -> Iterator[frozenset[str] | None]:
        """The columns of a parent that a node uses, expression by expression; None: any."""
        needed = self.found.setdefault(node, set())
        if isinstance(node, Select):
            yield from map(_used, self._made(node, node.columns))
            yield from (_used(one) for one in (node.delete_when,) if one is not None)
        elif isinstance(node, Filter):
            yield from (frozenset(needed), _used(node.condition))
        elif isinstance(node, Aggregate | Top):
            yield from (_used(one) for one in (*node.on, *(one.expression for one in node.inputs)))
        elif isinstance(node, Join) and not node.complete_history:
            yield from self._asked_by_join(node, side, needed)
        else:
            yield None

    def _asked_by_join(self, join: Join, side: int, needed: set[str]) -> Iterator[frozenset[str] | None]:
        if isinstance(join, ForeignKeyJoin) and join.right_only:
            if side == 1:  # the right side may have its key columns under other names
                pairs = zip(reversed(join.value), reversed(join.right.value), strict=False)
                yield frozenset(theirs.name for mine, theirs in pairs if mine.name in needed)
        else:
            made = self._made(join, join.select)
            for expression in (*made, *((join.delete_when,) if join.delete_when else ())):
                yield _of_side(expression, f"{SIDES[side]}.")
        if isinstance(join, ManyToMany):
            yield from map(_used, join.parents_on[side])
        elif side == (1 if isinstance(join, OneToMany) else 0):
            on: tuple[Expression, ...] = getattr(join, "on", ())
            yield from map(_used, on)
            if isinstance(join, ForeignKeyJoin) and join.as_of is not None:
                yield _used(join.as_of.micros)

    def _made(self, node: Node, columns: Iterable[Named]) -> list[Expression]:
        """The expressions that decide about the needed columns of a node, or whether it has a row."""
        needed, rejects = self.found.setdefault(node, set()), node in self.rejecting
        return [
            one.expression for one in columns if one.name in needed or (rejects and one.expression.may_fail)
        ]


def _used(expression: Expression) -> frozenset[str] | None:
    """The columns that an expression may use; None: any. Only some expressions tell."""
    # Not by a protocol, which is slow to look: a plan has thousands of expressions.
    used: frozenset[str] | None = getattr(expression, "columns", None)
    return used


def _of_side(expression: Expression, prefix: str) -> frozenset[str] | None:
    """The columns of one side of a join that an expression uses; None: any."""
    used = _used(expression)
    if used is None:
        return None
    mine = (name.removeprefix(prefix) for name in used if name.startswith(prefix))
    return frozenset(name for name in mine if name)
