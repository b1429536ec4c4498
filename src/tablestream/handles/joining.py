"""A join as a user describes it: the foreign key, and the columns of the result."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as T

from tablestream.arguments.kinds import check_function, listed, signature, takes, whole
from tablestream.arguments.place import Place
from tablestream.base.calling import warn
from tablestream.connectors.spark_types import check_bytewise
from tablestream.errors import ArgumentError, ColumnCollisionError, NotVersionedError
from tablestream.handles.values import analysed_columns, checked_value, empty, taken_apart
from tablestream.spark.analysis import Analysed, folding, is_found
from tablestream.spark.columns import SparkExpression, schema_of, types_of
from tablestream.spark.compared import POINTING, KeySide, common_key
from tablestream.spark.given_columns import ColumnLike, as_columns
from tablestream.spark.row import LEFT, RIGHT, Given, Plain, Row, plain, renamed, side_column
from tablestream.topology.graph import base_of, history_of, shown_name
from tablestream.topology.nodes import AsOf, Field, Fields, ForeignKeyJoin, How, Join, KeyJoin, Named, Node


class OnKey(Enum):
    """The kind of `KEY`."""

    KEY = "KEY"

    def __repr__(self) -> str:
        return "tablestream.KEY"


KEY = OnKey.KEY
"""For ``on=`` of a join: the key of this table is compared with the key of the other."""

On = ColumnLike | Sequence[ColumnLike] | Callable[..., Any] | OnKey
SelectFunction = Callable[[Row, Row], Any]
Suffixes = tuple[str, str] | None
#: The value of a join: its columns, their expressions, and the condition under which there is no row.
Value = tuple[Fields, tuple[Named, ...], SparkExpression | None]
JoinT = TypeVar("JoinT", bound=Join)

#: A column of a row, as Spark writes it within an expression.
_OF_SIDE = re.compile(rf"(?:{LEFT}|{RIGHT})\.(.+?) AS (?:`\1`|\1(?!\w))")
_SELECT = "Write it as in select=lambda left, right: [left.amount, right.price]."
_ON = "Give columns, or a function of the row that returns them: on=lambda row: row.ticker."
_HINT = "Use columns of the two rows that select= gets, such as left.amount."


@dataclass(frozen=True)
class Joining:
    """The two sides of a join."""

    left: Node
    right: Node
    """The sides."""
    spark: SparkSession
    """The session."""
    at: Place
    """Its name, and the user's line."""

    def check_alone(self, argument: str, others: Mapping[str, bool], hint: str) -> None:
        """Refuse an argument that does not go with others, such as "with spread=": the first of these that is so."""
        for one, is_so in others.items():
            if is_so:
                raise self.at.error(ArgumentError, f"{argument} cannot be used {one}.", hint)

    def analysed(self, rows: DataFrame, columns: Sequence[Column | Plain], hint: str = "") -> list[Analysed]:
        """Columns over rows, analysed by Spark."""
        return analysed_columns(rows, columns, self.at, hint)

    def check_histories(self, *, copied: bool) -> None:
        """Refuse a join of histories if a side has no history, or is a global table."""
        for side in (self.left, self.right):
            if history_of(side) is None:
                raise self.at.error(
                    NotVersionedError,
                    f"complete_history=True joins the histories of two tables, and '{shown_name(side)}' has none.",
                    "Give the table history=, or omit complete_history=.",
                )
        if copied:
            raise self.at.error(
                ArgumentError,
                "complete_history=True cannot be used with a global table.",
                "Use tablestream.table instead, with the same on=.",
            )

    def check_on(self, on: On | None, *, copied: bool) -> None:
        """Refuse a join with a global table that does not say where the left rows point."""
        if on is None and copied:
            raise self.at.error(
                ArgumentError,
                "A join with a global table needs on=.",
                "Say which columns of this table hold the global table's key.",
            )

    def key_join(
        self, how: How, select: SelectFunction | None, suffixes: Suffixes, complete_history: bool
    ) -> KeyJoin:
        """Join both tables on their common key."""
        key = self.common_key()
        value = self.value(select, suffixes, self.key_columns(key, same=True))
        return self.made(KeyJoin, key, how, value, complete_history=complete_history)

    def made(self, kind: type[JoinT], key: Fields, how: How, value: Value, **own: Any) -> JoinT:
        """Make the node. `own`: what only its kind has."""
        fields, columns, gone = value
        return kind(
            name=self.at.operator,
            where=self.at.where,
            key=key,
            value=fields,
            left=self.left,
            right=self.right,
            how=how,
            select=columns,
            delete_when=gone,
            **own,
        )

    def ask_for_on(self) -> None:
        """Warn of a join without `on` where it may have been forgotten.

        It is a join on the key, as in Kafka Streams. But if the keys have different names, or another column of the
        left table could hold the right key, only the user knows what is meant.
        """
        self.common_key()  # keys that cannot be compared are an error
        fold = folding(self.spark)
        left, right = ([one.name for one in side.key] for side in (self.left, self.right))
        shown = (
            f"'{self.at.operator}' compares the key of one table ({', '.join(left)}) with that of the other"
        )
        pointing = self._may_point()
        if list(map(fold, left)) != list(map(fold, right)):
            warn(
                f"{shown} ({', '.join(right)}). If another column points at the other table, name it with on=."
                " If the keys are meant, say so with on=tablestream.KEY."
            )
        elif pointing and base_of(self.left) is not base_of(self.right):
            warn(
                f"{shown}. If another column points at the other table, such as {' or '.join(pointing)}, name it with"
                " on=. If the keys are meant, say so with on=tablestream.KEY."
            )

    def _may_point(self) -> list[str]:
        """The columns of the left value that could hold the right key: of its type, or integers as it is."""
        kinds = types_of(self.right.key)
        if len(kinds) != 1:
            return []
        values = zip(self.left.value, types_of(self.left.value), strict=True)
        return [one.name for one, kind in values if _is_alike(kind, kinds[0])]

    def checked_spread(self, spread: Any, *, on: On | None, complete_history: bool, copied: bool) -> int:
        """Refuse a spread that is not a number of shards, or does not go with something else of the join."""
        number = whole(spread)
        if number is None or not 2 <= number <= 4096:
            raise self.at.error(
                ArgumentError,
                f"spread={spread!r} is not a number of shards between 2 and 4096.",
                "Give over how many shards the rows with one foreign key are spread, such as spread=8.",
            )
        others = {
            "without on=": on is None,
            "in a join on the key": on is KEY,
            "with complete_history=": complete_history,
            "with a global table, which every shard has": copied,
        }
        hint = (
            "Omit spread=: it spreads the rows that share a foreign key, in an inner or left join with on=."
        )
        self.check_alone("spread=", others, hint)
        return number

    def common_key(self) -> Fields:
        """The key of both sides, under the left names, in the types used for comparison."""
        left, right = (_key_side(side) for side in (self.left, self.right))
        kinds = common_key(left, right, at=self.at)
        return tuple(Field(one.name, kind.json()) for one, kind in zip(self.left.key, kinds, strict=True))

    def pointing(self, on: On) -> tuple[Fields, tuple[SparkExpression, ...]]:
        """The foreign key: its columns in the types used for comparison, and the expressions over the left row."""
        pointers, key = self.pointers(on), self.right.key
        pointing = KeySide([(one.name, one.type) for one in pointers], POINTING)
        common = common_key(pointing, _key_side(self.right), at=self.at)
        fields = tuple(Field(one.name, kind.json()) for one, kind in zip(key, common, strict=True))
        return fields, tuple(one.expression for one in pointers)

    def pointers(self, on: On, role: str = "a foreign key") -> list[Analysed]:
        """The columns that `on` names of a left row, or computes."""
        if isinstance(on, OnKey):
            on = [one.name for one in self.left.key]
        elif callable(on) and not isinstance(on, Column | str):
            on = self._called(on)
        rows = self.left_rows()
        pointers = self.analysed(rows, as_columns(listed(on), rows.columns))
        for one in pointers:
            check_bytewise(one.type, one.name, at=self.at, role=role)
        return pointers

    def _called(self, on: Callable[..., Any]) -> list[Any]:
        """The columns that a user's function of the left row returns, or of the row and its key."""
        if isinstance(on, type):
            raise self.at.error(ArgumentError, f"on= is the class {on.__name__}.", _ON)
        check_function(on, "on", 1, 2, hint=_ON, operator=self.at.operator, where=self.at.where)
        given, known = Given(self.spark), signature(on)
        rows = [Row(_names(self.left), None, given)]
        if known is not None and len(known.parameters) > 1 and takes(on, 2):
            rows.append(Row([one.name for one in self.left.key], None, given))
        return list(map(given.of, listed(on(*rows))))

    def is_on_key(self, foreign: Fields, on: Sequence[SparkExpression]) -> bool:
        """Whether a foreign key is the whole left key, in types that both keys are compared in.

        The text of an expression is not enough: the column ``id`` and the string 'id' have the same text. But Spark
        does not find the column in a frame without the key.
        """
        key, fold = self.left.key, folding(self.spark)
        if [one.type for one in foreign] != [one.type for one in key]:
            return False
        without_key = empty(self.spark, schema_of(self.left.value))
        return all(
            fold(expression.text.strip("`")) == fold(one.name)
            and not is_found(expression.column, without_key)
            for expression, one in zip(on, key, strict=True)
        )

    def key_columns(self, key: Fields, *, same: bool) -> dict[str, tuple[Column, ...]]:
        """The columns of both rows that are parts of the join's key, by their names in the result.

        In a key join (`same`), this includes the right column at the same position, if it has the same name.
        """
        fold = folding(self.spark)
        left, right = Row(_names(self.left), LEFT), Row(_names(self.right), RIGHT)
        lefts, rights = [one.name for one in self.left.key], [one.name for one in self.right.key]
        if same:
            parts = [
                (left[one], right[other]) if fold(one) == fold(other) else (left[one],)
                for one, other in zip(lefts, rights, strict=True)
            ]
        else:  # the key has all of these, or only the left ones
            parts = [*((left[one],) for one in lefts), *((right[one],) for one in rights)]
        return {one.name: columns for one, columns in zip(key, parts, strict=False)}

    def value(
        self, select: SelectFunction | None, suffixes: Suffixes, keys: Mapping[str, Sequence[Column]]
    ) -> Value:
        """The value of the join."""
        if select is not None:
            self._check_select(select)
        given, frame = Given(self.spark), self.both()
        if select is None:
            made: Any = self._all_columns(suffixes, list(keys))
        else:
            made = select(*self.rows(given))
        columns = self.analysed(frame, as_columns(map(given.of, listed(made)), frame.columns), _HINT)
        parts, absent = taken_apart(columns)
        if parts is not None:
            columns = self.analysed(frame, parts, _HINT)
        gone = None if absent is None else self.analysed(frame, [absent], _HINT)[0]
        columns = [one if one.named else replace(one, name=_joined_name(one.name)) for one in columns]
        value, named = checked_value(self.spark, columns, keys, self.at)
        return value, named, None if gone is None else gone.expression

    def left_rows(self) -> DataFrame:
        """A data frame with the columns of the left side, and no rows."""
        return empty(self.spark, schema_of([*self.left.key, *self.left.value]))

    def both(self) -> DataFrame:
        """A data frame with the columns of both sides, and no rows."""
        sides = [*_side_fields(LEFT, self.left), *_side_fields(RIGHT, self.right)]
        return empty(self.spark, T.StructType(sides))

    def rows(self, given: Given) -> tuple[Row, Row]:
        """Both rows, as the user's functions get them."""
        return Row(_names(self.left), LEFT, given), Row(_names(self.right), RIGHT, given)

    def _check_select(self, select: Any) -> None:
        """Refuse what is no function of two rows."""
        if isinstance(select, type) or not callable(select):
            what = "class" if isinstance(select, type) else type(select).__name__
            raise self.at.error(
                ArgumentError, f"select= is a {what}; it must be a function of the two rows.", _SELECT
            )
        check_function(select, "select", 2, hint=_SELECT, operator=self.at.operator, where=self.at.where)

    def _all_columns(self, suffixes: Suffixes, keys: Sequence[str]) -> list[Column | Plain]:
        """The columns of both sides, each under its own name or with a suffix."""
        self._check_suffixes(suffixes)
        fold, sides = folding(self.spark), ((LEFT, self.left.value), (RIGHT, self.right.value))
        seen = {fold(name) for name in keys}
        lefts, rights = ({fold(one.name) for one in fields} for _, fields in sides)
        shared, columns = (lefts & rights) | seen, list[Column | Plain]()
        for (side, fields), suffix in zip(sides, suffixes or ("", ""), strict=True):
            for one in fields:
                shown = one.name + suffix if fold(one.name) in shared else one.name
                if fold(shown) in seen:
                    raise self.at.error(
                        ColumnCollisionError,
                        f"The join has two columns called '{shown}'.",
                        "Give suffixes=('_left', '_right'), or select= the columns you want, or leave"
                        f" '{one.name}' out of one table with except_columns=.",
                    )
                seen.add(fold(shown))
                columns.append(plain(one.name, shown, side) or renamed(side_column(side, one.name), shown))
        return columns

    def _check_suffixes(self, suffixes: Any) -> None:
        """Refuse what is no pair of strings."""
        if suffixes is not None and [type(one) for one in listed(suffixes)] != [str, str]:
            raise self.at.error(
                ArgumentError,
                f"suffixes={suffixes!r} is not a pair of strings.",
                "Give one for each table, such as suffixes=('_left', '_right').",
            )

    def joint_key(self) -> Fields:
        """The key of a result that is keyed by both keys; a name that both have is prefixed with the table's name.

        So is a key column that has the name of a value column of the other table: a foreign key often has the name
        of the key that it refers to, and both are columns of the result.
        """
        sides = (self.left, self.right)
        names = [shown_name(base_of(node)) for node in sides]
        if names[0] == names[1]:
            names = [shown_name(node) for node in sides]
        if names[0] == names[1]:
            names[1] += "_2"
        fold = folding(self.spark)
        columns = [{fold(name) for name in _names(node)} for node in sides]
        fields = [
            Field(f"{name}_{one.name}" if fold(one.name) in others else one.name, one.type)
            for name, node, others in zip(names, sides, reversed(columns), strict=True)
            for one in node.key
        ]
        if len({fold(one.name) for one in fields}) < len(fields):
            raise self.at.error(
                ColumnCollisionError,
                f"The result's key ({', '.join(one.name for one in fields)}) would have a column twice.",
                "Give the tables different names (name=).",
            )
        return tuple(fields)


