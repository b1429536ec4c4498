"""A whole plan without Spark: the same rounds, with expressions that are Python functions.

What Spark does between the rounds (evaluating, packing, shuffling) is done here record by record; the rounds
themselves are the real ones. Messages reach a round in any order, as they may in Spark.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

import numpy as np
import polars as pl

from tablestream.operators.operator import WallClock
from tablestream.operators.reasons import LATE
from tablestream.operators.versions import FROM, TO
from tablestream.planner.catalogue import decode
from tablestream.planner.lower import lower
from tablestream.planner.physical_plan import Align, Ending, Output, PhysicalPlan, PlanOptions, Reader
from tablestream.runtime.alignment import progress_of
from tablestream.runtime.measures import Counts
from tablestream.runtime.order import in_order
from tablestream.runtime.ports import EVERY_SHARD, RANKS, Port
from tablestream.runtime.rounds import Round
from tablestream.runtime.run_round import run_round
from tablestream.runtime.slices import SLICE_ROWS
from tablestream.state.cache import ChunkCache, NoCache
from tablestream.state.changes import (
    AS_OF,
    BOOTSTRAP,
    FOREIGN_HASH,
    KEY_HASH,
    LATEST,
    LIVE,
    NOTHING,
    PARTITION,
    POSITION,
    ROOT,
    ROW_TS,
    STEP_HOPS,
    TIME,
    TS,
    hop_columns,
)
from tablestream.state.sealed import unseal
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore
from tablestream.topology.nodes import (
    Fields,
    Filter,
    Join,
    Node,
    Select,
)
from tablestream.topology.streams import SelectKey, ToStream
from tests.plans.filled import filled
from tests.plans.slicing import sliced
from tests.plans.tables import (
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    STRINGS,
    Change,
    Key,
    Record,
    Value,
    call,
    new_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tablestream.planner.result import Pointer, Result

__all__ = ["Change", "Engine", "Output", "Record", "Step", "StoredRow", "stable_hash"]

Hasher: TypeAlias = "Callable[[Sequence[Value]], int]"
FrameRow: TypeAlias = dict[str, Any]
Inbox: TypeAlias = dict[tuple[int, int], dict[int, list[pl.DataFrame]]]
"""(round, shard) -> port -> frames of messages."""
#: The number of what the wall clock brings about.
TICK = -1


class Step(NamedTuple):
    """A change of an output, with the number of the input record that caused it."""

    number: int
    change: Change


class StoredRow(NamedTuple):
    """A row of a table in the state; of a version also when it was valid."""

    key: Key
    value: Any
    ts: int
    valid_from: int | None = None
    valid_to: int | None = None


@dataclass(frozen=True)
class _Row:
    """A change of a base, laid out so that any view on it can be evaluated.

    Attributes
    ----------
    tables
        The value of every table that the base's columns are.
    sides
        The values of the sides of a join that may be two rows of one table.
    """

    key: Key
    tables: Mapping[Node, Value]
    sides: Mapping[tuple[Node, int], Value]

    def record(self, node: Node) -> tuple[Key, Value] | None:
        """Evaluate a view: key and value; none where a stream has no record."""
        if node in self.tables or not node.is_stream or isinstance(node, Join):
            return self.key, self.value(node)
        assert isinstance(node, Select | Filter | SelectKey | ToStream)
        below = self.record(node.parent)
        if below is None or isinstance(node, ToStream):
            return below
        key, value = below
        if isinstance(node, Select):
            return key, None if value is None else call(node.columns[0].expression, value)
        if isinstance(node, Filter):
            return (
                below
                if (value is not None and bool(call(node.condition, value))) is not node.negate
                else None
            )
        return new_key(node, value, key), value

    def value(self, node: Node) -> Value:
        """Evaluate a view of a table."""
        if node in self.tables:
            return self.tables[node]
        if isinstance(node, Select):
            value = self.value(node.parent)
            return None if value is None else call(node.columns[0].expression, value)
        if isinstance(node, Filter):
            value = self.value(node.parent)
            holds = value is not None and bool(call(node.condition, value)) is not node.negate
            return value if holds else None
        assert isinstance(node, Join)
        left, right = (
            self.sides[node, side] if (node, side) in self.sides else self.value(parent)
            for side, parent in enumerate(node.parents)
        )
        exists = {
            "inner": left is not None and right is not None,
            "left": left is not None,
            "right": right is not None,
            "outer": left is not None or right is not None,
        }[node.how]
        return call(node.select[0].expression, left, right) if exists else None


@dataclass
class Engine:
    """Runs a plan in micro-batches.

    Attributes
    ----------
    outputs
        What is asked for.
    compat, shards
        The plan's mode.
    slice_rows
        As for `sliced`.
    hasher
        Makes the hash of a key; a constant one makes every key collide.
    stores
        The state of record by (round, shard): a restart keeps these, and nothing else.
    dropped
        What operators counted, by operator and reason: what they dropped, and what went on late.
    measures
        What they told of their work in the last micro-batch, by operator and measure.
    position
        The number of the last record.
    align
        Whether records wait for each other; each source is then a source partition.
    now
        The wall clock's time.
    cache
        Keeps decoded chunks of the state.
    evolvable
        Whether the state keeps the tables of sources whole.
    """

    outputs: Sequence[Output]
    compat: bool = False
    shards: int = 2
    slice_rows: int = SLICE_ROWS
    hasher: Hasher = field(default_factory=lambda: stable_hash)
    stores: dict[tuple[int, int], MemoryStore] = field(default_factory=dict)
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)
    measures: Counter[tuple[str, str]] = field(default_factory=Counter)
    position: int = 0
    align: Align | None = None
    now: int = 0
    cache: ChunkCache = field(default_factory=NoCache)
    evolvable: bool = False

    def __post_init__(self) -> None:
        """Lower the plan."""
        self.plan: PhysicalPlan = lower(
            self.outputs,
            _types,
            PlanOptions(self.compat, self.shards, self.align, evolvable=self.evolvable),
        )
        self._random = random.Random(0)
        self._schemas: dict[int, pl.Schema] = {}
        self._emitted = _emitted(self.plan)
        self._seen: dict[int, set[tuple[str, pl.DataType]]] = {}

    @property
    def lost(self) -> int:
        """How many records operators dropped."""
        return sum(count for (_, reason), count in self.dropped.items() if reason != LATE)

    @property
    def late(self) -> int:
        """How many records were too late to wait."""
        return sum(self.dropped.values()) - self.lost

    def restarted(self) -> Self:
        """Return an engine that goes on from this one's checkpoint."""
        stores = {place: store.copy() for place, store in self.stores.items()}
        return replace(self, stores=stores, dropped=self.dropped.copy())

    def run(self, records: Sequence[Record], now: int = 0) -> list[list[Change]]:
        """Work off one micro-batch; per output the changes in the total order."""
        return [[step.change for step in steps] for steps in self.steps(records, now)]

    def steps(
        self, records: Sequence[Record], now: int = 0, bootstrap: Sequence[Record] = ()
    ) -> list[list[Step]]:
        """Do the same, each change with the number of its record, from 1; `now` is the wall clock's time.

        What the rows of a bootstrap cause has the number 0.
        """
        inbox: Inbox = {}
        self.now = now
        self.measures = Counter()
        self._start(bootstrap, inbox)
        self._enter(records, inbox)
        for work in self.plan.rounds:
            self._work(work, inbox)
            self._between(work.number, inbox)
        return [self._ending(ending, inbox) for ending in self.plan.endings]

    def read(self, name: str, as_of: int | None = None, hashed: int | None = None) -> list[StoredRow]:
        """Read a table from the state, as one does who has nothing but that."""
        stores = [store for store in self.stores.values() if store.tables]
        table = decode(unseal(stores[0].tables or "", "tables")).by_name[name]
        shards = [shard for number, shard in self.stores if number == table.round][
            : 1 if table.copied else None
        ]
        found = []
        for shard in shards:
            state = ShardState(self.stores[table.round, shard], NoCache(), table.traces, table.fingerprint)
            for frame in table.frames(state, _types, as_of, hashed):
                found += [
                    StoredRow(_parts(row, "_k"), _value(row["v"]), row[TS], row.get(FROM), row.get(TO))
                    for row in frame.to_dicts()
                ]
        return found

    # Stations

    def _enter(self, records: Sequence[Record], inbox: Inbox) -> None:
        outgoing: dict[Port, list[FrameRow]] = {}
        lanes: dict[str, FrameRow] = {}
        for record in records:
            self.position += 1
            key = record.whole if record.source.records else record.parts
            if key is None:
                self.dropped[record.source.name, "null-key"] += 1
                continue
            place = _place(self.position)
            if self.align is not None:
                lane = f"{sorted(self.plan.sources, key=lambda one: one.serial).index(record.source):04d}"
                time = max(record.ts, lanes.get(lane, {TIME: record.ts})[TIME])
                place = {TIME: time, PARTITION: lane, POSITION: self.position}
                lanes[lane] = place
            row = _Row(key, {record.source: record.value}, {})
            for reader in self.plan.sources.get(record.source, ()):
                message = {**place, "_h0": reader.port.rank, TS: record.ts}
                self._put(outgoing, reader, message, row, _said(record))
        self._send(outgoing, inbox)
        if self.plan.progress is not None and lanes:
            places = pl.DataFrame(list(lanes.values()))
            self._deliver(self.plan.progress, progress_of(places, pl.col(PARTITION), self.now), inbox)

    def _start(self, rows: Sequence[Record], inbox: Inbox) -> None:
        """Let the rows of bootstraps enter, in the places that a source's packer gives them."""
        outgoing: dict[Port, list[FrameRow]] = {}
        for number, row in enumerate(rows):
            assert row.parts is not None
            changed = _Row(row.parts, {row.source: row.value}, {})
            place = {TIME: -(1 << 63), PARTITION: BOOTSTRAP, POSITION: row.ts}
            for reader in self.plan.bootstrap_readers(row.source) if row.source in self.plan.sources else ():
                message = {**place, "_h0": number * RANKS + reader.port.rank, TS: row.ts}
                self._put(outgoing, reader, message, changed)
        self._send(outgoing, inbox)

    def _work(self, work: Round, inbox: Inbox) -> None:
        """Run a round on every shard that has messages; if it follows the wall clock, on every shard."""
        for shard in range(self.shards):
            mine = inbox.pop((work.number, shard), {})
            if mine or work.needs_clock:
                self._round(work, shard, mine, inbox)

    def _round(self, work: Round, shard: int, mine: dict[int, list[pl.DataFrame]], inbox: Inbox) -> None:
        store = self.stores.setdefault((work.number, shard), MemoryStore())
        state = work.open_state(store, self.cache)
        clock = WallClock(self.now) if work.needs_clock else None
        place = (shard, self.shards)
        counts, slices = Counts(self.dropped), sliced(work, mine, self.slice_rows)
        for port, frame in run_round(work, slices, state, counts, clock, place):
            told = any(ending.port == port for ending in self.plan.endings if ending.rejected)
            assert told or work.alignment is not None or _own(frame) in self._emitted[port.number]
            if self.plan.ends_in_place and port.round > len(self.plan.rounds) == work.number:
                assert set(port.shards_of(frame, self.shards)) <= {shard}
            self._deliver(port, frame, inbox)
        self.measures.update(counts.measures(work, state))
        state.commit()

    def _between(self, number: int, inbox: Inbox) -> None:
        """Evaluate what later rounds read of the changes made in a round."""
        outgoing: dict[Port, list[FrameRow]] = {}
        for between in self.plan.between:
            if between.after != number:
                continue
            for row in self._collected(between.port, inbox):
                laid_out = _laid_out(between.result, row)
                for reader in between.readers:
                    if reader.latest_only and not row[LATEST]:
                        if reader.counted_by is not None:
                            self.dropped[reader.counted_by, "out-of-order"] += 1
                            self._reject(reader, number, row, laid_out, inbox)
                        continue
                    message = {name: row[name] for name in (TIME, PARTITION, POSITION, TS)}
                    message |= {hop: row.get(hop, 0) for hop in (*hop_columns(number + 1), STEP_HOPS)}
                    message[f"_h{number}"] += reader.port.rank
                    if ROW_TS in reader.schema:
                        message[ROW_TS] = row.get(ROW_TS)
                    if LATEST in reader.schema:
                        message[LATEST] = row[LATEST]
                    self._put(outgoing, reader, message, laid_out)
        self._send(outgoing, inbox)

    def _reject(self, reader: Reader, number: int, row: FrameRow, laid_out: _Row, inbox: Inbox) -> None:
        """Tell who asks of a late change that is left out."""
        place = [TIME, PARTITION, POSITION, *hop_columns(number + 1)]
        key, value = laid_out.record(reader.node) or ((), None)
        message = {name: row.get(name, 0) for name in (*place, TS)}
        message |= dict(zip(reader.shown.columns, key, strict=True))
        frame = pl.DataFrame([message | {"v": None if value is None else {"c0": value}}])
        for port in reader.rejecting:
            ranked = frame.with_columns(pl.col(place[-1]) + port.rank)
            told = reader.shown.rejected(ranked, place, str(reader.counted_by), "out-of-order")
            self._deliver(port, told, inbox)

    def _ending(self, ending: Ending, inbox: Inbox) -> list[Step]:
        frames = self._frames(ending.port, inbox)
        if not frames:
            return []
        rows = in_order(frames, hop_columns(len(self.plan.rounds) + 1))
        of_record = self._number if self.align is None else itemgetter(POSITION)

        def number(row: FrameRow) -> int:
            return 0 if row[PARTITION] == BOOTSTRAP else of_record(row)

        return [Step(number(row), self._change(ending, row)) for row in rows.to_dicts()]

    def _number(self, row: FrameRow) -> int:
        """The number of the record that caused a change."""
        return _number(row)

    def _change(self, ending: Ending, row: FrameRow) -> Change:
        node = ending.node
        if ending.rejected:
            return Change((row["_operator"], row["_reason"]), row["_record"], row[TS])
        assert ending.result is not None
        record = _laid_out(ending.result, row).record(node)
        assert record is not None
        key, value = record
        return Change(key, (_value(row["old"]), value) if ending.before else value, row[TS])

    # Messages

    def _put(
        self,
        outgoing: dict[Port, list[FrameRow]],
        reader: Reader,
        message: FrameRow,
        row: _Row,
        said: FrameRow | None = None,
    ) -> None:
        """Send what a reader sees of a change, if that is a message."""
        record = row.record(reader.node)
        if record is not None:
            message |= self._message(reader, *record, said or {})
            reader.check(message)
            outgoing.setdefault(reader.port, []).append(message)
            self._schemas[reader.port.number] = reader.schema

    def _message(self, reader: Reader, key: Key, value: Value, said: FrameRow) -> FrameRow:
        """The columns that the port's operator declares."""
        hashed = FOREIGN_HASH if reader.is_pointed_at else KEY_HASH
        message = {hashed: self.hasher(key), **dict(zip(reader.key_columns, key, strict=True))}
        if reader.pointer is not None:
            pointed = _pointed_at(reader.pointer, value, key)
            message[FOREIGN_HASH] = None if pointed is None else self.hasher(pointed)
            message |= _named("_f", (None,) * len(reader.pointer.key) if pointed is None else pointed)
            if reader.pointer.as_of is not None:
                message[AS_OF] = None if pointed is None else call(reader.pointer.as_of, value, key)
        there = value is not None
        declared = filled(reader.schema, said, there, stable_hash((value,)), self.hasher)
        return {**message, LIVE: there, **declared, "v": None if value is None else _struct(reader, value)}

    def _send(self, outgoing: dict[Port, list[FrameRow]], inbox: Inbox) -> None:
        for port, rows in outgoing.items():
            schema = {name: self._schemas[port.number].get(name, _place_type(name)) for name in rows[0]}
            self._deliver(port, pl.DataFrame(rows, schema=schema), inbox)

    def _deliver(self, port: Port, frame: pl.DataFrame, inbox: Inbox) -> None:
        """Shuffle messages: to their shards, in no order."""
        # Whatever an operator emits to a port has the same columns, whichever way it went.
        # (A row's own time may be missing where it is that of the change.)
        schema = frame.schema
        columns = {
            (name, kind) for name, kind in schema.items() if not name.startswith("_h") and name != ROW_TS
        }
        assert self._seen.setdefault(port.number, columns) == columns
        order = np.array(self._random.sample(range(frame.height), frame.height), dtype=np.int64)
        if port.route == EVERY_SHARD:
            mixed = frame[pl.Series(order)]
            parts = [(shard, mixed) for shard in range(self.shards)]
        else:
            shards = port.shards_of(frame, self.shards)[order]
            parts = [
                (to, frame[pl.Series(order[shards == one])])
                for one in np.unique(shards)
                for to in port.copied_to(int(one), self.shards)
            ]
        for shard, part in parts:
            boxes = inbox.setdefault((port.round, shard), {}).setdefault(port.number, [])
            boxes.insert(self._random.randint(0, len(boxes)), part)

    def _frames(self, port: Port, inbox: Inbox) -> list[pl.DataFrame]:
        boxes = (inbox.get((port.round, shard), {}) for shard in range(self.shards))
        return [frame for box in boxes for frame in box.pop(port.number, [])]

    def _collected(self, port: Port, inbox: Inbox) -> list[FrameRow]:
        return [row for frame in self._frames(port, inbox) for row in frame.to_dicts()]


