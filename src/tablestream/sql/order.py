"""ORDER BY with LIMIT: the first rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import functions as F
from sqlglot import exp
from sqlglot.optimizer.simplify import simplify

from tablestream import functions as tf
from tablestream.connectors.sink import quoted
from tablestream.handles.grouping import has_order
from tablestream.handles.relation import ALL_ROWS
from tablestream.sql.context import Context
from tablestream.sql.joins import is_one_row
from tablestream.sql.output import Item, place_in_select
from tablestream.sql.parse import beginning
from tablestream.sql.refusals import PartRefusedError
from tablestream.sql.rows import Rows, unique
from tablestream.sql.scope import Scope
from tablestream.tables import Table


def limited(
    query: exp.Query,
    rows: Rows,
    items: Sequence[Item],
    texts: Sequence[str],
    scope: Scope,
    partition: Sequence[Any] = (),
) -> Rows:
    """Keep the rows that LIMIT and OFFSET leave of each partition; without them the order of rows is nobody's."""
    context = scope.context
    order, offset = (query.args.get(one) for one in ("order", "offset"))
    limit = limit_of(query)
    ordered_by = ordering(order.expressions if order else [], items, texts, scope)
    if limit is None and offset is None:
        return rows
    node: Any = offset if limit is None else limit
    if order is None:
        context.reasons.add(unordered(node, context))
        return rows
    count, skipped = _kept(query, context)
    if count == 0 or (is_one_row(rows) and not partition):
        return replace(rows, table=rows.table.filter("false")) if count == 0 or skipped else rows
    has_ties = is_special(node)
    if has_ties and node.args["limit_options"].args.get("percent"):
        raise context.refuse(node, "LIMIT", "PERCENT is not maintained.", "Write a number of rows.")
    last = None if count is None else count + skipped
    with context.reasons.placed(beginning(order), "ORDER BY"):
        if last is None or has_ties:
            return _numbered(rows, last, skipped, partition, ordered_by, context, node)
        rows, rank = first_rows(rows, last, partition, ordered_by, "rank", context, node)
        return replace(rows, table=rows.table.filter(f"{quoted(rank)} > {skipped}")) if skipped else rows


def only_place(query: exp.Expr, context: Context) -> int | None:
    """The place, from 1, of the one row that LIMIT 1 keeps; None: it may keep several, or no order says which."""
    limit = limit_of(query)
    if limit is None or is_special(limit) or query.args.get("order") is None:
        return None
    count, skipped = _kept(query, context)
    return skipped + 1 if count == 1 else None


def _kept(query: exp.Expr, context: Context) -> tuple[int | None, int]:
    """How many rows LIMIT keeps, None: all; and how many before them OFFSET leaves out."""
    limit, offset = limit_of(query), query.args.get("offset")
    count = None if limit is None else _number(limit, "LIMIT", context)
    return count, 0 if offset is None else _number(offset, "OFFSET", context)


def _numbered(
    rows: Rows,
    last: int | None,
    skipped: int,
    partition: Sequence[Any],
    order: Sequence[tuple[str, bool]],
    context: Context,
    node: exp.Expr,
) -> Rows:
    """The rows behind the skipped ones of each partition, up to those that tie with the last one; None: all."""
    table = _ordered_table(rows, order, context, node)
    taken = table.columns
    number, rank = unique("number", taken, rows.fold), unique("rank", taken, rows.fold)
    # Null is the least value in `over`.
    every = [one for text, down in order for one in ((f"({text}) IS NULL", False), (text, down))]
    columns: dict[str, Any] = {number: tf.row_number(), rank: tf.rank()}
    downs = [down for _, down in every]
    table = table.group_by(*partition).over([text for text, _ in every], descending=downs, **columns)
    ties = "" if last is None else f" AND {quoted(rank)} <= {last}"
    return replace(rows, table=table.filter(f"{quoted(number)} > {skipped}{ties}"))


def first_of_each(
    on: Sequence[exp.Expr],
    query: exp.Select,
    rows: Rows,
    items: Sequence[Item],
    texts: Sequence[str],
    scope: Scope,
) -> Rows:
    """The first row of each group of DISTINCT ON."""
    order = query.args.get("order")
    given = ordering(order.expressions if order else [], items, texts, scope)
    found = list(dict.fromkeys(_ordered_by(one, items, texts, scope) for one in on))
    names = {quoted(one): one for one in rows.table.columns}
    partition = [
        names.get(one) or F.expr(f"{one} AS distinct_{number}") for number, one in enumerate(found, 1)
    ]
    with scope.context.reasons.placed(beginning(on[0]), "DISTINCT ON"):
        return first_rows(rows, 1, partition, given, "rank", scope.context, on[0])[0]


