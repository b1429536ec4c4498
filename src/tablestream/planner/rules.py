"""The lowering rules: one function per stateful node turns it into operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from tablestream.operators.buffer.reorder import Reorder as ReorderOperator
from tablestream.operators.buffer.suppress import Suppress as SuppressOperator
from tablestream.operators.deduplicate import Deduplicate as DeduplicateOperator
from tablestream.operators.flat_map import FlatMap as FlatMapOperator
from tablestream.operators.joins.as_of_join import OBSERVED, AsOfJoin
from tablestream.operators.joins.foreign_key_answer import ForeignKeyAnswer
from tablestream.operators.joins.foreign_key_subscribe import TO_RESULT, ForeignKeySubscribe, Rules
from tablestream.operators.joins.global_join import GlobalJoin
from tablestream.operators.joins.history_answer import HistoryAnswer
from tablestream.operators.joins.history_join import HistoryJoin
from tablestream.operators.joins.history_subscribe import HistorySubscribe
from tablestream.operators.joins.key_join import Branch
from tablestream.operators.joins.key_join import KeyJoin as KeyJoinOperator
from tablestream.operators.joins.result_history import ResultHistory
from tablestream.operators.joins.right_rows import RightRows
from tablestream.operators.joins.stream_table_join import StreamTableJoin
from tablestream.operators.operator import Operator
from tablestream.operators.reduce.accumulated import Accumulated
from tablestream.operators.reduce.aggregate import Aggregate as AggregateOperator
from tablestream.operators.reduce.collected import Collected, Kind
from tablestream.operators.reduce.fold import AGGREGATE, Fold, UserFunctions
from tablestream.operators.reduce.record_groups import RecordGroups
from tablestream.operators.reduce.regroup import Regroup
from tablestream.operators.reduce.top import Top as TopOperator
from tablestream.operators.reduce.totals import Count, Function, Sum
from tablestream.operators.sequence import SequenceBy as SequenceByOperator
from tablestream.operators.to_table import ToTable as ToTableOperator
from tablestream.operators.upsert import Upsert
from tablestream.operators.versioned_table import VersionedTable
from tablestream.planner.lowering import Draft, Groups, History, Lowering, Made, Ranks, Remembered, Want
from tablestream.planner.physical_plan import Inputs
from tablestream.planner.result import Carried, Pointer, Result, foreign_fields, key_fields
from tablestream.runtime.rounds import EVERY_SHARD
from tablestream.state.changes import FOREIGN_HASH, KEY_HASH, foreign_columns
from tablestream.topology.graph import (
    base_of,
    fused,
    history_of,
    leaf_paths,
    leaves_of,
    path_from_base,
)
from tablestream.topology.nodes import (
    Aggregate,
    Deduplicate,
    Fields,
    ForeignKeyJoin,
    KeyJoin,
    Materialize,
    Measure,
    Node,
    OneParent,
    OneToMany,
    Reorder,
    Select,
    SequenceBy,
    Source,
    Suppress,
    Top,
    ToTable,
)
from tablestream.topology.streams import FlatMap, StreamJoin, ToStream


def _source(lowering: Lowering, node: Source) -> Made:
    """A source's records appear before the first round or, if they wait for each other, after it."""
    return Made(0 if lowering.mode.align is None else 1, Result.computed(node))


