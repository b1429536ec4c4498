"""What a subquery has for each row around it.

- Its columns, and by which rows are found, where it names the query around it anywhere.
- Its group, if there is one at most: aggregates, also with HAVING and GROUP BY.
- For IN and ANY, where null matters: whether they are true, false or null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from tablestream import functions as tf
from tablestream.connectors.sink import quoted
from tablestream.sql.aggregates import aggregates_in
from tablestream.sql.context import Context
from tablestream.sql.groups import Group, grouped, groups_of, is_grouped
from tablestream.sql.handles import never_null
from tablestream.sql.matches import Related, ends_of, for_each, grouped_by, looked_up, outward
from tablestream.sql.order import is_special, limit_of
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
    inside, context = [one for node in nodes for one in aggregates_in(node)], found.scope.context
    made = grouped(context.subqueries(inside, found.rows, found.scope, context), groups, nodes, found.scope)
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


def or_null(
    value: exp.Expr,
    item: exp.Expr,
    holds: Callable[[dict[str, str]], str],
    found: Related,
    rows: Rows,
    scope: Scope,
    context: Context,
    ends: Sequence[str] = (),
) -> tuple[Rows, str]:
    """Join whether a predicate holds: null if it does not, and the value or one of the subquery's is null.

    `holds` gets the SQL of the subquery's ``least`` and ``greatest`` values, as far as `ends` names them.
    """
    found = for_each(found, rows, scope, context)
    functions = {
        "n": tf.count(),
        "nulls": tf.count(f"CASE WHEN ({found.scope.sql(item)}) IS NULL THEN 1 END"),
    }
    functions |= ends_of(item, ends, found)
    table = grouped_by(found, functions)
    outer = scope.sqls(theirs for theirs, _ in found.pairs)
    rows, names = looked_up(rows, table, outer, {one: one for one in functions})
    said = {one: quoted(name) for one, name in names.items()}
    text = (
        f"(CASE WHEN coalesce({said['n']}, 0) = 0 THEN false WHEN {holds(said)} THEN true"
        f" WHEN ({scope.sql(value)}) IS NULL OR {said['nulls']} > 0 THEN NULL ELSE false END)"
    )
    return rows, text


def only_true_matters(node: exp.Expr, whole: exp.Expr) -> bool:
    """Whether null is as good as false: nothing but AND and OR is between a predicate and its condition."""
    at: exp.Expr | None = node
    while at is not None and at is not whole:
        at = at.parent
        if not isinstance(at, exp.And | exp.Or | exp.Paren):
            return False
    return isinstance(whole.parent, exp.Where | exp.Having | exp.And | exp.Or | exp.Paren)


def no_nulls(compared: Sequence[tuple[exp.Expr, exp.Expr]], found: Related, rows: Rows, scope: Scope) -> bool:
    """Whether no value that is compared can be null."""
    for theirs, mine in compared:
        outer, inner = scope.name(theirs), found.scope.name(mine)
        if outer is None or inner is None:
            return False
        if not never_null(rows.table, outer) or not never_null(found.rows.table, inner):
            return False
    return True
