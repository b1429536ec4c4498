"""What is computed of grouped rows: the checks and the plan's nodes of aggregates, for tables and for streams."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pyspark.errors import ParseException, PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import types as T

from tablestream.arguments import as_column, checked_name
from tablestream.errors import ArgumentError, PlanError, UnsupportedTypeError
from tablestream.extras import install_hint
from tablestream.functions import SPARK, AggregateFunction
from tablestream.kinds import check_function, flag
from tablestream.operators.reduce.fold import UserFunctions
from tablestream.other_names import OtherNames
from tablestream.spark.analysis import Analysed
from tablestream.spark.columns import spark_type
from tablestream.spark.types import arrow_type, check_bytewise, leaves
from tablestream.topology.graph import shown_name
from tablestream.topology.nodes import Aggregate, Field, Fields, Measure, Named, Node
from tablestream.values import carried, check_names

if TYPE_CHECKING:
    from tablestream.tables import Table

#: The aggregates that compare values with each other.
_COMPARING = frozenset({"min", "max", "count_distinct", "collect_set", "approx_count_distinct"})


@dataclass(frozen=True)
class Grouping:
    """The rows to group, and the group.

    Attributes
    ----------
    node
        The table or stream.
    rows
        A data frame with its columns and no rows.
    key, values
        The group, and the columns that aggregates get.
    whole
        Whether all rows are one group, which stays when it is empty.
    """

    node: Node
    rows: DataFrame
    key: tuple[Analysed, ...]
    values: tuple[Analysed, ...]
    whole: bool = False


class Grouped(OtherNames):
    """Grouped rows or records."""

    def __init__(self, grouping: Grouping, make: Callable[[Node], Table]) -> None:
        self._node, self._rows = grouping.node, grouping.rows
        self._key, self._values, self._make = grouping.key, grouping.values, make
        self._whole = grouping.whole

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({shown_name(self._node)} by {', '.join(one.name for one in self._key)})"
        )

    def _column_names(self) -> list[str]:
        return [one.name for one in (*self._key, *self._values)]

    def _user(
        self,
        initializer: Callable[[], Any] | None,
        adder: Callable[[Any, Any, Any], Any],
        subtractor: Callable[[Any, Any, Any], Any],
        aggregate: Fields,
        text: str,
    ) -> UserFunctions:
        """The user's functions, with the columns that they get."""
        return UserFunctions(
            initializer=initializer,
            adder=adder,
            subtractor=subtractor,
            key=tuple(one.name for one in self._key),
            row=tuple(one.name for one in self._values),
            aggregate=tuple(one.name for one in aggregate),
            text=text,
        )

    def _agg(
        self,
        columns: Mapping[str, AggregateFunction],
        keep_empty: bool,
        name: str | None,
        where: str,
        unnamed: Sequence[object] = (),
    ) -> Table:
        shown = self._shown(name, "agg")
        if unnamed or not columns:
            raise ArgumentError(
                "agg() needs the name of each aggregate." if unnamed else "agg() has nothing to compute.",
                hint='Write agg(n=ts.functions.count(), total=ts.functions.sum("amount")).',
                where=where,
            )
        for one, function in columns.items():
            if not isinstance(function, AggregateFunction):
                raise ArgumentError(
                    f"{one}={function!r} is not an aggregate.",
                    hint=_instead_of(function),
                    operator=shown,
                    where=where,
                )
            if function.parameter is not None:
                self._check_approximate(one, function, shown, where)
        of = {
            one: as_column(function.column, self._rows.columns)
            for one, function in columns.items()
            if function.column is not None
        }
        inputs = (
            carried(self._rows, [column.alias(one) for one, column in of.items()], shown, where) if of else []
        )
        for given in inputs:
            _check_input(columns[given.name], given, shown, where)
        places = {one: place for place, one in enumerate(of)}
        value = tuple(
            self._result(one, function, of.get(one), shown, where) for one, function in columns.items()
        )
        check_names(self._rows.sparkSession, [one.name for one in self._key], value, shown, where)
        measures = tuple(
            Measure(function.name, places.get(one), function.parameter) for one, function in columns.items()
        )
        return self._made(value, inputs, measures, None, keep_empty, shown, where)

    def _check_approximate(self, name: str, function: AggregateFunction, operator: str, where: str) -> None:
        """Refuse estimates in groups of tables, which can lose rows, and without the package for sketches."""
        if not self._node.is_stream:
            raise ArgumentError(
                f"{name} = {function.name}(...) is an estimate, and a sketch cannot remove a row.",
                hint="Use ts.functions.count_distinct, or group a stream.",
                operator=operator,
                where=where,
            )
        if find_spec("datasketches") is None:
            raise ArgumentError(
                f"{name} = {function.name}(...) needs the package datasketches.",
                hint=install_hint("sketches"),
                operator=operator,
                where=where,
            )

    def _result(
        self, name: str, function: AggregateFunction, column: Column | None, operator: str, where: str
    ) -> Field:
        """The column of an aggregate, with Spark's type for it."""
        spark = SPARK[function.name]
        try:
            made = self._rows.agg(spark("*" if column is None else column).alias(name))
            kind = made.schema[0].dataType
        except PySparkException as error:
            raise PlanError(
                f"Spark cannot compute {name} = {function.name}(...): {str(error).splitlines()[0]}",
                hint=f"Columns are: {', '.join(self._rows.columns)}.",
                operator=operator,
                where=where,
            ) from error
        arrow_type(kind, name, operator=operator, where=where)
        return Field(name, kind.json())

    def _fields(self, schema: T.StructType | str, where: str) -> Fields:
        try:
            parsed = T.StructType.fromDDL(schema) if isinstance(schema, str) else schema
        except ParseException as error:
            raise ArgumentError(
                f"The schema {schema!r} cannot be parsed.",
                hint="Write it as in 'total double, n int'.",
                where=where,
            ) from error
        if not isinstance(parsed, T.StructType) or not parsed.fields:
            raise ArgumentError(
                "The aggregate has no columns.", hint="Write schema='total double'.", where=where
            )
        shorter = [kind for one in parsed.fields for kind in leaves(one.dataType) if _shortens(kind)]
        if shorter:
            raise ArgumentError(
                f"A function's result cannot have the type {shorter[0].simpleString()}, which shortens values.",
                hint="Write string, or interval day to second.",
                where=where,
            )
        return tuple(Field(one.name, one.dataType.json()) for one in parsed.fields)

    def _folded(self, fields: Fields, user: UserFunctions, keep_empty: bool, shown: str, where: str) -> Table:
        check_names(self._rows.sparkSession, [one.name for one in self._key], fields, shown, where)
        for one in fields:
            arrow_type(spark_type(one), one.name, operator=shown, where=where)
        return self._made(fields, self._values, (), user, keep_empty, shown, where)

    def _shown(self, name: str | None, word: str) -> str:
        """The name that the user gave, or that of the rows and a word."""
        return checked_name(name) or f"{shown_name(self._node)}_{word}"

    def _made(
        self,
        value: Fields,
        inputs: Sequence[Analysed],
        measures: tuple[Measure, ...],
        functions: UserFunctions | None,
        keep_empty: bool,
        name: str,
        where: str,
    ) -> Table:
        return self._make(
            Aggregate(
                name=name,
                where=where,
                key=tuple(one.field for one in self._key),
                value=value,
                parent=self._node,
                on=tuple(one.expression for one in self._key),
                inputs=tuple(Named(one.name, one.expression) for one in inputs),
                input_fields=tuple(Field(f"i{number}", one.type.json()) for number, one in enumerate(inputs)),
                measures=measures,
                functions=functions,
                keep_empty=flag(keep_empty, "keep_empty") or (self._whole and not self._node.is_stream),
            )
        )


