"""SELECT: the columns of a result, and the names of its key.

A key column that the query names has the query's name. One that it does not name stays, under its own name, or with
``_key`` behind it where a column of the query has that name.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql import types as T
from sqlglot import exp

from tablestream.connectors.sink import quoted
from tablestream.connectors.spark_types import nullable
from tablestream.spark.analysis import folding, unlogged
from tablestream.spark.columns import sql_type
from tablestream.sql.context import Context, Result
from tablestream.sql.handles import Handle, session_of, type_of, with_key_names, with_values
from tablestream.sql.parse import beginning
from tablestream.sql.rows import Rows, unique
from tablestream.sql.scope import Scope

#: Expressions whose parts can be void.
_MAY_BE_VOID = (exp.Null, exp.Array, exp.Map, exp.VarMap)


@dataclass(frozen=True)
class Item:
    """A column of SELECT.

    Attributes
    ----------
    name
        Its name.
    node
        The expression, without the alias.
    column
        The column of the rows that it is; None: an expression.
    named
        Whether the query says the name.
    """

    name: str
    node: exp.Expr
    column: str | None
    named: bool = True


def items_of(select: exp.Select, scope: Scope, context: Context) -> list[Item]:
    """The columns of SELECT, stars taken apart."""
    found: list[Item] = []
    for one in select.expressions:
        with context.reasons.part(beginning(one), "SELECT"):
            found += _star(one, scope) if one.is_star else [_item(one, scope)]
    _check_names(shown_items(found, context), scope)
    return found


def place_in_select(node: exp.Expr, count: int, clause: str, context: Context) -> int | None:
    """Which of some columns of SELECT a number in GROUP BY or ORDER BY means, from 0; None: it is no number."""
    if not isinstance(node, exp.Literal) or node.is_string:
        return None
    if not node.name.isdigit() or not 1 <= int(node.name) <= count:
        raise context.refuse(node, clause, f"SELECT has no column {node.name}.", "Name the expression.")
    return int(node.name) - 1


def shown_items(items: Sequence[Item], context: Context) -> list[Item]:
    """The columns under the names that another query says, as the first one of a union does."""
    if len(items) != len(context.names):
        return list(items)
    return [replace(one, name=name) for one, name in zip(items, context.names, strict=True)]


def _item(node: exp.Expr, scope: Scope) -> Item:
    expression = node.unalias()
    if isinstance(node, exp.Aliases):
        raise scope.context.refuse(
            node,
            "SELECT",
            "Of what makes several rows or columns, only explode, posexplode and inline are maintained.",
            "Write inline(array(struct(...), ...)).",
        )
    if isinstance(node, exp.Alias):
        name = node.alias
    elif isinstance(expression, exp.Column):
        name = expression.name
    else:
        name = scope.shown(expression)
    is_named = isinstance(node, exp.Alias | exp.Column)
    return Item(name, expression, scope.name(expression), is_named)


def _star(node: exp.Expr, scope: Scope) -> list[Item]:
    """The columns that a star stands for."""
    rows, context = scope.rows, scope.context
    parts = node.parts[:-1] if isinstance(node, exp.Column) else []
    before = [one for one in parts if isinstance(one, exp.Identifier)]
    star = node.this if isinstance(node, exp.Column) else node
    if not isinstance(star, exp.Star):
        raise context.refuse(node, "SELECT", "A star cannot stand here.", "Name the columns.")
    for part in ("replace", "rename", "ilike"):
        if star.args.get(part):
            raise context.refuse(
                node, "SELECT", f"Spark has no {part.upper()} of a star.", "Name the columns."
            )
    table = rows.fold(before[0].name) if len(before) == 1 else ""
    if before and (not table or table not in rows.sources):
        every = _fields(before, scope)
    else:
        every = [
            Item(one.name, exp.column(one.name, table=one.source or None), one.column)
            for one in rows.shown
            if (rows.fold(one.source) == table if table else not one.merged)
        ]
    left_out = {rows.fold(one.name) for one in star.args.get("except_") or []}
    found = [one for one in every if rows.fold(one.name) not in left_out]
    if not found:
        said = ".".join(one.name for one in before) or "*"
        raise context.refuse(node, "SELECT", f"{said} has no columns here.", "")
    return found


def _fields(struct: Sequence[exp.Identifier], scope: Scope) -> list[Item]:
    """The fields that a star behind a struct stands for."""
    text, fields = scope.sql(exp.column(*reversed(struct))), list[str]()
    with suppress(PySparkException), unlogged():  # it has no such field
        kind = type_of(scope.rows.table, text)
        fields = kind.names if isinstance(kind, T.StructType) else []
    return [Item(one, exp.column(one, *reversed(struct), quoted=True), None) for one in fields]


def _check_names(items: Sequence[Item], scope: Scope) -> None:
    """Refuse names that two columns would have."""
    seen: set[str] = set()
    for one in items:
        name = scope.rows.fold(one.name)
        if name in seen:
            error = scope.context.refuse(
                one.node,
                "SELECT",
                f"Two columns of the result are called {one.name}.",
                "Name the columns, and give one an alias with AS.",
            )
            scope.context.reasons.add(error)
        seen.add(name)


def selected(rows: Rows, items: Sequence[Item], texts: Sequence[str], key: str = "") -> Result:
    """Make the result.

    Parameters
    ----------
    rows
        What the columns are computed from.
    items, texts
        The columns, and their SQL.
    key
        What a key that no column shows is called; default: as it is.
    """
    fold, table = rows.fold, rows.table
    texts, untyped = typed(table, items, texts)
    keys = dict.fromkeys(table.key_columns, "")
    values: list[tuple[Item, str]] = []
    for item, text in zip(items, texts, strict=True):
        if item.column in keys and not keys[item.column]:
            keys[item.column] = item.name
        else:
            values.append((item, text))
    taken = [one.name for one in items]
    for number, (own, name) in enumerate(keys.items(), 1):
        if not name:
            wanted = f"{key}_{number}" if key else own
            is_free = fold(wanted) not in set(map(fold, taken))
            keys[own] = wanted if is_free else unique(f"{wanted}_key", taken, fold)
            taken.append(keys[own])
    made = _computed(table, list(keys.values()), values)
    columns = {item.name: item.name for item in items}
    return Result(made, columns, untyped)


def typed(
    table: Handle, items: Sequence[Item], texts: Sequence[str]
) -> tuple[list[str], dict[str, T.DataType]]:
    """Cast what is void, such as ``NULL`` and ``array()``, to texts; return also its own types, by names of columns."""
    found, untyped = list(texts), dict[str, T.DataType]()
    for number, one in enumerate(items):
        if one.node.find(*_MAY_BE_VOID) is not None:
            with suppress(PySparkException), unlogged():  # what is wrong is said where the column is made
                kind = type_of(table, texts[number])
                if with_texts(kind) != nullable(kind):
                    found[number] = f"CAST({texts[number]} AS {sql_type(with_texts(kind))})"
                    untyped[one.name] = kind
    return found, untyped


def with_texts(kind: T.DataType) -> T.DataType:
    """The type with texts in place of void, which no table of Spark can hold."""
    return nullable(kind, lambda leaf: T.StringType() if isinstance(leaf, T.NullType) else leaf)


def _computed(table: Handle, keys: Sequence[str], values: Sequence[tuple[Item, str]]) -> Handle:
    """The table with its values, then the names of its key."""
    plain = [item.column for item, _ in values if item.column == item.name]
    own = table.columns[len(table.key_columns) :]
    if plain != own or len(values) != len(own):
        table = _with_values(table, keys, values)
    return with_key_names(table, keys)


def _with_values(table: Handle, keys: Sequence[str], values: Sequence[tuple[Item, str]]) -> Handle:
    """The table with other values. A name that its key has before it is renamed is lent another one."""
    fold = folding(session_of(table))
    old = set(map(fold, table.key_columns)) - set(map(fold, keys))
    lent = {item.name: f"{item.name} of the query" for item, _ in values if fold(item.name) in old}
    columns = [
        item.column
        if item.column == item.name and item.name not in lent
        else F.expr(f"{text} AS {quoted(lent.get(item.name, item.name))}")
        for item, text in values
    ]
    made = table.select(*columns)
    return made if not lent else _given_back(made, keys, {new: name for name, new in lent.items()})


def _given_back(table: Handle, keys: Sequence[str], names: dict[str, str]) -> Handle:
    """The table with the names of its key, and then of those values that had been lent others."""
    table = with_key_names(table, keys)
    return with_values(table, {one: names.get(one, one) for one in table.columns[len(keys) :]})
