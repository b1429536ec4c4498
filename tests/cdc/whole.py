"""Whole transactions without Spark: several captured tables whose changes wait for each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa

from tablestream.connectors.debezium.ends import EndDecoder
from tablestream.connectors.debezium.records import Reader
from tablestream.operators.captured.capture import CAPTURE
from tablestream.operators.captured.transactions import (
    END_TYPE,
    EVENT,
    TRANSACTION,
    HeldChanges,
    TransactionGate,
)
from tablestream.operators.operator import NUMBER, PARENT
from tablestream.state.changes import FOREIGN_HASH, KEY_HASH, LIVE, NOTHING, SEQ, STEP, TS
from tests.cdc.operators import Captured, Shard, nothing
from tests.cdc.recording import Record

#: Places of a micro-batch's messages of one table come before those of the next.
_TABLE = 1_000_000
_RELEASES = 1_000_000_000


@dataclass
class Database:
    """Captured tables of one database, by their names in it."""

    tables: Mapping[str, Captured]
    shards: int = 2
    dropped: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Make the operators."""
        self.gate = Shard(TransactionGate(None, tuple(self.tables)))
        self.held = {
            name: [Shard(HeldChanges(one.table.keys, one.value)) for _ in range(self.shards)]
            for name, one in self.tables.items()
        }

    def restart(self) -> None:
        """Go on from the state alone."""
        self.gate = _again(self.gate)
        self.held = {name: [_again(one) for one in shards] for name, shards in self.held.items()}
        for table in self.tables.values():
            table.restart()

    def run(self, records: Sequence[Record]) -> Iterator[str | None]:
        """Process a micro-batch; yield each transaction when its changes have been applied, in the order of release.

        What belongs to no transaction comes first, under None.
        """
        messages = {
            name: self._numbered(name, [one for one in records if one.topic.endswith(f".{name}")])
            for name in self.tables
        }
        releases = self._released(messages, [one for one in records if one.topic.endswith(".transaction")])
        names: list[str | None] = [None, *releases[TRANSACTION]]
        changes = {name: self._changes(name, messages[name], releases) for name in self.tables}
        place = pl.col(PARENT) - _RELEASES
        for number, transaction in enumerate(names):
            for name, rows in changes.items():
                self.tables[name].take(rows.filter(place == number if number else place < 0))
            yield transaction

    def _numbered(self, name: str, records: Sequence[Record]) -> pl.DataFrame:
        """The messages of a table, or none."""
        table = self.tables[name]
        if not records:
            return pl.DataFrame(schema={SEQ: pl.Int64(), STEP: pl.Int64(), **table.table.inputs[0]})
        first = list(self.tables).index(name) * _TABLE
        return table.messages(records).with_columns(pl.col(SEQ) + first, pl.col(STEP) + first)

    def _released(self, messages: Mapping[str, pl.DataFrame], ends: Sequence[Record]) -> pl.DataFrame:
        """Ask the gate."""
        said = pl.col(CAPTURE).struct
        nothing_ = pl.lit(None, pl.Struct({NOTHING: pl.Boolean()})).alias("v")
        zero = pl.lit(0, pl.Int64).alias(FOREIGN_HASH)
        name = pl.when(said.field("number").is_not_null()).then(said.field("transaction")).alias(TRANSACTION)
        events = [
            one.select(
                SEQ,
                STEP,
                zero,
                TS,
                pl.lit(value=True).alias(LIVE),
                name,
                said.field("number").alias(EVENT),
                nothing_,
            )
            for one in messages.values()
        ]
        values = [None if one.value is None else one.value.encode() for one in ends]
        decoded = EndDecoder(Reader("__")).decode(pa.array(values, pa.binary())).to_pylist()
        assert not any(end["error"] for end in decoded)
        rows = [
            {
                SEQ: _RELEASES - _TABLE + number,
                STEP: 1,
                FOREIGN_HASH: 0,
                TS: one.timestamp_ms * 1000,
                LIVE: True,
                "v": {"c0": end["transaction"], "c1": end["tables"], "c2": end["events"]},
            }
            for number, (one, end) in enumerate(zip(ends, decoded, strict=True))
            if end["transaction"] is not None
        ]
        schema = {SEQ: pl.Int64(), STEP: pl.Int64(), **self.gate.operator.inputs[0]}
        assert schema["v"] == END_TYPE
        (released,) = self.gate.run([pl.DataFrame(rows, schema), *events], self.dropped, (0, self.shards))
        numbers = pl.int_range(1, pl.len() + 1, dtype=pl.Int64) + _RELEASES
        return (
            released.sort(PARENT, NUMBER)
            .with_columns(numbers.alias(SEQ), numbers.alias(STEP))
            .drop(PARENT, NUMBER)
        )

    def _changes(self, name: str, messages: pl.DataFrame, releases: pl.DataFrame) -> pl.DataFrame:
        """What comes of a table; the parent is the place of the release."""
        table, out = self.tables[name], []
        changes, controls = table.ports(messages)
        for n, shard in enumerate(self.held[name]):
            mine = changes.filter(pl.col(KEY_HASH) % self.shards == n)
            schemas = shard.operator.inputs
            inputs = [
                frame.select(SEQ, STEP, *schema)
                for frame, schema in zip((mine, controls, releases), schemas, strict=True)
            ]
            if any(one.height for one in inputs):
                out.append(shard.run(inputs, self.dropped, (n, self.shards)))
        held = HeldChanges(table.table.keys, table.value)
        rows, controls = (pl.concat([nothing(held, n), *(one[n] for one in out)]) for n in (0, 1))
        places = (
            pl.concat([one.select(PARENT, NUMBER) for one in (rows, controls)]).unique().sort(PARENT, NUMBER)
        )
        places = places.with_columns(pl.int_range(1, pl.len() + 1, dtype=pl.Int64).alias(SEQ))
        rows, controls = (
            one.join(places, on=[PARENT, NUMBER], how="left")
            .sort(SEQ)
            .with_columns(pl.lit(1, pl.Int64).alias(STEP))
            for one in (rows, controls)
        )
        origin = places.select(pl.col(SEQ).alias(PARENT), pl.col(PARENT).alias("_origin"))
        made = table.through(rows.drop(PARENT, NUMBER), controls.drop(PARENT, NUMBER), own=True)
        made = made.join(origin, on=PARENT, how="left", maintain_order="left")
        return made.with_columns(pl.col("_origin").alias(PARENT)).drop("_origin")


def _again(shard: Shard) -> Shard:
    made = Shard(shard.operator, shard.store.copy())
    made.marks = dict(shard.marks)
    return made
