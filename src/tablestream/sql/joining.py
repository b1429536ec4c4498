"""The joins of FROM and the conditions of WHERE, each as soon as its columns are there and stay what they are.

Joins are commutative until an outer one comes: inputs that inner joins, commas and equalities in WHERE connect are
joined together, then the outer join. A condition of WHERE is applied before outer joins where they keep its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from tablestream.connectors.sink import quoted
from tablestream.sql.clusters import clustered, inner_join
from tablestream.sql.conditions import SUBQUERIES, Condition, Input, Known, merged, null_extended
from tablestream.sql.context import Context
from tablestream.sql.equalities import Equality, equalities, in_one_type
from tablestream.sql.handles import with_values
from tablestream.sql.joins import Joined, in_order, join
from tablestream.sql.matches import semi_join
from tablestream.sql.parse import beginning, placed, span
from tablestream.sql.rows import Rows, Visible, unique
from tablestream.sql.scope import REFUSED, Scope, filtered, own_columns
from tablestream.sql.shapes import outer_columns
from tablestream.streams import Stream
from tablestream.tables import Table

#: The table of the columns that say whether a condition with a subquery holds: no query has its name.
_COMPUTED = "(on)"


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
    left, right, on = _computed(given.on, left, given.rows, given.how, context)
    count = len(left.visible)
    if given.how in {"semi", "anti"}:
        pairs = [(one.left, one.right) for one in _equalities_of_using(using, left, right, context)]
        return _without_computed(semi_join(left, right, on, pairs, given.how, context))
    if given.how == "full":
        equal, others = _compared(on, using, left, right, context)
        rows = join(Joined(context, left, right, tuple(equal), tuple(others)), "outer")
        return _without_computed(_coalesced(rows, using, count))
    if given.how == "inner":
        equal, others = _compared(on, using, left, right, context)
        rows = inner_join(left, right, equal, others, "ON", context)
    elif given.how == "right":
        rows = in_order(_left_join(right, left, on, using, context), right)
    else:
        rows = _left_join(left, right, on, using, context)
    return _without_computed(replace(rows, visible=merged(rows.visible, using, given.how, count, rows.fold)))


def _compared(
    on: Sequence[exp.Expr], using: Sequence[exp.Identifier], left: Rows, right: Rows, context: Context
) -> tuple[list[Equality], list[exp.Expr]]:
    """The equalities of ON and USING, and the other conditions."""
    equal, others = equalities(on, left, right, context)
    return [*equal, *_equalities_of_using(using, left, right, context)], others


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


def _equalities_of_using(
    using: Sequence[exp.Identifier], left: Rows, right: Rows, context: Context
) -> list[Equality]:
    """The equalities that USING stands for."""
    found = []
    for name in using:
        scopes = Scope(left, context, "USING"), Scope(right, context, "USING")
        mine, theirs = (_qualified(name, one) for one in scopes)
        node = exp.EQ(this=mine, expression=theirs)
        found.append(Equality(node, *in_one_type(mine, theirs, *scopes)))
    return found


def _qualified(name: exp.Identifier, scope: Scope) -> exp.Column:
    """A column of one side, with the name of its input."""
    found = scope.column(exp.Column(this=name.copy()))
    if found is None:
        raise scope.context.refuse(
            name, "USING", f"There is no column {name.name} on one side.", "Write ON with both columns."
        )
    return exp.Column(this=name.copy(), table=exp.Identifier(this=found.source, quoted=True))


def _coalesced(rows: Rows, using: Sequence[exp.Identifier], left: int) -> Rows:
    """Show the columns of USING of a FULL JOIN once: whichever side has a row."""
    if not using:
        return rows
    made: dict[str, str] = {}
    shown: list[Visible] = []
    for one in using:
        name = rows.fold(one.name)
        pair = [quoted(it.column) for it in rows.visible if rows.fold(it.name) == name and not it.merged]
        column = unique(f"{one.name}_merged", [*rows.table.columns, *made], rows.fold)
        made[column] = f"coalesce({', '.join(pair)})"
        shown.append(Visible("", one.name, column))
    table = rows.table.with_columns(**made)
    assert isinstance(table, Table)  # noqa: S101 - outer joins are of tables
    return Rows(table, (*shown, *merged(rows.visible, using, "full", left, rows.fold)))


def _computed(
    on: Sequence[exp.Expr], left: Rows, right: Rows, how: str, context: Context
) -> tuple[Rows, Rows, list[exp.Expr]]:
    """Compute the conditions that have subqueries; return the sides, and conditions without subqueries.

    Each is computed before the join, for the side that it names. A side whose rows the join does not keep is filtered.
    The other one has a column that says whether the condition holds.
    """
    sides, found = [left, right], list[exp.Expr]()
    filters = {"left": 1, "semi": 1, "anti": 1, "right": 0}.get(how)
    for number, one in enumerate(on, 1):
        if one.find(*SUBQUERIES) is None:
            found.append(one)
            continue
        at = _side_of(one, sides, context)
        rows = sides[at]
        scope, columns = Scope(rows, context, "ON"), {it.column: it.column for it in rows.visible}
        table = context.subqueries([one], rows, scope, context).table
        text = scope.sql(one)
        if REFUSED in text:
            continue
        if at == filters:
            sides[at] = replace(rows, table=with_values(table.filter(text), columns))
            continue
        name = unique(f"on_{number}", table.columns, rows.fold)
        table = with_values(table.with_columns(**{name: text}), {**columns, name: name})
        shown = Visible(_COMPUTED, name, name, merged=True, hidden=True)
        sides[at] = replace(rows, table=table, visible=(*rows.visible, shown))
        found.append(placed(exp.column(name, table=_COMPUTED, quoted=True), span(one)))
    return sides[0], sides[1], found


def _without_computed(rows: Rows) -> Rows:
    """The rows of the join without the columns of `_computed`."""
    return replace(rows, visible=tuple(one for one in rows.visible if one.source != _COMPUTED))


def _side_of(node: exp.Expr, sides: Sequence[Rows], context: Context) -> int:
    """The number of the side that a condition names; of one that names none, the second."""
    if any(isinstance(one.table, Stream) or one.as_of is not None for one in sides):
        said = "A subquery in ON of a join that looks up versions, or of a stream, is not maintained."
        raise context.refuse(node, "ON", said, "Join a query in FROM that has the condition in its WHERE.")
    both = Scope(replace(sides[0], visible=(*sides[0].visible, *sides[1].visible)), context, "ON")
    columns = [one for one in outer_columns(node, context) if both.column(one) or both.tells(one)]
    scopes = [Scope(one, context, "ON") for one in sides]
    named = [number for number, scope in enumerate(scopes) if any(map(scope.tells, columns))]
    if len(named) > 1:
        said = "A subquery in ON that names both sides of this join is not maintained."
        instead = "Join a query in FROM that has the condition in its WHERE."
        raise context.refuse(node, "ON", said, instead)
    return named[0] if named else 1
