"""Rows of groups in an order: the first ones, tables by a new key, and window functions (`GroupedTable.over`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from pyspark.sql import types as T

from tablestream.arguments.kinds import is_flag, listed, whole
from tablestream.arguments.place import Place
from tablestream.arguments.words import check_how
from tablestream.connectors.spark_types import check_bytewise
from tablestream.errors import ArgumentError, UnsupportedTypeError
from tablestream.functions import AggregateFunction, WindowFunction
from tablestream.handles.grouping import Grouped, Made, has_order
from tablestream.handles.values import analysed_columns, check_names, checked_value
from tablestream.spark.analysis import Analysed
from tablestream.spark.columns import quoted
from tablestream.spark.given_columns import ColumnLike, as_column, sql_text
from tablestream.topology.measures import Measure
from tablestream.topology.nodes import Field, Fields, Named, Top
from tablestream.topology.over import Over, WindowMeasure

#: The first number beyond 64 bits.
_LIMIT = 1 << 63
_DAY, _MICROSECOND = timedelta(days=1), timedelta(microseconds=1)
#: The aggregates that `frames` computes of all rows at once.
_RUNNING = ("sum", "count", "avg", "min", "max")
_HINT = "Write over(order_by='at', before=ts.functions.lag('price'), total=ts.functions.sum('price'))."


class FirstRows(Grouped[Made]):
    """Grouped rows of a table, of which the first ones can be shown."""

    def _first_rows(
        self,
        n: int,
        order: Sequence[tuple[Analysed, bool]],
        rank: Fields,
        at: Place,
    ) -> Made:
        """The first rows of each group, keyed by the group and `rank`; without `rank` by the group alone."""
        value = self._of_row(rank, at)
        inputs, ranked = list(value), []
        texts = [str(one.column) for one in value]
        for one, down in order:
            text = str(one.column)
            place = texts.index(text) if text in texts else len(inputs)
            inputs += [one] if place == len(inputs) else []
            ranked.append((place, down))
        return self._make(
            Top(
                name=at.operator,
                where=at.where,
                key=(*(one.field for one in self._key), *rank),
                value=tuple(one.field for one in value),
                parent=self._node,
                on=tuple(one.expression for one in self._key),
                inputs=tuple(Named(one.name, one.expression) for one in inputs),
                input_fields=tuple(Field(f"i{number}", one.type.json()) for number, one in enumerate(inputs)),
                order=tuple(ranked),
                n=n,
                ranked=bool(rank),
            )
        )

    def _order(
        self,
        order_by: ColumnLike | Sequence[ColumnLike],
        descending: bool | Sequence[bool],
        at: Place,
    ) -> list[tuple[Analysed, bool]]:
        """What rows are ranked by, each with whether the greatest comes first."""
        given = listed(order_by)
        down = [descending] * len(given) if is_flag(descending) else listed(descending)
        if len(down) != len(given) or not all(map(is_flag, down)):
            raise at.error(
                ArgumentError,
                f"descending={descending!r} does not fit {len(given)} columns of order_by.",
                "Give True or False, or a list of these with one for each column.",
            )
        columns = analysed_columns(self._rows, [as_column(one, self._rows.columns) for one in given], at)
        for one in columns:
            check_bytewise(one.type, one.name, at=at, role="the order of rows")
            if not has_order(one.type):
                raise at.error(
                    UnsupportedTypeError,
                    f"Rows cannot be ranked by {one.name} of type {one.type.simpleString()}.",
                    "Use anything but arrays, maps and binary.",
                )
        texts = (sql_text(said) or one.text for said, one in zip(given, columns, strict=True))
        named = (replace(one, text=text) for one, text in zip(columns, texts, strict=True))
        return list(zip(named, map(bool, down), strict=True))

    def _of_row(self, rank: Fields, at: Place) -> list[Analysed]:
        """The columns of a row in a result of first rows: its key, without columns of the group, and its value."""
        session, names = self._rows.sparkSession, [one.name for one in self._node.key]
        group = {(one.name, one.text) for one in self._key}
        keys = analysed_columns(self._rows, [quoted(one) for one in names], at)
        fields, _ = checked_value(session, self._values, {one: (quoted(one),) for one in names}, at)
        kept = {one.name for one in fields}
        row = [one for one in keys if (one.name, one.text) not in group]
        row += [one for one in self._values if one.name in kept]
        fields = (*rank, *(one.field for one in row))
        check_names(session, [one.name for one in self._key], fields, at)
        return row


class NewKeys(FirstRows[Made]):
    """The rows of a table by a new key, of which one is shown; see `Table.select_key`."""

    def first(
        self,
        order_by: ColumnLike | Sequence[ColumnLike] | None,
        descending: bool | Sequence[bool],
        at: Place,
    ) -> Made:
        """The first row of each new key, in an order; of equal rows the last."""
        order = [] if order_by is None else self._order(order_by, descending, at)
        return self._first_rows(1, order, (), at)


class Windowed(FirstRows[Made]):
    """Grouped rows of a table, of which each can be told of the others."""

    def _over(
        self,
        columns: Mapping[str, WindowFunction | AggregateFunction],
        order_by: ColumnLike | Sequence[ColumnLike] | None,
        descending: bool | Sequence[bool],
        frame: str,
        between: Sequence[float | timedelta | None],
        at: Place,
    ) -> Made:
        check_how(frame, ("range", "rows"), at, "frame")
        functions = {name: _function(name, one, at) for name, one in columns.items()}
        if not functions:
            raise at.error(ArgumentError, "over() has nothing to compute.", _HINT)
        own = analysed_columns(self._rows, [quoted(one.name) for one in self._node.value], at)
        order = [] if order_by is None else self._order(order_by, descending, at)
        distances = _distances(between, frame, order[-1][0].type if order else None, at)
        inputs = [*own, *(one for one, _ in order)]
        measures, results = list[WindowMeasure | Measure](), list[Field]()
        for name, one in functions.items():
            if isinstance(one, AggregateFunction):
                more, (measure,), made = self._measured({name: one}, at)
                column, by = (None if of is None else of + len(inputs) for of in (measure.column, measure.by))
                inputs += more
                measures.append(replace(measure, column=column, by=by))
                results += made
                continue
            places, of = list[int | None](), list[Analysed]()
            for given in (one.column, one.default):
                if given is not None:
                    of += analysed_columns(self._rows, [as_column(given, self._rows.columns).alias(name)], at)
                    inputs.append(of[-1])
                places.append(None if given is None else len(inputs) - 1)
            _check(one, of, at)
            measures.append(WindowMeasure(one.name, places[0], places[1], one.offset, one.ignore_nulls))
            results.append(Field(name, _result(one.name, of).json()))
        names = [one.name for one in (*self._node.key, *self._node.value)]
        check_names(self._rows.sparkSession, names, tuple(results), at)
        return self._make(
            Over(
                name=at.operator,
                where=at.where,
                key=self._node.key,
                value=(*self._node.value, *results),
                parent=self._node,
                on=tuple(one.expression for one in self._key),
                foreign=tuple(one.field for one in self._key),
                inputs=tuple(Named(one.name, one.expression) for one in inputs),
                input_fields=tuple(Field(f"i{number}", one.type.json()) for number, one in enumerate(inputs)),
                order=tuple((len(own) + number, down) for number, (_, down) in enumerate(order)),
                measures=tuple(measures),
                by_rows=frame == "rows",
                between=distances,
            )
        )


def _function(name: str, given: object, at: Place) -> WindowFunction | AggregateFunction:
    """A window function, or an aggregate; those that `frames` computes of all rows at once are window functions."""
    if isinstance(given, WindowFunction):
        return given
    if not isinstance(given, AggregateFunction):
        raise at.error(ArgumentError, f"{name} = {given!r} is not a window function.", _HINT)
    is_running = given.name in _RUNNING and given.condition is None
    return WindowFunction(given.name, given.column) if is_running else given


def _distances(
    between: Sequence[float | timedelta | None], frame: str, ordered_by: T.DataType | None, at: Place
) -> tuple[float | None, float | None]:
    """The bounds of a frame, as numbers in the unit of the last column of the order."""
    given = tuple(between) if isinstance(between, tuple | list) else ()
    found = [None if one is None else _distance(one, frame, ordered_by) for one in given]
    known = [one for one in found if one is not None]
    wrong = len(found) != 2 or any(
        one is None and told is not None for one, told in zip(found, given, strict=True)
    )
    if wrong or known != sorted(known) or any(abs(one) >= _LIMIT for one in known):
        kind = "" if frame == "rows" or ordered_by is None else f" of {ordered_by.simpleString()}"
        raise at.error(
            ArgumentError,
            f"between={between!r} is no frame by {frame}{kind}.",
            "Give a begin and an end, such as (-2, 0): numbers of rows or, with frame='range', differences of the last"
            " column of order_by. Those of a date or a timestamp are timedeltas; cast decimals.",
        )
    return found[0], found[1]


def _distance(given: object, frame: str, ordered_by: T.DataType | None) -> float | None:
    """A bound as a number; None if it is none."""
    number = whole(given)
    if frame == "rows" or number == 0 or isinstance(ordered_by, T.IntegralType):
        return number
    if isinstance(given, timedelta) and isinstance(ordered_by, T.DateType):
        return None if given % _DAY else given // _DAY
    if isinstance(given, timedelta) and isinstance(ordered_by, T.TimestampType | T.TimestampNTZType):
        return given // _MICROSECOND
    if isinstance(given, int | float) and isinstance(ordered_by, T.FloatType | T.DoubleType):
        return float(given) if math.isfinite(given) and not isinstance(given, bool) else None
    return None


def _check(one: WindowFunction, of: Sequence[Analysed], at: Place) -> None:
    """Refuse types that cannot be added up or compared, and a default of another type."""
    if not of:
        return
    kind = of[0].type
    if one.name in {"min", "max"}:
        check_bytewise(kind, of[0].name, at=at, role=f"what {one.name}() compares")
    is_added = one.name in {"sum", "avg"}
    if not (
        isinstance(kind, T.NumericType) if is_added else has_order(kind) or one.name not in {"min", "max"}
    ):
        hint = "It takes numbers." if is_added else "It has no order."
        raise at.error(
            UnsupportedTypeError,
            f"{of[0].name} = {one.name}(...) of type {kind.simpleString()} is not supported.",
            hint,
        )
    if len(of) > 1 and of[1].type != kind:
        raise at.error(
            ArgumentError,
            f"The default of {of[0].name} = {one.name}(...) is of type {of[1].type.simpleString()}, and the column of"
            f" type {kind.simpleString()}.",
            "Cast one of them.",
        )


def _result(function: str, of: Sequence[Analysed]) -> T.DataType:
    """The type of Spark's function."""
    kind = of[0].type if of else None
    if function in {"row_number", "rank", "dense_rank", "ntile"}:
        return T.IntegerType()
    if function == "count":
        return T.LongType()
    if function in {"sum", "avg"} and isinstance(kind, T.DecimalType):
        digits, decimals = (10, 0) if function == "sum" else (4, 4)
        return T.DecimalType(min(kind.precision + digits, 38), min(kind.scale + decimals, 38))
    if function == "sum" and isinstance(kind, T.IntegralType):
        return T.LongType()
    if function in {"sum", "avg", "percent_rank", "cume_dist"} or kind is None:
        return T.DoubleType()
    return kind
