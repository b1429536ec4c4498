"""UNION, INTERSECT, EXCEPT and DISTINCT."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import types as T
from sqlglot import exp

from tablestream import functions as tf
from tablestream.connectors.sink import quoted
from tablestream.connectors.spark_types import nullable
from tablestream.handles.unions import key_text
from tablestream.spark.analysis import unlogged
from tablestream.spark.columns import sql_type
from tablestream.sql.clauses import place_of
from tablestream.sql.context import Context, Result
from tablestream.sql.handles import Handle, empty_rows
from tablestream.sql.output import Item, selected, with_texts
from tablestream.sql.parse import without_parentheses
from tablestream.sql.rows import Rows, unique
from tablestream.streams import Stream
from tablestream.tables import Table


def combined(query: exp.SetOperation, context: Context) -> Result:
    """Make a table of two queries or more."""
    sides = _operands(query) if isinstance(query, exp.Union) else [query.left, query.right]
    return combined_results(_results(sides, context), query, context)


def combined_results(results: Sequence[Result], query: exp.SetOperation, context: Context) -> Result:
    """Make a table of the tables of queries."""
    is_distinct = bool(query.args.get("distinct"))
    if query.args.get("by_name"):
        raise context.refuse(
            query, _word(query), "BY NAME is not maintained.", "Write the columns in the same order."
        )
    result, branch = _union_all(results, query, context)
    if isinstance(query, exp.Union):
        return distinct(result, context, query) if is_distinct else result
    one, other = (unique(f"in_{n}", result.columns) for n in (1, 2))
    functions: dict[str, Any] = {
        name: tf.count(f"CASE WHEN {quoted(branch)} = '{n}' THEN 1 END") for n, name in ((1, one), (2, other))
    }
    is_intersect = isinstance(query, exp.Intersect)
    if is_distinct:
        there = f"{one} > 0 AND {other} {'>' if is_intersect else '='} 0"
        return _grouped(result, functions, there, query, context)
    many = f"least({one}, {other})" if is_intersect else f"{one} - {other}"
    copies = f"array_repeat(true, CAST({many} AS INT)) AS {unique('there', result.columns)}"
    with context.reasons.placed(place_of(query, context.text), _word(query)):
        groups = result.table.group_by(*result.columns.values()).agg(**functions)
        table = groups.flat_map(copies, position=unique("copy", result.columns))
        return Result(table.select(), dict(result.columns))


def _results(queries: Sequence[exp.Expr], context: Context) -> list[Result]:
    """The tables of queries; the first one names the columns."""
    first = context.result(queries[0], names=context.names)
    return [first, *(context.result(one, names=tuple(first.columns)) for one in queries[1:])]


def _word(query: exp.Expr) -> str:
    return type(query).__name__.upper()


def _operands(query: exp.SetOperation) -> list[exp.Expr]:
    """The queries that one UNION ALL, or one UNION, puts together."""
    found: list[exp.Expr] = []
    for one in (query.left, query.right):
        bare = without_parentheses(one)
        is_same = bool(bare.args.get("distinct")) == bool(query.args.get("distinct"))
        modified = any(bare.args.get(part) for part in ("order", "limit", "offset", "with_"))
        found += _operands(bare) if isinstance(bare, exp.Union) and is_same and not modified else [one]
    return found


def _union_all(branches: Sequence[Result], query: exp.Expr, context: Context) -> tuple[Result, str]:
    """Put the rows of queries together, by the places of their columns; return also the name of the branch."""
    first = branches[0]
    for one in branches[1:]:
        if len(one.columns) != len(first.columns):
            raise context.refuse(
                query,
                _word(query),
                f"Its queries have {len(first.columns)} and {len(one.columns)} columns.",
                "Give them as many.",
            )
    kinds, names = _common_types(branches, query, context), list(first.columns)
    types = [with_texts(one) for one in kinds]
    untyped = {name: one for name, one in zip(names, kinds, strict=True) if with_texts(one) != nullable(one)}
    is_keyed = _have_one_key(branches, types)
    if any(isinstance(one.table, Stream) for one in branches):
        return Result(_merged(branches, names, types, query, context), {name: name for name in names}), ""
    tables = [_table(_aligned(one, names, types, keyed=is_keyed)) for one in branches]
    if not is_keyed and len({_key_types(one) for one in tables}) > 1:
        key = unique("row_key", [name for one in tables for name in one.columns])
        tables = [_by_text(one, key) for one in tables]
    branch = unique("branch", [*names, *tables[0].columns])
    with context.reasons.placed(place_of(query, context.text), _word(query)):
        made = tables[0].union(
            *tables[1:], branch=branch, names=[str(number) for number in range(1, len(tables) + 1)]
        )
    return Result(made, {name: name for name in names}, untyped), branch


def _merged(
    branches: Sequence[Result],
    names: Sequence[str],
    types: Sequence[T.DataType],
    query: exp.Expr,
    context: Context,
) -> Stream:
    """The records of several streams."""
    streams = [_aligned(one, names, types, keyed=True) for one in branches]
    if not isinstance(query, exp.Union) or not all(isinstance(one, Stream) for one in streams):
        raise context.refuse(
            query,
            _word(query),
            "Records of a stream are only put together with those of another one, by UNION.",
            "Write SELECT DISTINCT, or groups, which are tables; or read the records as a table.",
        )
    if not _have_one_key(branches, types):
        raise context.refuse(
            query,
            _word(query),
            "The streams have keys that the queries do not show at the same places.",
            "Name the columns of the key in each query.",
        )
    with context.reasons.placed(place_of(query, context.text), _word(query)):
        return reduce(Stream.merge, (one for one in streams if isinstance(one, Stream)))


def _table(handle: Handle) -> Table:
    assert isinstance(handle, Table)  # noqa: S101 - streams are merged
    return handle


def _common_types(branches: Sequence[Result], query: exp.Expr, context: Context) -> list[T.DataType]:
    """The types of a union's columns, as Spark finds them."""
    frames = [
        empty_rows(one.table).selectExpr(
            *(
                f"CAST(NULL AS {sql_type(one.untyped[name])})" if name in one.untyped else quoted(column)
                for name, column in one.columns.items()
            )
        )
        for one in branches
    ]
    whole = frames[0]
    try:
        with unlogged():
            for one in frames[1:]:
                whole = whole.union(one)
            return [one.dataType for one in whole.schema]
    except PySparkException as error:
        said = str(error).strip().splitlines()[0]
        raise context.refuse(
            query, _word(query), f"Its queries do not fit: {said}", "Cast the columns."
        ) from error


