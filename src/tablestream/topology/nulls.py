"""Which parts of a table's key can be null.

===========================================  ==================================================================
table                                        parts that can be null
===========================================  ==================================================================
of a source, of a stream                     none: such records are dropped
union                                        those of any of the tables; not the branch
a group, the ranks of a group                those of the group; not the rank
key join: inner; left, right; outer          those of both sides; of the side whose rows stay; of either side
foreign-key join: inner, left; right, outer  those of the left table; all, since each row has one of the two keys
one to many: inner; left                     those of the many; those of the one, and all of the many
many to many                                 those of the left table, and those of the right one
rows of an array, by flat_map                those of the table; not the position
===========================================  ==================================================================
"""

from __future__ import annotations

from tablestream.topology.nodes import (
    Aggregate,
    ForeignKeyJoin,
    KeyJoin,
    ManyToMany,
    Node,
    OneParent,
    OneToMany,
    Top,
)
from tablestream.topology.streams import FlatMap, ToTable

Parts = tuple[bool, ...]


def nullable_key(node: Node) -> Parts:
    """Return for each part of a node's key whether it can be null."""
    every = (True,) * len(node.key)
    if node.is_stream or isinstance(node, Aggregate) or _keeps_either_key(node):
        return every
    if isinstance(node, ToTable) and node.nullable:
        return node.nullable
    if isinstance(node, Top):
        return (*every[:-1], False)
    if isinstance(node, FlatMap):
        return (*nullable_key(node.parent), False)
    if isinstance(node, KeyJoin | OneToMany | ForeignKeyJoin | ManyToMany):
        return _of_join(node, nullable_key(node.left), nullable_key(node.right))
    is_view = isinstance(node, OneParent) and not node.parent.is_stream
    return nullable_key(node.parents[0]) if is_view else tuple(not one for one in every)


def nullable_names(node: Node) -> set[str]:
    """Return the names of those parts of a node's key that can be null."""
    return {one.name for one, can_be_null in zip(node.key, nullable_key(node), strict=True) if can_be_null}


def _keeps_either_key(node: Node) -> bool:
    """Whether each row has one of two keys, and nulls in the place of the other."""
    return isinstance(node, ForeignKeyJoin) and node.keeps_unmatched


def _of_join(join: KeyJoin | OneToMany | ForeignKeyJoin | ManyToMany, left: Parts, right: Parts) -> Parts:
    """Which parts of a join's key can be null, given those of its sides."""
    if isinstance(join, ForeignKeyJoin):
        return left
    if isinstance(join, ManyToMany):
        return (*left, *right)
    if isinstance(join, OneToMany):
        unmatched = join.keeps_unmatched
        return (*(one and unmatched for one in left), *(many or unmatched for many in right))
    if join.how in {"left", "right"}:
        return left if join.how == "left" else right
    either = any if join.how == "outer" else all
    return tuple(either(pair) for pair in zip(left, right, strict=True))