def _key_join(lowering: Lowering, node: KeyJoin) -> Made:
    leaves = leaves_of(node)
    if node.complete_history:
        return _history_join(lowering, node)
    number = 1 + max(lowering.produce(base_of(leaf)) for leaf, _ in leaves)
    wants = []
    for index, ((leaf, join), path) in enumerate(zip(leaves, leaf_paths(node), strict=True)):
        want = Want((path, index), number, KEY_HASH, f"{lowering.names[node]}[{index}]")
        side = (join, sum(above is join for _, above in leaves[:index]))
        if isinstance(leaf, ForeignKeyJoin) and leaf.right_only:
            lowering.read_directly(leaf, want)
        else:
            lowering.read(leaf, want, node.key, side=side)
        wants.append(want)
    stores = [base_of(leaf).serial for leaf, _ in leaves]
    operator = KeyJoinOperator(
        tree=_tree(node, iter(range(len(leaves)))),
        keys=lowering.key_of(node),
        values=tuple(lowering.value_of(leaf) for leaf, _ in leaves),
        stores=tuple(stores.index(store) for store in stores),
        minimal=tuple(lowering.reads_minimal(leaf) for leaf, _ in leaves),
        early=tuple(
            lowering.mode.compat and isinstance(base_of(leaf), Source | Deduplicate) for leaf, _ in leaves
        ),
        # A star join has no counterpart in Kafka Streams: it is one join, in compat mode, too.
        atomic=not lowering.mode.compat or any(join.own_times for _, join in leaves),
    )
    remembers = tuple(
        Remembered(leaf, (spec.name,), node.key)
        for (leaf, _), spec in zip(leaves, operator.traces, strict=True)
        if not (isinstance(leaf, ForeignKeyJoin) and leaf.right_only)
    )
    lowering.drafts.append(Draft(node, lowering.names[node], number, operator, wants, remembers=remembers))
    return Made(number, Result.keyed(node, _numbered(leaf for leaf, _ in leaves)))


def _numbered(tables: Iterable[Node]) -> Iterator[tuple[str, Node]]:
    """The columns in which an operator emits the values of several tables."""
    return ((f"v{number}", table) for number, table in enumerate(tables))


def _history_join(lowering: Lowering, node: KeyJoin) -> Made:
    """Join two versioned tables on their key, as of every time."""
    name = lowering.names[node]
    number = 1 + max(lowering.produce(base_of(side)) for side in node.parents)
    wants = []
    for index, side in enumerate(node.parents):
        want = Want(((*path_from_base(side), node.serial), index), number, KEY_HASH, f"{name}[{index}]")
        lowering.read(side, want, node.key)
        wants.append(want)
    values = (lowering.value_of(node.left), lowering.value_of(node.right))
    operator = HistoryJoin(node.how, lowering.key_of(node), values, _history_us(node))
    lowering.drafts.append(Draft(node, name, number, operator, wants))
    return Made(number, Result.keyed(node, _numbered(node.parents), latest=True))


def _foreign_key_history(lowering: Lowering, node: ForeignKeyJoin) -> Made:
    """Join two versioned tables on a foreign key: three operators, one after the other."""
    name, history_us = lowering.names[node], _history_us(node)
    first = 1 + lowering.produce(base_of(node.left))
    second = 1 + max(first, lowering.produce(base_of(node.right)))
    keys, foreign = lowering.key_of(node), lowering.keys(node.foreign, foreign_columns(len(node.foreign)))
    values = (lowering.value_of(node.left), lowering.value_of(node.right))
    to_left, to_right = ((*path_from_base(view), node.serial) for view in node.parents)
    pointing = Want((to_left, 1), first, KEY_HASH, f"{name}[subscribe]")
    pointed = Want((to_right, 0), second, FOREIGN_HASH, f"{name}[right]")
    subscriptions = Want(((node.serial,), 2), second, FOREIGN_HASH, f"{name}[subscriptions]")
    pieces = Want(((node.serial,), 3), second + 1, KEY_HASH, f"{name}[pieces]")
    pointer = Pointer(node.on, node.foreign)
    lowering.read(node.left, pointing, node.key, pointer)
    lowering.read(node.right, pointed, node.foreign)
    lowering.wants += [subscriptions, pieces]
    keep_left = node.how == "left"
    subscribe = HistorySubscribe(keys, foreign, *values, history_us, keep_left=keep_left)
    answer = HistoryAnswer(keys, foreign, *values, history_us, keep_left=keep_left)
    result = ResultHistory(keys, values, history_us)
    lowering.drafts += [
        Draft(node, f"{name}/subscribe", first, subscribe, [pointing], (subscriptions, pieces)),
        Draft(node, f"{name}/answer", second, answer, [subscriptions, pointed], (pieces,)),
        Draft(node, name, second + 1, result, [pieces]),
    ]
    return Made(second + 1, _many_to_one(node, pointer, node.left.key, latest=True))


