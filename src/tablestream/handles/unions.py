"""The rows of tables with other keys in one table, and the numbers of rows by some values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.arguments.place import Place
from tablestream.connectors import sink
from tablestream.connectors.json_text import json_sql
from tablestream.errors import ColumnCollisionError
from tablestream.spark.columns import SparkExpression, normalised, quoted, spark_type
from tablestream.spark.row import plain
from tablestream.topology.graph import history_of
from tablestream.topology.measures import Measure
from tablestream.topology.nodes import Aggregate, Expression, Field, Fields, Named, Node, Select
from tablestream.topology.streams import Merge, SelectKey, ToStream, ToTable

#: Before the names of columns on their way: a column of a key is no column of the value.
_CARRIED = "__of."


def records(table: Node, where: str) -> ToStream:
    """The changes of a table as records; of a versioned table those of its latest rows."""
    return ToStream(
        name=f"{table.name}_stream",
        where=where,
        key=table.key,
        value=table.value,
        parent=table,
        latest_only=history_of(table) is not None,
    )


def union_of_rows(tables: Sequence[Node], names: Sequence[str], branch: str, row: str, at: Place) -> Node:
    """The rows of tables with the same columns, keyed by the table's name and a text of the row's key."""
    text = T.StringType().json()
    key, columns = (Field(branch, text), Field(row, text)), (*tables[0].key, *tables[0].value)
    names_of = [one.name.lower() for one in columns]
    taken = {one for one in (branch, row) if one.lower() in names_of}
    if taken or branch.lower() == row.lower():
        raise at.error(
            ColumnCollisionError,
            f"The result would have a column '{next(iter(taken), row)}' twice.",
            "Give branch= and row= other names.",
        )
    merged, *others = (_branch(*one, key, columns, at) for one in zip(tables, names, strict=True))
    node: Node = merged
    for number, other in enumerate(others, 1):
        node = Merge(f"{at.operator}/{number}", at.where, key, node.value, node, other)
    made = ToTable(f"{at.operator}/rows", at.where, key, node.value, node)
    shown = tuple(Named(one.name, same_column(_CARRIED + one.name)) for one in columns)
    return Select(at.operator, at.where, key, columns, made, shown)


def _branch(table: Node, name: str, key: Fields, columns: Fields, at: Place) -> SelectKey:
    """The rows of one table, as records under the new key."""
    value = tuple(Field(_CARRIED + one.name, one.type) for one in columns)
    named = tuple(
        Named(one.name, same_column(column.name)) for one, column in zip(value, columns, strict=True)
    )
    carried = Select(f"{table.name}/columns", at.where, table.key, value, table, named)
    stream = records(carried, at.where)
    own = F.expr(key_text((one.name, spark_type(one)) for one in table.key))
    said = f"to_json(struct({', '.join(one.name for one in table.key)}))"
    parts = (
        SparkExpression(F.lit(name), repr(name), frozenset(), harmless=True),
        SparkExpression(own, said, frozenset(one.name for one in table.key), harmless=True),
    )
    by = tuple(Named(one.name, part) for one, part in zip(key, parts, strict=True))
    return SelectKey(f"{stream.name}_select_key", at.where, key, value, stream, by)


def key_text(columns: Iterable[tuple[str, T.DataType]]) -> str:
    """SQL that makes one text of a row's key: equal keys have equal texts, in every session."""
    named = ((sink.quoted(name), kind) for name, kind in columns)
    shown = ", ".join(f"{normalised(name, kind)} AS {name}" for name, kind in named)
    return json_sql(f"struct({shown})", timeZone="UTC")


def counted_rows(name: str, where: str, rows: Node, key: Fields, on: Sequence[Expression]) -> Aggregate:
    """How many rows have each of some values, which are columns called as those of `key`. Not in compat."""
    return Aggregate(
        name=name,
        where=where,
        key=key,
        value=(Field("count", T.LongType().json()),),
        parent=rows,
        on=tuple(on),
        inputs=(),
        input_fields=(),
        measures=(Measure("count", None),),
        functions=None,
        keep_empty=False,
        of_kafka=False,
    )


def same_column(name: str) -> SparkExpression:
    """A column as it is."""
    return SparkExpression(plain(name) or quoted(name), name, frozenset({name}), harmless=True)
