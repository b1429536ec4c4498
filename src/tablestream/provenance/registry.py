"""The rules: by the class of a node how it is described, and by the kind of a step how it is followed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tablestream.planner.catalogue import StoredTable
from tablestream.planner.physical_plan import PhysicalPlan
from tablestream.provenance.described import Copied, Described, NotPlacedError, Parts
from tablestream.provenance.rules.as_of import as_of_join, follow_as_of
from tablestream.provenance.rules.foreign_key import (
    follow_foreign_key,
    follow_one_to_many,
    foreign_key_join,
    one_to_many,
)
from tablestream.provenance.rules.groups import follow_groups, follow_top, groups
from tablestream.provenance.rules.key_join import follow_key_join, key_join
from tablestream.provenance.rules.other import (
    follow_keep,
    follow_nothing,
    follow_same_row,
    keep,
    not_followed,
    same_row,
)
from tablestream.provenance.rules.partitions import (
    follow_many_to_many,
    follow_windows,
    many_to_many,
    windows,
)
from tablestream.provenance.rules.views import (
    filtered,
    follow_filter,
    follow_select,
    follow_source,
    select,
    source,
)
from tablestream.provenance.steps import ROWS, Lineage, Step
from tablestream.provenance.walk import Follow
from tablestream.topology.graph import named_as
from tablestream.topology.needed import sides_named
from tablestream.topology.nodes import (
    Aggregate,
    Captured,
    Deduplicate,
    Filter,
    ForeignKeyJoin,
    Join,
    Keep,
    KeyJoin,
    ManyToMany,
    Materialize,
    Node,
    OneToMany,
    Reorder,
    Select,
    SequenceBy,
    Source,
    Suppress,
    Top,
)
from tablestream.topology.over import Over

Describe = Callable[[Any, Described], Parts]

#: The kind of the step of a join as of a time.
AS_OF = "as of"
#: By the kind of a step, which is mostly the name of a node's class.
RULES: Mapping[str, tuple[Describe, Follow]] = {
    Source.__name__: (source, follow_source),
    Select.__name__: (select, follow_select),
    Filter.__name__: (filtered, follow_filter),
    KeyJoin.__name__: (key_join, follow_key_join),
    ForeignKeyJoin.__name__: (foreign_key_join, follow_foreign_key),
    AS_OF: (as_of_join, follow_as_of),
    OneToMany.__name__: (one_to_many, follow_one_to_many),
    Aggregate.__name__: (groups, follow_groups),
    Top.__name__: (groups, follow_top),
    Over.__name__: (windows, follow_windows),
    ManyToMany.__name__: (many_to_many, follow_many_to_many),
    Materialize.__name__: (same_row, follow_same_row),
    Suppress.__name__: (same_row, follow_same_row),
    Reorder.__name__: (same_row, follow_same_row),
    SequenceBy.__name__: (same_row, follow_same_row),
    Deduplicate.__name__: (same_row, follow_same_row),
    Captured.__name__: (same_row, follow_same_row),
    Keep.__name__: (keep, follow_keep),
}
#: The kind of a step that is not followed.
OTHER = "other"
FOLLOW: Mapping[str, Follow] = {kind: rule for kind, (_, rule) in RULES.items()} | {OTHER: follow_nothing}


def described(plan: PhysicalPlan, outputs: Mapping[str, Node], copied: Copied) -> Lineage:
    """Describe a plan.

    Parameters
    ----------
    plan
        The plan.
    outputs
        The table of each output, by the output's name.
    copied
        Tells which column an expression is.
    """
    context = Described(plan, copied)
    kept, names = _kept(context), plan.names
    steps: dict[str, Step] = {}
    tables: dict[str, StoredTable] = {}
    for node in names:
        kind, parts = _parts(node, context)
        own = dict(parts.tables) | ({ROWS: kept[node]} if node in kept else {})
        tables |= {table.name: table for table in own.values()}
        steps[names[node]] = _step(
            node, names, kind, parts, {role: table.name for role, table in own.items()}
        )
    return Lineage(steps, tables, {shown: names[node] for shown, node in outputs.items()})


def _parts(node: Node, context: Described) -> tuple[str, Parts]:
    """The kind of a node's step, and what its rule says of it."""
    kind = _kind(node, context)
    if kind in RULES:
        describe, _ = RULES[kind]
        with suppress(NotPlacedError):
            return kind, describe(node, context)
    return OTHER, not_followed(node, context)


def _step(node: Node, names: Mapping[Node, str], kind: str, parts: Parts, tables: Mapping[str, str]) -> Step:
    titles = [named_as(parent, names) for parent in _sides(parts.parents)]
    return Step(
        name=names[node],
        title=named_as(node, names),
        kind=kind,
        words=parts.words,
        key=node.key,
        value=node.value,
        parents=tuple(names[parent] for parent in parts.parents),
        is_stream=node.is_stream,
        how=parts.how,
        texts=tuple(sides_named(text, titles) for text in parts.texts),
        columns=tuple(replace(one, text=sides_named(one.text, titles)) for one in parts.columns),
        inputs=parts.inputs,
        deletes=sides_named(parts.deletes, titles),
        unless=parts.unless,
        meets_nulls=parts.meets_nulls,
        tables=tables,
    )


def _sides(parents: Sequence[Node]) -> Sequence[Node]:
    """The tables that the sides in a step's expressions are: its own, or those of the join that it selects from."""
    if len(parents) != 1:
        return parents
    node = parents[0]
    while node.parents and not isinstance(node, Join):
        node = node.parents[0]
    return node.parents


def _kind(node: Node, context: Described) -> str:
    """The kind of a node's step. Joins of histories, and what is frozen, are not followed."""
    if isinstance(node, Keep) and node.freezes:
        return OTHER
    if node.is_stream and not isinstance(node, Source):
        return OTHER
    if isinstance(node, ForeignKeyJoin | KeyJoin) and node.complete_history:
        return OTHER
    if isinstance(node, ForeignKeyJoin):
        if node.as_of is not None:
            return AS_OF
        if node.on_key and not context.plan.options.compat:
            return KeyJoin.__name__
    kind = type(node).__name__
    return kind if kind in RULES else OTHER


def _kept(context: Described) -> dict[Node, StoredTable]:
    """The nodes whose rows are in the state. Of several under one name, such as a source and its versions, the last."""
    last = {named_as(node, context.plan.names): node for node in context.plan.names}
    return {last[table.name]: table for table in context.catalogue.tables if table.name in last}