def takes_first(query: exp.Expr) -> bool:
    """Whether a query keeps the first rows of what it finds."""
    return distinct_on(query) is not None or bool(query.args.get("limit") or query.args.get("offset"))


def distinct_on(query: exp.Expr) -> exp.Tuple | None:
    """What DISTINCT ON names; None: a query has none."""
    distinct = query.args.get("distinct")
    return distinct.args.get("on") if isinstance(distinct, exp.Distinct) else None


def limit_of(query: exp.Expr) -> exp.Limit | None:
    """The LIMIT of a query; ``LIMIT ALL`` is none."""
    limit: exp.Limit | None = query.args.get("limit")
    is_all = limit is not None and isinstance(limit.expression, exp.Var) and limit.expression.name == "ALL"
    return None if is_all else limit


def is_special(limit: exp.Expr) -> bool:
    """Whether a LIMIT says ``WITH TIES`` or ``PERCENT``."""
    options = limit.args.get("limit_options")
    return options is not None and any(map(options.args.get, ("with_ties", "percent")))


def unordered(node: exp.Expr, context: Context) -> PartRefusedError:
    """Return the reason against LIMIT without ORDER BY."""
    return context.refuse(
        node,
        "LIMIT",
        "LIMIT without ORDER BY keeps rows of which nobody can tell which they are.",
        "Write ORDER BY before it.",
    )


def ordering(
    nodes: Sequence[exp.Expr], items: Sequence[Item], texts: Sequence[str], scope: Scope
) -> list[tuple[str, bool]]:
    """What rows are ordered by, as SQL, each with whether the greatest comes first. Nulls are last in `top`."""
    found: list[tuple[str, bool]] = []
    for one in nodes:
        with scope.context.reasons.part(beginning(one), "ORDER BY"):
            is_all = items and isinstance(one.this, exp.Var)  # ORDER BY ALL
            for text in texts if is_all else [_ordered_by(one.this, items, texts, scope)]:
                if one.args.get("nulls_first"):
                    found.append((f"({text}) IS NULL", True))
                found.append((text, bool(one.args.get("desc"))))
    return found


def _ordered_by(node: exp.Expr, items: Sequence[Item], texts: Sequence[str], scope: Scope) -> str:
    """An element of ORDER BY: a place in SELECT, a column of the result, or an expression."""
    place = place_in_select(node, len(items), "ORDER BY", scope.context) if items else None
    if place is not None:
        return texts[place]
    if isinstance(node, exp.Column) and len(node.parts) == 1:
        for item, text in zip(items, texts, strict=False):
            if scope.rows.fold(item.name) == scope.rows.fold(node.name):
                return text
    named = {
        scope.same(exp.column(item.name, quoted=True)): f"({text})"
        for item, text in zip(items, texts, strict=False)
        if item.named
    }
    return replace(scope, made=scope.made | named).sql(node)


def _number(node: exp.Expr, clause: str, context: Context) -> int:
    given = simplify(node.expression.copy())
    if not isinstance(given, exp.Literal) or not given.name.isdigit():
        raise context.refuse(node, clause, f"{clause} needs a whole number.", "Write it as a number.")
    return int(given.name)


def first_rows(
    rows: Rows,
    count: int,
    partition: Sequence[Any],
    order: Sequence[tuple[str, bool]],
    rank: str,
    context: Context,
    node: exp.Expr,
) -> tuple[Rows, str]:
    """The first rows of each partition; rows with equal values in the order of their key."""
    table = _ordered_table(rows, order, context, node)
    schema, said, taken = table.schema, {text for text, _ in order}, table.columns
    ties = [(quoted(one), False) for one in table.key_columns if has_order(schema[one].dataType)]
    every = [*order, *(one for one in ties if one[0] not in said)]
    if not partition and ALL_ROWS in taken:  # the first rows of first rows
        partition = [F.expr(f"true AS {unique(ALL_ROWS, taken, rows.fold)}")]
    name = unique(rank, taken, rows.fold)
    table = table.group_by(*partition).top(
        count, [text for text, _ in every], descending=[down for _, down in every], rank=name
    )
    return replace(rows, table=table), name


def _ordered_table(rows: Rows, order: Sequence[tuple[str, bool]], context: Context, node: exp.Expr) -> Table:
    """The table of rows that have first ones."""
    if not isinstance(rows.table, Table):
        raise context.refuse(
            node, "ORDER BY", "A stream's records have no first ones.", "Read it as a table."
        )
    if not order:
        raise context.refuse(node, "ORDER BY", "The rows have no order.", "Write ORDER BY.")
    return rows.table
