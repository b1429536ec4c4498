"""Joins of two tables on values that are no key of either: many to many, and whether there is a match at all.

What a join needs beyond pairs is made of other nodes. In this order:

==========================  ================================================================================
a result                    is made of
==========================  ================================================================================
pairs                       `ManyToMany`; with ``where=`` a filter on top of it
rows that have a match      a foreign-key join with the other table or, if the values are not its key, with the
.                           number of its rows by these values; with ``where=`` a join of the rows with the number
.                           of their pairs
left, right, outer          the pairs, and the rows without a match under the same key with nulls: a union
==========================  ================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from pyspark.sql import functions as F

from tablestream.arguments.kinds import check_function
from tablestream.handles.joining import Joining, On, SelectFunction, Suffixes, Value
from tablestream.handles.unions import counted_rows, same_column
from tablestream.handles.values import empty
from tablestream.spark.analysis import Analysed, check_condition, folding, is_found
from tablestream.spark.columns import SparkExpression, schema_of, spark_type
from tablestream.spark.compared import POINTING, KeySide, common_key
from tablestream.spark.given_columns import checked_column
from tablestream.spark.row import LEFT, RIGHT, Given, side_column
from tablestream.topology.nodes import (
    Aggregate,
    Field,
    Fields,
    Filter,
    ForeignKeyJoin,
    KeyJoin,
    ManyToMany,
    Named,
    Node,
    Select,
)
from tablestream.topology.nulls import nullable_key
from tablestream.topology.streams import Merge, SelectKey, ToStream, ToTable

JoinHow = Literal["inner", "left", "right", "outer", "left_semi", "left_anti"]
#: The kinds of a join that say of left rows alone whether they have a match.
MATCHED: tuple[JoinHow, ...] = ("left_semi", "left_anti")
Condition = Callable[..., Any]
_WHERE = "Write it as in where=lambda left, right: left.valid_from <= right.at."


@dataclass(frozen=True)
class Matching:
    """Two tables of which rows match."""

    joining: Joining
    """The tables."""
    on: tuple[Analysed, ...]
    right_on: tuple[Analysed, ...]
    """The values by which rows match, of a left and of a right row."""
    fields: Fields
    """The same, in the types in which both sides are compared."""
    condition: SparkExpression | None
    """What must hold of both rows, too, over the columns of `Joining.both`."""
    counts_nulls: bool = True
    """Whether rows without a value to match by count as dropped."""

    @classmethod
    def of(cls, joining: Joining, on: On, right_on: On, where: Condition | None) -> Matching:
        """Analyse what users say. If `right_on` is the whole right key, its columns come in the order of the key."""
        sides = (joining, _swapped(joining))
        values = [
            one.pointers(said, "what a join compares")
            for one, said in zip(sides, (on, right_on), strict=True)
        ]
        kinds = common_key(
            *(KeySide([(one.name, one.type) for one in side], POINTING) for side in values), at=joining.at
        )
        order = _key_order(values[1], joining) or range(len(kinds))
        on_columns, right_columns = (tuple(side[number] for number in order) for side in values)
        fields = tuple(Field(f"__on{number}", kinds[of].json()) for number, of in enumerate(order))
        return cls(joining, on_columns, right_columns, fields, _condition(joining, where))

    @property
    def is_foreign_key(self) -> bool:
        """Whether a left row matches one right row at most: that of its foreign key."""
        return self.condition is None and _key_order(self.right_on, self.joining) is not None

    @property
    def swapped(self) -> Matching:
        """The same without the condition, seen from the right."""
        joining = _swapped(self.joining)
        order = _key_order(self.on, joining) or range(len(self.fields))
        on, right_on = (tuple(side[of] for of in order) for side in (self.right_on, self.on))
        return Matching(joining, on, right_on, tuple(self.fields[of] for of in order), None)

    # Results

    def pairs(self, select: SelectFunction | None, suffixes: Suffixes) -> Node:
        """The rows of an inner join."""
        joining, key = self.joining, self.joining.joint_key()
        value = joining.value(select, suffixes, joining.key_columns(key, same=False))
        if self.condition is None:
            return self._many_to_many(joining.at.operator, value)
        return self._selected(self._matches, value)

    def with_unmatched(
        self, how: Literal["left", "right", "outer"], select: SelectFunction | None, suffixes: Suffixes
    ) -> Node:
        """The rows of a left, right or outer join: the pairs, and the rows of the kept sides without a match."""
        joining, key = self.joining, self.joining.joint_key()
        value = joining.value(select, suffixes, joining.key_columns(key, same=False))
        pairs, name, where = self._matches, joining.at.operator, joining.at.where
        node: Node = self._stream(pairs)
        nullable, width = list(nullable_key(pairs)), len(joining.left.key)
        if how in {"left", "outer"}:
            node = Merge(f"{name}/0", where, key, pairs.value, node, self._unmatched(0, key))
            nullable[width:] = [True] * len(joining.right.key)
        if how in {"right", "outer"}:
            node = Merge(f"{name}/1", where, key, pairs.value, node, self._unmatched(1, key))
            nullable[:width] = [True] * width
        rows = ToTable(f"{name}/rows", where, key, pairs.value, node, nullable=tuple(nullable))
        return self._selected(rows, value)

    def matched(self, *, exists: bool) -> Node:
        """The left rows that have a match, or those that have none."""
        table = self.joining.left
        columns = tuple(Named(one.name, same_column(side_column(LEFT, one.name))) for one in table.value)
        return self._rows_of(0, self.joining.at.operator, table.value, columns, exists=exists)

    # What they are made of

    def _many_to_many(self, name: str, value: Value) -> ManyToMany:
        named = replace(self.joining, at=replace(self.joining.at, operator=name))
        return named.made(
            ManyToMany,
            self.joining.joint_key(),
            "inner",
            value,
            on=tuple(one.expression for one in self.on),
            right_on=tuple(one.expression for one in self.right_on),
            foreign=self.fields,
            counts_nulls=self.counts_nulls,
        )

    @cached_property
    def _matches(self) -> Node:
        """All pairs that match, with all columns of both rows."""
        name, where = self.joining.at.operator, self.joining.at.where
        fields = tuple(Field(one.name, one.dataType.json()) for one in self.joining.both().schema)
        columns = tuple(Named(one.name, same_column(one.name)) for one in fields)
        pairs = self._many_to_many(f"{name}/pairs", (fields, columns, None))
        if self.condition is None:
            return pairs
        return Filter(f"{name}/matches", where, pairs.key, pairs.value, pairs, self.condition, negate=False)

    def _selected(self, rows: Node, value: Value) -> Select:
        """The result, computed from the columns of both rows."""
        at, (fields, columns, gone) = self.joining.at, value
        return Select(at.operator, at.where, rows.key, fields, rows, columns, gone)

    def _stream(self, table: Node) -> ToStream:
        return ToStream(f"{table.name}/stream", self.joining.at.where, table.key, table.value, table)

    def _unmatched(self, side: int, key: Fields) -> SelectKey:
        """The rows of a side without a match as records: under the key of pairs, with their columns, and nulls."""
        joining, fields = self.joining, self._matches.value
        table, mine, other = ((joining.left, LEFT, RIGHT), (joining.right, RIGHT, LEFT))[side]
        made = {
            side_column(mine, ""): SparkExpression(F.lit(True), "true", frozenset(), harmless=True),
            side_column(other, ""): SparkExpression(F.lit(False), "false", frozenset(), harmless=True),
        }
        made |= {
            side_column(mine, one.name): same_column(side_column(LEFT, one.name))
            for one in (*table.key, *table.value)
        }
        columns = tuple(Named(one.name, made.get(one.name) or _null(one)) for one in fields)
        name = f"{joining.at.operator}/unmatched {('left', 'right')[side]}"
        rows = self._rows_of(side, name, fields, columns, exists=False)
        width, stream = len(joining.left.key), self._stream(rows)
        parts = [same_column(one.name) for one in table.key]
        nulls = [_null(one) for one in (key[width:] if side == 0 else key[:width])]
        named = zip(key, [*parts, *nulls] if side == 0 else [*nulls, *parts], strict=True)
        return SelectKey(
            f"{rows.name}/key",
            stream.where,
            key,
            stream.value,
            stream,
            tuple(Named(one.name, part) for one, part in named),
        )

    def _rows_of(
        self, side: int, name: str, value: Fields, columns: tuple[Named, ...], *, exists: bool
    ) -> Node:
        """The rows of a side that have a match, or none. `columns` are over a join whose left side it is."""
        how: Literal["inner", "left"] = "inner" if exists else "left"
        gone = None if exists else same_column(side_column(RIGHT, ""))
        where, table = self.joining.at.where, (self.joining.left, self.joining.right)[side]
        if self.condition is not None:
            return KeyJoin(
                name,
                where,
                table.key,
                value,
                table,
                self._counts_of_pairs(side),
                how,
                columns,
                gone,
                own_times=True,
            )
        one = self if side == 0 else self.swapped
        other = one.joining.right
        if not one.is_foreign_key:
            other = counted_rows(
                f"{name}/counts", where, other, one.fields, [part.expression for part in one.right_on]
            )
        on = tuple(part.expression for part in one.on)
        on_key = replace(one.joining, right=other).is_on_key(one.fields, on)
        return ForeignKeyJoin(
            name, where, table.key, value, table, other, how, columns, gone, on, one.fields, on_key=on_key
        )

    def _counts_of_pairs(self, side: int) -> Aggregate:
        """How many pairs each row of a side has, by the side's key."""
        matches, width = self._matches, len(self.joining.left.key)
        key = matches.key[:width] if side == 0 else matches.key[width:]
        return counted_rows(
            f"{matches.name}/counts {side}",
            matches.where,
            matches,
            key,
            [same_column(one.name) for one in key],
        )


