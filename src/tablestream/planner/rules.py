"""The lowering rules: one function per stateful node turns it into operators.

The rules of joins and groups are in `join_rules` and `group_rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tablestream.errors import PlanError
from tablestream.operators.buffer.expiry import Expiry
from tablestream.operators.buffer.reorder import Reorder as ReorderOperator
from tablestream.operators.buffer.suppress import Suppress as SuppressOperator
from tablestream.operators.captured.captured_table import CapturedTable
from tablestream.operators.captured.moved_rows import MovedRows
from tablestream.operators.captured.transactions import IS_CONTROL, HeldChanges, TransactionGate
from tablestream.operators.deduplicate import Deduplicate as DeduplicateOperator
from tablestream.operators.flat_map import Elements
from tablestream.operators.flat_map import FlatMap as FlatMapOperator
from tablestream.operators.operator import Operator
from tablestream.operators.sequence import SequenceBy as SequenceByOperator
from tablestream.operators.to_table import ToTable as ToTableOperator
from tablestream.operators.upsert import Upsert
from tablestream.operators.versioned_table import VersionedTable
from tablestream.planner.group_rules import aggregate, over, top
from tablestream.planner.join_rules import foreign_key_join, key_join, many_to_many, one_to_many, stream_join
from tablestream.planner.lowering import Draft, History, Lowering, Made, Remembered, Want, struct_of
from tablestream.planner.physical_plan import Inputs
from tablestream.planner.result import Pointer, Result
from tablestream.runtime.ports import EVERY_SHARD
from tablestream.runtime.rejections import Shown
from tablestream.state.changes import FOREIGN_HASH, KEY_HASH, key_columns
from tablestream.topology.graph import base_of, deletes_lost, path_from_base
from tablestream.topology.nodes import (
    Aggregate,
    Captured,
    Deduplicate,
    Field,
    ForeignKeyJoin,
    Keep,
    KeyJoin,
    ManyToMany,
    Materialize,
    Node,
    OneParent,
    OneToMany,
    Reorder,
    SequenceBy,
    Source,
    Suppress,
    Top,
    Transactions,
)
from tablestream.topology.over import Over
from tablestream.topology.streams import FlatMap, StreamJoin, ToStream, ToTable


def _source(lowering: Lowering, node: Source) -> Made:
    """A source's records appear before the first round or, if they wait for each other, after it."""
    if node.bootstrapped:
        lowering.not_of_kafka(
            node,
            "bootstrap: Kafka Streams reads a table from its topic alone",
            "Omit compat= or bootstrap=.",
        )
    return Made(0 if lowering.options.align is None else 1, Result.computed(node))


def _suppress(lowering: Lowering, node: Suppress) -> Made:
    operator = SuppressOperator(
        keys=lowering.key_of(node),
        value=lowering.value_of(node),
        until_us=node.until_us,
        max_records=node.max_records,
        max_bytes=node.max_bytes,
        fail_when_full=node.fail_when_full,
        atomic=not lowering.options.compat,
        wall_clock_us=node.wall_clock_us,
        minimal=lowering.reads_minimal(node.parent),
    )
    held = Remembered(node, (operator.traces[0].name,), node.key, waits=True)
    result = Result.computed(node, "v0")
    return _reading(lowering, node, operator, "changes", remembers=(held,), result=result)


def _expiry(lowering: Lowering, node: Keep) -> Made:
    lowering.not_of_kafka(node, "freeze()" if node.freezes else "keep()")
    keys, value, by = lowering.key_of(node), lowering.value_of(node), node.by
    operator = Expiry(keys, value, node.keep_us, by is not None, node.wall_clock_us, node.freezes)
    # A row's own time travels as what the row points at.
    time = None if by is None else Pointer((by,), (Field("time", '"long"'),), null_parts=True)
    return _reading(lowering, node, operator, "changes", result=Result.computed(node, "v0"), pointer=time)


def _kept(lowering: Lowering, node: ToStream | Materialize) -> Made:
    """A table that an operator remembers, so that it can tell which messages change something."""
    keys, value, minimal = lowering.key_of(node), lowering.value_of(node), lowering.reads_minimal(node.parent)
    kept = isinstance(node, Materialize)
    rows = Upsert(keys, value, minimal=minimal, keep_rows=kept)
    if not isinstance(node, Materialize) or node.history_us is None:
        remembers = (Remembered(node, (rows.traces[0].name,), node.key),) if kept else ()
        return _reading(lowering, node, rows, "rows", remembers=remembers)
    versions = VersionedTable(keys, value, node.history_us, forgetful=lowering.options.compat)
    history = History(node.history_us, lowering.names[node])
    remembers = (Remembered(node, (versions.traces[0].name,), node.key, history=history),)
    if not minimal:
        result = Result.computed(node, latest=True)
        return _reading(lowering, node, versions, "rows", remembers=remembers, result=result)
    return _versions_of_rows(lowering, node, Upsert(keys, value, minimal=True), versions, remembers)


