"""Subqueries that have one group at most for each row around them: aggregates, also with HAVING and GROUP BY."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from tablestream.connectors.sink import quoted
from tablestream.sql.groups import Group, grouped, groups_of, is_grouped
from tablestream.sql.matches import Related, for_each, looked_up
from tablestream.sql.order import is_special, limit_of
from tablestream.sql.rows import Rows
from tablestream.sql.scope import Scope, own_columns
from tablestream.sql.shapes import columns_of_row


def one_group(
    query: exp.Expr, items: Sequence[exp.Expr], found: Related | None, rows: Rows, scope: Scope
) -> tuple[Rows, str, list[str]] | None:
    """Join the groups of a subquery that has at most one for each row around it; `found` are its `read_groups`.

    Returns
    -------
    tuple of Rows, str and list of str, or None
        The rows, whether there is a group, and the values of columns of it; None: the subquery is none of these.
    """
    limit = limit_of(query)
    has_first = limit is None or (not is_special(limit) and limit.expression.name.strip("0").isdigit())
    if found is None or not has_first or not isinstance(query, exp.Select):
        return None
    group, having = query.args.get("group"), query.args.get("having")
    by = {found.scope.same(mine) for _, mine in found.pairs}
    # A text is the same for all rows; a number is the place of a column.
    varying = [one for one in group.expressions if not one.is_string] if group is not None else []
    if group is not None and (not by or any(found.scope.same(one) not in by for one in varying)):
        return None
    if having is not None and having.find(exp.Query):
        return None
    if not items:
        check_names(query, found, scope)
    return _joined_group(query, items, found, rows, scope)


def _joined_group(
    query: exp.Select, items: Sequence[exp.Expr], found: Related, rows: Rows, scope: Scope
) -> tuple[Rows, str, list[str]]:
    """Join the groups of a subquery, one for each row around it at most; see `one_group`."""
    group, having = query.args.get("group"), query.args.get("having")
    # Behind `for_each` the groups are the rows around them, of which each has one value of GROUP BY.
    is_joined = bool(found.others)
    equal = [] if group is None else [exp.Max(this=one.copy()) for one in group.expressions if is_joined]
    found = for_each(found, rows, scope, found.scope.context)
    groups = [Group(f"by_{n}", mine, None) for n, (_, mine) in enumerate(found.pairs, 1)]
    selected, condition = [one.unalias() for one in items], having and having.this
    count = exp.Count(this=exp.Star()) if group is not None else None
    said = {rows.fold(one.name) for one in own_columns(condition)} if condition is not None else set()
    aliases = {
        rows.fold(one.alias): one.this
        for one in query.selects
        if isinstance(one, exp.Alias) and rows.fold(one.alias) in said
    }
    nodes = [one for one in (*selected, condition, count, *aliases.values(), *equal) if one is not None]
    made = grouped(found.rows, groups, nodes, found.scope)
    made.scope.made |= {found.scope.same(one.this): made.scope.made[found.scope.same(one)] for one in equal}
    table = made.rows.table
    values = {one: quoted(one) for one in table.columns if group is not None or one not in table.key_columns}
    outer = scope.sqls(theirs for theirs, _ in found.pairs)
    rows, names = looked_up(rows, table, outer, values)
    shown = {
        quoted(old): f"coalesce({quoted(new)}, {made.of_none[old]})" if old in made.of_none else quoted(new)
        for old, new in names.items()
    }
    texts = {same: shown.get(text, text) for same, text in made.scope.made.items()}
    inner = replace(made.scope, made=texts)
    texts_of = [f"({one})" for one in inner.sqls(selected)]
    inner.aliases = {name: inner.sql(one) for name, one in aliases.items()}
    inner.clause = "HAVING"
    there = [f"{inner.sql(count)} > 0"] if count is not None else []
    there += [f"coalesce({inner.sql(condition)}, false)"] if condition is not None else []
    return rows, f"({' AND '.join(there) or 'true'})", texts_of


def check_names(query: exp.Select, found: Related, outer: Scope) -> None:
    """Refuse what is not there in the clauses of a subquery of EXISTS that make no difference if a row is wanted."""
    inner, order = replace(found.scope, clause="GROUP BY"), query.args.get("order")
    groups = [one.node for one in groups_of(query, inner)[0]]
    aliases = {inner.rows.fold(one.alias): "" for one in query.selects if isinstance(one, exp.Alias)}
    made = {inner.same(one): "" for one in groups}
    shown = replace(inner, clause="SELECT", made=made, aliases=aliases, grouped=is_grouped(query))
    ordered = order.expressions if order is not None else []
    clauses = (groups, inner), (query.selects, shown), (ordered, replace(shown, clause="ORDER BY"))
    for nodes, scope in clauses:
        for one in (column for node in nodes for column in columns_of_row(node, scope)):
            if scope.tells(one) or not outer.tells(one):
                scope.sql(one)
