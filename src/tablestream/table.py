"""Tables: what a user holds. A method makes one node of the logical plan and nothing happens yet."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import reduce
from typing import Any, Literal, NoReturn

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as T

from tablestream.arguments import (
    ColumnLike,
    as_column,
    as_condition,
    check_how,
    checked_name,
    checked_sink,
    listed,
    microseconds,
    sql_text,
)
from tablestream.calling import user_line
from tablestream.connectors.sink import Sink
from tablestream.errors import (
    ArgumentError,
    ColumnCollisionError,
    MixedPlanError,
    PlanError,
    ReservedNameError,
)
from tablestream.grouped import GroupedTable
from tablestream.options import Compat, Emit, OutputSpec, Tombstones, check_mode
from tablestream.row import LEFT, RIGHT, Row, side_column
from tablestream.spark.analysis import Analysed, analysed, folding
from tablestream.spark.columns import SparkExpression, quoted, spark_type
from tablestream.spark.plan import changes_of, explain
from tablestream.spark.runner import OutputRequest, request
from tablestream.spark.sources import is_reserved
from tablestream.spark.types import arrow_type, check_key_type, common_key
from tablestream.topology.graph import base_of
from tablestream.topology.nodes import (
    Field,
    Fields,
    Filter,
    ForeignKeyJoin,
    How,
    KeyJoin,
    Named,
    Node,
    OneToMany,
    Select,
    Suppress,
)

On = ColumnLike | Sequence[ColumnLike] | Callable[..., Any]
SelectFunction = Callable[[Row, Row], Any]

_JOIN_HINT = "Take the columns from the two rows that select= is given, such as left.amount."


class Table:
    """A table that stays right: keyed rows that change, and whose every change can be read.

    Made by `table` and by the methods here. A method returns another table and starts nothing; `changes` gives a
    streaming DataFrame, and `tablestream.start` runs several outputs as one query.
    """

    def __init__(self, node: Node, spark: SparkSession) -> None:
        self._node, self._spark = node, spark

    def __repr__(self) -> str:
        key = ", ".join(f"{one.name}: {spark_type(one).simpleString()}" for one in self._node.key)
        value = ", ".join(f"{one.name}: {spark_type(one).simpleString()}" for one in self._node.value)
        return f"Table '{self.name}' [key {key}] [{value}]"

    @property
    def name(self) -> str:
        """The table's name."""
        return self._node.name

    @property
    def key_columns(self) -> list[str]:
        """The names of the key columns."""
        return [one.name for one in self._node.key]

    @property
    def columns(self) -> list[str]:
        """The names of all columns, the key's first."""
        return [*self.key_columns, *(one.name for one in self._node.value)]

    @property
    def schema(self) -> T.StructType:
        """The columns with their types, the key's first."""
        return _schema([*self._node.key, *self._node.value])

    # Stateless

    def filter(self, condition: ColumnLike) -> Table:
        """Keep the rows for which a condition holds.

        A row that ceases to fulfil it is deleted from the result; one that never did leaves no trace.

        Parameters
        ----------
        condition
            A Column or SQL string over the columns of the table. Null counts as not fulfilled.

        Notes
        -----
        Kafka Streams' ``KTable.filter``; in compat mode it emits a tombstone for every filtered-out record of a
        source that is not materialized.
        """
        return self._filtered(condition, negate=False)

    def filter_not(self, condition: ColumnLike) -> Table:
        """Keep the rows for which a condition does not hold: exactly those that `filter` leaves out."""
        return self._filtered(condition, negate=True)

    def _filtered(self, condition: ColumnLike, *, negate: bool) -> Table:
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
        return Table(node, self._spark)

    def select(
        self, *columns: ColumnLike, delete_when: ColumnLike | None = None, name: str | None = None
    ) -> Table:
        """Compute another value; the key stays.

        Parameters
        ----------
        columns
            Columns or names. Key columns among them are the key and not repeated in the value. A struct alone
            that bears no name (``F.struct(...)``, ``F.when(..., F.struct(...))``, without an alias) is the row: it
            is taken apart, and where it is null the row is deleted. One with a name is a column like any other.
        delete_when
            Where this holds the row is deleted.
        name
            The result's name.

        Notes
        -----
        Kafka Streams' ``KTable.mapValues``: every change is passed on, also one that changes nothing.
        """
        where = user_line()
        chosen = self._analysed([as_column(one) for one in columns], where)
        parts, absent = _taken_apart(chosen)
        if parts is not None:
            chosen = self._analysed(parts, where)
        return self._selected(chosen, [delete_when, absent], where, name)

    def _selected(
        self, columns: Sequence[Analysed], gone: Sequence[ColumnLike | None], where: str, name: str | None
    ) -> Table:
        """The table with another value, and without a row where one of `gone` holds."""
        conditions = [self._condition(one, "delete_when", where) for one in gone if one is not None]
        keys = {one: (quoted(one),) for one in self.key_columns}
        value, named = self._value(columns, keys, self.name, where)
        node = Select(
            name=checked_name(name) or f"{self.name}_select",
            where=where,
            key=self._node.key,
            value=value,
            parent=self._node,
            columns=named,
            delete_when=reduce(_either, conditions) if conditions else None,
        )
        return Table(node, self._spark)

    def map_values(
        self, *columns: ColumnLike, delete_when: ColumnLike | None = None, name: str | None = None
    ) -> Table:
        """Compute another value: Kafka Streams' word for `select`."""
        return self.select(*columns, delete_when=delete_when, name=name)

    def with_columns(self, **columns: ColumnLike) -> Table:
        """Add columns to the value, or replace some.

        Parameters
        ----------
        columns
            A Column or SQL string by name.
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
        made = {fold(name): (name, as_condition(column)) for name, column in columns.items()}
        kept = [(one.name, quoted(one.name)) for one in self._node.value]
        replaced = [made.pop(fold(name), (name, column)) for name, column in kept]
        chosen = self._analysed([column.alias(name) for name, column in [*replaced, *made.values()]], where)
        given = [replace(one, text=sql_text(columns.get(one.name)) or one.text) for one in chosen]
        return self._selected(given, [], where, None)

    # Joins

    def join(
        self,
        other: Table,
        on: On | None = None,
        how: How = "inner",
        select: SelectFunction | None = None,
        suffixes: tuple[str, str] | None = None,
        name: str | None = None,
    ) -> Table:
        """Join with another table, on the common key or by a foreign key.

        Parameters
        ----------
        other
            The right table, or a `global_table` (with `on`, and only ``inner`` or ``left``).
        on
            None: both tables have the same key. Otherwise the foreign key: what of this table's row points at the
            key of `other`: a name, a Column, a list of them, or a function of the row (or of row and key) that
            returns such; an expression of it, too. A row whose foreign key is null points at nothing.
        how
            ``inner``, ``left``, ``right`` or ``outer``. By foreign key, right and outer also keep the right rows
            that nothing points at, and the result is keyed by (this key, other key).
        select
            A function of the two rows (see `Row`) that returns the result's Columns, or one struct Column without
            a name, as in `select`: where it is null there is no row. Default: all columns of both, the right key
            once.
        suffixes
            For columns of one name in both tables.
        name
            The result's name.

        Returns
        -------
        Table
            Keyed like this table; by (this key, other key) for a foreign-key right or outer join.

        Raises
        ------
        ArgumentError
            `other` is not a table, or another argument is of another kind.
        MixedPlanError
            The tables belong to different sessions.
        KeyMismatchError
            The compared columns have no common type.
        ColumnCollisionError
            Two columns would have one name, and neither `select` nor `suffixes` says what to do.

        Notes
        -----
        Per change the outputs and times are those of Kafka Streams (KIP-213), see ``docs/semantics.md``. Several
        joins on one key are one operator. A foreign-key join takes two rounds.

        References
        ----------
        Kafka Streams ``KTable.join``, ``leftJoin``, ``outerJoin``; KIP-213; KIP-1104 (key in the extractor).
        """
        where = user_line()
        self._check_other(other, where)
        shown = checked_name(name) or f"{self.name}_{other.name}_join"
        check_how(how, ("inner", "left", "right", "outer"), shown, where)
        if on is None and isinstance(other, GlobalTable):
            raise ArgumentError(
                "A join with a global table needs on=.",
                hint="Say what of this table's row points at the global table's key.",
                operator=shown,
                where=where,
            )
        if on is None:
            return self._key_join(other, how, select, suffixes, shown, where)
        foreign, expressions = self._pointing_at(other, on, shown, where)
        lone = how in {"right", "outer"}
        if isinstance(other, GlobalTable):
            check_how(how, ("inner", "left"), shown, where)
        key = self._joint_key(other, shown, where) if lone else self._node.key
        keys = self._key_columns(other, key, same=False)
        value, columns, gone = self._joined(other, select, suffixes, keys, shown, where)
        node = ForeignKeyJoin(
            name=shown,
            where=where,
            key=key,
            value=value,
            left=self._node,
            right=other._node,
            how=how,
            select=columns,
            delete_when=gone,
            on=expressions,
            foreign=foreign,
            copied=isinstance(other, GlobalTable),
        )
        return Table(node, self._spark)

    def _key_join(
        self,
        other: Table,
        how: How,
        select: SelectFunction | None,
        suffixes: tuple[str, str] | None,
        name: str,
        where: str,
    ) -> Table:
        left, right = self._node, other._node
        kinds = common_key(_types(left.key), _types(right.key), operator=name, where=where)
        key = tuple(Field(one.name, kind.json()) for one, kind in zip(left.key, kinds, strict=True))
        keys = self._key_columns(other, key, same=True)
        value, columns, gone = self._joined(other, select, suffixes, keys, name, where)
        node = KeyJoin(
            name=name,
            where=where,
            key=key,
            value=value,
            left=left,
            right=right,
            how=how,
            select=columns,
            delete_when=gone,
        )
        return Table(node, self._spark)

    def one_to_many(
        self,
        many: Table,
        on: On,
        how: Literal["inner", "left"] = "inner",
        select: SelectFunction | None = None,
        suffixes: tuple[str, str] | None = None,
        name: str | None = None,
    ) -> Table:
        """Join every row with each row of another table that points at it.

        Parameters
        ----------
        many
            The table whose rows point at rows of this one.
        on
            What of a row of `many` points at this table's key, as in `join`.
        how
            ``inner``, or ``left``: rows that nothing points at are kept, with a null key of the many.
        select, suffixes, name
            As in `join`; the first row is this table's.

        Returns
        -------
        Table
            Keyed by (this key, the many's key).

        References
        ----------
        KIP-213, first proposal: ``oneToManyJoin``.
        """
        where = user_line()
        self._check_other(many, where)
        shown = checked_name(name) or f"{self.name}_{many.name}_one_to_many"
        check_how(how, ("inner", "left"), shown, where)
        foreign, expressions = many._pointing_at(self, on, shown, where)
        key = self._joint_key(many, shown, where)
        keys = self._key_columns(many, key, same=False)
        value, columns, gone = self._joined(many, select, suffixes, keys, shown, where)
        node = OneToMany(
            name=shown,
            where=where,
            key=key,
            value=value,
            left=self._node,
            right=many._node,
            how=how,
            select=columns,
            delete_when=gone,
            on=expressions,
            foreign=foreign,
        )
        return Table(node, self._spark)

    def group_by(self, *keys: ColumnLike, value: Sequence[ColumnLike] | None = None) -> GroupedTable:
        """Put the rows into groups.

        Parameters
        ----------
        *keys
            The group: names or Columns over the row; an expression needs an alias. A null is a group of its own
            (with ``compat="kafka-streams"``, rows with a null in it count in none).
        value
            What `GroupedTable.aggregate` and ``reduce`` see of a row; default the columns that are not keys.

        Returns
        -------
        GroupedTable
            For `GroupedTable.agg`, ``count``, ``aggregate`` and ``reduce``.

        Raises
        ------
        ArgumentError
            Without a key.
        UnsupportedTypeError
            For a key without an equality.

        References
        ----------
        KIP-904; ``KTable.groupBy``.
        """
        where = user_line()
        if not keys:
            raise ArgumentError("group_by() has no key.", hint="Name at least one column.", where=where)
        key = self._analysed([as_column(one) for one in keys], where)
        for one in key:
            check_key_type(one.type, one.name, operator=self.name, where=where)
            if not one.named:
                raise ArgumentError(
                    f"The key {one.name} has no name.", hint="Give it one with alias.", where=where
                )
        folded = folding(self._spark)
        taken = {folded(one.name) for one in key}
        columns = [one.name for one in self._node.value] if value is None else value
        chosen = self._analysed([as_column(one) for one in columns], where)
        values = [one for one in chosen if value is not None or folded(one.name) not in taken]

        def analyse(columns: Sequence[Column], at: str, operator: str) -> list[Analysed]:
            return self._analysed(columns, at, operator)

        rows = _empty(self._spark, self.schema)
        return GroupedTable(self._node, rows, key, values, analyse, lambda node: Table(node, self._spark))

    def suppress(
        self,
        until: str | timedelta,
        max_records: int | None = None,
        max_bytes: int | None = None,
        on_full: Literal["emit", "fail"] = "emit",
        name: str | None = None,
    ) -> Table:
        """Hold changes back and let through the last one of each key.

        A key waits from the time of its first change until the shard has seen a change that is `until` later; what
        leaves then is its last change, a tombstone too. Time is that of the records: without new ones nothing leaves.

        Parameters
        ----------
        until
            How long, as a text such as ``"5 minutes"`` or a timedelta.
        max_records, max_bytes
            How much a shard may hold; the bytes of a row are those of its key and value as JSON. Default: any amount.
        on_full
            ``"emit"`` lets through those that have waited longest until the rest fits; ``"fail"`` ends the query.
        name
            Of the table.

        Raises
        ------
        ArgumentError
            For a time that is none or negative, a limit below one, or limits that cannot be kept.

        References
        ----------
        Kafka Streams ``KTable.suppress(untilTimeLimit)``.
        """
        where = user_line()
        shown = checked_name(name) or f"{self.name}_suppress"

        def refuse(message: str, hint: str) -> NoReturn:
            raise ArgumentError(message, hint=hint, operator=shown, where=where)

        until_us = microseconds(until)
        if until_us is None or until_us < 0:
            refuse(f"until={until!r} is no length of time.", "Write it as '5 minutes'.")
        for limit, given in (("max_records", max_records), ("max_bytes", max_bytes)):
            if given is not None and given < 1:
                refuse(f"{limit}={given!r} is no limit.", "Give a whole number from 1 on, or leave it out.")
        check_how(on_full, ("emit", "fail"), shown, where, "on_full")
        node = Suppress(
            name=shown,
            where=where,
            key=self._node.key,
            value=self._node.value,
            parent=self._node,
            until_us=until_us,
            max_records=max_records,
            max_bytes=max_bytes,
            fail_when_full=on_full == "fail",
        )
        return Table(node, self._spark)

    def _check_other(self, other: Table, where: str) -> None:
        """Refuse to join with what is no table, or one of another session."""
        if not isinstance(other, Table):
            raise ArgumentError(
                f"A table is joined with a table, not with a {type(other).__name__}.",
                hint="Make a table of it with tablestream.table.",
                operator=self.name,
                where=where,
            )
        if other._spark is not self._spark:
            raise MixedPlanError(
                f"'{self.name}' and '{other.name}' belong to different Spark sessions.",
                hint="Make both from frames of one session.",
                operator=self.name,
                where=where,
            )

    def _key_columns(self, other: Table, key: Fields, *, same: bool) -> dict[str, tuple[Column, ...]]:
        """The columns of both rows that are a part of a join's key, by the name that the part has in the result.

        In a key join (`same`) the right column at the same place is it, too, if it has the same name.
        """
        fold, left, right = folding(self._spark), Row(self.columns, LEFT), Row(other.columns, RIGHT)
        lefts = [(left[one],) for one in self.key_columns]
        rights = [(right[one],) for one in other.key_columns]
        if same:
            pairs = zip(self.key_columns, other.key_columns, lefts, rights, strict=True)
            parts = [(*one, *two) if fold(name) == fold(called) else one for name, called, one, two in pairs]
        else:
            parts = [*lefts, *rights]  # of these the key has all, or only those of the left
        return {one.name: columns for one, columns in zip(key, parts, strict=False)}

    def _pointing_at(
        self, other: Table, on: On, operator: str, where: str
    ) -> tuple[Fields, tuple[SparkExpression, ...]]:
        """The foreign key: its columns in the types compared, and its expressions over this table's row."""
        row = Row(self.columns)
        if callable(on) and not isinstance(on, Column | str):
            wants_key = len(inspect.signature(on).parameters) > 1
            on = on(row, Row(self.key_columns)) if wants_key else on(row)
        parts = [as_column(one) for one in listed(on)]
        pointers = self._analysed(parts, where, operator)
        key = other._node.key
        common = common_key([one.type for one in pointers], _types(key), operator=operator, where=where)
        fields = tuple(Field(one.name, kind.json()) for one, kind in zip(key, common, strict=True))
        return fields, tuple(one.expression for one in pointers)

    def _joined(
        self,
        other: Table,
        select: SelectFunction | None,
        suffixes: tuple[str, str] | None,
        keys: Mapping[str, Sequence[Column]],
        operator: str,
        where: str,
    ) -> tuple[Fields, tuple[Named, ...], SparkExpression | None]:
        """The value of a join: its columns, their expressions, and when there is none after all."""
        if select is not None and not callable(select):
            raise ArgumentError(
                f"select= is a {type(select).__name__}, and has to be a function of the two rows.",
                hint="Write it as in select=lambda left, right: [left.amount, right.price].",
                operator=operator,
                where=where,
            )
        sides = [*_side_fields(LEFT, self.schema), *_side_fields(RIGHT, other.schema)]
        frame = _empty(self._spark, T.StructType(sides))
        if select is None:
            made: Any = self._all_columns(other, suffixes, list(keys), operator, where)
        else:
            made = select(Row(self.columns, LEFT), Row(other.columns, RIGHT))
        chosen = [as_column(one) for one in listed(made)]
        columns = _analysed(frame, chosen, operator, where, _JOIN_HINT)
        parts, absent = _taken_apart(columns)
        if parts is not None:
            columns = _analysed(frame, parts, operator, where, _JOIN_HINT)
        gone = None if absent is None else _analysed(frame, [absent], operator, where, _JOIN_HINT)[0]
        value, named = self._value(columns, keys, operator, where)
        return value, named, None if gone is None else gone.expression

    def _all_columns(
        self,
        other: Table,
        suffixes: tuple[str, str] | None,
        keys: Sequence[str],
        operator: str,
        where: str,
    ) -> list[Column]:
        """The columns of both tables, each under its own name or with a suffix."""
        if suffixes is not None and [type(one) for one in listed(suffixes)] != [str, str]:
            raise ArgumentError(
                f"suffixes={suffixes!r} is not a pair of texts.",
                hint="Give one for each table, such as suffixes=('_left', '_right').",
                operator=operator,
                where=where,
            )
        fold, sides = folding(self._spark), ((LEFT, self._node.value), (RIGHT, other._node.value))
        seen = {fold(name) for name in keys}
        lefts, rights = ({fold(one.name) for one in fields} for _, fields in sides)
        shared, columns = (lefts & rights) | seen, []
        for (side, fields), suffix in zip(sides, suffixes or ("", ""), strict=True):
            for one in fields:
                shown = one.name + suffix if fold(one.name) in shared else one.name
                if fold(shown) in seen:
                    raise ColumnCollisionError(
                        f"The join has two columns called '{shown}'.",
                        hint="Give suffixes=('_left', '_right'), or select= the columns you want.",
                        operator=operator,
                        where=where,
                    )
                seen.add(fold(shown))
                columns.append(quoted(side_column(side, one.name)).alias(shown))
        return columns

    # Results

    def changes(
        self,
        before: bool = False,
        emit: Emit = "every",
        compat: Compat = None,
        *,
        tombstones: Tombstones = "all",
        shards: int | None = None,
    ) -> DataFrame:
        """Return the changes of the table as a streaming DataFrame.

        Parameters
        ----------
        before
            Whether the row before a change is given as well, as in Delta's change data feed.
        emit
            ``every`` change, or the ``final`` one of each key and micro-batch.
        compat
            ``"kafka-streams"``: exactly its outputs, defects included; see ``docs/semantics.md``.
        tombstones
            ``all``, or ``minimal``: none for a key that has no row in the output.
        shards
            Into how many parts the state is cut; fixed for a checkpoint. Default 16.

        Returns
        -------
        DataFrame
            The key and value columns, ``_change_type`` (``upsert`` or ``delete``; with `before` ``insert``,
            ``update_preimage``, ``update_postimage``, ``delete``), ``_timestamp`` (timestamp) and ``_order`` (a
            struct that sorts; it begins with the number of the micro-batch). Per key in order. A ``delete`` has
            null value columns, or with `before` those that the row had.

        Raises
        ------
        SessionSettingError
            The session does not keep streaming state in RocksDB, which stateful Python needs.

        Notes
        -----
        Nothing runs until the frame is written. What was dropped is in the query's progress, under
        ``observedMetrics["tablestream"]``.
        """
        spec = OutputSpec(emit=emit, before=before, tombstones=tombstones)
        return changes_of(self._node, self._spark, spec, compat, shards)

    def to(
        self,
        sink: Sink,
        *,
        emit: Emit | None = None,
        before: bool = False,
        tombstones: Tombstones = "all",
        name: str | None = None,
    ) -> OutputRequest:
        """Describe an output of a query, for `tablestream.start`.

        Parameters
        ----------
        sink
            Where the changes go: `tablestream.delta`, `tablestream.files`, `tablestream.memory`.
        emit, before, tombstones
            As for `changes`. A maintained table gets the final changes unless `emit` says otherwise.
        name
            Tells the outputs of a query apart; default the table's name. A sink knows by it, and by the number of
            the micro-batch, what it has.

        Notes
        -----
        Kafka Streams' ``to``: it describes and starts nothing.
        """
        return request(
            self._node,
            self._spark,
            checked_sink(sink),
            emit=emit,
            before=before,
            tombstones=tombstones,
            name=checked_name(name) or self.name,
        )

    def rejected(self) -> Rejected:
        """Return the records that this table's sources leave out, as an output of the plan.

        These are records with a null in the key, without a time, and rows that could not be read (of
        `tablestream.read_files` in mode ``keep``).
        """
        return Rejected(self._node, self._spark)

    def explain(
        self,
        mode: Literal["text"] = "text",
        *,
        compat: Compat = None,
        emit: Emit = "every",
        before: bool = False,
        tombstones: Tombstones = "all",
        shards: int | None = None,
    ) -> None:
        """Print the rounds of the plan: its operators, what each remembers, and the shuffles.

        Parameters
        ----------
        mode
            ``text``; there is no other yet.
        compat, emit, before, tombstones, shards
            As for `changes`.

        Raises
        ------
        ArgumentError
            A word is not known.
        """
        check_mode(mode)
        spec = OutputSpec(emit=emit, before=before, tombstones=tombstones)
        sys.stdout.write(explain(self._node, spec, compat, shards) + "\n")

    # Help

    def _analysed(self, columns: Sequence[Column], where: str, operator: str | None = None) -> list[Analysed]:
        """Let Spark look at some columns over this table's row."""
        return _analysed(_empty(self._spark, self.schema), columns, operator or self.name, where)

    def _condition(self, given: ColumnLike, name: str, where: str) -> SparkExpression:
        """A condition over this table's row; `name` is for errors."""
        column = as_condition(given)
        said, _ = self._analysed([column.alias(name), column.cast("boolean").alias(name)], where)
        return SparkExpression(said.column, sql_text(given) or said.text)

    def _value(
        self,
        columns: Sequence[Analysed],
        keys: Mapping[str, Sequence[Column]],
        operator: str,
        where: str,
    ) -> tuple[Fields, tuple[Named, ...]]:
        """The columns of a value: key columns are left out, names have to be there once, and not be ours.

        Parameters
        ----------
        keys
            By name the columns that are the key.
        """

        def refuse(kind: type[ArgumentError | PlanError], message: str) -> NoReturn:
            raise kind(message, hint="Give it another name, with alias.", operator=operator, where=where)

        fold = folding(self._spark)
        by_name = {fold(name): same for name, same in keys.items()}
        named: dict[str, tuple[Field, Named]] = {}
        for one in columns:
            name = fold(one.name)
            if name in by_name:
                texts = {str(text) for same in by_name[name] for text in (same, same.alias(one.name))}
                if fold(str(one.column)) not in {fold(text) for text in texts}:
                    refuse(ColumnCollisionError, f"'{one.name}' is a key column, and this is another one.")
            elif name in named:
                refuse(ColumnCollisionError, f"Two columns are called '{one.name}'.")
            elif is_reserved(one.name):
                refuse(ReservedNameError, f"A column cannot be called '{one.name}'.")
            else:
                named[name] = one.field, Named(one.name, one.expression)
        return tuple(one for one, _ in named.values()), tuple(one for _, one in named.values())

    def _joint_key(self, other: Table, operator: str, where: str) -> Fields:
        """The key of a result that is keyed by both tables' keys; a name in both gets the table's name before it.

        A key column whose name is a value column of the other table gets it, too: a foreign key often bears the
        name of the key that it points at, and both are columns of the result.
        """
        sides = (self._node, other._node)
        names = [base_of(node).name for node in sides]
        if names[0] == names[1]:
            names = [node.name for node in sides]
        if names[0] == names[1]:
            names[1] += "_2"
        fold = folding(self._spark)
        columns = [{fold(one.name) for one in (*node.key, *node.value)} for node in sides]
        fields = [
            Field(f"{name}_{one.name}" if fold(one.name) in others else one.name, one.type)
            for name, node, others in zip(names, sides, reversed(columns), strict=True)
            for one in node.key
        ]
        if len({fold(one.name) for one in fields}) < len(fields):
            raise ColumnCollisionError(
                f"The result's key ({', '.join(one.name for one in fields)}) would have one column twice.",
                hint="Give the tables different names (name=).",
                operator=operator,
                where=where,
            )
        return tuple(fields)


class GlobalTable(Table):
    """A table of which every shard has a copy; `global_table` makes it, and it can only be joined to.

    A join with it takes one round, and does not move the other table's rows to where the foreign key lives. The
    changes are those of the same join with a `table`.
    """

    def __repr__(self) -> str:
        return f"Global{super().__repr__()}"


class Rejected:
    """Records that the sources of a table leave out: ``table.rejected()``.

    Columns: ``operator`` (the table), ``reason`` (``null-key``, ``null-timestamp``, ``malformed``), ``source`` (the
    source partition), ``timestamp``, ``key`` and ``record`` (JSON; of a row that could not be read its text), and
    ``_order``.
    """

    def __init__(self, node: Node, spark: SparkSession) -> None:
        self._node, self._spark = node, spark

    def to(self, sink: Sink, *, name: str | None = None) -> OutputRequest:
        """Describe an output of a query, for `tablestream.start`.

        Parameters
        ----------
        sink
            Where the records go: one that keeps a log, not a table with a row per key.
        name
            Tells the outputs of a query apart.

        Raises
        ------
        ArgumentError
            The sink maintains a table: rejected records have no key.
        """
        shown = checked_name(name) or f"{self._node.name}_rejected"
        if checked_sink(sink).needs_final:
            raise ArgumentError(
                f"Rejected records have no key, and {sink.target} keeps a row per key.",
                hint='Append them to a log, such as tablestream.delta(path, mode="changes").',
                operator=shown,
                where=user_line(),
            )
        spec = OutputSpec(rejected=True)
        return OutputRequest(self._node, self._spark, sink, spec, shown)

    def changes(self) -> DataFrame:
        """Return the rejected records as a streaming DataFrame; nothing else of the plan runs."""
        return changes_of(self._node, self._spark, OutputSpec(rejected=True), None, None)


def _empty(spark: SparkSession, schema: T.StructType) -> DataFrame:
    return spark.createDataFrame([], schema)


def _side_fields(side: str, schema: T.StructType) -> list[T.StructField]:
    """The columns of one side of a join, and whether it has a row, as `Row` names them."""
    exists = T.StructField(side_column(side, ""), T.BooleanType())
    return [exists, *(T.StructField(side_column(side, one.name), one.dataType) for one in schema)]


def _analysed(
    frame: DataFrame, columns: Sequence[Column], operator: str, where: str, hint: str = ""
) -> list[Analysed]:
    """Let Spark look at columns, and refuse those that a table cannot carry."""
    seen = analysed(frame, columns, operator=operator, where=where, hint=hint)
    for one in seen:
        arrow_type(one.type, one.name, operator=operator, where=where)
    return seen


def _either(one: SparkExpression, other: SparkExpression) -> SparkExpression:
    return SparkExpression(one.column | other.column, f"{one.text} or {other.text}")


def _schema(fields: Sequence[Field]) -> T.StructType:
    return T.StructType([T.StructField(one.name, spark_type(one)) for one in fields])


def _types(fields: Fields) -> list[T.DataType]:
    return [spark_type(one) for one in fields]


def _taken_apart(columns: Sequence[Analysed]) -> tuple[list[Column] | None, Column | None]:
    """If a struct without a name is all there is: its fields as columns, and where it is null, if it ever is."""
    row = columns[0] if len(columns) == 1 else None
    if row is None or row.named or not isinstance(row.type, T.StructType):
        return None, None
    parts = [row.column[one].alias(one) for one in row.type.names]
    return parts, row.column.isNull() if row.nullable else None
