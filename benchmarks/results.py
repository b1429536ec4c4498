"""What a contestant's own process hands back: a line per micro-batch, and what was measured beside them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql.streaming.query import StreamingQuery

OBSERVATION = "benchmark"
"""Name of the observation that counts result changes, in every contestant."""


@dataclass(frozen=True)
class MicroBatch:
    """One micro-batch as Spark's progress tells it, or one run of a query that is no stream."""

    number: int
    started_s: float
    seconds: float
    rows_in: int
    changes_out: int
    durations_ms: dict[str, int] = field(default_factory=dict)
    observed: dict[str, dict[str, Any]] = field(default_factory=dict)
    state: dict[str, int] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Input changes a second."""
        return self.rows_in / self.seconds if self.seconds else 0.0


@dataclass
class Run:
    """What one contestant did."""

    name: str
    wall_s: float = 0.0
    micro_batches: list[MicroBatch] = field(default_factory=list)
    small_micro_batches: list[MicroBatch] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    memory: list[dict[str, float]] = field(default_factory=list)
    error: str = ""

    @property
    def rows_in(self) -> int:
        """Number of input changes, without the small micro-batches."""
        return sum(m.rows_in for m in self.micro_batches)

    @property
    def changes_out(self) -> int:
        """Number of result changes, without the small micro-batches."""
        return sum(m.changes_out for m in self.micro_batches)

    @property
    def rate(self) -> float:
        """Input changes a second over all: from the query's start to its end."""
        return self.rows_in / self.wall_s if self.wall_s else 0.0

    @property
    def steady_rate(self) -> float:
        """Input changes a second without the first micro-batch, which pays for the start."""
        later = self.micro_batches[1:]
        seconds = sum(m.seconds for m in later)
        return sum(m.rows_in for m in later) / seconds if seconds else 0.0

    @property
    def output_rate(self) -> float:
        """Result changes a second over all."""
        return self.changes_out / self.wall_s if self.wall_s else 0.0

    @property
    def steady_output_rate(self) -> float:
        """Result changes a second without the first micro-batch."""
        later = self.micro_batches[1:]
        seconds = sum(m.seconds for m in later)
        return sum(m.changes_out for m in later) / seconds if seconds else 0.0

    @property
    def small_seconds(self) -> float:
        """Median duration of a small micro-batch, without the first one after the restart."""
        later = self.small_micro_batches[1:]
        return median(m.seconds for m in later) if later else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the run with the figures derived from it, for programs."""
        derived = ("rows_in", "changes_out", "rate", "steady_rate", "small_seconds")
        return asdict(self) | {name: getattr(self, name) for name in derived}


def write_run(run: Run, file: Path) -> None:
    """Write a run for the process that waits for it."""
    file.write_text(json.dumps(asdict(run), default=str))


def read_run(file: Path) -> Run:
    """Read what `write_run` wrote."""
    return run_from_json(json.loads(file.read_text()))


def run_from_json(data: dict[str, Any]) -> Run:
    """Return a run from its JSON; figures derived from it are worked out again."""
    own = {name: data[name] for name in Run.__dataclass_fields__}
    for phase in ("micro_batches", "small_micro_batches"):
        own[phase] = [MicroBatch(**m) for m in own[phase]]
    return Run(**own)


def micro_batches_of(query: StreamingQuery) -> list[MicroBatch]:
    """Return the micro-batches of a query that has ended; those that ran without input are left out."""
    progress = [json.loads(p.json) for p in query.recentProgress]
    return [_micro_batch(p) for p in progress if p["numInputRows"] > 0]


def _micro_batch(progress: dict[str, Any]) -> MicroBatch:
    observed = progress.get("observedMetrics", {})
    state: dict[str, int] = {}
    for operator in progress.get("stateOperators", []):
        for name in ("allUpdatesTimeMs", "commitTimeMs", "memoryUsedBytes", "numRowsUpdated"):
            state[name] = state.get(name, 0) + int(operator.get(name, 0))
    return MicroBatch(
        number=progress["batchId"],
        started_s=datetime.fromisoformat(progress["timestamp"]).timestamp(),
        seconds=progress["durationMs"]["triggerExecution"] / 1000,
        rows_in=progress["numInputRows"],
        changes_out=observed.get(OBSERVATION, {}).get("changes", 0),
        durations_ms=progress["durationMs"],
        observed=observed,
        state=state,
    )
