"""From the logical plan to the line of rounds: one function per stateful node.

A *base* is a node whose changes physically arrive: a source, or the output of an operator. Selects and filters on
top of it are a *view*: they are evaluated where the changes are read. Every reader of a view is a port.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import polars as pl

from tablestream.operators.accumulated import Accumulated
from tablestream.operators.aggregate import Aggregate as AggregateOperator
from tablestream.operators.as_of_join import AsOfJoin
from tablestream.operators.collected import Collected, Kind
from tablestream.operators.flat_map import FlatMap as FlatMapOperator
from tablestream.operators.fold import Fold, UserFunctions
from tablestream.operators.foreign_key_answer import ForeignKeyAnswer
from tablestream.operators.foreign_key_subscribe import ForeignKeySubscribe, Rules
from tablestream.operators.global_join import GlobalJoin
from tablestream.operators.key_join import Branch
from tablestream.operators.key_join import KeyJoin as KeyJoinOperator
from tablestream.operators.operator import Operator
from tablestream.operators.record_groups import RecordGroups
from tablestream.operators.regroup import Regroup
from tablestream.operators.stream_table_join import StreamTableJoin
from tablestream.operators.suppress import Suppress as SuppressOperator
from tablestream.operators.to_table import ToTable as ToTableOperator
from tablestream.operators.totals import Count, Function, Sum
from tablestream.operators.upsert import Upsert
from tablestream.operators.versioned_table import VersionedTable
from tablestream.plan.line import NOTHING, Between, Ending, Line, Mode, Output, Pointing, Reader, Role
from tablestream.plan.rounds import EVERY_SHARD, Placed, Port, Round
from tablestream.state.changes import FOREIGN_HASH, KEY_HASH, foreign_columns, key_columns
from tablestream.topology.graph import (
    ancestors,
    asked_for_old_values,
    base_of,
    fused,
    history_of,
    is_filtered,
    knows_old_values,
    leaf_paths,
    leaves_of,
    path_from_base,
    removes_rows,
    unique_names,
    ways,
)
from tablestream.topology.nodes import (
    Aggregate,
    Fields,
    FlatMap,
    ForeignKeyJoin,
    KeyJoin,
    Materialize,
    Measure,
    Merge,
    Node,
    OneToMany,
    Source,
    StreamJoin,
    Suppress,
    ToStream,
    ToTable,
)

#: Behind every declared node: outputs rank last.
_LAST = 1 << 60

Types = Callable[[Fields], pl.Schema]


class Late(Enum):
    """What becomes of changes of a versioned table that are not the latest of their row."""

    KEPT = "kept"
    IGNORED = "ignored"
    DROPPED = "dropped and counted"


@dataclass(eq=False)
class _Want:
    """A port before its number is its rank: `order` decides that, the way from its base and the role there.

    `into`: the port that another of several merged streams goes to.
    """

    order: tuple[tuple[int, ...], int] | tuple[tuple[int, ...], int, int]
    round: int
    route: str
    label: str
    into: _Want | None = None


@dataclass
class _Draft:
    """An operator before it is known who reads its result: `inner` does, and if it `answers` the readers of `base`."""

    base: Node | None
    name: str
    round: int
    operator: Operator
    inputs: list[_Want]
    inner: _Want | None = None
    answers: bool = True


@dataclass
class _Lowering:
    """The plan while it is being lowered."""

    mode: Mode
    types: Types
    names: dict[Node, str]
    asked: set[Node]
    wants: list[_Want] = field(default_factory=list)
    reads: list[tuple[Node, _Want, Callable[[Port], Reader]]] = field(default_factory=list)
    drafts: list[_Draft] = field(default_factory=list)
    made_in: dict[Node, int] = field(default_factory=dict)

    def produce(self, base: Node) -> int:
        """Place the operator of a base and all below it; return the round in which its changes appear."""
        if base not in self.made_in:
            self.made_in[base] = _LOWER[type(base)](self, base)
        return self.made_in[base]

    def read(
        self,
        view: Node,
        want: _Want,
        role: Role,
        key: Fields,
        join: Pointing | None = None,
        late: Late = Late.KEPT,
    ) -> None:
        """Note that a port reads a view."""
        self.wants.append(want)
        foreign = join.foreign if join is not None else ()
        latest_only = late is not Late.KEPT and history_of(view) is not None
        counted = want.label.rsplit("[", 1)[0] if latest_only and late is Late.DROPPED else None
        self.reads.append(
            (
                base_of(view),
                want,
                lambda port: Reader(port, view, role, key, foreign, join, latest_only, counted),
            )
        )

    def read_stream(
        self, view: Node, want: _Want, role: Role, key: Fields, join: Pointing | None = None
    ) -> None:
        """Note that a port reads a stream, on every way on which its records come.

        The order of `want` says what lies above the view.
        """
        above, side = want.order[:2]
        for number, (way, path) in enumerate(ways(view)):
            order = ((*path, *above), side, number)
            if number:
                further = replace(want, order=order, into=want)
            else:
                want.order, further = order, want
            self.read(way, further, role, key, join)

    def produce_stream(self, view: Node) -> int:
        """Place what makes the records of a stream; return the last round in which some appear."""
        return max(self.produce(base_of(way)) for way, _ in ways(view))

    def keys(self, fields: Fields, names: tuple[str, ...]) -> pl.Schema:
        """Key columns and their dtypes."""
        return pl.Schema(dict(zip(names, self.types(fields).values(), strict=True)))

    def key_of(self, node: Node) -> pl.Schema:
        """The key columns of a table."""
        return self.keys(node.key, key_columns(len(node.key)))

    def value_of(self, node: Node) -> pl.DataType:
        """The dtype of a table's value."""
        return self.struct_of(node.value)

    def struct_of(self, fields: Fields) -> pl.DataType:
        """The dtype in which columns travel."""
        kinds = {f"c{number}": kind for number, kind in enumerate(self.types(fields).values())}
        return pl.Struct(kinds or {NOTHING: pl.Boolean()})

    def is_quiet(self, view: Node) -> bool:
        """Whether tombstones for absent rows are no changes to the reader of a view."""
        return (
            not view.is_stream
            and history_of(view) is None
            and is_filtered(view)
            and (not self.mode.compat or knows_old_values(view, self.asked))
        )


