"""What is seen of the query while it runs: a line for every micro-batch in a file that outlives the query's process."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tablestream import QueryMetrics

_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Sample:
    """A micro-batch: when it was heard of, in seconds since 1970; its size, and what the operators hold."""

    at_s: float
    micro_batch: int
    seconds: float
    rows_in: int
    changes_out: int
    state_rows: int | None
    state_bytes: int | None


@dataclass
class SampleFile:
    """Adds a line for every micro-batch, as a `MetricsListener`'s function."""

    path: Path
    _seen: set[int] = field(default_factory=set, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __call__(self, metrics: QueryMetrics) -> None:
        """Note a micro-batch."""
        rows = [one.state_rows for one in metrics.operators.values()]
        sizes = [one.state_bytes for one in metrics.operators.values()]
        sample = Sample(
            at_s=time.time(),
            micro_batch=metrics.micro_batch,
            seconds=metrics.duration_ms / 1000,
            rows_in=metrics.rows_in,
            changes_out=metrics.changes_out,
            state_rows=None if None in rows else sum(row for row in rows if row is not None),
            state_bytes=None if None in sizes else sum(size for size in sizes if size is not None),
        )
        with self._lock, self.path.open("a") as file:
            file.write(json.dumps(asdict(sample)) + "\n")
            self._seen.add(sample.micro_batch)

    def wait_for(self, micro_batch: int) -> None:
        """Wait until a micro-batch was heard of: Spark tells its listeners in its own time."""
        end_s = time.monotonic() + _PATIENCE_S
        while micro_batch not in self._seen and time.monotonic() < end_s:
            time.sleep(0.1)


def read_samples(path: Path) -> list[Sample]:
    """Read the micro-batches that had something to do, in order; the last line of one that was done twice counts.

    A process that is killed may leave a line that is cut off; it is left out.
    """
    samples = dict[int, Sample]()
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            sample = Sample(**json.loads(line))
        except ValueError:
            continue
        samples[sample.micro_batch] = sample
    return [one for _, one in sorted(samples.items()) if one.rows_in]


def flatness(figures: list[float], of: Callable[[list[float]], float] = median) -> float | None:
    """The median, or another figure, of the last third of some figures over that of the second; flat is 1."""
    third = len(figures) // 3
    before = of(figures[third : 2 * third]) if third else 0
    return of(figures[-third:]) / before if before else None
