"""The operators of a captured table without Spark: records of a topic in, changes of rows out."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pyarrow as pa
from pyspark.sql import types as T

from tablestream.connectors.debezium.columns import Columns
from tablestream.connectors.debezium.decoder import DebeziumDecoder
from tablestream.operators.captured.capture import (
    CAPTURE,
    CONTROL,
    DELETE,
    FIELDS,
    LAST,
    READ,
    TRUNCATE,
    UPSERT,
)
from tablestream.operators.captured.captured_table import CapturedTable
from tablestream.operators.captured.moved_rows import MovedRows
from tablestream.operators.operator import NUMBER, PARENT, Context, Operator
from tablestream.state.cache import NoCache
from tablestream.state.changes import FOREIGN_HASH, KEY_HASH, LIVE, SEQ, STEP, TS
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore
from tablestream.state.trace_spec import numbered_traces
from tests.cdc.recording import TABLES, Record
from tests.cdc.vectors import HEADERS

#: The running maximum of the times of a topic partition, by which Spark's tasks order records.
PLACE = "_place"
Row = tuple[Any, ...]


class Shard:
    """An operator's state in one shard."""

    def __init__(self, operator: Operator, store: MemoryStore | None = None) -> None:
        self.operator = operator
        self.store = store or MemoryStore()
        self.marks: dict[str, int] = {}

    def run(
        self, inputs: Sequence[pl.DataFrame], dropped: Counter[str], number: tuple[int, int]
    ) -> list[pl.DataFrame]:
        """Process a micro-batch, and commit; return what each output has."""
        state = self._state()
        context = Context(state.trace, dropped, marks=self.marks, shard=number[0], shards=number[1])
        found = [[nothing(self.operator, n)] for n in range(len(self.operator.outputs))]
        zero = pl.lit(0, pl.Int64).alias(NUMBER)
        for one in self.operator.run(inputs, context):
            rows = one.rows if NUMBER in one.rows.columns else one.rows.with_columns(zero)
            found[one.output].append(rows.select(found[one.output][0].columns))
        state.commit()
        return [pl.concat(frames) for frames in found]

    def kept(self, name: str) -> int:
        """How many rows a trace has."""
        return self._state().trace(name).scan().height

    def _state(self) -> ShardState:
        specs = numbered_traces(self.operator.traces)
        return ShardState(self.store, NoCache(), specs, "")


