"""Blobs: messages packed into Arrow IPC, one blob per port and shard. Spark moves nothing else.

Each blob ends with the size of its messages in memory, by which a reader of many divides them, and with a CRC-32: Arrow
trusts its input, and would read wrong rows from damaged bytes, or ask for terabytes.

Spark sees `SCHEMA`: shard, port, number of rows, blob. Moving a row costs microseconds. Moving a blob costs its
bytes, each of which is copied a dozen times: so blobs are compressed, see
``docs/decisions/006-compressed-blobs.md``.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import polars as pl
import pyarrow as pa
from pyspark.sql import types as T

from tablestream.errors import DamagedMessagesError
from tablestream.runtime.drops import Drops
from tablestream.runtime.ports import EVERY_SHARD, METRICS, NOTICES, Port
from tablestream.state.arrow import ipc_stream
from tablestream.state.births import NewShard
from tablestream.state.changes import PARTITION
from tablestream.state.positions import frame_of

if TYPE_CHECKING:
    import pandas as pd

    from tablestream.state.positions import Bools

# Users' columns stand beside these between two rounds. PySpark renames columns that begin with an underscore.
COLUMNS = SHARD, PORT, ROWS, BLOB = tuple(f"tablestream_{name}" for name in ("shard", "port", "rows", "blob"))
FIELDS = [
    T.StructField(name, kind)
    for name, kind in zip(
        COLUMNS, (T.IntegerType(), T.IntegerType(), T.LongType(), T.BinaryType()), strict=True
    )
]
SCHEMA = T.StructType(FIELDS)
#: The columns' types in Arrow.
KINDS = dict(zip(COLUMNS, (pa.int32(), pa.int32(), pa.int64(), pa.binary()), strict=True))
#: A blob is cut where it would hold more rows or bytes than this, so that none grows beyond what Spark moves with ease.
MAX_ROWS = 250_000
#: Far below the 2 GB that an array of bytes, a row of Spark's and a record batch's column of text can have at most.
MAX_BYTES = 64 << 20

_BITS_32 = 0xFFFFFFFF
_SIZE_BYTES, _CRC_BYTES = 8, 4
_NARROWED = "narrowed"
#: Fewer messages are written as they are: a small blob costs its calls, not its bytes.
_FEW = 1000
_FEW_VALUES = 6
_LEVEL = pl.CompatLevel.oldest()
# Spark runs a worker per core: threads of its own would only get into each other's way.
_WRITE = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_READ = pa.ipc.IpcReadOptions(use_threads=False)


class Blob(NamedTuple):
    """Messages to one port and shard, and their number.

    For `METRICS` the name of a counter, and its count, or the measures of a round, and its number; for `NOTICES` an
    example behind the name.
    """

    shard: int
    port: int
    rows: int
    blob: bytes | pa.Buffer


def encode(frame: pl.DataFrame) -> bytes:
    """Write messages as a compressed Arrow IPC stream."""
    return _written(_table(frame))


def _table(frame: pl.DataFrame) -> pa.Table:
    """Messages as Arrow, in fewer bytes if they are many.

    Integers that are all within 32 bits of the smallest are stored as offsets from it, and the few source
    partitions as numbers: this leaves less to compress, and most columns are of this kind. The schema's metadata
    records the changes.
    """
    if frame.height < _FEW:
        return frame.to_arrow(compat_level=_LEVEL)
    lows: dict[str, int] = {}
    partitions: list[str] = []
    columns = []
    for column in frame:
        if column.name == PARTITION:
            partitions, column = _numbered(column)  # noqa: PLW2901
        elif column.dtype == pl.Int64 and not column.has_nulls():
            low, high = cast("int", column.min()), cast("int", column.max())
            if high - low <= _BITS_32:
                lows[column.name] = low
                column = (column - low).cast(pl.UInt32)  # noqa: PLW2901
        columns.append(column)
    table = pl.DataFrame(columns).to_arrow(compat_level=_LEVEL)
    metadata = {_NARROWED: json.dumps({"lows": lows, "partitions": partitions})}
    return table.replace_schema_metadata(metadata)


def _numbered(column: pl.Series) -> tuple[list[str], pl.Series]:
    """Return the different values of a column, and the column with their numbers in place of them.

    Comparing all rows with a value takes a tenth of the time of hashing them, and most often there are few values.
    """
    values: list[str] = []
    numbers, open_rows = np.zeros(len(column), dtype=np.uint32), np.ones(len(column), dtype=bool)
    while open_rows[first := int(open_rows.argmax())]:
        if len(values) == _FEW_VALUES:
            values = column.unique().to_list()
            return values, column.replace_strict(values, range(len(values)), return_dtype=pl.UInt32)
        same = (column == column[first]).to_numpy()
        np.putmask(numbers, same, len(values))
        open_rows &= ~same
        values.append(column[first])
    return values, pl.Series(column.name, numbers)


def _written(table: pa.Table) -> bytes:
    data, size = memoryview(ipc_stream(table, _WRITE)), table.nbytes.to_bytes(_SIZE_BYTES)
    return b"".join((data, size, zlib.crc32(size, zlib.crc32(data)).to_bytes(_CRC_BYTES)))


def size_bytes(blob: bytes | pa.Buffer) -> int:
    """Return about how many bytes the messages of a blob take; their checksum is checked when they are read."""
    return int.from_bytes(memoryview(blob)[-_SIZE_BYTES - _CRC_BYTES : -_CRC_BYTES])


def _read(blob: bytes | pa.Buffer, columns: Sequence[str] = ()) -> pa.Table:
    data = memoryview(blob)
    checked, crc = data[:-_CRC_BYTES], bytes(data[-_CRC_BYTES:])
    data = checked[:-_SIZE_BYTES]
    if not data or zlib.crc32(checked).to_bytes(_CRC_BYTES) != crc:
        raise DamagedMessagesError(
            f"Messages of {len(data)} bytes are not what was sent.",
            hint="Start the query again. If the error comes back, check the disks and the memory of the workers.",
        )
    buffer, options = pa.py_buffer(data), _READ
    if columns:
        schema = pa.ipc.open_stream(buffer, options=_READ).schema
        taken = [schema.get_field_index(name) for name in columns]
        options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=taken)
    return pa.ipc.open_stream(buffer, options=options).read_all()


def decode_columns(blob: bytes | pa.Buffer, columns: Sequence[str]) -> pl.DataFrame:
    """Read some columns of a blob's messages; the others are not decompressed."""
    return _frame([_read(blob, columns)]).select(columns)


