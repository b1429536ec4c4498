"""Rows for the elements of each row before: ``explode`` and ``posexplode``, ``UNNEST``, and joins with ``VALUES``.

Constants have no changes of their own: a join with them gives each row once for each constant.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import types as T
from sqlglot import exp

from tablestream.connectors.sink import quoted
from tablestream.sql.context import Context
from tablestream.sql.groups import is_grouped
from tablestream.sql.handles import flat_mapped, selected_type
from tablestream.sql.parse import beginning, cast, ending, is_bare, more_parts, placed, span
from tablestream.sql.rows import Rows, unique
from tablestream.sql.scope import Scope, conjuncts, filtered

#: What makes rows of the values in it.
GENERATORS = exp.Explode | exp.Inline | exp.Unnest | exp.Values
#: The table of the columns of what SELECT explodes.
_MADE = "(elements)"
#: The parts of what makes rows, and of the join that it stands in, which are looked at.
_PARTS = ("this", "on", "side", "kind", "hint", "view", "outer", "alias", "expressions", "offset")


def generator_of(node: exp.Expr) -> exp.Expr | None:
    """What a part of FROM makes rows with, of the rows before it; None: it is a table or a query."""
    inside = node.this if isinstance(node, exp.Join) else node
    if isinstance(inside, exp.Lateral | exp.Table):
        is_subquery = isinstance(inside, exp.Lateral) and is_bare(inside.this)  # LATERAL (VALUES ...)
        inside = inside.this.this if is_subquery else inside.this
    is_joined = node.args.get("kind") in {"SEMI", "ANTI"} or any(map(node.args.get, ("using", "method")))
    is_joined |= bool(node.args.get("side")) and not is_true(node.args.get("on"))
    is_joined |= node.args.get("side") in {"RIGHT", "FULL"}
    is_table = isinstance(inside, exp.Values) and is_joined
    return inside if isinstance(inside, GENERATORS) and not is_table else None


def is_true(condition: exp.Expr | None) -> bool:
    """Whether ON says nothing."""
    return condition is None or (isinstance(condition, exp.Boolean) and bool(condition.this))


def one_row(node: exp.Expr, context: Context) -> Rows:
    """One row without columns, for constants."""
    if context.begun is None:
        raise context.refuse(node, "FROM", "Constants alone have no changes to maintain.", "Name a table.")
    return Rows(context.begun(), (), beginning(node))


def expanded(node: exp.Expr, rows: Rows, context: Context) -> Rows:
    """Return each row once for each element that a part of FROM gives it."""
    made, part = generator_of(node), node.this if isinstance(node, exp.Join) else node
    assert made is not None  # noqa: S101 - the caller has asked
    clause = "LATERAL VIEW" if part.args.get("view") else type(made).__name__.upper()
    on = [one for one in conjuncts(node.args.get("on")) if not is_true(one)]
    side = node.args.get("side")
    is_left = side == "LEFT"
    if side in {"RIGHT", "FULL"} or (is_left and on) or node.args.get("kind") in {"SEMI", "ANTI"}:
        said = (
            "Rows that are made of those before can only be joined by CROSS, INNER or LEFT JOIN ... ON true."
        )
        raise context.refuse(node, clause, said, "Write the conditions in WHERE.")
    more = [*more_parts(node, _PARTS), *more_parts(part, _PARTS), *more_parts(made, _PARTS)]
    if more:
        raise context.refuse(node, clause, f"Its {more[0]} is not maintained.", "Leave it out.")
    if not isinstance(made, exp.Values) and len(made.expressions) > isinstance(made, exp.Unnest):
        raise context.refuse(node, clause, "It takes one array.", "Write LATERAL inline(arrays_zip(a, b)).")
    is_outer = bool(part.args.get("outer")) or is_left or type(made).__name__.endswith("Outer")
    scope = Scope(rows, context, clause)
    element, place = (unique(one, rows.table.columns, rows.fold) for one in ("element", "place"))
    with context.reasons.placed(beginning(node), clause):
        array, columns = _elements(made, quoted(element), quoted(place), scope)
        source, names = _names(node, made, len(columns), scope)
        shown = dict(zip(names or columns, columns.values(), strict=True))
        if is_outer:
            there = f"coalesce(size({array}), 0) > 0"
            array = f"CASE WHEN {there} THEN {array} ELSE array(NULL) END"
            shown = {name: f"CASE WHEN {there} THEN {text} END" for name, text in shown.items()}
        rows = with_elements(rows, array, shown, (element, place), source)
    for one in on:
        rows = filtered(rows, one, "ON", context)
    return rows


def with_elements(
    rows: Rows, array: str, shown: dict[str, str], names: tuple[str, str], source: str = ""
) -> Rows:
    """Return each row once for each element of an array, with more columns.

    `shown`: these columns as SQL over an element and its place, which have the `names`.
    """
    table, taken = rows.table, list(rows.table.columns)
    own = {name: unique(name, [*taken, *names], rows.fold) for name in shown}
    kept = {one.column for one in rows.visible} - set(table.key_columns)
    values = [quoted(one) for one in taken if one in kept]
    values += [f"{text} AS {quoted(own[name])}" for name, text in shown.items()]
    element, place = map(quoted, names)
    structs = f"transform({array}, ({element}, {place}) -> struct({', '.join(values)}))"
    table = flat_mapped(table, structs, unique("position", [*taken, *own.values()], rows.fold))
    made = Rows.of(table, source, list(own.values()), list(own)).visible
    return replace(rows, table=table, visible=(*rows.visible, *made))


def _names(node: exp.Expr, made: exp.Expr, count: int, scope: Scope) -> tuple[str, list[str]]:
    """The name that a part of FROM gives to what it makes, and those of its columns, if it says them."""
    part = node.this if isinstance(node, exp.Join) else node
    source, names = part.alias, part.alias_column_names
    if isinstance(made, exp.Unnest) and source and not names:
        names = [source]
    place, fold, refuse = made.args.get("offset"), scope.rows.fold, scope.context.refuse
    if place and "ordinality" not in scope.context.text[beginning(node) : ending(node)].lower():
        raise refuse(node, scope.clause, "WITH OFFSET is not maintained.", "Write WITH ORDINALITY.")
    if place and names:
        names.append("ordinality" if place is True else place.name)
    if len(set(map(fold, names))) < len(names) or (source and fold(source) in scope.rows.sources):
        raise refuse(node, scope.clause, "Two columns or two inputs have one name.", "Give each its own.")
    if names and len(names) != count:
        said = f"It has {count} columns, and {len(names)} names."
        raise refuse(node, scope.clause, said, "Give it as many names.")
    return source, names


def explodes(select: exp.Select) -> list[int]:
    """The places of the columns of SELECT that make rows."""
    inside = map(_without_names, select.expressions)
    return [number for number, one in enumerate(inside) if isinstance(one, GENERATORS)]


def _without_names(item: exp.Expr) -> exp.Expr:
    """A column of SELECT without ``AS name`` or ``AS (name, name)``."""
    return item.this if isinstance(item, exp.Alias | exp.Aliases) else item


def exploded(select: exp.Select, rows: Rows, context: Context) -> tuple[exp.Select, Rows]:
    """Return a query with columns in place of what its SELECT explodes, and its rows once for each element."""
    places = explodes(select)
    if not places:
        return select, rows
    items, first = select.expressions, places[0]
    item, inside = items[first], _without_names(items[first])
    if len(places) > 1 or is_grouped(select) or any(one.find(exp.Window) for one in items):
        said = "It stands beside groups, window functions or another one of its kind."
        raise context.refuse(items[places[-1]], "SELECT", said, "Write it in a subquery in FROM.")
    names = item.expressions if isinstance(item, exp.Aliases) else [item.args.get("alias")]
    alias = exp.TableAlias(columns=[one.copy() for one in names if one is not None])
    made = expanded(exp.Lateral(this=inside.copy(), alias=alias), rows, context)
    hidden = [replace(one, source=_MADE, merged=True) for one in made.visible[len(rows.visible) :]]
    columns = [placed(exp.column(one.name, table=_MADE, quoted=True), span(inside)) for one in hidden]
    select = select.copy()
    select.set("expressions", [*select.expressions[:first], *columns, *select.expressions[first + 1 :]])
    return select, replace(made, visible=(*rows.visible, *hidden))


def _elements(made: exp.Expr, element: str, place: str, scope: Scope) -> tuple[str, dict[str, str]]:
    """An array, and the columns of its elements: SQL over an element and its place."""
    if isinstance(made, exp.Values):
        tuples = [one.expressions if isinstance(one, exp.Tuple) else [one] for one in made.expressions]
        for row, some in zip(made.expressions, tuples, strict=True):
            if len(some) != len(tuples[0]):
                said = "This row has another number of columns than the first one."
                raise scope.context.refuse(row, "VALUES", said, "Give each row a value for each column.")
        untyped = [all(isinstance(one, exp.Null) for one in some) for some in zip(*tuples, strict=True)]
        tuples = [
            [cast(one, "STRING") if no_type else one for one, no_type in zip(some, untyped, strict=True)]
            for some in tuples
        ]
        fields = [
            [f"'c{number}', {text}" for number, text in enumerate(scope.sqls(one), 1)] for one in tuples
        ]
        structs = [f"named_struct({', '.join(one)})" for one in fields]
        columns = {f"col{number}": f"{element}.c{number}" for number in range(1, len(tuples[0]) + 1)}
        return f"array({', '.join(structs)})", columns
    given = made.expressions[0] if isinstance(made, exp.Unnest) else made.this
    text = f"({scope.sql(given)})"
    kind = selected_type(scope.rows.table, text)
    columns = {"col": element}
    if isinstance(kind, T.MapType):
        text, columns = f"map_entries({text})", {"key": f"{element}.key", "value": f"{element}.value"}
    if isinstance(made, exp.Posexplode):
        columns = {"pos": place} | columns
    if (
        isinstance(made, exp.Inline)
        and isinstance(kind, T.ArrayType)
        and isinstance(kind.elementType, T.StructType)
    ):
        columns = {one: f"{element}.{quoted(one)}" for one in kind.elementType.names}
    if isinstance(made, exp.Unnest) and made.args.get("offset"):
        columns = columns | {"ordinality": f"{place} + 1"}
    return text, columns
