"""What a query needs of tables beside their methods: the session, the plan's node, other names for a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream import functions as tf
from tablestream.base.calling import user_line
from tablestream.handles.unions import same_column
from tablestream.handles.values import empty
from tablestream.streams import Stream
from tablestream.tables import Table
from tablestream.topology.graph import ancestors
from tablestream.topology.nodes import Field, Named, Node, Select, Source
from tablestream.topology.nulls import nullable_names

Handle = Table | Stream
#: The columns that the result of a query has for its key, and that the query does not name.
_hidden: WeakKeyDictionary[Handle, Sequence[str]] = WeakKeyDictionary()


def session_of(handle: Handle) -> SparkSession:
    """The session of a table."""
    return handle._spark  # noqa: SLF001 - the methods that a query becomes are of this package


def node_of(handle: Handle) -> Node:
    """The node of the plan that makes a table."""
    return handle._node  # noqa: SLF001 - the same


def hidden_columns(handle: Handle) -> Sequence[str]:
    """The columns of the result of a query that stars pass over."""
    return _hidden.get(handle, ())


def with_hidden(handle: Handle, columns: Sequence[str]) -> Handle:
    """A twin of a result, whose stars pass over some columns; the same one if there are none."""
    if not columns:
        return handle
    twin = type(handle)(node_of(handle), session_of(handle))
    _hidden[twin] = tuple(columns)
    return twin


def empty_rows(handle: Handle) -> DataFrame:
    """A frame with the columns of a table and no rows."""
    return empty(session_of(handle), handle.schema)


def type_of(handle: Handle, text: str) -> T.DataType:
    """The type of SQL over a table's columns; raises Spark's own errors."""
    return empty_rows(handle).select(F.expr(text)).schema[0].dataType


def selected_type(handle: Handle, text: str) -> T.DataType:
    """The same, with the errors of `Table.select`, which have hints."""
    kind: T.DataType = handle.select(F.expr(f"{text} AS `value of the row`")).schema[-1].dataType
    return kind


def flat_mapped(handle: Handle, array: str, position: str) -> Handle:
    """A row for each struct of an array; rows of a table have its place there as a part of their key."""
    return handle.flat_map(array) if isinstance(handle, Stream) else handle.flat_map(array, position=position)


def never_null(handle: Handle, column: str) -> bool:
    """Whether a column is a part of the key that cannot be null."""
    return column in handle.key_columns and column not in nullable_names(node_of(handle))


def begun(table: Table) -> Table:
    """One row, as soon as the first table that a plan reads has had one."""
    sources = (one for one in ancestors(node_of(table)) if isinstance(one, Source) and not one.records)
    first = Table(next(sources, node_of(table)), session_of(table))
    return first.group_by().agg(begun=tf.count())


def with_key_names(handle: Handle, names: Sequence[str]) -> Handle:
    """The same table whose key columns have other names. No value may have one of them."""
    node = node_of(handle)
    if list(names) == handle.key_columns:
        return handle
    key = [Field(name, one.type) for name, one in zip(names, node.key, strict=True)]
    return _selected(handle, f"{handle.name}_select", key, {one.name: one.name for one in node.value})


def with_values(handle: Handle, names: Mapping[str, str]) -> Handle:
    """The same table with some of its value columns, each under another name or its own."""
    node = node_of(handle)
    if all(names.get(one.name) == one.name for one in node.value):
        return handle
    return _selected(handle, handle.name, node.key, names)


def _selected(handle: Handle, name: str, key: Sequence[Field], names: Mapping[str, str]) -> Handle:
    """The same table with a key and some of its value columns, each under a name; no value is computed."""
    node = node_of(handle)
    kept = [one for one in node.value if one.name in names]
    select = Select(
        name=name,
        where=user_line(),
        key=tuple(key),
        value=tuple(replace(one, name=names[one.name]) for one in kept),
        parent=node,
        columns=tuple(Named(names[one.name], same_column(one.name)) for one in kept),
    )
    return type(handle)(select, session_of(handle))
