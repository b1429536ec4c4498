"""LATERAL: a subquery in FROM that names columns of the rows before it.

==============================  ==================================================================================
subquery                        becomes
==============================  ==================================================================================
aggregates                      grouped by what it is compared by, and looked up: each row before it has one
a row by its whole key          looked up
``ORDER BY ... LIMIT n``        the first rows of each partition by what it is compared by; joined, or looked up if
.                               there is one
groups, and any other rows      joined by what they are compared by
it names no row before it       joined, as a subquery without LATERAL
==============================  ==================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from tablestream.connectors.sink import quoted
from tablestream.sql.context import Context
from tablestream.sql.elements import explodes
from tablestream.sql.equalities import Equality
from tablestream.sql.groups import Group, aggregating, grouped, groups_of, is_grouped
from tablestream.sql.handles import with_values
from tablestream.sql.joins import How, Joined, join
from tablestream.sql.matches import AROUND, Related, for_each, keyed_by, looked_up, of_a_row
from tablestream.sql.order import first_rows, is_special, limit_of, ordering, unordered
from tablestream.sql.output import Item, items_of
from tablestream.sql.parse import beginning, is_bare, unwrapped, with_type, wrapped
from tablestream.sql.rows import Rows, Visible, unique
from tablestream.sql.scope import Scope, conjuncts, filtered, own_columns
from tablestream.sql.subqueries import is_constant, is_simple, one_group, read, where


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
        made = _looked_up(given, rows, scope, inside)
        if made is None:
            made = _joined(given, rows, scope, inside)
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


def _looked_up(given: Lateral, rows: Rows, scope: Scope, context: Context) -> Rows | None:
    """Look up the row that each row before has, if the subquery has one at most; None: it may have more."""
    query = given.query
    if not isinstance(query, exp.Select) or query.is_star:
        return None
    if is_constant(query):
        texts = scope.sqls(one.unalias() for one in query.selects)
        return _with_columns(given, _shown(query, given, context), rows, "(true)", texts)
    made = one_group(query, query.selects, rows, scope, context)
    if made is not None:
        return _with_columns(given, _shown(query, given, context), *made)
    if not is_simple(query):
        return None
    found = read(query, scope, context)
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
    names = _free_names(shown, rows)
    table = rows.table if given.is_left or there == "(true)" else rows.table.filter(there)
    texts = [f"CASE WHEN {there} THEN {one} END" if given.is_left else one for one in texts]
    table = table.with_columns(**dict(zip(names, texts, strict=True)))
    own = Rows.of(table, given.alias, names, shown).visible
    return replace(rows, table=table, visible=(*rows.visible, *own))


def _free_names(wanted: Sequence[str], rows: Rows) -> list[str]:
    """Names for new columns of rows."""
    found: list[str] = []
    for one in wanted:
        found.append(unique(one, [*rows.table.columns, *found], rows.fold))
    return found


def _with_values(
    rows: Rows, nodes: Sequence[exp.Expr], wanted: Sequence[str], scope: Scope
) -> tuple[Rows, list[str]]:
    """Rows that have columns of expressions, and their names: those that are columns already, or the wanted ones."""
    own = [scope.name(one) for one in nodes]
    names = [one or free for one, free in zip(own, _free_names(wanted, rows), strict=True)]
    new = {name: with_type(node) for one, name, node in zip(own, names, nodes, strict=True) if one is None}
    if not new:
        return rows, names
    added = {name: scope.sql(node) for name, node in new.items()}
    return replace(rows, table=rows.table.with_columns(**added)), names


def _joined(given: Lateral, rows: Rows, scope: Scope, context: Context) -> Rows:
    """Join the rows of which a row before may have several."""
    query: exp.Expr = given.query
    how: How = "left" if given.is_left else "inner"
    if not isinstance(query, exp.Select) or _is_more(query):  # it can name no row before
        right = context.result(query).rows(given.alias, list(given.names))
        return join(Joined(context, rows, replace(right, place=rows.place), ()), how)
    found = for_each(read(query, scope, context), rows, scope, context)
    right, keys = _compared(given, query, found, scope, context)
    if _has_one(query):
        numbered = {f"value_{number}": quoted(one.column) for number, one in enumerate(right.visible, 1)}
        on = [*(scope.sqls(theirs for theirs, _ in found.pairs) or ["true"]), "1"]
        rows, names = looked_up(rows, right.table, on, {"found": None, **numbered})
        texts = [quoted(names[one]) for one in numbered]
        return _with_columns(given, [one.name for one in right.visible], rows, quoted(names["found"]), texts)
    equal = []
    for (theirs, mine), key in zip(found.pairs, keys, strict=True):
        by: exp.Expr = exp.column(key.name, table=key.source, quoted=True)
        by = by if unwrapped(mine) is mine else wrapped(by)
        equal.append(Equality(exp.EQ(this=theirs, expression=by), theirs, by))
    around = (Visible(AROUND, one, one, merged=True, hidden=True) for one in rows.table.key_columns)
    left = replace(rows, visible=(*rows.visible, *around))
    made = join(Joined(context, left, replace(right, visible=(*right.visible, *keys)), tuple(equal)), how)
    hidden = {AROUND, *(one.source for one in keys)}
    return replace(made, visible=tuple(one for one in made.visible if one.source not in hidden))


def _compared(
    given: Lateral, query: exp.Select, found: Related, scope: Scope, context: Context
) -> tuple[Rows, list[Visible]]:
    """The rows of a subquery, and the columns by which they are compared with the rows before it."""
    right, inner, keys = _grouped(query, found, context)
    items = items_of(query, inner, context)
    for column in (column for one in items for column in own_columns(one.node)):
        if not inner.tells(column) and scope.tells(column):
            named = ".".join(part.name for part in column.parts)
            said = f"SELECT of LATERAL names {named} of the rows before it."
            raise context.refuse(column, "LATERAL", said, "Compute it in the SELECT around it.")
    right, names = _with_values(right, [one.node for one in items], [one.name for one in items], inner)
    limit, order = limit_of(query), query.args.get("order")
    if limit is not None:
        texts = inner.sqls(one.node for one in items)
        by_order = ordering(order.expressions, items, texts, inner, context) if order is not None else []
        if not by_order:
            raise unordered(limit, context)
        right, _ = first_rows(right, _count(limit, context), keys, by_order, "rank", context, limit)
    table = with_values(right.table, {one: one for one in (*names, *keys)})
    found_rows = Rows.of(table, given.alias, names, given.shown(items, context))
    source = unique(f"{given.alias}_by", scope.rows.sources, scope.rows.fold)
    hidden = [Visible(source, one, one, merged=True) for one in keys]
    return replace(found_rows, place=scope.rows.place), hidden


def _has_one(query: exp.Select) -> bool:
    """Whether a query keeps the first row."""
    limit = limit_of(query)
    return limit is not None and limit.expression.name == "1"


def _is_more(query: exp.Select) -> bool:
    """Whether a query has parts that only one on its own can have."""
    is_more = any(map(query.args.get, ("qualify", "distinct", "offset", "windows", "with_")))
    return is_more or bool(explodes(query)) or any(one.find(exp.Window) for one in query.selects)


def _count(limit: exp.Limit, context: Context) -> int:
    """How many rows LIMIT keeps."""
    given = limit.expression
    is_whole = isinstance(given, exp.Literal) and given.name.isdigit() and int(given.name) > 0
    if is_special(limit) or not is_whole:
        said = "LIMIT needs a whole number here."
        raise context.refuse(limit, "LIMIT", said, "Write it as a number, from 1.")
    return int(given.name)


def _grouped(query: exp.Select, found: Related, context: Context) -> tuple[Rows, Scope, list[str]]:
    """The rows of a subquery, or its groups for each value that it is compared by; and the columns of these values."""
    inner, rows = found.scope, found.rows
    keys = [unwrapped(mine) for _, mine in found.pairs]
    wanted = [f"by_{number}" for number, _ in enumerate(keys, 1)]
    if not is_grouped(query):
        rows, names = _with_values(rows, keys, wanted, inner)
        return rows, inner, names
    groups, sets = groups_of(query, inner, context)
    if len(sets) > 1:
        said = "Grouping sets in LATERAL are not maintained."
        raise context.refuse(query, "LATERAL", said, "Group in a subquery without LATERAL, and join it.")
    taken = [one.name for one in groups]
    names = [unique(one, taken, rows.fold) for one in wanted]
    by = [Group(name, key, None) for name, key in zip(names, keys, strict=True)]
    made = grouped(rows, [*by, *groups], aggregating(query), inner, context)
    rows, inner = made.rows, made.scope
    having = query.args.get("having")
    for one in conjuncts(having.this if having else None):
        rows = where(rows, one, "HAVING", inner, context)
    return rows, inner, names
