"""Subqueries that are compared with the query around them: the columns of both, and by which rows are found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from tablestream.connectors.sink import quoted
from tablestream.sql.context import Context
from tablestream.sql.groups import is_grouped
from tablestream.sql.matches import Related, looked_up, outward
from tablestream.sql.parse import unwrapped, with_type, wrapped
from tablestream.sql.rows import Rows, Visible, unique_names
from tablestream.sql.scope import Scope, own_columns
from tablestream.sql.shapes import columns_of_row

#: The table of these columns: no query has its name.
COMPARED_BY = "(compared by)"


def with_both(query: exp.Select, inner: Scope, scope: Scope) -> tuple[exp.Select, list[exp.Expr]]:
    """A subquery whose columns of the rows around it are those of `for_each`, and its parts that have some."""
    aliases = [Visible("", one.alias, one.alias) for one in query.selects if isinstance(one, exp.Alias)]
    known = replace(inner, rows=replace(inner.rows, visible=(*inner.rows.visible, *aliases)))
    made, found = query.copy(), list[exp.Expr]()

    def both(node: exp.Expr) -> exp.Expr:
        named = [one for one in own_columns(node) if not known.tells(one) and scope.tells(one)]
        if not named or node.find(exp.Query):
            return node
        loose = [one for one in columns_of_row(node) if one in named] if is_grouped(query) else []
        if loose:
            said = ".".join(part.name for part in loose[0].parts)
            said = f"Groups of a subquery name {said} of the rows around it outside of aggregates."
            raise scope.context.refuse(loose[0], scope.clause, said, "Compute it in the SELECT around it.")
        found.append(outward(node, scope, known))
        return exp.alias_(found[-1], node.name, quoted=True) if isinstance(node, exp.Column) else found[-1]

    for part in ("group", "having", "qualify", "order"):
        if query.args.get(part) is not None:
            made.set(part, both(query.args[part]))
    made.set("expressions", [both(one) for one in query.expressions])
    return made, found


def row_at(place: int, found: Related, rows: Rows, scope: Scope) -> tuple[Rows, str, list[str]]:
    """Join the row at a place of the first rows that a subquery has for each row around it.

    Returns
    -------
    tuple of Rows, str and list of str
        The rows, whether there is a row, and the values of its columns.
    """
    values = {f"value_{number}": quoted(one.column) for number, one in enumerate(found.rows.shown, 1)}
    on = [*(scope.sqls(theirs for theirs, _ in found.pairs) or ["true"]), str(place)]
    rows, names = looked_up(rows, found.rows.table, on, {"found": None, **values})
    return rows, quoted(names["found"]), [quoted(names[one]) for one in values]


def compared_by(found: Related, keys: Sequence[str], own: Rows, rows: Rows, context: Context) -> Related:
    """What a subquery has for the rows around it, and what it is compared by under names that no query has.

    `found`: what it was made of. `own`: its columns, of a table that also has the `keys`, a column for each pair.
    """
    visible = tuple(Visible(COMPARED_BY, one, one, merged=True, hidden=True) for one in dict.fromkeys(keys))
    pairs = []
    for (theirs, mine), key in zip(found.pairs, keys, strict=True):
        by: exp.Expr = exp.column(key, table=COMPARED_BY, quoted=True)
        pairs.append((theirs, by if unwrapped(mine) is mine else wrapped(by)))
    made = replace(own, visible=(*own.visible, *visible), place=rows.place)
    return Related(made, Scope(made, context, "subquery"), tuple(pairs), ())


def with_columns_of(
    rows: Rows, nodes: Sequence[exp.Expr], wanted: Sequence[str], scope: Scope
) -> tuple[Rows, list[str]]:
    """Rows that have columns of expressions, and their names: those that are columns already, or the wanted ones.

    Each has a column of its own.
    """
    own = [scope.name(one) for one in nodes]
    own = [None if one in own[:number] else one for number, one in enumerate(own)]
    free = unique_names(wanted, rows.table.columns, rows.fold)
    names = [one or new for one, new in zip(own, free, strict=True)]
    new = {name: with_type(node) for one, name, node in zip(own, names, nodes, strict=True) if one is None}
    if not new:
        return rows, names
    added = {name: scope.sql(node) for name, node in new.items()}
    return replace(rows, table=rows.table.with_columns(**added)), names
