"""The lowering rules of joins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import polars as pl

from tablestream.operators.joins.as_of_answer import AsOfAnswer
from tablestream.operators.joins.as_of_join import OBSERVED, AsOfJoin
from tablestream.operators.joins.foreign_key_answer import SHARD, ForeignKeyAnswer
from tablestream.operators.joins.foreign_key_subscribe import TO_RESULT, ForeignKeySubscribe, Rules
from tablestream.operators.joins.global_join import GlobalJoin, RightRows
from tablestream.operators.joins.history_answer import HistoryAnswer, HistorySubscribe
from tablestream.operators.joins.history_join import HistoryJoin
from tablestream.operators.joins.key_join import Branch, has_own_times
from tablestream.operators.joins.key_join import KeyJoin as KeyJoinOperator
from tablestream.operators.joins.many_to_many import ManyToMany as ManyToManyOperator
from tablestream.operators.joins.many_to_many import PairSubscribe
from tablestream.operators.joins.result_history import ResultHistory
from tablestream.operators.joins.stream_table_join import StreamTableJoin
from tablestream.operators.operator import Operator
from tablestream.planner.lowering import Copies, Draft, History, Lowering, Made, Remembered, Want
from tablestream.planner.result import Carried, Pointer, Result, foreign_fields, key_fields
from tablestream.runtime.ports import EVERY_SHARD
from tablestream.state.changes import AS_OF, FOREIGN_HASH, KEY_HASH
from tablestream.topology.graph import (
    Leaf,
    ancestors,
    base_of,
    fused,
    history_of,
    leaves_of,
    path_from_base,
)
from tablestream.topology.nodes import (
    AsOf,
    Deduplicate,
    Fields,
    ForeignKeyJoin,
    KeyJoin,
    ManyToMany,
    Node,
    OneToMany,
    Source,
)
from tablestream.topology.streams import StreamJoin


def key_join(lowering: Lowering, node: KeyJoin) -> Made:
    """Join all tables of a tree of joins on one key: one operator."""
    leaves = leaves_of(node)
    if node.complete_history:
        return _history_join(lowering, node)
    draft = _on_key(lowering, node, leaves, _tree(node, iter(range(len(leaves)))))
    tables = [leaf.table for leaf in leaves]
    result = Result.keyed(node, _numbered(tables))
    if not lowering.options.compat:
        # of a table that is read twice, under a key with a null, a side can have the row alone
        rows = (
            replace(row, side=(leaf.join, leaf.side)) if tables.count(leaf.table) > 1 else row
            for row, leaf in zip(result.rows, leaves, strict=True)
        )
        result = replace(result, rows=tuple(rows))
    return Made(draft.round, result, (draft,))


def _on_key(
    lowering: Lowering, node: KeyJoin | ForeignKeyJoin, leaves: Sequence[Leaf], tree: Branch
) -> Draft:
    """The operator that joins tables by their key; `tree` says how, with the numbers of the leaves."""
    number = 1 + max(lowering.produce(base_of(leaf.table)) for leaf in leaves)
    wants = []
    for index, (table, join, side, path) in enumerate(leaves):
        want = Want((path, index), number, KEY_HASH, f"{lowering.names[node]}[{index}]")
        if isinstance(table, ForeignKeyJoin) and table.right_only:
            wants.append(replace(want, directly=table))
        else:
            wants.append(lowering.read(table, want, node.key, side=(join, side)))
    tables = [leaf.table for leaf in leaves]
    stores = [base_of(table).serial for table in tables]
    operator = KeyJoinOperator(
        tree=tree,
        keys=lowering.key_of(node),
        values=tuple(lowering.value_of(table) for table in tables),
        stores=tuple(stores.index(store) for store in stores),
        minimal=tuple(lowering.reads_minimal(table) for table in tables),
        early=tuple(
            lowering.options.compat and isinstance(base_of(table), Source | Deduplicate) for table in tables
        ),
        # A star join has no counterpart in Kafka Streams: it is one join, in compat mode, too.
        atomic=not lowering.options.compat or has_own_times(tree),
        nulls=() if lowering.options.compat else _meeting(tree),
        needed=_needed(lowering, [(leaf.join, leaf.side) for leaf in leaves]),
    )
    remembers = tuple(
        Remembered(table, (spec.name,), node.key)
        for table, spec in zip(tables, operator.traces, strict=True)
        if not (isinstance(table, ForeignKeyJoin) and table.right_only)
    )
    return Draft(node, lowering.names[node], number, operator, wants, remembers=remembers)


def _meeting(side: Branch | int) -> tuple[int, ...]:
    """Number the inputs: those with one number meet under a key with a null.

    An outer join does not lose a row, and its result has one row for a key: there the rows that both sides keep meet. A
    star join looks rows up for its own, under their keys, with nulls, too.
    """
    return tuple(_meeting_inputs(side)[0])


def _meeting_inputs(side: Branch | int) -> tuple[list[int], int]:
    """The numbers of the inputs of a side, from left to right, and that of the input whose row is there in any case."""
    if isinstance(side, int):
        return [side], side
    (left, kept), (right, other) = map(_meeting_inputs, (side.left, side.right))
    if side.how == "outer" or side.own_times:
        right = [kept if one == other else one for one in right]
    return [*left, *right], other if side.how == "right" else kept


def _tree(join: KeyJoin, numbers: Iterator[int]) -> Branch:
    """The tree of a fused join, its leaves numbered left to right."""
    sides = []
    for side in join.parents:
        inner = fused(side)
        sides.append(_tree(inner, numbers) if inner is not None else next(numbers))
    return Branch(sides[0], sides[1], join.how, join.own_times)


def _needed(lowering: Lowering, sides: Sequence[tuple[Node, int]]) -> tuple[tuple[str, ...], ...] | None:
    """The columns that are needed of some sides of joins; None: every change counts."""
    found = [lowering.needed_of(*side) for side in sides]
    return tuple(one for one in found if one is not None) if None not in found else None


def _numbered(tables: Iterable[Node]) -> Iterator[tuple[str, Node]]:
    """The columns in which an operator emits the values of several tables."""
    return ((f"v{number}", table) for number, table in enumerate(tables))


def _history_join(lowering: Lowering, node: KeyJoin) -> Made:
    """Join two versioned tables on their key, as of every time."""
    number = 1 + max(lowering.produce(base_of(side)) for side in node.parents)
    wants = []
    for index, side in enumerate(node.parents):
        order = (*path_from_base(side), node.serial), index
        want = Want(order, number, KEY_HASH, f"{lowering.names[node]}[{index}]")
        wants.append(lowering.read(side, want, node.key))
    values = (lowering.value_of(node.left), lowering.value_of(node.right))
    operator = HistoryJoin(node.how, lowering.key_of(node), values, _history_us(node))
    draft = Draft(node, lowering.names[node], number, operator, wants)
    return Made(number, Result.keyed(node, _numbered(node.parents), latest=True), (draft,))


def foreign_key_join(lowering: Lowering, node: ForeignKeyJoin) -> Made:
    """Join each left row with the right row that it points at: two operators or, on the whole key, one."""
    if node.complete_history:
        return _foreign_key_history(lowering, node)
    if node.as_of is not None:
        return _as_of_join(lowering, node, node.as_of)
    if lowering.meets_on_key(node):
        return _join_on_whole_key(lowering, node)
    rules = Rules.LEFT if node.how in {"left", "outer"} else Rules.INNER
    if node.right_only:
        result = Result.computed(node)
    else:
        unmatched = node.foreign if node.keeps_unmatched else ()
        result = _of_left_rows(node, Pointer(node.on, node.foreign), node.left.key, unmatched)
    return _pointing(lowering, node, result, many=node.left, one=node.right, rules=rules)


def _join_on_whole_key(lowering: Lowering, node: ForeignKeyJoin) -> Made:
    """A join whose ``on`` is the whole left key: one operator, as for a join without ``on``."""
    leaves = [
        Leaf(side, node, number, (*path_from_base(side), node.serial))
        for number, side in enumerate(node.parents)
    ]
    draft = _on_key(lowering, node, leaves, Branch(0, 1, node.how))
    return Made(draft.round, _of_left_rows(node, Pointer(node.on, node.foreign), node.left.key), (draft,))


def one_to_many(lowering: Lowering, node: OneToMany) -> Made:
    """Join each row of the one with the rows of the many that point at it: two operators."""
    result = _one_to_each(node)
    return _pointing(lowering, node, result, many=node.right, one=node.left, rules=Rules.PAIR)


def _pointing(
    lowering: Lowering,
    node: ForeignKeyJoin | OneToMany,
    result: Result,
    *,
    many: Node,
    one: Node,
    rules: Rules,
) -> Made:
    """Join a table to the table that its rows point at: two operators, one after the other, or one in each shard."""
    name, copied = lowering.names[node], isinstance(node, ForeignKeyJoin) and node.copied
    first = 1 + lowering.produce(base_of(many))
    second = 1 + max(first, lowering.produce(base_of(one)))
    if copied:
        first = second = max(first, 1 + lowering.produce(base_of(one)))
    spread, to_shards = _spread(lowering, node), EVERY_SHARD if copied else FOREIGN_HASH
    keys, foreign = lowering.key_of(many), lowering.foreign_of(node.foreign)
    to_many, to_one = ((*path_from_base(view), node.serial) for view in (many, one))
    shared = base_of(many) is base_of(one)
    if shared:  # a row's right role comes first, wherever its views were declared
        to_many = to_one = min(to_many, to_one)
    pointing = Want((to_many, 1), first, KEY_HASH, f"{name}[subscribe]")
    pointed = Want((to_one, 0), second, to_shards, f"{name}[right]", copies=spread or 1)
    messages = Want(((node.serial,), 2), second, FOREIGN_HASH, f"{name}[subscriptions]", spread=spread or 1)
    pointing = lowering.read(many, pointing, many.key, Pointer(node.on, node.foreign), side=(node, 0))
    pointed = lowering.read(one, pointed, node.foreign, side=(node, 1))
    stale = lowering.options.compat and shared and rules is not Rules.PAIR
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
        atomic=not lowering.options.compat,
        stale=stale,
        spread=spread,
        needed=lowering.needed_of(node, 0 if isinstance(node, OneToMany) else 1),
    )
    right_only = isinstance(node, ForeignKeyJoin) and node.right_only
    right = Remembered(one, (answer.right_rows.name,), node.foreign)
    if spread is not None:
        right = replace(right, copies=Copies(spread, lowering.options.shards, f"{name}/answer/{SHARD}"))
    if isinstance(node, ForeignKeyJoin) and node.looked_up is not one:
        right = replace(right, table=node.looked_up, skipped=len(one.key))
    if copied:
        both = GlobalJoin(subscribe, answer)
        operator = RightRows(both, 0, tuple(keys)) if right_only else both
        reads = [pointing, pointed]
        return Made(
            second, result, (Draft(node, name, second, operator, reads, remembers=(right,), copied=True),)
        )
    halves: tuple[Operator, Operator] = (subscribe, answer)
    if right_only:
        halves = RightRows(subscribe, TO_RESULT, tuple(keys)), RightRows(answer, 0, tuple(keys))
    drafts = (
        Draft(node, f"{name}/subscribe", first, halves[0], [pointing], (messages, None)),
        Draft(node, f"{name}/answer", second, halves[1], [messages, pointed], remembers=(right,)),
    )
    return Made(second, result, drafts)


def _spread(lowering: Lowering, node: ForeignKeyJoin | OneToMany) -> int | None:
    """Over how many shards the left rows of one right key are spread; None: they share one."""
    if not isinstance(node, ForeignKeyJoin) or node.spread is None:
        return None
    lowering.not_of_kafka(
        node,
        "spread=: the answers to a right change come in the order of the left keys there, and spread over shards"
        " they do not",
        "Omit compat= or spread=.",
    )
    return min(node.spread, lowering.options.shards) if lowering.options.shards > 1 else None


def _foreign_key_history(lowering: Lowering, node: ForeignKeyJoin) -> Made:
    """Join two versioned tables on a foreign key: three operators, one after the other."""
    name, history_us = lowering.names[node], _history_us(node)
    first = 1 + lowering.produce(base_of(node.left))
    second = 1 + max(first, lowering.produce(base_of(node.right)))
    keys, foreign = lowering.key_of(node), lowering.foreign_of(node.foreign)
    values = (lowering.value_of(node.left), lowering.value_of(node.right))
    to_left, to_right = ((*path_from_base(view), node.serial) for view in node.parents)
    pointing = Want((to_left, 1), first, KEY_HASH, f"{name}[subscribe]")
    pointed = Want((to_right, 0), second, FOREIGN_HASH, f"{name}[right]")
    subscriptions = Want(((node.serial,), 2), second, FOREIGN_HASH, f"{name}[subscriptions]")
    pieces = Want(((node.serial,), 3), second + 1, KEY_HASH, f"{name}[pieces]")
    pointer = Pointer(node.on, node.foreign)
    pointing = lowering.read(node.left, pointing, node.key, pointer)
    pointed = lowering.read(node.right, pointed, node.foreign)
    keep_left = node.how == "left"
    subscribe = HistorySubscribe(keys, foreign, *values, history_us, keep_left=keep_left)
    answer = HistoryAnswer(keys, foreign, *values, history_us, keep_left=keep_left)
    result = ResultHistory(keys, values, history_us)
    drafts = (
        Draft(node, f"{name}/subscribe", first, subscribe, [pointing], (subscriptions, pieces)),
        Draft(node, f"{name}/answer", second, answer, [subscriptions, pointed], (pieces,)),
        Draft(node, name, second + 1, result, [pieces]),
    )
    return Made(second + 1, _of_left_rows(node, pointer, node.left.key, latest=True), drafts)


def _as_of_join(lowering: Lowering, node: ForeignKeyJoin, as_of: AsOf) -> Made:
    """Join each left row with the version of its right row as of a time of its own: two operators.

    To the first one the right key and the time together are the foreign key.
    """
    name, history_us = lowering.names[node], _history_us(node.right)
    first = 1 + lowering.produce(base_of(node.left))
    second = 1 + max(first, lowering.produce(base_of(node.right)))
    keys, foreign = lowering.key_of(node.left), lowering.foreign_of(node.foreign)
    values = (lowering.value_of(node.left), lowering.value_of(node.right))
    to_left, to_right = ((*path_from_base(view), node.serial) for view in node.parents)
    pointing = Want((to_left, 1), first, KEY_HASH, f"{name}[subscribe]")
    pointed = Want((to_right, 0), second, FOREIGN_HASH, f"{name}[right]")
    messages = Want(((node.serial,), 2), second, FOREIGN_HASH, f"{name}[subscriptions]")
    pointer = Pointer(node.on, node.foreign, as_of=as_of.micros)
    pointing = lowering.read(node.left, pointing, node.left.key, pointer, side=(node, 0))
    pointed = lowering.read(node.right, pointed, node.foreign)
    keep_left = node.how == "left"
    subscribe = ForeignKeySubscribe(
        Rules.LEFT if keep_left else Rules.INNER, keys, pl.Schema({**foreign, AS_OF: pl.Int64()}), *values
    )
    answer = AsOfAnswer(keep_left, keys, foreign, *values, history_us, as_of.forward)
    history = History(history_us, f"{name}/answer")
    right = Remembered(node.right, (answer.versions.name,), node.foreign, history=history)
    drafts = (
        Draft(node, f"{name}/subscribe", first, subscribe, [pointing], (messages, None)),
        Draft(node, f"{name}/answer", second, answer, [messages, pointed], remembers=(right,)),
    )
    return Made(second, _of_left_rows(node, pointer, node.left.key), drafts)


def _of_left_rows(
    node: ForeignKeyJoin | StreamJoin | ManyToMany,
    pointer: Pointer | None,
    own: Fields,
    right_key: Fields = (),
    *,
    latest: bool = False,
) -> Result:
    """The result whose rows are left rows, each with a right row: the one that it points at, or one that matches.

    `own`: the key under which they arrive. `right_key`: the right key, if it comes with them; with a `pointer` only
    unmatched right rows have it.
    """
    columns, foreign = key_fields(own), foreign_fields(right_key)
    rows = (
        Carried(node.left, "v0", tuple(key_fields(node.left.key)), side=(node, 0)),
        Carried(node.right, "v1", tuple(foreign), pointer, side=(node, 1)),
    )
    return Result(node, columns | foreign, (*columns, *foreign), rows, latest)


def _one_to_each(node: OneToMany) -> Result:
    """The result whose rows are those of the right side, each with the row that points at it, keyed by both keys."""
    columns, foreign = key_fields(node.right.key), foreign_fields(node.foreign)
    rows = (
        Carried(node.right, "v0", tuple(columns), side=(node, 1)),
        Carried(node.left, "v1", tuple(foreign), side=(node, 0)),
    )
    return Result(node, columns | foreign, (*foreign, *columns), rows)


def many_to_many(lowering: Lowering, node: ManyToMany) -> Made:
    """Send the rows of both sides to their join values, and join them there: two rounds, three operators."""
    name = lowering.names[node]
    lowering.not_of_kafka(
        node,
        "join on columns that are no key of either table",
        "Omit compat=, or join on a foreign key: give on= the columns that hold the other table's key.",
    )
    sides = tuple(zip(("left", "right"), node.parents, node.parents_on, strict=True))
    firsts = [1 + lowering.produce(base_of(side)) for side in node.parents]
    second = 1 + max(firsts)
    join_keys = lowering.foreign_of(node.foreign)
    keys = (lowering.key_of(node.left), lowering.key_of(node.right))
    values = (lowering.value_of(node.left), lowering.value_of(node.right))
    together = bool(set(ancestors(node.left)) & set(ancestors(node.right)))
    drafts, inputs = [], []
    for number, (label, side, on) in enumerate(sides):
        rows = Want(
            ((*path_from_base(side), node.serial), number), firsts[number], KEY_HASH, f"{name}[{label} rows]"
        )
        reads = lowering.read(side, rows, side.key, Pointer(on, node.foreign), side=(node, number))
        subscribe = PairSubscribe(
            Rules.PAIR,
            keys[number],
            join_keys,
            values[number],
            values[1 - number],
            tells_target=together,
            counts_nulls=node.counts_nulls,
        )
        inputs.append(Want(((node.serial,), 2 + number), second, FOREIGN_HASH, f"{name}[{label}]"))
        drafts.append(Draft(node, f"{name}/{label}", firsts[number], subscribe, [reads], (inputs[-1],)))
    right_keys = tuple(foreign_fields(node.right.key))
    operator = ManyToManyOperator(keys, join_keys, right_keys, values, moves_pairs=together)
    result = _of_left_rows(node, None, node.left.key, node.right.key)
    return Made(second, result, (*drafts, Draft(node, f"{name}/pairs", second, operator, inputs)))


def _history_us(node: Node) -> int:
    """How far back a table that is known to be versioned keeps versions."""
    history_us = history_of(node)
    assert history_us is not None  # noqa: S101 - the handles see to it
    return history_us


def stream_join(lowering: Lowering, node: StreamJoin) -> Made:
    """Join records with the rows of a table at the key that they point at or, for a global table, in any shard."""
    name = lowering.names[node]
    number = 1 + max(lowering.produce_stream(node.left), lowering.produce(base_of(node.right)))
    route = KEY_HASH if node.copied else FOREIGN_HASH
    records = Want(((node.serial,), 1), number, route, f"{name}[records]")
    # A change of the table is written before anyone else reads it; it emits nothing here.
    rows = Want(((0, node.serial), 0), number, EVERY_SHARD if node.copied else FOREIGN_HASH, f"{name}[table]")
    pointer = Pointer(node.on, node.foreign)
    reads = [
        lowering.read_stream(node.left, records, node.left.key, pointer),
        lowering.read(node.right, rows, node.foreign),
    ]
    operator, history_us = _looking_up(lowering, node), history_of(node.right)
    history = None if history_us is None else History(history_us, f"{name}/{OBSERVED}")
    table = Remembered(node.right, (operator.traces[-1].name,), node.foreign, history=history)
    waiting = Remembered(node.left, (operator.traces[0].name,), node.left.key, waits=True)
    remembers = (table,) if node.grace is None else (table, waiting)
    draft = Draft(node, name, number, operator, reads, remembers=remembers, copied=node.copied)
    return Made(number, _of_left_rows(node, pointer, node.key), (draft,))


def _looking_up(lowering: Lowering, node: StreamJoin) -> StreamTableJoin | AsOfJoin:
    """The operator that looks rows up: as they are now or, in a versioned table, as of each record's time."""
    keys, foreign = lowering.key_of(node.left), lowering.foreign_of(node.foreign)
    values, history_us = (lowering.value_of(node.left), lowering.value_of(node.right)), history_of(node.right)
    keep_left, compat = node.how == "left", lowering.options.compat
    if history_us is None:
        return StreamTableJoin(keys, foreign, *values, keep_left=keep_left, atomic=not compat)
    return AsOfJoin(
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
