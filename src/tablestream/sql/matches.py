"""Which rows have a match: the joins of subqueries and of semi and anti joins.

A match is looked up by the whole key of the other rows, or of their groups by what they are compared with.

=====================================  ==========================================================================
beside equalities, the conditions are  whether there is a match
=====================================  ==========================================================================
none                                   there is a group
any, and the equalities a whole key    they hold of the row
a comparison with a column             it holds of the group's least or greatest value
any other                              the semi and anti join of `Table.join`, or the number of pairs
=====================================  ==========================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T
from sqlglot import exp

from tablestream import functions as tf
from tablestream.connectors.sink import quoted
from tablestream.spark.compared import common_type
from tablestream.spark.row import LEFT, RIGHT, Row, side_column
from tablestream.sql.clusters import inner_join
from tablestream.sql.context import Context
from tablestream.sql.equalities import Equality, compared, in_one_type, types_of
from tablestream.sql.handles import never_null, with_values
from tablestream.sql.joins import key_column
from tablestream.sql.parse import TURNED, placed, span, spliced, unwrapped, wrapped
from tablestream.sql.rows import Rows, Visible, unique_names
from tablestream.sql.scope import Scope, filtered, own_columns
from tablestream.streams import Stream
from tablestream.tables import Table

#: Comparisons of a value with any of several, and the ends of these of which one fulfils it if any of them does.
COMPARED: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.LT: ("greatest",),
    exp.LTE: ("greatest",),
    exp.GT: ("least",),
    exp.GTE: ("least",),
    exp.NEQ: ("least", "greatest"),
}
_SIGNS: dict[type[exp.Expr], str] = {exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.NEQ: "<>"}
#: Types whose least and greatest values `tf.min` and `tf.max` find, beside plain strings.
_WITH_ENDS = (
    T.NumericType,
    T.BooleanType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
    T.DayTimeIntervalType,
)

#: The tables of columns that rows of the other query have: of the query around a subquery, and of the subquery.
AROUND, _LOOKED_UP = "(around)", "(subquery)"


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
    for theirs, mine in (pair, reversed(pair)) if pair is not None else ():
        if _are_of_both(theirs, mine, inner, outer):
            return in_one_type(theirs, mine, outer, inner)
    return None


def _are_of_both(theirs: exp.Expr, mine: exp.Expr, inner: Scope, outer: Scope) -> bool:
    """Whether one expression is of the query around a subquery, and the other one of the subquery."""
    columns = list(own_columns(theirs))
    is_outer = bool(columns) and not any(inner.tells(one) for one in columns)
    return is_outer and any(own_columns(mine)) and inner.can_tell([mine]) and _tells(outer, theirs)


def _tells(outer: Scope, node: exp.Expr) -> bool:
    """Whether the query around a subquery has an expression: by its columns, or computed already."""
    return outer.same(unwrapped(node)) in outer.made or outer.can_tell([node])


def grouped_by(found: Related, functions: dict[str, Any]) -> Table:
    """The rows of a subquery, grouped by what it is compared by."""
    keys = [
        F.expr(f"{found.scope.sql(mine)} AS by_{number}") for number, (_, mine) in enumerate(found.pairs, 1)
    ]
    return found.rows.table.group_by(*keys).agg(**functions)


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


def outward(node: exp.Expr, outer: Scope, inner: Scope | None = None) -> exp.Expr:
    """An expression whose columns of the query around a subquery are found among the rows of `for_each`.

    A column is the subquery's own if `inner` has it.
    """

    def renamed(one: exp.Expr) -> exp.Expr:
        group = _group_of(one, outer)
        if group is not None:
            return placed(exp.column(group, table=AROUND, quoted=True), span(one))
        if not isinstance(one, exp.Column) or (inner is not None and inner.tells(one)):
            return one
        if outer.grouped:  # that it is neither grouped nor aggregated
            outer.sql(one)
        names = [part.name for part in one.parts]
        found = outer.rows.find(names)
        if found is None:
            return one
        made = exp.column(*reversed([AROUND, found[0].column, *names[found[1] :]]), quoted=True)
        return placed(made, span(one))

    return node.transform(renamed)


def equalities_of(pairs: Sequence[tuple[exp.Expr, exp.Expr]], scope: Scope) -> list[Equality]:
    """What joins the rows of a subquery with the rows around it, whose side of each pair is that of `outward`."""
    sides = [(outward(theirs, scope), mine) for theirs, mine in pairs]
    return [
        Equality(exp.EQ(this=theirs.copy(), expression=mine.copy()), theirs, mine) for theirs, mine in sides
    ]


def columns_around(nodes: Sequence[exp.Expr], keys: Sequence[str]) -> tuple[Visible, ...]:
    """The columns of the query around a subquery that expressions of `outward` name, and those of its key."""
    named = [one.parts for node in nodes for one in own_columns(node)]
    columns = dict.fromkeys([*keys, *(one[1].name for one in named if one[0].name == AROUND)])
    return tuple(Visible(AROUND, one, one, merged=True, hidden=True) for one in columns)


def _group_of(node: exp.Expr, scope: Scope) -> str | None:
    """The column of the groups that an expression of a grouped query is; None: it is none of them."""
    is_part = isinstance(node, exp.Identifier | exp.Literal | exp.Boolean | exp.Null)
    return scope.name(node) if scope.grouped and not is_part and any(own_columns(node)) else None


def for_each(
    found: Related, rows: Rows, scope: Scope, context: Context, more: Sequence[exp.Expr] = ()
) -> Related:
    """Compare a subquery for equality alone: where more is said of it, it is joined with the rows around it.

    Its rows are then there once for each row around it that they belong to, and are compared with the key of that one.
    `more` are expressions of `outward` that the joined rows can compute.
    """
    if not found.others and not more:
        return found
    if isinstance(rows.table, Stream):
        raise _of_a_stream([*found.others, *more][0], scope, context)
    others = [outward(one, scope, found.scope) for one in found.others]
    equal = equalities_of(found.pairs, scope)
    keys = rows.table.key_columns
    around = columns_around([*others, *more, *(one.left for one in equal)], keys)
    outer = Rows(with_values(rows.table, {one.name: one.name for one in around}), around, found.rows.place)
    joined = inner_join(outer, found.rows, equal, others, "subquery", context)
    pairs = []
    for key in keys:
        node: exp.Expr = exp.column(key, table=AROUND, quoted=True)
        scope.made[scope.same(node)] = quoted(key)
        node = node if never_null(rows.table, key) else wrapped(node)
        pairs.append((node, node))
    return Related(joined, Scope(joined, context, "subquery"), tuple(pairs), ())


def mark(found: Related, rows: Rows, scope: Scope, context: Context) -> tuple[Rows, str]:
    """Join whether a subquery has a row."""
    marked = _marked(found, rows, scope)
    if marked is None:
        marked = _marked(for_each(found, rows, scope, context), rows, scope)
    assert marked is not None  # noqa: S101 - nothing but equalities is left
    return marked


def _marked(found: Related, rows: Rows, scope: Scope) -> tuple[Rows, str] | None:
    """Join whether a subquery has a row; None: only its pairs with the rows around it tell."""
    keyed = keyed_by(found, or_more=True)
    if keyed is not None:
        rows, there, texts = of_a_row(found.others, keyed, found, rows, scope)
        return rows, _all_hold([there, *texts])
    if found.others:
        return _by_ends(found, rows, scope)
    table = grouped_by(found, {"n": tf.count()})
    outer = [theirs for theirs, _ in found.pairs]
    if not outer:
        table = table.filter("n > 0")
    rows, names = looked_up(rows, table, scope.sqls(outer), {"found": None})
    return rows, quoted(names["found"])


def _all_hold(texts: Sequence[str]) -> str:
    """SQL that is true if all conditions are, else false. The first is never null, and the others need it to hold."""
    return f"coalesce({' AND '.join(f'({one})' for one in texts)}, false)" if len(texts) > 1 else texts[0]


def _by_ends(found: Related, rows: Rows, scope: Scope) -> tuple[Rows, str] | None:
    """Join whether a comparison holds of any row: of the least or greatest value.

    None: there are more conditions, or values without an order, or what is compared is no column. To compute it may
    fail, also for a row that no row around it meets.
    """
    node = found.others[0].unnest()
    if len(found.others) > 1 or not isinstance(node, exp.Binary) or type(node) not in COMPARED:
        return None
    around = replace(scope, rows=replace(scope.rows, table=rows.table))
    sides = (type(node), node.left, node.right), (TURNED[type(node)], node.right, node.left)
    for kind, theirs, mine in sides:
        is_column = found.scope.name(mine) is not None and _are_of_both(theirs, mine, found.scope, scope)
        if not is_column or not _have_ends(types_of(theirs, mine, around, found.scope)):
            continue
        table = grouped_by(found, ends_of(mine, COMPARED[kind], found))
        outer = scope.sqls(theirs for theirs, _ in found.pairs)
        rows, names = looked_up(rows, table, outer, {one: one for one in COMPARED[kind]})
        ends = {one: quoted(name) for one, name in names.items()}
        return rows, f"coalesce({holds_of_any(kind, scope.sql(theirs), ends)}, false)"
    return None


def _have_ends(kinds: Sequence[T.DataType]) -> bool:
    """Whether Spark compares values of two types in the order in which `tf.min` and `tf.max` have the second ones."""
    if not kinds or not all(isinstance(one, _WITH_ENDS) or one == T.StringType() for one in kinds):
        return False
    are_numbers = all(isinstance(one, T.NumericType) for one in kinds)
    return common_type(*kinds) is not None or are_numbers


def ends_of(item: exp.Expr, ends: Sequence[str], found: Related) -> dict[str, Any]:
    """The aggregates that find the least or the greatest value of a subquery."""
    functions = {"least": tf.min, "greatest": tf.max}
    return {one: functions[one](found.scope.plain(item)) for one in ends}


def holds_of_any(kind: type[exp.Expr], value: str, ends: Mapping[str, str]) -> str:
    """SQL that compares a value with any of several, of which it has the ends that `COMPARED` names.

    Without them it is null, and the value is not computed.
    """
    holds = " OR ".join(f"({value}) {_SIGNS[kind]} {ends[end]}" for end in COMPARED[kind])
    return f"CASE WHEN {ends[COMPARED[kind][0]]} IS NOT NULL THEN {holds} END"


def looked_up(
    rows: Rows, table: Any, on: Sequence[str], values: Mapping[str, str | None]
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
    new = unique_names(
        (f"subquery_{one}" for one in values), [*rows.table.columns, *table.columns], rows.fold
    )
    names = dict(zip(values, new, strict=True))
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

    options: dict[str, Any] = {"on": list(on) or ["true"], "how": "left", "select": columns}
    return replace(rows, table=rows.table.join(inner, **options)), names


def of_a_row(
    items: Sequence[exp.Expr], key: Sequence[exp.Expr], found: Related, rows: Rows, scope: Scope
) -> tuple[Rows, str, list[str]]:
    """Join the one row of a subquery, and compute values of it, which may have columns of the query around it.

    Returns
    -------
    tuple of Rows, str and list of str
        The rows, whether there is a row, and the values.
    """
    named = [one for item in items for one in own_columns(item)]
    own = (one for one in named if found.scope.tells(one))
    numbered = {
        text: f"value_{number}" for number, text in enumerate(dict.fromkeys(map(found.scope.sql, own)), 1)
    }
    values = {number: text for text, number in numbered.items()}
    more = [pair for pair in found.pairs if not any(unwrapped(pair[0]) is one for one in key)]
    equal = {f"equal_{number}": found.scope.sql(mine) for number, (_, mine) in enumerate(more, 1)}
    rows, names = looked_up(rows, found.rows.table, scope.sqls(key), {"found": None, **values, **equal})
    there = [quoted(names["found"])]
    there += [
        f"({scope.sql(theirs)}) = {quoted(names[one])}" for one, (theirs, _) in zip(equal, more, strict=True)
    ]

    def renamed(one: exp.Expr) -> exp.Expr:
        if not isinstance(one, exp.Column) or not found.scope.tells(one):
            return one
        name = names[numbered[found.scope.sql(one)]]
        return placed(exp.column(name, table=_LOOKED_UP, quoted=True), span(one))

    around = dict.fromkeys(one.name for one in named if one.table == AROUND)
    shown = [Visible(_LOOKED_UP, names[one], names[one], merged=True) for one in values]
    shown += [Visible(AROUND, one, one, merged=True) for one in around]
    made = scope.made | {quoted(one.column): quoted(one.column) for one in shown}
    both = replace(scope, rows=replace(rows, visible=(*scope.rows.visible, *shown)), made=made)
    return rows, _all_hold(there), [both.sql(one.transform(renamed)) for one in items]


def matching(rows: Rows, found: Related, scope: Scope, context: Context, *, exists: bool) -> Rows:
    """Keep the rows that have a match, or those that have none."""
    marked = _marked(found, rows, scope)
    if marked is not None:
        rows, there = marked
        return replace(rows, table=rows.table.filter(there if exists else f"NOT {there}"))
    if isinstance(rows.table, Stream):
        raise _of_a_stream(found.others[0], scope, context)
    visible = [replace(one, column=side_column(RIGHT, one.column)) for one in found.scope.rows.visible]
    inner = Scope(Rows(found.rows.table, tuple(visible)), context, "WHERE")
    outer = [replace(one, column=side_column(LEFT, one.column)) for one in scope.rows.visible]
    every = Scope(Rows(rows.table, tuple(outer)), context, "WHERE")

    def both(column: exp.Expr) -> str | None:
        group = _group_of(column, scope)
        if group is not None:
            return quoted(side_column(LEFT, group))
        if not isinstance(column, exp.Column):
            return None
        if scope.grouped and not inner.tells(column):  # that it is neither grouped nor aggregated
            scope.sql(column)
        return (inner if inner.tells(column) else every).sql(column)

    texts = [f"({spliced(one, context.text, both)})" for one in found.others]
    options: dict[str, Any] = {
        "on": scope.sqls(theirs for theirs, _ in found.pairs) or ["true"],
        "right_on": found.scope.sqls(mine for _, mine in found.pairs) or ["true"],
        "how": "left_semi" if exists else "left_anti",
        "where": lambda *_: F.expr(" AND ".join(texts)),
    }
    return replace(rows, table=rows.table.join(found.rows.table, **options))  # type: ignore[arg-type]


def _of_a_stream(node: exp.Expr, scope: Scope, context: Context) -> Exception:
    return context.refuse(
        node,
        scope.clause,
        "Only equalities find the rows that a record of a stream has.",
        "Compare for equality alone, or read the records as a table.",
    )


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
    return matching(left, found, outer, context, exists=how == "semi")
