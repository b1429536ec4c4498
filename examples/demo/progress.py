"""What a running query tells about itself, one report per micro-batch."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.25


@dataclass(frozen=True)
class MicroBatchReport:
    """One finished micro-batch.

    Parameters
    ----------
    micro_batch
        Its number, from 0.
    rows_in
        Rows read from all sources.
    changes_out
        Changes written.
    duration_s
        How long it took.
    elapsed_s
        The time since the query was started.
    observed
        What the query observed of itself, by name.
    """

    micro_batch: int
    rows_in: int
    changes_out: int
    duration_s: float
    elapsed_s: float
    observed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def changes_per_s(self) -> float:
        """The rate at which changes came out.

        Examples
        --------
        >>> MicroBatchReport(0, 10, 30, 2.0, 2.5).changes_per_s
        15.0
        """
        return self.changes_out / self.duration_s if self.duration_s else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the report as a program reads it."""
        report = {**asdict(self), "changes_per_s": round(self.changes_per_s, 1)}
        if not self.observed:
            del report["observed"]
        return {"event": "micro_batch", **report}


def follow(query: StreamingQuery, outputs: Sequence[Path]) -> Iterator[MicroBatchReport | float]:
    """Yield a report for every micro-batch as it ends, and between them the seconds since the start.

    Parameters
    ----------
    query
        A running query; when it fails, so does this iterator, with the query's error.
    outputs
        Where the query writes its changes, each with a directory per micro-batch: changes are counted there, in
        the footers of the files, because a query that writes through ``foreachBatch`` does not count them itself.
    """
    started_s = time.monotonic()
    seen = -1
    active = True
    while active:
        time.sleep(POLL_S)
        active = query.isActive  # asked before the reports, so that the last of them is not missed
        elapsed_s = time.monotonic() - started_s
        for progress in _since(query, seen):
            seen = int(progress["batchId"])
            if int(progress["numInputRows"]) > 0:
                yield _report(progress, outputs, elapsed_s)
        yield elapsed_s
    query.awaitTermination()


def _since(query: StreamingQuery, seen: int) -> list[Mapping[str, Any]]:
    """Return the reports of micro-batches after `seen`, and do not carry all of them over to find none."""
    last = query.lastProgress
    if last is None or int(last["batchId"]) <= seen:
        return []
    return [progress for progress in query.recentProgress if int(progress["batchId"]) > seen]


def _report(progress: Mapping[str, Any], outputs: Sequence[Path], elapsed_s: float) -> MicroBatchReport:
    number = int(progress["batchId"])
    return MicroBatchReport(
        micro_batch=number,
        rows_in=int(progress["numInputRows"]),
        changes_out=sum(rows_written(output / f"micro_batch={number}") for output in outputs),
        duration_s=int(progress["batchDuration"]) / 1000,
        elapsed_s=round(elapsed_s, 3),
        observed={name: _plain(row) for name, row in progress["observedMetrics"].items()},
    )


def rows_written(directory: Path) -> int:
    """Return how many rows the Parquet files of a directory hold; a missing directory holds none."""
    files = sorted(directory.glob("*.parquet"))
    return int(pl.scan_parquet(files).select(pl.len()).collect().item()) if files else 0


def _plain(row: Any) -> Any:
    return row.asDict(recursive=True) if hasattr(row, "asDict") else row
