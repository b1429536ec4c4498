"""ORDER BY with LIMIT, and ROW_NUMBER with a bound: the first rows of a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import functions as F
from sqlglot import exp

from tablestream.connectors.sink import quoted
from tablestream.handles.grouping import has_order
from tablestream.sql.context import Context
from tablestream.sql.from_ import ranking_bounds
from tablestream.sql.joins import is_one_row
from tablestream.sql.output import Item
from tablestream.sql.parse import beginning
from tablestream.sql.refusals import PartRefusedError
from tablestream.sql.rows import Rows, unique
from tablestream.sql.scope import Scope, conjuncts
from tablestream.tables import Table


def limited(
    query: exp.Query, rows: Rows, items: Sequence[Item], texts: Sequence[str], scope: Scope, context: Context
) -> Rows:
    """Keep the rows that LIMIT and OFFSET leave; without them the order of rows is nobody's."""
    order, limit, offset = (query.args.get(one) for one in ("order", "limit", "offset"))
    texts_of = _order(order.expressions if order else [], items, texts, scope, context)
    if limit is None and offset is None:
        return rows
    node: Any = offset if limit is None else limit
    if order is None:
        context.reasons.add(unordered(node, context))
        return rows
    if limit is None:
        raise context.refuse(node, "OFFSET", "OFFSET without LIMIT is not maintained.", "Write LIMIT, too.")
    count, skipped = _number(limit, "LIMIT", context), _number(offset, "OFFSET", context) if offset else 0
    if is_one_row(rows):
        return rows if count and not skipped else replace(rows, table=rows.table.filter("false"))
    if count < 1:
        raise context.refuse(limit, "LIMIT", "LIMIT 0 has no rows.", "Write a greater number.")
    with context.reasons.placed(beginning(order), "ORDER BY"):
        rows, rank = _first(rows, count + skipped, [], texts_of, "rank", context, limit)
        return replace(rows, table=rows.table.filter(f"{quoted(rank)} > {skipped}")) if skipped else rows


def unordered(node: exp.Expr, context: Context) -> PartRefusedError:
    """Return the reason against LIMIT without ORDER BY."""
    return context.refuse(
        node,
        "LIMIT",
        "LIMIT without ORDER BY keeps rows of which nobody can tell which they are.",
        "Write ORDER BY before it.",
    )


def ranked(
    select: exp.Select, rows: Rows, items: Sequence[Item], scope: Scope, context: Context
) -> tuple[Rows, list[Item]]:
    """Compute the window functions of a query: a row number that has a bound."""
    qualify = select.args.get("qualify")
    nodes = [one.node for one in items] + ([qualify.this] if qualify else [])
    windows = {scope.same(one): one for node in nodes for one in _windows(node)}
    if not windows:
        if qualify is not None:
            raise context.refuse(
                qualify, "QUALIFY", "QUALIFY has no window function.", "Write HAVING or WHERE."
            )
        return rows, list(items)
    if len(windows) > 1:
        raise context.refuse(
            list(windows.values())[1],
            "SELECT",
            "Several window functions are not maintained.",
            "Use one in each query.",
        )
    ((same, window),) = windows.items()
    names = [one.name for one in items if scope.same(one.node) == same]
    bound = _bound(window, names, qualify, scope, context)
    partition = [
        _part(number, one, scope) for number, one in enumerate(window.args.get("partition_by") or [], 1)
    ]
    order = _order(
        window.args["order"].expressions if window.args.get("order") else [], (), (), scope, context
    )
    rows, rank = _first(rows, bound, partition, order, names[0] if names else "rank", context, window)
    scope.made[same] = quoted(rank)
    made = [replace(one, column=rank) if scope.same(one.node) == same else one for one in items]
    if qualify is not None:
        scope.aliases |= {rows.fold(one.name): quoted(rank) for one in made if one.column == rank}
        rows = replace(rows, table=rows.table.filter(scope.sql(qualify.this)))
    return rows, made


def _windows(node: exp.Expr) -> list[exp.Expr]:
    return [
        one
        for one in node.find_all(exp.Window)
        if one.find_ancestor(exp.Query) is node.find_ancestor(exp.Query)
    ]


