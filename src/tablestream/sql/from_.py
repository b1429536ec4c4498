"""FROM and WHERE: the inputs are joined in an order that keys allow, and filtered as soon as their columns are there.

Joins are commutative until an outer one comes: inputs that inner joins, commas and equalities in WHERE connect are
joined together, then the outer join. A condition of WHERE is applied before outer joins where they keep its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from tablestream.sql.context import Context
from tablestream.sql.joins import Equality, Joined, is_one_row, join
from tablestream.sql.matches import semi_join
from tablestream.sql.parse import beginning
from tablestream.sql.refusals import PartRefusedError
from tablestream.sql.rows import AmbiguousError, Rows, Visible
from tablestream.sql.scope import Scope, conjuncts, filtered, own_columns
from tablestream.streams import Stream
from tablestream.tables import GlobalTable, Table

_SUBQUERIES = (exp.Subquery, exp.Select)


@dataclass(frozen=True)
class Condition:
    """A condition of WHERE or ON, and the inputs whose columns it has."""

    node: exp.Expr
    clause: str
    sources: frozenset[str]

    @property
    def is_early(self) -> bool:
        """Whether it can be applied before all is joined."""
        return bool(self.sources) and not any(True for _ in self.node.find_all(*_SUBQUERIES))


@dataclass(frozen=True)
class Input:
    """An input of FROM, and how it joins those before it."""

    rows: Rows
    how: str
    on: tuple[exp.Expr, ...]
    using: tuple[str, ...]
    node: exp.Expr


def from_rows(select: exp.Select, context: Context) -> tuple[Rows, list[exp.Expr]]:
    """Join the inputs of a query.

    Returns
    -------
    tuple of Rows and list of Expr
        The rows, and the conditions of WHERE that are not applied yet: those with subqueries or without columns.
    """
    inputs = _inputs(select, context)
    every = Rows(inputs[0].rows.table, tuple(one for given in inputs for one in given.rows.visible))
    where = select.args.get("where")
    conditions = [_condition(one, "WHERE", every) for one in conjuncts(where.this if where else None)]
    extended = _null_extended(inputs)
    early = [one for one in conditions if one.is_early and not one.sources & extended]
    late = [one for one in conditions if one not in early]
    rows, rest = _joined(inputs, early, every, context)
    for one in late:
        if one.is_early:
            rows = filtered(rows, one.node, "WHERE", context)
    return rows, [*(one.node for one in rest), *(one.node for one in late if not one.is_early)]


def _inputs(select: exp.Select, context: Context) -> list[Input]:
    """The inputs of FROM, with the columns that the query names."""
    begin = select.args.get("from_")
    if begin is None:
        raise context.refuse(select, "FROM", "A query without FROM has nothing to maintain.", "Name a table.")
    used = _used_names(select)
    before = len(context.reasons.found)
    found: list[Input] = []
    with context.reasons.part(beginning(begin.this), "FROM"):
        found.append(Input(_pruned(_rows_of(begin.this, context), used), "inner", (), (), begin.this))
    found += _further(begin.this.args.get("joins") or [], context, used)
    found += _further(select.args.get("joins") or [], context, used)
    if len(context.reasons.found) > before and len(found) < 1 + len(select.args.get("joins") or []):
        raise PartRefusedError(context.reasons.found[before])
    for one in select.args.get("laterals") or []:
        raise context.refuse(
            one,
            "LATERAL VIEW",
            "LATERAL VIEW is not maintained.",
            "Use flat_map of the table in Python, and query its result.",
        )
    seen: set[str] = set()
    for one in found:
        twice = one.rows.sources & seen
        if twice:
            raise context.refuse(
                one.node, "FROM", f"Two inputs are called {', '.join(twice)}.", "Give one an alias."
            )
        seen |= one.rows.sources
    return found


def _further(joins: Iterable[exp.Join], context: Context, used: set[str] | None) -> list[Input]:
    """The inputs that joins bring."""
    found: list[Input] = []
    for one in joins:
        with context.reasons.part(beginning(one), "JOIN"):
            found.append(_input(one, context, used))
        if isinstance(one.this, exp.Table):
            found += _further(one.this.args.get("joins") or [], context, used)
    return found


def _input(node: exp.Join, context: Context, used: set[str] | None) -> Input:
    """The input that a join brings, and how."""
    side, kind, method = (node.args.get(name) or "" for name in ("side", "kind", "method"))
    if method == "ASOF":
        raise context.refuse(
            node, "ASOF JOIN", "ASOF JOIN is not maintained here.", "Use as_of= of join in Python."
        )
    on = tuple(conjuncts(node.args.get("on")))
    for condition in on:
        if condition.find(*_SUBQUERIES) is not None:
            raise context.refuse(
                condition,
                "ON",
                "A subquery in ON is not maintained.",
                "Write it in WHERE, or join it in FROM.",
            )
    rows = _rows_of(node.this, context)
    how = kind.lower() if kind in {"SEMI", "ANTI"} else side.lower() or "inner"
    if method == "NATURAL":
        return Input(rows, how, on, ("*",), node)
    using = tuple(name.name for name in node.args.get("using") or [])
    return Input(_pruned(rows, used), how, on, using, node)


def _rows_of(node: exp.Expr, context: Context) -> Rows:
    """The rows of a table or of a subquery in FROM."""
    alias = node.args.get("alias")
    names = [one.name for one in alias.columns] if alias else []
    shown = alias.name if alias else ""
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
        for part in ("version", "sample", "pivots"):
            if node.args.get(part):
                raise context.refuse(node, "FROM", f"A table's {part} is not maintained.", "")
        if node.args.get("db"):
            raise context.refuse(
                node, "FROM", f"There is no table {node.sql('spark')}.", "Name a table without its database."
            )
        made = context.tables.get(node.name.lower())
        if made is None:
            raise context.refuse(
                node, "FROM", f"There is no table {node.name}.", f"Tables are: {', '.join(context.tables)}."
            )
        return replace(made().rows(shown or node.name, names), place=beginning(node))
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query):
        bounds = {} if names else _bounds(node, shown)
        return replace(context.result(node.this, bounds=bounds).rows(shown, names), place=beginning(node))
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table):
        raise context.refuse(
            node, "FROM", "Joins in parentheses are not maintained.", "Write them as a subquery."
        )
    kind = type(node.this if isinstance(node, exp.Table) else node).__name__.upper()
    raise context.refuse(node, "FROM", f"{kind} in FROM is not maintained.", "Name a table or a subquery.")


def _bounds(subquery: exp.Subquery, alias: str) -> dict[str, int]:
    """How many rows of a ranking the query around a subquery wants: ``rank <= 3``, by the names of columns."""
    select = subquery.find_ancestor(exp.Select)
    where = select.args.get("where") if select is not None else None
    return ranking_bounds(conjuncts(where.this if where else None), alias)


def ranking_bounds(conditions: Iterable[exp.Expr], alias: str) -> dict[str, int]:
    """The bounds that conditions put on columns: the greatest whole number that a column can be."""
    found: dict[str, int] = {}
    for one in conditions:
        if not isinstance(one, exp.LTE | exp.LT | exp.EQ | exp.GT | exp.GTE):
            continue
        column, number = (one.left, one.right)
        turned = isinstance(column, exp.Literal)
        if turned:
            column, number = number, column
        is_below = isinstance(one, exp.GT | exp.GTE) if turned else isinstance(one, exp.LT | exp.LTE)
        if not (is_below or isinstance(one, exp.EQ)) or not _is_whole(number):
            continue
        if isinstance(column, exp.Column) and column.table.lower() in {"", alias.lower()}:
            bound = int(number.name) - isinstance(one, exp.LT | exp.GT)
            found[column.name.lower()] = min(bound, found.get(column.name.lower(), bound))
    return found


def _is_whole(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit()


def _used_names(select: exp.Select) -> set[str] | None:
    """The names in a query, which columns may have; None if a star takes all."""
    for one in select.find_all(exp.Star):
        if not isinstance(one.parent, exp.Count) and one.find_ancestor(exp.Exists) is None:
            return None
    return {one.name.lower() for one in select.find_all(exp.Identifier)}


def _pruned(rows: Rows, used: set[str] | None) -> Rows:
    if used is None:
        return rows
    return replace(rows, visible=tuple(one for one in rows.visible if one.name.lower() in used))


def _condition(node: exp.Expr, clause: str, every: Rows) -> Condition:
    """A condition with the inputs that it names."""
    sources = set()
    for one in own_columns(node):
        try:
            found = every.find([part.name for part in one.parts])
        except AmbiguousError:
            return Condition(node, clause, frozenset())
        if found is None:  # a column of the query around this one, or of none
            return Condition(node, clause, frozenset())
        sources.add(every.fold(found[0].source))
    return Condition(node, clause, frozenset(sources))


def _null_extended(inputs: Sequence[Input]) -> set[str]:
    """The inputs whose columns an outer join can make null."""
    found: set[str] = set()
    for number, one in enumerate(inputs):
        if one.how in {"left", "full"}:
            found |= one.rows.sources
        if one.how in {"right", "full"}:
            found |= {name for before in inputs[:number] for name in before.rows.sources}
    return found


def _joined(
    inputs: Sequence[Input], early: Sequence[Condition], every: Rows, context: Context
) -> tuple[Rows, list[Condition]]:
    """Join all inputs, and apply the conditions; return those that remain."""
    cluster, pool = [inputs[0].rows], list(early)
    for one in inputs[1:]:
        if one.how == "inner" and not one.using:
            cluster.append(one.rows)
            pool += [_condition(node, "ON", every) for node in one.on]
            continue
        left, pool = _cluster(cluster, pool, context)
        given = one.rows
        if one.how in {"inner", "right"}:
            given, pool = _cluster([one.rows], pool, context)
        cluster = [_outer_join(left, replace(one, rows=given), context)]
    return _cluster(cluster, pool, context)


def _cluster(
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
    rows, open_rows = order[0], order[1:]
    while open_rows:
        following = open_rows.pop(0)
        between = [one for one in rest if one.is_early and one.sources <= rows.sources | following.sources]
        rest = [one for one in rest if one not in between]
        rows = _inner(rows, following, between, context)
    return rows, rest


def _inner(left: Rows, right: Rows, conditions: Sequence[Condition], context: Context) -> Rows:
    """An inner join; conditions that do not find rows filter them afterwards."""
    equalities, others = _equalities([one.node for one in conditions], left, right, context)
    joined = Joined(context, left, right, tuple(equalities))
    pointers = joined.pointers() or joined.swapped().pointers()
    if pointers is not None:
        used = {id(one.node) for one in pointers.values()}
        others += [one.node for one in equalities if id(one.node) not in used]
    if not equalities and not is_one_row(left) and not is_one_row(right):
        raise _unconnected(left, right, context)
    with context.reasons.placed(right.place, "JOIN"):
        rows = join(joined, "inner")
    for node in others:
        rows = filtered(rows, node, "WHERE", context)
    return rows


def _unconnected(left: Rows, right: Rows, context: Context) -> Exception:
    names = " and ".join(sorted({one.source for one in right.visible} or {right.table.name}))
    others = ", ".join(sorted({one.source for one in left.visible} or {left.table.name}))
    return context.reasons.at(
        max(left.place, right.place),
        "FROM",
        f"No equality connects {names} with {others}.",
        "Add one to ON or WHERE, such as a.key = b.key: a product of tables is not maintained.",
    )


def _outer_join(left: Rows, given: Input, context: Context) -> Rows:
    """A join with an input that is not just inner."""
    right = given.rows
    on = list(given.on)
    using = _common(left, right, given)
    if given.how in {"semi", "anti"}:
        return semi_join(left, right, on, given.how, context)
    if given.how == "right":
        rows = _left_join(right, left, on, using, context)
        count = len(right.visible)
        rows = replace(rows, visible=(*rows.visible[count:], *rows.visible[:count]))
        return _merged(rows, using, keeps="right", left=len(left.visible))
    if given.how == "full":
        equalities, others = _equalities(on, left, right, context, using)
        rows = join(Joined(context, left, right, tuple(equalities), tuple(others)), "outer")
        return _coalesced(rows, using)
    if given.how == "inner":
        equalities, others = _equalities(on, left, right, context, using)
        joined = Joined(context, left, right, tuple(equalities))
        rows = join(joined, "inner")
        pointers = joined.pointers() or joined.swapped().pointers() or {}
        used = {id(one.node) for one in pointers.values()} or {id(one.node) for one in equalities}
        for node in [*others, *(one.node for one in equalities if id(one.node) not in used)]:
            rows = filtered(rows, node, "ON", context)
    else:
        rows = _left_join(left, right, on, using, context)
    return _merged(rows, using, keeps="left", left=len(left.visible))


def _left_join(
    left: Rows, right: Rows, on: Sequence[exp.Expr], using: Sequence[str], context: Context
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
    equalities, others = _equalities(rest, left, right, context, using)
    joined = Joined(context, left, right, tuple(equalities), tuple(others), tuple(guards))
    pointers = joined.pointers()
    if pointers is not None:
        used = {id(one.node) for one in pointers.values()}
        others += [one.node for one in equalities if id(one.node) not in used]
        joined = replace(joined, others=tuple(others))
    place = beginning(on[0]) if on else 0
    with context.reasons.placed(place, "ON"):
        return join(joined, "left")


def _equalities(
    nodes: Sequence[exp.Expr], left: Rows, right: Rows, context: Context, using: Sequence[str] = ()
) -> tuple[list[Equality], list[exp.Expr]]:
    """Divide conditions into those that compare both sides for equality, and others."""
    lefts, rights = Scope(left, context, "ON"), Scope(right, context, "ON")
    found, others = list[Equality](), list[exp.Expr]()
    for one in nodes:
        sides = [(one.left, one.right), (one.right, one.left)] if isinstance(one, exp.EQ) else []
        pair = next(
            (
                (mine, theirs)
                for mine, theirs in sides
                if any(own_columns(mine))
                and any(own_columns(theirs))
                and lefts.can_tell([mine])
                and rights.can_tell([theirs])
            ),
            None,
        )
        if pair is None:
            others.append(one)
        else:
            found.append(Equality(one, *pair))
    for name in using:
        column = exp.column(name)
        found.append(Equality(column, column, column))
    return found, others


def _common(left: Rows, right: Rows, given: Input) -> tuple[str, ...]:
    """The columns of USING; of NATURAL JOIN those that both sides have."""
    if given.using != ("*",):
        return given.using
    names = {left.fold(one.name) for one in right.visible}
    return tuple(one.name for one in left.visible if left.fold(one.name) in names)


def _merged(rows: Rows, using: Sequence[str], *, keeps: str, left: int) -> Rows:
    """Show the columns of USING once: those of the side whose rows stay."""
    if not using:
        return rows
    names = {rows.fold(one) for one in using}
    hidden = range(left, len(rows.visible)) if keeps == "left" else range(left)
    visible = [
        replace(one, merged=True) if number in hidden and rows.fold(one.name) in names else one
        for number, one in enumerate(rows.visible)
    ]
    return replace(rows, visible=tuple(visible))


def _coalesced(rows: Rows, using: Sequence[str]) -> Rows:
    """Show the columns of USING of a FULL JOIN once: whichever side has a row."""
    if not using:
        return rows
    made: dict[str, str] = {}
    merged: list[Visible] = []
    names = {rows.fold(one) for one in using}
    for name in using:
        pair = [one.column for one in rows.visible if rows.fold(one.name) == rows.fold(name)]
        shown = f"{name}_merged"
        made[shown] = f"coalesce(`{pair[0]}`, `{pair[-1]}`)"
        merged.append(Visible("", name, shown))
    visible = [replace(one, merged=one.merged or rows.fold(one.name) in names) for one in rows.visible]
    table = rows.table.with_columns(**made)
    assert isinstance(table, Table)  # noqa: S101 - outer joins are of tables
    return Rows(table, (*merged, *visible))


def _order(inputs: Sequence[Rows], pool: Sequence[Condition], context: Context) -> list[Rows]:
    """The order in which most joins find the rows of an input by its whole key."""
    begins = [one for one in inputs if isinstance(one.table, Stream)] or [
        one for one in inputs if not isinstance(one.table, GlobalTable)
    ]
    tried = [_from(begin, inputs, pool, context) for begin in begins or inputs]
    return max(tried, key=lambda one: one[0])[1]


def _from(
    begin: Rows, inputs: Sequence[Rows], pool: Sequence[Condition], context: Context
) -> tuple[int, list[Rows]]:
    """The inputs in the order in which they are found from one of them, and how many by their keys."""
    order, open_rows, score = [begin], [one for one in inputs if one is not begin], 0
    while open_rows:
        known = Rows(begin.table, tuple(one for rows in order for one in rows.visible))
        ranked = [(_closeness(known, one, pool, context), one) for one in open_rows]
        best = max(rank for rank, _ in ranked)
        following = next(one for rank, one in ranked if rank == best)
        score += 100 * (best == 3) + best
        order.append(following)
        open_rows = [one for one in open_rows if one is not following]
    return score, order


def _closeness(known: Rows, rows: Rows, pool: Sequence[Condition], context: Context) -> int:
    """How an input can be joined: 3 by its key, 2 as one row, 1 by other equalities, 0 not."""
    nodes = [one.node for one in pool if one.is_early and one.sources <= known.sources | rows.sources]
    equalities, _ = _equalities(nodes, known, rows, context)
    if Joined(context, known, rows, tuple(equalities)).pointers() is not None:
        return 3
    if is_one_row(rows):
        return 2
    return 1 if equalities else 0