def _versions_of_rows(
    lowering: Lowering,
    node: Materialize,
    rows: Upsert,
    versions: VersionedTable,
    remembers: tuple[Remembered, ...],
) -> Made:
    """The versions of a filtered table. The row that arrived last decides what is a change, whatever its time."""
    name, first = lowering.names[node], 1 + lowering.produce(base_of(node.parent))
    read = Want(((*path_from_base(node.parent), node.serial), 0), first, KEY_HASH, f"{name}[rows]")
    changes = Want(((node.serial,), 1), first + 1, KEY_HASH, f"{name}[changes]")
    drafts = (
        Draft(node, f"{name}/rows", first, rows, [lowering.read(node.parent, read, node.key)], (changes,)),
        Draft(node, name, first + 1, versions, [changes], remembers=remembers),
    )
    return Made(first + 1, Result.computed(node, latest=True), drafts)


def _reorder(lowering: Lowering, node: Reorder) -> Made:
    operator = ReorderOperator(
        lowering.key_of(node),
        lowering.value_of(node),
        node.bound_us,
        splits_steps=not lowering.options.compat,
    )
    waiting = Remembered(node, (operator.traces[0].name,), node.key, waits=True)
    return _reading(lowering, node, operator, "records", remembers=(waiting,))


def _sequence_by(lowering: Lowering, node: SequenceBy) -> Made:
    (sequence,) = lowering.types((node.sequence,)).values()
    operator = SequenceByOperator(lowering.key_of(node), lowering.value_of(node), sequence, node.retention_us)
    return _reading(lowering, node, operator, "changes")


def _deduplicate(lowering: Lowering, node: Deduplicate) -> Made:
    operator = DeduplicateOperator(lowering.key_of(node), lowering.value_of(node))
    return _reading(lowering, node, operator, "records", FOREIGN_HASH)


def _transactions(lowering: Lowering, node: Transactions) -> Made:
    """Release whole transactions, in one shard: read how they end, and the events of the plan's tables."""
    number, name = 1 + lowering.produce_stream(node.parent), lowering.names[node]
    ends = Want(((node.serial,), 0), number, FOREIGN_HASH, f"{name}[ends]")
    inputs, tables = [lowering.read_stream(node.parent, ends, ())], list[str]()
    for one in lowering.names:
        if isinstance(one, Captured) and one.transactions is node and one.table not in tables:
            events = Want(_events(one), number, FOREIGN_HASH, f"{name}[{lowering.names[one]}]")
            inputs.append(lowering.read(one.parent, events, one.key, inputs=Inputs((), ())))
            tables.append(one.table)
    gate = Draft(node, name, number, TransactionGate(node.timeout_us, tuple(tables)), inputs)
    return Made(number, Result.computed(node), (gate,))


def _events(node: Captured) -> tuple[tuple[int], int]:
    """The order of the port at which the gate of its transactions reads a table's events."""
    return (node.serial,), 3


def _held(
    lowering: Lowering, node: Captured, gate: Transactions
) -> tuple[int, list[Want], tuple[Draft, ...]]:
    """Let the changes of a table wait for their transactions.

    Returns: where the changes appear, the ports they go to, and the operator at which they wait.
    """
    number, name = 1 + lowering.produce(gate), lowering.names[node]
    changes = Want(((node.serial,), 4), number, KEY_HASH, f"{name}[held changes]")
    controls = Want(((node.serial,), 5), number, EVERY_SHARD, f"{name}[held controls]")
    releases = Want(((node.serial,), 6), number, EVERY_SHARD, f"{name}[releases]", directly=gate)
    inputs = [*(lowering.read(node.parent, want, node.key) for want in (changes, controls)), releases]
    targets = (
        Want(((node.serial,), 0), number + 1, KEY_HASH, f"{name}[changes]"),
        Want(((node.serial,), 1), number + 1, FOREIGN_HASH, f"{name}[controls]"),
    )
    held = HeldChanges(lowering.key_of(node), lowering.value_of(node))
    waiting = Remembered(node, (held.traces[0].name,), node.key, waits=True, besides=IS_CONTROL)
    draft = Draft(node, f"{name}/held", number, held, inputs, targets, remembers=(waiting,))
    return number, list(targets), (draft,)


def _unheld(lowering: Lowering, node: Captured) -> tuple[int, list[Want], tuple[Draft, ...]]:
    """Read the changes of a table; what concerns all rows goes to every shard."""
    number, name = lowering.produce(node.parent), lowering.names[node]
    changes = Want(((node.serial,), 0), number + 1, KEY_HASH, f"{name}[changes]")
    controls = Want(((node.serial,), 1), number + 1, EVERY_SHARD, f"{name}[controls]")
    return number, [lowering.read(node.parent, want, node.key) for want in (changes, controls)], ()


