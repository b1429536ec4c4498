"""Questions about the logical plan: the inputs of a table, and which nodes form one operator."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from tablestream.topology.nodes import (
    Aggregate,
    Captured,
    Deduplicate,
    Expression,
    Filter,
    ForeignKeyJoin,
    Join,
    KeyJoin,
    Materialize,
    Node,
    OneToMany,
    Reorder,
    Select,
    SequenceBy,
    Source,
    Suppress,
    Transactions,
)
from tablestream.topology.streams import Merge, SelectKey, StreamJoin, ToStream, ToTable

#: What the operators of a source are called, behind its name.
DEDUPLICATED, SEQUENCED, REORDERED, VERSIONS = "/deduplicated", "/sequenced", "/reordered", "/versions"
CAPTURED = "/captured"

#: Where tables begin: Kafka Streams keeps their rows only if something needs them.
_SOURCES = (Source, Deduplicate, Captured, ToTable)


def ancestors(*nodes: Node) -> list[Node]:
    """Return the nodes and their dependencies, parents before children, in the order of declaration."""
    seen: dict[int, Node] = {}
    open_nodes = list(nodes)
    while open_nodes:
        node = open_nodes.pop()
        if node.serial not in seen:
            seen[node.serial] = node
            open_nodes += node.parents
    return [seen[serial] for serial in sorted(seen)]


def view_path(node: Node) -> Iterator[Node]:
    """Walk from a node down its selects and filters to the node whose changes they are a view of.

    For a stream, also down nodes that change the key of its records. The changes of a filtered table become records
    where it is known which of them exist: that is not a view.
    """
    yield node
    while isinstance(node, Select | Filter | SelectKey) or (
        isinstance(node, ToStream) and not is_filtered(node.parent)
    ):
        node = node.parent
        yield node


def ways(view: Node) -> list[tuple[Node, tuple[int, ...]]]:
    """Return every path on which records reach a view of a stream: one, plus one per merged stream.

    Returns: the same view without merges in it, and the serials of its steps, the one on the base first.
    """
    *steps, base = view_path(view)
    if not isinstance(base, Merge):
        return [(view, path_from_base(view))]
    found = []
    for parent in base.parents:
        for node, path in ways(parent):
            for step in reversed(steps):
                node = replace(step, parent=node)  # type: ignore[call-arg]  # noqa: PLW2901 - every view has one
            found.append((node, (*path, base.serial, *path_from_base(view))))
    return found


def deletes_lost(records: Node, *, joined: bool = False) -> Source | None:
    """Return a stream whose user said which records have no value, if a join drops them on their way to `records`.

    A filter before the join drops them as well; then it is what the user wants.
    """
    if isinstance(records, Source):
        return records if joined and records.deletes else None
    if isinstance(records, Filter) and joined and not records.negate:
        return None
    joined = joined or isinstance(records, StreamJoin)
    streams = (parent for parent in records.parents if parent.is_stream)
    return next((found for one in streams if (found := deletes_lost(one, joined=joined)) is not None), None)


def base_of(node: Node) -> Node:
    """Return the node under a view (selects and filters); the node itself if it is not a view."""
    *_, base = view_path(node)
    return base


def shown_name(node: Node) -> str:
    """Return a node's name as users know it, without the suffix for a source's operator."""
    name = node.name
    for suffix in (VERSIONS, REORDERED, SEQUENCED, DEDUPLICATED, CAPTURED):
        name = name.removesuffix(suffix)
    return name


def named_as(node: Node, names: Mapping[Node, str]) -> str:
    """Return the name by which users know a node: that of its source, for a source's operator."""
    while isinstance(node, Materialize | Reorder | SequenceBy | Captured) and shown_name(node) != node.name:
        node = node.parent
    return names[node]


def is_filtered(view: Node) -> bool:
    """Whether a filter is part of a view."""
    return any(isinstance(step, Filter) for step in view_path(view))


def history_of(table: Node) -> int | None:
    """Return how far back a table has versions, in microseconds; None if it is not versioned.

    A table with a history is versioned, and so are its selects and filters. A join of two histories has the shorter
    one.
    """
    while isinstance(table, Select | Filter):
        table = table.parent
    if isinstance(table, Join) and table.complete_history:
        histories = (history_of(side) for side in table.parents)
        return min(one for one in histories if one is not None)
    return table.history_us if isinstance(table, Materialize) else None


def has_whole_transactions(table: Node) -> bool:
    """Whether the changes of a table wait for whole transactions: each transaction is then one change of a row."""
    return not table.is_stream and any(isinstance(node, Transactions) for node in ancestors(table))


