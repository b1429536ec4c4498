"""Joins with the version of a row as of a time: the state has each left row with the right row that it found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tablestream.planner.result import foreign_fields, key_fields
from tablestream.provenance.described import Described, Parts
from tablestream.provenance.finding import Asked, Derived, Finding, Key
from tablestream.provenance.rules.foreign_key import NAMED, NAMING, naming, nothing_of, paired
from tablestream.provenance.steps import Step
from tablestream.provenance.walk import Walk
from tablestream.state.changes import AS_OF
from tablestream.topology.nodes import Field, ForeignKeyJoin

#: The role of the table in the state that has the right row of each left row.
FOUND = "found"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def as_of_join(node: ForeignKeyJoin, plan: Described) -> Parts:
    """Describe a join as of a time."""
    name, key = plan.plan.names[node], key_fields(node.left.key)
    pointer = {**foreign_fields(node.foreign), AS_OF: Field("as of", '"long"')}
    subscriptions = f"{name}/answer", "subscriptions", pointer | key
    return replace(
        plan.join(node),
        words=f"{node.how} join as of {node.as_of.text}" if node.as_of is not None else "",
        texts=(*(one.text for one in node.on), *([] if node.as_of is None else [node.as_of.text])),
        tables={
            NAMED: plan.trace(f"{name}/subscribe", "foreign keys", key | pointer),
            NAMING: plan.trace(*subscriptions, node.left.value, scattered=True),
            FOUND: plan.trace(*subscriptions, node.right.value, column="v1", scattered=True),
        },
    )


def follow_as_of(walk: Walk, step: Step, asked: Sequence[Asked]) -> list[Derived]:
    """The left row has the key of the result. The right row is the one that it found, which may have changed since."""
    lefts, named = naming(walk, step, step.parents[0], [one.key for one in asked])
    pairs = [(*names, *one.key) for names, one in zip(named, asked, strict=True) if names is not None]
    found = walk.kept(step, FOUND, pairs)
    derived = []
    for one, left, names in zip(asked, lefts, named, strict=True):
        right = nothing_of(walk, step.parents[1])
        if names is not None:
            rows = found[(*names, *one.key)]
            right = _version(walk, step.parents[1], names, rows[0].value.values() if rows else None)
        derived.append(paired(step, one, left, right, None if names is None else names[:-1]))
    return derived


def _version(walk: Walk, name: str, names: Key, values: Any) -> Finding:
    """The version of a right row that was found; `names`: its key, and the time; without `values` none was found."""
    step, (*key, time_us) = walk.lineage.steps[name], names
    below = step
    while below.parents and walk.title(below.parents[0]) == step.title:
        below = walk.lineage.steps[below.parents[0]]
    try:
        time = str(_EPOCH + timedelta(microseconds=time_us))
    except OverflowError:  # Spark's times go further
        time = f"{time_us} microseconds since 1970"
    note = (
        f"As of {time}."
        if values is not None
        else f"As of {time} it has no row, or none that is still known."
    )
    return Finding(
        step.title,
        below.words,
        {one.name: value for one, value in zip(step.key, key, strict=True)},
        there=values is not None,
        row=dict(zip((one.name for one in step.value), values or (), strict=False)),
        notes=(note,),
    )
