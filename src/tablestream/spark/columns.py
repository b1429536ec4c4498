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
from functools import lru_cache

import polars as pl
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.base.type_parts import within
from tablestream.connectors import sink
from tablestream.connectors.json_text import json_sql
from tablestream.connectors.spark_types import nullable
from tablestream.operators.operator import filled_of
from tablestream.spark.failing import Failed, Risk, View, failing, works
from tablestream.spark.row import LEFT, RIGHT, Plain, side_column
from tablestream.spark.watching import PlanWatch
from tablestream.topology.nodes import Expression, Field, Fields, Filter, Join, Named, Node, Select
from tablestream.topology.streams import SelectKey, ToStream

#: The column of a condition.
BOOLEAN = Field("condition", '"boolean"')
#: A longer text is computed once, as a column, before others contain it.
_LONG_SQL = 500


@dataclass(frozen=True)
class SparkExpression:
    """A Column as an expression of the logical plan; its text is the same in every process that builds it."""

    given: Column | Plain
    text: str
    used: frozenset[str] | None = None
    harmless: bool = False

    @property
    def may_fail(self) -> bool:
        """See `Expression`. A column of a table cannot fail, nor can what is `harmless`."""
        return not (self.harmless or isinstance(self.given, Plain))

    @property
    def column(self) -> Column:
        """The Column."""
        return self.given.column if isinstance(self.given, Plain) else self.given

    @property
    def columns(self) -> frozenset[str] | None:
        """The columns that it may use; None: any."""
        return frozenset({self.given.name}) if isinstance(self.given, Plain) else self.used


@lru_cache(maxsize=10_000)
def spark_type(one: Field) -> T.DataType:
    """Return the Spark type of a field, every part of it nullable: a row may be absent."""
    described = {"name": one.name, "type": json.loads(one.type), "nullable": True, "metadata": {}}
    return nullable(T.StructField.fromJson(described).dataType)


def schema_of(fields: Sequence[Field]) -> T.StructType:
    """The schema of some columns."""
    return T.StructType([T.StructField(one.name, spark_type(one)) for one in fields])


def types_of(fields: Fields) -> list[T.DataType]:
    """The types of some columns."""
    return [spark_type(one) for one in fields]


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


def _in_spark(expression: object) -> SparkExpression:
    """An expression of the logical plan, which only carries it."""
    assert isinstance(expression, SparkExpression)  # noqa: S101 - nodes are made by the handles only
    return expression


def column_of(expression: object) -> Column:
    """Return the Column of an expression of the logical plan."""
    return _in_spark(expression).column