def decode(blobs: Iterable[bytes | pa.Buffer], taken: Sequence[Bools] | None = None) -> list[pl.DataFrame]:
    """Read messages of one port: one frame for all large blobs with the same columns, and one for all small ones.

    `blobs`: what `encode` wrote. `taken`: which messages of each blob to take; None: all.
    """
    alike: dict[tuple[bool, tuple[str, ...]], list[pa.Table]] = {}
    for number, blob in enumerate(blobs):
        table = _read(blob)
        if taken is not None:
            table = table.filter(pa.array(taken[number]))
        alike.setdefault((bool(table.schema.metadata), tuple(table.column_names)), []).append(table)
    return [_frame(tables) for tables in alike.values()]


def _frame(tables: Sequence[pa.Table]) -> pl.DataFrame:
    """Messages of tables that have the same columns, and are all narrowed or none."""
    return _widened(tables) if tables[0].schema.metadata else _together(tables)


def _together(tables: Sequence[pa.Table]) -> pl.DataFrame:
    """Tables as one frame, of one chunk: Polars gathers and converts chunk by chunk, which costs more than a copy."""
    return frame_of(pa.concat_tables(tables).combine_chunks())


def _widened(tables: Sequence[pa.Table]) -> pl.DataFrame:
    """Undo what `_table` did. A frame for each blob would cost as much as the blob's rows."""
    numbers: dict[str, int] = {}  # of the source partitions of all blobs
    widened = []
    for table in tables:
        narrowed = json.loads(table.schema.metadata[_NARROWED.encode()])
        here = [numbers.setdefault(name, len(numbers)) for name in narrowed["partitions"]]
        partitions, lows = np.array(here, dtype=np.uint32), narrowed["lows"]
        columns = [
            pa.array(partitions[column.to_numpy()])
            if name == PARTITION
            else pa.array(np.add(column.to_numpy(), lows[name], dtype=np.int64))
            if name in lows
            else column
            for name, column in zip(table.column_names, table.columns, strict=True)
        ]
        widened.append(pa.table(columns, names=table.column_names))
    frame = _together(widened)
    if PARTITION not in frame.columns:
        return frame
    names = pl.lit(pl.Series(list(numbers), dtype=pl.String))
    return frame.with_columns(names.gather(PARTITION).alias(PARTITION))


