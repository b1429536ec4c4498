"""Which columns of a table or stream are the time of its records."""

from __future__ import annotations

from tablestream.spark.row import LEFT, side_column
from tablestream.spark.sources import frame_of_source
from tablestream.sql.handles import Handle, node_of
from tablestream.topology.nodes import (
    Deduplicate,
    Filter,
    Materialize,
    Named,
    Node,
    Reorder,
    Select,
    Source,
)
from tablestream.topology.streams import Merge, SelectKey, StreamJoin


def time_columns(handle: Handle) -> frozenset[str]:
    """The columns that hold the time of each record, as they were read and nothing else."""
    return _of(node_of(handle))


def _of(node: Node) -> frozenset[str]:
    if isinstance(node, Source):
        return frame_of_source(node).time_columns
    if isinstance(node, Merge):
        return _of(node.left) & _of(node.right)
    found = frozenset[str]()
    if isinstance(node, Filter | Reorder | Deduplicate | Materialize):
        found = _of(node.parent)
    elif isinstance(node, Select):
        before = _of(node.parent)
        found = _renamed(node.columns, before) | _in_key(node.parent, node, before)
    elif isinstance(node, SelectKey):
        before = _of(node.parent)
        found = _renamed(node.columns, before) | (before & {one.name for one in node.value})
    elif isinstance(node, StreamJoin) and not node.corrections:
        before = _of(node.left)
        sides = frozenset(side_column(LEFT, one) for one in before)
        found = _renamed(node.select, sides) | _in_key(node.left, node, before)
    return found


def _in_key(before: Node, after: Node, names: frozenset[str]) -> frozenset[str]:
    """The columns of a key, which may have other names after than before."""
    return frozenset(new.name for old, new in zip(before.key, after.key, strict=True) if old.name in names)


def _renamed(columns: tuple[Named, ...], names: frozenset[str]) -> frozenset[str]:
    """The names under which columns are in the result, unless something was computed of them."""
    return frozenset(one.name for one in columns if one.expression.text.replace("`", "") in names)
