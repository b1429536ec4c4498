"""Questions about the logical plan: what a table hangs on, and which nodes are one operator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tablestream.topology.nodes import Filter, Join, KeyJoin, Node, Select, Source


def ancestors(*nodes: Node) -> list[Node]:
    """Return the nodes and all they hang on, parents before children, in the order of declaration."""
    seen: dict[int, Node] = {}
    open_nodes = list(nodes)
    while open_nodes:
        node = open_nodes.pop()
        if node.serial not in seen:
            seen[node.serial] = node
            open_nodes += node.parents
    return [seen[serial] for serial in sorted(seen)]


def view_path(node: Node) -> Iterator[Node]:
    """Walk from a node down its selects and filters to the node whose changes they are a view of."""
    yield node
    while isinstance(node, Select | Filter):
        node = node.parent
        yield node


def base_of(node: Node) -> Node:
    """Return the node that a view (selects and filters) stands on; the node itself if it is no view."""
    *_, base = view_path(node)
    return base


def is_filtered(view: Node) -> bool:
    """Whether a filter is part of a view."""
    return any(isinstance(step, Filter) for step in view_path(view))


def removes_rows(view: Node) -> bool:
    """Whether a view, or the join it stands on, can turn a row into a tombstone."""
    return any(
        isinstance(step, Filter) or (isinstance(step, Select | Join) and step.delete_when is not None)
        for step in view_path(view)
    )


def unique_names(nodes: Iterable[Node]) -> dict[Node, str]:
    """Name every node of a plan; of several with one name the later ones are numbered."""
    names: dict[Node, str] = {}
    for node in nodes:
        name, number = node.name, 1
        while name in names.values():
            number += 1
            name = f"{node.name}_{number}"
        names[node] = name
    return names


def leaves_of(join: KeyJoin) -> list[tuple[Node, KeyJoin]]:
    """Return the tables that one operator reads for a join of joins on one key, each with the join above it.

    A join is part of the one above it when nothing but selects lies between, which leave every row in place.
    """
    found: list[tuple[Node, KeyJoin]] = []
    for side in join.parents:
        inner = fused(side)
        found += leaves_of(inner) if inner is not None else [(side, join)]
    return found


def fused(side: Node) -> KeyJoin | None:
    """Return the key join that a join's side is, as part of the same operator; none if it is another table."""
    base = base_of(side)
    return base if isinstance(base, KeyJoin) and not removes_rows(side) else None


def knows_old_values(view: Node, *, asked: bool) -> bool:
    """Whether Kafka Streams' filter in a view knows the old row, and so keeps repeated tombstones to itself.

    It does when the operator behind asks for old values (`asked`), when the view stands on a join, or when the
    source was already materialized by a join that was declared before the filter.
    """
    base, first = (
        base_of(view),
        min(step.serial for step in view_path(view) if isinstance(step, Filter | Select)),
    )
    return asked or not isinstance(base, Source) or any(reader < first for reader in base.materialized_by)
