"""Window functions: `top` for a row number that has a bound, `over` for all others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import functions as F
from sqlglot import exp

from tablestream import functions as tf
from tablestream.connectors.sink import quoted
from tablestream.functions import WindowFunction
from tablestream.sql.aggregates import Aggregates
from tablestream.sql.context import Context
from tablestream.sql.from_ import ranking_bounds
from tablestream.sql.order import first_rows, ordering
from tablestream.sql.output import Item
from tablestream.sql.parse import beginning
from tablestream.sql.rows import Rows, unique
from tablestream.sql.scope import REFUSED, Scope, conjuncts
from tablestream.tables import Table

_RANKS: dict[type[exp.Expr], Callable[[], WindowFunction]] = {
    exp.RowNumber: tf.row_number,
    exp.Rank: tf.rank,
    exp.DenseRank: tf.dense_rank,
}
_FRAMED: dict[type[exp.Expr], Callable[[str], WindowFunction]] = {
    exp.FirstValue: tf.first_value,
    exp.First: tf.first_value,
}
_FRAMED |= {exp.LastValue: tf.last_value, exp.Last: tf.last_value}
_AGGREGATES = (exp.Sum, exp.Count, exp.Avg, exp.Min, exp.Max)


def ranked(
    select: exp.Select, rows: Rows, items: Sequence[Item], scope: Scope, context: Context
) -> tuple[Rows, list[Item]]:
    """Compute the window functions of a query, and keep the rows for which QUALIFY holds."""
    qualify = select.args.get("qualify")
    nodes = [one.node for one in items] + ([qualify.this] if qualify else [])
    windows = {scope.same(one): one for node in nodes for one in _windows(node)}
    if qualify is not None and not windows:
        raise context.refuse(qualify, "QUALIFY", "QUALIFY has no window function.", "Write HAVING or WHERE.")
    made = list(items)
    if select.args.get("limit") or select.args.get("offset"):  # what is around it bounds what they leave
        context = replace(context, bounds={})
    if len(windows) == 1 and (bound := _bound(items, qualify, windows, scope, context)) is not None:
        rows, made = _numbered(rows, items, *windows.popitem(), bound, scope, context)
    for same, window in windows.items():
        scope.made[same] = REFUSED
        with context.reasons.part(beginning(window), "OVER"):
            rows, name = _over(rows, window, scope, context)
            scope.made[same] = quoted(name)
    made = [replace(one, column=scope.name(one.node)) for one in made]
    if qualify is not None:
        scope.aliases |= {
            rows.fold(one.name): scope.sql(one.node) for one in made if one.named and _windows(one.node)
        }
        with context.reasons.part(beginning(qualify), "QUALIFY"):
            rows = replace(rows, table=rows.table.filter(scope.sql(qualify.this)))
    return rows, made


def define_windows(select: exp.Select, context: Context) -> None:
    """Write what WINDOW says of a window into the functions that name it."""
    known = {one.name.lower(): one for one in select.args.get("windows") or []}
    parts = (*select.expressions, *(select.args[one] for one in ("qualify", "order") if select.args.get(one)))
    for window in (one for part in parts for one in _windows(part) if one.alias):
        defined = known.get(window.alias.lower())
        if defined is None:
            raise context.refuse(
                window, "OVER", f"There is no window {window.alias}.", "Define it in WINDOW."
            )
        for part in ("partition_by", "order", "spec"):
            if not window.args.get(part):
                window.set(part, defined.args.get(part))
        window.set("alias", None)


def _windows(node: exp.Expr) -> list[exp.Window]:
    """The window functions of an expression, without those of its subqueries."""
    if isinstance(node, exp.Window):
        return [node]
    if isinstance(node, exp.Query):
        return []
    return [found for one in node.iter_expressions() for found in _windows(one)]


def _bound(
    items: Sequence[Item],
    qualify: exp.Expr | None,
    windows: dict[str, exp.Window],
    scope: Scope,
    context: Context,
) -> int | None:
    """How many rows of each partition are wanted; None if the window is no row number with a bound."""
    ((same, window),) = windows.items()
    if not isinstance(window.this, exp.RowNumber) or window.args.get("order") is None:
        return None
    names = [one.name.lower() for one in items if scope.same(one.node) == same]
    found = {name.lower(): count for name, count in context.bounds.items()}
    for one in conjuncts(qualify.this if qualify is not None else None):
        shown = one.copy()
        for inside in shown.find_all(exp.Window):
            if scope.same(inside) == same:
                inside.replace(exp.column("rank of the query"))
        found |= ranking_bounds([shown], "")
    bounds = [found[name] for name in ("rank of the query", *names) if name in found]
    return min(bounds) if bounds and min(bounds) > 0 else None


def _numbered(
    rows: Rows,
    items: Sequence[Item],
    same: str,
    window: exp.Window,
    bound: int,
    scope: Scope,
    context: Context,
) -> tuple[Rows, list[Item]]:
    """The first rows of each partition, with their numbers."""
    names = [one.name for one in items if scope.same(one.node) == same]
    order = ordering(window.args["order"].expressions, (), (), scope, context)
    rows, rank = first_rows(
        rows, bound, _partition(window, scope), order, names[0] if names else "rank", context, window
    )
    scope.made[same] = quoted(rank)
    return rows, list(items)


def _partition(window: exp.Window, scope: Scope) -> list[Any]:
    """The columns of a partition, as `group_by` takes them."""
    return [
        scope.name(one) or F.expr(f"{scope.sql(one)} AS {quoted(f'partition_{number}')}")
        for number, one in enumerate(window.args.get("partition_by") or [], 1)
    ]


def _over(rows: Rows, window: exp.Window, scope: Scope, context: Context) -> tuple[Rows, str]:
    """Add a column with the value of a window function."""
    if not isinstance(rows.table, Table):
        raise context.refuse(
            window, "OVER", "A stream's records have no window functions.", "Read it as a table."
        )
    function, frame = _function(window.this, scope, context), _frame(window, context)
    given = window.args.get("order")
    order = _window_order(given.expressions if given is not None and frame != "all" else [], scope)
    name = unique("window", rows.table.columns, rows.fold)
    columns: dict[str, Any] = {name: function}
    table = rows.table.group_by(*_partition(window, scope)).over(
        [text for text, _ in order] or None,
        descending=[down for _, down in order] or False,
        frame="rows" if frame == "rows" else "range",
        **columns,
    )
    return replace(rows, table=table), name


def _function(node: exp.Expr, scope: Scope, context: Context) -> Any:
    """The library's function for a window function of SQL."""
    if type(node) in _RANKS:
        return _RANKS[type(node)]()
    if type(node) in _FRAMED:
        return _FRAMED[type(node)](scope.plain(node.this))
    if isinstance(node, exp.Lag | exp.Lead):
        offset, default = node.args.get("offset"), node.args.get("default")
        if offset is None or (isinstance(offset, exp.Literal) and offset.name.isdigit()):
            made = tf.lag if isinstance(node, exp.Lag) else tf.lead
            count = 1 if offset is None else int(offset.name)
            return made(scope.plain(node.this), count, None if default is None else scope.sql(default))
    aggregate = node.this if isinstance(node, exp.Filter) else node
    if isinstance(aggregate, _AGGREGATES) and not isinstance(aggregate.this, exp.Distinct):
        return Aggregates(scope, context).function(node)
    raise context.refuse(
        node.find_ancestor(exp.Window) or node,
        "OVER",
        f"The window function {node.sql('spark').split('(')[0].lower()} is not maintained in this form.",
        "Use one of row_number, rank, dense_rank, lag, lead, first_value, last_value, sum, count, avg, min, max.",
    )