@cache
def shard_names(shards: int) -> tuple[int, ...]:
    """Name the shards by numbers that Spark's hash partitioning distributes evenly.

    Spark sends shard ``s`` to partition ``hash(s) mod partitions``. Numbered from 0, 16 shards go 7 to 9 to two
    partitions, and 8 go 3 to 5. So shard ``i`` is the smallest number whose hash is ``i`` modulo `shards`: then any
    number of partitions that divides `shards` gets equally many. Only balance depends on this.

    Examples
    --------
    >>> sorted(_spark_hash(name) % 4 for name in shard_names(8))
    [0, 0, 1, 1, 2, 2, 3, 3]
    """
    names: dict[int, int] = {}
    number = 0
    while len(names) < shards:
        names.setdefault(_spark_hash(number) % shards, number)
        number += 1
    return tuple(names[place] for place in range(shards))


def partition_of(shard: int, partitions: int) -> int:
    """Return the partition to which Spark sends a shard."""
    return _spark_hash(shard) % partitions


def _spark_hash(number: int) -> int:
    """Spark's ``hash`` of an int: Murmur3, 32 bits, seed 42."""
    mixed = (number * 0xCC9E2D51) & _BITS_32
    mixed = (_rotated(mixed, 15) * 0x1B873593) & _BITS_32
    result = (_rotated(42 ^ mixed, 13) * 5 + 0xE6546B64) & _BITS_32
    result ^= 4
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        result = ((result ^ (result >> shift)) * factor) & _BITS_32
    return result - (1 << 32) if result >> 31 else result


def _rotated(number: int, bits: int) -> int:
    return ((number << bits) | (number >> (32 - bits))) & _BITS_32


def pack(port: Port, frame: pl.DataFrame, shards: int) -> Iterator[Blob]:
    """Split messages to a port into blobs by their shards, or copy them to every shard."""
    if port.route == EVERY_SHARD:
        for piece in pieces(_table(frame), MAX_ROWS):
            blob = _written(piece)
            yield from (Blob(name, port.number, piece.num_rows, blob) for name in shard_names(shards))
        return
    # NumPy's stable sort of 16 bits is linear.
    shard = port.shards_of(frame, shards).astype(np.uint16)
    order = np.argsort(shard, kind="stable")
    table = _table(frame[order])
    fits = table.nbytes <= MAX_BYTES
    names, bounds = shard_names(shards), np.searchsorted(shard[order], np.arange(shards + 1))
    for number, (begin, end) in enumerate(pairwise(bounds.tolist())):
        for piece in pieces(table.slice(begin, end - begin), MAX_ROWS, fits=fits):
            blob = _written(piece)
            to = port.copied_to(number, shards)
            yield from (Blob(names[one], port.number, piece.num_rows, blob) for one in to)