def _bound(
    window: exp.Expr, names: Sequence[str], qualify: exp.Expr | None, scope: Scope, context: Context
) -> int:
    """How many rows of each partition are wanted."""
    found = {name.lower(): count for name, count in context.bounds.items()}
    for one in conjuncts(qualify.this if qualify is not None else None):
        shown = one.copy()
        for inside in shown.find_all(exp.Window):
            if scope.same(inside) == scope.same(window):
                inside.replace(exp.column("rank of the query"))
        found |= ranking_bounds([shown], "")
    bounds = [found[name] for name in ("rank of the query", *(one.lower() for one in names)) if name in found]
    if not isinstance(window.this, exp.RowNumber) or not bounds:
        raise context.refuse(
            window,
            "SELECT",
            f"The window function {window.this.sql('spark').lower()} is not maintained in this form.",
            "Write ROW_NUMBER() with a bound, as in QUALIFY ROW_NUMBER() OVER (PARTITION BY a ORDER BY b) <= 3.",
        )
    if min(bounds) < 1:
        raise context.refuse(window, "SELECT", "No row has a number below 1.", "Write a greater bound.")
    return min(bounds)


def _part(number: int, node: exp.Expr, scope: Scope) -> Any:
    """A column of a partition, as `group_by` takes it."""
    name = scope.name(node)
    return name or F.expr(f"{scope.sql(node)} AS {quoted(f'partition_{number}')}")


def _order(
    nodes: Sequence[exp.Expr], items: Sequence[Item], texts: Sequence[str], scope: Scope, context: Context
) -> list[tuple[str, bool]]:
    """What rows are ordered by, as SQL, each with whether the greatest comes first. Nulls are last in `top`."""
    found: list[tuple[str, bool]] = []
    for one in nodes:
        with context.reasons.part(beginning(one), "ORDER BY"):
            text = _ordering(one.this, items, texts, scope, context)
            if one.args.get("nulls_first"):
                found.append((f"({text}) IS NULL", True))
            found.append((text, bool(one.args.get("desc"))))
    return found


def _ordering(
    node: exp.Expr, items: Sequence[Item], texts: Sequence[str], scope: Scope, context: Context
) -> str:
    """An element of ORDER BY: a place in SELECT, a column of the result, or an expression."""
    if items and isinstance(node, exp.Literal) and not node.is_string:
        if not 1 <= int(node.name) <= len(items):
            raise context.refuse(
                node, "ORDER BY", f"SELECT has no column {node.name}.", "Name the expression."
            )
        return texts[int(node.name) - 1]
    if isinstance(node, exp.Column) and len(node.parts) == 1:
        for item, text in zip(items, texts, strict=False):
            if scope.rows.fold(item.name) == scope.rows.fold(node.name):
                return text
    return scope.sql(node)


def _number(node: exp.Expr, clause: str, context: Context) -> int:
    given = node.expression
    if not isinstance(given, exp.Literal) or not given.name.isdigit():
        raise context.refuse(node, clause, f"{clause} needs a whole number.", "Write it as a number.")
    return int(given.name)


def _first(
    rows: Rows,
    count: int,
    partition: Sequence[Any],
    order: Sequence[tuple[str, bool]],
    rank: str,
    context: Context,
    node: exp.Expr,
) -> tuple[Rows, str]:
    """The first rows of each partition; rows with equal values in the order of their key."""
    if not isinstance(rows.table, Table):
        raise context.refuse(
            node, "ORDER BY", "A stream's records have no first ones.", "Read it as a table."
        )
    if not order:
        raise context.refuse(node, "ORDER BY", "The rows have no order.", "Write ORDER BY.")
    schema, said = rows.table.schema, {text for text, _ in order}
    ties = [(quoted(one), False) for one in rows.table.key_columns if has_order(schema[one].dataType)]
    every = [*order, *(one for one in ties if one[0] not in said)]
    name = unique(rank, rows.table.columns, rows.fold)
    table = rows.table.group_by(*partition).top(
        count, [text for text, _ in every], descending=[down for _, down in every], rank=name
    )
    return replace(rows, table=table), name
