"""Text for the page "How speed is measured": ``python -m benchmarks.page out.json`` prints it as Markdown."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.contestants import CONTESTANTS
from benchmarks.memory import growth, peaks, processor_seconds
from benchmarks.results import Run, run_from_json

if TYPE_CHECKING:
    from collections.abc import Iterator


def page(document: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the page's measured part."""
    runs = {name: run_from_json(data) for name, data in document["runs"].items()}
    complete = {name: run for name, run in runs.items() if not run.error}
    yield from _setting(document)
    yield from _rates(complete)
    yield from _ratios(document["ratios"])
    yield from _small(complete)
    yield from _memory(complete)


def _setting(document: dict[str, Any]) -> Iterator[str]:
    w = document["workload"]
    yield (
        f"{w['left_changes']:,} item changes on {w['left_keys']:,} keys and {w['right_changes']:,} customer"
        f" changes on {w['right_keys']:,} keys, from Parquet, {w['micro_batches']} micro-batches, `local[2]`,"
        " noop sink. " + ", ".join(f"{name} {value}" for name, value in document["machine"].items()) + "."
    )
    yield ""


def _rates(runs: dict[str, Run]) -> Iterator[str]:
    yield "| contestant | changes in | changes out | seconds | changes/s | steady changes/s |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name, run in runs.items():
        if run.micro_batches:
            steady = f"{run.steady_rate:,.0f}" if run.steady_rate else "-"
            yield (
                f"| {CONTESTANTS[name][2]} | {run.rows_in:,} | {run.changes_out:,} | {run.wall_s:.1f} |"
                f" {run.rate:,.0f} | {steady} |"
            )
    yield ""


def _ratios(ratios: list[dict[str, Any]]) -> Iterator[str]:
    yield "| ratio | measured | target |"
    yield "|---|---:|---:|"
    for ratio in ratios:
        sign = "≤" if ratio["at_most"] else "≥"
        yield f"| {ratio['name']} | {ratio['figure']:.2f} | {sign} {ratio['target']:g} |"
    yield ""


def _small(runs: dict[str, Run]) -> Iterator[str]:
    for name, run in runs.items():
        if run.small_seconds:
            rows, title = run.small_micro_batches[-1].rows_in, CONTESTANTS[name][2]
            yield f"A micro-batch of {rows} changes, {title}: {run.small_seconds:.2f} s (median)."
            yield ""


def _memory(runs: dict[str, Run]) -> Iterator[str]:
    yield "| contestant | peak JVM MiB | peak workers MiB | of it private | JVM core-seconds | workers |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name, run in runs.items():
        found, seconds = peaks(run), processor_seconds(run)
        if found and seconds:
            yield (
                f"| {CONTESTANTS[name][2]} | {found['jvm_mib']:,.0f} | {found['workers_mib']:,.0f} |"
                f" {found['workers_private_mib']:,.0f} | {seconds[0]:.0f} | {seconds[1]:.0f} |"
            )
    yield ""
    memory = runs.get("memory")
    if memory is not None and (grown := growth(memory)) is not None:
        series = [found["workers_private_mib"] for m in memory.micro_batches if (found := peaks(memory, m))]
        yield (
            f"Private memory of the Python workers, peak of each of {len(series)} equal micro-batches, MiB: "
            f"{', '.join(f'{mib:,.0f}' for mib in series)}. Last third over second third: {grown:.2f}."
        )


if __name__ == "__main__":
    print("\n".join(page(json.loads(Path(sys.argv[1]).read_text()))))
