"""A whole plan without Spark: the same line of rounds, with expressions that are Python functions.

Tables here have string keys (one or more columns) and one string column ``v``. What Spark does between the rounds
(evaluating, packing, shuffling) is done record by record; the rounds themselves are the real ones.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import polars as pl

from tablestream.plan.lower import Ending, Line, Mode, Output, Reader, Role, lower
from tablestream.plan.rounds import RANK_SHIFT, Port
from tablestream.plan.work import in_order, work_off
from tablestream.state.cache import NoCache
from tablestream.state.changes import (
    FOREIGN_HASH,
    KEY_HASH,
    LIVE,
    PARTITION,
    POSITION,
    ROW_TS,
    TIME,
    TS,
    hop_columns,
)
from tablestream.state.store import MemoryStore
from tablestream.state.trace import ShardState
from tablestream.topology.graph import base_of, leaves_of
from tablestream.topology.nodes import (
    Field,
    Fields,
    Filter,
    ForeignKeyJoin,
    How,
    Join,
    KeyJoin,
    Named,
    Node,
    OneToMany,
    Select,
    Source,
)

STRING = json.dumps("string")
Key = tuple[str | None, ...]
Value = str | None
FrameRow = dict[str, Any]


class Change(NamedTuple):
    """An output: key parts, value (null: tombstone), time."""

    key: Key
    value: Value
    ts: int


class Record(NamedTuple):
    """An input record of a source."""

    source: Node
    key: str | None
    value: Value
    ts: int


@dataclass(frozen=True)
class Python:
    """A Python function as an expression."""

    function: Callable[..., Any]

    @property
    def text(self) -> str:
        return getattr(self.function, "__name__", "function")


VALUE = (Field("v", STRING),)


def source(name: str) -> Source:
    return Source(name, "", (Field("k", STRING),), VALUE, frame=None, text="")


def filtered(parent: Node, condition: Callable[[str], bool], *, negate: bool = False) -> Filter:
    return Filter(f"{parent.name}_filter", "", parent.key, VALUE, parent, Python(condition), negate)


def mapped(parent: Node, function: Callable[[str], Value]) -> Select:
    return Select(
        f"{parent.name}_map", "", parent.key, VALUE, parent, (Named("v", Python(function)),), Python(lambda value: function(value) is None)
    )


def pair(left: Value, right: Value) -> str:
    return f"({left or 'null'},{right or 'null'})"


def key_join(left: Node, right: Node, how: How, joiner: Callable[[Value, Value], Value] = pair) -> KeyJoin:
    select = (Named("v", Python(joiner)),)
    return KeyJoin(f"{left.name}_{right.name}", "", left.key, VALUE, left, right, how, select, None)


def foreign_key_join(
    left: Node,
    right: Node,
    how: How,
    on: Callable[[str, str], Value],
    joiner: Callable[[Value, Value], Value] = pair,
) -> ForeignKeyJoin:
    key = left.key
    if how in {"right", "outer"}:
        key = (*left.key, *(Field(f"right_{one.name}", STRING) for one in right.key))
    select = (Named("v", Python(joiner)),)
    return ForeignKeyJoin(
        f"{left.name}_{right.name}", "", key, VALUE, left, right, how, select, None, (Python(on),), right.key
    )


def one_to_many(
    one: Node,
    many: Node,
    how: How,
    on: Callable[[str, str], Value],
    joiner: Callable[[Value, Value], Value] = pair,
) -> OneToMany:
    key = (*one.key, *(Field(f"many_{part.name}", STRING) for part in many.key))
    select = (Named("v", Python(joiner)),)
    return OneToMany(f"{one.name}_{many.name}", "", key, VALUE, one, many, how, select, None, (Python(on),), one.key)


def _types(fields: Fields) -> pl.Schema:
    return pl.Schema({one.name: pl.String() for one in fields})



def stable_hash(parts: Sequence[Value]) -> int:
    """A hash that is the same in every process."""
    number = 14695981039346656037
    for byte in repr(tuple(parts)).encode():
        number = ((number ^ byte) * 1099511628211) % (1 << 64)
    return number - (1 << 64) if number >= 1 << 63 else number


@dataclass
class Engine:
    """Runs a plan in micro-batches.

    Attributes
    ----------
    outputs
        What is asked for.
    compat, shards
        The plan's mode.
    hasher
        Makes the hash of a key; a constant one makes every key collide.
    stores
        The state of record by (round, shard): a restart keeps these and nothing else.
    """

    outputs: Sequence[Output]
    compat: bool = False
    shards: int = 3
    hasher: Callable[[Sequence[Value]], int] = stable_hash
    stores: dict[tuple[int, int], MemoryStore] = field(default_factory=dict)
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)
    position: int = 0

    def __post_init__(self) -> None:
        self.line: Line = lower(self.outputs, _types, Mode(self.compat, self.shards))

    def run(self, records: Sequence[Record]) -> list[list[Change]]:
        """Work off one micro-batch; per output the changes in the total order."""
        inbox: dict[int, dict[int, list[pl.DataFrame]]] = {}
        self._enter(records, inbox)
        for work in self.line.rounds:
            for shard in range(self.shards):
                mine = inbox.pop((work.number, shard), {})  # type: ignore[call-overload]
                if mine:
                    self._round(work, shard, mine, inbox)
            self._between(work.number, inbox)
        return [self._ending(ending, inbox) for ending in self.line.endings]

    # Stations

    def _enter(self, records: Sequence[Record], inbox: Any) -> None:
        for record in records:
            self.position += 1
            if record.key is None:
                self.dropped[record.source.name, "null-key"] += 1
                continue
            place = {TIME: self.position, PARTITION: record.source.name, POSITION: self.position}
            for reader in self.line.sources.get(record.source, ()):  # type: ignore[arg-type]
                row = {**place, "_h0": reader.port.rank << RANK_SHIFT, TS: record.ts}
                values = {record.source: record.value}
                row |= self._message(reader, (record.key,), values, {})
                self._send(reader.port, [row], inbox)

    def _round(self, work: Any, shard: int, mine: dict[int, list[pl.DataFrame]], inbox: Any) -> None:
        store = self.stores.setdefault((work.number, shard), MemoryStore())
        state = ShardState(store, NoCache(), work.traces, work.fingerprint, work.text)
        for port, frame in work_off(work, mine, state, self.dropped):
            self._send(port, frame.to_dicts(), inbox, frame.schema)
        state.commit()

    def _between(self, number: int, inbox: Any) -> None:
        for between in self.line.between:
            if between.after != number:
                continue
            frames = [
                frame
                for shard in range(self.shards)
                for frame in inbox.get((between.port.round, shard), {}).pop(between.port.number, [])
            ]
            for row in (row for frame in frames for row in frame.to_dicts()):
                key, values, sides = self._laid_out(between.base, row)
                for reader in between.readers:
                    hops = {hop: row.get(hop, 0) for hop in hop_columns(number + 1)}
                    hops[f"_h{number}"] += reader.port.rank << RANK_SHIFT
                    message = {name: row[name] for name in (TIME, PARTITION, POSITION, TS)} | hops
                    if reader.role is not Role.SUBSCRIBING:
                        message[ROW_TS] = row.get(ROW_TS)
                    message |= self._message(reader, key, values, sides)
                    self._send(reader.port, [message], inbox)

    def _ending(self, ending: Ending, inbox: Any) -> list[Change]:
        frames = [
            frame
            for shard in range(self.shards)
            for frame in inbox.get((len(self.line.rounds) + 1, shard), {}).get(ending.port.number, [])
        ]
        if not frames:
            return []
        node = ending.output.node
        rows = in_order(frames, hop_columns(len(self.line.rounds) + 1), False)  # noqa: FBT003
        changes = []
        for row in rows.to_dicts():
            if ending.evaluated:
                key, value = _parts(row, "_k"), _value(row["v"])
                changes.append(Change(key, (_value(row["old"]), value) if "old" in row else value, row[TS]))  # type: ignore[arg-type]
            else:
                key, values, sides = self._laid_out(base_of(node), row)
                changes.append(Change(key, self._value(node, key, values, sides), row[TS]))
        return changes

    # Messages

    def _send(self, port: Port, rows: list[FrameRow], inbox: Any, schema: Any = None) -> None:
        schema = schema or {
            name: pl.Struct({"v": pl.String}) if name == "v" else pl.Boolean if name == LIVE else pl.Int64
            if name in {TIME, POSITION, TS, ROW_TS, KEY_HASH, FOREIGN_HASH, "_vh"} or name.startswith("_h")
            else pl.String
            for name in rows[0]
        }
        for row in rows:
            shard = row[port.route] % self.shards
            frame = pl.DataFrame([row], schema=schema)
            inbox.setdefault((port.round, shard), {}).setdefault(port.number, []).append(frame)

    def _message(self, reader: Reader, key: Key, values: dict[Node, Value], sides: Any) -> FrameRow:
        value = self._value(reader.node, key, values, sides)
        names, hashed = ("_f", FOREIGN_HASH) if reader.role is Role.POINTED_AT else ("_k", KEY_HASH)
        row: FrameRow = {hashed: self.hasher(key), **{f"{names}{i}": part for i, part in enumerate(key)}}
        if reader.role is Role.SUBSCRIBING:
            assert reader.join is not None
            pointed = None if value is None else reader.join.on[0].function(value, key[0])  # type: ignore[attr-defined]
            row |= {FOREIGN_HASH: None if pointed is None else self.hasher((pointed,)), "_f0": pointed}
            row["_vh"] = stable_hash((value,))
        return {**row, LIVE: value is not None, "v": None if value is None else {"v": value}}

    # Values

    def _laid_out(self, base: Node, row: FrameRow) -> tuple[Key, dict[Node, Value], dict[Any, Any]]:
        key, foreign = _parts(row, "_k"), _parts(row, "_f")
        if isinstance(base, KeyJoin):
            values = {leaf: _value(row[f"v{i}"]) for i, (leaf, _) in enumerate(leaves_of(base))}
            return key, values, {}
        many, one = _value(row["v0"]), _value(row["v1"])
        if isinstance(base, OneToMany):
            return foreign + key, {}, {(base, 0): one, (base, 1): many}
        return key + foreign, {}, {(base, 0): many, (base, 1): one}

    def _value(self, node: Node, key: Key, values: dict[Node, Value], sides: dict[Any, Any]) -> Value:
        if node in values:
            return values[node]
        if isinstance(node, Select):
            value = self._value(node.parent, key, values, sides)
            return None if value is None else node.columns[0].expression.function(value)  # type: ignore[attr-defined]
        if isinstance(node, Filter):
            value = self._value(node.parent, key, values, sides)
            holds = value is not None and bool(node.condition.function(value)) is not node.negate  # type: ignore[attr-defined]
            return value if holds else None
        assert isinstance(node, Join)
        left, right = (
            sides[node, i] if (node, i) in sides else self._value(parent, key, values, sides)
            for i, parent in enumerate(node.parents)
        )
        there = {
            "inner": left is not None and right is not None,
            "left": left is not None,
            "right": right is not None,
            "outer": left is not None or right is not None,
        }[node.how]
        return node.select[0].expression.function(left, right) if there else None  # type: ignore[attr-defined]


def _parts(row: FrameRow, prefix: str) -> Key:
    names = sorted(name for name in row if name.startswith(prefix) and name[len(prefix) :].isdigit())
    return tuple(row[name] for name in names)


def _value(struct: dict[str, str] | None) -> Value:
    return None if struct is None else struct["v"]
