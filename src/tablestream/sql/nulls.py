"""IN and ANY where null matters: whether a predicate is true, false or null."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from tablestream import functions as tf
from tablestream.connectors.sink import quoted
from tablestream.sql.context import Context
from tablestream.sql.handles import never_null
from tablestream.sql.matches import Related, ends_of, for_each, grouped_by, looked_up
from tablestream.sql.rows import Rows
from tablestream.sql.scope import Scope


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
    table, _ = grouped_by(found, functions)
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
