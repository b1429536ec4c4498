"""The joins of FROM and the conditions of WHERE, each as soon as its columns are there and stay what they are.

Joins are commutative until an outer one comes: inputs that inner joins, commas and equalities in WHERE connect are
joined together, then the outer join. A condition of WHERE is applied before outer joins where they keep its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from tablestream.sql.clusters import clustered, inner_join
from tablestream.sql.conditions import Condition, Input, Known, null_extended
from tablestream.sql.context import Context
from tablestream.sql.equalities import Equality, equalities
from tablestream.sql.joins import Joined, in_order, join
from tablestream.sql.matches import semi_join
from tablestream.sql.on_subqueries import computed, without_computed
from tablestream.sql.parse import beginning
from tablestream.sql.rows import Rows
from tablestream.sql.scope import Scope, filtered, own_columns
from tablestream.sql.using import coalesced, equalities_of_using, merged


def joined(
    inputs: Sequence[Input], where: Sequence[exp.Expr], context: Context
) -> tuple[Rows, list[exp.Expr]]:
    """Join all inputs, and apply the conditions; return those that remain: without columns, or with subqueries."""
    known = Known.after_each(inputs)
    conditions = [known[-1].condition(one, "WHERE") for one in where]
    pool, late = _ready([one for one in conditions if one.is_early], inputs, 0)
    cluster = [inputs[0].rows]
    for number, one in enumerate(inputs[1:], 1):
        if one.is_commutative:
            cluster.append(one.rows)
            pool += [known[number].condition(node, "ON") for node in one.on]
            continue
        left, pool = clustered(cluster, pool, context)
        if one.how in {"right", "full"}:
            left, pool = _settled(left, pool, context)
        given = one.rows
        if one.how in {"inner", "right"}:
            given, pool = clustered([given], pool, context)
        cluster = [_joined_with(left, replace(one, rows=given), context)]
        ready, late = _ready(late, inputs, number)
        pool += ready
    rows, rest = clustered(cluster, pool, context)
    return rows, [*(one.node for one in rest), *(one.node for one in conditions if not one.is_early)]


def _ready(
    conditions: Sequence[Condition], inputs: Sequence[Input], number: int
) -> tuple[list[Condition], list[Condition]]:
    """The conditions whose columns no join after a place can make null, and the others."""
    extended = null_extended(inputs, number)
    ready = [one for one in conditions if not one.sources & extended]
    return ready, [one for one in conditions if one.sources & extended]


def _settled(rows: Rows, pool: Sequence[Condition], context: Context) -> tuple[Rows, list[Condition]]:
    """Apply what remains of ON before a join that adds rows which it does not filter."""
    for one in pool:
        if one.clause == "ON":
            rows = filtered(rows, one.node, "ON", context)
    return rows, [one for one in pool if one.clause != "ON"]


def _joined_with(left: Rows, given: Input, context: Context) -> Rows:
    """A join whose place matters."""
    using = given.common(left)
    left, right, on = computed(given.on, left, given.rows, given.how, context)
    count = len(left.visible)
    if given.how in {"semi", "anti"}:
        pairs = [(one.left, one.right) for one in equalities_of_using(using, left, right, context)]
        return without_computed(semi_join(left, right, on, pairs, given.how, context))
    if given.how == "full":
        equal, others = _compared(on, using, left, right, context)
        rows = join(Joined(context, left, right, tuple(equal), tuple(others)), "outer")
        return without_computed(coalesced(rows, using, count))
    if given.how == "inner":
        equal, others = _compared(on, using, left, right, context)
        rows = inner_join(left, right, equal, others, "ON", context)
    elif given.how == "right":
        rows = in_order(_left_join(right, left, on, using, context), right)
    else:
        rows = _left_join(left, right, on, using, context)
    return without_computed(replace(rows, visible=merged(rows.visible, using, given.how, count, rows.fold)))


def _compared(
    on: Sequence[exp.Expr], using: Sequence[exp.Identifier], left: Rows, right: Rows, context: Context
) -> tuple[list[Equality], list[exp.Expr]]:
    """The equalities of ON and USING, and the other conditions."""
    equal, others = equalities(on, left, right, context)
    return [*equal, *equalities_of_using(using, left, right, context)], others


def _left_join(
    left: Rows, right: Rows, on: Sequence[exp.Expr], using: Sequence[exp.Identifier], context: Context
) -> Rows:
    """Keep the left rows. What is said of the right side alone filters it before."""
    lefts, rights = Scope(left, context, "ON"), Scope(right, context, "ON")
    mine = [
        one for one in on if any(own_columns(one)) and rights.can_tell([one]) and not lefts.can_tell([one])
    ]
    guards = [one for one in on if one not in mine and lefts.can_tell([one])]
    for one in mine:
        right = filtered(right, one, "ON", context)
    rest = [one for one in on if one not in mine and one not in guards]
    equal, others = _compared(rest, using, left, right, context)
    joined = Joined(context, left, right, tuple(equal), tuple(others), tuple(guards))
    place = beginning(on[0]) if on else right.place
    with context.reasons.placed(place, "ON"):
        return join(joined, "left")
