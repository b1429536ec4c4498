"""The lowering rule of window functions."""

from __future__ import annotations

import polars as pl

from tablestream.operators.reduce.frames import Use
from tablestream.operators.reduce.over import Over as OverOperator
from tablestream.operators.reduce.over import Partition
from tablestream.planner.lowering import Draft, Lowering, Made, Want, struct_of
from tablestream.planner.physical_plan import Inputs
from tablestream.planner.result import Pointer, Result
from tablestream.state.changes import FOREIGN_HASH, KEY_HASH
from tablestream.topology.graph import base_of, path_from_base
from tablestream.topology.over import Over


def over(lowering: Lowering, node: Over) -> Made:
    """Send rows to their partitions, and compute the functions there: two operators, one after the other."""
    name, first = lowering.names[node], 1 + lowering.produce(base_of(node.parent))
    lowering.not_of_kafka(node, "window functions")
    rows = Want(((*path_from_base(node.parent), node.serial), 1), first, KEY_HASH, f"{name}[rows]")
    messages = Want(((node.serial,), 2), first + 1, FOREIGN_HASH, f"{name}[partitions]")
    pointer = Pointer(node.on, node.foreign, null_parts=True)
    inputs = Inputs(tuple(one.expression for one in node.inputs), node.input_fields)
    reads = [lowering.read(node.parent, rows, node.parent.key, pointer, inputs, latest_only=True)]
    keys, partition = lowering.key_of(node), lowering.foreign_of(node.foreign)
    value = lowering.struct_of(node.input_fields)
    operator = OverOperator(keys, partition, value, _result(lowering, node), _order(node), _uses(node))
    drafts = (
        Draft(
            node,
            f"{name}/partition",
            first,
            Partition(keys, partition, value, repeats=False),
            reads,
            (messages,),
        ),
        Draft(node, f"{name}/over", first + 1, operator, [messages]),
    )
    return Made(first + 1, Result.computed(node, "v0"), drafts)


def _result(lowering: Lowering, node: Over) -> pl.Struct:
    return struct_of(lowering.types(node.value))


def _order(node: Over) -> tuple[tuple[str, bool], ...]:
    return tuple((f"c{of}", down) for of, down in node.order)


def _uses(node: Over) -> tuple[Use, ...]:
    def field(of: int | None) -> str | None:
        return None if of is None else f"c{of}"

    return tuple(
        Use(one.function, field(one.column), field(one.default), one.offset, node.by_rows, made.name)
        for one, made in zip(node.measures, node.value[-len(node.measures) :], strict=True)
    )
