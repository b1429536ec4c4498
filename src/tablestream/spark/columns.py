"""Expressions: the values of tables as Spark Columns over the result of a stateful operator or a source.

Stateless nodes (select, filter, the select function of a join) run no operator: they are evaluated here, where
their rows are Spark columns anyway. Inside a data frame every internal column has a reserved name. A user's
expression is resolved against the columns of its table, which are added for that one step. Spark's optimizer merges
the steps into one projection.

Tables are kept as flat columns, never as intermediate structs: Spark would box every field of every row.

A data frame also has rows without a row of the table: deletes, changes of other tables, messages that only pass. A
user's expression must not run there, since it may fail on nulls that no row has. So it always stands inside
`F.when`, never beside ``&``: Spark evaluates a common subexpression of both sides of ``&`` beforehand, but never
one of a branch. Python functions are the exception. Spark moves them out of every condition and calls them for all
rows; their results are discarded where there is no row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.connectors import sink
from tablestream.row import LEFT, RIGHT, Plain, side_column
from tablestream.spark.types import nullable
from tablestream.topology.nodes import Expression, Field, Filter, Join, Named, Node, Select
from tablestream.topology.streams import SelectKey, ToStream


@dataclass(frozen=True)
class SparkExpression:
    """A Column as an expression of the logical plan; its text is the same in every process that builds it."""

    given: Column | Plain
    text: str

    @property
    def column(self) -> Column:
        """The Column."""
        return self.given.column if isinstance(self.given, Plain) else self.given


@lru_cache(maxsize=10_000)
def spark_type(one: Field) -> T.DataType:
    """Return the Spark type of a field, every part of it nullable: a row may be absent."""
    described = {"type": "struct", "fields": [_field_json(json.loads(one.type))]}
    return nullable(T.StructType.fromJson(described).fields[0].dataType)


def sql_type(kind: T.DataType) -> str:
    """Return the type of a key column as SQL, whatever its fields are called and the session calls a timestamp."""
    if isinstance(kind, T.TimestampType):
        return "timestamp_ltz"
    if isinstance(kind, T.ArrayType):
        return f"array<{sql_type(kind.elementType)}>"
    if isinstance(kind, T.StructType):
        fields = (f"{sink.quoted(one.name)}: {sql_type(one.dataType)}" for one in kind.fields)
        return f"struct<{', '.join(fields)}>"
    return kind.simpleString()


def _field_json(kind: object) -> dict[str, object]:
    return {"name": "x", "type": kind, "nullable": True, "metadata": {}}


def column_of(expression: object) -> Column:
    """Return the Column of an expression of the logical plan."""
    assert isinstance(expression, SparkExpression)  # noqa: S101 - nodes are made by the handles only
    return expression.column


def quoted(*names: str) -> Column:
    """Return the column of a (nested) name, whatever characters it contains."""
    return F.col(".".join(map(sink.quoted, names)))


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table or a stream inside a data frame, as SQL: a Column takes several calls of the JVM.

    Attributes
    ----------
    there
        Whether there is a row. For a stream, whether the record has a value, and null where there is no record.
    parts
        The columns of the key, in the order of the node's fields.
    names
        The columns of the value, by their names in the data frame; they are null where there is no row.
    """

    there: str
    parts: tuple[str, ...]
    names: tuple[str, ...]

    @cached_property
    def exists(self) -> Column:
        """Whether there is a row."""
        return internal(self.there)

    @cached_property
    def key(self) -> tuple[Column, ...]:
        """The columns of the key."""
        return tuple(map(internal, self.parts))

    @cached_property
    def value(self) -> tuple[Column, ...]:
        """The columns of the value."""
        return tuple(map(internal, self.names))


def internal(name: str) -> Column:
    """Return an internal column, or an expression of some. As SQL this takes a fraction of the time of `F.col`."""
    return F.expr(name)


def opened_name(port: int, *parts: str, nested: bool = False) -> str:
    """Return the name of a column of an opened port.

    ``__p3_v0_c1`` is column 1 of the value ``v0`` of port 3. With `nested` each port has its columns in one struct;
    otherwise each row of a plan with several outputs would have the columns of all of them.
    """
    name = "_".join(parts)
    return f"__p{port}.`{name}`" if nested else f"__p{port}_{name}"


