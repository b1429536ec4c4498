"""Joins of many rows to the one that they name by its key, and the same joins seen from the one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tablestream.planner.catalogue import StoredTable
from tablestream.planner.result import foreign_fields, key_fields
from tablestream.provenance.described import Described, Parts
from tablestream.provenance.finding import Asked, Derived, Finding, Key, Seen
from tablestream.provenance.rules.key_join import LOOKUP, joined, missing
from tablestream.provenance.rules.views import copies
from tablestream.provenance.steps import Column, Step
from tablestream.provenance.walk import Walk, same
from tablestream.topology.nodes import ForeignKeyJoin, Node, OneToMany, Select

#: The roles of tables in the state: which row each row names, and the rows that name one.
NAMED, NAMING = "named", "naming"


def foreign_key_join(node: ForeignKeyJoin, plan: Described) -> Parts:
    """Describe a join by a foreign key; of a star join's table, the row that is looked up."""
    if node.right_only:
        return _lookup(node, plan)
    texts = tuple(one.text for one in node.on)
    return replace(plan.join(node), texts=texts, tables=_tables(node, node.left, plan))


def _lookup(node: ForeignKeyJoin, plan: Described) -> Parts:
    """Describe a table of a star join: the row that a row of the center names."""
    pointer, texts, right = node.left, tuple(one.text for one in node.on), node.right
    center, names = pointer, [one.name for one in right.value]
    if isinstance(pointer, Select):  # the foreign key as columns
        center, texts = pointer.parent, tuple(one.expression.text for one in pointer.columns)
    if node.looked_up is not right:
        right = node.looked_up
        names = [one.name for one in (*right.key, *right.value)]
    return Parts(
        LOOKUP,
        (center, right),
        texts=texts,
        columns=tuple(Column(one.name, name, 1, name) for one, name in zip(node.value, names, strict=True)),
        tables={NAMED: _tables(node, pointer, plan)[NAMED]},  # the rows of the center are elsewhere
    )


def one_to_many(node: OneToMany, plan: Described) -> Parts:
    """Describe the join seen from the one."""
    texts = tuple(one.text for one in node.on)
    return replace(plan.join(node), texts=texts, tables=_tables(node, node.right, plan))


def _tables(node: ForeignKeyJoin | OneToMany, many: Node, plan: Described) -> dict[str, StoredTable]:
    name = plan.plan.names[node]
    first, second = f"{name}/subscribe", f"{name}/answer"
    scattered = isinstance(node, ForeignKeyJoin) and (node.copied or node.spread is not None)
    if isinstance(node, ForeignKeyJoin) and node.copied:
        first = second = name
    key, foreign = key_fields(many.key), foreign_fields(node.foreign)
    return {
        NAMED: plan.trace(first, "foreign keys", key | foreign),
        NAMING: plan.trace(second, "subscriptions", foreign | key, many.value, scattered=scattered),
    }


def follow_foreign_key(walk: Walk, step: Step, asked: Sequence[Asked]) -> list[Derived]:
    """The left row has the key of the result, and names the right row.

    Right and outer joins have the right key behind the left one. It is null, except in rows that nothing names.
    """
    width = len(walk.lineage.steps[step.parents[0]].key)
    lefts = [n for n, one in enumerate(asked) if _is_null(one.key[width:])]
    found = dict(zip(lefts, _of_left(walk, step, [asked[n] for n in lefts], width), strict=True))
    alone = [n for n, one in enumerate(asked) if len(one.key) > width and _is_null(one.key[:width])]
    alone = [n for n in alone if n not in found or not found[n].there]  # a group's key may be null
    right = [asked[n].key[width:] for n in alone]
    found |= dict(zip(alone, _alone(walk, step, right, 1), strict=True))
    nothing = Derived(
        False, notes=("A row has the key of a left row, or that of a right row that nothing names.",)
    )
    return [found.get(n, nothing) for n in range(len(asked))]


def _is_null(key: Key) -> bool:
    return all(part is None for part in key)


def _of_left(walk: Walk, step: Step, asked: Sequence[Asked], width: int) -> list[Derived]:
    """Results of left rows."""
    lefts, named = naming(walk, step, step.parents[0], [one.key[:width] for one in asked])
    pointing = list(dict.fromkeys(key for key in named if key is not None))
    rights = dict(zip(pointing, walk.find(step.parents[1], [Asked(key) for key in pointing]), strict=True))
    nothing = nothing_of(walk, step.parents[1])
    return [
        paired(step, one, left, nothing if key is None else rights[key], key)
        for one, left, key in zip(asked, lefts, named, strict=True)
    ]


