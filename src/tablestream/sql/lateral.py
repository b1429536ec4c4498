"""LATERAL: a subquery in FROM that names columns of the rows before it.

==============================  ==================================================================================
subquery                        becomes
==============================  ==================================================================================
aggregates                      grouped by what it is compared by, and looked up: each row before it has one
a row by its whole key          looked up
``ORDER BY ... LIMIT 1``        the row at its place of those of each value that it is compared by: looked up
any other                       the rows of each such value, as `each` makes them; joined
it computes with both           joined with the rows before it first, then as above
it names no row before it       joined, as a subquery without LATERAL
==============================  ==================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from tablestream.sql.clusters import inner_join
from tablestream.sql.context import Context
from tablestream.sql.correlated import COMPARED_BY, one_group, row_at
from tablestream.sql.elements import is_true
from tablestream.sql.joins import How, Joined, is_one_row, join
from tablestream.sql.matches import (
    AROUND,
    Related,
    columns_around,
    equalities_of,
    keyed_by,
    of_a_row,
)
from tablestream.sql.order import only_place
from tablestream.sql.output import items_of
from tablestream.sql.parse import beginning, without_parentheses
from tablestream.sql.rows import Rows, unique, unique_names
from tablestream.sql.scope import Scope, conjuncts, filtered
from tablestream.sql.shapes import has_plain_groups, is_constant, is_for_each, is_simple, subqueries_in
from tablestream.sql.subqueries import each, read, within


@dataclass(frozen=True)
class Lateral:
    """A LATERAL subquery.

    Attributes
    ----------
    query
        What is in its parentheses.
    alias, names
        What it is called, and what ``AS t(a, b)`` calls its columns.
    is_left
        Whether rows without one of its own stay.
    """

    query: exp.Expr
    alias: str
    names: Sequence[str]
    is_left: bool

    def shown(self, columns: Sequence[str], context: Context) -> list[str]:
        """The names by which the query around it knows the columns of the subquery."""
        if len(self.names) > len(columns):
            said = f"It has {len(columns)} columns, and {len(self.names)} names."
            raise context.refuse(self.query, "LATERAL", said, "Give it as many names.")
        return [*self.names, *columns[len(self.names) :]]


def lateral(node: exp.Join, rows: Rows, context: Context) -> Rows:
    """Join a LATERAL subquery with the rows before it."""
    given, scope = _given(node, rows, context), Scope(rows, context, "LATERAL")
    inside = within(given.query, scope, context)
    with context.reasons.placed(beginning(node), "LATERAL"):
        found = _read(given.query, rows, scope, inside)
        made = _looked_up(given, found, rows, scope, inside)
        if made is None:
            made = _joined(given, found, rows, scope, inside)
    for one in conjuncts(node.args.get("on")):
        if not is_true(one):
            made = filtered(made, one, "ON", context)
    return made


def _given(node: exp.Join, rows: Rows, context: Context) -> Lateral:
    part, side = node.this, node.args.get("side")
    is_more = any(map(node.args.get, ("using", "method"))) or node.args.get("kind") in {"SEMI", "ANTI"}
    if is_more or side in {"RIGHT", "FULL"} or (side == "LEFT" and not is_true(node.args.get("on"))):
        said = "A LATERAL subquery is joined by a comma, CROSS, INNER, or LEFT JOIN ... ON true."
        raise context.refuse(node, "LATERAL", said, "Write the conditions in it, or in WHERE.")
    name = part.alias or unique("lateral", rows.sources, rows.fold)
    if rows.fold(name) in rows.sources:
        raise context.refuse(node, "LATERAL", f"Two inputs are called {name}.", "Give one an alias.")
    return Lateral(without_parentheses(part.this), name, part.alias_column_names, side == "LEFT")


def _read(query: exp.Expr, rows: Rows, scope: Scope, context: Context) -> Related | None:
    """The rows of a subquery that can name the rows before it; None: it cannot, or names nothing else."""
    if not isinstance(query, exp.Select) or not is_for_each(query) or is_constant(query):
        return None
    return read(query, rows, scope, context)


def _looked_up(
    given: Lateral, found: Related | None, rows: Rows, scope: Scope, context: Context
) -> Rows | None:
    """Look up the row that each row before has, if the subquery has one at most; None: it may have more."""
    query = given.query
    if not isinstance(query, exp.Select) or query.is_star:
        return None
    if is_constant(query):
        texts = scope.sqls(one.unalias() for one in query.selects)
        return _with_columns(given, _shown(query, given, context), rows, "(true)", texts)
    groups = found if has_plain_groups(query) else None
    made = one_group(query, query.selects, groups, rows, scope)
    if made is not None:
        return _with_columns(given, _shown(query, given, context), *made)
    if found is None or not is_simple(query) or any(any(subqueries_in(one)) for one in query.selects):
        return None
    keyed = keyed_by(found)
    if keyed is None:
        return None
    items = items_of(query, found.scope, context)
    nodes = [*(one.node for one in items), *found.others]
    rows, there, texts = of_a_row(nodes, keyed, found, rows, scope)
    conditions = [there, *(f"coalesce({one}, false)" for one in texts[len(items) :])]
    there = f"({' AND '.join(conditions)})"
    return _with_columns(
        given, given.shown([one.name for one in items], context), rows, there, texts[: len(items)]
    )


def _shown(query: exp.Select, given: Lateral, context: Context) -> list[str]:
    """The names of the columns of a query without stars."""
    selects = query.selects
    for one in selects[len(given.names) :]:
        if not isinstance(one, exp.Alias | exp.Column):
            raise context.refuse(one, "LATERAL", "This column has no name.", "Name it with AS.")
    return given.shown([one.alias_or_name for one in selects], context)


def _with_columns(given: Lateral, shown: Sequence[str], rows: Rows, there: str, texts: Sequence[str]) -> Rows:
    """Add the columns of the row that was looked up; `there` says whether there is one."""
    names = unique_names(shown, rows.table.columns, rows.fold)
    table = rows.table if given.is_left or there == "(true)" else rows.table.filter(there)
    texts = [f"CASE WHEN {there} THEN {one} END" if given.is_left else one for one in texts]
    table = table.with_columns(**dict(zip(names, texts, strict=True)))
    own = Rows.of(table, given.alias, names, shown).visible
    return replace(rows, table=table, visible=(*rows.visible, *own))


def _joined(given: Lateral, found: Related | None, rows: Rows, scope: Scope, context: Context) -> Rows:
    """Join the rows of which a row before may have several."""
    how: How = "left" if given.is_left else "inner"
    found = each(given.query, rows, scope, context, found)
    columns, place = found.rows.shown, only_place(given.query, context)
    names = given.shown([one.name for one in columns], context)
    if place is not None and not is_one_row(found.rows):
        return _with_columns(given, names, *row_at(place, found, rows, scope))
    shown = Rows.of(found.rows.table, given.alias, [one.column for one in columns], names).visible
    by = [one for one in found.rows.visible if one.source == COMPARED_BY]
    right = replace(found.rows, visible=(*shown, *by))
    equal = equalities_of(found.pairs, scope)
    around = columns_around([one.left for one in equal], rows.table.key_columns)
    left = replace(rows, visible=(*rows.visible, *around))
    if how == "inner":
        made = inner_join(left, right, equal, [], "LATERAL", context)
    else:
        made = join(Joined(context, left, right, tuple(equal)), how)
    own = tuple(one for one in made.visible if one.source not in {AROUND, COMPARED_BY})
    return replace(made, visible=own)