def removes_rows(view: Node) -> bool:
    """Whether a view, or the join under it, can turn a row into a tombstone."""
    return any(
        isinstance(step, Filter) or (isinstance(step, Select | Join) and step.delete_when is not None)
        for step in view_path(view)
    )


def unique_names(nodes: Iterable[Node]) -> dict[Node, str]:
    """Name every node of a plan; duplicate names are numbered."""
    names: dict[Node, str] = {}
    for node in nodes:
        name, number = node.name, 1
        while name in names.values():
            number += 1
            name = f"{node.name}_{number}"
        names[node] = name
    return names


class Leaf(NamedTuple):
    """A table that the operator of a tree of key joins reads."""

    table: Node
    join: Join
    side: int
    """The join above it, and whether it is this join's left side (0) or right side (1)."""
    path: tuple[int, ...]
    """The serials from the table's base up to the topmost join."""


def leaves_of(join: KeyJoin) -> list[Leaf]:
    """Return the tables that one operator reads for a join of joins on one key, from left to right.

    A join is part of the one above it if there are only selects in between, which leave every row in place.
    """
    found: list[Leaf] = []
    for number, side in enumerate(join.parents):
        inner = fused(side)
        below = [Leaf(side, join, number, ())] if inner is None else leaves_of(inner)
        above = (*path_from_base(side), join.serial)
        found += [leaf._replace(path=(*leaf.path, *above)) for leaf in below]
    return found


def fused(side: Node) -> KeyJoin | None:
    """Return the key join that is a side of a join, as part of the same operator; None if the side is another table."""
    base = base_of(side)
    if not isinstance(base, KeyJoin) or base.complete_history or removes_rows(side):
        return None
    return base


def operator_of(node: Node, plan: Iterable[Node]) -> Node:
    """Return the node of a plan whose operator a node is part of: the topmost of key joins on one key."""
    for above in plan:
        if isinstance(above, KeyJoin) and any(fused(side) is node for side in above.parents):
            return operator_of(above, plan)
    return node


def own_expressions(node: Node) -> list[Expression]:
    """Return the expressions by which a node computes its rows, without those that a join or a group reads by."""
    if isinstance(node, Filter):
        return [node.condition]
    if isinstance(node, SelectKey):
        return [one.expression for one in node.columns]
    if not isinstance(node, Select | Join):
        return []
    columns = node.columns if isinstance(node, Select) else node.select
    gone = [] if node.delete_when is None else [node.delete_when]
    return [*gone, *(one.expression for one in columns)]


def path_from_base(view: Node) -> tuple[int, ...]:
    """Return the serials of a view's selects and filters, the one on the base first."""
    return tuple(step.serial for step in view_path(view))[-2::-1]


def asked_for_old_values(nodes: Iterable[Node]) -> set[Node]:
    """Return those of a plan's nodes that Kafka Streams' operators ask for old values.

    Groups and suppress ask their table, joins by a foreign key both sides, outer key joins too, left and right ones
    the side whose rows they keep. A node that is asked asks its own inputs, except groups and the result of a
    foreign-key join, which are tables of their own.
    """
    asked: set[Node] = set()
    for node in sorted(nodes, key=lambda one: one.serial, reverse=True):
        if isinstance(node, ForeignKeyJoin | OneToMany | Aggregate | Suppress) or node in asked:
            asked.update(parent for parent in node.parents if not parent.is_stream)
        elif isinstance(node, KeyJoin):
            kept = {"inner": (), "left": (node.left,), "right": (node.right,), "outer": node.parents}
            asked.update(kept[node.how])
    return asked


def materialized_since(nodes: Iterable[Node]) -> dict[Node, int]:
    """Return the sources whose rows Kafka Streams keeps for joins, groups or suppress of a plan.

    Returns: by source, the serial of the first of these that reads it, or a view of it.
    """
    since: dict[Node, int] = {}
    for node in sorted(nodes, key=lambda one: one.serial):
        if isinstance(node, Join | Aggregate | Suppress):
            for table in (parent for parent in node.parents if not parent.is_stream):
                since.setdefault(base_of(table), node.serial)
    return {base: serial for base, serial in since.items() if isinstance(base, _SOURCES)}


def filters_with_old_values(nodes: Collection[Node]) -> set[Node]:
    """Return those of a plan's filters that know the old row in Kafka Streams, and so do not repeat tombstones.

    These are filters that are asked for old values, filters whose view stands on a join, on groups or on suppress,
    and filters declared after one of these had already materialized the source.
    """
    asked, since = asked_for_old_values(nodes), materialized_since(nodes)

    def knows(one: Filter) -> bool:
        base = base_of(one)
        return not isinstance(base, _SOURCES) or one in asked or since.get(base, one.serial) < one.serial

    return {node for node in nodes if isinstance(node, Filter) and not node.is_stream and knows(node)}
