"""What is computed of grouped rows: the checks and the plan's nodes of aggregates, for tables and for streams."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Generic, TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.arguments.kinds import check_function, flag
from tablestream.arguments.place import Place
from tablestream.arguments.words import checked_name
from tablestream.base.extras import install_hint
from tablestream.base.type_parts import within
from tablestream.connectors.spark_types import arrow_type, check_bytewise
from tablestream.errors import ArgumentError, PlanError, UnsupportedTypeError
from tablestream.functions import AggregateFunction, Aggregator
from tablestream.handles.other_names import OtherNames
from tablestream.handles.values import analysed_columns, check_names
from tablestream.operators.reduce.declared import AGGREGATES, Takes
from tablestream.operators.reduce.fold import UserFunctions
from tablestream.spark.analysis import Analysed, unlogged
from tablestream.spark.columns import spark_type
from tablestream.spark.given_columns import as_column
from tablestream.topology.graph import shown_name
from tablestream.topology.measures import Measure
from tablestream.topology.nodes import Aggregate, Field, Fields, Named, Node

#: The table that a group makes.
Made = TypeVar("Made")

#: Spark's functions where they have another name or form; the plan takes the result type from them.
_IN_SPARK: dict[str, Callable[..., Column]] = {
    "percentile": lambda column: F.percentile(column, F.lit(0.5)),
    "approx_percentile": lambda column: F.percentile_approx(column.cast("double"), 0.5),
    "string_agg": lambda column, *_: F.string_agg(column),
}
#: The types whose values are compared with each other.
_COMPARED = {Takes.COMPARED, Takes.ORDERED}


@dataclass(frozen=True)
class Grouping:
    """The rows to group, and the group."""

    node: Node
    """The table or stream."""
    rows: DataFrame
    """A data frame with its columns and no rows."""
    key: tuple[Analysed, ...]
    values: tuple[Analysed, ...]
    """The group, and the columns that aggregates get."""
    whole: bool = False
    """Whether all rows are one group, which stays when it is empty."""


class Grouped(OtherNames, Generic[Made]):
    """Grouped rows or records."""

    def __init__(self, grouping: Grouping, make: Callable[[Node], Made]) -> None:
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
    ) -> Made:
        at = Place(self._shown(name, "agg"), where)
        if unnamed or not columns:
            raise ArgumentError(
                "agg() needs the name of each aggregate." if unnamed else "agg() has nothing to compute.",
                hint='Write agg(n=ts.functions.count(), total=ts.functions.sum("amount")).',
                where=where,
            )
        for one, function in columns.items():
            if not isinstance(function, AggregateFunction):
                raise at.error(
                    ArgumentError, f"{one}={function!r} is not an aggregate.", _instead_of(function)
                )
        inputs, measures, value = self._measured(columns, at)
        check_names(self._rows.sparkSession, [one.name for one in self._key], value, at)
        return self._aggregated(value, inputs, measures, None, keep_empty, at)

    def _measured(
        self, columns: Mapping[str, AggregateFunction], at: Place
    ) -> tuple[list[Analysed], tuple[Measure, ...], Fields]:
        """What is aggregated, the aggregates of it, and their results."""
        for one, function in columns.items():
            if AGGREGATES[function.name].over_rows is None:
                self._check_approximate(one, function, at)
        by = _names_of_orders(columns)
        of = self._inputs(columns, by)
        made = [column.alias(one) for one, column in of.items()]
        inputs = analysed_columns(self._rows, made, at) if made else []
        takes = {one: (AGGREGATES[function.name].takes, function.name) for one, function in columns.items()}
        for one, name in by.items():
            declared = AGGREGATES[columns[one].name]
            takes[name] = declared.takes if declared.of_pairs else Takes.ORDERED, columns[one].name
        for given in inputs:
            _check_input(*takes[given.name], given, at)
        value = tuple(
            self._result(one, function, [of[name] for name in (one, by.get(one)) if name in of], at)
            for one, function in columns.items()
        )
        places = {one: place for place, one in enumerate(of)}
        measures = tuple(
            Measure(
                function.name,
                places.get(one),
                function.parameter,
                places.get(by.get(one, "")),
                function.descending,
                function.own,
                "" if function.own is None else _own_type(function.own, "state", one, at).json(),
            )
            for one, function in columns.items()
        )
        return inputs, measures, value

    def _inputs(self, columns: Mapping[str, AggregateFunction], by: Mapping[str, str]) -> dict[str, Column]:
        """What is aggregated, by the names of the results, and what it is ordered by."""
        given = {one: function.column for one, function in columns.items()}
        given |= {name: columns[one].by for one, name in by.items()}
        names, filters = self._rows.columns, {one: function.condition for one, function in columns.items()}
        filters |= {name: columns[one].condition for one, name in by.items()}
        made = {one: as_column(column, names) for one, column in given.items() if column is not None}
        for one, condition in filters.items():
            if condition is not None:  # a null does not count; where rows are counted, they are ones
                made[one] = F.when(as_column(condition, names), made.get(one, F.lit(1)))
        for one, name in by.items():
            if AGGREGATES[columns[one].name].of_pairs:
                y, x = made[one], made[name]
                made[one], made[name] = F.when(x.isNotNull(), y), F.when(y.isNotNull(), x)
        return {one: made[one] for one in given if one in made}

    def _check_approximate(self, name: str, function: AggregateFunction, at: Place) -> None:
        """Refuse estimates in groups of tables, which can lose rows, and without the package for sketches."""
        if not self._node.is_stream:
            raise at.error(
                ArgumentError,
                f"{name} = {function.name}(...) is an estimate, and a sketch cannot remove a row.",
                "Use ts.functions.count_distinct, or group a stream.",
            )
        if find_spec("datasketches") is None:
            raise at.error(
                ArgumentError,
                f"{name} = {function.name}(...) needs the package datasketches.",
                install_hint("sketches"),
            )

    def _result(self, name: str, function: AggregateFunction, of: Sequence[Column], at: Place) -> Field:
        """The column of an aggregate, with Spark's type for it."""
        if function.own is not None:
            kind = _own_type(function.own, "result", name, at)
            return Field(name, kind.json())
        try:
            with unlogged():
                made = self._rows.agg(_spark_function(function.name)(*(of or ("*",))).alias(name))
                kind = made.schema[0].dataType
        except PySparkException as error:
            raise at.error(
                PlanError,
                f"Spark cannot compute {name} = {function.name}(...): {str(error).splitlines()[0]}",
                f"Columns are: {', '.join(self._rows.columns)}.",
            ) from error
        arrow_type(kind, name, at=at)
        return Field(name, kind.json())

    def _fields(self, schema: T.StructType | str, where: str) -> Fields:
        try:
            parsed = T.StructType.fromDDL(schema) if isinstance(schema, str) else schema
        except PySparkException as error:
            raise ArgumentError(
                f"The schema {schema!r} cannot be parsed.",
                hint="Write it as in 'total double, n int'.",
                where=where,
            ) from error
        if not isinstance(parsed, T.StructType) or not parsed.fields:
            raise ArgumentError(
                "The aggregate has no columns.", hint="Write schema='total double'.", where=where
            )
        shorter = [kind for one in parsed.fields for kind in within(one.dataType) if _shortens(kind)]
        if shorter:
            raise ArgumentError(
                f"A function's result cannot have the type {shorter[0].simpleString()}, which shortens values.",
                hint="Write string, or interval day to second.",
                where=where,
            )
        return tuple(Field(one.name, one.dataType.json()) for one in parsed.fields)

    def _folded(self, fields: Fields, user: UserFunctions, keep_empty: bool, at: Place) -> Made:
        check_names(self._rows.sparkSession, [one.name for one in self._key], fields, at)
        for one in fields:
            arrow_type(spark_type(one), one.name, at=at)
        return self._aggregated(fields, self._values, (), user, keep_empty, at)

    def _shown(self, name: str | None, word: str) -> str:
        """The name that the user gave, or that of the rows and a word."""
        return checked_name(name) or f"{shown_name(self._node)}_{word}"

    def _aggregated(
        self,
        value: Fields,
        inputs: Sequence[Analysed],
        measures: tuple[Measure, ...],
        functions: UserFunctions | None,
        keep_empty: bool,
        at: Place,
    ) -> Made:
        return self._make(
            Aggregate(
                name=at.operator,
                where=at.where,
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


def _spark_function(name: str) -> Callable[..., Column]:
    """Return Spark's function of a declared aggregate, of its column and the one that orders the rows."""
    return _IN_SPARK[name] if name in _IN_SPARK else getattr(F, name)


def has_order(kind: T.DataType) -> bool:
    """Whether min, max and top compare values of a type."""
    return not any(isinstance(one, T.ArrayType | T.MapType | T.BinaryType) for one in within(kind))


def _own_type(own: Aggregator, which: str, name: str, at: Place) -> T.DataType:
    """The type that a user's aggregate says of its state or its result."""
    said = getattr(own, which, None)
    try:
        kind = T.DataType.fromDDL(said) if isinstance(said, str) and said.strip() else None
    except PySparkException:
        kind = None
    if kind is None or any(map(_shortens, within(kind))):
        raise at.error(
            ArgumentError,
            f"{name} = {type(own).__name__}(): its {which} {said!r} is not a type.",
            f'Write it in the class, as in {which} = "n bigint, total double", with types that keep values whole.',
        )
    arrow_type(kind, name, at=at)
    return kind


def _names_of_orders(columns: Mapping[str, AggregateFunction]) -> dict[str, str]:
    """Names for what orders the rows of aggregates, by the names of their results."""
    longest = max(map(len, columns))  # so that no result has such a name
    return {one: f"{one:{longest}} by" for one, function in columns.items() if function.by is not None}


def _check_input(takes: Takes, function: str, one: Analysed, at: Place) -> None:
    """Refuse types that cannot be added up, or have no order."""
    if takes in _COMPARED:
        role = f"what {function}() compares"
        check_bytewise(one.type, one.name, at=at, role=role)
    if not _takes(takes, one.type):
        raise at.error(
            UnsupportedTypeError,
            f"{one.name} = {function}(...) of type {one.type.simpleString()} is not supported.",
            f"It takes {takes.value}.",
        )


def _takes(takes: Takes, kind: T.DataType) -> bool:
    wanted = {Takes.NUMBERS: T.NumericType, Takes.BOOLEANS: T.BooleanType, Takes.TEXTS: T.StringType}
    if takes is Takes.SUMS:
        return isinstance(kind, T.NumericType | T.DayTimeIntervalType)
    if takes is Takes.ORDERED:
        return has_order(kind)
    return takes not in wanted or isinstance(kind, wanted[takes])


def _instead_of(given: object) -> str:
    """What to write in the place of something else in ``agg``: for ``F.sum("x")``, ``ts.functions.sum("x")``."""
    reason = "it can also take a row out of its group."
    own = given if isinstance(given, type) else type(given)
    if issubclass(own, Aggregator):
        return f"Say of which column: {own.__name__}().of('price')."
    said = re.fullmatch(r"Column<'(\w+)\((.*)\)'>", repr(given)) if isinstance(given, Column) else None
    if said is None or said[1] not in AGGREGATES:
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