def _source(_: _Lowering, __: Source) -> int:
    return 0


def _key_join(line: _Lowering, node: KeyJoin) -> int:
    leaves = leaves_of(node)
    number = 1 + max(line.produce(base_of(leaf)) for leaf, _ in leaves)
    wants = []
    for index, ((leaf, _), path) in enumerate(zip(leaves, leaf_paths(node), strict=True)):
        want = _Want((path, index), number, KEY_HASH, f"{line.names[node]}[{index}]")
        line.read(leaf, want, Role.KEYED, node.key, late=Late.DROPPED)
        wants.append(want)
    stores = [base_of(leaf).serial for leaf, _ in leaves]
    operator = KeyJoinOperator(
        tree=_tree(node, iter(range(len(leaves)))),
        keys=line.key_of(node),
        values=tuple(line.value_of(leaf) for leaf, _ in leaves),
        stores=tuple(stores.index(store) for store in stores),
        quiet=tuple(line.is_quiet(leaf) for leaf, _ in leaves),
        early=tuple(line.mode.compat and isinstance(base_of(leaf), Source) for leaf, _ in leaves),
        # A star join has no counterpart in Kafka Streams: it is one join, in compat mode, too.
        atomic=not line.mode.compat or any(join.own_times for _, join in leaves),
    )
    line.drafts.append(_Draft(node, line.names[node], number, operator, wants))
    return number


def _foreign_key_join(line: _Lowering, node: ForeignKeyJoin) -> int:
    rules = Rules.LEFT if node.how in {"left", "outer"} else Rules.INNER
    return _pointing(line, node, many=node.left, one=node.right, rules=rules)


def _one_to_many(line: _Lowering, node: OneToMany) -> int:
    return _pointing(line, node, many=node.right, one=node.left, rules=Rules.PAIR)


