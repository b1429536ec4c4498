"""What `benchmarks.exchange` measures: the stateless stages of the maintained join, and what comes to each.

The packers and unpackers are those of the plan that `tablestream` builds for the join. Two further stages, between
two rounds, are not part of it: plans with a further join have them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tablestream.connectors.source import Origin
from tablestream.operators.joins.foreign_key_answer import ForeignKeyAnswer
from tablestream.operators.joins.foreign_key_subscribe import ForeignKeySubscribe, Rules
from tablestream.runtime.measures import Counts
from tablestream.runtime.ports import Port
from tablestream.runtime.rounds import Placed, Round
from tablestream.runtime.run_round import run_round
from tablestream.spark import blobs
from tablestream.spark.packing import ChangePacker, Consumer, SourcePacker
from tablestream.spark.unpacking import ORDER, ChangeUnpacker, Opened, OutputUnpacker
from tablestream.state.cache import NoCache
from tablestream.state.changes import (
    FOREIGN_HASH,
    KEY_HASH,
    LIVE,
    PARTITION,
    POSITION,
    ROOT,
    TIME,
    TS,
    hop_columns,
)
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    Rows = dict[int, list[blobs.Blob]]
    """Blobs by shard."""

SHARDS = 16
_BATCH_ROWS = 10_000  # Spark's default for a record batch
_SEED = 20_240_801

_KEY, _FOREIGN = pl.Schema({"_k0": pl.Int64()}), pl.Schema({"_f0": pl.Int64()})
_ITEM = pl.Struct({"c0": pl.Int64(), "c1": pl.String(), "c2": pl.Float64()})
_CUSTOMER = pl.Struct({"c0": pl.String(), "c1": pl.Float64()})

_CUSTOMERS, _ITEMS = Port(1, 1, 2, FOREIGN_HASH, "right"), Port(2, 2, 1, KEY_HASH, "subscribe")
_MESSAGES, _RESULT = Port(3, 3, 2, FOREIGN_HASH, "answer"), Port(4, 4, 3, KEY_HASH, "result")
_FURTHER = Port(5, 5, 3, KEY_HASH, "a further join")
_SUBSCRIBE = ForeignKeySubscribe(Rules.LEFT, _KEY, _FOREIGN, _ITEM, _CUSTOMER)
_ANSWER = ForeignKeyAnswer(True, _KEY, _FOREIGN, _ITEM, _CUSTOMER)
_ROUNDS = (
    Round(1, (Placed("subscribe", _SUBSCRIBE, (_ITEMS.number,), ((_MESSAGES,), (_RESULT,))),), ()),
    Round(2, (Placed("answer", _ANSWER, (_MESSAGES.number, _CUSTOMERS.number), ((_RESULT,),)),), ()),
)


@dataclass(frozen=True)
class Stage:
    """A stage, which can be run any number of times over the same input.

    Attributes
    ----------
    rows
        How many messages go through it.
    run
        Does the work, and returns how many messages went through.
    """

    name: str
    rows: int
    run: Callable[[], int]


def stages(items: list[pa.RecordBatch], customers: list[pa.RecordBatch]) -> list[Stage]:
    """Run the micro-batch once, and return its stages with their inputs."""
    packers = (packer("items", 0, _ITEMS, 3), items), (packer("customers", 1, _CUSTOMERS, 2), customers)
    arrived = _by_shard(_unframed(batch for pack, read in packers for batch in pack(read)))
    first, passing = _of_ports(arrived, {_ITEMS.number}), _of_ports(arrived, {_CUSTOMERS.number})
    one = _run(_ROUNDS[0], first)
    between = _joined(passing, _packed(one))
    second, results = _of_ports(between, set(_ROUNDS[1].ports)), _of_ports(between, {_RESULT.number})
    two = _run(_ROUNDS[1], second)
    results = _joined(results, _packed(two))
    framed = [list(blobs.record_batches(held)) for held in results.values()]
    unpacker = ChangeUnpacker((opened(2),))
    unpacked = [list(unpacker(shard)) for shard in framed]
    further = [[_renamed(batch) for batch in shard] for shard in unpacked]
    pack_changes = ChangePacker((consumer(),), SHARDS, 2)
    outputs = OutputUnpacker((opened(),), 3)
    return [
        Stage("pack records", _count(arrived), lambda: sum(_sent(pack(read)) for pack, read in packers)),
        Stage("unpack for round 1", _count(first), lambda: _inbox_rows(first)),
        Stage("pack what round 1 emits", _height(one), lambda: _count(_packed(one))),
        Stage("unpack for round 2", _count(second), lambda: _inbox_rows(second)),
        Stage("pack what round 2 emits", _height(two), lambda: _count(_packed(two))),
        Stage("unpack and sort results", _count(results), lambda: sum(map(_sent, map(outputs, framed)))),
        Stage("unpack between rounds", _count(results), lambda: sum(map(_sent, map(unpacker, framed)))),
        Stage("pack between rounds", _count(results), lambda: sum(map(_sent, map(pack_changes, further)))),
    ]


# The plan, as it is built for the maintained join


def packer(name: str, number: int, port: Port, width: int) -> SourcePacker:
    """The packer of a source whose rows have `width` columns besides their key."""
    keys = ("_kh", "_k0") if port is _ITEMS else ()
    columns = (*keys, "_fh", "_f0", LIVE)
    values = tuple(f"__value_{place}" for place in range(width))
    return SourcePacker(
        name,
        number,
        Origin(partition=("time", "path", "block")),
        False,
        (Consumer(port, columns, values),),
        SHARDS,
    )


def consumer() -> Consumer:
    """The reader of the results in a further round."""
    columns = (*ROOT, *hop_columns(3), TS, LIVE, "_k0", KEY_HASH)
    return Consumer(_FURTHER, columns, ("v0_c0", "v0_c1", "v0_c2", "v1_c0", "v1_c1"))


def opened(hops: int | None = None) -> Opened:
    """The columns of the results in a DataFrame: between rounds after so many `hops`, or with their order."""
    if hops is None:
        place = [(ORDER, None, _order_type())]
    else:
        kinds = [(TIME, pa.int64()), (PARTITION, pa.string()), (POSITION, pa.int64())]
        kinds += [(hop, pa.int64()) for hop in (*hop_columns(hops + 1), KEY_HASH)]
        place = [(name, None, kind) for name, kind in kinds]
    columns: list[tuple[str, str | None, pa.DataType]] = [
        *place,
        (TS, None, pa.int64()),
        (LIVE, None, pa.bool_()),
        ("_k0", None, pa.int64()),
    ]
    for name, kinds_of in (
        ("v0", (pa.int64(), pa.string(), pa.float64())),
        ("v1", (pa.string(), pa.float64())),
    ):
        columns.append((name, "", pa.bool_()))
        columns += [(name, f"c{number}", kind) for number, kind in enumerate(kinds_of)]
    names = ["_".join(filter(None, (name, part))) for name, part, _ in columns]
    schema = pa.schema(list(zip(names, (kind for *_, kind in columns), strict=True)))
    taken = tuple((name, part) for name, part, _ in columns)
    return Opened(_RESULT.number, taken, schema)


def _order_type() -> pa.DataType:
    names = ("micro_batch", "time", "partition", "position", "hop_0", "hop_1", "hop_2")
    return pa.struct([(name, pa.string() if name == "partition" else pa.int64()) for name in names])


# What comes to a stage


def record_batches(folder: Path, side: str) -> list[pa.RecordBatch]:
    """Read a log as Spark gives it to a packer."""
    table = pq.read_table(folder / side)
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    file = f"file:///bench-data/run-0/every/logs/{side}/0000.parquet"
    columns = {
        "__ts": pl.col("ts").dt.timestamp("us"),
        "__null_key": pl.lit(value=False),
        "__mark0": pl.lit(1_700_000_000_000_000, pl.Int64),
        "__mark1": pl.lit(file),
        "__mark2": pl.lit(4, pl.Int64),
        "__position": pl.int_range(pl.len(), dtype=pl.Int64),
    }
    keyed = {"_k": "item_id", "_f": "customer_id"} if side == "items" else {"_f": "customer_id"}
    port = _ITEMS if side == "items" else _CUSTOMERS
    prefix = Consumer(port, (), ()).prefix
    for name, key in keyed.items():
        columns[f"{prefix}{name}h"] = pl.col(key).hash(_SEED).reinterpret(signed=True)
        columns[f"{prefix}{name}0"] = pl.col(key)
    columns[prefix + LIVE] = pl.lit(value=True)
    values = [name for name in frame.columns if name not in {"ts", "item_id"}]
    if side == "customers":
        values.remove("customer_id")
    columns |= {f"__value_{number}": pl.col(name) for number, name in enumerate(values)}
    wide = frame.select(value.alias(name) for name, value in columns.items())
    batches: list[pa.RecordBatch] = wide.to_arrow(compat_level=pl.CompatLevel.oldest()).to_batches(
        _BATCH_ROWS
    )
    return batches


def _renamed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Give unpacked columns the names that a packer between two rounds reads; Spark's expressions stay out of it."""
    prefix, values = consumer().prefix, consumer().value
    own = {*values, *blobs.COLUMNS}
    return batch.rename_columns([name if name in own else prefix + name for name in batch.schema.names])


