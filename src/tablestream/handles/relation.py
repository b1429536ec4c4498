"""What tables and streams share: columns, stateless methods, and rejected records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cached_property, reduce
from html import escape
from typing import Self

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.arguments.kinds import listed
from tablestream.arguments.place import Place
from tablestream.arguments.words import checked_length, checked_name
from tablestream.base.calling import user_line
from tablestream.connectors.sink import Sink
from tablestream.connectors.spark_types import check_key_type
from tablestream.errors import ArgumentError, MixedPlanError, TablestreamError
from tablestream.handles.grouping import Grouping
from tablestream.handles.other_names import OtherNames
from tablestream.handles.values import analysed_columns, check_names, checked_value, empty, taken_apart
from tablestream.pictures.html import relation_html
from tablestream.planner.physical_plan import Output, PlanOptions
from tablestream.spark.analysis import Analysed, check_condition, folding
from tablestream.spark.columns import SparkExpression, quoted, schema_of, spark_type
from tablestream.spark.given_columns import ColumnLike, as_column, as_columns, sql_text
from tablestream.spark.options import OnError, plan_options
from tablestream.spark.plan import changes_of, diagram_of
from tablestream.spark.requests import OutputRequest
from tablestream.spark.row import Plain, plain, renamed
from tablestream.topology.graph import VERSIONS, shown_name
from tablestream.topology.nodes import Field, Fields, Filter, Materialize, Named, Node, Select
from tablestream.topology.streams import FlatMap

#: The key of a group of all rows: true.
ALL_ROWS = "all_rows"


class Relation(OtherNames):
    """A table or a stream. A method returns another one and starts nothing.

    Where a method takes a column, a string is the column of that name, if there is one, and otherwise a SQL
    expression.
    """

    def __init__(self, node: Node, spark: SparkSession) -> None:
        self._node, self._spark = node, spark

    def __repr__(self) -> str:
        key = ", ".join(f"{one.name}: {spark_type(one).simpleString()}" for one in self._node.key)
        value = ", ".join(f"{one.name}: {spark_type(one).simpleString()}" for one in self._node.value)
        return f"{type(self).__name__} '{self.name}' [key {key}] [{value}]"

    def _repr_html_(self) -> str:
        """What notebooks show: the columns, the key and the plan."""
        try:
            plan = diagram_of([Output(self._node)], PlanOptions()).svg
        except TablestreamError as refused:  # some tables are built only with an option of the plan
            plan = escape(refused.reason)
        keys = {*self.key_columns}
        columns = [(one.name, one.dataType.simpleString(), one.name in keys) for one in self.schema]
        return relation_html(f"{type(self).__name__} {self.name}", columns, plan)

    @property
    def name(self) -> str:
        """The table's name."""
        return shown_name(self._node)

    @property
    def key_columns(self) -> list[str]:
        """The names of the key columns."""
        return [one.name for one in self._node.key]

    @property
    def columns(self) -> list[str]:
        """The names of all columns, key columns first."""
        return [*self.key_columns, *(one.name for one in self._node.value)]

    @property
    def schema(self) -> T.StructType:
        """All columns with their types, key columns first."""
        return schema_of([*self._node.key, *self._node.value])

    # Stateless

    def filter(self, condition: ColumnLike) -> Self:
        """Keep the rows for which a condition holds.

        A row that stops passing the condition is deleted from the result. A row that never passed it emits nothing.

        Parameters
        ----------
        condition
            A Column or a string over the columns of the table. Null counts as false.

        Notes
        -----
        Kafka Streams' ``KTable.filter``. In compat mode it emits a tombstone for every filtered-out record of a
        source that is not materialized.
        """
        return self._filtered(condition, negate=False)

    def filter_not(self, condition: ColumnLike) -> Self:
        """Keep the rows for which a condition does not hold: exactly those that `filter` removes."""
        return self._filtered(condition, negate=True)

    def _filtered(self, condition: ColumnLike, *, negate: bool) -> Self:
        where = user_line()
        node = Filter(
            name=f"{self.name}_filter",
            where=where,
            key=self._node.key,
            value=self._node.value,
            parent=self._node,
            condition=self._condition(condition, "condition", where),
            negate=negate,
        )
        return self._derived(node)

    def select(
        self, *columns: ColumnLike, delete_when: ColumnLike | None = None, name: str | None = None
    ) -> Self:
        """Compute another value; the key stays.

        Parameters
        ----------
        columns
            Columns or strings. Key columns among them stay the key and are not repeated in the value. A single
            struct without a name (``F.struct(...)``, ``F.when(..., F.struct(...))``, without an alias) is the row:
            its fields become the columns, and where it is null the row is deleted. A struct with a name is an
            ordinary column.
        delete_when
            Where this holds, the row is deleted.
        name
            The result's name.

        Notes
        -----
        Kafka Streams' ``KTable.mapValues``: every change is passed on, even if the value stays the same.
        """
        where = user_line()
        chosen = self._analysed(as_columns(columns, self.columns), where)
        parts, absent = taken_apart(chosen)
        if parts is not None:
            chosen = self._analysed(parts, where)
        return self._selected(chosen, [delete_when, absent], where, name)

    def _selected(
        self, columns: Sequence[Analysed], gone: Sequence[ColumnLike | None], where: str, name: str | None
    ) -> Self:
        """The table with another value, and without the rows for which one of `gone` holds."""
        conditions = [self._condition(one, "delete_when", where) for one in gone if one is not None]
        # Spark Connect shows a column as the user wrote it.
        keys = {one: (quoted(one), *([F.col(one)] if plain(one) else [])) for one in self.key_columns}
        value, named = checked_value(self._spark, columns, keys, Place(self.name, where))
        node = Select(
            name=checked_name(name) or f"{self.name}_select",
            where=where,
            key=self._node.key,
            value=value,
            parent=self._node,
            columns=named,
            delete_when=reduce(_either, conditions) if conditions else None,
        )
        return self._derived(node)

    def map_values(
        self, *columns: ColumnLike, delete_when: ColumnLike | None = None, name: str | None = None
    ) -> Self:
        """Compute another value: Kafka Streams' name for `select`."""
        return self.select(*columns, delete_when=delete_when, name=name)

    def with_columns(self, **columns: ColumnLike) -> Self:
        """Add columns to the value, or replace some.

        Parameters
        ----------
        columns
            Columns or strings, by name.
        """
        where = user_line()
        fold = folding(self._spark)
        keys = {fold(one) for one in self.key_columns}
        taken = [name for name in columns if fold(name) in keys]
        if taken:
            raise ArgumentError(
                f"with_columns cannot replace the key columns {', '.join(taken)}.",
                hint="A key never changes; give the new column another name.",
                operator=self.name,
                where=where,
            )
        made = {fold(name): (name, as_column(column, self.columns)) for name, column in columns.items()}
        all_columns: list[Column | Plain] = []
        for one in self._node.value:
            name, column = made.pop(fold(one.name), (one.name, None))
            kept = plain(one.name) or renamed(one.name, one.name)
            all_columns.append(kept if column is None else column.alias(name))
        all_columns += [column.alias(name) for name, column in made.values()]
        chosen = self._analysed(all_columns, where)
        given = [replace(one, text=sql_text(columns.get(one.name)) or one.text) for one in chosen]
        return self._selected(given, [], where, None)

    def rejected(self) -> Rejected:
        """Return the dropped records of this table's sources and operators, as an output of the plan.

        Sources drop records with a null in the key or without a time, and rows that could not be read (of
        `tablestream.from_files` in mode ``keep``, of `tablestream.from_kafka` with ``on_error="drop"``). Operators
        drop records that are older than a history, late for a join's versioned side, or have a null foreign key.
        """
        return Rejected(self._node, self._spark)

    # Help

    def _column_names(self) -> list[str]:
        return self.columns

    def _derived(self, node: Node) -> Self:
        """The same kind of handle for another node."""
        return type(self)(node, self._spark)

    def _analysed(
        self, columns: Sequence[Column | Plain], where: str, operator: str | None = None
    ) -> list[Analysed]:
        """Let Spark analyse columns over a row."""
        return analysed_columns(self._empty_rows, columns, Place(operator or self.name, where))

    def _condition(self, given: ColumnLike, name: str, where: str) -> SparkExpression:
        """A condition over a row; `name` appears in errors."""
        column = as_column(given, self.columns)
        (said,) = self._analysed([column.alias(name)], where)
        check_condition(said, Place(self.name, where))
        return replace(said.expression, text=sql_text(given) or said.text)

    def _chosen_key(self, keys: Sequence[ColumnLike], where: str, method: str) -> list[Analysed]:
        """The columns of another key: each needs a name and an equality."""
        if not keys:
            raise ArgumentError(f"{method}() has no key.", hint="Name at least one column.", where=where)
        key = self._analysed(as_columns(keys, self.columns), where)
        for one in key:
            check_key_type(one.type, one.name, at=Place(self.name, where))
            if not one.named:
                raise ArgumentError(
                    f"The key {one.name} has no name.", hint="Give it one with alias.", where=where
                )
        check_names(self._spark, [], tuple(one.field for one in key), Place(self.name, where))
        return key

    def _flat_mapped(self, elements: ColumnLike, position: Fields, operator: str, where: str) -> FlatMap:
        """A record or a row for each element of an array; `position` is a further part of the key."""
        (array,) = self._analysed([as_column(elements, self.columns)], where, operator)
        if not isinstance(array.type, T.ArrayType):
            raise ArgumentError(
                f"flat_map needs an array, not {array.type.simpleString()}.",
                hint='Give one such as F.split("text", " ") or F.array(...).',
                operator=operator,
                where=where,
            )
        element = array.type.elementType
        named = Field(array.name if array.named else "element", element.json())
        fields = (
            tuple(Field(one.name, one.dataType.json()) for one in element.fields)
            if isinstance(element, T.StructType)
            else (named,)
        )
        check_names(self._spark, self.key_columns, (*position, *fields), Place(operator, where))
        arrays = Select(
            name=f"{operator}/array",
            where=where,
            key=self._node.key,
            value=(Field("elements", array.type.json()),),
            parent=self._node,
            columns=(Named("elements", array.expression),),
        )
        return FlatMap(
            name=operator,
            where=where,
            key=(*self._node.key, *position),
            value=fields,
            parent=arrays,
            takes_apart=isinstance(element, T.StructType),
        )

    def _grouping(
        self,
        keys: Sequence[ColumnLike],
        value: Sequence[ColumnLike] | None,
        where: str,
        method: str = "group_by",
    ) -> Grouping:
        """Describe the groups; `value` is what to aggregate, by default the columns that are not in the group."""
        if not keys and method == "group_by":
            return replace(self._grouping([F.lit(True).alias(ALL_ROWS)], value, where), whole=True)
        key = self._chosen_key(keys, where, method)
        fold = folding(self._spark)
        taken = {fold(one.name) for one in key}
        columns = [one.name for one in self._node.value] if value is None else listed(value)
        chosen = self._analysed(as_columns(columns, self.columns), where)
        values = [one for one in chosen if value is not None or fold(one.name) not in taken]
        return Grouping(self._node, self._empty_rows, tuple(key), tuple(values))

    def _node_of(self, other: Relation, kind: type[Relation], where: str) -> Node:
        """The node of another relation. Raises if it has the wrong kind or another session."""
        if not isinstance(other, kind):
            word = kind.__name__.lower()
            raise ArgumentError(
                f"'{self.name}' needs a {word} here, not a {type(other).__name__}.",
                hint=f"Create one with tablestream.{word}.",
                operator=self.name,
                where=where,
            )
        if other._spark is not self._spark:
            raise MixedPlanError(
                f"'{self.name}' and '{other.name}' belong to different Spark sessions.",
                hint="Create both from frames of one session.",
                operator=self.name,
                where=where,
            )
        return other._node

    @cached_property
    def _empty_rows(self) -> DataFrame:
        """A data frame with these columns and no rows, for Spark to analyse expressions."""
        return empty(self._spark, self.schema)