@dataclass
class Captured:
    """A captured table.

    Attributes
    ----------
    key, columns
        As for `Debezium.table`.
    shards
        How many shards the state has.
    dropped
        What the operators counted.
    rows
        The table: the rows by key.
    """

    key: Sequence[str]
    columns: str
    shards: int = 2
    follows_moves: bool = True
    truncates: str = "apply"
    snapshots: str = "complete"
    options: dict[str, Any] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)
    rows: dict[tuple[Any, ...], Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make decoder and operators."""
        schema = struct_of(self.columns)
        value = [one for one in schema if one.name not in self.key]
        self.decoder = DebeziumDecoder(
            Columns(T.StructType([schema[one] for one in self.key]), T.StructType(value)), **self.options
        )
        keys = pl.Schema({f"_k{n}": kind for n, kind in enumerate(self._kinds("key"))})
        self.value = pl.Struct({f"c{n}": kind for n, kind in enumerate(self._kinds("value"))})
        names = tuple(one.name for one in value)
        self.table = CapturedTable(
            keys, self.value, names, self.follows_moves, self.truncates, snapshots=self.snapshots
        )
        self.tables = [Shard(self.table) for _ in range(self.shards)]
        self.moved = [Shard(MovedRows(keys, self.value, names)) for _ in range(self.shards)]

    def _kinds(self, part: str) -> list[Any]:
        """The dtypes of the columns of key or value."""
        empty = pl.from_arrow(self.decoder.schema.empty_table())
        assert isinstance(empty, pl.DataFrame)
        return list(empty[part].struct.unnest().dtypes)

    def restart(self) -> None:
        """Go on from the state alone."""
        for shards in (self.tables, self.moved):
            for n, shard in enumerate(shards):
                marks = shard.marks
                shards[n] = Shard(shard.operator, shard.store.copy())
                shards[n].marks = dict(marks)

    def run(self, records: Sequence[Record]) -> list[tuple[tuple[Any, ...], Row | None]]:
        """Process a micro-batch; return the changes in their order, and keep the table."""
        if not records:
            return []
        frame = self.decoded(records)
        changes = self._round(frame)
        return self.take(changes)

    def take(self, changes: pl.DataFrame) -> list[tuple[Row, Row | None]]:
        """Apply changes to the table; return them."""
        found = []
        for row in changes.sort(PARENT, NUMBER).to_dicts():
            key = tuple(row[name] for name in self.table.keys)
            value: Row | None = tuple(row["v"].values()) if row[LIVE] else None
            found.append((key, value))
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value
        return found

    def decoded(self, records: Sequence[Record]) -> pl.DataFrame:
        """Decode records, and put them into the order in which Spark's tasks number them."""
        keys, values = _bytes([one.key for one in records]), _bytes([one.value for one in records])
        headers = [[{"key": name, "value": text.encode()} for name, text in one.headers] for one in records]
        table = pa.Table.from_struct_array(self.decoder.decode(keys, values, pa.array(headers, HEADERS)))
        decoded = pl.from_arrow(table)
        assert isinstance(decoded, pl.DataFrame)
        frame = decoded.with_columns(
            pl.Series("partition", [one.partition for one in records], dtype=pl.Int64),
            pl.Series("offset", [one.offset for one in records], dtype=pl.Int64),
            pl.coalesce("ts_us", pl.Series([one.timestamp_ms * 1000 for one in records])).alias(TS),
        )
        errors = frame.filter(pl.col("error").is_not_null())
        assert errors.is_empty(), errors["error"].to_list()
        frame = frame.sort("partition", "offset")
        rows = pl.col("op").is_in([UPSERT, READ])
        timed = pl.when(rows | pl.col("ts_us").is_not_null()).then(TS)  # as `_said` of `debezium.frame`
        running = timed.cum_max().forward_fill().over("partition").fill_null(0)
        return frame.with_columns(running.alias(PLACE)).sort(
            PLACE, "partition", "offset", maintain_order=True
        )

    def _round(self, frame: pl.DataFrame) -> pl.DataFrame:
        return self.through(*self.ports(self._messages(frame)))

    def messages(self, records: Sequence[Record]) -> pl.DataFrame:
        """The messages that Spark's packers make of records, in their order."""
        return self._messages(self.decoded(records))

    def ports(self, messages: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The changes of rows, and what concerns all rows."""
        said = pl.col(CAPTURE).struct
        op, snapshot = said.field("op"), said.field("snapshot")
        ends = (op == READ) & snapshot.is_in(list(LAST))
        zero = pl.lit(0, pl.Int64).alias(FOREIGN_HASH)
        controls = messages.filter((op == TRUNCATE) | ends).rename({CAPTURE: CONTROL}).with_columns(zero)
        return messages.filter(op.is_in([UPSERT, READ, DELETE])), controls

    def _messages(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The messages that Spark's packers make of decoded records."""
        texts = {name: _text(frame[name]) for name in ("key", "moved_from", "moved_to")}
        moved = frame["moved_from"].is_not_null() | frame["moved_to"].is_not_null()
        said = frame.with_columns(**texts, added=pl.col("added").list.len().fill_null(0) > 0)
        said = said.rename({"total_order": "number"}).with_columns(pl.when(moved).then("key").alias("key"))
        capture = said.select(
            pl.struct(pl.col(name).cast(kind) for name, kind in FIELDS.items()).alias(CAPTURE)
        )
        parts = frame["key"].struct.unnest()
        parts.columns = list(self.table.keys)
        numbers = pl.int_range(1, frame.height + 1, dtype=pl.Int64, eager=True)
        exists = frame["op"].is_in([UPSERT, READ]).fill_null(value=False)
        value = frame.select(pl.when(exists).then("value").struct.rename_fields(self._names)).to_series()
        return parts.with_columns(
            capture[CAPTURE],
            _hashes(parts),
            frame[TS],
            exists.alias(LIVE),
            numbers.alias(SEQ),
            numbers.alias(STEP),
            value.alias("v"),
        )

    @property
    def _names(self) -> list[str]:
        return [one.name for one in self.value.fields]

    def through(self, changes: pl.DataFrame, controls: pl.DataFrame, *, own: bool = False) -> pl.DataFrame:
        """Send messages to the shards of both operators. What is emitted has the place of its message as parent.

        `own`: each control is for one shard; otherwise for every shard.
        """
        out = [nothing(self.table)]
        for n, shard in enumerate(self.tables):
            mine = changes.filter(pl.col(KEY_HASH) % self.shards == n)
            all_rows = controls.filter(pl.col(FOREIGN_HASH) == n) if own else controls
            both = zip((mine, all_rows), self.table.inputs, strict=True)
            inputs = [frame.select(SEQ, STEP, *schema) for frame, schema in both]
            if any(one.height for one in inputs):
                out += shard.run(inputs, self.dropped, (n, self.shards))
        if not self.follows_moves:
            return pl.concat(out)
        rows = pl.concat(out).sort(PARENT, NUMBER)
        numbers = pl.int_range(1, pl.len() + 1, dtype=pl.Int64)
        rows = rows.with_columns(numbers.alias(SEQ), pl.lit(1, pl.Int64).alias(STEP))
        found = [nothing(self.moved[0].operator)]
        for n, shard in enumerate(self.moved):
            mine = rows.filter(pl.col(FOREIGN_HASH) % self.shards == n).drop(PARENT, NUMBER)
            if mine.height:
                found += shard.run([mine], self.dropped, (n, self.shards))
        moved = pl.concat(found).sort(PARENT, NUMBER)
        origin = rows.select(pl.col(SEQ).alias(PARENT), pl.col(PARENT).alias("_origin"))
        moved = moved.join(origin, on=PARENT, how="left", maintain_order="left")
        order = pl.int_range(pl.len(), dtype=pl.Int64).alias(NUMBER)
        return moved.with_columns(pl.col("_origin").alias(PARENT), order).drop("_origin")


def nothing(operator: Operator, output: int = 0) -> pl.DataFrame:
    """No rows of an operator."""
    return pl.DataFrame(schema={PARENT: pl.Int64(), NUMBER: pl.Int64(), **operator.outputs[output]})


def _bytes(texts: Sequence[str | None]) -> pa.Array:
    return pa.array([None if text is None else text.encode() for text in texts], pa.binary())


def _text(keys: pl.Series) -> pl.Series:
    """Keys as text; null for none."""
    return pl.Series([None if one is None else repr(one) for one in keys.to_list()], dtype=pl.String)


def _hashes(parts: pl.DataFrame) -> pl.Series:
    """A hash of each key that is the same in all runs."""
    hashes = [
        int.from_bytes(hashlib.blake2b(repr(row).encode(), digest_size=7).digest()) for row in parts.rows()
    ]
    return pl.Series(KEY_HASH, hashes, dtype=pl.Int64)


_TYPES: dict[str, T.DataType] = {
    "int": T.IntegerType(),
    "bigint": T.LongType(),
    "string": T.StringType(),
    "double": T.DoubleType(),
    "boolean": T.BooleanType(),
    "binary": T.BinaryType(),
    "date": T.DateType(),
    "decimal(12,4)": T.DecimalType(12, 4),
    "decimal(19,4)": T.DecimalType(19, 4),
    "decimal(20,0)": T.DecimalType(20, 0),
    "decimal(38,0)": T.DecimalType(38, 0),
    "timestamp": T.TimestampType(),
    "timestamp_ntz": T.TimestampNTZType(),
    "array<string>": T.ArrayType(T.StringType()),
}


def struct_of(columns: str) -> T.StructType:
    """The struct of a DDL string; Spark's parser needs a session."""
    pairs = (one.split() for one in columns.split(", "))
    return T.StructType([T.StructField(name, _TYPES[kind]) for name, kind in pairs])


def captured_row(captured: Captured, table: str, key: tuple[Any, ...], value: tuple[Any, ...]) -> Row:
    """A row in the order of the table's columns, as `row_of` has it."""
    names = [*captured.decoder.columns.key.names, *captured.decoder.columns.value.names]
    row = dict(zip(names, (*key, *value), strict=True))
    for name in ("at", "opened"):
        if isinstance(row.get(name), datetime):
            row[name] = row[name].astimezone(UTC).replace(tzinfo=None) if row[name].tzinfo else row[name]
    wanted = [one.split()[0] for one in TABLES[table][1].split(", ")]
    return tuple(tuple(row[name]) if isinstance(row[name], list) else row[name] for name in wanted)
