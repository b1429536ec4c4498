"""Inner joins: inputs that conditions connect, in an order in which keys find most rows.

An input that another one finds by its whole key is joined with that one first: orders with their customers, then lines
with these orders. So a change of a line looks up one row in place of two, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from tablestream.sql.conditions import Condition
from tablestream.sql.context import Context
from tablestream.sql.equalities import Equality, equalities
from tablestream.sql.joins import Joined, is_one_row, join
from tablestream.sql.rows import Rows
from tablestream.sql.scope import Scope, filtered
from tablestream.streams import Stream
from tablestream.tables import GlobalTable


def clustered(
    inputs: Sequence[Rows], pool: Sequence[Condition], context: Context
) -> tuple[Rows, list[Condition]]:
    """Join inputs by inner joins; return also the conditions that they do not have the columns for."""
    found = []
    rest = list(pool)
    for rows in inputs:
        for one in [one for one in rest if one.is_early and one.sources <= rows.sources]:
            rows = filtered(rows, one.node, one.clause, context)  # noqa: PLW2901 - the same rows, fewer
            rest.remove(one)
        found.append(rows)
    order = _order(found, rest, context)
    finders = [_finder(one, order[:number], rest, context) for number, one in enumerate(order)]
    return _grown(order[0], order, finders, rest, context)


def _grown(
    rows: Rows,
    order: Sequence[Rows],
    finders: Sequence[Rows | None],
    pool: Sequence[Condition],
    context: Context,
) -> tuple[Rows, list[Condition]]:
    """Join an input with those that it finds, each of which is joined with those that it finds itself before."""
    joined, rest = rows, list(pool)
    for one in [one for one, finder in zip(order, finders, strict=True) if finder is rows]:
        following, rest = _grown(one, order, finders, rest, context)
        sources = joined.sources | following.sources
        between = [one for one in rest if one.is_early and one.sources <= sources]
        rest = [one for one in rest if one not in between]
        equal, others = equalities([one.node for one in between], joined, following, context)
        joined = inner_join(joined, following, equal, others, "WHERE", context)
    return replace(joined, place=rows.place), rest


def _finder(rows: Rows, before: Sequence[Rows], pool: Sequence[Condition], context: Context) -> Rows | None:
    """The input that is joined with another one: the only one that its key needs, or the first of all."""
    if not before or isinstance(before[0].table, Stream) or rows.as_of is not None:
        return before[0] if before else None
    tables = (one for one in before if one.as_of is None and not isinstance(one.table, GlobalTable))
    return next((one for one in tables if _closeness(one, rows, pool, context) == 3), before[0])


def inner_join(
    left: Rows,
    right: Rows,
    equal: Sequence[Equality],
    others: Sequence[exp.Expr],
    clause: str,
    context: Context,
) -> Rows:
    """An inner join; conditions that do not find rows filter them afterwards."""
    joined = Joined(context, left, right, tuple(equal))
    used = {id(one.node) for one in joined.found_by()}
    with context.reasons.placed(right.place, "JOIN"):
        rows = join(joined, "inner")
    for node in [*others, *(one.node for one in equal if id(one.node) not in used)]:
        rows = filtered(rows, node, clause, context)
    return rows


def _order(inputs: Sequence[Rows], pool: Sequence[Condition], context: Context) -> list[Rows]:
    """The order in which most joins find the rows of an input by its whole key."""
    begins = [one for one in inputs if isinstance(one.table, Stream)] or [
        one for one in inputs if not isinstance(one.table, GlobalTable) and one.as_of is None
    ]
    tried = [_from(begin, inputs, pool, context) for begin in begins or inputs]
    return max(tried, key=lambda one: one[0])[1]


def _from(
    begin: Rows, inputs: Sequence[Rows], pool: Sequence[Condition], context: Context
) -> tuple[int, list[Rows]]:
    """The inputs in the order in which they are found from one of them, and how many by their keys."""
    order, open_rows, score = [begin], [one for one in inputs if one is not begin], 0
    ranks: dict[int, int] = {}
    while open_rows:
        known = Rows(begin.table, tuple(one for rows in order for one in rows.visible))
        for one in open_rows:
            if id(one) not in ranks or one.as_of is not None or _meet(order[-1], one, pool):
                ranks[id(one)] = _closeness(known, one, pool, context)
        following = max(open_rows, key=lambda one: ranks[id(one)])
        best = ranks[id(following)]
        score += 100 * (best == 3) + best
        order.append(following)
        open_rows = [one for one in open_rows if one is not following]
    return score, order


def _meet(one: Rows, other: Rows, pool: Sequence[Condition]) -> bool:
    """Whether a condition has columns of both inputs."""
    return any(item.sources & one.sources and item.sources & other.sources for item in pool)


def _closeness(known: Rows, rows: Rows, pool: Sequence[Condition], context: Context) -> int:
    """How an input can be joined: 3 by its key, 2 as one row, 1 by other equalities, 0 not."""
    sources = known.sources | rows.sources
    nodes = [
        one.node for one in pool if one.sources & rows.sources and one.sources <= sources and one.is_early
    ]
    equal, _ = equalities(nodes, known, rows, context)
    time = None if rows.as_of is None else rows.as_of.time
    if time is not None and not Scope(known, context, "AS OF").can_tell([time]):
        return 0
    if Joined(context, known, rows, tuple(equal)).pointers() is not None:
        return 3
    if is_one_row(rows):
        return 2
    return 1 if equal else 0