def quoted(*names: str) -> Column:
    """Return the column of a (nested) name, whatever characters it contains."""
    return F.col(".".join(map(sink.quoted, names)))


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table or a stream inside a data frame, as SQL: a Column takes several calls of the JVM."""

    there: str
    """Whether there is a row. For a stream, whether the record has a value, and null where there is no record."""
    parts: tuple[str, ...]
    """The columns of the key, in the order of the node's fields."""
    names: tuple[str, ...]
    """The columns of the value; they are null where there is no row."""
    bare: tuple[str, ...] | None = None
    """The same columns where there is a row, and anything elsewhere, if these are simpler: those of a filter are its
    input's."""

    @property
    def unguarded(self) -> tuple[str, ...]:
        """The columns of the value for who looks at rows only."""
        return self.names if self.bare is None else self.bare


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
    """A data frame in which the columns of tables are computed.

    Spark analyses every frame as soon as it is made, and a frame can have thousands of columns. So only users'
    expressions become columns of the frame, all those of one table in one step. Whatever else is computed stays SQL,
    which the last select of a stage evaluates.
    """

    base: DataFrame
    """A data frame with the internal columns, to which `frame` adds what waits."""
    tables: dict[Node, TableColumns] = field(default_factory=dict)
    """Columns by node."""
    keys: dict[Node, tuple[str, ...]] = field(default_factory=dict)
    """The key columns of each join whose key is not that of its left side."""
    sides: dict[tuple[Node, int], TableColumns] = field(default_factory=dict)
    """The columns of a join's sides, by join and the number of the parent, if the join's operator returned them. (A
    table joined to itself by a foreign key is two different rows.)"""
    exact: bool = False
    """Whether every given table has the types of its node. Keys may have a wider type, in which they were compared."""
    port: int | None = None
    """Whose messages it opens, if the frame goes through several scopes: their columns have different names."""
    watch: PlanWatch | None = None
    """Says what becomes of rows for which an expression fails. None: nobody asks which these are."""
    catching: bool = False
    """Whether a foreign key that fails is null."""
    failed: list[Failed] = field(default_factory=list, init=False)
    """The columns that say which rows these are."""
    _visible: dict[Node, dict[str, str]] = field(default_factory=dict, init=False)
    _beside: dict[str, str] = field(default_factory=dict, init=False)
    _waiting: dict[str, Column] = field(default_factory=dict, init=False)
    _checks: dict[str, Column] = field(default_factory=dict, init=False)
    _raises: dict[str, Column] = field(default_factory=dict, init=False)

    @property
    def frame(self) -> DataFrame:
        """The data frame with all columns that were added; users' names may be visible in it."""
        if self._waiting or self._checks:
            frame = self.base
            if self._beside:
                frame = frame.selectExpr("*", *sink.aliased(self._beside))
            # Gone at once: the next columns may be of another table, with the same names.
            for columns in (self._checks, self._raises, self._waiting):  # each may read those before it
                frame = frame.withColumns(columns) if columns else frame
            self._checks, self._raises, self._waiting = {}, {}, {}
            self.base = frame.drop(*self._beside) if self._beside else frame
        return self.base

    def add(self, columns: Mapping[str, Column], beside: dict[str, str]) -> None:
        """Add internal columns, computed where some further columns are visible by their names.

        `beside`: the further columns, as SQL over columns that are in the frame.
        """
        if beside is not self._beside:
            self.base, self._beside = self.frame, beside
        self._waiting |= columns

    def checked(
        self, name: str, view: View, there: Column, given: Sequence[tuple[Named, Field]]
    ) -> Failed | None:
        """Add a column that says which of some expressions fails on a row; None if none can fail."""
        risks = [risk(one, kind) for one, kind in given if one.expression.may_fail]
        if self.watch is None or not risks:
            return None
        self.add({}, view.beside)
        owner = self.watch.of(view.owner)
        if owner.mode != "fail":
            self.watch.refuse_python(self.base.selectExpr(*sink.aliased(view.beside)), risks, owner)
        self._checks[name] = F.when(there, failing(risks))
        raising = self.watch.raising(owner, name, view, risks)
        found = Failed(name, owner, view, tuple(risks), name if raising is None else f"{name}_raised")
        self._raises |= {} if raising is None else {found.tested: internal(raising)}
        self.failed.append(found)
        return found

    def name(self, node: Node, part: object) -> str:
        """The name of a column of a table. A frame can go through several scopes, and two may compute one table."""
        return f"__table{'' if self.port is None else self.port}_{node.serial}_{part}"

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

    def computed(
        self,
        name: str,
        there: str,
        one: Named,
        kind: Field,
        beside: dict[str, str],
        failed: Failed | None = None,
    ) -> str:
        """Return an expression as SQL, null unless `there`; unless it is a column, add it under a name.

        `failed`: the column that says whether it fails, or another one of the same table.
        """
        expression = _in_spark(one.expression)
        if isinstance(expression.given, Plain):
            return guarded(there, beside[expression.given.name])
        column = caught(expression.column, risk(one, kind), failed)
        if self.catching and expression.may_fail:
            column = F.when(works([risk(one, kind)]), column)
        self.add({name: F.when(internal(there), column)}, beside)
        return name

    def _select(self, node: Select) -> TableColumns:
        parent = self.table(node.parent)
        view = self.view_of(node, node.parent)
        return self._made(view, parent.there, parent.parts, (parent,), node.columns, node.delete_when)

    def _filter(self, node: Filter) -> TableColumns:
        parent = self.table(node.parent)
        exists = internal(parent.there)
        seen = exists.isNotNull() if node.is_stream else exists
        condition = Named("the condition", node.condition)
        view = self.view_of(node, node.parent)
        failed = self.checked(self.name(node, "failed"), view, seen, [(condition, BOOLEAN)])
        holds = truth(column_of(node.condition))
        holds = ~holds if node.negate else holds
        if failed is not None:
            holds = F.when(failed.is_fine, holds).otherwise(F.lit(node.negate and not failed.rejects))
        # A record of a stream without a value has a key, so it is looked at, too.
        there = (
            F.when(seen, holds).otherwise(F.lit(False))
            if not node.is_stream
            else F.when(F.when(seen, holds), exists)
        )
        name = self.name(node, "")
        self.add({name: there}, self.visible(node.parent))
        names = tuple(guarded(name, one) for one in parent.names)
        return self._shortened(node, TableColumns(name, parent.parts, names, parent.unguarded))

    def _select_key(self, node: SelectKey) -> TableColumns:
        parent, visible = self.table(node.parent), self.visible(node.parent)
        there = f"({parent.there}) IS NOT NULL"
        given = list(zip(node.columns, node.key, strict=True))
        view = self.view_of(node, node.parent)
        failed = self.checked(self.name(node, "failed"), view, internal(there), given)
        parts = [
            self.computed(self.name(node, n), there, one, kind, visible, failed)
            for n, (one, kind) in enumerate(given)
        ]
        left = {one.name for one in node.value}
        fields = list(zip(node.parent.value, parent.names, parent.unguarded, strict=True))
        names = tuple(name for one, name, _ in fields if one.name in left)
        bare = tuple(name for one, _, name in fields if one.name in left)
        return TableColumns(kept(node, parent.there, failed), tuple(parts), names, bare)

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
        shown = dict(zip((one.name for one in join.key), key, strict=True))
        sides = ((join.left, left), (join.right, right))
        row = {f"{node.name}.{name}": text for node, of in sides for name, text in _named(node, of)}
        view = View(join, beside, shown, row)
        return self._made(view, there, key, (left, right), join.select, join.delete_when)

    def view_of(self, owner: Node | str, table: Node) -> View:
        """The rows of a table, as an expression of another one or of an operator sees them."""
        columns = self.table(table)
        key = {one.name: part for one, part in zip(table.key, columns.parts, strict=True)}
        return View(owner, self.visible(table), key, key | dict(_named(table, columns)))

    def _made(
        self,
        view: View,
        row: str,
        key: tuple[str, ...],
        inputs: Sequence[TableColumns],
        columns: Sequence[Named],
        delete_when: Expression | None,
    ) -> TableColumns:
        """The columns of a table whose value is computed.

        `view`: the table, and the columns that its expressions see. `row`: whether there is a row to compute the value
        from, as SQL. `key`, `inputs`: the columns of its key, and the tables that have those of the view. `columns`,
        `delete_when`: the expressions.
        """
        node, beside = view.owner, view.beside
        assert isinstance(node, Node)  # noqa: S101 - a reader computes no value
        exists, made, there = row, dict[str, Column](), internal(row)
        seen = there
        if delete_when is not None:
            exists = self.name(node, "")
            condition = Named("delete_when=", delete_when)
            gone = self.checked(self.name(node, "gone"), view, there, [(condition, BOOLEAN)])
            known, row_there = [~truth(column_of(delete_when))], there
            if gone is not None:
                is_known, otherwise = works([risk(condition, BOOLEAN)]), F.lit(not gone.rejects)
                known = [F.when(one, known[0]).otherwise(otherwise) for one in (is_known, gone.is_fine)]
            stays = [F.when(row_there, one).otherwise(row_there) for one in known]
            seen, there = stays[0], stays[-1]
            made[exists] = there
        given = list(zip(columns, node.value, strict=True))
        failed = self.checked(self.name(node, "failed"), view, seen, given)
        names = [self.name(node, number) for number in range(len(columns))]
        caught_by = failed
        if failed is not None and failed.owner.mode != "null" and delete_when is None:
            # Nobody reads a row for which one fails: all have one condition in place of two. There may be thousands.
            there, caught_by = failed.is_fine_where(row), None
        # These are null where there is no row, as the result's columns have to be.
        guarded_already = {name for one in inputs if one.there == exists for name in one.names}
        for number, (one, kind) in enumerate(given):
            plain = self._plain(one.expression, kind)
            if plain is None:
                column = self._typed(one.expression, kind)
                if one.expression.may_fail:
                    column = caught(column, risk(one, kind), caught_by)
                made[names[number]] = F.when(there, column)
            else:
                names[number] = (
                    beside[plain] if beside[plain] in guarded_already else guarded(exists, beside[plain])
                )
        if made:
            self.add(made, beside)
        exists = kept(node, exists, failed)
        return self._shortened(node, TableColumns(exists, key, tuple(names)))

    def _shortened(self, node: Node, table: TableColumns) -> TableColumns:
        """The same columns, of which none is a long text: that of a join of joins grows with each of them."""
        named = {
            self.name(node, "" if at == 0 else at - 1): one
            for at, one in enumerate((table.there, *table.names))
        }
        long = {name: internal(text) for name, text in named.items() if len(text) > _LONG_SQL}
        if not long:
            return table
        self.add(long, {})
        there, *names = (name if name in long else text for name, text in named.items())
        return replace(table, there=there, names=tuple(names))

    def _typed(self, expression: Expression, made: Field) -> Column:
        """An expression in the type of its column."""
        column = column_of(expression)
        return column if self._has_type(made) else column.cast(spark_type(made))

    def _plain(self, expression: Expression, made: Field) -> str | None:
        """The name of the column that an expression is, if it is one and has the type already."""
        given = _in_spark(expression).given
        return given.name if isinstance(given, Plain) and self._has_type(made) else None

    def _has_type(self, made: Field) -> bool:
        """Whether an expression needs no cast to be of its column's type."""
        return self.exact and not isinstance(spark_type(made), T.ArrayType | T.MapType | T.StructType)


