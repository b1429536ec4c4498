"""GROUP BY: the groups and their aggregates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from sqlglot import exp

from tablestream import functions as tf
from tablestream.connectors.sink import quoted
from tablestream.handles.joining import KEY
from tablestream.handles.relation import ALL_ROWS
from tablestream.spark.given_columns import ColumnLike
from tablestream.spark.row import Row
from tablestream.sql.aggregates import Aggregates, aggregates_in
from tablestream.sql.grouping_sets import Sets, grouping_texts, sets_in
from tablestream.sql.handles import begun
from tablestream.sql.output import place_in_select
from tablestream.sql.parse import beginning, with_type
from tablestream.sql.rows import Rows, Visible, unique
from tablestream.sql.scope import REFUSED, Scope, own_columns
from tablestream.tables import Table

#: Aggregates that no rows have a value for, as SQL.
OF_NONE = {
    "count": "0L",
    "count_distinct": "0L",
    "approx_count_distinct": "0L",
    "regr_count": "0L",
    "collect_list": "array()",
    "collect_set": "array()",
}


@dataclass(frozen=True)
class Group:
    """A column of the groups.

    Attributes
    ----------
    name
        Its name in the table of groups.
    node
        The expression.
    visible
        The column that it is; None: an expression.
    repeated
        The column with its value in the rows of `tablestream.sql.grouping_sets.repeated`; empty: it has no sets.
    """

    name: str
    node: exp.Expr
    visible: Visible | None
    repeated: str = ""


@dataclass(frozen=True)
class Grouped:
    """The groups with their aggregates.

    Attributes
    ----------
    rows
        Their table.
    scope
        Finds groups and aggregates in expressions.
    of_none
        The aggregates that have a value for no rows, by name, with it as SQL.
    """

    rows: Rows
    scope: Scope
    of_none: dict[str, str]


def is_grouped(select: exp.Select) -> bool:
    """Whether a query has groups or aggregates."""
    has_any = any(any(aggregates_in(one)) for one in aggregating(select))
    return has_any or any(select.args.get(part) is not None for part in ("group", "having"))


def aggregates_around(nodes: Sequence[exp.Expr], scope: Scope) -> list[exp.Expr]:
    """The aggregates of a query that only conditions of its subqueries have: a WHERE has none of its own."""
    found = [one for node in nodes for where in node.find_all(exp.Where) for one in aggregates_in(where.this)]
    return [one for one in found if any(own_columns(one)) and scope.can_tell([one])]


def aggregating(select: exp.Select) -> list[exp.Expr]:
    """The expressions that can have aggregates."""
    having, order, qualify = (select.args.get(one) for one in ("having", "order", "qualify"))
    found = [one.unalias() for one in select.expressions] + ([having.this] if having else [])
    return found + (order.expressions if order else []) + ([qualify.this] if qualify else [])


def groups_of(select: exp.Select, scope: Scope) -> tuple[list[Group], list[frozenset[int]]]:
    """The columns that GROUP BY names: by expressions, by their places in SELECT, or by their aliases.

    Returns also its sets, each with the numbers of its columns: a plain GROUP BY has one, of all columns.
    """
    group = select.args.get("group")
    if group is None:
        return [], [frozenset()]
    items = select.expressions
    nodes = list(group.expressions)
    is_all = bool(group.args.get("all"))
    if is_all:
        star = next((one for one in items if one.is_star), None)
        if star is not None:
            raise scope.context.refuse(
                star, "GROUP BY", "GROUP BY ALL does not group by a star.", "Name the columns in SELECT."
            )
        nodes = [one.unalias() for one in items if not one.find(exp.Window) and not any(aggregates_in(one))]
    found: list[Group] = []
    numbers: dict[str, int] = {}
    sets: list[frozenset[int]] = []
    for one in sets_in(group, nodes, scope.context):
        meant = one if is_all else [_meant(node, items, scope) for node in one]
        for node in meant:
            if scope.same(node) not in numbers:
                numbers[scope.same(node)] = len(found)
                found.append(_group(node, items, found, scope))
        sets.append(frozenset(numbers[scope.same(node)] for node in meant))
    if group.args.get("grouping_sets"):  # GROUP BY a, b GROUPING SETS (a): b is null
        others = {scope.same(one): one for one in (_meant(node, items, scope) for node in nodes)}
        found += [_group(one, items, found, scope) for same, one in others.items() if same not in numbers]
    return found, sets


def _meant(node: exp.Expr, items: Sequence[exp.Expr], scope: Scope) -> exp.Expr:
    """The expression that an element of GROUP BY stands for."""
    place = place_in_select(node, len(items), "GROUP BY", scope.context)
    if place is not None:
        return items[place].unalias()
    if isinstance(node, exp.Column) and len(node.parts) == 1 and scope.column(node) is None:
        fold = scope.rows.fold
        named = [one for one in items if isinstance(one, exp.Alias) and fold(one.alias) == fold(node.name)]
        return named[0].this if named else node
    return node


def _group(node: exp.Expr, items: Sequence[exp.Expr], before: Sequence[Group], scope: Scope) -> Group:
    """A column of the groups under a name of its own."""
    own = scope.name(node)
    visible = scope.column(node) or next((one for one in scope.rows.visible if one.column == own), None)
    taken = [one.name for one in before]
    aliases = [one.alias for one in items if isinstance(one, exp.Alias) and one.this == node]
    name = aliases[0] if aliases else visible.name if visible is not None else f"group_{len(before) + 1}"
    return Group(unique(name, taken, scope.rows.fold), node, visible)


def grouped(
    rows: Rows,
    groups: Sequence[Group],
    nodes: Sequence[exp.Expr],
    scope: Scope,
    sets: Sets | None = None,
) -> Grouped:
    """Group rows, with the aggregates that expressions have."""
    made, context = Aggregates(scope), scope.context
    functions: dict[str, Any] = {}
    of_sets: dict[str, str] = {}
    known: dict[str, str] = {}
    for node in (one for given in nodes for one in aggregates_in(given)):
        with context.reasons.part(beginning(node), "SELECT"):
            if scope.same(node) not in known:
                name = unique(f"agg_{len(functions) + 1}", [one.name for one in groups], rows.fold)
                known[scope.same(node)] = REFUSED
                functions[name] = made.function(node)
                text = made.of_set(node, name)
                of_sets |= {} if text is None else {name: text}
                known[scope.same(node)] = name
    if not functions:
        functions[unique("rows", [one.name for one in groups], rows.fold)] = tf.count()
    keys = [_key(one, scope) for one in groups] + ([] if sets is None else [sets.column])
    place = beginning(groups[0].node) if groups else 0
    with context.reasons.placed(place, "GROUP BY"):
        table = rows.table.group_by(*keys).agg(**functions)
        table = table.with_columns(**of_sets) if of_sets else table
    visible = tuple(replace(one.visible, column=one.name) for one in groups if one.visible is not None)
    texts = {quoted(one.visible.column): quoted(one.name) for one in groups if one.visible is not None}
    texts |= {scope.same(one.node): quoted(one.name) for one in groups}
    texts |= {same: name if name == REFUSED else quoted(name) for same, name in known.items()}
    texts |= grouping_texts(nodes, [one.node for one in groups], sets, scope)
    of_none = {
        name: OF_NONE[one.name]
        for name, one in functions.items()
        if one.name in OF_NONE and name not in of_sets
    }
    inner = Scope(rows, context, "SELECT", made=texts, grouped=True)
    return Grouped(Rows(table, visible), inner, of_none)


def _key(one: Group, scope: Scope) -> ColumnLike:
    """A column of the groups, as `group_by` takes it."""
    if one.repeated:
        return F.expr(f"{quoted(one.repeated)} AS {quoted(one.name)}")
    if one.visible is not None and one.visible.column == one.name:
        return one.name
    text = replace(scope, clause="GROUP BY").sql(with_type(one.node))
    return F.expr(f"{text} AS {quoted(one.name)}")


def always_a_row(grouped: Grouped, read: Table) -> Grouped:
    """The aggregates of all rows, with a row as soon as the first table has had one: it may be filtered out."""
    table = grouped.rows.table
    assert isinstance(table, Table)  # noqa: S101 - groups are tables

    def columns(_: Row, groups: Row) -> list[Column]:
        names = [one for one in table.columns if one != ALL_ROWS]
        return [
            F.coalesce(groups[one], F.expr(grouped.of_none[one])).alias(one)
            if one in grouped.of_none
            else groups[one]
            for one in names
        ]

    return replace(
        grouped, rows=replace(grouped.rows, table=begun(read).join(table, on=KEY, how="left", select=columns))
    )
