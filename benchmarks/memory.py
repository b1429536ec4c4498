"""Memory and processor time of a run, put together from its samples, and how they grow."""

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


def slowdown(run: Run) -> float | None:
    """Return the seconds of the last third of the micro-batches over those of the first; the very first is left out."""
    thirds = _thirds(run)
    if thirds is None:
        return None
    first, last = (sum(m.seconds for m in third) for third in thirds)
    return last / first


def slowdown_of_cores(run: Run) -> float | None:
    """Return the same of the processor seconds of JVM and workers, which other work on the machine changes less."""
    thirds = _thirds(run)
    if thirds is None or not run.memory:
        return None
    first, last = (
        _used_s(run, third[-1].started_s + third[-1].seconds) - _used_s(run, third[0].started_s)
        for third in thirds
    )
    return last / first if first else None


def _thirds(run: Run) -> tuple[list[MicroBatch], list[MicroBatch]] | None:
    """Return the first and the last third; the first micro-batch, which pays for the start, is in neither."""
    steady = run.micro_batches[1:]
    third = len(steady) // 3
    return (steady[:third], steady[-third:]) if third else None


def _used_s(run: Run, at_s: float) -> float:
    """Return the processor seconds that were used at a time."""
    return max((s["jvm_cpu_s"] + s["workers_cpu_s"] for s in run.memory if s["at_s"] <= at_s), default=0.0)
