"""The node of a join of two tables on values that are no key of either."""

from __future__ import annotations

from dataclasses import dataclass

from tablestream.topology.nodes import Expression, Fields, Join, texts


@dataclass(frozen=True, eq=False)
class ManyToMany(Join):
    """Every row of the left table with each row of the right one that has the same values; keyed by both keys."""

    on: tuple[Expression, ...]
    right_on: tuple[Expression, ...]
    """The join value, an expression per column, over a row of the left table, and over one of the right."""
    foreign: Fields
    """Its columns, in the types in which both sides are compared."""
    counts_nulls: bool = True
    """Whether rows without a join value count as dropped. Otherwise they are rows of the result by another way."""

    @property
    def parents_on(self) -> tuple[tuple[Expression, ...], tuple[Expression, ...]]:
        """The join value, over a row of either parent."""
        return self.on, self.right_on

    @property
    def meaning(self) -> str:
        sides = f"{self.left.name} with {self.right.name}"
        return f"{self._kind} of {sides} on {texts(self.on)} = {texts(self.right_on)}; {self._select_text}"