def _pointing(
    line: _Lowering, node: ForeignKeyJoin | OneToMany, *, many: Node, one: Node, rules: Rules
) -> int:
    """A table whose rows point at the rows of another: two operators, one behind the other."""
    name = line.names[node]
    first = 1 + line.produce(base_of(many))
    second = 1 + max(first, line.produce(base_of(one)))
    keys, foreign = line.key_of(many), line.keys(node.foreign, foreign_columns(len(node.foreign)))
    to_many, to_one = ((*path_from_base(view), node.serial) for view in (many, one))
    shared = base_of(many) is base_of(one)
    if shared:  # a row's right role comes first, wherever its views were declared
        to_many = to_one = min(to_many, to_one)
    pointing = _Want((to_many, 1), first, KEY_HASH, f"{name}[subscribe]")
    pointed = _Want((to_one, 0), second, FOREIGN_HASH, f"{name}[right]")
    messages = _Want(((node.serial,), 2), second, FOREIGN_HASH, f"{name}[subscriptions]")
    line.read(many, pointing, Role.SUBSCRIBING, many.key, node, late=Late.DROPPED)
    line.read(one, pointed, Role.POINTED_AT, node.foreign, late=Late.DROPPED)
    copied = isinstance(node, ForeignKeyJoin) and node.copied
    stale = line.mode.compat and shared and rules is not Rules.PAIR
    subscribe = ForeignKeySubscribe(
        rules=rules,
        keys=keys,
        foreign_keys=foreign,
        value=line.value_of(many),
        right_value=line.value_of(one),
        lone=node.keeps_lone_rows,
        compare_values=stale,
    )
    answer = ForeignKeyAnswer(
        keep_left=rules is Rules.LEFT,
        keys=keys,
        foreign_keys=foreign,
        left_value=line.value_of(many),
        right_value=line.value_of(one),
        pair=rules is Rules.PAIR,
        lone=node.keeps_lone_rows,
        quiet_right=line.is_quiet(one),
        atomic=not line.mode.compat,
        stale=stale,
    )
    if copied:
        pointing.round = pointed.round = max(first, 1 + line.produce(base_of(one)))
        pointed.route = EVERY_SHARD
        both = GlobalJoin(subscribe, answer)
        line.drafts.append(_Draft(node, name, pointed.round, both, [pointing, pointed]))
        return pointed.round
    line.wants.append(messages)
    line.drafts.append(_Draft(node, f"{name}/subscribe", first, subscribe, [pointing], inner=messages))
    line.drafts.append(_Draft(node, f"{name}/answer", second, answer, [messages, pointed]))
    return second


def _aggregate(line: _Lowering, node: Aggregate) -> int:
    """Rows by groups: two operators, one behind the other; records need only the second."""
    name = line.names[node]
    if node.parent.is_stream:
        number = 1 + line.produce_stream(node.parent)
        records = _Want(((node.serial,), 1), number, FOREIGN_HASH, f"{name}[records]")
        line.read_stream(node.parent, records, Role.GROUPING, node.parent.key, node)
        groups = RecordGroups(_groups(line, node), line.key_of(node.parent))
        line.drafts.append(_Draft(node, name, number, groups, [records]))
        return number
    first = 1 + line.produce(base_of(node.parent))
    rows = _Want(((*path_from_base(node.parent), node.serial), 1), first, KEY_HASH, f"{name}[rows]")
    messages = _Want(((node.serial,), 2), first + 1, FOREIGN_HASH, f"{name}[groups]")
    line.read(node.parent, rows, Role.GROUPING, node.parent.key, node, late=Late.IGNORED)
    line.wants.append(messages)
    aggregate = _groups(line, node)
    regroup = Regroup(
        keys=aggregate.keys, group_keys=aggregate.group_keys, value=aggregate.value, atomic=aggregate.atomic
    )
    line.drafts.append(_Draft(node, f"{name}/regroup", first, regroup, [rows], messages, answers=False))
    line.drafts.append(_Draft(node, f"{name}/aggregate", first + 1, aggregate, [messages]))
    return first + 1


def _groups(line: _Lowering, node: Aggregate) -> AggregateOperator | Fold:
    """The operator that keeps the aggregate of each group."""
    records = node.parent.is_stream
    keys = pl.Schema() if records else line.key_of(node.parent)
    groups, value = line.keys(node.key, foreign_columns(len(node.key))), line.struct_of(node.input_fields)
    keep_empty, atomic = node.keep_empty or line.mode.compat, not line.mode.compat
    if node.functions is not None:
        assert isinstance(node.functions, UserFunctions)  # noqa: S101 - the handles make it
        result, user = line.value_of(node), node.functions
        return Fold(keys, groups, value, result, user, keep_empty=keep_empty, atomic=atomic)
    inputs, results = line.types(node.input_fields), line.types(node.value)
    functions = tuple(
        _function(measure, list(inputs.values()), result, records=records)
        for measure, result in zip(node.measures, results.values(), strict=True)
    )
    return AggregateOperator(keys, groups, value, functions, keep_empty=keep_empty, atomic=atomic)


