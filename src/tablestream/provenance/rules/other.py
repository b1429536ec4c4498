"""Steps whose rows have the key of the row below, and steps that are not followed."""

from __future__ import annotations

from collections.abc import Sequence

from tablestream.provenance.described import Described, Parts
from tablestream.provenance.finding import Asked, Derived, Finding
from tablestream.provenance.rules.views import lacking
from tablestream.provenance.steps import Step
from tablestream.provenance.walk import Walk
from tablestream.topology.nodes import Node, Suppress


def same_row(node: Node, plan: Described) -> Parts:
    """Describe a table that is stored, buffered, sorted or freed of duplicates."""
    del plan
    return Parts(_words(node), node.parents[:1])


def not_followed(node: Node, plan: Described) -> Parts:
    """Describe a step for which there is no rule yet."""
    del plan
    return Parts(_words(node), node.parents)


def _words(node: Node) -> str:
    """The kind of a node in words."""
    name = type(node).__name__
    return "".join(f" {one.lower()}" if one.isupper() else one for one in name).strip()


def follow_same_row(walk: Walk, step: Step, asked: Sequence[Asked]) -> list[Derived]:
    """The row below has the same key. Of a table in the state it is known whether there is a row; else it may wait."""
    (name,) = step.parents
    certain = step.kind != Suppress.__name__
    seen = [one.seen if certain and one.seen is not None and one.seen.there else None for one in asked]
    below = walk.find(name, [Asked(one.key, row) for one, row in zip(asked, seen, strict=True)])
    return [_same(step, one, row) for one, row in zip(asked, below, strict=True)]


def _same(step: Step, asked: Asked, below: Finding) -> Derived:
    made_of = below.made_of if below.table == step.title else (below,)
    if below.table == step.title and below.what == "source":
        made_of = (below,)
    if asked.seen is None:
        notes = (
            f"{step.title} ({step.words}) may hold a change back, or have removed the row: this is not known.",
        )
        return Derived(None, below.row, notes, made_of)
    return Derived(below.there, below.row, lacking(below), made_of)


def follow_nothing(walk: Walk, step: Step, asked: Sequence[Asked]) -> list[Derived]:
    """Say that a step is not followed, and what it reads."""
    reads = ", ".join(dict.fromkeys(walk.title(name) for name in step.parents))
    note = f"Not followed: {step.title} ({step.words}). It reads {reads or 'nothing'}."
    return [Derived(None, notes=(note,)) for _ in asked]