def _captured(lowering: Lowering, node: Captured) -> Made:
    """Make whole rows of a connector's changes."""
    lowering.not_of_kafka(node, "tables that are captured from a database")
    gate, name = node.transactions, lowering.names[node]
    last, reads, held = _unheld(lowering, node) if gate is None else _held(lowering, node, gate)
    gates = () if gate is None else lowering.made[gate].drafts
    events = tuple(want for one in gates for want in one.inputs if want.order == _events(node))
    keys, value = lowering.key_of(node), lowering.value_of(node)
    columns = tuple(one.name for one in node.value)
    # In a whole transaction the place of a truncate is known, whatever its topic partition.
    truncates = "apply" if gate is not None and node.truncates == "auto" else node.truncates
    table = CapturedTable(keys, value, columns, node.follows_moves, truncates, node.commits, node.snapshots)
    names = (tuple(one.name for one in fields) for fields in (node.key, node.value))
    shown = Shown(key_columns(len(node.key)), *names)
    if not node.follows_moves:
        remembers = (Remembered(node, (table.traces[0].name,), node.key),)
        whole = Draft(node, name, last + 1, table, reads, remembers=remembers, shown=shown)
        return Made(last + 1, Result.computed(node), (*held, whole), events)
    rows = Want(((node.serial,), 2), last + 2, FOREIGN_HASH, f"{name}[moved]")
    moved = MovedRows(keys, struct_of(lowering.types(node.value)), columns)
    drafts = (
        *held,
        Draft(node, name, last + 1, table, reads, (rows,), shown=shown),
        Draft(node, f"{name}/moved", last + 2, moved, [rows], shown=shown),
    )
    return Made(last + 2, Result.computed(node), drafts, events)


def _flat_map(lowering: Lowering, node: FlatMap) -> Made:
    if not node.is_stream:
        return _elements(lowering, node)
    operator = FlatMapOperator(
        lowering.key_of(node),
        lowering.value_of(node.parent),
        lowering.value_of(node),
        takes_apart=node.takes_apart,
    )
    return _reading(lowering, node, operator, "records")


def _elements(lowering: Lowering, node: FlatMap) -> Made:
    """The elements of a table's arrays."""
    name, number = lowering.names[node], 1 + lowering.produce(base_of(node.parent))
    lowering.not_of_kafka(node, "flat_map of a table", "Omit compat=, or use to_stream().flat_map(...).")
    rows = Want(((*path_from_base(node.parent), node.serial), 0), number, KEY_HASH, f"{name}[rows]")
    reads = [lowering.read(node.parent, rows, node.parent.key, latest_only=True)]
    keys, arrays = lowering.key_of(node.parent), lowering.value_of(node.parent)
    operator = Elements(keys, arrays, lowering.value_of(node), takes_apart=node.takes_apart)
    return Made(number, Result.computed(node), (Draft(node, name, number, operator, reads),))


def _to_table(lowering: Lowering, node: ToTable) -> Made:
    lost = None if lowering.options.compat else deletes_lost(node.parent)
    if lost is not None:
        raise PlanError(
            f"The table would keep rows that records of '{lost.name}' delete: a join of a stream drops records without"
            " a value.",
            hint="Join a table: tablestream.table(...).join(..., as_of=...). If those records are to be dropped, filter"
            " them out before the join.",
            operator=lowering.names[node],
            where=node.where,
        )
    keys, value = lowering.key_of(node), lowering.value_of(node)
    operator = ToTableOperator(keys, value, atomic=not lowering.options.compat, nullable=node.nullable)
    return _reading(lowering, node, operator, "records")


def _reading(
    lowering: Lowering,
    node: OneParent,
    operator: Operator,
    read: str,
    route: str = KEY_HASH,
    remembers: tuple[Remembered, ...] = (),
    result: Result | None = None,
    pointer: Pointer | None = None,
) -> Made:
    """Place an operator that reads one table or stream by its key.

    `read` is the label of its port. Pass `result` if it is not the node's value as ``v``.
    """
    number, name = 1 + lowering.produce_stream(node.parent), lowering.names[node]
    want = Want(((node.serial,), 0), number, route, f"{name}[{read}]")
    latest_only = isinstance(node, ToStream) and node.latest_only
    reads = [lowering.read_stream(node.parent, want, node.key, pointer, latest_only=latest_only)]
    draft = Draft(node, name, number, operator, reads, remembers=remembers)
    return Made(number, result or Result.computed(node), (draft,))


_PLACE: dict[type[Node], Callable[[Lowering, Any], Made]] = {
    Source: _source,
    KeyJoin: key_join,
    ForeignKeyJoin: foreign_key_join,
    OneToMany: one_to_many,
    ManyToMany: many_to_many,
    StreamJoin: stream_join,
    Aggregate: aggregate,
    Top: top,
    Over: over,
    Suppress: _suppress,
    Keep: _expiry,
    Materialize: _kept,
    ToStream: _kept,
    Captured: _captured,
    Transactions: _transactions,
    Deduplicate: _deduplicate,
    SequenceBy: _sequence_by,
    Reorder: _reorder,
    FlatMap: _flat_map,
    ToTable: _to_table,
}


def place(lowering: Lowering, base: Node) -> Made:
    """Place the operators of a base and everything upstream of it."""
    return _PLACE[type(base)](lowering, base)