def paired(step: Step, asked: Asked, left: Finding, right: Finding, key: Key | None) -> Derived:
    """The result of a left row, and of the row that it names."""
    kept = replace(step, how="left" if step.how in {"left", "outer"} else "inner")
    derived = joined(kept, asked, (left, right))
    notes: tuple[str, ...] = ()
    if left.there is False:
        notes = (f"{left.table} has no row with this key.",)
    elif left.there is None:
        notes = (f"The state does not tell whether {left.table} has a row with this key.",)
    elif right.there is None:
        notes = (f"{_names(step, left, right, key)}; the state does not tell whether that has a row.",)
    elif not right.there:
        notes = (f"{_names(step, left, right, key)}{f'; the join is {step.how}.' if step.how else ''}",)
    elif derived.there is not True:
        notes = derived.notes
    made_of = tuple(one for one in (left, right) if one.key)
    return Derived(derived.there, copies(step, left, right), notes, made_of)


def _names(step: Step, left: Finding, right: Finding, key: Key | None) -> str:
    """Say which row a left row names."""
    row = f"{left.table} {said(left.key.values())}"
    if key is None:
        return f"{row} names no row of {right.table}: {' or '.join(step.texts)} is null"
    lacks = "" if right.there is not False else ", which has no row"
    return f"{row} names {right.table} {said(key)}{lacks}"


def said(key: Any) -> str:
    """A key in a sentence."""
    parts = ["null" if one is None else str(one) for one in key]
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


def nothing_of(walk: Walk, name: str) -> Finding:
    """No row of a table, of which no key is known."""
    step = walk.lineage.steps[name]
    return Finding(step.title, step.words, {}, there=False)


def naming(walk: Walk, step: Step, many: str, keys: Sequence[Key]) -> tuple[list[Finding], list[Key | None]]:
    """Find the rows that name others by their keys, and the key that each names; None: it names none."""
    width = len(keys[0]) if keys else 0
    known = walk.kept(step, NAMED, keys)
    rows = [next(iter(known[key]), None) for key in keys]
    named = [None if row is None or None in row.key[width:] else row.key[width:] for row in rows]
    pairs = [(*names, *key) for names, key in zip(named, keys, strict=True) if names is not None]
    columns = [one.name for one in walk.lineage.steps[many].value]
    whole = {
        pair: dict(zip(columns, row.value.values(), strict=False))
        for pair, found in walk.kept(step, NAMING, pairs).items()
        for row in found
    }
    seen = [
        Asked(key, Seen(row is not None, whole.get((*(names or ()), *key), {})))
        for key, names, row in zip(keys, named, rows, strict=True)
    ]
    return walk.find(many, seen), named


def _alone(walk: Walk, step: Step, keys: Sequence[Key], side: int) -> list[Derived]:
    """Results of rows that nothing names."""
    naming = walk.kept(step, NAMING, keys)
    many = nothing_of(walk, step.parents[1 - side])
    found = []
    for key, one in zip(keys, walk.find(step.parents[side], [Asked(key) for key in keys]), strict=True):
        there, notes = one.there, (f"{one.table} has no row with this key.",) if one.there is False else ()
        if one.there and naming[key]:
            there = False
            notes = (f"{one.table} {said(key)} has matches, such as {said(naming[key][0].key[len(key) :])}.",)
        sides = (one, many) if side == 0 else (many, one)
        found.append(Derived(there, copies(step, *sides), notes, (one,)))
    return found


def follow_one_to_many(walk: Walk, step: Step, asked: Sequence[Asked]) -> list[Derived]:
    """The key has the key of the one, then that of the many; of a row of the one without the many, nulls."""
    one_name, many_name = step.parents
    width = len(walk.lineage.steps[one_name].key)
    manys, named = naming(walk, step, many_name, [one.key[width:] for one in asked])
    ones = walk.find(one_name, [Asked(one.key[:width]) for one in asked])
    found = [
        _one_of_many(step, given, one, many, key, width)
        for given, one, many, key in zip(asked, ones, manys, named, strict=True)
    ]
    alone = [n for n, one in enumerate(asked) if _is_null(one.key[width:])]
    alone = [n for n in alone if not found[n].there]  # a group's key may be null
    given = [asked[n].key[:width] for n in alone]
    nothing = Derived(False, notes=("A row of an inner join names both.",))
    others = _alone(walk, step, given, 0) if step.how == "left" else [nothing] * len(alone)
    for n, derived in zip(alone, others, strict=True):
        found[n] = derived
    return found


def _one_of_many(
    step: Step, asked: Asked, one: Finding, many: Finding, key: Key | None, width: int
) -> Derived:
    """The result of a row of the one and a row of the many."""
    inner = replace(step, how="inner")
    notes = [note for side in (one, many) for note in missing(inner, side)]
    derived = joined(inner, asked, (one, many), notes)
    if many.there and (key is None or not same(key, asked.key[:width])):
        return Derived(False, {}, (f"{_names(step, many, replace(one, there=None), key)}.",), (one, many))
    return derived
