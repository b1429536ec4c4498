"""Plans over Python functions, as `tests.plans` declares them, said again with Spark's Columns."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

import tablestream as ts
from tablestream.topology.graph import ancestors
from tablestream.topology.measures import Measure
from tablestream.topology.nodes import (
    Aggregate,
    Filter,
    ForeignKeyJoin,
    Join,
    Keep,
    KeyJoin,
    ManyToMany,
    Materialize,
    Node,
    OneToMany,
    Select,
    Source,
    Top,
)
from tablestream.topology.over import Over, WindowMeasure
from tablestream.topology.streams import FlatMap, Merge, SelectKey, StreamJoin, ToStream, ToTable
from tests.plans import catalogue, tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame


def _pair(left: Column, right: Column) -> Column:
    shown = [F.coalesce(value, F.lit("null")) for value in (left, right)]
    return F.concat(F.lit("("), shown[0], F.lit(","), shown[1], F.lit(")"))


def _never_b_a(left: Column, right: Column) -> Column:
    gone = F.coalesce(left, F.lit("")).startswith("b") & F.coalesce(right, F.lit("a")).startswith("a")
    return F.when(~gone, _pair(left, right))


def _without_b(value: Column) -> Column:
    return F.when(~(value.startswith("b") | value.startswith("(b")), F.concat(value, F.lit("!")))


TWINS: dict[Any, Callable[..., Column]] = {
    catalogue.has_a: lambda value: value.contains("a"),
    catalogue.without_b: _without_b,
    catalogue.marked: lambda value: F.concat(value, F.lit("?")),
    catalogue.never_b_a: _never_b_a,
    tables.pair: _pair,
    tables.as_text: lambda value: F.concat(F.lit("|"), value.cast("string")),
    tables.pointers: lambda value: F.transform(
        F.regexp_extract_all(value, F.lit(r"\|([^|,()]*)"), F.lit(1)),
        lambda one: F.concat(F.lit("|"), one),
    ),
}


def translated(nodes: Sequence[Node], log: DataFrame) -> list[Any]:
    """Declare the tables and streams of some nodes, in the same order.

    Parameters
    ----------
    log
        Records with ``source``, ``k0``, ``k1``, ``v``, ``ts`` (in seconds) and ``number``.
    """
    made: dict[Node, Any] = {}
    for node in ancestors(*nodes):
        made[node] = _table(node, made, log)
    return [made[node] for node in nodes]


def _table(node: Node, made: dict[Node, Any], log: DataFrame) -> Any:
    name = f"{node.name}_{node.serial}"
    if isinstance(node, Source):
        read = ts.stream if node.records else ts.table
        return read(
            log.where(F.col("source") == node.name),
            key=[one.name for one in node.key],
            timestamp=F.timestamp_seconds("ts"),
            apply_as_deletes="v IS NULL",
            columns=["v"],
            order_by="number",
            name=name,
        )
    if isinstance(
        node, Aggregate | Top | FlatMap | ToStream | ToTable | Materialize | Merge | SelectKey | Keep
    ):
        return _shaped(node, made, name)
    if isinstance(node, Filter):
        condition = _twin(node.condition)(F.col("v"))
        table = made[node.parent]
        return table.filter_not(condition) if node.negate else table.filter(condition)
    if isinstance(node, Select):
        return _selected(node, made[node.parent], name)
    if isinstance(node, Over):
        return _over(node, made[node.parent], name)
    assert isinstance(node, Join)
    return _join(node, made[node.left], made[node.right], name)


def _selected(node: Select, parent: Any, name: str) -> Any:
    """Declare another value."""
    if isinstance(node.parent, Over):
        shown = [F.coalesce(F.col(one.name).cast("string"), F.lit("null")) for one in node.parent.value]
        return parent.select(F.concat_ws(",", *shown).alias("v"), name=name)
    if node.value[0].type == tables.STRINGS:
        return parent  # is a part of the flat_map
    value = _twin(node.columns[0].expression)(F.col(node.parent.value[0].name))
    return parent.select(value.alias("v"), delete_when=value.isNull(), name=name)


def _over(node: Over, parent: Any, name: str) -> Any:
    """Declare the window functions of `tests.plans.tables.over`, ordered by the first letter."""
    inputs = ["v", "substring(v, 1, 1)", "length(v)"]

    def function(measure: WindowMeasure | Measure) -> Any:
        assert isinstance(measure, WindowMeasure)
        of = [inputs[one] for one in (measure.column, measure.default) if one is not None]
        if measure.function in {"lag", "lead"}:
            return getattr(ts.functions, measure.function)(of[0], measure.offset, *of[1:])
        return getattr(ts.functions, measure.function)(*of)

    groups = (_pointer(part).alias(f"group{number}") for number, part in enumerate(node.on))
    made = zip(node.value[1:], node.measures, strict=True)
    return parent.group_by(*groups).over(
        inputs[1],
        descending=node.order[0][1],
        frame="rows" if node.by_rows else "range",
        between=node.between,
        name=name,
        **{one.name: function(measure) for one, measure in made},
    )


def _shaped(node: Node, made: dict[Node, Any], name: str) -> Any:
    """Declare what takes rows or records as they are."""
    parent = made[node.parents[0]]
    if isinstance(node, FlatMap):
        assert isinstance(node.parent, Select)
        array = _twin(node.parent.columns[0].expression)(F.col("v"))
        return parent.flat_map(array.alias("v"), name=name)
    if isinstance(node, Merge):
        return parent.merge(made[node.right], name=name)
    if isinstance(node, SelectKey):
        keys = zip((one.expression for one in node.columns), node.key, strict=True)
        return parent.select_key(*(_pointer(part).alias(one.name) for part, one in keys), name=name)
    if isinstance(node, Aggregate):
        keys = zip(node.on, node.key, strict=True)
        return parent.group_by(*(_pointer(part).alias(one.name) for part, one in keys)).agg(
            n=ts.functions.count(), name=name
        )
    if isinstance(node, Top):
        assert node.order == ((0, True),)
        groups = (_pointer(part).alias(f"group{number}") for number, part in enumerate(node.on))
        first = (
            parent.group_by(*groups).top(node.n, "v", name=name)
            if node.ranked
            else parent.select_key(*groups, order_by="v", name=name)
        )
        return first.select("v", name=f"{name}_v")  # without the rows' keys
    return _stored(node, parent, name)


def _stored(node: Node, parent: Any, name: str) -> Any:
    """Declare what has the same rows."""
    if isinstance(node, Keep):  # as `tests.plans.tables.named_time` says
        by = None if node.by is None else F.timestamp_seconds(F.crc32("v") % 12)
        method = parent.freeze if node.freezes else parent.keep
        return method(f"{node.keep_us} seconds", by, name=name)
    history_us = node.history_us if isinstance(node, Materialize) else None
    options = {} if history_us is None else {"history": f"{history_us} seconds"}
    methods: dict[type[Node], str] = {ToStream: "to_stream", ToTable: "to_table", Materialize: "materialize"}
    return getattr(parent, methods[type(node)])(name=name, **options)


def _join(node: Join, left: Any, right: Any, name: str) -> Any:
    joiner = _twin(node.select[0].expression)

    def select(one: ts.Row, other: ts.Row) -> Any:
        value = joiner(one.v, other.v)
        if node.delete_when is None:
            return [value.alias("v")]
        return F.when(value.isNotNull(), F.struct(value.alias("v")))

    if isinstance(node, KeyJoin):
        return left.join(right, how=node.how, select=select, name=name)
    assert isinstance(node, ForeignKeyJoin | OneToMany | ManyToMany | StreamJoin)
    on = [_pointer(part) for part in node.on]
    if isinstance(node, ManyToMany):
        right_on = [_pointer(part) for part in node.right_on]
        return left.join(right, on=on, right_on=right_on, select=select, name=name)
    if isinstance(node, StreamJoin) and node.copied:
        right = ts.GlobalTable(right._node, right._spark)
    if isinstance(node, ForeignKeyJoin) and node.as_of is not None:
        time = F.timestamp_seconds(
            F.crc32("v") % 40
        )  # as `tests.plans.tables.as_of_join` says, without strict
        when = ts.as_of(time, "forward" if node.as_of.forward else "backward")
        return left.join(right, on=on, how=node.how, select=select, name=name, as_of=when)
    if isinstance(node, ForeignKeyJoin | StreamJoin):
        return left.join(right, on=on, how=node.how, select=select, name=name)
    assert node.how in {"inner", "left"}
    return left.one_to_many(right, on=on, how=node.how, select=select, name=name)


def _twin(expression: Any) -> Callable[..., Column]:
    return TWINS[expression.function]


def _pointer(part: Any) -> Column:
    """Say `tests.plans.tables.points` as a Column: the n-th of the pointers ``|x`` in a value."""
    whole = inspect.getclosurevars(part.function).nonlocals["whole"]
    number = inspect.getclosurevars(whole).nonlocals["number"]
    found = F.regexp_extract_all("v", F.lit(r"\|([^|,()]*)"), F.lit(1))
    return F.try_element_at(found, F.lit(number + 1))
