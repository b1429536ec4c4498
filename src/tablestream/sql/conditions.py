"""What conditions name: the inputs of FROM, the columns that are there after each join, and what joins make null."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from tablestream.sql.rows import AmbiguousError, Rows, Visible
from tablestream.sql.scope import own_columns

SUBQUERIES = (exp.Subquery, exp.Select)


@dataclass(frozen=True)
class Input:
    """An input of FROM, and how it joins those before it."""

    rows: Rows
    how: str = "inner"
    on: tuple[exp.Expr, ...] = ()
    using: tuple[exp.Identifier, ...] = ()
    is_natural: bool = False

    @property
    def is_commutative(self) -> bool:
        """Whether its place among other such inputs does not matter."""
        return self.how == "inner" and not self.using and not self.is_natural

    def common(self, left: Rows) -> tuple[exp.Identifier, ...]:
        """The columns of USING; of NATURAL JOIN those that both sides have."""
        if not self.is_natural:
            return self.using
        names = {left.fold(one.name) for one in self.rows.shown}
        return tuple(
            exp.to_identifier(one.name, quoted=True)
            for one in left.shown
            if not one.merged and left.fold(one.name) in names
        )


@dataclass(frozen=True)
class Condition:
    """A condition of WHERE or ON, and the inputs whose columns it has."""

    node: exp.Expr
    clause: str
    sources: frozenset[str]

    @property
    def is_early(self) -> bool:
        """Whether it can be applied before all is joined."""
        return bool(self.sources) and self.node.find(*SUBQUERIES) is None


@dataclass(frozen=True)
class Known:
    """The columns that a condition can name after a join.

    Attributes
    ----------
    rows
        The columns.
    whole
        The inputs that a column needs which FULL JOIN makes of those of both sides.
    """

    rows: Rows
    whole: Mapping[Visible, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def after_each(cls, inputs: Sequence[Input]) -> list[Known]:
        """What is known after each input is joined."""
        found = [cls(inputs[0].rows)]
        for one in inputs[1:]:
            found.append(found[-1].joined(one))
        return found

    def joined(self, given: Input) -> Known:
        """What is known after one more input is joined."""
        if given.how in {"semi", "anti"}:
            return self
        using, left = given.common(self.rows), self.rows.visible
        visible = merged((*left, *given.rows.visible), using, given.how, len(left), self.rows.fold)
        rows = replace(self.rows, visible=visible)
        if given.how != "full":
            return replace(self, rows=rows)
        shown = {Visible("", one.name, one.name): frozenset(rows.sources - {""}) for one in using}
        return Known(replace(rows, visible=(*shown, *visible)), {**self.whole, **shown})

    def condition(self, node: exp.Expr, clause: str) -> Condition:
        """A condition with the inputs that it names."""
        sources = set[str]()
        for one in own_columns(node):
            try:
                found = self.rows.find([part.name for part in one.parts])
            except AmbiguousError:
                return Condition(node, clause, frozenset())
            if found is None:  # a column of the query around this one, or of none
                return Condition(node, clause, frozenset())
            column = found[0]
            sources |= self.whole.get(column, {self.rows.fold(column.source)})
        return Condition(node, clause, frozenset(sources))


def null_extended(inputs: Sequence[Input], after: int) -> set[str]:
    """The inputs whose columns a join after a place can make null."""
    found: set[str] = set()
    for number, one in enumerate(inputs):
        if number > after and one.how in {"left", "full"}:
            found |= one.rows.sources
        if number > after and one.how in {"right", "full"}:
            found |= {name for before in inputs[:number] for name in before.rows.sources}
    return found


def merged(
    visible: Sequence[Visible],
    using: Sequence[exp.Identifier],
    how: str,
    left: int,
    fold: Callable[[str], str],
) -> tuple[Visible, ...]:
    """The columns of a join, where those of USING are found only on the side whose rows stay; FULL: on none.

    Parameters
    ----------
    left
        How many columns are of the left side: the first ones.
    """
    names, count = {fold(one.name) for one in using}, len(visible)
    hidden = {"full": range(count), "right": range(left)}.get(how, range(left, count))
    return tuple(
        replace(one, merged=True) if number in hidden and fold(one.name) in names else one
        for number, one in enumerate(visible)
    )