def foreign_key_join(
    joining: Joining,
    pointing: tuple[Fields, tuple[SparkExpression, ...]],
    how: How,
    select: SelectFunction | None,
    suffixes: Suffixes,
    *,
    keeps_key: bool = False,
    copied: bool = False,
    complete_history: bool = False,
    spread: int | None = None,
    as_of: AsOf | None = None,
) -> ForeignKeyJoin:
    """Join each left row with the right row that it points at.

    `pointing`: the right key in the compared types, and the foreign key. `keeps_key`: the join is not planned as one on
    the key. The others are the node's.
    """
    (foreign, expressions), is_by_left_key = pointing, how in {"inner", "left"}
    key = joining.left.key if is_by_left_key else joining.joint_key()
    value = joining.value(select, suffixes, joining.key_columns(key, same=False))
    on_key = is_by_left_key and not keeps_key and joining.is_on_key(foreign, expressions)
    return joining.made(
        ForeignKeyJoin,
        key,
        how,
        value,
        on=expressions,
        foreign=foreign,
        copied=copied,
        on_key=on_key,
        complete_history=complete_history,
        spread=None if on_key else spread,
        as_of=as_of,
    )


def _key_side(node: Node) -> KeySide:
    """The key of a table that is joined."""
    names = [one.name for one in node.key]
    cast = f"key={{}}.alias({{name!r}}) where '{shown_name(node)}' gets its key"
    return KeySide(list(zip(names, types_of(node.key), strict=True)), cast)


def _joined_name(text: str) -> str:
    """Return the text of an expression as Spark would write it over the joined row."""
    return _OF_SIDE.sub(r"\1", text)


def _is_alike(one: T.DataType, other: T.DataType) -> bool:
    """Whether a foreign key of one type is likely to refer to a key of the other."""
    return one == other or (isinstance(one, T.IntegralType) and isinstance(other, T.IntegralType))


def _names(node: Node) -> list[str]:
    return [one.name for one in (*node.key, *node.value)]


def _side_fields(side: str, node: Node) -> list[T.StructField]:
    """The columns of one side of a join, and whether it has a row, under the names that `Row` uses."""
    exists = T.StructField(side_column(side, ""), T.BooleanType())
    schema = schema_of([*node.key, *node.value])
    return [exists, *(T.StructField(side_column(side, one.name), one.dataType) for one in schema)]
