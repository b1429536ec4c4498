"""The lowering rules of groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from tablestream.errors import PlanError
from tablestream.operators.operator import Operator
from tablestream.operators.reduce.aggregate import Aggregate as AggregateOperator
from tablestream.operators.reduce.aggregate import AnyFunction
from tablestream.operators.reduce.declared import AGGREGATES, Use
from tablestream.operators.reduce.fold import AGGREGATE, Fold, UserFunctions
from tablestream.operators.reduce.frame_aggregates import OfFrame
from tablestream.operators.reduce.frames import Frame
from tablestream.operators.reduce.frames import Use as WindowUse
from tablestream.operators.reduce.over import Over as OverOperator
from tablestream.operators.reduce.over import Partition
from tablestream.operators.reduce.record_groups import RecordGroups
from tablestream.operators.reduce.regroup import Regroup
from tablestream.operators.reduce.top import Top as TopOperator
from tablestream.operators.reduce.totals import Count
from tablestream.planner.lowering import Draft, Groups, Lowering, Made, Ranks, Remembered, Want, struct_of
from tablestream.planner.physical_plan import Inputs
from tablestream.planner.result import Pointer, Result
from tablestream.state.changes import FOREIGN_HASH, KEY_HASH
from tablestream.topology.graph import base_of, path_from_base
from tablestream.topology.measures import Measure
from tablestream.topology.nodes import Aggregate, Field, Top
from tablestream.topology.over import Over, WindowMeasure


def aggregate(lowering: Lowering, node: Aggregate) -> Made:
    """Aggregate by groups. A table needs two operators, one after the other; a stream needs only the second."""
    if not node.of_kafka:
        lowering.not_of_kafka(
            node,
            "distinct, and no join that asks for a match on columns that are no key",
            "Omit compat=, or group and join the tables as Kafka Streams does.",
        )
    groups = _groups(lowering, node)
    if not node.parent.is_stream:
        return _regrouped(lowering, node, groups, _remembered_groups(node, groups))
    name, number = lowering.names[node], 1 + lowering.produce_stream(node.parent)
    records = Want(((node.serial,), 1), number, FOREIGN_HASH, f"{name}[records]")
    reads = [lowering.read_stream(node.parent, records, node.parent.key, *_grouping(lowering, node))]
    operator = RecordGroups(groups, lowering.key_of(node.parent))
    remembers = _remembered_groups(node, operator)
    draft = Draft(node, name, number, operator, reads, remembers=remembers)
    return Made(number, Result.computed(node, "v0"), (draft,))


def top(lowering: Lowering, node: Top) -> Made:
    """The first rows of each group."""
    ranks = Ranks(
        tuple(f"c{of}" for of, _ in node.order), tuple(down for _, down in node.order), node.n, node.ranked
    )
    operator = TopOperator(
        keys=lowering.key_of(node.parent),
        group_keys=lowering.foreign_of(node.foreign),
        value=lowering.struct_of(node.input_fields),
        result=lowering.value_of(node),
        order=ranks.order,
        n=node.n,
        ranked=node.ranked,
        atomic=not lowering.options.compat,
    )
    remembers = (Remembered(node, tuple(spec.name for spec in operator.traces), node.key, ranks=ranks),)
    return _regrouped(lowering, node, operator, remembers)


def _groups(lowering: Lowering, node: Aggregate) -> AggregateOperator | Fold:
    """The operator that keeps the aggregate of each group."""
    records = node.parent.is_stream
    keys = pl.Schema() if records else lowering.key_of(node.parent)
    groups, value = (
        lowering.foreign_of(node.key),
        lowering.struct_of(node.input_fields),
    )
    keep_empty, atomic = node.keep_empty or lowering.options.compat, not lowering.options.compat
    if node.functions is not None:
        assert isinstance(node.functions, UserFunctions)  # noqa: S101 - the handles make it
        result, user = lowering.value_of(node), node.functions
        on_error = _caught(lowering, node)
        return Fold(
            keys, groups, value, result, user,
            keep_empty=keep_empty, atomic=atomic, subtracts=not records, on_error=on_error,
        )  # fmt: skip
    inputs, results = lowering.types(node.input_fields), lowering.types(node.value)
    functions = tuple(
        aggregate_function(
            measure, list(inputs.values()), name, result, records=records, state=_state(lowering, measure)
        )
        for measure, (name, result) in zip(node.measures, results.items(), strict=True)
    )
    return AggregateOperator(keys, groups, value, functions, keep_empty=keep_empty, atomic=atomic)


def _caught(lowering: Lowering, node: Aggregate) -> str:
    """What becomes of rows for which the functions of a group raise."""
    name = lowering.names[node]
    on_error = lowering.options.on_error.of(name)
    if on_error != "fail" and not node.parent.is_stream:
        raise PlanError(
            f"on_error={on_error!r} cannot leave rows out of a table's aggregate with functions of your own: such a row"
            " could not be subtracted when it changes.",
            hint="Let the functions return an aggregate for such rows, too; or name other tables, as in"
            f' on_error={{"other table": {on_error!r}}}.',
            operator=name,
            where=node.where,
        )
    return on_error


def aggregate_function(
    measure: Measure,
    inputs: Sequence[pl.DataType],
    name: str,
    result: pl.DataType,
    *,
    records: bool,
    state: pl.DataType | None = None,
) -> AnyFunction:
    """How a declared aggregate is computed; `name` is what users call it, `state` the type that their own one keeps."""
    if measure.column is None:
        return Count()
    declared, by = AGGREGATES[measure.function], measure.by
    use = Use(
        name=name,
        column=f"c{measure.column}",
        of=inputs[measure.column],
        result=result,
        by=None if by is None else f"c{by}",
        of_by=None if by is None else inputs[by],
        descending=measure.descending,
        parameter=measure.parameter,
        own=measure.own,
        state=state,
    )
    make = declared.over_records if records else declared.over_rows
    assert make is not None  # noqa: S101 - the handles refuse estimates of tables
    return make(use)


def _state(lowering: Lowering, measure: Measure) -> pl.DataType | None:
    if not measure.state:
        return None
    (kind,) = lowering.types((Field("state", measure.state),)).values()
    return kind


def _remembered_groups(node: Aggregate, operator: Operator) -> tuple[Remembered, ...]:
    traces = tuple(spec.name for spec in operator.traces)
    if node.functions is not None:
        return (Remembered(node, traces, node.key, AGGREGATE),)
    measures = tuple(replace(one, own=None) for one in node.measures)
    groups = Groups(node.input_fields, measures, node.parent.is_stream)
    return (Remembered(node, traces, node.key, groups=groups),)


def sees_order(node: Aggregate | Top) -> bool:
    """Whether a row that is written again has another place among the rows of its group, or another effect."""
    if isinstance(node, Top) or node.functions is not None:
        return True
    return any(AGGREGATES[one.function].sees_order for one in node.measures)


def _grouping(lowering: Lowering, node: Aggregate | Top | Over) -> tuple[Pointer, Inputs]:
    """How to compute a row's group, and which of its columns travel."""
    pointer = Pointer(node.on, node.foreign, null_parts=not lowering.options.compat)
    return pointer, Inputs(tuple(one.expression for one in node.inputs), node.input_fields)