class Rejected:
    """Records that a table's sources and operators drop: ``table.rejected()``.

    Columns: ``operator``, ``reason``, ``source`` (the source partition), ``timestamp``, ``key`` and ``record``
    (JSON; for a row that could not be read, its text), and ``_order``. Sources have the reasons ``null-key``,
    ``null-timestamp`` and ``malformed``. Operators have others, such as ``expired``, ``out-of-order`` and
    ``null-foreign-key``; see ``docs/semantics/dropped-records.md``. Their key and record are those that
    the operator saw.
    """

    def __init__(self, node: Node, spark: SparkSession) -> None:
        self._node, self._spark = node, spark

    def __repr__(self) -> str:
        return f"Rejected records of '{shown_name(self._node)}'"

    def to(self, sink: Sink, *, name: str | None = None) -> OutputRequest:
        """Describe an output of a query, for `tablestream.start`.

        Parameters
        ----------
        sink
            Where the records are written. It must keep a log, not a table with one row per key.
        name
            Identifies the output within the query.

        Raises
        ------
        ArgumentError
            The sink maintains a table: rejected records have no key.
        """
        shown = checked_name(name) or f"{shown_name(self._node)}_rejected"
        sink = checked_log(sink, "Rejected records have no key", shown)
        return OutputRequest(Output(self._node, rejected=True), self._spark, sink, shown)

    def changes(self, *, on_error: OnError = "fail") -> DataFrame:
        """Return the rejected records as a streaming DataFrame. Only the part of the plan that they come from runs.

        Parameters
        ----------
        on_error
            As for `start`: with ``reject``, also the rows for which an expression fails.
        """
        return changes_of(Output(self._node, rejected=True), self._spark, plan_options(on_error=on_error))