def _many_to_one(
    node: ForeignKeyJoin | StreamJoin,
    pointer: Pointer,
    own: Fields,
    unmatched: Fields = (),
    *,
    latest: bool = False,
) -> Result:
    """The result whose rows are those of the left side, each with the row that it points at.

    `own`: the key under which they arrive; `unmatched`: the key of unmatched right rows.
    """
    columns, foreign = key_fields(own), foreign_fields(unmatched)
    rows = (
        Carried(node.left, "v0", tuple(key_fields(node.left.key)), side=0),
        Carried(node.right, "v1", tuple(foreign), pointer, side=1),
    )
    return Result(node, columns | foreign, (*columns, *foreign), rows, latest)


def _one_to_each(node: OneToMany) -> Result:
    """The result whose rows are those of the right side, each with the row that points at it, keyed by both keys."""
    columns, foreign = key_fields(node.right.key), foreign_fields(node.foreign)
    rows = (
        Carried(node.right, "v0", tuple(columns), side=1),
        Carried(node.left, "v1", tuple(foreign), side=0),
    )
    return Result(node, columns | foreign, (*foreign, *columns), rows)


def _history_us(node: Node) -> int:
    """How far back a table that is known to be versioned keeps versions."""
    history_us = history_of(node)
    assert history_us is not None  # noqa: S101 - the handles see to it
    return history_us


def _foreign_key_join(lowering: Lowering, node: ForeignKeyJoin) -> Made:
    if node.complete_history:
        return _foreign_key_history(lowering, node)
    if lowering.meets_on_key(node):
        return _join_on_whole_key(lowering, node)
    rules = Rules.LEFT if node.how in {"left", "outer"} else Rules.INNER
    number = _pointing(lowering, node, many=node.left, one=node.right, rules=rules)
    if node.right_only:
        return Made(number, Result.computed(node))
    unmatched = node.foreign if node.keeps_unmatched else ()
    return Made(number, _many_to_one(node, Pointer(node.on, node.foreign), node.left.key, unmatched))


def _join_on_whole_key(lowering: Lowering, node: ForeignKeyJoin) -> Made:
    """A join whose ``on`` is the whole left key: one operator, as for a join without ``on``."""
    number, name = 1 + max(lowering.produce(base_of(side)) for side in node.parents), lowering.names[node]
    wants = []
    for index, side in enumerate(node.parents):
        want = Want(((*path_from_base(side), node.serial), index), number, KEY_HASH, f"{name}[{index}]")
        lowering.read(side, want, node.left.key, side=(node, index))
        wants.append(want)
    operator = KeyJoinOperator(
        tree=Branch(0, 1, node.how),
        keys=lowering.key_of(node.left),
        values=(lowering.value_of(node.left), lowering.value_of(node.right)),
        stores=(0, 1),
        minimal=(lowering.reads_minimal(node.left), lowering.reads_minimal(node.right)),
        early=(False, False),
    )
    remembers = tuple(
        Remembered(side, (spec.name,), node.left.key)
        for side, spec in zip(node.parents, operator.traces, strict=True)
    )
    lowering.drafts.append(Draft(node, name, number, operator, wants, remembers=remembers))
    return Made(number, _many_to_one(node, Pointer(node.on, node.foreign), node.left.key))


def _one_to_many(lowering: Lowering, node: OneToMany) -> Made:
    number = _pointing(lowering, node, many=node.right, one=node.left, rules=Rules.PAIR)
    return Made(number, _one_to_each(node))


