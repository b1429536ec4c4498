"""A plan as text: rounds, operators, what each remembers, and where records are shuffled.

The clauses of queries in SQL come last: what each became, what that remembers, and which rows one change touches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from tablestream.operators.joins.key_join import Branch
from tablestream.operators.operator import Operator
from tablestream.planner.catalogue import decode
from tablestream.planner.physical_plan import Output, PhysicalPlan, Reader
from tablestream.runtime.ports import EVERY_SHARD, Port
from tablestream.runtime.rounds import Round
from tablestream.topology.clauses import Clauses
from tablestream.topology.graph import base_of, named_as, operator_of
from tablestream.topology.nodes import (
    Aggregate,
    Expression,
    Filter,
    ForeignKeyJoin,
    Join,
    KeyJoin,
    ManyToMany,
    Materialize,
    Node,
    OneToMany,
    Top,
)
from tablestream.topology.over import Over
from tablestream.topology.streams import FlatMap, Merge, StreamJoin, ToStream, ToTable

#: The units of durations, the largest first, in microseconds.
_UNITS = [("day", 86_400_000_000), ("hour", 3_600_000_000), ("minute", 60_000_000), ("second", 1_000_000)]
_UNITS += [("millisecond", 1_000), ("microsecond", 1)]
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


def explained(plan: PhysicalPlan) -> str:
    """Print a plan.

    The text begins with the sources and ends with the outputs. Between them it shows, per round, one shuffle and one
    stateful stage with its operators; ``remembers`` names the traces and the key of each. Then comes a line
    with the tables that `tablestream.read_state` can read, one with the sources that are not whole in the state, so
    a changed plan cannot be built from it, and what the clauses of queries in SQL became.
    """
    parts = [f"Plan: {summary(plan)}"]
    for source, readers in sorted(plan.sources.items(), key=lambda entry: entry[0].serial):
        key = ", ".join(one.name for one in source.key)
        begin = ", starts with a bootstrap" if source.bootstrapped else ""
        parts.append(
            f"Source {plan.names[source]} (key {key}){begin}" + (f" -> {_ports(readers)}" if readers else "")
        )
    for work in plan.rounds:
        parts += _round(work)
        for between in plan.between:
            if between.after == work.number:
                parts.append(f"  Columns: {between.port.label} -> {_ports(between.readers)}")
    shuffled = (
        "none: each change is in its key's shard" if plan.ends_in_place else "by the output's key, in order"
    )
    parts.append(f"Last shuffle: {shuffled}")
    for ending in plan.endings:
        if ending.rejected:
            parts.append(f"Output {plan.names[ending.node]}: dropped records")
            continue
        key = ", ".join(one.name for one in ending.node.key)
        parts.append(f"Output {plan.names[ending.node]} (key {key}): {emission(ending)}")
    tables = [table.name for work in plan.rounds[:1] for table in decode(work.tables).tables]
    parts += [f"Tables in the state: {', '.join(tables)}"] if tables else []
    parts += _lacking(plan, tables)
    parts += _clauses(plan)
    return "\n".join(parts)


def _lacking(plan: PhysicalPlan, tables: Sequence[str]) -> list[str]:
    """The sources that are not whole in the state, in a line."""
    stored = (node for node in plan.names if isinstance(node, Materialize) and node.history_us is None)
    whole = plan.whole | {node.parent for node in stored if plan.names[node] in tables}
    lacking = sorted(plan.names[one] for one in plan.sources if not one.records and one not in whole)
    return [f"Sources not whole without evolvable=True: {', '.join(lacking)}"] if lacking else []


def summary(plan: PhysicalPlan, *, shards: bool = True) -> str:
    """Return the rounds and options of a plan, in a line."""
    parts = [_count(len(plan.rounds), "round")]
    parts += [_count(plan.options.shards, "shard")] if shards else []
    return ", ".join(parts + (["compat kafka-streams"] if plan.options.compat else []))


def emission(output: Output) -> str:
    """Say which changes of a table an output gets."""
    wanted = ["final change per key and micro-batch" if output.final else "every change"]
    wanted += ["with the row before"] if output.before else []
    wanted += ["minimal tombstones"] if output.minimal else []
    return ", ".join(wanted)


def _round(work: Round) -> list[str]:
    lines = [f"Round {work.number}: shuffle by shard, one stateful stage"]
    if work.alignment is not None:
        lines += [f"  {text}" for text in work.alignment.description]
    for placed in work.operators:
        lines.append(f"  {placed.name}: {described(placed.operator)}")
        lines += [f"    remembers {spec.name} by ({', '.join(spec.key)})" for spec in placed.operator.traces]
        targets = sorted({_port(port) for ports in placed.targets for port in ports})
        lines.append(f"    sends to {', '.join(targets)}")
    return lines


def described(operator: Operator) -> str:
    """Return the kind of an operator, and the parameters that it shows in a plan, without those that are not set."""
    shown = []
    for name in operator.parameters:
        value = getattr(operator, name)
        if isinstance(value, Branch):
            shown.append(_tree(value))
        elif isinstance(value, Enum):
            shown.append(f"{name}={value.value}")
        elif value is True:
            shown.append(name)
        elif value is not None and value is not False:
            short = name.removesuffix("_us")
            shown.append(f"{name}={value}" if short == name else f"{short}={duration(value)}")
    name = type(operator).__name__
    return f"{name} ({', '.join(shown)})" if shown else name


def duration(time_us: int) -> str:
    """A number of microseconds in the largest unit of which it is a whole number."""
    unit, size = next(
        (unit, size) for unit, size in _UNITS if time_us % size == 0 and (time_us or unit == "second")
    )
    return _count(time_us // size, unit)


def _tree(side: Branch | int) -> str:
    """A join of joins on one key; its inputs are numbers."""
    return f"{side}" if isinstance(side, int) else f"{side.how}[{_tree(side.left)}, {_tree(side.right)}]"


def _ports(readers: tuple[Reader, ...]) -> str:
    return ", ".join(_port(reader.port) for reader in readers)


def _port(port: Port) -> str:
    """A port, and the number of shards that get each of its messages, if they are several."""
    return f"{port.label}{copied(port)}"


def copied(port: Port) -> str:
    """Say how many shards get each message to a port, if they are several."""
    if port.route == EVERY_SHARD:
        return " in every shard"
    return "" if port.copies == 1 else f" in {port.copies} shards"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _clauses(plan: PhysicalPlan) -> Iterator[str]:
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
