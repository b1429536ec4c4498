"""Joins of two tables on their key, also as part of one operator with others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tablestream.provenance.described import Described, Parts
from tablestream.provenance.finding import Asked, Derived, Finding
from tablestream.provenance.rules.views import copies, unclear
from tablestream.provenance.steps import ROWS, Step
from tablestream.provenance.walk import Walk
from tablestream.topology.nodes import ForeignKeyJoin, KeyJoin

#: What the row is called that a star join looks up for a row of its center.
LOOKUP = "lookup"
_NULL = "A key with a null has no match: a null equals nothing."


def key_join(node: KeyJoin | ForeignKeyJoin, plan: Described) -> Parts:
    """Describe a join on the key, or one whose foreign key is the whole key."""
    compat = plan.plan.options.compat
    meets = isinstance(node, KeyJoin) and (compat or node.how == "outer" or node.own_times)
    return replace(plan.join(node), meets_nulls=meets)


def follow_key_join(walk: Walk, step: Step, asked: Sequence[Asked]) -> list[Derived]:
    """Both rows have the key of the result."""
    keys = [Asked(one.key) for one in asked]
    sides = walk.parents(step, keys, keys)
    return [_of_key(walk, step, one, pair) for one, *pair in zip(asked, *sides, strict=True)]


def _of_key(walk: Walk, step: Step, asked: Asked, pair: Sequence[Finding]) -> Derived:
    left, right = pair
    if None in asked.key and not step.meets_nulls:
        return _of_null(step, asked, left, right)
    notes = [
        note
        for name, side in zip(step.parents, pair, strict=True)
        for note in (side.notes if _is_part(walk, step, name) else missing(step, side))
    ]
    derived = joined(step, asked, (left, right), notes)
    return replace(derived, made_of=_flat(walk, step, pair))


def _of_null(step: Step, asked: Asked, left: Finding, right: Finding) -> Derived:
    """Under a key with a null, the side that a join does not keep has no match: a null equals nothing."""
    nothing = Finding("", "", {}, there=False)
    if step.how == "inner":
        return Derived(False, notes=(_NULL,), made_of=(left, right))
    pair = (left, nothing) if step.how == "left" else (nothing, right)
    return replace(joined(step, asked, pair, [_NULL]), made_of=tuple(one for one in pair if one.table))


def joined(step: Step, asked: Asked, pair: tuple[Finding, Finding], notes: Sequence[str] = ()) -> Derived:
    """The row of a join of two rows, by its kind. `notes`: what is said of these rows."""
    left, right = pair
    there = {
        "inner": both(left.there, right.there),
        "left": left.there,
        "right": right.there,
        "outer": either(left.there, right.there),
    }[step.how]
    if there and step.unless is not None:
        there = None if pair[step.unless].there is None else not pair[step.unless].there
        notes = _left_out(step, pair[step.unless])
    elif there and step.deletes:
        there = None
        notes = (*notes, *unclear(asked, f"{step.title} deletes it where {step.deletes}"))
    return Derived(there, copies(step, left, right), tuple(notes), pair)


def both(left: bool | None, right: bool | None) -> bool | None:
    """Whether both are there, if that is known."""
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def either(left: bool | None, right: bool | None) -> bool | None:
    """Whether one of both is there, if that is known."""
    if left or right:
        return True
    return None if left is None or right is None else False


def missing(step: Step, side: Finding) -> list[str]:
    """What is said of a side without a row."""
    if side.there is None:
        return [f"The state does not tell whether {side.table} has a row with this key."]
    if side.there:
        return []
    if side.what == LOOKUP:
        return [f"{note}; the join is {step.how}." for note in side.notes]
    return [f"{side.table} has no row with this key; the join is {step.how}."]


def _left_out(step: Step, side: Finding) -> list[str]:
    """What is said of a join that keeps the rows without a match."""
    return [f"{side.table} has a matching row: {step.title} keeps rows that have none."] if side.there else []


def _is_part(walk: Walk, step: Step, name: str) -> bool:
    """Whether a side is a join that is part of the same operator."""
    inner = walk.lineage.steps[name]
    return inner.kind == step.kind and ROWS not in inner.tables


def _flat(walk: Walk, step: Step, pair: Sequence[Finding]) -> tuple[Finding, ...]:
    """The rows of a join of joins on one key stand side by side: they are one operator's. So do those of a star."""
    found: list[Finding] = []
    for name, one in zip(step.parents, pair, strict=True):
        if one.what == LOOKUP:
            found += one.made_of[1:]  # the center is there already
        else:
            found += one.made_of if _is_part(walk, step, name) else [one]
    return tuple(found)
