"""Which rows have a match: the joins of subqueries and of semi and anti joins.

A match is looked up by the whole key of the other rows, or of their groups by what they are compared with. Conditions
that are no equalities need the semi and anti join of `Table.join`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from sqlglot import exp

from tablestream import functions as tf
from tablestream.connectors.sink import quoted
from tablestream.spark.row import LEFT, RIGHT, Row, side_column
from tablestream.sql.context import Context
from tablestream.sql.equalities import compared, in_one_type
from tablestream.sql.joins import key_column
from tablestream.sql.parse import spliced, unwrapped
from tablestream.sql.rows import Rows, unique
from tablestream.sql.scope import Scope, filtered, own_columns
from tablestream.streams import Stream
from tablestream.tables import Table


@dataclass(frozen=True)
class Related:
    """The rows of a subquery, and how the query around it is compared with them.

    Attributes
    ----------
    rows
        The subquery's rows.
    scope
        For its expressions.
    pairs
        What is equal: an expression of the query around it, then one of the subquery.
    others
        Further conditions on both.
    """

    rows: Rows
    scope: Scope
    pairs: tuple[tuple[exp.Expr, exp.Expr], ...]
    others: tuple[exp.Expr, ...]


def paired(node: exp.Expr, inner: Scope, outer: Scope) -> tuple[exp.Expr, exp.Expr] | None:
    """The two sides of an equality between a subquery and the query around it: that of the outer one first."""
    pair = compared(node)
    for mine, theirs in (pair, reversed(pair)) if pair is not None else ():
        columns = list(own_columns(theirs))
        is_outer = bool(columns) and not any(inner.tells(one) for one in columns)
        if is_outer and any(own_columns(mine)) and inner.can_tell([mine]) and _tells(outer, theirs):
            return in_one_type(theirs, mine, outer, inner)
    return None


def _tells(outer: Scope, node: exp.Expr) -> bool:
    """Whether the query around a subquery has an expression: by its columns, or computed already."""
    return outer.same(unwrapped(node)) in outer.made or outer.can_tell([node])


def grouped_by(found: Related, functions: dict[str, Any]) -> tuple[Table, list[str]]:
    """The rows of a subquery, grouped by what it is compared by; and the names of these columns."""
    names = [f"by_{number}" for number in range(1, len(found.pairs) + 1)]
    keys = [
        F.expr(f"{found.scope.sql(mine)} AS {name}")
        for name, (_, mine) in zip(names, found.pairs, strict=True)
    ]
    return found.rows.table.group_by(*keys).agg(**functions), names


def keyed_by(found: Related, *, or_more: bool = False) -> list[exp.Expr] | None:
    """What the query around a subquery says of its whole key, in the key's order; None if it says less, or more."""
    known: dict[str, exp.Expr] = {}
    keys = found.rows.table.key_columns
    for theirs, mine in found.pairs:
        column = key_column(mine, found.scope)
        if column is not None and column in keys and column not in known:
            known[column] = unwrapped(theirs)
        elif not or_more:
            return None
    return [known[key] for key in keys] if set(known) == set(keys) else None


def mark(found: Related, rows: Rows, scope: Scope) -> tuple[Rows, str]:
    """Join whether a subquery has a row."""
    keyed = keyed_by(found)
    if keyed is not None:
        table, outer = found.rows.table, keyed
    else:
        table, _ = grouped_by(found, {"n": tf.count()})
        outer = [theirs for theirs, _ in found.pairs]
        if not outer:
            table = table.filter("n > 0")
    rows, names = looked_up(rows, table, scope.sqls(outer), {"found": None})
    return rows, quoted(names["found"])


def looked_up(
    rows: Rows, table: Any, on: Sequence[str], values: Mapping[str, str | None], how: str = "left"
) -> tuple[Rows, dict[str, str]]:
    """Join a table by its whole key, and add columns of it to rows that may have more than their visible columns.

    Parameters
    ----------
    values
        SQL over the other table's row, by names; None: whether there is a row.

    Returns
    -------
    tuple of Rows and dict
        The rows, and the names of the new columns.
    """
    taken = list(rows.table.columns)
    names: dict[str, str] = {}
    for one in values:
        names[one] = unique(f"subquery_{one}", [*taken, *table.columns, *names.values()], rows.fold)
    kept = [one for one in rows.table.columns if one not in rows.table.key_columns]
    inner = (
        table.with_columns(**{name: values[one] for one, name in names.items() if values[one] is not None})
        if any(values.values())
        else table
    )

    def columns(left: Row, right: Row) -> list[Column]:
        made = [left[one] for one in kept]
        for one, name in names.items():
            made.append(right.exists.alias(name) if values[one] is None else right[name])
        return made

    options: dict[str, Any] = {"on": list(on) or ["true"], "how": how, "select": columns}
    return replace(rows, table=rows.table.join(inner, **options)), names


def matching(rows: Rows, found: Related, scope: Scope, context: Context, how: str) -> Rows:
    """Keep the rows that have a match, or those that have none."""
    if isinstance(rows.table, Stream):
        raise context.refuse(
            found.others[0] if found.others else found.pairs[0][0],
            scope.clause,
            "Only equalities find the rows that a record of a stream has.",
            "Compare for equality alone, or read the records as a table.",
        )
    visible = [replace(one, column=side_column(RIGHT, one.column)) for one in found.scope.rows.visible]
    inner = Scope(Rows(found.rows.table, tuple(visible)), context, "WHERE")
    outer = [replace(one, column=side_column(LEFT, one.column)) for one in scope.rows.visible]
    every = Scope(Rows(rows.table, tuple(one for one in outer)), context, "WHERE")

    def both(column: exp.Expr) -> str | None:
        if not isinstance(column, exp.Column):
            return None
        return (inner if inner.tells(column) else every).sql(column)

    texts = [f"({spliced(one, context.text, both)})" for one in found.others]
    options: dict[str, Any] = {
        "on": scope.sqls(theirs for theirs, _ in found.pairs) or ["true"],
        "right_on": found.scope.sqls(mine for _, mine in found.pairs) or ["true"],
        "how": how,
    }
    if texts:
        options["where"] = lambda *_: F.expr(" AND ".join(texts))
    return replace(rows, table=rows.table.join(found.rows.table, **options))  # type: ignore[arg-type]


def semi_join(
    left: Rows,
    right: Rows,
    on: Sequence[exp.Expr],
    using: Sequence[tuple[exp.Expr, exp.Expr]],
    how: str,
    context: Context,
) -> Rows:
    """LEFT SEMI JOIN and LEFT ANTI JOIN; `using` are pairs that are equal besides the conditions of ON."""
    inner, outer = Scope(right, context, "ON"), Scope(left, context, "ON")
    pairs, others = list(using), list[exp.Expr]()
    for one in on:
        pair = paired(one, inner, outer)
        if pair is not None:
            pairs.append(pair)
        elif inner.can_tell([one]) and not outer.can_tell([one]):
            right = filtered(right, one, "ON", context)
        else:
            others.append(one)
    found = Related(right, replace(inner, rows=right), tuple(pairs), tuple(others))
    if others:
        return matching(left, found, outer, context, f"left_{how}")
    rows, there = mark(found, left, outer)
    return replace(rows, table=rows.table.filter(there if how == "semi" else f"NOT {there}"))