def pieces(table: pa.Table, max_rows: int, *, fits: bool = False) -> Iterator[pa.Table]:
    """Split a table, in halves if uneven rows make a piece too large; only a single row may be larger.

    `fits`: the whole table is known to be small enough, so that only its rows are counted.
    """
    for start in range(0, table.num_rows, max_rows):
        piece = table.slice(start, max_rows)
        if fits or piece.nbytes <= MAX_BYTES or piece.num_rows == 1:
            yield piece
        else:
            yield from pieces(piece, (piece.num_rows + 1) // 2)


def up_to(size_bytes: int, blobs: Iterable[Blob], rows: float = math.inf) -> Iterator[list[Blob]]:
    """Cut blobs into parts of about so many bytes, as they are packed, and of about so many rows."""
    held: list[Blob] = []
    held_rows = held_bytes = 0
    for one in blobs:
        held_rows, held_bytes = held_rows + one.rows, held_bytes + len(one.blob)
        if held and (held_rows > rows or held_bytes > size_bytes):
            yield held
            held, held_rows, held_bytes = [], one.rows, len(one.blob)
        held.append(one)
    if held:
        yield held


def record_batches(blobs: Iterable[Blob]) -> Iterator[pa.RecordBatch]:
    """Put blobs into record batches for `mapInArrow`."""
    for held in up_to(MAX_BYTES, blobs):
        columns = zip(zip(*held, strict=True), KINDS.values(), strict=True)
        yield pa.RecordBatch.from_arrays([pa.array(*column) for column in columns], names=list(COLUMNS))


def data_frame(blobs: Iterable[Blob]) -> pd.DataFrame:
    """Put blobs into a pandas frame for a stateful stage."""
    import pandas as pd  # other stages do without, and start sooner

    columns = zip(*blobs, strict=True)
    kinds = zip(COLUMNS, ("int32", "int32", "int64", "object"), strict=True)
    return pd.DataFrame(
        {name: pd.Series(column, dtype=kind) for (name, kind), column in zip(kinds, columns, strict=True)}
    )


def counters(shard: int, counts: Mapping[tuple[str, str], int]) -> list[Blob]:
    """Put counts by operator, and reason or measure, into blobs for `METRICS`."""
    return [
        Blob(shard, METRICS, count, counter_name(operator, reason).encode())
        for (operator, reason), count in counts.items()
        if count
    ]


def measures(shard: int, number: int, figures: Iterable[int]) -> Blob:
    """Put what a round's operators measured, in their order, into one blob for `METRICS`. No name begins like it."""
    return Blob(shard, METRICS, number, b"\0" + ",".join(map(str, figures)).encode())


def notices(shard: int, drops: Drops) -> list[Blob]:
    """Put what the driver is told about drops into blobs for `NOTICES`."""
    return [
        Blob(shard, NOTICES, count, f"{counter_name(operator, reason)}\0{example}".encode())
        for operator, reason, count, example in drops.notices()
    ]


def report(new: NewShard, shards: int) -> Blob:
    """Report a shard without state: the port says all.

    Examples
    --------
    >>> new = NewShard(round=2, shard=shard_names(16)[3], is_born=True)
    >>> report(new, shards=16).port
    -42
    >>> reported(-42, shards=16) == new
    True
    """
    place = (new.round - 1) * shards + shard_names(shards).index(new.shard)
    return Blob(new.shard, NOTICES - 1 - (2 * place + new.is_born), 1, b"")


def reported(port: int, shards: int) -> NewShard:
    """Return the shard that a report is about."""
    place, is_born = divmod(NOTICES - 1 - port, 2)
    before, number = divmod(place, shards)
    return NewShard(before + 1, shard_names(shards)[number], bool(is_born))


def counter_name(operator: str, reason: str) -> str:
    """Name the count of an operator's drops for a reason, or of a measure, as a query's progress shows it."""
    return f"{operator}: {reason}"