def _regrouped(
    lowering: Lowering,
    node: Aggregate | Top,
    operator: AggregateOperator | Fold | TopOperator,
    remembers: tuple[Remembered, ...],
) -> Made:
    """Place an operator that keeps groups of a table's rows."""
    regroup = Regroup(
        operator.keys,
        operator.group_keys,
        operator.value,
        operator.atomic,
        sends_keys=operator.needs_row_keys,
        repeats=lowering.options.compat or sees_order(node),
    )
    word = "top" if isinstance(node, Top) else "aggregate"
    return _by_group(lowering, node, regroup, operator, ("groups", "regroup", word), remembers)


def _by_group(
    lowering: Lowering,
    node: Aggregate | Top | Over,
    sends: Regroup,
    reads: Operator,
    words: tuple[str, str, str],
    remembers: tuple[Remembered, ...] = (),
) -> Made:
    """Place an operator that reads rows by group, after one that sends them to their groups.

    `words`: what the port between them, the first and the second one are called.
    """
    name, first = lowering.names[node], 1 + lowering.produce(base_of(node.parent))
    port, sender, reader = words
    rows = Want(((*path_from_base(node.parent), node.serial), 1), first, KEY_HASH, f"{name}[rows]")
    grouped = lowering.read(node.parent, rows, node.parent.key, *_grouping(lowering, node), latest_only=True)
    messages = Want(((node.serial,), 2), first + 1, FOREIGN_HASH, f"{name}[{port}]")
    drafts = (
        Draft(node, f"{name}/{sender}", first, sends, [grouped], (messages,)),
        Draft(node, f"{name}/{reader}", first + 1, reads, [messages], remembers=remembers),
    )
    return Made(first + 1, Result.computed(node, "v0"), drafts)


def over(lowering: Lowering, node: Over) -> Made:
    """Send rows to their partitions, and compute the functions there: two operators, one after the other."""
    lowering.not_of_kafka(node, "window functions")
    keys, partition = lowering.key_of(node), lowering.foreign_of(node.foreign)
    value = lowering.struct_of(node.input_fields)
    result, order = struct_of(lowering.types(node.value)), tuple((f"c{of}", down) for of, down in node.order)
    operator = OverOperator(
        keys, partition, value, result, order, _uses(lowering, node), Frame(node.by_rows, *node.between)
    )
    sends = Partition(keys, partition, value, repeats=False)
    return _by_group(lowering, node, sends, operator, ("partitions", "partition", "over"))


def _uses(lowering: Lowering, node: Over) -> tuple[WindowUse | OfFrame, ...]:
    kinds = list(lowering.types(node.input_fields).values())
    results = list(lowering.types(node.value).items())[-len(node.measures) :]

    def field(of: int | None) -> str | None:
        return None if of is None else f"c{of}"

    def use(one: WindowMeasure | Measure, name: str, result: pl.DataType) -> WindowUse | OfFrame:
        if isinstance(one, WindowMeasure):
            column, default = field(one.column), field(one.default)
            return WindowUse(one.function, column, default, one.offset, one.ignores_nulls, name)
        state = _state(lowering, one)
        function = aggregate_function(one, kinds, name, result, records=True, state=state)
        return OfFrame(function, tuple(f"c{of}" for of in (one.column, one.by) if of is not None))

    return tuple(use(one, *made) for one, made in zip(node.measures, results, strict=True))
