"""Expressions: the values of tables as Spark Columns over what a stateful operator, or a source, gave.

Stateless nodes (select, filter, the joiner of a join) do no work of their own: they are evaluated here, where
their rows pass as Spark columns anyway. Inside a data frame every internal column has a reserved name; a user's
expression is resolved against the columns of its table, put beside them for that one step. Spark's optimizer
merges the steps into one projection.

A *table column* is a struct with the table's value, null where there is no row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.row import LEFT, RIGHT
from tablestream.topology.nodes import (
    Field,
    Filter,
    Join,
    KeyJoin,
    Named,
    Node,
    Select,
)


@dataclass(frozen=True)
class SparkExpression:
    """A Column as an expression of the logical plan."""

    column: Column
    version: str = ""

    @property
    def text(self) -> str:
        """The column's own text."""
        shown = str(self.column)
        shown = shown.removeprefix("Column<'").removesuffix("'>")
        return f"{shown} [version {self.version}]" if self.version else shown


def spark_type(one: Field) -> T.DataType:
    """Return the Spark type of a field."""
    import json

    return (
        T.StructType.fromJson({"type": "struct", "fields": [_field_json(json.loads(one.type))]})
        .fields[0]
        .dataType
    )


def _field_json(kind: object) -> dict[str, object]:
    return {"name": "x", "type": kind, "nullable": True, "metadata": {}}


def column_of(expression: object) -> Column:
    """Return the Column of an expression of the logical plan."""
    assert isinstance(expression, SparkExpression)  # noqa: S101 - nodes are made by the handles only
    return expression.column


def quoted(*names: str) -> Column:
    """Return the column of a (nested) name as it stands, whatever characters it has."""
    return F.col(".".join(f"`{name.replace('`', '``')}`" for name in names))


@dataclass
class Scope:
    """A data frame in which the values of tables are computed one after the other.

    Parameters
    ----------
    frame
        Holds the internal columns.
    tables
        Table columns by node.
    keys
        Per node the columns of its key, in the order of `Node.key`.
    sides
        Per join and side, table column and key columns of that side, where the join's operator gave them. (A
        table joined to itself by a foreign key is two different rows.)
    """

    frame: DataFrame
    tables: dict[Node, str] = field(default_factory=dict)
    keys: dict[Node, list[Column]] = field(default_factory=dict)
    sides: dict[tuple[Node, str], tuple[str, list[Column]]] = field(default_factory=dict)

    def add(self, name: str, column: Column) -> str:
        """Add an internal column."""
        self.frame = self.frame.withColumn(name, column)
        return name

    def with_columns_of(self, node: Node, name: str, make: Callable[[], Column]) -> str:
        """Add an internal column computed from the columns of a table, which are visible while it is made."""
        internal = [quoted(column) for column in self.frame.columns]
        visible = self.frame.select("*", *self._columns_of(node))
        self.frame = visible.select(*internal, make().alias(name))
        return name

    def _columns_of(self, node: Node) -> list[Column]:
        table = self.value(node)
        keys = [column.alias(one.name) for one, column in zip(node.key, self.key(node), strict=True)]
        return keys + [quoted(table, one.name).alias(one.name) for one in node.value]

    def key(self, node: Node) -> list[Column]:
        """Return the columns of a node's key; selects and filters leave it as it is."""
        if node in self.keys:
            return self.keys[node]
        if isinstance(node, Select | Filter):
            return self.key(node.parent)
        if isinstance(node, KeyJoin):
            return self.key(node.left)
        raise KeyError(node.name)

    def value(self, node: Node) -> str:
        """Compute a node's table column, and those it is made of, and return its name."""
        if node not in self.tables:
            self.tables[node] = self._compute(node)
        return self.tables[node]

    def _compute(self, node: Node) -> str:
        name = f"__table{node.serial}"
        if isinstance(node, Select):
            parent = self.value(node.parent)
            return self.with_columns_of(node.parent, name, lambda: _select(node, parent))
        if isinstance(node, Filter):
            parent = self.value(node.parent)
            return self.with_columns_of(node.parent, name, lambda: _filter(node, parent))
        if isinstance(node, Join):
            return self._join(node, name)
        raise KeyError(node.name)

    def _side(self, join: Join, side: str) -> tuple[str, list[Column]]:
        """Return table column and key columns of one side of a join."""
        given = self.sides.get((join, side))
        if given is not None:
            return given
        node = join.left if side == LEFT else join.right
        return self.value(node), self.key(node)

    def _join(self, join: Join, name: str) -> str:
        (left, left_key), (right, right_key) = self._side(join, LEFT), self._side(join, RIGHT)
        exists = {
            "inner": F.col(left).isNotNull() & F.col(right).isNotNull(),
            "left": F.col(left).isNotNull(),
            "right": F.col(right).isNotNull(),
            "outer": F.col(left).isNotNull() | F.col(right).isNotNull(),
        }[join.how]
        internal = [quoted(column) for column in self.frame.columns]
        if join.delete_when is not None:
            exists &= ~F.coalesce(column_of(join.delete_when).cast("boolean"), F.lit(False))
        rows = (_row(join.left, left, left_key).alias(LEFT), _row(join.right, right, right_key).alias(RIGHT))
        visible = self.frame.select("*", *rows)
        self.frame = visible.select(*internal, F.when(exists, struct_of(join.select, join.value)).alias(name))
        return name