def _frame(window: exp.Window, context: Context) -> str:
    """The rows that a function sees: ``range``, ``rows``, or ``all`` rows of the partition."""
    spec = window.args.get("spec")
    if spec is None:
        return "range"
    parts = [str(spec.args.get(one) or "").upper() for one in ("start", "start_side", "end", "end_side")]
    begins = parts[:2] == ["UNBOUNDED", "PRECEDING"]
    if begins and parts[2] in {"", "CURRENT ROW"}:
        return str(spec.args.get("kind") or "range").lower()
    if begins and parts[2:] == ["UNBOUNDED", "FOLLOWING"] and isinstance(window.this, _AGGREGATES):
        return "all"
    raise context.refuse(
        window,
        "OVER",
        "This frame is not maintained.",
        "Use the frame from the first row of the partition to the current one.",
    )


def _window_order(nodes: Sequence[exp.Expr], scope: Scope) -> list[tuple[str, bool]]:
    """What rows are ordered by, each with whether the greatest comes first. Null is the least value in `over`."""
    found = []
    for one in nodes:
        text, down = scope.plain(one.this), bool(one.args.get("desc"))
        if bool(one.args.get("nulls_first")) == down:  # not where the least value stands
            found.append((f"({scope.sql(one.this)}) IS NULL", down))
        found.append((text, down))
    return found
