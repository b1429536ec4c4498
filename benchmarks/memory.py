"""Memory and processor time of a run, put together from its samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.results import MicroBatch, Run

PEAKS = ("jvm_mib", "workers_mib", "workers_private_mib", "largest_worker_mib", "largest_private_mib")


def peaks(run: Run, micro_batch: MicroBatch | None = None) -> dict[str, float]:
    """Return the highest samples of a run, or of one of its micro-batches; empty where there is none."""
    samples = run.memory
    if micro_batch is not None:
        end_s = micro_batch.started_s + micro_batch.seconds
        samples = [s for s in samples if micro_batch.started_s <= s["at_s"] <= end_s]
    return {name: max(s.get(name, 0.0) for s in samples) for name in PEAKS} if samples else {}


def processor_seconds(run: Run) -> tuple[float, float] | None:
    """Return the processor seconds of the JVM and of the Python workers, from start to end."""
    if not run.memory:
        return None
    last = run.memory[-1]
    return last["jvm_cpu_s"], last["workers_cpu_s"]


def growth(run: Run) -> float | None:
    """Return the workers' private peak in the last third of the micro-batches over that in the second."""
    series = [found["workers_private_mib"] for m in run.micro_batches if (found := peaks(run, m))]
    third = len(series) // 3
    if not third or not max(series[third : 2 * third]):
        return None
    return max(series[-third:]) / max(series[third : 2 * third])
