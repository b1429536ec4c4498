"""What ``tablestream run`` says about each micro-batch: a line, or a JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from tablestream.metrics.query_metrics import QueryMetrics
from tablestream.pictures.figures import size

#: What Kafka's source reports: how many records of its topics it has not read yet, in the partition with most.
_BEHIND = "maxOffsetsBehindLatest"


@dataclass(frozen=True)
class MicroBatch:
    """A micro-batch that has ended."""

    number: int
    duration_s: float
    """Its number and its time."""
    records_in: int
    changes_out: int | None = None
    """Records that its sources read, and changes that its outputs received; None if the query is not one of this
    library."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Numbers of dropped records that are not 0, by table and reason."""
    state_rows: int | None = None
    state_bytes: int | None = None
    """The size of the state; None until all shards have reported."""
    behind: int | None = None
    """How many records a source of Kafka is behind its topics, in the partition with most; None for other sources."""

    @classmethod
    def of(cls, progress: StreamingQueryProgress, metrics: QueryMetrics | None) -> MicroBatch:
        """Take what there is from Spark's progress, and from the metrics in it."""
        lags = [int(one.metrics[_BEHIND]) for one in progress.sources if _BEHIND in (one.metrics or {})]
        basic = cls(
            progress.batchId,
            progress.batchDuration / 1000,
            progress.numInputRows,
            behind=max(lags, default=None),
        )
        return basic if metrics is None else basic._with(metrics)

    def _with(self, metrics: QueryMetrics) -> MicroBatch:
        sizes = [(one.state_rows, one.state_bytes) for one in metrics.operators.values()]
        rows, size_bytes = (_sum(figures) for figures in zip(*sizes, strict=True)) if sizes else (0, 0)
        dropped = {f"{place}: {reason}": count for (place, reason), count in metrics.dropped.items() if count}
        return replace(
            self, changes_out=metrics.changes_out, dropped=dropped, state_rows=rows, state_bytes=size_bytes
        )

    def per_s(self, count: int) -> float:
        """Return a rate in this micro-batch."""
        return round(count / self.duration_s, 1) if self.duration_s else 0.0

    def __str__(self) -> str:
        """One line; the parts that have nothing to say are left out."""
        parts = [f"in {short(self.records_in)} ({short(self.per_s(self.records_in))}/s)"]
        if self.changes_out is not None:
            parts.append(f"out {short(self.changes_out)} ({short(self.per_s(self.changes_out))}/s)")
        parts.append(f"{self.duration_s:.1f} s")
        if self.state_rows is not None and self.state_bytes is not None:
            parts.append(f"state {short(self.state_rows)} rows {size(self.state_bytes)}")
        if self.dropped:
            parts.append(f"dropped {short(sum(self.dropped.values()))}")
        if self.behind:
            parts.append(f"behind {short(self.behind)}")
        return f"batch {self.number}: {', '.join(parts)}"

    def as_json(self) -> dict[str, Any]:
        """Return all figures, for programs."""
        out = self.changes_out
        return {
            "event": "micro_batch",
            "micro_batch": self.number,
            "duration_s": self.duration_s,
            "records_in": self.records_in,
            "records_per_s": self.per_s(self.records_in),
            "changes_out": out,
            "changes_per_s": None if out is None else self.per_s(out),
            "dropped": dict(self.dropped),
            "state_rows": self.state_rows,
            "state_bytes": self.state_bytes,
            "behind": self.behind,
        }


def short(count: float) -> str:
    """Return a number in at most six characters, up to a million million.

    Examples
    --------
    >>> [short(count) for count in (0, 0.25, 9_999, 10_000, 123_456, 7_654_321)]
    ['0', '0.2', '9999', '10.0k', '123k', '7.7M']
    """
    figure, units = float(count), ["k", "M", "G"]
    if count < 10_000:
        return f"{count:.1f}" if 0 < count < 10 and isinstance(count, float) else f"{count:.0f}"
    while figure >= 1000 and units:
        figure, unit = figure / 1000, units.pop(0)
    return f"{figure:.0f}{unit}" if figure >= 100 else f"{figure:.1f}{unit}"


def _sum(figures: tuple[int | None, ...]) -> int | None:
    known = [one for one in figures if one is not None]
    return sum(known) if len(known) == len(figures) else None
