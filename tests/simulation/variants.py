"""Other outputs that a query may go on with: no state depends on them.

=====================================  ==================================================================
variant                                is there if
=====================================  ==================================================================
the outputs of the plan                (always, the first)
each output behind a select            an output has no state of its own
one output more, of the table under    the same
the selects and filters of another
one output more, of a source           its records do not wait for each other
only the last change of each key       the only output is of an operator that can leave the others out
without the first output               it has no state of its own, and another one is made of it
=====================================  ==================================================================

An output has state of its own if it remembers its rows. So does one that is a view of a source whose records wait for
each other: they wait as that view computed them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tablestream.topology.graph import ancestors, base_of, history_of, is_filtered
from tablestream.topology.nodes import (
    Aggregate,
    ForeignKeyJoin,
    KeyJoin,
    Node,
    Select,
    Source,
    Top,
)
from tablestream.topology.streams import Merge
from tests.plans.comparing import sources_of
from tests.plans.engine import Output
from tests.plans.tables import mapped
from tests.simulation.plans import Case


@dataclass(frozen=True)
class Variant:
    """Outputs of a query, each with the place that it is written to."""

    name: str
    outputs: tuple[Output, ...]
    targets: tuple[str, ...]


def variants(case: Case) -> list[Variant]:
    """Return all variants of a plan, each with nodes of its own."""
    return list(_variants(case))


def _variants(case: Case) -> Iterator[Variant]:
    outputs = case.outputs()
    targets = tuple(f"memory {number}" for number in range(len(outputs)))
    yield Variant("as at first", outputs, targets)
    free = [number for number, output in enumerate(outputs) if _has_no_state(output, case)]
    if free:
        behind = case.outputs()
        yield Variant(
            "behind a select",
            tuple(selected(one) if number in free else one for number, one in enumerate(behind)),
            targets,
        )
        more = case.outputs()
        below = Output(base_of(more[free[0]].node))
        yield Variant("one more", (*more, below), (*targets, "memory of one more"))
    if case.align is None:
        more = case.outputs()
        (first, *_) = sources_of([output.node for output in more])
        yield Variant("a source as well", (*more, Output(first)), (*targets, "memory of a source"))
    if len(outputs) == 1 and _can_be_final(outputs[0].node):
        (one,) = case.outputs()
        yield Variant("the last changes", (replace(one, final=True),), targets)
    if 0 in free and _is_made_of(outputs[1:], outputs[0].node) and not _remembers(outputs[1:]):
        yield Variant("without the first", case.outputs()[1:], targets[1:])


def _has_no_state(output: Output, case: Case) -> bool:
    """Whether an output is a view of what an operator emits, and of every change of it."""
    return not (waits(output, case) or output.final or _remembers([output]))


def waits(output: Output, case: Case) -> bool:
    """Whether an output is a view of a source whose records wait for each other."""
    is_read = case.align is not None and isinstance(base_of(output.node), Source | Merge)
    return is_read and not (output.final or _remembers([output]))


def _remembers(outputs: Sequence[Output]) -> bool:
    """Whether one of some outputs remembers its rows."""
    return any(
        output.before
        or output.minimal
        or (is_filtered(output.node) and not output.node.is_stream and history_of(output.node) is None)
        for output in outputs
    )


def selected(output: Output) -> Output:
    """Put an output behind a select."""
    return replace(output, node=mapped(output.node, _marked, total=True))


def _marked(value: object) -> str:
    return f"{value}!"


def _can_be_final(node: Node) -> bool:
    """Whether an operator can leave out all but the last change of each key itself."""
    base = base_of(node)
    if is_filtered(node) or any(isinstance(one, Select) and one.delete_when for one in ancestors(node)):
        return False
    if isinstance(base, KeyJoin):
        return not base.complete_history
    if isinstance(base, ForeignKeyJoin):
        return base.how == "left" and not base.complete_history
    return isinstance(base, Aggregate | Top)


def _is_made_of(outputs: Sequence[Output], node: Node) -> bool:
    return any(node in ancestors(output.node) for output in outputs)
