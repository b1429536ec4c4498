"""Window functions: `top` for a row number that has a bound, `over` for all others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal

from pyspark.sql import functions as F
from pyspark.sql import types as T
from sqlglot import exp

from tablestream import functions as tf
from tablestream.connectors.sink import quoted
from tablestream.functions import WindowFunction
from tablestream.spark.columns import sql_type
from tablestream.sql.aggregates import Aggregates, is_aggregate, word_of
from tablestream.sql.context import Context
from tablestream.sql.from_ import ranking_bounds
from tablestream.sql.handles import selected_type
from tablestream.sql.order import first_rows, ordering
from tablestream.sql.output import Item
from tablestream.sql.parse import beginning, with_type
from tablestream.sql.refusals import PartRefusedError
from tablestream.sql.rows import Rows, unique
from tablestream.sql.scope import REFUSED, Scope, conjuncts
from tablestream.sql.shapes import windows_in
from tablestream.sql.time_windows import length_of
from tablestream.tables import Table

_RANKS: dict[type[exp.Expr], Callable[[], WindowFunction]] = {
    exp.RowNumber: tf.row_number,
    exp.Rank: tf.rank,
    exp.DenseRank: tf.dense_rank,
    exp.PercentRank: tf.percent_rank,
    exp.CumeDist: tf.cume_dist,
}
_FIRST, _LAST = exp.FirstValue | exp.First | exp.AnyValue, exp.LastValue | exp.Last
#: Functions of the numbers of rows, of which some forms are not known.
_NUMBERED = exp.Ntile | exp.NthValue | exp.Lag | exp.Lead


def ranked(select: exp.Select, rows: Rows, items: Sequence[Item], scope: Scope) -> tuple[Rows, list[Item]]:
    """Compute the window functions of a query, and keep the rows for which QUALIFY holds."""
    qualify, context = select.args.get("qualify"), scope.context
    is_bounded = bool(select.args.get("limit") or select.args.get("offset"))
    order = select.args["order"].expressions if is_bounded and select.args.get("order") else []
    nodes = [*(one.node for one in items), *([qualify.this] if qualify else []), *order]
    windows = {scope.same(one): one for node in nodes for one in windows_in(node)}
    if qualify is not None and not windows:
        raise context.refuse(qualify, "QUALIFY", "QUALIFY has no window function.", "Write HAVING or WHERE.")
    if len(windows) == 1 and (bound := _bound(items, qualify, windows, scope)) is not None:
        rows = _numbered(rows, items, *windows.popitem(), bound, scope)
    for same, window in windows.items():
        scope.made[same] = REFUSED
        with context.reasons.part(beginning(window), "OVER"):
            rows, name = _over(rows, window, scope)
            scope.made[same] = quoted(name)
    made = [replace(one, column=scope.name(one.node)) for one in items]
    if qualify is not None:
        with context.reasons.part(beginning(qualify), "QUALIFY"):
            # As in Spark: an alias hides a column, and a plain one only if QUALIFY has no window function of its own.
            is_plain = not windows_in(qualify.this)
            named = {
                rows.fold(one.name): scope.sql(one.node)
                for one in made
                if one.named and (is_plain or windows_in(one.node))
            }
            inside = replace(scope, aliases=scope.aliases | named, hiding=frozenset(named))
            rows = replace(rows, table=rows.table.filter(inside.sql(qualify.this)))
    return rows, made


def define_windows(select: exp.Select, context: Context) -> None:
    """Write what WINDOW says of a window into the functions that name it."""
    known = {one.name.lower(): one for one in select.args.get("windows") or []}
    parts = (*select.expressions, *(select.args[one] for one in ("qualify", "order") if select.args.get(one)))
    named = [one for one in known.values() if one.alias]
    for window in (*named, *(one for part in parts for one in windows_in(part) if one.alias)):
        defined = known.get(window.alias.lower())
        if defined is None:
            raise context.refuse(
                window, "OVER", f"There is no window {window.alias}.", "Define it in WINDOW."
            )
        for part in ("partition_by", "order", "spec"):
            if not window.args.get(part):
                window.set(part, defined.args.get(part))
        window.set("alias", None)


def _bound(
    items: Sequence[Item],
    qualify: exp.Expr | None,
    windows: dict[str, exp.Window],
    scope: Scope,
) -> int | None:
    """How many rows of each partition are wanted; None if the window is no row number with a bound."""
    ((same, window),) = windows.items()
    if not isinstance(window.this, exp.RowNumber) or window.args.get("order") is None:
        return None
    fold = scope.rows.fold
    names = [fold(one.name) for one in items if scope.same(one.node) == same]
    found = {fold(name): count for name, count in scope.context.bounds.items()}
    for one in conjuncts(qualify.this if qualify is not None else None):
        shown = one.copy()
        for inside in shown.find_all(exp.Window):
            if scope.same(inside) == same:
                inside.replace(exp.column("rank of the query"))
        found |= {fold(name): count for name, count in ranking_bounds([shown], "").items()}
    bounds = [found[name] for name in ("rank of the query", *names) if name in found]
    return min(bounds) if bounds and min(bounds) > 0 else None


def _numbered(
    rows: Rows,
    items: Sequence[Item],
    same: str,
    window: exp.Window,
    bound: int,
    scope: Scope,
) -> Rows:
    """The first rows of each partition, with their numbers."""
    names = [one.name for one in items if scope.same(one.node) == same]
    order = ordering(window.args["order"].expressions, (), (), scope)
    rows, rank = first_rows(
        rows, bound, _partition(window, scope), order, names[0] if names else "rank", scope.context, window
    )
    scope.made[same] = quoted(rank)
    return rows


def _partition(window: exp.Window, scope: Scope) -> list[Any]:
    """The columns of a partition, as `group_by` takes them."""
    nodes = {scope.same(one): one for one in window.args.get("partition_by") or []}
    return [
        scope.name(one) or F.expr(f"{scope.sql(with_type(one))} AS {quoted(f'partition_{number}')}")
        for number, one in enumerate(nodes.values(), 1)
    ]


def _over(rows: Rows, window: exp.Window, scope: Scope) -> tuple[Rows, str]:
    """Add a column with the value of a window function."""
    context = scope.context
    if not isinstance(rows.table, Table):
        raise context.refuse(
            window, "OVER", "A stream's records have no window functions.", "Read it as a table."
        )
    function, (frame, between) = _function(window, rows, scope), _frame(window, context)
    given = window.args.get("order")
    order = _window_order(given.expressions if given is not None else [], scope)
    is_far = frame == "range" and any(between)
    if is_far and (given is None or len(given.expressions) != 1):
        raise _no_frame(window, "RANGE with a distance needs one column in ORDER BY.", context)
    if is_far and isinstance(_kind(rows, order[-1][0]), T.DateType):  # whole numbers are days
        between = (_as_days(between[0]), _as_days(between[1]))
    name = unique("window", rows.table.columns, rows.fold)
    columns: dict[str, Any] = {name: function}
    table = rows.table.group_by(*_partition(window, scope)).over(
        [text for text, _ in order] or None,
        descending=[down for _, down in order] or False,
        frame=frame,
        between=between,
        **columns,
    )
    return replace(rows, table=table), name


def _as_days(distance: Any) -> Any:
    return timedelta(days=distance) if isinstance(distance, int) else distance


def _kind(rows: Rows, text: str) -> T.DataType:
    """The type of a column or an expression."""
    shown = quoted(text) if text in rows.table.columns else text
    return selected_type(rows.table, shown)


def _function(window: exp.Window, rows: Rows, scope: Scope) -> Any:
    """The library's function for a window function of SQL."""
    given = window.this
    node = given.this if isinstance(given, exp.IgnoreNulls | exp.RespectNulls) else given
    nulls: dict[str, Any] = {"ignore_nulls": True} if isinstance(given, exp.IgnoreNulls) else {}
    if type(node) in _RANKS:
        return _RANKS[type(node)]()
    another = _of_another(node, rows, scope, nulls)
    if another is not None:
        return another
    aggregate = node.this if isinstance(node, exp.Filter) else node
    is_distinct = any(isinstance(one, exp.Distinct) for one in aggregate.iter_expressions())
    if is_aggregate(node) and not is_distinct and not isinstance(node, _NUMBERED):
        return Aggregates(scope).function(node)
    raise scope.context.refuse(
        window,
        "OVER",
        f"The window function {word_of(node)} is not maintained in this form.",
        "Use one of row_number, rank, dense_rank, percent_rank, cume_dist, ntile, lag, lead, first_value, last_value,"
        " nth_value, and aggregates without DISTINCT.",
    )