def _pointing(
    lowering: Lowering, node: ForeignKeyJoin | OneToMany, *, many: Node, one: Node, rules: Rules
) -> int:
    """Join a table to the table that its rows point at: two operators, one after the other; return the last round."""
    name = lowering.names[node]
    first = 1 + lowering.produce(base_of(many))
    second = 1 + max(first, lowering.produce(base_of(one)))
    keys, foreign = lowering.key_of(many), lowering.keys(node.foreign, foreign_columns(len(node.foreign)))
    to_many, to_one = ((*path_from_base(view), node.serial) for view in (many, one))
    shared = base_of(many) is base_of(one)
    if shared:  # a row's right role comes first, wherever its views were declared
        to_many = to_one = min(to_many, to_one)
    pointing = Want((to_many, 1), first, KEY_HASH, f"{name}[subscribe]")
    pointed = Want((to_one, 0), second, FOREIGN_HASH, f"{name}[right]")
    messages = Want(((node.serial,), 2), second, FOREIGN_HASH, f"{name}[subscriptions]")
    lowering.read(many, pointing, many.key, Pointer(node.on, node.foreign), side=(node, 0))
    lowering.read(one, pointed, node.foreign, side=(node, 1))
    copied = isinstance(node, ForeignKeyJoin) and node.copied
    stale = lowering.mode.compat and shared and rules is not Rules.PAIR
    subscribe = ForeignKeySubscribe(
        rules=rules,
        keys=keys,
        foreign_keys=foreign,
        value=lowering.value_of(many),
        right_value=lowering.value_of(one),
        keep_right=node.keeps_unmatched,
        compare_values=stale,
    )
    answer = ForeignKeyAnswer(
        keep_left=rules is Rules.LEFT,
        keys=keys,
        foreign_keys=foreign,
        left_value=lowering.value_of(many),
        right_value=lowering.value_of(one),
        pair=rules is Rules.PAIR,
        keep_right=node.keeps_unmatched,
        minimal_right=lowering.reads_minimal(one),
        atomic=not lowering.mode.compat,
        stale=stale,
    )
    right_only = isinstance(node, ForeignKeyJoin) and node.right_only
    right = Remembered(one, (answer.right_rows.name,), node.foreign)
    if right_only and isinstance(one, Select):  # a star join puts keys before the rows it looks up
        right = replace(right, table=one.parent, skipped=len(one.parent.key))
    if copied:
        pointing.round = pointed.round = max(first, 1 + lowering.produce(base_of(one)))
        pointed.route = EVERY_SHARD
        both = GlobalJoin(subscribe, answer)
        operator = RightRows(both, 0, tuple(keys)) if right_only else both
        reads = [pointing, pointed]
        lowering.drafts.append(Draft(node, name, pointed.round, operator, reads, remembers=(right,)))
        return pointed.round
    lowering.wants.append(messages)
    halves: tuple[Operator, Operator] = (subscribe, answer)
    if right_only:
        halves = RightRows(subscribe, TO_RESULT, tuple(keys)), RightRows(answer, 0, tuple(keys))
    lowering.drafts.append(Draft(node, f"{name}/subscribe", first, halves[0], [pointing], (messages, None)))
    reads = [messages, pointed]
    lowering.drafts.append(Draft(node, f"{name}/answer", second, halves[1], reads, remembers=(right,)))
    return second


def _aggregate(lowering: Lowering, node: Aggregate) -> Made:
    """Aggregate by groups. A table needs two operators, one after the other; a stream needs only the second."""
    groups, result = _groups(lowering, node), Result.computed(node, "v0")
    if not node.parent.is_stream:
        return Made(_regrouped(lowering, node, groups, _remembered_groups(node, groups)), result)
    name, number = lowering.names[node], 1 + lowering.produce_stream(node.parent)
    records = Want(((node.serial,), 1), number, FOREIGN_HASH, f"{name}[records]")
    lowering.read_stream(node.parent, records, node.parent.key, *_grouping(lowering, node))
    operator = RecordGroups(groups, lowering.key_of(node.parent))
    remembers = _remembered_groups(node, operator)
    lowering.drafts.append(Draft(node, name, number, operator, [records], remembers=remembers))
    return Made(number, result)


