"""How a contestant's streaming query is run and counted."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from benchmarks.results import OBSERVATION, MicroBatch, micro_batches_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

    from benchmarks.launch import Task

RESULT_COLUMNS = ("item_id", "customer_id", "item", "amount", "customer", "score")


def counters(task: Task, timestamp: str) -> list[Column]:
    """Return what is observed: the number of result changes and, to verify, a sum of hashes over them.

    The sum is the same for the same changes in whatever order; it costs time, so a measured run goes without.
    """
    columns = [F.count(F.lit(1)).alias("changes")]
    if task.verify:
        hashed = F.xxhash64(*RESULT_COLUMNS, timestamp)
        columns.append(F.sum(F.pmod(hashed, F.lit(1 << 31))).alias("hash"))
    return columns


def run_to_end(
    result: DataFrame,
    task: Task,
    timestamp: str,
    output_mode: str = "append",
    into: Path | None = None,
    observed: Mapping[str, Column] | None = None,
) -> tuple[float, list[MicroBatch]]:
    """Write a streaming result until its input ends; return seconds and micro-batches.

    It goes to the noop sink, or as Parquet files into a directory. Started again in the same working directory, it
    goes on where it ended. `observed` has further aggregates of the changes.
    """
    columns = [*counters(task, timestamp), *(one.alias(name) for name, one in (observed or {}).items())]
    writer = result.observe(OBSERVATION, *columns).writeStream.outputMode(output_mode)
    to_sink = writer.format("noop") if into is None else writer.format("parquet").option("path", str(into))
    start = time.perf_counter()
    query = (
        to_sink.option("checkpointLocation", str(Path(task.work) / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return time.perf_counter() - start, micro_batches_of(query)
