"""Subqueries in ON of joins that keep rows: each is computed before the join, for the side that it names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from tablestream.sql.conditions import SUBQUERIES
from tablestream.sql.context import Context
from tablestream.sql.handles import with_values
from tablestream.sql.parse import placed, span
from tablestream.sql.rows import Rows, Visible, unique
from tablestream.sql.scope import REFUSED, Scope
from tablestream.sql.shapes import outer_columns
from tablestream.streams import Stream

#: The table of the columns that say whether a condition holds: no query has its name.
_COMPUTED = "(on)"


def computed(
    on: Sequence[exp.Expr], left: Rows, right: Rows, how: str, context: Context
) -> tuple[Rows, Rows, list[exp.Expr]]:
    """Compute the conditions that have subqueries; return the sides, and conditions without subqueries.

    A side whose rows the join does not keep is filtered. The other one has a column that says whether the condition
    holds.
    """
    sides, found = [left, right], list[exp.Expr]()
    filters = {"left": 1, "semi": 1, "anti": 1, "right": 0}.get(how)
    for number, one in enumerate(on, 1):
        if one.find(*SUBQUERIES) is None:
            found.append(one)
            continue
        at = _side_of(one, sides, context)
        rows = sides[at]
        scope, columns = Scope(rows, context, "ON"), {it.column: it.column for it in rows.visible}
        table = context.subqueries([one], rows, scope, context).table
        text = scope.sql(one)
        if REFUSED in text:
            continue
        if at == filters:
            sides[at] = replace(rows, table=with_values(table.filter(text), columns))
            continue
        name = unique(f"on_{number}", table.columns, rows.fold)
        table = with_values(table.with_columns(**{name: text}), {**columns, name: name})
        shown = Visible(_COMPUTED, name, name, merged=True, hidden=True)
        sides[at] = replace(rows, table=table, visible=(*rows.visible, shown))
        found.append(placed(exp.column(name, table=_COMPUTED, quoted=True), span(one)))
    return sides[0], sides[1], found


def without_computed(rows: Rows) -> Rows:
    """The rows of the join without the columns of `computed`."""
    return replace(rows, visible=tuple(one for one in rows.visible if one.source != _COMPUTED))


def _side_of(node: exp.Expr, sides: Sequence[Rows], context: Context) -> int:
    """The number of the side that a condition names; of one that names none, the second."""
    if any(isinstance(one.table, Stream) or one.as_of is not None for one in sides):
        said = "A subquery in ON of a join that looks up versions, or of a stream, is not maintained."
        raise context.refuse(node, "ON", said, "Join a query in FROM that has the condition in its WHERE.")
    both = Scope(replace(sides[0], visible=(*sides[0].visible, *sides[1].visible)), context, "ON")
    columns = [one for one in outer_columns(node, context) if both.column(one) or both.tells(one)]
    scopes = [Scope(one, context, "ON") for one in sides]
    named = [number for number, scope in enumerate(scopes) if any(map(scope.tells, columns))]
    if len(named) > 1:
        said = "A subquery in ON that names both sides of this join is not maintained."
        instead = "Join a query in FROM that has the condition in its WHERE."
        raise context.refuse(node, "ON", said, instead)
    return named[0] if named else 1
