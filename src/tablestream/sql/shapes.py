"""What a subquery is, by its text alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeGuard

from sqlglot import exp

from tablestream.sql.aggregates import is_aggregate
from tablestream.sql.elements import explodes
from tablestream.sql.groups import is_grouped
from tablestream.sql.order import takes_first
from tablestream.sql.parse import is_subquery, more_parts
from tablestream.sql.scope import Scope


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
    for part in ("order", "limit", "distinct"):
        query.set(part, None)
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
    is_more = takes_first(select) or select.args.get("qualify") is not None
    return not is_more and not is_grouped(select) and not explodes(select)


def is_constant(query: exp.Expr) -> bool:
    """Whether a subquery is an expression of the row around it, as in ``(SELECT 5)``."""
    if not isinstance(query, exp.Select) or more_parts(query, ("kind", "expressions")):
        return False
    return is_simple(query) and not any(True for one in query.selects for _ in subqueries_in(one))


def has_plain_groups(query: exp.Expr) -> TypeGuard[exp.Select]:
    """Whether a query has groups by expressions alone, or aggregates of all rows."""
    is_select = isinstance(query, exp.Select) and is_grouped(query) and not explodes(query)
    if not is_select or any(map(query.args.get, ("offset", "qualify"))):
        return False
    group = query.args.get("group")
    return group is None or not more_parts(group, ("expressions",))


def has_groups(query: exp.Select) -> bool:
    """Whether a subquery has groups, and nothing that needs all of them at once."""
    is_more = any(map(query.args.get, ("limit", "distinct"))) or has_windows(query)
    return query.args.get("group") is not None and not is_more


def has_windows(query: exp.Select) -> bool:
    """Whether a query has window functions."""
    order = query.args.get("order")
    return any(one.find(exp.Window) for one in (*query.selects, *([order] if order else [])))


def columns_of_row(node: exp.Expr, scope: Scope | None = None) -> Iterator[exp.Column]:
    """The columns of an expression that are in no aggregate and subquery of it, nor in a group of the scope."""
    if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
        yield node
    elif not (is_aggregate(node) or is_subquery(node) or (scope and scope.same(node) in scope.made)):
        for child in node.iter_expressions():
            yield from columns_of_row(child, scope)


def is_text(node: exp.Expr) -> bool:
    """Whether an element of GROUP BY is the same for all rows: a text, not the place of a column."""
    return isinstance(node, exp.Literal) and node.is_string
