"""Whether a frame's rows are still in the order of their source.

Positions and running maxima are computed in the tasks that read the source. After a shuffle or a sort, the rows of
a source partition are in several tasks, or in another order. The rows do not show this, so this module reads
Spark's analysed plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import takewhile

from pyspark.sql import DataFrame

from tablestream.base.printing import printing_to
from tablestream.errors import PlanError

_ANALYSED = re.compile(r"== Analyzed Logical Plan ==\n(.*?)\n== ", re.DOTALL)
#: Branches of the tree; ``~`` before a node whose rows stream; the node's name, and what it says of itself.
_NODE = re.compile(r"^((?:[ :]  )*(?:[+:]- )?)(~?)([A-Z]\w+)(.*)$", re.MULTILINE)
_BRANCH, _SIBLING = 3, ":- "
JOIN, SUBQUERY = "a join", "a subquery"
_READ = "StreamingRelation"
#: What differs between two reads of one source: the ids of columns and of objects.
_IDS = re.compile(r"#\d+L?|@[0-9a-f]+")
_COALESCE = ", false"
_BROADCAST = "(strategy=broadcast)"
#: A subquery that Spark's optimizer turns into a join: IN, and what refers to the rows around it.
_JOINED = re.compile(r"\bIN \(list#\d+ |\b(?:exists|scalar-subquery)#\d+ \[[^\]]")
_CUT = " more fields"
_JOINS, _LATERAL = {"Join", "AsOfJoin", "NearestByJoin"}, "LateralJoin"
#: Nodes of a subquery that needs no join.
_OF_THE_ROW = {"Project", "Generate", "SubqueryAlias", "OneRowRelation"}
#: Nodes that bring rows of several tasks together, or change their order, as users call them.
_MIXING = {
    "Repartition": "repartition",
    "Rebalance": "a rebalance hint",
    "Sort": "a sort",
    "Deduplicate": "dropDuplicates",
    "Distinct": "distinct",
    "Aggregate": "groupBy",
    "GlobalLimit": "limit",
    "Offset": "offset",
    "Window": "a window",
    "Intersect": "intersect",
    "Except": "except",
    "FlatMapGroups": "groupBy",
    "FlatMapCoGroups": "cogroup",
    "MapGroups": "groupBy",
    "CoGroup": "cogroup",
    "TransformWithState": "transformWithState",
}


@dataclass(frozen=True)
class _Node:
    depth: int
    has_siblings: bool
    streams: bool
    name: str
    text: str

    @property
    def mixing(self) -> str | None:
        """The user's name for it, if it changes the order of its rows whatever its input."""
        # A coalesce reads partitions one after the other.
        if self.name == "Repartition" and self.text.endswith(_COALESCE):
            return None
        return next((said for name, said in _MIXING.items() if self.name.startswith(name)), None)


def mixed_by(frame: DataFrame) -> str | None:
    """Find the operation that mixed the rows of a source partition, or changed their order.

    `frame`: a streaming frame. Returns: the user's name for it, such as ``repartition``. None: each task has the rows
    of its partitions, in order.

    A join with a static frame keeps the order only if Spark must broadcast that frame. Otherwise Spark decides in
    each micro-batch, and may broadcast the stream. Spark makes joins of most subqueries.

    A union is harmless unless both sides read the same source.

    The effect of a Python function on the order is not known. Cost: Spark plans the frame, some 50 ms.
    """
    found = _ANALYSED.search(explained(frame))
    if found is None:
        raise PlanError(
            "Spark's text of the frame's plan is cut, so the order of its rows is not known.",
            hint="Set spark.sql.maxPlanStringLength higher, or unset it.",
        )
    nodes = list(_nodes(found.group(1)))
    streaming = [(at, node) for at, node in enumerate(nodes) if node.streams]
    for at, node in streaming:
        if node.mixing is not None:
            return node.mixing
        if node.name in _JOINS and not (node.name == "Join" and _broadcasts(nodes, at)):
            return JOIN
        if _may_join(node) and not _subqueries_keep_order(nodes, at):
            return SUBQUERY
    if any(node.name == "Union" for _, node in streaming):
        reads = [_IDS.sub("", node.text) for node in nodes if node.name.startswith(_READ)]
        if len(set(reads)) < len(reads):
            return "a union of a source with itself"
    return None


def _nodes(plan: str) -> Iterator[_Node]:
    for branch, streams, name, text in _NODE.findall(plan):
        yield _Node(len(branch) // _BRANCH, branch.endswith(_SIBLING), bool(streams), name, text)


def _broadcasts(nodes: Sequence[_Node], at: int) -> bool:
    """Whether a join of a stream with a static frame has a broadcast hint for the static one."""
    depth = nodes[at].depth
    below = list(takewhile(lambda node: node.depth > depth, nodes[at + 1 :]))
    sides = [place for place, node in enumerate(below) if node.depth == depth + 1]
    static = [place for place in sides if not (below[place].streams or below[place].name.startswith(_READ))]
    return bool(static) and all(_is_hinted(below[place:]) for place in static)


def _may_join(node: _Node) -> bool:
    """Whether Spark may turn a subquery of a node into a join. Spark cuts the text of a node with many columns."""
    return node.name == _LATERAL or _CUT in node.text or _JOINED.search(node.text) is not None


def _subqueries_keep_order(nodes: Sequence[_Node], at: int) -> bool:
    """Whether all subqueries of a node have a broadcast hint, or are made of its own rows alone.

    They stand in front of the node's input, a branch deeper.
    """
    depth = nodes[at].depth
    inner = list(takewhile(lambda node: node.depth > depth + 1, nodes[at + 1 :]))
    if all(node.name in _OF_THE_ROW for node in inner):
        return True
    return all(_is_hinted(inner[place:]) for place, node in enumerate(inner) if node.depth == depth + 2)


def _is_hinted(side: Sequence[_Node]) -> bool:
    """Whether a side of a join has the hint, directly or below nodes with one child."""
    for number, node in enumerate(side):
        if number and (node.has_siblings or node.depth != side[number - 1].depth + 1):
            return False
        if node.name == "ResolvedHint" and _BROADCAST in node.text:
            return True
    return False


def explained(frame: DataFrame) -> str:
    """The text that `explain` prints for a frame."""
    printed = StringIO()
    with printing_to(lambda text, _: printed.write(text)):
        frame.explain(extended=True)
    return printed.getvalue()