def _top(lowering: Lowering, node: Top) -> Made:
    """The first rows of each group."""
    ranks = Ranks(tuple(f"c{of}" for of, _ in node.order), tuple(down for _, down in node.order), node.n)
    operator = TopOperator(
        keys=lowering.key_of(node.parent),
        group_keys=lowering.keys(node.foreign, foreign_columns(len(node.foreign))),
        value=lowering.struct_of(node.input_fields),
        result=lowering.value_of(node),
        order=ranks.order,
        n=node.n,
        atomic=not lowering.mode.compat,
    )
    remembers = (Remembered(node, tuple(spec.name for spec in operator.traces), node.key, ranks=ranks),)
    return Made(_regrouped(lowering, node, operator, remembers), Result.computed(node, "v0"))


def _grouping(lowering: Lowering, node: Aggregate | Top) -> tuple[Pointer, Inputs]:
    """How to compute a row's group, and which of its columns travel."""
    pointer = Pointer(node.on, node.foreign, null_parts=not lowering.mode.compat)
    return pointer, Inputs(tuple(one.expression for one in node.inputs), node.input_fields)


def _regrouped(
    lowering: Lowering,
    node: Aggregate | Top,
    operator: AggregateOperator | Fold | TopOperator,
    remembers: tuple[Remembered, ...],
) -> int:
    """Place an operator that reads rows by group, after one that sends them to their groups; return its round."""
    name, first = lowering.names[node], 1 + lowering.produce(base_of(node.parent))
    rows = Want(((*path_from_base(node.parent), node.serial), 1), first, KEY_HASH, f"{name}[rows]")
    messages = Want(((node.serial,), 2), first + 1, FOREIGN_HASH, f"{name}[groups]")
    lowering.read(node.parent, rows, node.parent.key, *_grouping(lowering, node), latest_only=True)
    lowering.wants.append(messages)
    regroup = Regroup(operator.keys, operator.group_keys, operator.value, operator.atomic)
    word = "top" if isinstance(node, Top) else "aggregate"
    lowering.drafts += [
        Draft(node, f"{name}/regroup", first, regroup, [rows], (messages,)),
        Draft(node, f"{name}/{word}", first + 1, operator, [messages], remembers=remembers),
    ]
    return first + 1


def _remembered_groups(node: Aggregate, operator: Operator) -> tuple[Remembered, ...]:
    traces = tuple(spec.name for spec in operator.traces)
    if node.functions is not None:
        return (Remembered(node, traces, node.key, AGGREGATE),)
    groups = Groups(node.input_fields, node.measures, node.parent.is_stream)
    return (Remembered(node, traces, node.key, groups=groups),)


def _groups(lowering: Lowering, node: Aggregate) -> AggregateOperator | Fold:
    """The operator that keeps the aggregate of each group."""
    records = node.parent.is_stream
    keys = pl.Schema() if records else lowering.key_of(node.parent)
    groups, value = (
        lowering.keys(node.key, foreign_columns(len(node.key))),
        lowering.struct_of(node.input_fields),
    )
    keep_empty, atomic = node.keep_empty or lowering.mode.compat, not lowering.mode.compat
    if node.functions is not None:
        assert isinstance(node.functions, UserFunctions)  # noqa: S101 - the handles make it
        result, user = lowering.value_of(node), node.functions
        return Fold(keys, groups, value, result, user, keep_empty=keep_empty, atomic=atomic)
    inputs, results = lowering.types(node.input_fields), lowering.types(node.value)
    functions = tuple(
        aggregate_function(measure, list(inputs.values()), name, result, records=records)
        for measure, (name, result) in zip(node.measures, results.items(), strict=True)
    )
    return AggregateOperator(keys, groups, value, functions, keep_empty=keep_empty, atomic=atomic)


