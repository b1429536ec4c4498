"""Window functions over the rows of partitions: `GroupedTable.over`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import types as T

from tablestream.arguments.place import Place
from tablestream.arguments.words import check_how
from tablestream.errors import ArgumentError, UnsupportedTypeError
from tablestream.functions import AggregateFunction, WindowFunction
from tablestream.handles.first_rows import FirstRows
from tablestream.handles.grouping import Made, has_order
from tablestream.handles.values import carried, check_names
from tablestream.spark.analysis import Analysed
from tablestream.spark.columns import quoted
from tablestream.spark.given_columns import ColumnLike, as_column
from tablestream.spark.types import check_bytewise
from tablestream.topology.nodes import Field, Named
from tablestream.topology.over import Over, WindowMeasure

#: The aggregates that run over a frame.
_RUNNING = ("sum", "count", "avg", "min", "max")
_HINT = "Write over(order_by='at', before=ts.functions.lag('price'), total=ts.functions.sum('price'))."


class Windowed(FirstRows[Made]):
    """Grouped rows of a table, of which each can be told of the others."""

    def _over(
        self,
        columns: Mapping[str, WindowFunction | AggregateFunction],
        order_by: ColumnLike | Sequence[ColumnLike] | None,
        descending: bool | Sequence[bool],
        frame: str,
        at: Place,
    ) -> Made:
        check_how(frame, ("range", "rows"), at, "frame")
        functions = {name: _function(name, one, at) for name, one in columns.items()}
        if not functions:
            raise at.error(ArgumentError, "over() has nothing to compute.", _HINT)
        own = carried(self._rows, [quoted(one.name) for one in self._node.value], at)
        order = [] if order_by is None else self._order(order_by, descending, at)
        inputs = [*own, *(one for one, _ in order)]
        measures, results = [], []
        for name, one in functions.items():
            places, of = list[int | None](), list[Analysed]()
            for given in (one.column, one.default):
                if given is not None:
                    of += carried(self._rows, [as_column(given, self._rows.columns).alias(name)], at)
                    inputs.append(of[-1])
                places.append(None if given is None else len(inputs) - 1)
            _check(one, of, at)
            measures.append(WindowMeasure(one.name, places[0], places[1], one.offset))
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
            )
        )


def _function(name: str, given: object, at: Place) -> WindowFunction:
    """A window function, or an aggregate as one."""
    if isinstance(given, WindowFunction):
        return given
    if isinstance(given, AggregateFunction) and given.condition is not None:
        raise at.error(
            ArgumentError,
            f"{name} = {given!r} cannot be filtered over a window.",
            "Aggregate an expression that is null in the other rows, such as CASE WHEN n > 1 THEN price END.",
        )
    if isinstance(given, AggregateFunction) and given.name in _RUNNING and given.own is None:
        return WindowFunction(given.name, given.column)
    said = given.name if isinstance(given, AggregateFunction) else repr(given)
    raise at.error(ArgumentError, f"{name} = {said} is not a window function.", _HINT)


def _check(one: WindowFunction, of: Sequence[Analysed], at: Place) -> None:
    """Refuse types that cannot be added up or compared, and a default of another type."""
    if not of:
        return
    kind = of[0].type
    if one.name in {"min", "max"}:
        check_bytewise(kind, of[0].name, at=at, role=f"what {one.name}() compares")
    summed = isinstance(kind, T.IntegralType | T.FloatType | T.DoubleType)
    if not (summed if one.name in {"sum", "avg"} else has_order(kind) or one.name not in {"min", "max"}):
        hint = (
            "It takes integers and doubles: cast decimals."
            if one.name in {"sum", "avg"}
            else "It has no order."
        )
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
    if function in {"row_number", "rank", "dense_rank"}:
        return T.IntegerType()
    if function == "count":
        return T.LongType()
    if function == "avg" or (function == "sum" and not isinstance(of[0].type, T.IntegralType)):
        return T.DoubleType()
    return T.LongType() if function == "sum" else of[0].type