def _suppress(line: _Lowering, node: Suppress) -> int:
    number = 1 + line.produce(base_of(node.parent))
    name = line.names[node]
    want = _Want(((*path_from_base(node.parent), node.serial), 0), number, KEY_HASH, f"{name}[changes]")
    line.read(node.parent, want, Role.KEYED, node.key)
    operator = SuppressOperator(
        keys=line.key_of(node),
        value=line.value_of(node),
        until_us=node.until_us,
        max_records=node.max_records,
        max_bytes=node.max_bytes,
        fail_when_full=node.fail_when_full,
        atomic=not line.mode.compat,
        wall_clock_us=node.wall_clock_us,
        quiet=line.is_quiet(node.parent),
    )
    line.drafts.append(_Draft(node, name, number, operator, [want]))
    return number


def _stream_join(line: _Lowering, node: StreamJoin) -> int:
    """Records meet the rows of a table where these are: at what they point at, or, of a global table, anywhere."""
    name = line.names[node]
    number = 1 + max(line.produce_stream(node.left), line.produce(base_of(node.right)))
    route = KEY_HASH if node.copied else FOREIGN_HASH
    records = _Want(((node.serial,), 1), number, route, f"{name}[records]")
    # A change of the table is written before anyone else reads it; it emits nothing here.
    rows = _Want(
        ((0, node.serial), 0), number, EVERY_SHARD if node.copied else FOREIGN_HASH, f"{name}[table]"
    )
    line.read_stream(node.left, records, Role.SUBSCRIBING, node.left.key, node)
    line.read(node.right, rows, Role.POINTED_AT, node.foreign)
    keys, foreign = line.key_of(node.left), line.keys(node.foreign, foreign_columns(len(node.foreign)))
    values, history_us = (line.value_of(node.left), line.value_of(node.right)), history_of(node.right)
    keep_left, compat = node.how == "left", line.mode.compat
    operator: Operator = StreamTableJoin(keys, foreign, *values, keep_left=keep_left, atomic=not compat)
    if history_us is not None:
        operator = AsOfJoin(
            keys,
            foreign,
            *values,
            history_us,
            keep_left=keep_left,
            forgetful=compat,
            atomic=not compat,
            grace_us=None if node.grace is None else node.grace.period_us,
            table_advances=node.grace is not None and node.grace.table_advances,
            wall_clock_us=None if node.grace is None else node.grace.wall_clock_us,
        )
    line.drafts.append(_Draft(node, name, number, operator, [records, rows]))
    return number


def _kept(line: _Lowering, node: ToStream | Materialize) -> int:
    """A table that is remembered: which of its changes are any is known."""
    number, name = 1 + line.produce(base_of(node.parent)), line.names[node]
    want = _Want(((*path_from_base(node.parent), node.serial), 0), number, KEY_HASH, f"{name}[rows]")
    line.read(node.parent, want, Role.KEYED, node.key)
    operator: Operator
    if isinstance(node, Materialize) and node.history_us is not None:
        forgetful = line.mode.compat
        operator = VersionedTable(line.key_of(node), line.value_of(node), node.history_us, forgetful)
    else:
        operator = Upsert(line.key_of(node), line.value_of(node), quiet=line.is_quiet(node.parent))
    line.drafts.append(_Draft(node, name, number, operator, [want]))
    return number


def _flat_map(line: _Lowering, node: FlatMap) -> int:
    operator = FlatMapOperator(
        line.key_of(node), line.value_of(node.parent), line.value_of(node), takes_apart=node.takes_apart
    )
    return _records(line, node, operator)


def _to_table(line: _Lowering, node: ToTable) -> int:
    operator = ToTableOperator(line.key_of(node), line.value_of(node), atomic=not line.mode.compat)
    return _records(line, node, operator)


def _records(line: _Lowering, node: FlatMap | ToTable, operator: Operator) -> int:
    """Place an operator that reads the records of one stream."""
    number, name = 1 + line.produce_stream(node.parent), line.names[node]
    want = _Want(((node.serial,), 0), number, KEY_HASH, f"{name}[records]")
    line.read_stream(node.parent, want, Role.KEYED, node.key)
    line.drafts.append(_Draft(node, name, number, operator, [want]))
    return number


