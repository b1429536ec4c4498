"""The columns by which the query around a subquery finds its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from tablestream.sql.matches import Related
from tablestream.sql.parse import unwrapped, with_type, wrapped
from tablestream.sql.rows import Rows, Visible, unique
from tablestream.sql.scope import Scope

#: The table of these columns: no query has its name.
COMPARED_BY = "(compared by)"


def compared_columns(
    found: Related, keys: Sequence[str]
) -> tuple[tuple[Visible, ...], tuple[tuple[exp.Expr, exp.Expr], ...]]:
    """The columns of `by_pairs` under names that no query has, and the pairs with them."""
    visible = tuple(Visible(COMPARED_BY, one, one, merged=True, hidden=True) for one in dict.fromkeys(keys))
    pairs = []
    for (theirs, mine), key in zip(found.pairs, keys, strict=True):
        by: exp.Expr = exp.column(key, table=COMPARED_BY, quoted=True)
        pairs.append((theirs, by if unwrapped(mine) is mine else wrapped(by)))
    return visible, tuple(pairs)


def with_columns_of(
    rows: Rows, nodes: Sequence[exp.Expr], wanted: Sequence[str], scope: Scope
) -> tuple[Rows, list[str]]:
    """Rows that have columns of expressions, and their names: those that are columns already, or the wanted ones.

    Each has a column of its own.
    """
    own = [scope.name(one) for one in nodes]
    own = [None if one in own[:number] else one for number, one in enumerate(own)]
    names = [one or free for one, free in zip(own, free_names(wanted, rows), strict=True)]
    new = {name: with_type(node) for one, name, node in zip(own, names, nodes, strict=True) if one is None}
    if not new:
        return rows, names
    added = {name: scope.sql(node) for name, node in new.items()}
    return replace(rows, table=rows.table.with_columns(**added)), names


def free_names(wanted: Sequence[str], rows: Rows) -> list[str]:
    """Names for new columns of rows."""
    found: list[str] = []
    for one in wanted:
        found.append(unique(one, [*rows.table.columns, *found], rows.fold))
    return found