def _emitted(plan: PhysicalPlan) -> dict[int, list[dict[str, pl.DataType]]]:
    """By port what its operators declare that they emit there."""
    found: dict[int, list[dict[str, pl.DataType]]] = {}
    for placed in (one for work in plan.rounds for one in work.operators):
        for schema, ports in zip(placed.operator.outputs, placed.targets, strict=True):
            for port in ports:
                found.setdefault(port.number, []).append(dict(schema))
    return found


def _own(frame: pl.DataFrame) -> dict[str, pl.DataType]:
    """The columns of messages without their place in the order."""
    places = {*ROOT, STEP_HOPS}
    return {
        name: kind for name, kind in frame.schema.items() if name not in places and not name.startswith("_h")
    }


def _pointed_at(pointer: Pointer, value: Value, key: Key) -> Key | None:
    """Evaluate what a row points at; none if the row is absent, or a part is null that must not be."""
    if value is None:
        return None
    parts = tuple(call(part, value, key) for part in pointer.on)
    if pointer.as_of is not None and call(pointer.as_of, value, key) is None:
        return None
    return None if None in parts and not pointer.null_parts else parts


def _struct(reader: Reader, value: Value) -> FrameRow:
    """A value as it travels: itself, or what is computed of it."""
    if reader.inputs is None:
        return {"c0": value}
    inputs = enumerate(reader.inputs.expressions)
    return {f"c{number}": call(one, value) for number, one in inputs} or {NOTHING: None}


