"""Rows that stand beside all others with the same values: window functions, and joins on values that are no key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tablestream.planner.result import foreign_fields, key_fields
from tablestream.provenance.described import Described, Parts
from tablestream.provenance.finding import Asked, Derived, Finding, Key, Seen
from tablestream.provenance.rules.foreign_key import said
from tablestream.provenance.rules.key_join import joined
from tablestream.provenance.steps import Step
from tablestream.provenance.walk import Row, Walk, same
from tablestream.topology.nodes import ManyToMany, Named
from tablestream.topology.over import Over

#: The roles of tables in the state: rows by their partition, and the rows of each side of a join by their values.
PARTITIONS, SIDES = "partitions", ("left rows", "right rows")


def windows(node: Over, plan: Described) -> Parts:
    """Describe window functions."""
    columns = foreign_fields(node.foreign) | key_fields(node.key)
    rows = plan.trace(f"{plan.plan.names[node]}/over", "partition rows", columns, node.input_fields)
    return Parts(
        "window functions",
        (node.parent,),
        texts=tuple(one.text for one in node.on),
        inputs=plan.columns(node.inputs),
        tables={PARTITIONS: rows},
    )


def follow_windows(walk: Walk, step: Step, asked: Sequence[Asked]) -> list[Derived]:
    """A row was made of the row below with its key, and of the others of its partition."""
    width = len(step.texts)
    known = walk.kept(step, PARTITIONS, [one.key for one in asked], first=width)
    return [_window(walk, step, next(iter(known[one.key]), None), width) for one in asked]


def _window(walk: Walk, step: Step, row: Row | None, width: int) -> Derived:
    (name,) = step.parents
    if row is None:
        return Derived(False, notes=(f"{walk.title(name)} has no row with this key.",))
    group = row.key[:width]
    rows = walk.kept(step, PARTITIONS, [group], limit=walk.limit + 1)[group]
    others = [one for one in rows if not same(one.key, row.key)]
    shown = [row, *others[: walk.limit - 1]]
    more = len(others) >= len(shown)
    notes = (f"Its partition has more rows; {len(shown)} are shown.",) if more else ()
    made_of = walk.find(name, [Asked(one.key[width:], _remembered(step, one)) for one in shown])
    return Derived(True, made_of[0].row, notes, tuple(made_of))


def _remembered(step: Step, row: Row) -> Seen:
    values = zip(step.inputs, row.value.values(), strict=True)
    return Seen(True, {one.copied: value for one, value in values if one.copied is not None})


def many_to_many(node: ManyToMany, plan: Described) -> Parts:
    """Describe a join on values that are no key of either table."""
    values, name = foreign_fields(node.foreign), f"{plan.plan.names[node]}/pairs"
    tables = {
        role: plan.trace(name, role, values | key_fields(side.key), side.value)
        for role, side in zip(SIDES, node.parents, strict=True)
    }
    return replace(
        plan.join(node),
        texts=tuple(", ".join(one.text for one in on) for on in node.parents_on),
        inputs=plan.columns([Named(one.name, on) for one, on in zip(node.foreign, node.on, strict=True)]),
        tables=tables,
    )


def follow_many_to_many(walk: Walk, step: Step, asked: Sequence[Asked]) -> list[Derived]:
    """The key is that of a left row and then that of a right row, which have the same values."""
    at, width = len(walk.lineage.steps[step.parents[0]].key), len(step.inputs)
    sides = []
    for number, part in enumerate((slice(at), slice(at, None))):
        keys = [one.key[part] for one in asked]
        known = walk.kept(step, SIDES[number], keys, first=width)
        rows = [next(iter(known[key]), None) for key in keys]
        columns = [one.name for one in walk.lineage.steps[step.parents[number]].value]
        seen = [Asked(key, _seen(row, columns)) for key, row in zip(keys, rows, strict=True)]
        found = walk.find(step.parents[number], seen)
        sides.append([(row and row.key[:width], one) for row, one in zip(rows, found, strict=True)])
    return [_pair(step, one, *pair) for one, *pair in zip(asked, *sides, strict=True)]


def _seen(row: Row | None, columns: Sequence[str]) -> Seen | None:
    return None if row is None else Seen(True, dict(zip(columns, row.value.values(), strict=False)))


_Side = tuple[Key | None, Finding]


def _pair(step: Step, asked: Asked, left: _Side, right: _Side) -> Derived:
    made_of = (left[1], right[1])
    if left[0] is not None and right[0] is not None and same(left[0], right[0]):
        return joined(step, asked, made_of)
    notes = tuple(
        f"{one.table} has no row with this key, or a null in {text}."
        if values is None
        else f"{one.table} {said(one.key.values())} has {said(values)}: {text}."
        for (values, one), text in zip((left, right), step.texts, strict=True)
    )
    return Derived(False, notes=notes, made_of=made_of)
