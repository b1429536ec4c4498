"""FROM: the tables and subqueries that a query reads, with the columns that it names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeGuard

from sqlglot import exp

from tablestream.sql.as_of import of_asof_join, of_version, with_waits
from tablestream.sql.conditions import SUBQUERIES, Input
from tablestream.sql.context import Context
from tablestream.sql.elements import expanded, generator_of, one_row
from tablestream.sql.handles import with_values
from tablestream.sql.joining import joined
from tablestream.sql.parse import beginning, more_parts, span
from tablestream.sql.pivots import pivoted
from tablestream.sql.refusals import PartRefusedError
from tablestream.sql.rows import Rows, Visible, unique
from tablestream.sql.scope import Scope, conjuncts, filtered, own_columns
from tablestream.sql.time_windows import table_function
from tablestream.streams import Stream
from tablestream.tables import GlobalTable


def from_rows(select: exp.Select, context: Context) -> tuple[Rows, list[exp.Expr]]:
    """Join the inputs of a query.

    Returns
    -------
    tuple of Rows and list of Expr
        The rows, and the conditions of WHERE that are not applied yet: those with subqueries or without columns.
    """
    where = select.args.get("where")
    conditions = conjuncts(where.this if where else None)
    nodes, used = _nodes(select, context), _used_names(select)
    places = [number for number, one in enumerate(nodes) if generator_of(one) is not None or _is_lateral(one)]
    ends = [*places, len(nodes)]
    inputs = _inputs(nodes[: ends[0]], used, select, context)
    inputs = inputs or [Input(one_row((nodes or [select])[0], context))]
    for place, end in zip(places, ends[1:], strict=True):
        told = Scope(replace(inputs[0].rows, visible=_visible(inputs)), context, "WHERE")
        adds_rows = any(one.args.get("side") in {"RIGHT", "FULL"} for one in nodes[place:])
        ready = (
            [] if adds_rows else [one for one in conditions if _is_qualified(one) and told.can_tell([one])]
        )
        rows, rest = joined(inputs, ready, context)
        if adds_rows:  # WHERE filters these, too; what is left of ON is only about the rows before
            for one in rest:
                rows = filtered(rows, one, "ON", context)
            rest = []
        conditions = [*rest, *(one for one in conditions if one not in ready)]
        begin, more = nodes[place], nodes[place + 1 : end]
        rows = context.lateral(begin, rows, context) if _is_lateral(begin) else expanded(begin, rows, context)
        inputs = [Input(rows), *_inputs(more, used, select, context)]
        inputs = _told_apart(inputs, context)
    return joined(inputs, conditions, context)


def _is_lateral(node: exp.Expr) -> TypeGuard[exp.Join]:
    """Whether a part of FROM is a subquery that can name the rows before it."""
    return isinstance(node, exp.Join) and isinstance(node.this, exp.Lateral) and generator_of(node) is None


def _is_qualified(condition: exp.Expr) -> bool:
    """Whether a condition names tables with all its columns: what a name alone means is known behind the last input."""
    columns = list(own_columns(condition))
    return bool(columns) and all(one.table for one in columns)


def _visible(inputs: Sequence[Input]) -> tuple[Visible, ...]:
    return tuple(column for one in inputs for column in one.rows.visible)


def _nodes(select: exp.Select, context: Context) -> list[exp.Expr]:
    """The parts of FROM, one after the other."""
    begin, laterals = select.args.get("from_"), select.args.get("laterals") or []
    if begin is None:
        return laterals
    first, joins = _first(begin.this)
    joins = [*joins, *(select.args.get("joins") or [])]
    _check_commas(joins, context)
    return [first, *joins, *laterals]


def _inputs(
    nodes: Sequence[exp.Expr], used: set[str] | None, select: exp.Select, context: Context
) -> list[Input]:
    """Tables and queries of FROM, with the columns that the query names."""
    found = _read(nodes, context, used)
    found = _told_apart(found, context)
    if len(found) > 1:
        found = [replace(one, rows=_narrowed(one.rows)) for one in found]
    waiting = with_waits([one.rows for one in found], select, context)
    found = [replace(one, rows=rows) for one, rows in zip(found, waiting, strict=True)]
    _check_versions(found, context)
    return found


def _check_versions(found: Sequence[Input], context: Context) -> None:
    """Refuse versions that are not looked up for rows before them."""
    for number, one in enumerate(found):
        if one.rows.as_of is not None and (number == 0 or one.how not in {"inner", "left"}):
            raise context.reasons.at(
                one.rows.place,
                one.rows.as_of.clause,
                "Versions are found for the rows of another input.",
                "Write it behind that one, as in FROM trades t JOIN quotes FOR SYSTEM_TIME AS OF t.at AS q ON ....",
            )


def _first(node: exp.Expr) -> tuple[exp.Expr, list[exp.Join]]:
    """The first input of FROM and the joins after it: parentheses around the first ones change nothing."""
    joins = node.args.get("joins") or []
    if not _is_join(node):
        return node, joins
    first, inside = _first(node.this)
    return first, [*inside, *joins]


def _is_join(node: exp.Expr) -> bool:
    """Whether something in FROM is a join in parentheses, without an alias."""
    is_more = more_parts(node, ("this", "joins"))
    is_source = isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table | exp.Subquery)
    return is_source and not is_more and (bool(node.this.args.get("joins")) or _is_join(node.this))


def _read(nodes: Sequence[exp.Expr], context: Context, used: set[str] | None) -> list[Input]:
    """Read inputs, and note why each that cannot be read is refused."""
    found, refused = list[Input](), list[PartRefusedError]()
    for node in nodes:
        try:
            with context.reasons.placed(beginning(node), "FROM"):
                if isinstance(node, exp.Join):
                    found += _further(node, context, used)
                else:
                    found.append(Input(_pruned(_rows_of(node, context), used)))
        except PartRefusedError as error:
            context.reasons.add(error)
            refused.append(error)
    if refused:
        raise refused[0]
    return found


def _check_commas(joins: Iterable[exp.Join], context: Context) -> None:
    """Refuse joins after a comma that systems read in two ways: before the comma, and after it."""
    has_comma = False
    for one in joins:
        place = span(one)
        if place is not None and context.text[place[0]] == ",":
            has_comma = True
        elif has_comma and (one.side in {"RIGHT", "FULL"} or one.method == "NATURAL"):
            raise context.refuse(
                one,
                "JOIN",
                f"A comma before {one.side or one.method} JOIN leaves open what is joined first.",
                "Write JOIN in place of the comma.",
            )


def _told_apart(inputs: Sequence[Input], context: Context) -> list[Input]:
    """Give subqueries without an alias names of their own, and refuse a name that two inputs have."""
    taken: set[str] = set().union(*(one.rows.sources for one in inputs))
    seen, found = set[str](), list[Input]()
    for one in inputs:
        rows = one.rows
        if rows.sources == {""} and len(inputs) > 1:
            name = unique("subquery", taken, rows.fold)
            taken.add(name)
            rows = replace(rows, visible=tuple(replace(column, source=name) for column in rows.visible))
        twice = rows.sources & seen
        if twice:
            said = f"Two inputs are called {', '.join(twice)}."
            raise context.reasons.at(rows.place, "FROM", said, "Give one an alias.")
        seen |= rows.sources
        found.append(replace(one, rows=rows))
    return found


def _further(node: exp.Join, context: Context, used: set[str] | None) -> list[Input]:
    """The input that a join brings, and those that are joined with it before."""
    given = _input(node, context, used)
    nested = node.this.args.get("joins") or []
    if not nested:
        return [given]
    if not all(map(is_inner, (node, *nested))):
        raise context.refuse(
            node,
            "JOIN",
            "A join inside another one is only maintained if both are inner joins with ON.",
            "Write the inner one as a subquery.",
        )
    found = [replace(given, on=()), *(one for join in nested for one in _further(join, context, used))]
    return [*found[:-1], replace(found[-1], on=(*found[-1].on, *given.on))]


def is_inner(node: exp.Join) -> bool:
    """Whether a join is an inner one, without USING."""
    is_more = any(node.args.get(part) for part in ("side", "method", "using"))
    return not is_more and node.kind in {"", "INNER", "CROSS"}


def _input(node: exp.Join, context: Context, used: set[str] | None) -> Input:
    """The input that a join brings, and how."""
    _check_join(node, context)
    on = tuple(
        one
        for one in conjuncts(node.args.get("on"))
        if not (isinstance(one, exp.Boolean) and span(one) is None)  # the parser adds `true`
    )
    for condition in on:
        if node.method == "ASOF" and condition.find(*SUBQUERIES) is not None:
            raise context.refuse(
                condition,
                "ON",
                "A subquery in ON of this join is not maintained.",
                "Write it in WHERE, or join it in FROM.",
            )
    if _is_join(node.this):
        first, joins = _first(node.this)
        inside = _told_apart(_read([first, *joins], context, used), context)
        _check_commas(joins, context)
        _check_versions(inside, context)
        rows, unknown = joined(inside, [], context)
        for condition in unknown:
            rows = filtered(rows, condition, "ON", context)
        rows = replace(rows, place=beginning(node))
    else:
        rows = _pruned(_rows_of(node.this, context), used)
    if node.method == "ASOF":
        rows, compared = of_asof_join(node, rows, on, context)
        on = tuple(compared)
    how = node.kind.lower() if node.kind in {"SEMI", "ANTI"} else node.side.lower() or "inner"
    using = tuple(node.args.get("using") or [])
    return Input(rows, how, on, using, is_natural=node.method == "NATURAL")


def _check_join(node: exp.Join, context: Context) -> None:
    """Refuse joins that are none of inner, outer, semi and anti joins."""
    side, kind, method = node.side, node.kind, node.method
    is_known = method in {"", "NATURAL", "ASOF"} and kind in {"", "INNER", "CROSS", "OUTER", "SEMI", "ANTI"}
    is_half = kind in {"SEMI", "ANTI"} and side not in {"", "LEFT"}
    if not is_known or is_half or (kind == "OUTER" and not side):
        words = " ".join(one for one in (method, side, kind) if one)
        raise context.refuse(node, "JOIN", f"{words} JOIN is not maintained.", "")
    _check_parts(node, "join", ("this", "on", "using", "side", "kind", "method", "hint"), context)
    if node.this.args.get("pivots"):
        said = "Whether the join is meant, or its last table, is open."
        raise context.refuse(node, "PIVOT", said, "Write FROM (SELECT ...) PIVOT (...).")


def _check_parts(node: exp.Expr, what: str, known: Sequence[str], context: Context) -> None:
    """Refuse what a part of FROM says beyond what is known."""
    for part in more_parts(node, known):
        instead = "Write FROM (SELECT ...) PIVOT (...)." if part == "pivot" else ""
        raise context.refuse(node, "FROM", f"A {what}'s {part} is not maintained.", instead)


def _rows_of(node: exp.Expr, context: Context) -> Rows:
    """The rows of a table or of a subquery in FROM, as PIVOT and UNPIVOT turn them."""
    pivots = node.args.get("pivots")
    if not pivots:
        return _rows_as_read(node, context)
    read = node.copy()
    read.set("pivots", None)
    rows = _rows_as_read(read, context)
    for one in pivots:
        rows = pivoted(rows, one, context)
    return rows


def _rows_as_read(node: exp.Expr, context: Context) -> Rows:
    """The rows of a table or of a subquery in FROM, as they are read."""
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
        return _table(node, context)
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Anonymous):
        return _function(node, node.this, context)
    is_lateral = isinstance(node, exp.Lateral) and isinstance(node.this, exp.Subquery)
    is_values = isinstance(node, exp.Table) and isinstance(node.this, exp.Values)
    if is_lateral or is_values:  # with nothing before it; within the parentheses of a join
        alias, node = node.args.get("alias"), node.this.copy()
        node.set("alias", alias)
    if isinstance(node, exp.Values):
        return replace(
            expanded(exp.Join(this=node.copy()), one_row(node, context), context), place=beginning(node)
        )
    if not isinstance(node, exp.Subquery):
        kind = type(node.this if isinstance(node, exp.Table) else node).__name__.upper()
        raise context.refuse(
            node, "FROM", f"{kind} in FROM is not maintained.", "Name a table or a subquery."
        )
    _check_parts(node, "subquery", ("this", "alias", "joins"), context)
    inside = node.this
    if isinstance(inside, exp.Table | exp.Subquery):
        is_named = bool(node.args.get("alias"))
        if inside.args.get("joins") or (is_named and isinstance(inside, exp.Table)):
            raise context.refuse(
                node,
                "FROM",
                "A join in parentheses that has an alias is not maintained.",
                "Write it as a subquery.",
            )
        if not is_named and not more_parts(inside, ("this", "alias", "db", "catalog")):
            return _rows_of(inside, context)
    shown, names = _alias(node)
    result = context.result(inside, bounds={} if names else _bounds(node, shown))
    return replace(result.rows(shown, names), place=beginning(node))


def _function(node: exp.Table, call: exp.Anonymous, context: Context) -> Rows:
    """The rows of ``TUMBLE(TABLE t, ...)`` or ``HOP(TABLE t, ...)``, also within ``TABLE(...)``."""
    _check_parts(node, "table", ("this", "alias", "joins"), context)
    inside = call.expressions[0] if call.expressions else None
    if call.name.upper() == "TABLE" and isinstance(inside, exp.Anonymous):
        call, inside = inside, inside.expressions[0] if inside.expressions else None
    if call.name.upper() not in {"TUMBLE", "HOP"} or not isinstance(inside, exp.Table):
        raise context.refuse(
            node,
            "FROM",
            f"{call.name.upper()} in FROM is not maintained.",
            "Name a table or a subquery, or write TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '5' MINUTES).",
        )
    rows, (alias, names) = table_function(call, _table(inside, context), context), _alias(node)
    if names:
        raise context.refuse(node, "FROM", "Its columns have their own names.", "Name them in SELECT.")
    visible = tuple(replace(one, source=alias or one.source) for one in rows.visible)
    return replace(rows, visible=visible, place=beginning(node))


def _table(node: exp.Table, context: Context) -> Rows:
    """The rows of a table that a query names."""
    _check_parts(node, "table", ("this", "alias", "db", "catalog", "joins", "hints", "version"), context)
    if node.args.get("db"):
        raise context.refuse(
            node, "FROM", f"There is no table {node.sql('spark')}.", "Name a table without its database."
        )
    made = context.tables.get(node.name.lower())
    if made is None:
        raise context.refuse(
            node, "FROM", f"There is no table {node.name}.", f"Tables are: {', '.join(context.tables)}."
        )
    shown, names = _alias(node)
    rows = replace(made().rows(shown or node.name, names), place=beginning(node))
    version = node.args.get("version")
    return rows if version is None else of_version(version, rows, context)


def _alias(node: exp.Expr) -> tuple[str, list[str]]:
    """The alias of an input, and the names that it gives to columns."""
    return node.alias, node.alias_column_names


def _bounds(subquery: exp.Subquery, alias: str) -> dict[str, int]:
    """How many rows of a ranking the query around a subquery wants: ``rank <= 3``, by the names of columns."""
    select, join = subquery.find_ancestor(exp.Select), subquery.parent
    if isinstance(join, exp.Join) and join.kind in {"SEMI", "ANTI"}:  # its columns are not there
        return {}
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
            found[column.name] = min(bound, found.get(column.name, bound))
    return found


def _is_whole(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit()


def _used_names(select: exp.Select) -> set[str] | None:
    """The names in a query, which columns may have; None if a star or NATURAL JOIN takes all."""
    if any(one.method == "NATURAL" for one in select.find_all(exp.Join)):
        return None
    for one in select.find_all(exp.Star):
        around = one.parent
        is_of_exists = isinstance(around, exp.Select) and isinstance(around.parent, exp.Exists)
        if not isinstance(around, exp.Count) and not is_of_exists:
            return None
    return {one.name.lower() for one in select.find_all(exp.Identifier)}


def _pruned(rows: Rows, used: set[str] | None) -> Rows:
    if used is None:
        return rows
    return replace(rows, visible=tuple(one for one in rows.visible if one.name.lower() in used))


def _narrowed(rows: Rows) -> Rows:
    """The rows without the columns that the query does not name: a join remembers all that it gets."""
    table, seen = rows.table, {one.column for one in rows.visible}
    if isinstance(table, Stream | GlobalTable) or rows.as_of is not None:
        return rows
    return replace(rows, table=with_values(table, {one: one for one in table.columns if one in seen}))
