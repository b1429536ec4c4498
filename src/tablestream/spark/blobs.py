"""Blobs: messages packed into Arrow IPC, one blob per port and shard, which is all that Spark moves.

Spark sees ``(shard int, port int, blob binary)``. Moving a row costs microseconds, moving a blob costs its bytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator

import pandas as pd
import polars as pl
import pyarrow as pa

from tablestream.plan.rounds import Port

SCHEMA = "shard int, port int, blob binary"
#: A blob is cut where it would hold more rows than this, so that none grows beyond what Spark moves with ease.
MAX_ROWS = 250_000

Blob = tuple[int, int, bytes]


def encode(frame: pl.DataFrame) -> bytes:
    """Write a frame as an Arrow IPC file."""
    out = io.BytesIO()
    frame.write_ipc(out, compression="uncompressed")
    return out.getvalue()


def decode(blob: bytes) -> pl.DataFrame:
    """Read a frame."""
    return pl.read_ipc(io.BytesIO(blob))


def pack(port: Port, frame: pl.DataFrame, shards: int) -> Iterator[Blob]:
    """Cut messages to a port into blobs by the shard of their route."""
    shard = (pl.col(port.route).reinterpret(signed=False) % shards).cast(pl.Int32)
    parts = frame.with_columns(_shard=shard).partition_by("_shard", as_dict=True, include_key=False)
    for (number,), part in parts.items():
        for piece in part.iter_slices(MAX_ROWS):
            yield number, port.number, encode(piece)


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
