"""A query of the library's shape that does nothing: what Spark itself takes for a small micro-batch.

Two logs are packed into blobs, pass two chained stateful Python stages that declare state and never touch it,
are shuffled once more and unpacked. Rows of a small micro-batch go in and come out.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks.contestants.running import run_to_end
from benchmarks.results import Run
from benchmarks.workload import copy_log, read_stream

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.launch import Task

_BLOB = "shard int, blob binary"
_SHARDS = 2
"""As many as there are shuffle partitions: the least that keeps both busy."""


class PassThrough(StatefulProcessor):
    """Hands its blobs on."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the two state variables that a round of the library has."""
        handle.getValueState("manifest", "bytes binary")
        handle.getMapState("runs", "run int", "bytes binary")

    def handleInputRows(  # noqa: N802
        self, _key: tuple[int], rows: Iterator[pd.DataFrame], _timers: object
    ) -> Iterator[pd.DataFrame]:
        """Return the rows as they came."""
        yield from rows

    def close(self) -> None:
        """Nothing to close."""


def pass_through(spark: SparkSession, task: Task) -> Run:
    """Run the small micro-batches through the empty stages."""
    logs = Path(task.work) / "logs"
    copy_log(Path(task.folder), logs, prefix="small-")
    items = read_stream(spark, logs, "items").mapInArrow(_pack, _BLOB)
    customers = read_stream(spark, logs, "customers").mapInArrow(_pack, _BLOB)
    result = _stage(_stage(items).union(customers)).repartition("shard").mapInArrow(_unpack, "ts timestamp")
    run = Run(task.contestant)
    counted_only = replace(task, verify=False)  # no result here whose values could be compared
    run.wall_s, run.small_micro_batches = run_to_end(result, counted_only, "ts")
    return run


def _stage(blobs: DataFrame) -> DataFrame:
    return blobs.groupBy("shard").transformWithStateInPandas(PassThrough(), _BLOB, "append", "none")


def _pack(record_batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for rows in record_batches:
        bounds = [len(rows) * shard // _SHARDS for shard in range(_SHARDS + 1)]
        yield _blob_rows([_to_blob(rows[start:end]) for start, end in pairwise(bounds)])


def _blob_rows(blobs: list[bytes]) -> pa.RecordBatch:
    shards = pa.array(range(len(blobs)), pa.int32())
    return pa.RecordBatch.from_arrays([shards, pa.array(blobs, pa.binary())], names=["shard", "blob"])


def _to_blob(rows: pa.RecordBatch) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema) as writer:
        writer.write_batch(rows)
    return bytes(out.getvalue())


def _unpack(record_batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for blobs in record_batches:
        for blob in blobs.column("blob"):
            rows: Any = pa.ipc.open_stream(blob.as_py()).read_all()
            yield from rows.select(["ts"]).to_batches()
