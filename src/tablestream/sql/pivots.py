"""PIVOT: groups with an aggregate of the rows of each value. UNPIVOT: a row for each of some columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import types as T
from sqlglot import exp

from tablestream import functions as tf
from tablestream.connectors.sink import quoted
from tablestream.spark.analysis import unlogged
from tablestream.spark.columns import sql_type
from tablestream.sql.aggregates import Aggregates, is_aggregate
from tablestream.sql.context import Context
from tablestream.sql.elements import with_elements
from tablestream.sql.groups import OF_NONE, Grouped, always_a_row
from tablestream.sql.handles import empty_rows, session_of
from tablestream.sql.parse import beginning, more_parts
from tablestream.sql.rows import Rows, Visible, unique
from tablestream.sql.scope import Scope, own_columns
from tablestream.streams import Stream
from tablestream.tables import GlobalTable

#: The parts of a pivot that are looked at; the others are marks of the parser.
_PARTS = [
    *("expressions", "fields", "alias", "unpivot", "include_nulls", "columns", "value_columns_first"),
    *("identify_pivot_strings", "pivot_column_naming", "prefixed_pivot_columns"),
]


def pivoted(rows: Rows, node: exp.Pivot, context: Context) -> Rows:
    """Return the rows of a table as the PIVOT or UNPIVOT behind it turns them."""
    clause, alias = "UNPIVOT" if node.unpivot else "PIVOT", node.args.get("alias")
    field = node.fields[0] if len(node.fields) == 1 else None
    is_more = bool(more_parts(node, _PARTS)) or (alias is not None and bool(alias.columns))
    is_more |= rows.as_of is not None or isinstance(rows.table, GlobalTable)
    is_known = isinstance(field, exp.In) and field.expressions and not field.find(exp.PivotAny, exp.Query)
    if is_more or not is_known:
        said = "It is maintained in Spark's form, with a list of constants or columns."
        raise context.refuse(node, clause, said, f"Write {clause} (... FOR name IN (...)).")
    assert isinstance(field, exp.In)  # noqa: S101 - it is known
    scope = Scope(rows, context, clause)
    with context.reasons.placed(beginning(node), clause):
        turned = _unpivoted(node, field, scope) if node.unpivot else _pivoted(node, field, scope)
    source = alias.name if alias is not None else next((one.source for one in rows.visible), "")
    visible = tuple(replace(one, source=source) for one in turned.visible)
    return replace(turned, visible=visible, place=rows.place)


def _pivoted(node: exp.Pivot, field: exp.In, scope: Scope) -> Rows:
    """Groups by the columns that PIVOT does not name, with its aggregates of the rows with each value."""
    rows, context, made = scope.rows, scope.context, Aggregates(scope)
    columns = [_column(one, scope) for one in _parts(field.this)]
    groups = _others([*node.expressions, field.this], rows)
    taken, several = [one.column for one in groups], len(node.expressions) > 1
    functions: dict[str, Any] = {}
    texts, conditions, shown = dict[str, str](), dict[str, str](), dict[str, str]()
    for value in field.expressions:
        condition = _is_value(value, columns, scope)
        if condition in conditions.values():
            raise context.refuse(value, "PIVOT", "It has this value twice.", "Leave one out.")
        for aggregate in node.expressions:
            inside = aggregate.unalias()
            if not is_aggregate(inside):
                said = "It computes something else than an aggregate."
                raise context.refuse(aggregate, "PIVOT", said, "Compute it in SELECT.")
            name = unique(f"agg_{len(functions) + 1}", taken, rows.fold)
            functions[name], conditions[name] = made.function(inside, condition), condition
            texts[name] = made.of_set(inside, name) or quoted(name)
            ending = f"_{aggregate.alias or scope.shown(inside)}" if several else ""
            shown[name] = f"{_name_of(value, context)}{ending}"
    of_none = {
        name: OF_NONE[one.name]
        for name, one in functions.items()
        if one.name in OF_NONE and texts[name] == quoted(name)
    }
    grouped = rows.table.group_by(*taken)
    if _are_numbers(grouped.agg(**functions).with_columns(**texts).schema, functions):
        # Spark aggregates by the value first, so a group without rows of it has null, and no count of 0.
        present = {name: unique(f"rows_{name}", taken, rows.fold) for name in of_none}
        functions |= {
            to: tf.count(f"CASE WHEN {conditions[name]} THEN 1 END") for name, to in present.items()
        }
        texts |= {name: f"CASE WHEN {quoted(to)} > 0 THEN {quoted(name)} END" for name, to in present.items()}
        of_none = {}
    table = grouped.agg(**functions).with_columns(**texts)
    found = Rows(table, (*groups, *(Visible("", to, name) for name, to in shown.items())))
    if groups or isinstance(rows.table, Stream):
        return found
    return always_a_row(Grouped(found, scope, of_none), rows.table).rows


def _are_numbers(schema: T.StructType, names: Iterable[str]) -> bool:
    """Whether all columns of some names are numbers or booleans."""
    return all(isinstance(schema[one].dataType, T.NumericType | T.BooleanType) for one in names)


def _parts(node: exp.Expr) -> list[exp.Expr]:
    """The elements of a row, or the one that stands alone."""
    return node.expressions if isinstance(node, exp.Tuple) else [node.unnest()]


def _column(node: exp.Expr, scope: Scope) -> Visible:
    """The column that a part of a pivot is."""
    found = scope.column(node)
    if found is None:
        scope.sql(node)  # there is none of its name
        raise scope.context.refuse(node, scope.clause, "This is no column.", "Compute it in a subquery.")
    return found


def _others(nodes: Sequence[exp.Expr], rows: Rows) -> list[Visible]:
    """The columns that some expressions do not name."""
    named = [rows.find([part.name for part in one.parts]) for node in nodes for one in own_columns(node)]
    used = {found[0].column for found in named if found is not None}
    return [one for one in rows.shown if one.column not in used]


def _is_value(value: exp.Expr, columns: Sequence[Visible], scope: Scope) -> str:
    """The condition that columns have a value, which is cast to their types, as in Spark."""
    parts = _parts(value.unalias())
    if len(parts) != len(columns) or any(any(own_columns(one)) for one in parts):
        said = "A value has to be a constant for each column behind FOR."
        raise scope.context.refuse(value, scope.clause, said, "Write IN (1, 2) or IN ((1, 'a'), (2, 'b')).")
    kinds = {one.name: one.dataType for one in scope.rows.table.schema}
    conditions = []
    for one, part in zip(columns, parts, strict=True):
        constant = f"CAST({scope.sql(part)} AS {sql_type(kinds[one.column])})"
        made = f"SELECT {constant} AS value FROM VALUES (1)"  # which Spark computes without a job
        try:
            with unlogged():
                (found,) = session_of(scope.rows.table).sql(made).collect()
        except PySparkException as error:
            said = f"It is no value of {one.name}: {str(error).strip().splitlines()[0]}"
            raise scope.context.refuse(value, scope.clause, said, "Write another constant.") from error
        if isinstance(found.value, float) and math.isnan(found.value):
            said = "Spark finds no row by NaN here."
            raise scope.context.refuse(value, scope.clause, said, "Write a number.")
        conditions.append(f"({quoted(one.column)} <=> {constant})")
    return " AND ".join(conditions)


def _name_of(value: exp.Expr, context: Context) -> str:
    """The alias of a value, or its text."""
    name = value.args["alias"].name if isinstance(value, exp.Alias) else _text(value)
    if name is None:
        raise context.refuse(value, "PIVOT", "This value has no name.", "Write IN (value AS name).")
    return str(name)


def _text(value: exp.Expr) -> str | None:
    """The text that Spark makes of a constant; None: it is no string, whole number, boolean, null or row of these."""
    if isinstance(value, exp.Tuple):
        parts = [_text(one) for one in value.expressions]
        return None if None in parts else f"{{{', '.join(map(str, parts))}}}"
    if isinstance(value, exp.Null | exp.Boolean):
        return value.sql("spark").lower()
    number = value.this if isinstance(value, exp.Neg) else value
    if isinstance(number, exp.Literal) and number.name.isdigit() and not number.is_string:
        return f"{'-' if number is not value else ''}{int(number.name)}"
    return value.name if value.is_string else None


def _unpivoted(node: exp.Pivot, field: exp.In, scope: Scope) -> Rows:
    """Each row once for each element of the list: its name, and the values of its columns."""
    rows, context = scope.rows, scope.context
    elements = [(one, one.unalias()) for one in field.expressions]
    columns = [[_column(part, scope) for part in _parts(one)] for _, one in elements]
    names = [field.this.name, *(one.name for one in _parts(node.expressions[0]))]
    is_named_once = len(node.expressions) == 1 and len(set(map(rows.fold, names))) == len(names)
    if not is_named_once or any(len(one) != len(names) - 1 for one in columns):
        said = "It needs a name of its own for each column of an element."
        raise context.refuse(node, "UNPIVOT", said, "Write ((a, b) FOR name IN ((c, d), (e, f))).")
    kinds = [_common_type(alike, node, scope) for alike in zip(*columns, strict=True)]
    structs = []
    for (given, inside), of in zip(elements, columns, strict=True):
        written = [one.name for one in _parts(inside)]
        label = given.args["alias"].name if isinstance(given, exp.Alias) else "_".join(written)
        casts = (
            f"CAST({quoted(one.column)} AS {sql_type(kind)})" for one, kind in zip(of, kinds, strict=True)
        )
        values = (f", 'c{n}', {cast}" for n, cast in enumerate(casts, 1))
        structs.append(f"named_struct('c0', {exp.Literal.string(label).sql('spark')}{''.join(values)})")
    element, place = (unique(one, rows.table.columns, rows.fold) for one in ("element", "place"))
    shown = {name: f"{quoted(element)}.c{n}" for n, name in enumerate(names)}
    others = replace(rows, visible=tuple(_others(field.expressions, rows)))
    made = with_elements(others, f"array({', '.join(structs)})", shown, (element, place))
    if node.args.get("include_nulls"):
        return made
    there = (f"{quoted(one.column)} IS NOT NULL" for one in made.visible[-len(names) + 1 :])
    return replace(made, table=made.table.filter(" OR ".join(there)))


def _common_type(columns: Sequence[Visible], node: exp.Pivot, scope: Scope) -> T.DataType:
    """The type that Spark's UNPIVOT gives columns that become one."""
    names = [quoted(one.column) for one in columns]
    try:
        with unlogged():
            (_, value) = empty_rows(scope.rows.table).unpivot([], [*names], "name", "value").schema
    except AnalysisException as error:
        said = f"Its columns {', '.join(one.name for one in columns)} have no common type."
        raise scope.context.refuse(node, "UNPIVOT", said, "Cast them in a subquery.") from error
    return value.dataType
