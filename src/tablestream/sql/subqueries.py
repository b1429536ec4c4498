"""Subqueries in conditions and columns: each becomes a join that adds a column.

========================  ==================================================================================
subquery                  becomes
========================  ==================================================================================
``EXISTS``                its rows grouped by what the query around it is compared with; joined: is there one
``x IN (...)``            the same, with its column compared with `x`
``x NOT IN (...)``        the same; and null where `x` or a value of the subquery is null, as in SQL
``x < ANY (...)``         compared with the greatest value; ``ALL`` is ``NOT (x >= ANY (...))``
aggregates                grouped by the same columns; joined: the value, 0 for a count without rows
a row as a value          joined by its whole key, or by its place in ``ORDER BY ... LIMIT 1``
set operations            of the rows for each value that both queries are compared by, or for each row around
========================  ==================================================================================

Where more than equality compares a subquery with the query around it, its rows are joined with those around it first.
Groups, windows, DISTINCT and first rows are those of each value that a subquery is compared by. What a subquery in its
FROM is compared by is a column of that one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import functions as F
from sqlglot import exp

from tablestream import functions as tf
from tablestream.connectors.sink import quoted
from tablestream.sql.aggregates import aggregates_in
from tablestream.sql.context import Context, Result
from tablestream.sql.correlated import (
    check_names,
    compared_by,
    no_nulls,
    one_group,
    only_true_matters,
    or_null,
    row_at,
    with_both,
    with_columns_of,
)
from tablestream.sql.equalities import in_one_type
from tablestream.sql.from_ import from_rows, is_inner
from tablestream.sql.grouping_sets import asks_for_sets, repeated
from tablestream.sql.groups import (
    Group,
    aggregates_around,
    aggregating,
    always_a_row,
    grouped,
    groups_of,
    is_grouped,
)
from tablestream.sql.handles import with_values
from tablestream.sql.joins import is_one_row
from tablestream.sql.matches import (
    AROUND,
    COMPARED,
    Related,
    for_each,
    grouped_by,
    holds_of_any,
    keyed_by,
    looked_up,
    mark,
    matching,
    of_a_row,
    outward,
    paired,
)
from tablestream.sql.named import with_names
from tablestream.sql.order import limited, only_place
from tablestream.sql.output import Item, items_of
from tablestream.sql.parse import (
    beginning,
    is_subquery,
    more_parts,
    not_false,
    placed,
    span,
    unwrapped,
    without_parentheses,
    wrapped,
)
from tablestream.sql.refusals import PartRefusedError
from tablestream.sql.rows import Rows, unique
from tablestream.sql.scope import REFUSED, Scope, conjuncts, own_columns
from tablestream.sql.sets import combined_results
from tablestream.sql.shapes import (
    has_plain_groups,
    is_constant,
    is_for_each,
    is_plain_union,
    is_simple,
    outer_columns,
    parts_of,
    some_row,
    subqueries_in,
    windows_of,
)
from tablestream.sql.windows import define_windows, ranked
from tablestream.streams import Stream


def _ins(node: exp.Expr) -> list[exp.In]:
    """The ``IN`` with subqueries of an expression."""
    return [one for one in subqueries_in(node) if isinstance(one, exp.In)]


def with_subqueries(nodes: Sequence[exp.Expr], rows: Rows, scope: Scope, context: Context) -> Rows:
    """Join the subqueries of expressions; the scope then finds the value of each."""
    for node in nodes:
        for one in subqueries_in(node):
            if not _is_made(one, node, scope):
                with context.reasons.part(beginning(one), scope.clause):
                    rows = _joined(one, node, rows, scope, context)
                scope.made.setdefault(scope.same(one), REFUSED)
    return rows


def _is_made(node: exp.Expr, whole: exp.Expr, scope: Scope) -> bool:
    """Whether a subquery, or what it is a part of, as an aggregate, is computed already."""
    at = node
    while scope.same(at) not in scope.made:
        if at is whole or at.parent is None:
            return False
        at = at.parent
    return True


def where(rows: Rows, node: exp.Expr, clause: str, scope: Scope, context: Context) -> Rows:
    """Keep the rows for which a condition holds that may have subqueries."""
    matched = _matched(node, rows, scope, context)
    if matched is not None:
        return matched
    before = set(scope.made)
    rows = with_subqueries([node], rows, scope, context)
    scope.clause = clause
    text = scope.sql(node)
    for one in map(scope.same, _ins(node)):  # here null was as good as false
        if one not in before:
            scope.made.pop(one, None)
    return rows if REFUSED in text else replace(rows, table=rows.table.filter(text))


def _joined(node: exp.Expr, whole: exp.Expr, rows: Rows, scope: Scope, context: Context) -> Rows:
    """Join a subquery, and let the scope know its value."""
    if isinstance(node, exp.Exists):
        rows, text = _exists(_select_of(node.this, context), rows, scope, context)
    elif isinstance(node, exp.In):
        rows, text = _in(node, whole, rows, scope, context)
    elif isinstance(node, exp.Binary):
        rows, text = _any(node, rows, scope, context)
    else:
        rows, text = _scalar(node, rows, scope, context)
    scope.made[scope.same(node)] = text
    return rows


def _exists(given: exp.Query, rows: Rows, scope: Scope, context: Context) -> tuple[Rows, str]:
    """Join whether a subquery has a row; a union has one if one of its queries has."""
    query = some_row(given)
    if is_plain_union(query):
        rows, left = _exists(_select_of(query.left, context), rows, scope, context)
        rows, right = _exists(_select_of(query.right, context), rows, scope, context)
        return rows, f"({left} OR {right})"
    groups = read_groups(query, rows, scope, context)
    found_group = one_group(query, [], groups, rows, scope)
    if found_group is not None:
        return found_group[:2]
    found = _related(query, rows, scope, context, groups)
    if isinstance(given, exp.Select) and isinstance(query, exp.Select) and is_simple(query):
        check_names(given, found, scope)
    return mark(found, rows, scope, context)


def _select_of(node: exp.Expr, context: Context) -> exp.Query:
    query = without_parentheses(node)
    if not isinstance(query, exp.Query):
        raise context.refuse(query, "subquery", "This is no query.", "")
    return query


def within(query: exp.Expr, outer: Scope, context: Context) -> Context:
    """The context of a subquery, of which not every part can name the query around it."""
    return replace(context, bounds={}, names=(), is_around=outer.tells_around, parts=parts_of(query))


def _related(
    query: exp.Expr, rows: Rows, outer: Scope, context: Context, groups: Related | None = None
) -> Related:
    """Read a subquery, or its `read_groups`, and find what compares it with the query around it."""
    if isinstance(query, exp.Select) and is_simple(query):
        return read(query, rows, outer, context)
    return each(query, rows, outer, context, groups)


def each(
    query: exp.Expr, rows: Rows, outer: Scope, context: Context, groups: Related | None = None
) -> Related:
    """Read a subquery as what it has for each row around it: its columns, and those that it is compared by."""
    inside, before = within(query, outer, context), len(context.reasons.found)
    may_compare = groups is not None or any(map(outer.tells, own_columns(query)))
    if isinstance(query, exp.Select) and may_compare and is_for_each(query):
        return of_each(query, groups or read(query, rows, outer, inside), rows, outer)
    if isinstance(query, exp.SetOperation) and _compares(query, outer, context):
        return _combined(query, rows, outer, with_names(query, inside))
    made = inside.result(query).rows("", [])
    _check_since(before, context)
    return Related(made, Scope(made, context, "subquery"), (), ())


def _compares(query: exp.Expr, outer: Scope, context: Context) -> bool:
    """Whether a query, or one of those that it puts together, names the query around it."""
    if isinstance(query, exp.SetOperation):
        return any(_compares(one, outer, context) for one in (query.left, query.right))
    return any(map(outer.tells, outer_columns(query, context)))


def _combined(query: exp.SetOperation, rows: Rows, outer: Scope, context: Context) -> Related:
    """Two queries put together for each value that both are compared by, or else for each row around them."""
    before = len(context.reasons.found)
    both = [each(_select_of(one, context), rows, outer, context) for one in (query.left, query.right)]
    both = [replace(one, pairs=tuple(sorted(one.pairs, key=lambda it: outer.same(it[0])))) for one in both]
    if _compared_by(both[0], outer) != _compared_by(both[1], outer):
        both = [for_each(one, rows, outer, context, [query]) for one in both]
    shown = [one.rows.shown for one in both]
    if len(shown[0]) != len(shown[1]):
        said = f"Its queries have {len(shown[0])} and {len(shown[1])} columns."
        raise context.refuse(query, type(query).__name__.upper(), said, "Give them as many.")
    results = []
    for one, columns in zip(both, shown, strict=True):
        by = [one.scope.plain(unwrapped(mine)) for _, mine in one.pairs]
        every = [*by, *(it.column for it in columns)]
        results.append(Result(one.rows.table, {f"column_{n}": name for n, name in enumerate(every, 1)}))
    result = combined_results(results, query, context)
    every, count = list(result.columns.values()), len(both[0].pairs)
    keys, names = every[:count], every[count:]
    own = Rows.of(result.table, "", names, [one.name for one in shown[0]])
    items = [Item(one.name, _named_column(one.name), one.column) for one in own.visible]
    texts, scope = [quoted(one) for one in names], Scope(own, context, "ORDER BY")
    own = limited(query, own, items, texts, scope, _partition(both[0], keys, own))
    _check_since(before, context)
    return compared_by(both[0], keys, own, rows, context)


def _compared_by(found: Related, outer: Scope) -> list[tuple[str, Any]]:
    """What a subquery is compared with, and the types of its own columns for it."""
    schema = found.rows.table.schema
    return [
        (outer.same(theirs), schema[found.scope.plain(unwrapped(mine))].dataType)
        for theirs, mine in found.pairs
    ]


def _check_since(before: int, context: Context) -> None:
    """Stop at a reason that was found since there were some: what the columns are is not known."""
    if len(context.reasons.found) > before:
        raise PartRefusedError(context.reasons.found[-1])


def of_each(query: exp.Select, found: Related, rows: Rows, outer: Scope) -> Related:
    """What a subquery has for each row around it.

    Its groups, windows, DISTINCT and first rows are those of each value that it is compared by.
    """
    context = found.scope.context  # which has the names of its WITH
    before = len(context.reasons.found)
    query = query.copy()
    define_windows(query, context)
    query, both = with_both(query, found.scope, outer)
    found = for_each(found, rows, outer, context, both)
    by = [unwrapped(mine) for _, mine in found.pairs]
    for window in windows_of(query):
        window.set("partition_by", [*(one.copy() for one in by), *(window.args.get("partition_by") or [])])
    own, inner = found.rows, replace(found.scope, clause="SELECT")
    if is_grouped(query):
        own, inner = groups_with(query, own, inner, context, by)
        _check_since(before, context)
    own, keys = with_columns_of(own, by, [f"by_{number}" for number, _ in enumerate(by, 1)], inner)
    inner.clause = "SELECT"  # not HAVING
    items = items_of(query, inner, context)
    own = with_subqueries([one.node for one in items], own, inner, context)
    own, items = ranked(query, own, items, inner)
    _check_since(before, context)
    own, columns = with_columns_of(own, [one.node for one in items], [one.name for one in items], inner)
    if query.args.get("distinct"):
        own, inner = _distinct(own, items, columns, keys, context)
    partition = _partition(found, keys, own)
    own = limited(query, own, items, [quoted(one) for one in columns], inner, partition)
    _check_since(before, context)
    table = with_values(own.table, {one: one for one in (*columns, *keys)})
    shown = Rows.of(table, "", columns, [one.name for one in items])
    return compared_by(found, keys, shown, rows, context)


def _partition(found: Related, keys: Sequence[str], rows: Rows) -> list[Any]:
    """The columns of `of_each` as `group_by` takes them: a null is looked up as a part of a struct."""
    made: list[Any] = []
    for number, ((_, mine), key) in enumerate(zip(found.pairs, keys, strict=True), 1):
        name = unique(f"by_{number}", rows.table.columns, rows.fold)
        struct = F.expr(f"named_struct('value', {quoted(key)}) AS {quoted(name)}")
        made.append(key if unwrapped(mine) is mine else struct)
    return made


def _distinct(
    rows: Rows, items: Sequence[Item], columns: Sequence[str], keys: Sequence[str], context: Context
) -> tuple[Rows, Scope]:
    """Each row once for each value of the keys, and what ORDER BY finds: the columns, and what they are made of."""
    count: dict[str, Any] = {unique("rows", rows.table.columns, rows.fold): tf.count()}
    table = rows.table.group_by(*dict.fromkeys((*keys, *columns))).agg(**count)
    made = Rows.of(table, "", columns, [one.name for one in items])
    scope = Scope(made, context, "ORDER BY")
    pairs = [(one.node, quoted(name)) for one, name in zip(items, columns, strict=True)]
    scope.made = {scope.same(node): text for node, text in pairs if not scope.can_tell([node])}
    return made, scope


def groups_with(
    select: exp.Select, rows: Rows, scope: Scope, context: Context, by: Sequence[exp.Expr] = ()
) -> tuple[Rows, Scope]:
    """Group the rows, and keep the groups for which HAVING holds.

    `by` is what a subquery is compared by, which are further columns of its groups: each row around it finds its own.
    """
    having = select.args.get("having")
    conditions = conjuncts(having.this if having else None)
    read, (groups, sets) = rows.table, groups_of(select, scope)
    is_plain = sets == [frozenset(range(len(groups)))]
    if by and (not groups or not is_plain):
        raise context.refuse(
            select,
            "GROUP BY",
            "A subquery that names the query around it cannot have one group of all rows here, or grouping sets.",
            "Leave out GROUP BY, write HAVING as a condition around it, or join a subquery that names no other one.",
        )
    known, taken = {scope.same(one.node) for one in groups}, [one.name for one in groups]
    more = {scope.same(one): one for one in by if scope.same(one) not in known}
    numbered_by = enumerate(more.values(), 1)
    groups = [*(Group(unique(f"by_{n}", taken, rows.fold), one, None) for n, one in numbered_by), *groups]
    nodes = [*aggregating(select), *aggregates_around(aggregating(select), scope)]
    inside = [one for node in nodes for one in aggregates_in(node)]
    rows = with_subqueries([*(one.node for one in groups), *inside], rows, scope, context)
    numbered = None
    if not is_plain or asks_for_sets(select.args.get("group"), nodes):
        rows, names, numbered = repeated(rows, {one.name: one.node for one in groups}, sets, scope)
        groups = [replace(one, repeated=name) for one, name in zip(groups, names, strict=True)]
        scope.rows = rows
    made = grouped(rows, groups, nodes, scope, numbered)
    if not groups and numbered is None and not isinstance(read, Stream):
        made = always_a_row(made, read)
    rows, scope = made.rows, made.scope
    _note_aliases(select, scope)
    scope.clause = "HAVING"
    for one in conditions:
        with context.reasons.part(beginning(one), "HAVING"):
            rows = where(rows, one, "HAVING", scope, context)
    return rows, scope


def _note_aliases(select: exp.Select, scope: Scope) -> None:
    """Note the aliases of SELECT that HAVING, and those behind them, can name: those without subqueries."""
    for one in select.expressions:
        if isinstance(one, exp.Alias) and one.this.find(exp.Query, exp.Window) is None:
            with scope.context.reasons.part(beginning(one), "SELECT"):
                scope.aliases.setdefault(scope.rows.fold(one.alias), scope.sql(one.this))


def read(query: exp.Select, around: Rows, outer: Scope, context: Context) -> Related:
    """Read FROM and WHERE of a subquery; equalities with the query around it are not conditions of its rows."""
    query, context, lifted = _lifted(query, around, outer, with_names(query, context))
    rows, rest = from_rows(query, replace(context, is_around=outer.tells_around, parts=""))
    scope = Scope(rows, context, "WHERE")
    pairs, others = list[tuple[exp.Expr, exp.Expr]](), list[exp.Expr]()
    for node in rest:
        if id(node) in lifted:
            pairs.append(lifted[id(node)])
        elif scope.can_tell([node]) or any(subqueries_in(node)):
            rows = where(rows, node, "WHERE", scope, context)
        elif (pair := paired(node, scope, outer)) is not None:
            pairs.append(pair)
        else:
            scope.sqls(one for one in own_columns(node) if not scope.tells(one) and not outer.tells(one))
            others.append(node)
    return Related(rows, scope, tuple(pairs), tuple(others))


def _lifted(
    query: exp.Select, around: Rows, outer: Scope, context: Context
) -> tuple[exp.Select, Context, dict[int, tuple[exp.Expr, exp.Expr]]]:
    """Read the subqueries in FROM that name the query around this one.

    Each becomes a table with the columns that it is compared by. The conditions that are returned, by their identities,
    are of the WHERE of the query that is returned, and stand for pairs of `Related`.
    """
    query, lifted = query.copy(), dict[int, tuple[exp.Expr, exp.Expr]]()
    begin, joins = query.args.get("from_"), query.args.get("joins") or []
    inputs = [] if begin is None else [begin.this, *(one.this for one in joins)]
    for number, node in enumerate(inputs):
        adds_rows = any(one.side in {"RIGHT", "FULL"} for one in joins[number:])
        is_kept = not adds_rows and (number == 0 or is_inner(joins[number - 1]))
        is_query = isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query)
        if not is_kept or not is_query or more_parts(node, ("this", "alias")):
            continue
        if not _compares(node.this, outer, context):
            continue
        found = each(_select_of(node.this, context), around, outer, context)
        name, alias = f"(compared {len(context.tables)})", node.args.get("alias")
        taken = [*(one.name for one in found.rows.shown), *node.alias_column_names]
        hidden = dict[str, str]()
        for theirs, mine in found.pairs:
            by = unique("compared_by", [*taken, *hidden], around.fold)
            hidden[by] = found.scope.plain(unwrapped(mine))
            column = exp.column(by, table=alias.name if alias else name, quoted=True)
            condition = exp.EQ(this=column.copy(), expression=exp.column(by, table=AROUND, quoted=True))
            lifted[id(condition)] = theirs, column if unwrapped(mine) is mine else wrapped(column)
            given = query.args.get("where")
            whole = condition if given is None else exp.And(this=given.this, expression=condition)
            query.set("where", exp.Where(this=whole))
        result = Result(found.rows.table, {one.name: one.column for one in found.rows.shown}, hidden=hidden)
        context = replace(context, tables={**context.tables, name: _always(result)})
        table = exp.Table(this=exp.to_identifier(name, quoted=True), alias=alias)
        node.replace(placed(table, span(node)))
    return query, context, lifted


def _always(result: Result) -> Callable[[], Result]:
    return lambda: result


def _in(node: exp.In, whole: exp.Expr, rows: Rows, scope: Scope, context: Context) -> tuple[Rows, str]:
    """Join whether a value is among those of a subquery."""
    equal = [one for one in _ins(whole) if scope.same(one) == scope.same(node)]
    only_true = all(only_true_matters(one, whole) for one in equal)
    return _among(node, _select_of(node.args["query"], context), only_true, rows, scope, context)


def _among(
    node: exp.In, query: exp.Query, only_true: bool, rows: Rows, scope: Scope, context: Context
) -> tuple[Rows, str]:
    """Join whether the value of an ``IN`` is among those of its subquery, or of one query of its union."""
    if is_plain_union(query) and _is_compared(query, rows, scope, context):
        rows, left = _among(node, _select_of(query.left, context), only_true, rows, scope, context)
        rows, right = _among(node, _select_of(query.right, context), only_true, rows, scope, context)
        return rows, f"({left} OR {right})"
    values = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
    is_one = len(values) == len(query.selects) == 1
    groups = read_groups(query, rows, scope, context)
    found_group = one_group(query, query.selects, groups, rows, scope) if is_one else None
    if found_group is not None:
        rows, there, (text,) = found_group
        return rows, f"(CASE WHEN {there} THEN ({scope.sql(values[0])}) = {text} ELSE false END)"
    found = _related(query, rows, scope, context, groups)
    items = _items(query, found, context)
    if len(items) != len(values):
        raise context.refuse(node, scope.clause, f"IN compares {len(values)} with {len(items)} columns.", "")
    around = replace(scope, rows=replace(scope.rows, table=rows.table))
    pairs = zip(values, items, strict=True)
    compared = tuple(in_one_type(value, item, around, found.scope) for value, item in pairs)
    rows, there = mark(replace(found, pairs=(*found.pairs, *compared)), rows, scope, context)
    if only_true or no_nulls(compared, found, rows, scope):
        return rows, there
    if len(compared) > 1:
        perhaps = (not_false(exp.EQ(this=outward(a, scope), expression=b.copy())) for a, b in compared)
        unsure = replace(found, others=(*found.others, *perhaps))
        rows, maybe = mark(unsure, rows, scope, context)
        return rows, f"(CASE WHEN {there} THEN true WHEN {maybe} THEN NULL ELSE false END)"
    return or_null(values[0], items[0], lambda _: there, found, rows, scope, context)


def _is_compared(query: exp.Expr, rows: Rows, scope: Scope, context: Context) -> bool:
    """Whether a query of a union compares its rows with the query around it."""
    query = _select_of(query, context)
    if is_plain_union(query):
        return any(_is_compared(one, rows, scope, context) for one in (query.left, query.right))
    if not isinstance(query, exp.Select):
        return False
    found = read(query, rows, scope, within(query, scope, context))
    return bool(found.pairs or found.others)


def _any(node: exp.Binary, rows: Rows, scope: Scope, context: Context) -> tuple[Rows, str]:
    """Join whether a value is less, or greater, than one of a subquery's: than their greatest, or least, one."""
    if type(node) not in COMPARED:
        said = "ANY and ALL of a subquery stand behind =, <>, <, <=, > and >=."
        raise context.refuse(node, scope.clause, said, "Write EXISTS with a condition.")
    query = _select_of(node.expression.this, context)
    found = _related(query, rows, scope, context, read_groups(query, rows, scope, context))
    items = _items(query, found, context)
    if len(items) != 1 or isinstance(node.this, exp.Tuple):
        raise context.refuse(node, scope.clause, "ANY and ALL compare one column.", "Write EXISTS.")
    around = replace(scope, rows=replace(scope.rows, table=rows.table))
    value, item = in_one_type(node.this, items[0], around, found.scope)
    ends = COMPARED[type(node)]

    def holds(there: dict[str, str]) -> str:
        return holds_of_any(type(node), scope.sql(value), there)

    return or_null(value, item, holds, found, rows, scope, context, ends)