def _have_one_key(branches: Sequence[Result], types: Sequence[T.DataType]) -> bool:
    """Whether all queries show their keys, at the same places and in the same types."""
    places = []
    for one in branches:
        shown, schema = list(one.columns.values()), one.table.schema
        keys = one.table.key_columns
        if not set(keys) <= set(shown):
            return False
        places.append([shown.index(key) for key in keys])
        if any(schema[key].dataType != types[shown.index(key)] for key in keys):
            return False
    return all(one == places[0] for one in places)


def _aligned(branch: Result, names: Sequence[str], types: Sequence[T.DataType], *, keyed: bool) -> Handle:
    """A query's table with the names and types of the union; `keyed`: its key is among the columns."""
    schema, items, texts = branch.table.schema, [], []
    for name, column, kind in zip(names, branch.columns.values(), types, strict=True):
        is_same = schema[column].dataType == kind
        texts.append(quoted(column) if is_same else f"CAST({quoted(column)} AS {sql_type(kind)})")
        items.append(Item(name, exp.column(column, quoted=True), column if is_same and keyed else None))
    return selected(Rows.of(branch.table, "", [], []), items, texts, key="" if keyed else "row_key").table


def _key_types(table: Table) -> tuple[str, ...]:
    return tuple(one.dataType.json() for one in [*table.schema][: len(table.key_columns)])


def _by_text(table: Table, key: str) -> Table:
    """The table by its key as one text, a column `key`: keys of other tables have other columns."""
    schema = table.schema
    text = key_text((one, schema[one].dataType) for one in table.key_columns)
    keyed = table.to_stream().select_key(f"{text} AS {quoted(key)}")
    return keyed.to_table()


def distinct(result: Result, context: Context, node: exp.Expr) -> Result:
    """Each row once."""
    return _grouped(result, {unique("rows", result.columns): tf.count()}, "", node, context)


def _grouped(
    result: Result, functions: dict[str, Any], condition: str, node: exp.Expr, context: Context
) -> Result:
    """The rows of a query as groups."""
    with context.reasons.placed(place_of(node, context.text), "DISTINCT"):
        table = result.table.group_by(*result.columns.values()).agg(**functions)
        if condition:
            table = table.filter(condition)
        return Result(table.select(), dict(result.columns))
