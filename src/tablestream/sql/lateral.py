"""LATERAL: a subquery in FROM that names columns of the rows before it.

==============================  ==================================================================================
subquery                        becomes
==============================  ==================================================================================
aggregates                      grouped by what it is compared by, and looked up: each row before it has one
a row by its whole key          looked up
``ORDER BY ... LIMIT n``        the first rows of each partition by what it is compared by; joined, or looked up if
.                               there is one
groups, and any other rows      joined by what they are compared by
it computes with both           joined with the rows before it first, then as above
it names no row before it       joined, as a subquery without LATERAL
==============================  ==================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from tablestream.connectors.sink import quoted
from tablestream.sql.clusters import inner_join
from tablestream.sql.context import Context
from tablestream.sql.correlated import COMPARED_BY, compared_columns, free_names, with_columns_of
from tablestream.sql.elements import explodes
from tablestream.sql.groups import is_grouped
from tablestream.sql.handles import with_values
from tablestream.sql.joins import How, Joined, join
from tablestream.sql.matches import (
    AROUND,
    Related,
    columns_around,
    equalities_of,
    for_each,
    keyed_by,
    looked_up,
    of_a_row,
    outward,
)
from tablestream.sql.order import first_rows, is_special, limit_of, ordering, unordered
from tablestream.sql.output import Item, items_of
from tablestream.sql.parse import beginning, is_bare
from tablestream.sql.rows import Rows, Visible, unique
from tablestream.sql.scope import Scope, conjuncts, filtered, own_columns
from tablestream.sql.shapes import columns_of_row, has_plain_groups, has_windows, is_constant, is_simple
from tablestream.sql.subqueries import by_pairs, one_group, read


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

    def shown(self, items: Sequence[Item], context: Context) -> list[str]:
        """The names by which the query around it knows the columns of the subquery."""
        if len(self.names) > len(items):
            said = f"It has {len(items)} columns, and {len(self.names)} names."
            raise context.refuse(self.query, "LATERAL", said, "Give it as many names.")
        return [*self.names, *(one.name for one in items[len(self.names) :])]


def lateral(node: exp.Join, rows: Rows, context: Context) -> Rows:
    """Join a LATERAL subquery with the rows before it."""
    given, scope = _given(node, rows, context), Scope(rows, context, "LATERAL")
    inside = replace(context, is_around=scope.tells)
    with context.reasons.placed(beginning(node), "LATERAL"):
        found = _read(given.query, scope, inside)
        made = _looked_up(given, found, rows, scope, inside)
        if made is None:
            made = _joined(given, found, rows, scope, inside)
    for one in conjuncts(node.args.get("on")):
        if not _is_true(one):
            made = filtered(made, one, "ON", context)
    return made


def _given(node: exp.Join, rows: Rows, context: Context) -> Lateral:
    part, side = node.this, node.args.get("side")
    is_more = any(map(node.args.get, ("using", "method"))) or node.args.get("kind") in {"SEMI", "ANTI"}
    if is_more or side in {"RIGHT", "FULL"} or (side == "LEFT" and not _is_true(node.args.get("on"))):
        said = "A LATERAL subquery is joined by a comma, CROSS, INNER, or LEFT JOIN ... ON true."
        raise context.refuse(node, "LATERAL", said, "Write the conditions in it, or in WHERE.")
    query = part.this
    while is_bare(query):
        query = query.this
    alias = part.args.get("alias")
    name = alias.name if alias else unique("lateral", rows.sources, rows.fold)
    if rows.fold(name) in rows.sources:
        raise context.refuse(node, "LATERAL", f"Two inputs are called {name}.", "Give one an alias.")
    return Lateral(query, name, [one.name for one in alias.columns] if alias else [], side == "LEFT")


def _is_true(condition: exp.Expr | None) -> bool:
    return condition is None or (isinstance(condition, exp.Boolean) and bool(condition.this))


def _read(query: exp.Expr, scope: Scope, context: Context) -> Related | None:
    """The rows of a subquery that can name the rows before it; None: it cannot, or names nothing else."""
    if not isinstance(query, exp.Select) or is_constant(query):
        return None
    return None if _is_more(query) and not has_plain_groups(query) else read(query, scope, context)


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
    if found is None or not is_simple(query):
        return None
    keyed = keyed_by(found)
    if keyed is None:
        return None
    items = items_of(query, found.scope, context)
    nodes = [*(one.node for one in items), *found.others]
    rows, there, texts = of_a_row(nodes, keyed, found, rows, scope)
    conditions = [there, *(f"coalesce({one}, false)" for one in texts[len(items) :])]
    there = f"({' AND '.join(conditions)})"
    return _with_columns(given, given.shown(items, context), rows, there, texts[: len(items)])


def _shown(query: exp.Select, given: Lateral, context: Context) -> list[str]:
    """The names of the columns of a query without stars."""
    selects = query.selects
    for one in selects[len(given.names) :]:
        if not isinstance(one, exp.Alias | exp.Column):
            raise context.refuse(one, "LATERAL", "This column has no name.", "Name it with AS.")
    return given.shown([Item(one.alias_or_name, one.unalias(), None) for one in selects], context)


def _with_columns(given: Lateral, shown: Sequence[str], rows: Rows, there: str, texts: Sequence[str]) -> Rows:
    """Add the columns of the row that was looked up; `there` says whether there is one."""
    names = free_names(shown, rows)
    table = rows.table if given.is_left or there == "(true)" else rows.table.filter(there)
    texts = [f"CASE WHEN {there} THEN {one} END" if given.is_left else one for one in texts]
    table = table.with_columns(**dict(zip(names, texts, strict=True)))
    own = Rows.of(table, given.alias, names, shown).visible
    return replace(rows, table=table, visible=(*rows.visible, *own))


def _joined(given: Lateral, found: Related | None, rows: Rows, scope: Scope, context: Context) -> Rows:
    """Join the rows of which a row before may have several."""
    query: exp.Expr = given.query
    how: How = "left" if given.is_left else "inner"
    if not isinstance(query, exp.Select) or found is None or _is_more(query):  # it can name no row before
        right = context.result(query).rows(given.alias, list(given.names))
        return join(Joined(context, rows, replace(right, place=rows.place), ()), how)
    query, both = _with_both(query, found.scope, scope)
    found = for_each(found, rows, scope, context, both)
    right, pairs = _compared(given, query, found, scope, context)
    if _has_one(query):
        numbered = {f"value_{number}": quoted(one.column) for number, one in enumerate(right.shown, 1)}
        on = [*(scope.sqls(theirs for theirs, _ in found.pairs) or ["true"]), "1"]
        rows, names = looked_up(rows, right.table, on, {"found": None, **numbered})
        texts = [quoted(names[one]) for one in numbered]
        return _with_columns(given, [one.name for one in right.shown], rows, quoted(names["found"]), texts)
    equal = equalities_of(pairs, scope)
    around = columns_around([one.left for one in equal], rows.table.key_columns)
    left = replace(rows, visible=(*rows.visible, *around))
    if how == "inner":
        made = inner_join(left, right, equal, [], "LATERAL", context)
    else:
        made = join(Joined(context, left, right, tuple(equal)), how)
    own = tuple(one for one in made.visible if one.source not in {AROUND, COMPARED_BY})
    return replace(made, visible=own)


def _with_both(query: exp.Select, inner: Scope, scope: Scope) -> tuple[exp.Select, list[exp.Expr]]:
    """A subquery whose columns of the rows before it are those of `for_each`, and its parts that have some."""
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
            said = f"Groups of LATERAL name {said} of the rows before it outside of aggregates."
            raise scope.context.refuse(loose[0], "LATERAL", said, "Compute it in the SELECT around it.")
        found.append(outward(node, scope, known))
        return exp.alias_(found[-1], node.name, quoted=True) if isinstance(node, exp.Column) else found[-1]

    for part in ("group", "having", "order"):
        if query.args.get(part) is not None:
            made.set(part, both(query.args[part]))
    made.set("expressions", [both(one) for one in query.expressions])
    return made, found


def _compared(
    given: Lateral, query: exp.Select, found: Related, scope: Scope, context: Context
) -> tuple[Rows, tuple[tuple[exp.Expr, exp.Expr], ...]]:
    """The rows of a subquery, and what is equal: an expression of the rows before it, then a column of these."""
    right, inner, keys = by_pairs(query, found, context)
    items = items_of(query, inner, context)
    right, names = with_columns_of(right, [one.node for one in items], [one.name for one in items], inner)
    limit, order = limit_of(query), query.args.get("order")
    if limit is not None:
        texts = inner.sqls(one.node for one in items)
        by_order = ordering(order.expressions, items, texts, inner, context) if order is not None else []
        if not by_order:
            raise unordered(limit, context)
        right, _ = first_rows(right, _count(limit, context), keys, by_order, "rank", context, limit)
    table = with_values(right.table, {one: one for one in (*names, *keys)})
    found_rows = Rows.of(table, given.alias, names, given.shown(items, context))
    by, pairs = compared_columns(found, keys)
    return replace(found_rows, visible=(*found_rows.visible, *by), place=scope.rows.place), pairs


def _has_one(query: exp.Select) -> bool:
    """Whether a query keeps the first row."""
    limit = limit_of(query)
    return limit is not None and limit.expression.name == "1"


def _is_more(query: exp.Select) -> bool:
    """Whether a query has parts that only one on its own can have."""
    is_more = any(map(query.args.get, ("qualify", "distinct", "offset", "windows", "with_")))
    return is_more or bool(explodes(query)) or has_windows(query)


def _count(limit: exp.Limit, context: Context) -> int:
    """How many rows LIMIT keeps."""
    given = limit.expression
    is_whole = isinstance(given, exp.Literal) and given.name.isdigit() and int(given.name) > 0
    if is_special(limit) or not is_whole:
        said = "LIMIT needs a whole number here."
        raise context.refuse(limit, "LIMIT", said, "Write it as a number, from 1.")
    return int(given.name)