def has_order(kind: T.DataType) -> bool:
    """Whether min, max and top compare values of a type."""
    if isinstance(kind, T.StructType):
        return all(has_order(one.dataType) for one in kind.fields)
    return not isinstance(kind, T.ArrayType | T.MapType | T.BinaryType)


def _check_input(function: AggregateFunction, one: Analysed, operator: str, where: str) -> None:
    """Refuse types that cannot be added up, or have no order."""
    if function.name in _COMPARING:
        role = f"what {function.name}() compares"
        check_bytewise(one.type, one.name, operator=operator, where=where, role=role)
    summed = function.name in {"sum", "avg", "approx_percentile"}
    if function.name in {"sum", "avg"} and isinstance(one.type, T.DayTimeIntervalType):
        return
    ordered = function.name in {"min", "max"}
    if (summed and not isinstance(one.type, T.NumericType)) or (ordered and not has_order(one.type)):
        raise UnsupportedTypeError(
            f"{one.name} = {function.name}(...) of type {one.type.simpleString()} is not supported.",
            hint="sum and avg take numbers and intervals of days; min and max all but arrays, maps and binary.",
            operator=operator,
            where=where,
        )


def _instead_of(given: object) -> str:
    """What to write in the place of something else in ``agg``: for ``F.sum("x")``, ``ts.functions.sum("x")``."""
    reason = "it can also take a row out of its group."
    said = re.fullmatch(r"Column<'(\w+)\((.*)\)'>", repr(given)) if isinstance(given, Column) else None
    if said is None or said[1] not in SPARK:
        return f"Use one of tablestream.functions, such as count(): {reason}"
    column = "" if (said[1], said[2]) in {("count", "1"), ("count", "*")} else repr(said[2])
    return f"Use ts.functions.{said[1]}({column}) in place of Spark's: {reason}"


def check_functions(functions: Mapping[str, tuple[Any, int]], where: str) -> None:
    """Refuse what is no function of so many arguments."""
    for argument, (given, count) in functions.items():
        hint = "The documentation of aggregate() and reduce() says what each function gets."
        check_function(given, argument, count, hint=hint, where=where)


class Swapped:
    """A reducer as an adder: (key, row, aggregate) -> reducer(aggregate, row)."""

    def __init__(self, reducer: Callable[[Any, Any], Any]) -> None:
        self._reducer = reducer

    def __call__(self, _: Any, row: Any, aggregate: Any) -> Any:
        return self._reducer(aggregate, row)


def described(functions: Sequence[Callable[..., Any]], version: str) -> str:
    """Return what a plan says of functions: their names, and the version that the user gave them."""
    names = ", ".join(getattr(one, "__qualname__", type(one).__qualname__) for one in functions)
    return f"functions {names}" + (f" version {version}" if version else "")


def _shortens(kind: T.DataType) -> bool:
    """Whether a type has a length, or leaves out the seconds."""
    if isinstance(kind, T.DayTimeIntervalType):
        return kind.endField != T.DayTimeIntervalType.SECOND
    return isinstance(kind, T.CharType | T.VarcharType)