def _swapped(joining: Joining) -> Joining:
    return Joining(joining.right, joining.left, joining.spark, joining.at)


def _condition(joining: Joining, where: Condition | None) -> SparkExpression | None:
    """What must hold of both rows."""
    if where is None:
        return None
    check_function(where, "where", 2, hint=_WHERE, operator=joining.at.operator, where=joining.at.where)
    made = where(*joining.rows(Given(joining.spark)))
    column = F.expr(made) if isinstance(made, str) else checked_column(made)
    (said,) = joining.analysed(joining.both(), [column.alias("where")], _WHERE)
    check_condition(said, joining.at)
    return said.expression


def _key_order(values: Iterable[Analysed], joining: Joining) -> list[int] | None:
    """Where the columns of the whole right key are among some values of a right row; None: they are something else."""
    values = list(values)
    fold, key = folding(joining.spark), joining.right.key
    of = {fold(one.expression.text.strip("`")): (number, one) for number, one in enumerate(values)}
    found = [of.get(fold(one.name)) for one in key]
    without_key = empty(joining.spark, schema_of(joining.right.value))
    order = [
        one[0] for one in found if one is not None and not is_found(one[1].expression.column, without_key)
    ]
    return order if len(order) == len(key) == len(of) == len(values) else None


def _null(one: Field) -> SparkExpression:
    """A null of a column's type."""
    kind = spark_type(one)
    return SparkExpression(
        F.lit(None).cast(kind), f"CAST(NULL AS {kind.simpleString()})", frozenset(), harmless=True
    )