def _function(
    measure: Measure, inputs: Sequence[pl.DataType], result: pl.DataType, *, records: bool
) -> Function | Collected:
    """The way in which a declared aggregate is computed."""
    if measure.column is None:
        return Count()
    column, of = f"c{measure.column}", inputs[measure.column]
    if measure.function == "count":
        return Count(column)
    if measure.function in {"sum", "avg"}:
        return Sum(column, of, result, average=measure.function == "avg")
    if measure.parameter is not None:
        # The library of sketches is an extra: only plans with one need it.
        from tablestream.operators.sketched import Sketch, Sketched

        return Sketched(Sketch(measure.function), column, measure.parameter, result)
    if records:
        return Accumulated(Kind(measure.function), column, of, result)
    return Collected(Kind(measure.function), column, result)


_LOWER: dict[type[Node], Callable[[_Lowering, Any], int]] = {
    Source: _source,
    KeyJoin: _key_join,
    ForeignKeyJoin: _foreign_key_join,
    OneToMany: _one_to_many,
    StreamJoin: _stream_join,
    Aggregate: _aggregate,
    Suppress: _suppress,
    Materialize: _kept,
    ToStream: _kept,
    FlatMap: _flat_map,
    ToTable: _to_table,
}


def _tree(join: KeyJoin, numbers: Iterator[int]) -> Branch:
    """The tree of a fused join, its leaves numbered left to right."""
    sides = []
    for side in join.parents:
        inner = fused(side)
        sides.append(_tree(inner, numbers) if inner is not None else next(numbers))
    return Branch(sides[0], sides[1], join.how, join.own_times)


def lower(outputs: Sequence[Output], types: Types, mode: Mode) -> Line:
    """Lower a plan.

    Parameters
    ----------
    outputs
        What is asked for.
    types
        Gives the Polars dtypes of columns.
    mode
        Applies to the whole plan.
    """
    nodes = ancestors(*(output.node for output in outputs))
    line = _Lowering(mode, types, unique_names(nodes), asked_for_old_values(nodes))
    for output in outputs:
        if not output.rejected:
            line.produce_stream(output.node)
    final = _natively_final(line, outputs)
    endings = [_ending(line, output, index, final) for index, output in enumerate(outputs)]
    last = max([draft.round for draft in line.drafts], default=0)
    ending = {end.want for end in endings}
    for want in line.wants:
        if want in ending or want.into in ending:
            want.round = last + 1
    return _Finishing(line, endings, final, last).line()


@dataclass(frozen=True)
class _End:
    """An output before its port is numbered.

    `base` is the operator that sends to it, its `Upsert`, or none if the port reads a view, or what is rejected.
    """

    output: Output
    want: _Want
    base: Node | _Draft | None
    evaluated: bool


def _natively_final(line: _Lowering, outputs: Sequence[Output]) -> set[Node]:
    """The bases whose operators can leave out all but the last change: every reader is final."""
    able: set[Node] = {
        base
        for base in line.made_in
        if isinstance(base, KeyJoin | Aggregate) or (isinstance(base, ForeignKeyJoin) and base.how == "left")
    }
    able -= {base for base, _, _ in line.reads}
    for output in outputs:
        if output.rejected:
            continue
        if not output.final or output.before or output.minimal or removes_rows(output.node):
            able.discard(base_of(output.node))
    return able


def _ending(line: _Lowering, output: Output, index: int, final: set[Node]) -> _End:
    """Decide how an output's changes leave: from their operator as they are, or through an `Upsert`."""
    base = base_of(output.node)
    want = _Want(((_LAST,), index), 0, KEY_HASH, f"output {index + 1}")
    if output.rejected:
        line.wants.append(want)
        return _End(output, want, None, evaluated=True)
    quiet = output.minimal or line.is_quiet(output.node)
    if not (output.before or quiet or (output.final and base not in final)):
        # What a view of a stream leaves out, or gives another key, has to be known before the last shuffle.
        if isinstance(base, Source | Merge) or (output.node.is_stream and base is not output.node):
            line.read_stream(output.node, want, Role.KEYED, output.node.key)
            return _End(output, want, None, evaluated=True)
        line.wants.append(want)
        return _End(output, want, base, evaluated=False)
    number = 1 + line.produce(base)
    path = (*path_from_base(output.node), _LAST)
    read = _Want((path, index), number, KEY_HASH, f"output {index + 1}[rows]")
    line.read(output.node, read, Role.KEYED, output.node.key, late=Late.IGNORED)
    operator = Upsert(
        keys=line.key_of(output.node),
        value=line.value_of(output.node),
        keep_old=output.before,
        quiet=quiet or output.before,
        final=output.final,
    )
    draft = _Draft(None, f"output {index + 1}", number, operator, [read])
    line.drafts.append(draft)
    line.wants.append(want)
    return _End(output, want, draft, evaluated=True)