def _unframed(batches: Iterable[pa.RecordBatch]) -> list[blobs.Blob]:
    return [blobs.Blob(*row.values()) for batch in batches for row in batch.to_pylist()]


def _by_shard(packed: Iterable[blobs.Blob]) -> Rows:
    rows: Rows = defaultdict(list)
    for one in packed:
        rows[one.shard].append(one)
    return rows


def _of_ports(rows: Rows, ports: set[int]) -> Rows:
    return {shard: [one for one in held if one.port in ports] for shard, held in rows.items()}


def _joined(*parts: Rows) -> Rows:
    return _by_shard(one for part in parts for held in part.values() for one in held)


def _count(rows: Rows) -> int:
    return sum(one.rows for held in rows.values() for one in held)


def _height(emitted: list[tuple[Port, pl.DataFrame]]) -> int:
    return sum(frame.height for _, frame in emitted)


# The work of a stage, as a worker does it


def _decoded(rows: Rows) -> list[dict[int, list[pl.DataFrame]]]:
    """Unpack the messages of every shard, port by port."""
    found = []
    for held in rows.values():
        packed: dict[int, list[bytes | pa.Buffer]] = {}
        for one in held:
            packed.setdefault(one.port, []).append(one.blob)
        found.append({port: blobs.decode(mine) for port, mine in packed.items()})
    return found


