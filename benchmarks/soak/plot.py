"""The plot of a soak: micro-batches, state and memory over time, with the faults as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib import pyplot as plt

from benchmarks.soak.faults import BROKER, CACHE, DRIVER, EXECUTOR

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from benchmarks.processes import Sample as MemorySample
    from benchmarks.soak.faults import Fault
    from benchmarks.soak.samples import Sample

mpl.use("svg")
_MB = 1e6
_COLOURS = {EXECUTOR: "0.75", CACHE: "#a6dba0", DRIVER: "#d73027", BROKER: "#4575b4"}


def plot(
    file: Path, samples: list[Sample], memory: list[MemorySample], faults: list[Fault], start_s: float
) -> None:
    """Draw it into an SVG file."""
    times = [one.at_s - start_s for one in samples]
    figure, (batches, rates, state, used) = plt.subplots(4, sharex=True, figsize=(9, 9), layout="constrained")
    batches.plot(times, [one.seconds for one in samples], ".-")
    batches.set_ylabel("micro-batch, s")
    rates.plot(times, [one.rows_in / one.seconds for one in samples], ".-", label="changes in")
    rates.plot(times, [one.changes_out / one.seconds for one in samples], ".-", label="changes out")
    rates.set_ylabel("in a micro-batch, /s")
    known = [
        (one.at_s - start_s, one.state_rows, one.state_bytes) for one in samples if one.state_rows is not None
    ]
    state.plot([at for at, _, _ in known], [rows for _, rows, _ in known], ".-", label="rows")
    state.set_ylabel("rows in the state")
    sizes = state.twinx()
    sizes.plot([at for at, _, _ in known], [(size or 0) / _MB for _, _, size in known], "C1.-")
    sizes.set_ylabel("MB (orange)")
    sizes.set_ylim(bottom=0)
    times = [one.at_s - start_s for one in memory]
    used.plot(times, [one.jvm_mib for one in memory], label="JVMs")
    used.plot(times, [one.workers_private_mib for one in memory], label="Python workers, private")
    used.set_ylabel("memory, MiB")
    used.set_xlabel(
        "seconds; killed: executor grey, driver red, broker blue; part of the cache deleted: green"
    )
    for axes in (batches, rates, state, used):
        _finish(axes, faults)
    figure.savefig(file)


def _finish(axes: Axes, faults: list[Fault]) -> None:
    axes.set_ylim(bottom=0)
    for fault in faults:
        axes.axvline(fault.at_s, color=_COLOURS[fault.kind], zorder=0, linewidth=0.6)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="lower right")
