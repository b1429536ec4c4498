"""Blobs: messages packed into Arrow IPC, one blob per port and shard, which is all that Spark moves.

Spark sees ``(shard int, port int, blob binary)``. Moving a row costs microseconds, moving a blob costs its bytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from functools import cache

import pandas as pd
import polars as pl
import pyarrow as pa

from tablestream.plan.rounds import Port

SCHEMA = "shard int, port int, blob binary"
#: A blob is cut where it would hold more rows than this, so that none grows beyond what Spark moves with ease.
MAX_ROWS = 250_000

Blob = tuple[int, int, bytes]
_BITS_32 = 0xFFFFFFFF


def encode(frame: pl.DataFrame) -> bytes:
    """Write a frame as an Arrow IPC file."""
    out = io.BytesIO()
    frame.write_ipc(out, compression="uncompressed")
    return out.getvalue()


def decode(blob: bytes) -> pl.DataFrame:
    """Read a frame."""
    return pl.read_ipc(io.BytesIO(blob))


@cache
def shard_names(shards: int) -> tuple[int, ...]:
    """Name the shards by numbers that Spark's hash partitioning spreads evenly.

    Spark sends shard ``s`` to partition ``hash(s) mod partitions``. Numbered from 0, 16 shards fall 7 to 9 on two
    partitions, and 8 fall 3 to 5. So shard ``i`` is the smallest number whose hash is ``i`` modulo `shards`: any
    number of partitions that divides `shards` gets equally many. Nothing but balance hangs on it.

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
    """Cut messages to a port into blobs by the shard of their route."""
    shard = (pl.col(port.route).reinterpret(signed=False) % shards).cast(pl.Int32)
    parts = frame.with_columns(_shard=shard).partition_by("_shard", as_dict=True, include_key=False)
    names = shard_names(shards)
    for (number,), part in parts.items():
        for piece in part.iter_slices(MAX_ROWS):
            yield names[number], port.number, encode(piece)


def record_batch(blobs: Iterable[Blob]) -> pa.RecordBatch:
    """Put blobs into a record batch for `mapInArrow`."""
    shards, ports, data = zip(*blobs, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(shards, pa.int32()), pa.array(ports, pa.int32()), pa.array(data, pa.binary())],
        names=["shard", "port", "blob"],
    )


def data_frame(blobs: Iterable[Blob]) -> pd.DataFrame:
    """Put blobs into a pandas frame for a stateful stage."""
    rows = list(blobs)
    return pd.DataFrame(
        {
            "shard": pd.Series([row[0] for row in rows], dtype="int32"),
            "port": pd.Series([row[1] for row in rows], dtype="int32"),
            "blob": pd.Series([row[2] for row in rows], dtype="object"),
        }
    )


def counters(counts: dict[tuple[str, str], int]) -> pl.DataFrame:
    """Put counts by operator and reason into a frame, for the port of counters."""
    return pl.DataFrame(
        {
            "operator": [operator for operator, _ in counts],
            "reason": [reason for _, reason in counts],
            "count": list(counts.values()),
        },
        schema={"operator": pl.String, "reason": pl.String, "count": pl.Int64},
    )
