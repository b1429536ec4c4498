"""A parsed query as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial

from sqlglot import exp

from tablestream.base.calling import user_line
from tablestream.sql.clauses import Placed
from tablestream.sql.context import Context, Result
from tablestream.sql.handles import Handle, begun
from tablestream.sql.lateral import lateral
from tablestream.sql.named import is_named_around, with_names
from tablestream.sql.order import takes_first
from tablestream.sql.parse import beginning, more_parts
from tablestream.sql.refusals import Reasons
from tablestream.sql.select import first_of, selection
from tablestream.sql.sets import combined
from tablestream.sql.subqueries import with_subqueries
from tablestream.sql.text import Text
from tablestream.tables import GlobalTable, Table


def from_select(expression: exp.Expr, tables: Mapping[str, Handle], text: Text) -> Handle:
    """Make a table of a parsed query.

    Parameters
    ----------
    expression
        The query, made by `tablestream.sql.parse.parsed`.
    tables
        What it can name.
    text
        The text that it was parsed from.

    Raises
    ------
    SqlRefusedError
        It cannot be maintained.
    """
    where = user_line()
    reasons = Reasons(text.expanded, Placed.of(expression, text, where).at)
    given = {name.lower(): one for name, one in tables.items()}
    named = {name: cache(lambda one=one: Result.of(one)) for name, one in given.items()}
    read = (
        given.get(one.name.lower())
        for one in sorted(expression.find_all(exp.Table), key=beginning)
        if not is_named_around(one)
    )
    first = next((one for one in read if isinstance(one, Table) and not isinstance(one, GlobalTable)), None)
    row = None if first is None else cache(partial(begun, first))
    context = Context(text.expanded, named, compiled, lateral, with_subqueries, reasons, begun=row)
    made: Handle | None = None
    with reasons.part(beginning(expression), "query"):
        made = compiled(expression, context).handle
    reasons.check(where)
    assert made is not None  # noqa: S101 - or there is a reason
    return made


def compiled(query: exp.Expr, context: Context) -> Result:
    """Make a table of a query within another one, or of the whole."""
    context = with_names(query, context)
    if takes_first(query):  # which rows stay depends on all of them
        context = replace(context, bounds={})
    if isinstance(query, exp.Subquery):
        return _in_parentheses(query, context)
    if isinstance(query, exp.Select):
        return selection(query, context)
    if isinstance(query, exp.SetOperation):
        return first_of(query, combined(query, context), context)
    raise context.refuse(query, type(query).__name__.upper(), "This is no query that can be maintained.", "")


def _in_parentheses(query: exp.Subquery, context: Context) -> Result:
    """The first rows of a query in parentheses, by what is said behind them."""
    known = ["this", "with_", "order", "limit", "offset"]
    known += [] if query.alias_column_names else ["alias"]
    for part in more_parts(query, known):
        raise context.refuse(
            query, "query", f"The {part} of a query in parentheses is not maintained.", "Select from it."
        )
    return first_of(query, compiled(query.this, context), context)
