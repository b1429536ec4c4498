"""Subqueries with groups that are compared for equality with the query around them.

What they are compared by becomes a further column of ``GROUP BY`` and ``SELECT``. Each row around them finds its own
groups by it, so ``x IN (SELECT max(b) FROM t WHERE t.a = y GROUP BY t.c)`` reads::

    SELECT max(b), t.a AS by_1 FROM t GROUP BY t.c, t.a
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from tablestream.sql.elements import explodes
from tablestream.sql.parse import is_subquery, more_parts
from tablestream.sql.rows import unique
from tablestream.sql.scope import Scope, conjuncts


def has_groups(query: exp.Expr) -> bool:
    """Whether a subquery is one of groups by expressions, without LIMIT and what else needs all its rows at once."""
    if not isinstance(query, exp.Select) or explodes(query):
        return False
    group = query.args.get("group")
    is_more = any(map(query.args.get, ("limit", "offset", "qualify", "distinct")))
    if group is None or not group.expressions:
        return False
    return not is_more and not more_parts(group, ("expressions",))


def grouped_by_pairs(
    query: exp.Select, compared: Sequence[exp.Expr], inner: Scope
) -> tuple[exp.Select, list[str]]:
    """Return a subquery without its comparisons with the query around it, and the columns for what it is compared by.

    `inner` tells its columns, and `compared` are its expressions that are compared.
    """
    made = query.copy()
    names = list[str]()
    for one in compared:
        names.append(unique(f"by_{len(names) + 1}", [*made.named_selects, *names], inner.rows.fold))
        made.args["group"].append("expressions", one.copy())
        made.append("expressions", exp.alias_(one.copy(), names[-1], quoted=True))
    own = [one for one in conjuncts(made.args["where"].this) if _is_own(one, inner)]
    made.set("where", exp.Where(this=exp.and_(*own, copy=False)) if own else None)
    return made, names


def _is_own(condition: exp.Expr, inner: Scope) -> bool:
    """Whether a condition says nothing of the query around a subquery, or has another subquery."""
    return inner.can_tell([condition]) or any(is_subquery(one) for one in condition.find_all(exp.Expression))
