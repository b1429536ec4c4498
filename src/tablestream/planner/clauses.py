"""The clauses of queries in SQL: what each became, what that remembers, and which rows one change touches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tablestream.planner.physical_plan import PhysicalPlan
from tablestream.topology.clauses import Clauses
from tablestream.topology.graph import base_of, named_as, operator_of
from tablestream.topology.many_to_many import ManyToMany
from tablestream.topology.nodes import (
    Aggregate,
    Expression,
    Filter,
    ForeignKeyJoin,
    Join,
    KeyJoin,
    Node,
    OneToMany,
    Top,
)
from tablestream.topology.over import Over
from tablestream.topology.streams import FlatMap, Merge, StreamJoin, ToStream, ToTable

#: What nodes are called; a node of another kind is called as its class.
_CALLED: dict[type[Node], str] = {
    Aggregate: "group",
    Top: "top",
    Over: "window functions",
    FlatMap: "flat_map",
    Merge: "union",
    KeyJoin: "key join",
    ForeignKeyJoin: "foreign-key join",
    OneToMany: "one-to-many join",
    ManyToMany: "many-to-many join",
    StreamJoin: "stream-table join",
}


def clause_lines(plan: PhysicalPlan) -> Iterator[str]:
    """Yield what each clause of a plan's queries in SQL became; nothing if it has none."""
    made: dict[Clauses, dict[int, list[Node]]] = {}
    for node in plan.names:
        if node.clause is not None:
            query, number = node.clause
            made.setdefault(query, {}).setdefault(number, []).append(node)
    for query, nodes in made.items():
        yield f"Query at {query.where}" if query.where else "Query"
        for number, clause in enumerate(query.clauses):
            yield f"  {clause.place} {clause.text}"
            yield from (f"    {line}" for line in _Made(plan).lines(nodes.get(number, ())))


@dataclass(frozen=True)
class _Made:
    """What clauses became in a plan."""

    plan: PhysicalPlan

    def lines(self, nodes: Sequence[Node]) -> Iterator[str]:
        """Yield what a clause became; its filters and columns only if that is all."""
        lasting = [one for one in nodes if base_of(one) is one and not isinstance(one, ToStream | ToTable)]
        for node in lasting:
            yield f"becomes {_called(node)} {self.plan.names[node]}"
            traces = ", ".join(self._traces(node))
            yield f"remembers {traces}: {self._columns(node)}" if traces else "remembers nothing"
            yield from (f"{change} costs {rows}" for change, rows in self._costs(node))
        if not lasting:
            kinds = dict.fromkeys("filter" if isinstance(one, Filter) else "select" for one in nodes)
            yield f"becomes {', '.join(kinds)}: without state" if kinds else "becomes nothing of its own"

    def _traces(self, node: Node) -> Iterator[str]:
        """The names of what the operators of a node remember."""
        name = self.plan.names[operator_of(node, self.plan.names)]
        for placed in (one for work in self.plan.rounds for one in work.operators):
            if placed.name == name or placed.name.startswith(f"{name}/"):
                yield from (spec.name for spec in placed.operator.traces)

    def _columns(self, node: Node) -> str:
        """The columns that are remembered, of each table."""
        if isinstance(node, Aggregate | Top | Over):
            (parent,), inputs = node.parents, (one.expression for one in node.inputs)
            return f"{self._name(parent)} ({_texts([*node.on, *inputs])})"
        return ", ".join(
            f"{self._name(one)} ({', '.join(column.name for column in (*one.key, *one.value))})"
            for one in node.parents
        )

    def _costs(self, node: Node) -> Iterator[tuple[str, str]]:
        """Yield the rows that a change of each table touches."""
        left, right = (f"a change of {self._name(one)}" for one in (node.parents[0], node.parents[-1]))
        own, other = self._name(node.parents[0]), self._name(node.parents[-1])
        if isinstance(node, ManyToMany):
            yield left, f"all rows of {other}{_with_the_same(node.right_on)}"
            yield right, f"all rows of {own}{_with_the_same(node.on)}"
        elif isinstance(node, OneToMany):
            yield left, f"all rows of {other} with its key as {_texts(node.on)}"
            yield right, "one lookup"
        elif isinstance(node, ForeignKeyJoin) and not node.on_key:
            yield left, "one lookup"
            yield right, f"all rows of {own} with its key as {_texts(node.on)}"
        elif isinstance(node, Join):
            yield left, "one lookup"
            yield right, "nothing" if isinstance(node, StreamJoin) and node.is_stream else "one lookup"
        elif isinstance(node, Over):
            yield left, "all rows of its partition"
        elif isinstance(node, Top):
            yield left, f"the first {node.n} rows of its group"
        elif isinstance(node, Aggregate):
            yield left, "the changed rows of its group"
        else:
            yield left, "the rows that it becomes"

    def _name(self, node: Node) -> str:
        """A table by its name; the rows of a clause by the clause's place."""
        base = base_of(node)
        if base.clause is None:
            return named_as(base, self.plan.names)
        query, number = base.clause
        return query.clauses[number].place


def _called(node: Node) -> str:
    kind = KeyJoin if isinstance(node, ForeignKeyJoin) and node.on_key else type(node)
    return _CALLED.get(kind, kind.__name__)


def _with_the_same(expressions: Sequence[Expression]) -> str:
    """What rows have in common; in a product it is nothing."""
    is_product = all(one.text == "true" for one in expressions)
    return "" if is_product else f" with the same {_texts(expressions)}"


def _texts(expressions: Iterable[Expression]) -> str:
    texts = dict.fromkeys(one.text.strip("`") for one in expressions)
    return ", ".join(text for text in texts if text != "true") or "no columns"