@dataclass
class _Finishing:
    """Numbers the ports and connects operators with those who read them."""

    lowering: _Lowering
    endings: list[_End]
    final: set[Node]
    last: int

    def line(self) -> Line:
        """Make the line of rounds."""
        ranked = sorted(self.lowering.wants, key=lambda want: want.order)
        ranks = {want: rank for rank, want in enumerate(ranked, start=1)}
        ports = {
            want: Port(ranks[want.into or want], rank, want.round, want.route, want.label)
            for want, rank in ranks.items()
        }
        readers: dict[Node, list[Reader]] = {}
        for base, want, make in self.lowering.reads:
            readers.setdefault(base, []).append(make(ports[want]))
        between = {
            base: Port(len(ports) + number, 0, made_in + 1, KEY_HASH, self.lowering.names[base])
            for number, (base, made_in) in enumerate(self.lowering.made_in.items(), start=1)
            if base in readers and not isinstance(base, Source)
        }
        return Line(
            mode=self.lowering.mode,
            names=self.lowering.names,
            rounds=self._rounds(ports, between),
            sources={source: tuple(readers.get(source, ())) for source in self._sources()},
            between=tuple(
                Between(port, base, self.lowering.made_in[base], tuple(readers[base]))
                for base, port in between.items()
            ),
            endings=tuple(Ending(end.output, ports[end.want], end.evaluated) for end in self.endings),
        )

    def _sources(self) -> list[Source]:
        """Every source of the plan, in the order of declaration."""
        nodes = ancestors(*(end.output.node for end in self.endings))
        return [node for node in nodes if isinstance(node, Source)]

    def _rounds(self, ports: dict[_Want, Port], between: dict[Node, Port]) -> tuple[Round, ...]:
        made = []
        for number in range(1, self.last + 1):
            drafts = [draft for draft in self.lowering.drafts if draft.round == number]
            placed = tuple(self._placed(draft, ports, between) for draft in drafts)
            made.append(Round(number, placed, self._description(drafts)))
        return tuple(made)

    def _placed(self, draft: _Draft, ports: dict[_Want, Port], between: dict[Node, Port]) -> Placed:
        ends = [
            ports[end.want]
            for end in self.endings
            if end.base in (draft, draft.base) and end.base is not None
        ]
        if draft.base in between:
            ends.append(between[draft.base])
        operator = draft.operator
        targets: tuple[tuple[Port, ...], ...] = (tuple(ends),)
        if draft.inner is not None:
            inner = (ports[draft.inner],)
            targets = (inner, tuple(ends)) if draft.answers else (inner,)
        if draft.base in self.final and hasattr(operator, "final"):
            operator = replace(operator, final=True)  # type: ignore[type-var]
        inputs = tuple(ports[want].number for want in draft.inputs)
        copied = any(want.route == EVERY_SHARD for want in draft.inputs)
        return Placed(draft.name, operator, inputs, targets, copied)

    def _description(self, drafts: Sequence[_Draft]) -> tuple[str, ...]:
        """What the state of a round means: its operators, and every node they hang on."""
        mode, names = self.lowering.mode, self.lowering.names
        lines = [f"shards: {mode.shards}", f"compat: {'kafka-streams' if mode.compat else 'none'}"]
        # Spark knows the streams of a checkpoint by their place, and ties are broken by it.
        lines.append(f"sources: {', '.join(names[source] for source in self._sources())}")
        for draft in drafts:
            lines.append(f"operator {draft.name}: {type(draft.operator).__name__}")
            lines += [f"  remembers {spec.name}: {', '.join(spec.schema)}" for spec in draft.operator.traces]
            roots = [draft.base] if draft.base is not None else []
            roots += [end.output.node for end in self.endings if end.base is draft]
            for node in ancestors(*roots):
                of = f" of {', '.join(names[parent] for parent in node.parents)}" if node.parents else ""
                lines.append(f"  {names[node]}{of}: {node.meaning}")
        return tuple(lines)