def stable_hash(parts: Sequence[Value]) -> int:
    """Hash a key, the same in every process."""
    number = 14695981039346656037
    for byte in repr(tuple(parts)).encode():
        number = ((number ^ byte) * 1099511628211) % (1 << 64)
    return number - (1 << 64) if number >= 1 << 63 else number


def _said(record: Record) -> FrameRow:
    """What a source's frame has beside a record: what its writer added."""
    writer, micro_batch, number = record.written or (None, None, None)
    key = None if writer is None else repr(record.whole).encode()
    return {"__writer": writer, "__record_key": key, "__micro_batch": micro_batch, "__number": number}


def _place(number: int) -> FrameRow:
    """The root of a record: every column of it is needed to tell some records apart."""
    return {TIME: number // 4, PARTITION: f"p{number % 4 // 2}", POSITION: number % 2}


def _number(row: FrameRow) -> int:
    """The number of the record with a root."""
    if row[PARTITION] == "~":
        return TICK
    return int(row[TIME]) * 4 + int(row[PARTITION][1:]) * 2 + int(row[POSITION])


def _types(fields: Fields) -> pl.Schema:
    kinds = {STRING: pl.String(), LONG: pl.Int64(), INTEGER: pl.Int32(), STRINGS: pl.List(pl.String())}
    kinds[DOUBLE] = pl.Float64()
    return pl.Schema({one.name: kinds[one.type] for one in fields})


def _place_type(column: str) -> pl.DataType:
    return pl.String() if column == PARTITION else pl.Int64()


def _laid_out(result: Result, row: FrameRow) -> _Row:
    tables = {one.table: _value(row[one.column]) for one in result.rows if one.side is None}
    sides = {one.side: _value(row[one.column]) for one in result.rows if one.side is not None}
    return _Row(tuple(row[name] for name in result.key), tables, sides)


def _named(prefix: str, parts: Key) -> FrameRow:
    return {f"{prefix}{number}": part for number, part in enumerate(parts)}


def _parts(row: FrameRow, prefix: str) -> Key:
    names = sorted(name for name in row if name.startswith(prefix) and name[len(prefix) :].isdigit())
    return tuple(row[name] for name in names)


def _value(struct: dict[str, Any] | None) -> Any:
    """A value of one column, or a tuple of several."""
    if struct is None:
        return None
    return struct["c0"] if len(struct) == 1 else tuple(struct.values())