def opened(port: int, *parts: str) -> Column:
    """Return a column of an opened port that is not nested."""
    return internal(opened_name(port, *parts))


@dataclass
class Scope:
    """A data frame in which the columns of tables are computed one after the other.

    Parameters
    ----------
    frame
        Has the internal columns.
    tables
        Columns by node.
    keys
        The key columns of each join whose key is not that of its left side.
    sides
        The columns of a join's sides, by join and the number of the parent, if the join's operator returned them. (A
        table joined to itself by a foreign key is two different rows.)
    exact
        Whether every given table has the types of its node. Keys may have a wider type, in which they were
        compared.
    port
        Whose messages it opens, if the frame goes through several scopes: their columns have different names.

    Notes
    -----
    Every step is an analysis of the whole frame, and a frame can have thousands of columns. So a step names only
    the columns that it adds. The columns of the table that users' expressions see stay until those of another are
    needed.
    """

    frame: DataFrame
    tables: dict[Node, TableColumns] = field(default_factory=dict)
    keys: dict[Node, tuple[str, ...]] = field(default_factory=dict)
    sides: dict[tuple[Node, int], TableColumns] = field(default_factory=dict)
    exact: bool = False
    port: int | None = None
    _visible: dict[Node, dict[str, str]] = field(default_factory=dict, init=False)
    _beside: dict[str, str] = field(default_factory=dict, init=False)

    def add(
        self, columns: Mapping[str, Column | str], beside: dict[str, str] | None = None
    ) -> tuple[str, ...]:
        """Add internal columns, while some further columns are visible by their names; return the internal names.

        Strings are SQL over internal columns. `beside`: the further columns, as SQL.
        """
        if beside is not None and beside is not self._beside:
            shown = (f"{column} AS {sink.quoted(name)}" for name, column in beside.items())
            self.frame, self._beside = self.hidden().selectExpr("*", *shown), beside
        if all(isinstance(one, str) for one in columns.values()):  # these take one call of the JVM each
            made = [f"{text} AS {name}" for name, text in columns.items()]
            self.frame = self.frame.selectExpr("*", *made) if made else self.frame
        else:
            both = {name: internal(one) if isinstance(one, str) else one for name, one in columns.items()}
            self.frame = self.frame.withColumns(both)
        return tuple(columns)

    def _internal(self, node: Node, part: object) -> str:
        """The name of a column of a table. A frame can go through several scopes, and two may compute one table."""
        return f"__table{'' if self.port is None else self.port}_{node.serial}_{part}"

    def hidden(self) -> DataFrame:
        """The data frame without the columns that users' expressions see: another scope may show others."""
        return self.frame.drop(*self._beside) if self._beside else self.frame

    def visible(self, node: Node) -> dict[str, str]:
        """The columns of a table under their names, against which a user's expression is resolved."""
        table = self.table(node)
        if node not in self._visible:
            names = [one.name for one in (*node.key, *node.value)]
            self._visible[node] = dict(zip(names, [*table.parts, *table.names], strict=True))
        return self._visible[node]

    def table(self, node: Node) -> TableColumns:
        """Compute the columns of a table and of its inputs."""
        if node not in self.tables:
            if isinstance(node, Select):
                self.tables[node] = self._select(node)
            elif isinstance(node, Filter):
                self.tables[node] = self._filter(node)
            elif isinstance(node, SelectKey):
                self.tables[node] = self._select_key(node)
            elif isinstance(node, ToStream):
                self.tables[node] = self.table(node.parent)
            else:
                assert isinstance(node, Join)  # noqa: S101 - sources are given
                self.tables[node] = self._join(node)
        return self.tables[node]

    def _select(self, node: Select) -> TableColumns:
        parent = self.table(node.parent)
        visible = self.visible(node.parent)
        return self._made(
            node, parent.there, parent.parts, visible, (parent,), node.columns, node.delete_when
        )

    def _filter(self, node: Filter) -> TableColumns:
        parent = self.table(node.parent)
        holds = truth(column_of(node.condition))
        holds = ~holds if node.negate else holds
        if node.is_stream:  # a record without a value has a key, so it is looked at, too
            there = F.when(F.when(parent.exists.isNotNull(), holds), parent.exists)
        else:
            there = F.when(parent.exists, holds).otherwise(F.lit(False))
        # In one step: Spark would keep two apart, since many columns read the condition.
        columns = {self._internal(node, ""): there}
        columns |= {self._internal(node, n): F.when(there, value) for n, value in enumerate(parent.value)}
        exists, *names = self.add(columns, self.visible(node.parent))
        return TableColumns(exists, parent.parts, tuple(names))

    def _select_key(self, node: SelectKey) -> TableColumns:
        parent = self.table(node.parent)
        columns = {
            self._internal(node, n): F.when(parent.exists.isNotNull(), column_of(one.expression))
            for n, one in enumerate(node.columns)
        }
        kept = {one.name for one in node.value}
        fields = zip(node.parent.value, parent.names, strict=True)
        names = tuple(name for one, name in fields if one.name in kept)
        return replace(parent, parts=self.add(columns, self.visible(node.parent)), names=names)

    def _side(self, join: Join, side: int) -> TableColumns:
        given = self.sides.get((join, side))
        return given if given is not None else self.table(join.parents[side])

    def _join(self, join: Join) -> TableColumns:
        left, right = self._side(join, 0), self._side(join, 1)
        there = {
            "inner": f"({left.there} AND {right.there})",
            "left": left.there,
            "right": right.there,
            "outer": f"({left.there} OR {right.there})",
        }[join.how]
        beside = _side_columns(LEFT, join.left, left) | _side_columns(RIGHT, join.right, right)
        key = self.keys.get(join, left.parts)
        return self._made(join, there, key, beside, (left, right), join.select, join.delete_when)

    def _made(
        self,
        node: Node,
        row: str,
        key: tuple[str, ...],
        beside: dict[str, str],
        inputs: Sequence[TableColumns],
        columns: Sequence[Named],
        delete_when: Expression | None,
    ) -> TableColumns:
        """The columns of a table whose value is computed.

        Parameters
        ----------
        node, key
            The table, and the columns of its key.
        row
            Whether there is a row to compute the value from, as SQL.
        beside, inputs
            The columns that the expressions see, as SQL by their names, and the tables that have them.
        columns, delete_when
            The expressions.
        """
        there = internal(row)
        if delete_when is not None:
            there = F.when(there, ~truth(column_of(delete_when))).otherwise(there)
        unconditional = delete_when is None
        made: dict[str, Column | str] = {self._internal(node, ""): row if unconditional else there}
        names = []
        # These are null where there is no row, as the result's columns have to be.
        kept = {name for one in inputs if one.there == row for name in one.names}
        for number, (one, kind) in enumerate(zip(columns, node.value, strict=True)):
            name = self._internal(node, number)
            plain = self._plain(one.expression, kind) if unconditional else None
            if plain is None:
                made[name] = F.when(there, self._typed(one.expression, kind))
            elif beside[plain] in kept:
                name = beside[plain]
            else:
                made[name] = f"CASE WHEN {row} THEN {beside[plain]} END"
            names.append(name)
        exists, *_ = self.add(made, None if all(isinstance(one, str) for one in made.values()) else beside)
        return TableColumns(exists, key, tuple(names))

    def _typed(self, expression: Expression, made: Field) -> Column:
        """An expression in the type of its column."""
        column = column_of(expression)
        return column if self._has_type(made) else column.cast(spark_type(made))

    def _plain(self, expression: Expression, made: Field) -> str | None:
        """The name of the column that an expression is, if it is one and has the type already."""
        assert isinstance(expression, SparkExpression)  # noqa: S101 - nodes are made by the handles only
        given = expression.given
        return given.name if isinstance(given, Plain) and self._has_type(made) else None

    def _has_type(self, made: Field) -> bool:
        """Whether an expression needs no cast to be of its column's type."""
        return self.exact and not isinstance(spark_type(made), T.ArrayType | T.MapType | T.StructType)


def truth(condition: Column) -> Column:
    """A condition in which null is false."""
    return F.coalesce(condition.cast("boolean"), F.lit(False))


def _side_columns(side: str, node: Node, table: TableColumns) -> dict[str, str]:
    """One side of a join under the names that `Row` uses; null where the side has no row."""
    columns = {side_column(side, ""): table.there}
    for one, column in zip(node.key, table.parts, strict=True):
        columns[side_column(side, one.name)] = f"CASE WHEN {table.there} THEN {column} END"
    for one, column in zip(node.value, table.names, strict=True):
        columns[side_column(side, one.name)] = column
    return columns


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
