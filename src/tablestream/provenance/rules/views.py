"""Sources, selects and filters: their rows have the key of the row below."""

from __future__ import annotations

from collections.abc import Sequence

from tablestream.provenance.described import Described, Parts
from tablestream.provenance.finding import Asked, Derived, Finding, Seen
from tablestream.provenance.steps import Step
from tablestream.provenance.walk import Walk
from tablestream.topology.nodes import Filter, Select, Source


def source(node: Source, plan: Described) -> Parts:
    """Describe a source."""
    del plan
    return Parts("stream" if node.records else "source")


def follow_source(walk: Walk, step: Step, asked: Sequence[Asked]) -> list[Derived]:
    """A source is where rows come from."""
    del walk
    unknown = (f"The state does not keep the rows of {step.title}.",)
    return [Derived(None, notes=() if one.seen is not None else unknown) for one in asked]


def select(node: Select, plan: Described) -> Parts:
    """Describe a table with other columns."""
    deletes, _ = plan.deleting(node.delete_when)
    return Parts("select", (node.parent,), columns=plan.columns(node.columns), deletes=deletes)


def follow_select(walk: Walk, step: Step, asked: Sequence[Asked]) -> list[Derived]:
    """A row is there if the one below is, and no expression deletes it."""
    (below,) = walk.parents(step, [Asked(one.key, _unselected(step, one.seen)) for one in asked])
    return [_selected(step, one, row) for one, row in zip(asked, below, strict=True)]


def _unselected(step: Step, seen: Seen | None) -> Seen | None:
    """What is known of the row below: it is there if this one is, with the columns that were taken as they are."""
    if seen is None or not seen.there:
        return None
    row = {
        one.copied: seen.row[one.name]
        for one in step.columns
        if one.copied is not None and one.name in seen.row
    }
    return Seen(True, row, seen.at)


def _selected(step: Step, asked: Asked, below: Finding) -> Derived:
    notes = lacking(below)
    there = below.there
    if there and step.deletes:
        there, notes = None, unclear(asked, f"{step.title} deletes it where {step.deletes}")
    return Derived(there, copies(step, below), notes, (below,))


def filtered(node: Filter, plan: Described) -> Parts:
    """Describe a filter."""
    del plan
    text = f"not ({node.condition.text})" if node.negate else node.condition.text
    return Parts("filter", (node.parent,), texts=(text,))


def follow_filter(walk: Walk, step: Step, asked: Sequence[Asked]) -> list[Derived]:
    """A row is there if the one below is, and the condition holds."""
    seen = [one.seen if one.seen is not None and one.seen.there else None for one in asked]
    (below,) = walk.parents(step, [Asked(one.key, row) for one, row in zip(asked, seen, strict=True)])
    return [_filtered(step, one, row) for one, row in zip(asked, below, strict=True)]


def _filtered(step: Step, asked: Asked, below: Finding) -> Derived:
    condition = f"{step.title} keeps the rows where {step.texts[0]}"
    there = None if below.there else below.there
    notes = lacking(below)
    if below.there:
        notes = unclear(asked, condition)
    elif below.there is None and asked.seen is not None and not asked.seen.there:
        notes = (f"{below.table} has no such row, or it is filtered out: {condition}.",)
    return Derived(there, below.row, notes, (below,))


def lacking(below: Finding) -> tuple[str, ...]:
    """Say that there is no row below."""
    return (f"{below.table} has no row with this key.",) if below.there is False else ()


def unclear(asked: Asked, rule: str) -> tuple[str, ...]:
    """Say what an expression decided, where the row below is there."""
    if asked.seen is None:
        return (f"{rule}; the state does not tell whether that holds for this row.",)
    return () if asked.seen.there else (f"The row is left out: {rule}.",)


def copies(step: Step, *below: Finding) -> dict[str, object]:
    """The columns that are taken from the inputs as they are; those of an input without a row are null."""
    found: dict[str, object] = {}
    for one in step.columns:
        given = below[one.side] if one.copied is not None else None
        if given is not None and given.there is False:
            found[one.name] = None
        elif given is not None and one.copied in given.columns:
            found[one.name] = given.columns[one.copied]
    return found