def _items(query: exp.Expr, found: Related, context: Context) -> list[exp.Expr]:
    """The columns of a subquery."""
    if not isinstance(query, exp.Select) or not is_simple(query):
        return [_named_column(one.name) for one in found.rows.shown]
    if any(one.is_star for one in query.expressions):
        return [one.node for one in items_of(query, found.scope, context)]
    return [one.unalias() for one in query.expressions]


def _named_column(name: str) -> exp.Column:
    """A column that no text has."""
    return exp.column(name, quoted=True)


def _scalar(node: exp.Expr, rows: Rows, scope: Scope, context: Context) -> tuple[Rows, str]:
    """Join the value of a subquery."""
    query = _select_of(node, context)
    too_many = context.refuse(node, scope.clause, "A subquery as a value needs one column.", "")
    if len(query.selects) != 1:
        raise too_many
    if is_constant(query):
        return rows, scope.sql(query.selects[0].unalias())
    groups = read_groups(query, rows, scope, context)
    found_group = one_group(query, query.selects, groups, rows, scope)
    if found_group is not None:
        rows, there, (text,) = found_group
        return rows, text if there == "(true)" else f"(CASE WHEN {there} THEN {text} END)"
    found = _related(query, rows, scope, context, groups)
    items, place = _items(query, found, context), only_place(query, context)
    if len(items) != 1:  # of a star
        raise too_many
    if place is not None and not is_one_row(found.rows):
        rows, _, (text,) = row_at(place, found, rows, scope)
        return rows, text
    (item,) = items
    found = for_each(found, rows, scope, context)
    keyed = keyed_by(found)
    if keyed is None and found.pairs and keyed_by(found, or_more=True) is not None:
        table = grouped_by(found, {"value": tf.first(found.scope.plain(item))})
        outer = scope.sqls(theirs for theirs, _ in found.pairs)
        rows, names = looked_up(rows, table, outer, {"value": "value"})
        return rows, quoted(names["value"])
    if keyed is None and not (is_one_row(found.rows) and not found.pairs):
        raise context.refuse(
            node,
            scope.clause,
            "This subquery may have several rows.",
            "Aggregate it, as in (SELECT max(x) ...), or compare its whole key with the query around it.",
        )
    if found.scope.can_tell([item]):
        values = {"value": found.scope.sql(item)}
        rows, names = looked_up(rows, found.rows.table, scope.sqls(keyed or []), values)
        return rows, quoted(names["value"])
    rows, there, (text,) = of_a_row([item], keyed or [], found, rows, scope)
    return rows, f"(CASE WHEN {there} THEN {text} END)"


def read_groups(query: exp.Expr, rows: Rows, outer: Scope, context: Context) -> Related | None:
    """Read FROM and WHERE of a subquery with groups or aggregates; None: it is another one, or says more of them."""
    having = query.args.get("having")
    if not has_plain_groups(query) or (query.args.get("group") is None and having and having.find(exp.Query)):
        return None
    return read(query, rows, outer, within(query, outer, context))


def _matched(node: exp.Expr, rows: Rows, scope: Scope, context: Context) -> Rows | None:
    """A condition that is ``[NOT] EXISTS`` with more than equalities: a semi or anti join."""
    is_negated = isinstance(node, exp.Not)
    exists = (node.this if is_negated else node).unnest()
    if not isinstance(exists, exp.Exists) or not is_subquery(exists):
        return None
    whole = _select_of(exists.this, context)
    query = some_row(whole)
    if not isinstance(whole, exp.Select) or not isinstance(query, exp.Select) or not is_simple(query):
        return None
    found = read(query, rows, scope, context)
    check_names(whole, found, scope)
    return matching(rows, found, scope, context, exists=not is_negated)
