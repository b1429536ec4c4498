"""What a subquery is, by its text alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeGuard

from sqlglot import exp

from tablestream.sql.aggregates import is_aggregate
from tablestream.sql.context import Context
from tablestream.sql.elements import explodes
from tablestream.sql.groups import is_grouped
from tablestream.sql.order import distinct_on, takes_first
from tablestream.sql.parse import is_subquery, more_parts
from tablestream.sql.scope import Scope, own_columns


def is_any(node: exp.Expr) -> bool:
    """Whether an expression compares a value with ``ANY`` of a subquery."""
    given = node.expression if isinstance(node, exp.Binary) else None
    return isinstance(given, exp.Any) and is_subquery(given.this)


def subqueries_in(node: exp.Expr) -> Iterator[exp.Expr]:
    """The subqueries of an expression that are not in another one."""
    is_exists = isinstance(node, exp.Exists) and is_subquery(node)
    of_values = (isinstance(node, exp.In) and node.args.get("query") is not None) or is_any(node)
    if is_exists or of_values:
        if of_values:
            yield from subqueries_in(node.this)
        yield node
    elif isinstance(node, exp.Subquery):
        yield node
    elif not isinstance(node, exp.Query):
        for child in node.iter_expressions():
            yield from subqueries_in(child)


def is_plain_union(query: exp.Expr) -> TypeGuard[exp.Union]:
    """Whether a query is ``UNION [ALL]``, and nothing else is said of it."""
    if type(query) is not exp.Union or more_parts(query, ("this", "expression", "distinct")):
        return False
    return len(query.left.selects) == len(query.right.selects) and query.left.is_star == query.right.is_star


def some_row(query: exp.Query) -> exp.Query:
    """A subquery of EXISTS without ORDER BY, LIMIT and groups, which make no difference if a row is wanted.

    Groups do if their row explodes: there may be nothing in it.
    """
    limit = query.args.get("limit")
    if query.args.get("offset") or (limit is not None and limit.expression.name in {"", "0"}):
        return query
    order, group = query.args.get("order"), query.args.get("group")
    query = query.copy()
    for part in ("order", "limit"):
        query.set(part, None)
    if not isinstance(query, exp.Except):  # EXCEPT ALL can have rows where EXCEPT has none
        query.set("distinct", None)
    if not isinstance(query, exp.Select):
        return query
    named = list(columns_of_row(order)) if order is not None else []
    is_more = any(map(query.args.get, ("having", "qualify"))) or explodes(query)
    by_columns = group is not None and all(isinstance(one, exp.Column) for one in group.expressions)
    if group is not None and by_columns and not is_more and not more_parts(group, ("expressions",)):
        named += [one for node in (*query.selects, group) for one in columns_of_row(node)]
        query.set("group", None)
        query.set("expressions", [exp.Literal.number(1)])
    return query.select(*named) if is_simple(query) else query  # only what a query names is read


def is_simple(select: exp.Select) -> bool:
    """Whether a subquery only joins and filters: then conditions may compare it with the query around it."""
    is_more = takes_first(select) or select.args.get("qualify") is not None or windows_of(select)
    return not is_more and not is_grouped(select) and not explodes(select)


def is_constant(query: exp.Expr) -> bool:
    """Whether a subquery is an expression of the row around it, as in ``(SELECT 5)``."""
    if not isinstance(query, exp.Select) or more_parts(query, ("kind", "expressions")):
        return False
    return is_simple(query) and not any(any(subqueries_in(one)) for one in query.selects)


def has_plain_groups(query: exp.Expr) -> TypeGuard[exp.Select]:
    """Whether a query has groups by expressions alone, or aggregates of all rows."""
    is_select = isinstance(query, exp.Select) and is_grouped(query) and not explodes(query)
    if not is_select or windows_of(query) or any(map(query.args.get, ("offset", "qualify"))):
        return False
    group = query.args.get("group")
    return group is None or not more_parts(group, ("expressions",))


def is_for_each(query: exp.Select) -> bool:
    """Whether a subquery can be made for each row around it: it has nothing that only one on its own can have."""
    return not explodes(query) and distinct_on(query) is None


def parts_of(query: exp.Expr) -> str:
    """The words for what a query has beside FROM, WHERE and columns, as an error says them; empty: nothing."""
    if isinstance(query, exp.SetOperation):
        return type(query).__name__.upper()
    if not isinstance(query, exp.Select):
        return "ORDER BY or LIMIT behind parentheses"
    found: dict[str, object] = {
        "DISTINCT" if distinct_on(query) is None else "DISTINCT ON": query.args.get("distinct"),
        "explode": explodes(query),
        "aggregates": is_grouped(query),
        "GROUP BY": query.args.get("group"),
        "HAVING": query.args.get("having"),
        "window functions": windows_of(query),
        "LIMIT": query.args.get("limit"),
        "OFFSET": query.args.get("offset"),
    }
    return " and ".join(word for word, is_there in found.items() if is_there)


def windows_of(query: exp.Expr) -> list[exp.Window]:
    """The window functions of a query, without those of its subqueries."""
    parts = (query.args.get(one) for one in ("qualify", "order"))
    return [found for one in (*query.expressions, *parts) if one is not None for found in windows_in(one)]


def windows_in(node: exp.Expr) -> list[exp.Window]:
    """The window functions of an expression, without those of its subqueries."""
    if isinstance(node, exp.Window):
        return [node]
    if isinstance(node, exp.Query):
        return []
    return [found for one in node.iter_expressions() for found in windows_in(one)]


def columns_of_row(node: exp.Expr, scope: Scope | None = None) -> Iterator[exp.Column]:
    """The columns of an expression that are in no aggregate and subquery of it, nor in a group of the scope."""
    if isinstance(node, exp.Column) and not node.is_star:
        yield node
    elif not (is_aggregate(node) or is_subquery(node) or (scope and scope.same(node) in scope.made)):
        for child in node.iter_expressions():
            yield from columns_of_row(child, scope)


def outer_columns(node: exp.Expr, context: Context) -> Iterator[exp.Column]:
    """The columns of a condition that its subqueries do not have themselves."""
    if not is_subquery(node):
        if isinstance(node, exp.Column):
            yield node
        for child in node.iter_expressions():
            yield from outer_columns(child, context)
        return
    tables = {
        one.alias_or_name.lower() for one in node.find_all(exp.Table, exp.Subquery, exp.CTE, exp.Lateral)
    }
    names = {one.name.lower() for alias in node.find_all(exp.TableAlias) for one in alias.columns}
    whole = node
    while isinstance(whole, exp.Subquery | exp.Exists):
        whole = whole.this
    inside = (one for one in node.find_all(exp.Select) if one is not whole)
    names |= {one.lower() for query in inside for one in query.named_selects}
    for table in node.find_all(exp.Table):
        read = context.tables.get(table.name.lower())
        names |= set() if read is None else {one.name.lower() for one in read().rows("", []).visible}
    for one in own_columns(node):
        if (one.table.lower() not in tables) if one.table else (one.name.lower() not in names):
            yield one