def risk(one: Named, kind: Field) -> Risk:
    """An expression as one that may fail."""
    said = f"{one.name} {one.expression.text}" if kind is BOOLEAN else one.text
    return Risk(said, column_of(one.expression), kind.type)


def caught(column: Column, risk: Risk, failed: Failed | None) -> Column:
    """An expression, null where it fails, if that is looked for."""
    if failed is None:
        return column
    fine = F.when(failed.is_fine, column)
    return fine.when(works([risk]), column) if failed.owner.mode == "null" else fine


def kept(node: Node, there: str, failed: Failed | None) -> str:
    """Whether there is a row, as SQL, without those that are rejected."""
    if failed is None or not failed.rejects:
        return there
    return f"CASE WHEN {failed.column} IS NULL THEN {there}{'' if node.is_stream else ' ELSE false'} END"


def _named(node: Node, table: TableColumns) -> list[tuple[str, str]]:
    """The columns of a table's value, by their names."""
    return [(one.name, column) for one, column in zip(node.value, table.names, strict=True)]


def guarded(there: str, column: str) -> str:
    """A column as SQL, null where there is no row."""
    return f"CASE WHEN {there} THEN {column} END"


def truth(condition: Column) -> Column:
    """A condition in which null is false."""
    return F.coalesce(condition.cast("boolean"), F.lit(False))


