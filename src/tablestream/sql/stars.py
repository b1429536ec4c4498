"""Lookups of several tables for the same rows are one star join: three rounds in all, in place of two for each.

A star looks up the rows of all its tables at once. So none of them may leave rows out, or the others are looked up in
vain: each is a `LEFT JOIN`, or an inner one with a table as it was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tablestream.handles.star import Lookup
from tablestream.sql.handles import node_of
from tablestream.sql.rows import Rows
from tablestream.tables import Table
from tablestream.topology.graph import ancestors, history_of
from tablestream.topology.nodes import Materialize, Select, Source


@dataclass(frozen=True)
class Star:
    """Lookups for the rows of a table.

    Attributes
    ----------
    center
        These rows.
    lookups
        What is looked up for them.
    made
        The table that this made.
    """

    center: Rows
    lookups: tuple[Lookup, ...]
    made: Table

    @property
    def columns(self) -> set[str]:
        """The columns by which more can be looked up."""
        return {one.column for one in self.center.visible}


def look_up(rows: Rows, one: Lookup, needed: Sequence[str]) -> tuple[Table, Star | None]:
    """Look up rows of one more table by columns that are `needed` for it.

    Returns
    -------
    tuple of Table and (Star or None)
        The result, and the star that another lookup can join; None if there is none.
    """
    table: Table = rows.table  # type: ignore[assignment]  # streams look up elsewhere
    may_join = bool(needed) and list(needed) != table.key_columns and _keeps_all(one)
    may_join &= all(history_of(node_of(side)) is None for side in (table, one.table))
    star = rows.star
    if star is None or star.made is not table or not set(needed) <= star.columns:
        star = Star(rows, (), table)
    if not star.lookups or not may_join:
        made = table.join(one.table, on=one.on, how=one.how, select=one.select)
        return made, Star(rows, (one,), made) if may_join else None
    made = star.center.table.join_many(*star.lookups, one)
    return made, Star(star.center, (*star.lookups, one), made)


def _keeps_all(one: Lookup) -> bool:
    """Whether each row finds one, as far as can be known."""
    every = ancestors(node_of(one.table))
    return one.how == "left" or all(isinstance(step, Select | Source | Materialize) for step in every)
