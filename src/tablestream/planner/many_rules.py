"""The lowering rule of joins on values that are no key of either table."""

from __future__ import annotations

from tablestream.operators.joins.foreign_key_subscribe import Rules
from tablestream.operators.joins.many_to_many import ManyToMany as ManyToManyOperator
from tablestream.operators.joins.many_to_many import PairSubscribe
from tablestream.planner.lowering import Draft, Lowering, Made, Want
from tablestream.planner.result import Carried, Pointer, Result, foreign_fields, key_fields
from tablestream.state.changes import FOREIGN_HASH, KEY_HASH
from tablestream.topology.graph import ancestors, base_of, path_from_base
from tablestream.topology.many_to_many import ManyToMany


def many_to_many(lowering: Lowering, node: ManyToMany) -> Made:
    """Send the rows of both sides to their join values, and join them there: two rounds, three operators."""
    name = lowering.names[node]
    lowering.not_of_kafka(
        node,
        "join on columns that are no key of either table",
        "Omit compat=, or join on a foreign key: give on= the columns that hold the other table's key.",
    )
    sides = tuple(zip(("left", "right"), node.parents, node.parents_on, strict=True))
    firsts = [1 + lowering.produce(base_of(side)) for side in node.parents]
    second = 1 + max(firsts)
    join_keys = lowering.foreign_of(node.foreign)
    keys = (lowering.key_of(node.left), lowering.key_of(node.right))
    values = (lowering.value_of(node.left), lowering.value_of(node.right))
    together = bool(set(ancestors(node.left)) & set(ancestors(node.right)))
    drafts, inputs = [], []
    for number, (label, side, on) in enumerate(sides):
        rows = Want(
            ((*path_from_base(side), node.serial), number), firsts[number], KEY_HASH, f"{name}[{label} rows]"
        )
        reads = lowering.read(side, rows, side.key, Pointer(on, node.foreign), side=(node, number))
        subscribe = PairSubscribe(
            Rules.PAIR,
            keys[number],
            join_keys,
            values[number],
            values[1 - number],
            tells_target=together,
            counts_nulls=node.counts_nulls,
        )
        inputs.append(Want(((node.serial,), 2 + number), second, FOREIGN_HASH, f"{name}[{label}]"))
        drafts.append(Draft(node, f"{name}/{label}", firsts[number], subscribe, [reads], (inputs[-1],)))
    right_keys = foreign_fields(node.right.key)
    operator = ManyToManyOperator(keys, join_keys, tuple(right_keys), values, moves_pairs=together)
    columns = key_fields(node.left.key)
    result = Result(
        node,
        columns | right_keys,
        (*columns, *right_keys),
        (
            Carried(node.left, "v0", tuple(columns), side=(node, 0)),
            Carried(node.right, "v1", tuple(right_keys), side=(node, 1)),
        ),
    )
    return Made(second, result, (*drafts, Draft(node, f"{name}/pairs", second, operator, inputs)))
