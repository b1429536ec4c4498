"""Steps whose rows have the key of the row below, and steps that are not followed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from tablestream.planner.result import key_fields
from tablestream.provenance.described import Described, Parts
from tablestream.provenance.finding import Asked, Derived, Finding, Seen
from tablestream.provenance.rules.views import lacking
from tablestream.provenance.steps import Step
from tablestream.provenance.walk import Walk
from tablestream.topology.nodes import Keep, Node, Suppress

#: The role of the table in the state that has the keys of the rows that are not forgotten.
KEPT = "kept"


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


def keep(node: Keep, plan: Described) -> Parts:
    """Describe a table that forgets rows: the state has the keys of those that are there."""
    too_old = f"older than the newest row by more than {_length(node.keep_us)}"
    if node.wall_clock_us is not None:
        too_old += f", or unchanged for {_length(node.wall_clock_us)} on the clock"
    times = plan.trace(plan.plan.names[node], "rows", key_fields(node.key))
    return Parts(f"keep {_length(node.keep_us)}", node.parents, texts=(too_old,), tables={KEPT: times})


def _length(length_us: int) -> str:
    return str(timedelta(microseconds=length_us)).removesuffix(", 0:00:00")


def follow_keep(walk: Walk, step: Step, asked: Sequence[Asked]) -> list[Derived]:
    """The row below has the same key. One whose key is not in the state was too old, or was never there."""
    kept = walk.kept(step, KEPT, [one.key for one in asked])
    seen = [one.seen or Seen(bool(kept[one.key])) for one in asked]
    below = walk.find(
        step.parents[0],
        [Asked(one.key, row if row.there else None) for one, row in zip(asked, seen, strict=True)],
    )
    return [_forgotten(step, row, one) for row, one in zip(seen, below, strict=True)]


def _forgotten(step: Step, seen: Seen, below: Finding) -> Derived:
    notes = lacking(below)
    if not seen.there and not notes:
        never = "" if below.there else f"{below.table} has none, or "
        notes = (f"{step.title} has no row with this key: {never}it was {step.texts[0]}.",)
    return Derived(seen.there, below.row, notes, _made_of(step, below))


def _made_of(step: Step, below: Finding) -> tuple[Finding, ...]:
    """The row below; what that was made of if both have one name."""
    return below.made_of if below.table == step.title and below.what != "source" else (below,)


def _same(step: Step, asked: Asked, below: Finding) -> Derived:
    made_of = _made_of(step, below)
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