def _suppress(lowering: Lowering, node: Suppress) -> Made:
    operator = SuppressOperator(
        keys=lowering.key_of(node),
        value=lowering.value_of(node),
        until_us=node.until_us,
        max_records=node.max_records,
        max_bytes=node.max_bytes,
        fail_when_full=node.fail_when_full,
        atomic=not lowering.mode.compat,
        wall_clock_us=node.wall_clock_us,
        minimal=lowering.reads_minimal(node.parent),
    )
    return _reading(lowering, node, operator, "changes", result=Result.computed(node, "v0"))


def _stream_join(lowering: Lowering, node: StreamJoin) -> Made:
    """Join records with the rows of a table at the key that they point at or, for a global table, in any shard."""
    name = lowering.names[node]
    number = 1 + max(lowering.produce_stream(node.left), lowering.produce(base_of(node.right)))
    route = KEY_HASH if node.copied else FOREIGN_HASH
    records = Want(((node.serial,), 1), number, route, f"{name}[records]")
    # A change of the table is written before anyone else reads it; it emits nothing here.
    rows = Want(((0, node.serial), 0), number, EVERY_SHARD if node.copied else FOREIGN_HASH, f"{name}[table]")
    pointer = Pointer(node.on, node.foreign)
    lowering.read_stream(node.left, records, node.left.key, pointer)
    lowering.read(node.right, rows, node.foreign)
    keys, foreign = (
        lowering.key_of(node.left),
        lowering.keys(node.foreign, foreign_columns(len(node.foreign))),
    )
    values, history_us = (lowering.value_of(node.left), lowering.value_of(node.right)), history_of(node.right)
    keep_left, compat = node.how == "left", lowering.mode.compat
    operator: Operator = StreamTableJoin(keys, foreign, *values, keep_left=keep_left, atomic=not compat)
    history = None
    if history_us is not None:
        history = History(history_us, f"{name}/{OBSERVED}")
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
            corrections=node.corrections,
        )
    table = Remembered(node.right, (operator.traces[-1].name,), node.foreign, history=history)
    lowering.drafts.append(Draft(node, name, number, operator, [records, rows], remembers=(table,)))
    return Made(number, _many_to_one(node, pointer, node.key))


def _kept(lowering: Lowering, node: ToStream | Materialize) -> Made:
    """A table that an operator remembers, so that it can tell which messages change something."""
    keys, value, minimal = lowering.key_of(node), lowering.value_of(node), lowering.reads_minimal(node.parent)
    kept = isinstance(node, Materialize)
    rows = Upsert(keys, value, minimal=minimal, keep_rows=kept)
    if not isinstance(node, Materialize) or node.history_us is None:
        remembers = (Remembered(node, (rows.traces[0].name,), node.key),) if kept else ()
        return _reading(lowering, node, rows, "rows", remembers=remembers)
    versions = VersionedTable(keys, value, node.history_us, forgetful=lowering.mode.compat)
    history = History(node.history_us, lowering.names[node])
    remembers = (Remembered(node, (versions.traces[0].name,), node.key, history=history),)
    result = Result.computed(node, latest=True)
    if not minimal:
        return _reading(lowering, node, versions, "rows", remembers=remembers, result=result)
    return Made(
        _versions_of_rows(lowering, node, Upsert(keys, value, minimal=True), versions, remembers), result
    )


def _versions_of_rows(
    lowering: Lowering,
    node: Materialize,
    rows: Upsert,
    versions: VersionedTable,
    remembers: tuple[Remembered, ...],
) -> int:
    """The versions of a filtered table. The row that arrived last decides what is a change, whatever its time."""
    name, first = lowering.names[node], 1 + lowering.produce(base_of(node.parent))
    read = Want(((node.serial,), 0), first, KEY_HASH, f"{name}[rows]")
    changes = Want(((node.serial,), 1), first + 1, KEY_HASH, f"{name}[changes]")
    lowering.read(node.parent, read, node.key)
    lowering.wants.append(changes)
    lowering.drafts.append(Draft(node, f"{name}/rows", first, rows, [read], (changes,)))
    lowering.drafts.append(Draft(node, name, first + 1, versions, [changes], remembers=remembers))
    return first + 1


