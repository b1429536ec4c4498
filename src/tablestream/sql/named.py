"""WITH: queries that have a name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from sqlglot import exp

from tablestream.sql.context import Context, Result


def with_names(query: exp.Expr, context: Context) -> Context:
    """The context with the queries that WITH names."""
    named = query.args.get("with_")
    if named is None:
        return context
    if named.args.get("recursive"):
        raise context.refuse(
            named.expressions[0],
            "WITH RECURSIVE",
            "Recursion is not maintained.",
            "Write the steps as queries.",
        )
    seen = set[str]()
    for one in named.expressions:
        if one.alias.lower() in seen:
            raise context.refuse(one, "WITH", f"Two queries are called {one.alias}.", "Rename one.")
        seen.add(one.alias.lower())
        context = replace(context, tables={**context.tables, one.alias.lower(): _lazily(one, context)})
    return context


def is_named_around(table: exp.Table) -> bool:
    """Whether a WITH around the name of a table has a query of that name."""
    name, inside = table.name.lower(), set[int]()
    around: exp.Expr | None = table
    while around is not None:
        inside.add(id(around))
        named = around.args.get("with_")
        queries = named.expressions if isinstance(named, exp.With) else []
        # A query of WITH names those before it; of its own name it means what is further out.
        before = next((n for n, one in enumerate(queries) if id(one) in inside), len(queries))
        if any(one.alias.lower() == name for one in queries[:before]):
            return True
        around = around.parent
    return False


def _lazily(named: exp.CTE, context: Context) -> Callable[[], Result]:
    """A query that WITH names, made once, when it is first read."""

    @cache
    def made() -> Result:
        result = context.result(named.this)
        rows = result.rows(named.alias, named.alias_column_names)
        return Result(result.table, {one.name: one.column for one in rows.visible})

    return made
