"""Tables: what a user holds. A method makes one node of the logical plan and nothing happens yet."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import reduce
from typing import Any, Literal, NoReturn

import pandas as pd
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

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
from tablestream.spark.sources import Description, describe, is_reserved
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
    Source,
    Suppress,
)

ColumnLike = Column | str
On = ColumnLike | Sequence[ColumnLike] | Callable[..., Any]
SelectFunction = Callable[[Row, Row], Any]

_JOIN_HINT = "Take the columns from the two rows that select= is given, such as left.amount."


def table(
    df: DataFrame,
    key: ColumnLike | Sequence[ColumnLike],
    *,
    timestamp: ColumnLike | None = None,
    apply_as_deletes: ColumnLike | None = None,
    columns: ColumnLike | Sequence[ColumnLike] | None = None,
    except_columns: str | Sequence[str] | None = None,
    order_by: ColumnLike | None = None,
    name: str | None = None,
) -> Table:
    """Read a change log as a table: the last record of a key is its row.

    Parameters
    ----------
    df
        A streaming DataFrame: files, Kafka, Delta, or any other source.
    key
        The column or columns that identify a row. An expression needs an alias. A record with a null in its key
        is dropped and counted.
    timestamp
        When the change happened, of type timestamp. Default: Kafka's ``timestamp`` column, else the time of the
        micro-batch. A record without a time is dropped and counted.
    apply_as_deletes
        Says which records are tombstones: the row of their key is gone. A SQL string or a Column.
    columns, except_columns
        The columns of the value, or those to leave out; a single one or a list. Default: all but the key's.
    order_by
        An expression (a log sequence number, an offset) that puts the records in order, in place of their time.
        All tables of a plan give one, of one type, or none does.
    name
        For `Table.explain`, metrics and errors, and part of what makes a restarted plan the same plan.

    Returns
    -------
    Table

    Raises
    ------
    ArgumentError
        The frame does not stream, a timestamp has another type, a part of the key is an expression without an
        alias, an argument is of another kind.
    PlanError
        A column is not there.
    ColumnCollisionError
        Two columns of the key, or two of the value, have one name.
    UnsupportedTypeError
        A column has a type that cannot be carried unchanged (variant, year-month interval), or cannot be a key
        (map). The message names the column.
    ReservedNameError
        A column is called ``_change_type``, ``_timestamp``, ``_order`` or ``_is_latest``.

    Notes
    -----
    Records of one micro-batch are ordered by (running maximum of the time within their source partition, source,
    source partition, position). A source partition is a topic partition or a file. See ``docs/semantics.md``.

    Examples
    --------
    >>> import tablestream as ts
    >>> clicks = spark.readStream.format("rate").load()  # doctest: +SKIP
    >>> latest = ts.table(clicks, key="value", timestamp="timestamp", name="clicks")  # doctest: +SKIP
    """
    where, shown = user_line(), _checked_name(name) or "table"
    if not isinstance(df, DataFrame):
        raise ArgumentError(
            f"A table is made from a streaming DataFrame, not from a {type(df).__name__}.",
            hint="Read one with spark.readStream, or with tablestream.read_files.",
            operator=shown,
            where=where,
        )
    keys = tuple(_column(one) for one in _listed(key))
    if not keys:
        raise ArgumentError(
            "A table needs a key.", hint="Give key= at least one column.", operator=shown, where=where
        )
    if columns is not None and except_columns is not None:
        raise ArgumentError(
            "columns= and except_columns= are both given.", hint="Give one.", operator=shown, where=where
        )
    described = describe(
        df,
        Description(
            name=shown,
            where=where,
            key=keys,
            timestamp=None if timestamp is None else _column(timestamp),
            deletes=None if apply_as_deletes is None else _condition(apply_as_deletes),
            deletes_sql=_sql(apply_as_deletes),
            columns=None if columns is None else tuple(_column(one) for one in _listed(columns)),
            except_columns=_names([] if except_columns is None else except_columns, shown, where),
            order_by=None if order_by is None else _column(order_by),
        ),
    )
    node = Source(
        name=shown,
        where=where,
        key=described.key,
        value=described.value,
        frame=described.frame,
        text=described.text,
        ordered_by=described.ordered_by,
    )
    return Table(node, df.sparkSession)


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
        chosen = self._analysed([_column(one) for one in columns], where)
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
            name=_checked_name(name) or f"{self.name}_select",
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
        made = {fold(name): (name, _condition(column)) for name, column in columns.items()}
        kept = [(one.name, quoted(one.name)) for one in self._node.value]
        replaced = [made.pop(fold(name), (name, column)) for name, column in kept]
        chosen = self._analysed([column.alias(name) for name, column in [*replaced, *made.values()]], where)
        given = [replace(one, text=_sql(columns.get(one.name)) or one.text) for one in chosen]
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
        shown = _checked_name(name) or f"{self.name}_{other.name}_join"
        _check_how(how, ("inner", "left", "right", "outer"), shown, where)
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
            _check_how(how, ("inner", "left"), shown, where)
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
        shown = _checked_name(name) or f"{self.name}_{many.name}_one_to_many"
        _check_how(how, ("inner", "left"), shown, where)
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
        key = self._analysed([_column(one) for one in keys], where)
        for one in key:
            check_key_type(one.type, one.name, operator=self.name, where=where)
            if not one.named:
                raise ArgumentError(
                    f"The key {one.name} has no name.", hint="Give it one with alias.", where=where
                )
        folded = folding(self._spark)
        taken = {folded(one.name) for one in key}
        columns = [one.name for one in self._node.value] if value is None else value
        chosen = self._analysed([_column(one) for one in columns], where)
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
        shown = _checked_name(name) or f"{self.name}_suppress"

        def refuse(message: str, hint: str) -> NoReturn:
            raise ArgumentError(message, hint=hint, operator=shown, where=where)

        until_us = _microseconds(until)
        if until_us is None or until_us < 0:
            refuse(f"until={until!r} is no length of time.", "Write it as '5 minutes'.")
        for limit, given in (("max_records", max_records), ("max_bytes", max_bytes)):
            if given is not None and given < 1:
                refuse(f"{limit}={given!r} is no limit.", "Give a whole number from 1 on, or leave it out.")
        _check_how(on_full, ("emit", "fail"), shown, where, "on_full")
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
        parts = [_column(one) for one in _listed(on)]
        pointers = self._analysed(parts, where, operator)
        key = other._node.key
        common = common_key([one.type for one in pointers], _types(key), operator=operator, where=where)
        fields = tuple(Field(one.name, kind.json()) for one, kind in zip(key, common, strict=True))
        return fields, tuple(_expression(one) for one in pointers)

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
        chosen = [_column(one) for one in _listed(made)]
        columns = _analysed(frame, chosen, operator, where, _JOIN_HINT)
        parts, absent = _taken_apart(columns)
        if parts is not None:
            columns = _analysed(frame, parts, operator, where, _JOIN_HINT)
        gone = None if absent is None else _analysed(frame, [absent], operator, where, _JOIN_HINT)[0]
        value, named = self._value(columns, keys, operator, where)
        return value, named, None if gone is None else _expression(gone)

    def _all_columns(
        self,
        other: Table,
        suffixes: tuple[str, str] | None,
        keys: Sequence[str],
        operator: str,
        where: str,
    ) -> list[Column]:
        """The columns of both tables, each under its own name or with a suffix."""
        if suffixes is not None and [type(one) for one in _listed(suffixes)] != [str, str]:
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
            _checked_sink(sink),
            emit=emit,
            before=before,
            tombstones=tombstones,
            name=_checked_name(name) or self.name,
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
        column = _condition(given)
        said, _ = self._analysed([column.alias(name), column.cast("boolean").alias(name)], where)
        return SparkExpression(said.column, _sql(given) or said.text)

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
                named[name] = Field(one.name, one.type.json()), Named(one.name, _expression(one))
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


def global_table(
    df: DataFrame,
    key: ColumnLike | Sequence[ColumnLike],
    *,
    timestamp: ColumnLike | None = None,
    apply_as_deletes: ColumnLike | None = None,
    columns: ColumnLike | Sequence[ColumnLike] | None = None,
    except_columns: str | Sequence[str] | None = None,
    order_by: ColumnLike | None = None,
    name: str | None = None,
) -> GlobalTable:
    """Read a change log as a table that is copied to every shard.

    For small tables that many rows point at. Its state is kept once per shard, so `shards` times in all, and each of
    its changes goes to every shard. ``left.join(it, on=...)`` reacts to changes of both sides, which Kafka Streams'
    tables cannot (KIP-314); the word that makes the same join a distributed one is `table`.

    Parameters
    ----------
    df, key, timestamp, apply_as_deletes, columns, except_columns, order_by, name
        As for `table`.

    Returns
    -------
    GlobalTable
        The right side of `Table.join`.
    """
    made = table(
        df,
        key,
        timestamp=timestamp,
        apply_as_deletes=apply_as_deletes,
        columns=columns,
        except_columns=except_columns,
        order_by=order_by,
        name=name,
    )
    return GlobalTable(made._node, made._spark)  # noqa: SLF001 - its own


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
        shown = _checked_name(name) or f"{self._node.name}_rejected"
        if _checked_sink(sink).needs_final:
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


def _expression(one: Analysed) -> SparkExpression:
    return SparkExpression(one.column, one.text)


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


def _listed(given: Any) -> list[Any]:
    single = isinstance(given, str | bytes | Column | Mapping) or not isinstance(given, Iterable)
    return [given] if single else list(given)


def _column(given: ColumnLike) -> Column:
    """A Column as it is, or the column of a name."""
    return quoted(given) if isinstance(given, str) else _checked_column(given)


def _condition(given: ColumnLike) -> Column:
    """A Column as it is, or a SQL expression."""
    return F.expr(given) if isinstance(given, str) else _checked_column(given)


def _sql(given: object) -> str | None:
    """The SQL that an expression was given as, on one line: what Spark shows of it does not tell 'a' from a."""
    return " ".join(given.splitlines()) if isinstance(given, str) else None


def _checked_column(given: Column) -> Column:
    if not isinstance(given, Column):
        raise ArgumentError(
            f"{given!r} is not a column.",
            hint="Give a Column or a text; a constant is written as F.lit(...).",
            where=user_line(),
        )
    return given


def _names(given: str | Sequence[str], operator: str, where: str) -> tuple[str, ...]:
    names = _listed(given)
    for one in names:
        if not isinstance(one, str):
            raise ArgumentError(
                f"except_columns names columns, and {one!r} is no name.",
                hint="Give their names as texts.",
                operator=operator,
                where=where,
            )
    return tuple(names)


def _checked_sink(sink: Sink) -> Sink:
    if not isinstance(sink, Sink):
        raise ArgumentError(
            f"{sink!r} is not a place for changes.",
            hint="Give tablestream.delta(path), tablestream.files(path) or tablestream.memory(name).",
            where=user_line(),
        )
    return sink


def _checked_name(name: Any) -> str | None:
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise ArgumentError(
            "A name cannot be empty.", hint="Leave name= out, or give a text.", where=user_line()
        )
    return name


def _microseconds(given: object) -> int | None:
    """A length of time in microseconds; none if it is no such."""
    if not isinstance(given, str | timedelta):
        return None
    try:
        length = pd.Timedelta(given)
    except ValueError:
        return None
    return int(length.value // 1000) if isinstance(length, pd.Timedelta) else None


def _check_how(how: str, known: Sequence[str], operator: str, where: str, argument: str = "how") -> None:
    if how not in known:
        raise ArgumentError(
            f"{argument}='{how}' is not known.",
            hint=f"One of {', '.join(known)}.",
            operator=operator,
            where=where,
        )
