"""Other plans that are refused on the state of a plan, each with one difference.

================================  ======================================================================
what is different                 if
================================  ======================================================================
a source's name                   (always)
an operator's name                (always)
the mode                          the plan can be built in both
alignment                         (always)
the order of the sources          there are two
an expression                     an operator has one: a condition, a joiner, a foreign key, a group
a number                          an operator has one: a history, a bound, a number of rows
how it joins                      inner or left
what an output remembers          an output is a table
a select on what waits            an output is a view of a source whose records wait for each other
================================  ======================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from tablestream.planner.physical_plan import Align
from tablestream.topology.graph import ancestors, base_of
from tablestream.topology.nodes import (
    Aggregate,
    ForeignKeyJoin,
    Join,
    Keep,
    Materialize,
    Node,
    OneToMany,
    Reorder,
    Source,
    Suppress,
    Top,
)
from tablestream.topology.streams import Merge, StreamJoin
from tests.plans.comparing import sources_of
from tests.plans.engine import Output
from tests.plans.tables import Python
from tests.simulation.plans import Case
from tests.simulation.variants import selected, waits

#: By type of operator: its number.
_NUMBERS: dict[type[Node], str] = {
    Keep: "keep_us",
    Materialize: "history_us",
    Reorder: "bound_us",
    Suppress: "until_us",
    Top: "n",
}


@dataclass(frozen=True)
class OtherPlan:
    """A plan that differs from that of a case in one thing."""

    difference: str
    outputs: tuple[Output, ...]
    compat: bool
    align: Align | None


def other_plans(case: Case, *, compat: bool) -> list[OtherPlan]:
    """Return all of them, each with nodes of its own."""
    same = OtherPlan("", case.outputs(), compat, case.align)
    mode = [replace(same, difference="the mode", compat=not compat)] if len(case.modes) > 1 else []
    align = replace(same, difference="alignment", align=Align() if case.align is None else None)
    others = [replace(same, difference=what, outputs=outputs) for what, outputs in _other_outputs(case)]
    return [*mode, align, *others]


def _other_outputs(case: Case) -> Iterator[tuple[str, tuple[Output, ...]]]:
    for what, change in _CHANGES.items():
        for number, node in enumerate(_nodes(case.outputs())):
            if change(node) is not None:
                outputs = case.outputs()
                changed = _nodes(outputs)[number]
                yield what, rebuilt(outputs, {changed: change(changed) or {}})
    if len(sources_of(_nodes(case.outputs()))) > 1:
        yield "the order of the sources", rebuilt(case.outputs(), {}, backwards=True)
    for number, output in enumerate(case.outputs()):
        if not output.node.is_stream:
            yield "what an output remembers", _with(case, number, _remembering)
        if waits(output, case):
            yield "a select on what waits", _with(case, number, selected)


def _nodes(outputs: Sequence[Output]) -> list[Node]:
    return ancestors(*(output.node for output in outputs))


def _remembering(output: Output) -> Output:
    return replace(output, before=not output.before)


def _with(case: Case, number: int, change: Callable[[Output], Output]) -> tuple[Output, ...]:
    outputs = case.outputs()
    return (*outputs[:number], change(outputs[number]), *outputs[number + 1 :])


def rebuilt(
    outputs: Sequence[Output], other: dict[Node, dict[str, Any]], *, backwards: bool = False
) -> tuple[Output, ...]:
    """Build the nodes of a plan again, some of them with other attributes.

    Parameters
    ----------
    outputs
        The outputs of the plan.
    other
        The other attributes of a node.
    backwards
        Whether its sources are declared in the other order.
    """
    nodes = _nodes(outputs)
    sources = [node for node in nodes if isinstance(node, Source)]
    made: dict[Node, Node] = {}
    for node in [*(reversed(sources) if backwards else sources), *nodes]:
        if node not in made:
            parents = {one.name: getattr(node, one.name) for one in fields(node)}
            parents = {name: made[value] for name, value in parents.items() if isinstance(value, Node)}
            made[node] = replace(node, **{**parents, **other.get(node, {})})
    return tuple(replace(output, node=made[output.node]) for output in outputs)


def _source_name(node: Node) -> dict[str, Any] | None:
    return {"name": f"{node.name}_renamed"} if isinstance(node, Source) else None


def _operator_name(node: Node) -> dict[str, Any] | None:
    is_view = isinstance(node, Source | Merge) or base_of(node) is not node
    return None if is_view else {"name": f"{node.name}_renamed"}


def _expression(node: Node) -> dict[str, Any] | None:
    if isinstance(node, ForeignKeyJoin | OneToMany | StreamJoin | Aggregate | Top):
        return {"on": tuple(_written_anew(one) for one in node.on)}
    if isinstance(node, Join):
        return {
            "select": tuple(replace(one, expression=_written_anew(one.expression)) for one in node.select)
        }
    return None


def _written_anew(expression: Any) -> Python:
    """The same function under another name."""

    def written_anew(*arguments: Any) -> Any:
        return expression.function(*arguments)

    return Python(written_anew)


def _number(node: Node) -> dict[str, Any] | None:
    name = _NUMBERS.get(type(node))
    if name is None or getattr(node, name) is None:
        return None
    return {name: getattr(node, name) + 1}


def _how(node: Node) -> dict[str, Any] | None:
    other = {"inner": "left", "left": "inner"}
    if not isinstance(node, Join) or node.complete_history or node.how not in other:
        return None
    if isinstance(node, ForeignKeyJoin) and node.right_only:
        return None
    return {"how": other[node.how]}


_CHANGES: dict[str, Callable[[Node], dict[str, Any] | None]] = {
    "a source's name": _source_name,
    "an operator's name": _operator_name,
    "an expression": _expression,
    "a number": _number,
    "how it joins": _how,
}