def _run(work: Round, rows: Rows) -> list[tuple[Port, pl.DataFrame]]:
    """Run the operators of a round on every shard, from an empty state."""
    emitted: list[tuple[Port, pl.DataFrame]] = []
    for inbox in _decoded(rows):
        state = ShardState(MemoryStore(), NoCache(), work.traces, work.fingerprint)
        emitted += run_round(work, [inbox], state, Counts())
    return emitted


def _packed(emitted: list[tuple[Port, pl.DataFrame]]) -> Rows:
    """Pack what every shard emits, and put it into frames for Spark."""
    rows: Rows = defaultdict(list)
    for port, messages in emitted:
        held = list(blobs.pack(port, messages, SHARDS))
        blobs.data_frame(held)
        for one in held:
            rows[one.shard].append(one)
    return rows


def _inbox_rows(rows: Rows) -> int:
    return sum(frame.height for inbox in _decoded(rows) for frames in inbox.values() for frame in frames)


def _sent(batches: Iterable[pa.RecordBatch]) -> int:
    """Write record batches as a worker does, one by one, and count their rows, or the messages of their blobs."""
    rows = 0
    writer = None
    for batch in batches:
        if writer is None:
            writer = pa.ipc.new_stream(pa.MockOutputStream(), batch.schema)
        writer.write_batch(batch)
        is_packed = batch.schema.names == list(blobs.COLUMNS)
        rows += sum(batch[blobs.ROWS].to_pylist()) if is_packed else batch.num_rows
    return rows
