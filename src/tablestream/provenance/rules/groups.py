"""Groups of a table's rows, and the first rows of groups."""

from __future__ import annotations

from collections.abc import Sequence

from tablestream.planner.result import foreign_fields, key_fields
from tablestream.provenance.described import Described, Parts
from tablestream.provenance.finding import Asked, Derived, Finding, Key, Seen
from tablestream.provenance.rules.foreign_key import said
from tablestream.provenance.steps import Step
from tablestream.provenance.walk import Row, Walk, same
from tablestream.topology.nodes import Aggregate, Named, Top

#: The role of the table in the state with the rows of all groups.
MEMBERS = "members"


def groups(node: Aggregate | Top, plan: Described) -> Parts:
    """Describe groups. The records of a stream are not kept."""
    words = "first rows of groups" if isinstance(node, Top) else "groups"
    on = tuple(one.text for one in node.on)
    if node.parent.is_stream:
        return Parts("groups of records", (node.parent,), texts=on)
    name = f"{plan.plan.names[node]}/regroup"
    columns = key_fields(node.parent.key) | foreign_fields(node.foreign)
    members = plan.trace(name, "grouped rows", columns, node.input_fields)
    group = (Named("group", expression) for expression in node.on)
    inputs = plan.columns((*node.inputs, *group))
    return Parts(words, (node.parent,), texts=on, inputs=inputs, tables={MEMBERS: members})


def follow_groups(walk: Walk, step: Step, asked: Sequence[Asked]) -> list[Derived]:
    """A group is there if a row belongs to it, and was made of all of these."""
    if MEMBERS not in step.tables:
        return [
            Derived(
                None, notes=(f"It was made of records of {walk.title(step.parents[0])}, which are not kept.",)
            )
            for _ in asked
        ]
    return [_group(walk, step, one) for one in asked]


def _group(walk: Walk, step: Step, asked: Asked) -> Derived:
    rows = members(walk, step, asked.key, walk.limit + 1)
    made_of = _followed(walk, step, rows[: walk.limit])
    notes: tuple[str, ...] = ()
    if not rows:
        table = walk.title(step.parents[0])
        parts = [f"{text} = {said((part,))}" for text, part in zip(step.texts, asked.key, strict=False)]
        notes = (f"No row of {table} has {' and '.join(parts)}." if parts else f"{table} has no rows.",)
    elif len(rows) > walk.limit:
        notes = (f"The group has more rows; the first {walk.limit} that were found are shown.",)
    return Derived(bool(rows), notes=notes, made_of=made_of)


def follow_top(walk: Walk, step: Step, asked: Sequence[Asked]) -> list[Derived]:
    """A rank shows a row of its group: those with the same values, several if rows tie."""
    return [_rank(walk, step, one) for one in asked]


def _rank(walk: Walk, step: Step, asked: Asked) -> Derived:
    ranked = len(step.key) > len(step.texts)
    group = asked.key[:-1] if ranked else asked.key
    rows = members(walk, step, group, None)
    if asked.seen is None or not asked.seen.there:
        word = "row" if len(rows) == 1 else "rows"
        notes = (f"The group {said(group)} has {len(rows)} {word}.",)
        return Derived(False, notes=notes, made_of=_followed(walk, step, rows[: walk.limit]))
    shown = [one for one in rows if _has(one, asked.seen)]
    tied: tuple[str, ...] = () if len(shown) == 1 else ("Several rows of the group have these values.",)
    return Derived(True, notes=tied, made_of=_followed(walk, step, shown[: walk.limit]))


def _has(row: Row, seen: Seen) -> bool:
    """Whether a row has the values that are shown: the first things that are remembered of it."""
    shown = tuple(seen.row.values())
    return same(shown, tuple(row.value.values())[: len(shown)])


def members(walk: Walk, step: Step, group: Key, limit: int | None) -> list[Row]:
    """The rows of a group: their keys with the group behind them, and what is remembered of them."""
    width = len(walk.lineage.steps[step.parents[0]].key)
    return walk.kept(step, MEMBERS, [group], first=width, limit=limit)[group]


def _followed(walk: Walk, step: Step, rows: Sequence[Row]) -> tuple[Finding, ...]:
    (name,) = step.parents
    width = len(walk.lineage.steps[name].key)
    return tuple(walk.find(name, [Asked(row.key[:width], _member(step, row, width)) for row in rows]))


def _member(step: Step, row: Row, width: int) -> Seen:
    """What is known of a row of a group: the columns that are remembered as they are."""
    remembered = zip(step.inputs, (*row.value.values(), *row.key[width:]), strict=True)
    return Seen(True, {one.copied: value for one, value in remembered if one.copied is not None})