def _of_another(node: exp.Expr, rows: Rows, scope: Scope, nulls: dict[str, Any]) -> WindowFunction | None:
    """A function of a number of rows, or of another row; None if it is none."""
    if isinstance(node, exp.Ntile):
        parts = _whole(node.this)
        return tf.ntile(parts) if parts else None
    if isinstance(node, _FIRST | _LAST):
        return (tf.first_value if isinstance(node, _FIRST) else tf.last_value)(
            scope.plain(node.this), **nulls
        )
    if isinstance(node, exp.NthValue):
        number = _whole(node.args["offset"])
        return tf.nth_value(scope.plain(node.this), number, **nulls) if number else None
    if not isinstance(node, exp.Lag | exp.Lead):
        return None
    count, default = _whole(node.args.get("offset") or exp.Literal.number(1)), node.args.get("default")
    if count is None:
        return None
    made = tf.lag if isinstance(node, exp.Lag) == (count >= 0) else tf.lead
    value = scope.plain(node.this)
    text = None if default is None or isinstance(default, exp.Null) else scope.sql(default)
    if _whole(default) is not None and isinstance(kind := _kind(rows, value), T.NumericType):
        text = f"CAST({text} AS {sql_type(kind)})"
    return made(value, abs(count), text, **nulls)


def _whole(node: exp.Expr | None) -> int | None:
    """A whole number, as it is written; None if it is none."""
    is_below, inside = isinstance(node, exp.Neg), node.this if isinstance(node, exp.Neg) else node
    if not isinstance(inside, exp.Literal) or inside.is_string or not inside.name.isdigit():
        return None
    return -int(inside.name) if is_below else int(inside.name)