def versioned(table: Node, history: str | timedelta | None) -> Node:
    """Wrap a table in a versioned table if `history` is set."""
    history_us = checked_length(history, "history", Place(table.name, table.where))
    if history_us is None:
        return table
    return Materialize(
        name=f"{shown_name(table)}{VERSIONS}",
        where=table.where,
        key=table.key,
        value=table.value,
        parent=table,
        history_us=history_us,
    )


def _either(one: SparkExpression, other: SparkExpression) -> SparkExpression:
    used = None if one.columns is None or other.columns is None else one.columns | other.columns
    return SparkExpression(one.column | other.column, f"{one.text} or {other.text}", used)


def checked_sink(sink: Sink) -> Sink:
    """Raise unless it is a sink."""
    if not isinstance(sink, Sink):
        raise ArgumentError(
            f"{sink!r} is not a sink.",
            hint="Use tablestream.to_delta(path), to_postgres(table, ...), to_files(path), to_kafka(topic, ...),"
            " to_console() or to_memory(name).",
            where=user_line(),
        )
    return sink


def checked_log(sink: Sink, lack: str, operator: str, further: str = "") -> Sink:
    """Raise unless it is a sink that keeps every change; `lack` says why no other will do."""
    if checked_sink(sink).needs_final:
        raise ArgumentError(
            f"{lack}, and {sink.target} keeps one row per key.",
            hint=f'Append them to a log, such as tablestream.to_delta(path, mode="changes"){further}.',
            operator=operator,
            where=user_line(),
        )
    return sink
