"""What the benchmark prints."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from benchmarks.contestants import CONTESTANTS
from benchmarks.memory import growth, peaks, processor_seconds
from benchmarks.ratios import ratios_of, same_changes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.results import MicroBatch, Run

_LINE_WIDTH = 110
_PACKAGES = ("tablestream", "pyspark", "polars", "pyarrow", "pandas")


def opened_report() -> Console:
    """Return where a benchmark prints its tables, with a first line that says what machine it ran on."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_LINE_WIDTH)
    console.print(", ".join(f"{name} {value}" for name, value in machine().items()), soft_wrap=True)
    return console


def machine() -> dict[str, str]:
    """Return what the figures depend on beside the code."""
    facts = {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": platform.platform(terse=True),
        "load before": f"{os.getloadavg()[0]:.1f}",
        "Python": platform.python_version(),
    }
    return facts | {name: _version(name) for name in _PACKAGES}


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def run_lines(run: Run, *, profile: bool) -> Iterator[str]:
    """Yield the text of one contestant."""
    yield f"{run.name}: {CONTESTANTS[run.name][2]}"
    if run.error:
        yield from (f"  | {line}" for line in run.error.splitlines())
        return
    if run.micro_batches:
        yield from _table(run, run.micro_batches)
        yield _summary(run)
    if run.small_micro_batches:
        yield from _table(run, run.small_micro_batches)
        yield f"  median without the first: {run.small_seconds:.3f} s"
    yield from _resources(run)
    yield from (f"  {name}: {value}" for name, value in run.facts.items())
    if profile:
        yield from _profile(run)


def _table(run: Run, micro_batches: list[MicroBatch]) -> Iterator[str]:
    yield "  micro-batch   seconds     rows in  changes out  rows in/s   JVM MiB  workers MiB  (private)"
    for m in micro_batches:
        found = peaks(run, m)
        memory = [
            f"{found[name]:,.0f}" if found else "-"
            for name in ("jvm_mib", "workers_mib", "workers_private_mib")
        ]
        yield (
            f"  {m.number:11d} {m.seconds:9.3f} {m.rows_in:11,d} {m.changes_out:12,d} {m.rate:10,.0f}"
            f" {memory[0]:>9} {memory[1]:>12} {memory[2]:>10}"
        )


def _summary(run: Run) -> str:
    steady = f", steady (without the first) {run.steady_rate:,.0f}/s" if run.steady_rate else ""
    return (
        f"  {run.rows_in:,} changes in, {run.changes_out:,} out, {run.wall_s:.2f} s:"
        f" {run.rate:,.0f} changes/s over all{steady}"
    )


def _resources(run: Run) -> Iterator[str]:
    found, seconds = peaks(run), processor_seconds(run)
    if not found or seconds is None:
        yield "  memory and processor time: not sampled (no /proc here, or too short)"
        return
    yield (
        f"  peak memory: JVM {found['jvm_mib']:,.0f} MiB, Python workers {found['workers_mib']:,.0f} MiB"
        f" (private {found['workers_private_mib']:,.0f}, largest one {found['largest_worker_mib']:,.0f},"
        f" largest private {found['largest_private_mib']:,.0f});"
        f" processor: JVM {seconds[0]:.0f} s, workers {seconds[1]:.0f} s"
    )


def _profile(run: Run) -> Iterator[str]:
    """Yield every number that Spark and the operators report, summed over the micro-batches of each phase."""
    for phase, micro_batches in (("", run.micro_batches), ("small ", run.small_micro_batches)):
        totals: dict[str, float] = {}
        for m in micro_batches:
            groups = {"duration_ms": m.durations_ms, "state": m.state, **m.observed}
            for group, metrics in groups.items():
                for name, value in metrics.items():
                    if isinstance(value, (int, float)):
                        totals[f"{group}.{name}"] = totals.get(f"{group}.{name}", 0) + value
        yield from (f"  {phase}{name:40} {value:16,.0f}" for name, value in totals.items())


def conclusion_lines(runs: dict[str, Run]) -> Iterator[str]:
    """Yield the comparison of contestants: equality, ratios with their targets, growth of memory."""
    if (equality := same_changes(runs)) is not None:
        yield equality
    for ratio in ratios_of(runs):
        sign, verdict = "<=" if ratio.at_most else ">=", "reached" if ratio.reached else "short of it"
        yield f"{ratio.name:42} {ratio.figure:8.2f}   target {sign} {ratio.target:g}: {verdict}"
    memory = runs.get("memory")
    if memory is not None and (grown := growth(memory)) is not None:
        yield f"{'workers private memory, last / second third':42} {grown:8.2f}   flat is 1"