def _frame(window: exp.Window, context: Context) -> tuple[Literal["range", "rows"], tuple[Any, Any]]:
    """What a frame counts, and how far from the row it begins and ends."""
    spec = window.args.get("spec")
    if spec is None:
        return "range", (None, 0)
    kind = spec.args.get("kind")
    if kind not in {"RANGE", "ROWS"} or spec.args.get("exclude"):
        raise _no_frame(window, "GROUPS and EXCLUDE are not maintained.", context)
    begin, end = (
        _reach(spec.args.get(one), spec.args.get(f"{one}_side"), context) for one in ("start", "end")
    )
    if (spec.args.get("start"), spec.args.get("start_side")) == ("UNBOUNDED", "FOLLOWING") or (
        spec.args.get("end"),
        spec.args.get("end_side"),
    ) == ("UNBOUNDED", "PRECEDING"):
        raise _no_frame(window, "This frame has no rows.", context)
    return "rows" if kind == "ROWS" else "range", (begin, end)


def _reach(given: Any, side: str | None, context: Context) -> float | timedelta | None:
    """How far from the row a frame begins or ends: a number, or a length of time. None: at the end of the partition."""
    if given in {None, "CURRENT ROW"}:
        return 0
    if given == "UNBOUNDED":
        return None
    number = _whole(given)
    far: float | timedelta
    if number is not None:
        far = number
    elif isinstance(given, exp.Literal) and not given.is_string:
        far = float(given.name)
    else:
        far = timedelta(microseconds=length_of(given, "OVER", context))
    return -far if side == "PRECEDING" else far


def _no_frame(window: exp.Window, message: str, context: Context) -> PartRefusedError:
    return context.refuse(
        window, "OVER", message, "Write ROWS or RANGE BETWEEN ... PRECEDING AND ... FOLLOWING."
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