def _row(node: Node, table: str, key: Sequence[Column]) -> Column:
    """A struct with key and value of a table, null where there is no row."""
    columns = [column.alias(one.name) for one, column in zip(node.key, key, strict=True)]
    columns += [quoted(table, one.name).alias(one.name) for one in node.value]
    return F.when(F.col(table).isNotNull(), F.struct(*columns))


def struct_of(columns: Sequence[Named], fields: Sequence[Field]) -> Column:
    """Put named expressions into a struct; a table without columns has a struct with nothing to see."""
    parts = [
        column_of(one.expression).cast(spark_type(kind)).alias(one.name)
        for one, kind in zip(columns, fields, strict=True)
    ]
    return F.struct(*parts) if parts else F.struct(F.lit(None).cast("boolean").alias("__nothing"))


def _select(node: Select, parent: str) -> Column:
    there = F.col(parent).isNotNull()
    if node.delete_when is not None:
        there &= ~F.coalesce(column_of(node.delete_when).cast("boolean"), F.lit(False))
    return F.when(there, struct_of(node.columns, node.value))


def _filter(node: Filter, parent: str) -> Column:
    holds = F.coalesce(column_of(node.condition).cast("boolean"), F.lit(False))
    return F.when(F.col(parent).isNotNull() & (~holds if node.negate else holds), F.col(parent))


def normalised(column: Column, kind: T.DataType) -> Column:
    """Make equal keys identical: one NaN, no negative zero, also inside structs and arrays."""
    if isinstance(kind, T.FloatType | T.DoubleType):
        zero = F.lit(0.0).cast(kind)
        return F.when(F.isnan(column), F.lit(float("nan")).cast(kind)).otherwise(column + zero)
    if isinstance(kind, T.ArrayType) and _has_floats(kind):
        return F.transform(column, lambda element: normalised(element, kind.elementType))
    if isinstance(kind, T.StructType) and _has_floats(kind):
        parts = [normalised(column[one.name], one.dataType).alias(one.name) for one in kind.fields]
        return F.when(column.isNotNull(), F.struct(*parts))
    return column


def _has_floats(kind: T.DataType) -> bool:
    if isinstance(kind, T.StructType):
        return any(_has_floats(one.dataType) for one in kind.fields)
    if isinstance(kind, T.ArrayType):
        return _has_floats(kind.elementType)
    return isinstance(kind, T.FloatType | T.DoubleType)