def _reorder(lowering: Lowering, node: Reorder) -> Made:
    operator = ReorderOperator(
        lowering.key_of(node), lowering.value_of(node), node.bound_us, splits_steps=not lowering.mode.compat
    )
    return _reading(lowering, node, operator, "records")


def _sequence_by(lowering: Lowering, node: SequenceBy) -> Made:
    (sequence,) = lowering.types((node.sequence,)).values()
    operator = SequenceByOperator(lowering.key_of(node), lowering.value_of(node), sequence, node.retention_us)
    return _reading(lowering, node, operator, "changes")


def _deduplicate(lowering: Lowering, node: Deduplicate) -> Made:
    operator = DeduplicateOperator(lowering.key_of(node), lowering.value_of(node))
    return _reading(lowering, node, operator, "records", FOREIGN_HASH)


def _flat_map(lowering: Lowering, node: FlatMap) -> Made:
    operator = FlatMapOperator(
        lowering.key_of(node),
        lowering.value_of(node.parent),
        lowering.value_of(node),
        takes_apart=node.takes_apart,
    )
    return _reading(lowering, node, operator, "records")


def _to_table(lowering: Lowering, node: ToTable) -> Made:
    operator = ToTableOperator(
        lowering.key_of(node), lowering.value_of(node), atomic=not lowering.mode.compat
    )
    return _reading(lowering, node, operator, "records")


def _reading(
    lowering: Lowering,
    node: OneParent,
    operator: Operator,
    read: str,
    route: str = KEY_HASH,
    remembers: tuple[Remembered, ...] = (),
    result: Result | None = None,
) -> Made:
    """Place an operator that reads one table or stream by its key.

    `read` is the label of its port. Pass `result` if it is not the node's value as ``v``.
    """
    number, name = 1 + lowering.produce_stream(node.parent), lowering.names[node]
    want = Want(((node.serial,), 0), number, route, f"{name}[{read}]")
    lowering.read_stream(node.parent, want, node.key)
    lowering.drafts.append(Draft(node, name, number, operator, [want], remembers=remembers))
    return Made(number, result or Result.computed(node))


def aggregate_function(
    measure: Measure, inputs: Sequence[pl.DataType], name: str, result: pl.DataType, *, records: bool
) -> Function | Collected:
    """How a declared aggregate is computed; `name` is what users call it."""
    if measure.column is None:
        return Count()
    column, of = f"c{measure.column}", inputs[measure.column]
    if measure.function == "count":
        return Count(column)
    if measure.function in {"sum", "avg"}:
        return Sum(column, of, result, average=measure.function == "avg", name=name)
    if measure.parameter is not None:
        # The library of sketches is an extra: only plans with a sketch need it.
        from tablestream.operators.reduce.sketched import Sketch, Sketched

        return Sketched(Sketch(measure.function), column, measure.parameter, result)
    if records:
        return Accumulated(Kind(measure.function), column, of, result)
    return Collected(Kind(measure.function), column, result)


_PLACE: dict[type[Node], Callable[[Lowering, Any], Made]] = {
    Source: _source,
    KeyJoin: _key_join,
    ForeignKeyJoin: _foreign_key_join,
    OneToMany: _one_to_many,
    StreamJoin: _stream_join,
    Aggregate: _aggregate,
    Top: _top,
    Suppress: _suppress,
    Materialize: _kept,
    ToStream: _kept,
    Deduplicate: _deduplicate,
    SequenceBy: _sequence_by,
    Reorder: _reorder,
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


def place(lowering: Lowering, base: Node) -> Made:
    """Place the operators of a base and everything upstream of it; return where its changes appear."""
    return _PLACE[type(base)](lowering, base)