def _side_columns(side: str, node: Node, table: TableColumns) -> dict[str, str]:
    """One side of a join under the names that `Row` uses; null where the side has no row."""
    columns = {side_column(side, ""): table.there}
    for one, column in zip(node.key, table.parts, strict=True):
        columns[side_column(side, one.name)] = guarded(table.there, column)
    for one, column in zip(node.value, table.names, strict=True):
        columns[side_column(side, one.name)] = column
    return columns


def typed(column: str, kind: T.DataType) -> str:
    """A part of a key as SQL, in the type in which it is compared."""
    return normalised(f"CAST({column} AS {sql_type(kind)})", kind)


def normalised(column: str, kind: T.DataType, depth: int = 0) -> str:
    """Make equal keys identical, as SQL: one NaN, no negative zero, also inside structs and arrays."""
    if isinstance(kind, T.FloatType | T.DoubleType):
        name = kind.simpleString()
        return f"CASE WHEN isnan({column}) THEN CAST('NaN' AS {name}) ELSE {column} + CAST(0 AS {name}) END"
    if isinstance(kind, T.ArrayType) and _has_floats(kind):
        element = f"__element_{depth}"
        return f"transform({column}, {element} -> {normalised(element, kind.elementType, depth + 1)})"
    if isinstance(kind, T.StructType) and _has_floats(kind):
        named = ((sink.quoted(one.name), one.dataType) for one in kind.fields)
        fields = (f"{normalised(f'({column}).{name}', part, depth)} AS {name}" for name, part in named)
        return f"CASE WHEN {column} IS NOT NULL THEN struct({', '.join(fields)}) END"
    return column


def _has_floats(kind: T.DataType) -> bool:
    return any(isinstance(one, T.FloatType | T.DoubleType) for one in within(kind))


def key_of(parts: Sequence[str], names: Sequence[str], hashed: str) -> dict[str, str]:
    """The key's hash, then its columns."""
    return {hashed: f"xxhash64({', '.join(parts)})" if parts else "0", **dict(zip(names, parts, strict=True))}


def filled(schema: pl.Schema, table: TableColumns) -> dict[str, str]:
    """The columns of messages that their operator declares with the SQL that fills them."""
    sql = {name: one.sql for name, one in filled_of(schema).items()}
    hashed = value_hash(table) if any("{value_hash}" in one for one in sql.values()) else ""
    return {name: one.format(there=table.there, value_hash=hashed) for name, one in sql.items()}


def value_hash(table: TableColumns) -> str:
    """The hash of a value, which state keeps: it does not depend on how the columns are called in this data frame."""
    columns = [f"{name} AS __value_{number}" for number, name in enumerate(table.names)]
    # In UTC: the session's time zone may be another one after a restart.
    as_json = json_sql(f"struct({', '.join(['1', *columns])})", timeZone="UTC")
    return f"xxhash64({as_json})"
