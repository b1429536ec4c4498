"""One SELECT: FROM and WHERE, then groups, then windows, the columns of the result, and the first rows."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import functions as F
from sqlglot import exp

from tablestream.connectors.sink import quoted
from tablestream.errors import TablestreamError
from tablestream.sql.context import Context, Result
from tablestream.sql.elements import exploded
from tablestream.sql.from_ import from_rows
from tablestream.sql.groups import is_grouped
from tablestream.sql.order import distinct_on, first_of_each, limit_of, limited, unordered
from tablestream.sql.output import Item, items_of, selected, shown_items, typed
from tablestream.sql.parse import beginning
from tablestream.sql.rows import Rows
from tablestream.sql.scope import REFUSED, Scope
from tablestream.sql.sets import distinct
from tablestream.sql.subqueries import groups_with, where, with_subqueries
from tablestream.sql.time_windows import with_windows
from tablestream.sql.windows import define_windows, ranked
from tablestream.topology.clauses import made_for

_REFUSED = {
    "sort": ("SORT BY", "A table has no order.", "Leave it out."),
    "cluster": ("CLUSTER BY", "A table has no order.", "Leave it out."),
    "distribute": ("DISTRIBUTE BY", "The plan says where rows go.", "Leave it out."),
    "match": ("MATCH_RECOGNIZE", "Patterns of rows are not maintained.", ""),
    "connect": ("CONNECT BY", "Recursion is not maintained.", ""),
    "pivots": ("PIVOT", "PIVOT cannot stand here.", "Write FROM (SELECT ...) PIVOT (...)."),
}


def selection(select: exp.Select, context: Context) -> Result:
    """Make a table of a SELECT."""
    for part, (clause, message, instead) in _REFUSED.items():
        if select.args.get(part):
            context.reasons.add(context.refuse(select, clause, message, instead))
    _check_limit(select, context)
    define_windows(select, context)
    if not select.expressions:
        context.reasons.add(context.refuse(select, "SELECT", "SELECT has no columns.", "Name them."))
    rows, rest = from_rows(select, context)
    scope = Scope(rows, context, "WHERE")
    for one in rest:
        with context.reasons.part(beginning(one), "WHERE"):
            rows = where(rows, one, "WHERE", scope, context)
    exploding, rows = exploded(select, rows, context)
    if exploding is not select:
        select, scope = exploding, Scope(rows, context, "SELECT")
    scope.clause = "SELECT"
    rows = with_windows(select, rows, scope)
    if is_grouped(select):
        rows, scope = groups_with(select, rows, scope, context)
    scope.clause = "SELECT"
    items = items_of(select, scope, context)
    rows = with_subqueries([one.node for one in items], rows, scope, context)
    rows, items = ranked(select, rows, items, scope)
    texts = _texts(items, scope)
    shown = shown_items(items, context)
    on = distinct_on(select)
    if select.args.get("distinct") is None or on is not None:
        if on is not None:
            rows = first_of_each(on.expressions, select, rows, items, texts, scope)
        rows = limited(select, rows, items, texts, scope)
        return _result(rows, shown, texts, context)
    _check_distinct(select, items, shown, context)
    result = distinct(_result(rows, shown, texts, context), context, select)
    return first_of(select, result, context, shown)


def _check_distinct(
    select: exp.Select, items: Sequence[Item], shown: Sequence[Item], context: Context
) -> None:
    """Refuse the first rows of DISTINCT under the names of another query."""
    if select.args.get("order") is not None and list(items) != list(shown):
        raise context.refuse(
            select.args["order"],
            "ORDER BY",
            "DISTINCT with ORDER BY in a query of a union is not maintained.",
            "Write it as a subquery in FROM.",
        )


def _check_limit(select: exp.Select, context: Context) -> None:
    """Note that LIMIT has no ORDER BY also where FROM is refused."""
    limit = limit_of(select)
    if limit is not None and select.args.get("order") is None:
        context.reasons.add(unordered(limit, context))


def _texts(items: Sequence[Item], scope: Scope) -> list[str]:
    """The SQL of the columns; each can name those before it."""
    found = []
    for one in items:
        text = ""
        with scope.context.reasons.part(beginning(one.node), "SELECT"):
            text = scope.sql(one.node)
        found.append(text)
        if text:
            scope.aliases.setdefault(scope.rows.fold(one.name), text)
    return found


def _result(rows: Rows, items: Sequence[Item], texts: Sequence[str], context: Context) -> Result:
    """The result; if a column is refused, something with its columns."""
    is_named_once = len({rows.fold(one.name) for one in items}) == len(items)
    if texts and is_named_once and all(texts) and not any(REFUSED in one for one in texts):
        try:
            with made_for(context.reasons.written(beginning(items[0].node))):
                return selected(rows, items, texts)
        except TablestreamError as error:
            _check_each(rows, items, texts, context)
            if not context.reasons.found:
                place = beginning(items[0].node)
                raise context.reasons.at(place, "SELECT", error.reason, error.hint) from error
    else:
        _check_each(rows, items, texts, context)
    return Result(rows.table, {one.name: rows.table.columns[0] for one in items})


def _check_each(rows: Rows, items: Sequence[Item], texts: Sequence[str], context: Context) -> None:
    """Note what is wrong with each column."""
    for item, text in zip(items, typed(rows.table, items, texts)[0], strict=True):
        if item.column is None and text and REFUSED not in text:
            with context.reasons.part(beginning(item.node), "SELECT"):
                rows.table.select(F.expr(text))


def first_of(query: exp.Query, result: Result, context: Context, made_of: Sequence[Item] = ()) -> Result:
    """The first rows of a result, by its own columns, or by the expressions that they are made of."""
    rows = result.rows("", [])
    scope = Scope(rows, context, "ORDER BY")
    others = (one for one in made_of if not scope.can_tell([one.node]))
    scope.made = {scope.same(one.node): quoted(result.columns[one.name]) for one in others}
    items = [Item(one.name, exp.column(one.name, quoted=True), one.column) for one in rows.visible]
    texts = _texts(items, scope)
    kept = limited(query, rows, items, texts, scope)
    return result if kept is rows else selected(kept, items, texts)
