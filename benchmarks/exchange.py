"""The stateless stages alone, on one core and without Spark: packing, unpacking and the last sort.

``python -m benchmarks.exchange``. One micro-batch of the maintained join goes through all stages of its plan. Each
stage is measured alone, over what the stage before it gave, in microseconds of processor time per change that came
in. Other work on the machine takes little of this time away, but it shares the caches: compare two versions in
turns, by their minimum.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before anything imports Polars

from rich.table import Table

from benchmarks.report import opened_report
from benchmarks.stages import record_batches, stages
from benchmarks.workload import Workload, prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_DATA = Path(__file__).resolve().parent.parent / "build" / "bench-data"
#: Of the workload: ten changes of rows to one of a row that they point at, six changes of each key in three parts.
_CHANGES_PER_CUSTOMER_CHANGE, _CHANGES_PER_KEY = 10, 2


@dataclass(frozen=True)
class Cost:
    """What a stage cost: microseconds of processor time per change that came into the query."""

    name: str
    rows: int
    minimum_us: float
    median_us: float


def costs(folder: Path, repeats: int) -> list[Cost]:
    """Measure every stage over the logs of a workload in `folder`; the first run of each does not count."""
    items, customers = record_batches(folder, "items"), record_batches(folder, "customers")
    changes = sum(batch.num_rows for batch in (*items, *customers))
    found = []
    for stage in stages(items, customers):
        stage.run()
        seconds = [_seconds(stage.run) for _ in range(repeats)]
        smallest, middle = (1e6 * of(seconds) / changes for of in (min, statistics.median))
        found.append(Cost(stage.name, stage.rows, smallest, middle))
    return found


def _seconds(run: Callable[[], object]) -> float:
    began_s = time.process_time()
    run()
    return time.process_time() - began_s


def costs_table(found: Sequence[Cost]) -> Table:
    """Put the stages below each other, with their sum."""
    table = Table(title="Stages alone, one core: us per change", title_justify="left")
    table.add_column("stage")
    for column in ("messages", "minimum", "median"):
        table.add_column(column, justify="right")
    for one in found:
        table.add_row(one.name, f"{one.rows:,}", f"{one.minimum_us:.3f}", f"{one.median_us:.3f}")
    sums = (sum(times) for times in zip(*((one.minimum_us, one.median_us) for one in found), strict=True))
    table.add_row("all", "", *(f"{one:.3f}" for one in sums))
    return table


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    options = _parser().parse_args(arguments)
    console = opened_report()
    customers = max(1, options.items // _CHANGES_PER_CUSTOMER_CHANGE)
    keys, targets = (max(1, rows // _CHANGES_PER_KEY) for rows in (options.items, customers))
    options.data.mkdir(parents=True, exist_ok=True)
    folder = prepare(Workload(options.items, keys, customers, targets, micro_batches=1), options.data)
    console.print(costs_table(costs(folder, options.repeats)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exchange", description=__doc__)
    parser.add_argument(
        "--items", type=int, default=1_000_000, metavar="N", help="changes of items; a tenth of customers"
    )
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="of each stage, 5 by default")
    parser.add_argument("--data", type=Path, default=_DATA, metavar="DIR", help="data directory")
    return parser


if __name__ == "__main__":
    main()
