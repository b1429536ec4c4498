"""The command line: ``python -m benchmarks [CONTESTANT ...]``."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.contestants import CONTESTANTS
from benchmarks.large_tables import FanOut, Growing, prepare_fan_out, prepare_growing
from benchmarks.launch import Task, run_contestant
from benchmarks.nexmark.events import BLOCK, Events, prepare_events
from benchmarks.ratios import ratios_of
from benchmarks.report import conclusion_lines, machine, run_lines
from benchmarks.tpcdi.logs import Trades, prepare_trades
from benchmarks.tpch.logs import prepare_logs
from benchmarks.tpch.population import Scale
from benchmarks.workload import Workload, prepare

if TYPE_CHECKING:
    from benchmarks.results import Run

_ROOT = Path(__file__).resolve().parent.parent
#: Their memory is sampled often: a fan-out is over soon.
_SKEWED = {"skew", "skew-spread", "hot-row-even", "hot-row", "hot-row-spread"}


def main(arguments: list[str] | None = None) -> int:
    """Run the chosen contestants one after the other and print what they did.

    Returns
    -------
    int
        0, also when a target is missed; 1 when a contestant failed, 130 when the user interrupted.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    _check(parser, options)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended from outside is ended cleanly too
    names = options.contestants or list(CONTESTANTS)
    facts = machine()
    print(", ".join(f"{name} {value}" for name, value in facts.items()), flush=True)
    options.data.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="run-", dir=options.data))
    try:
        runs = _run_all(names, options, work)
    except KeyboardInterrupt:
        print("interrupted; the contestant's processes have ended")
        return 130
    finally:
        if options.keep:
            print(f"kept: {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)
    for line in conclusion_lines(runs):
        print(line)
    if options.json:
        _write_json(options, facts, runs)
    return 1 if any(run.error for run in runs.values()) else 0


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse sizes for which a log would have nothing in some micro-batch."""
    if options.events < BLOCK * options.micro_batches:
        parser.error(f"--events: give at least {BLOCK} for each micro-batch")
    if not 0 < options.refreshed < 1:
        parser.error("--refreshed: give a share between 0 and 1")
    if options.scale <= 0:
        parser.error("--scale: give a number above 0")
    for name, least in (("trades", 100), ("fan_out", 1), ("growth", 100)):
        parts = options.growth_micro_batches if name == "growth" else options.micro_batches
        if getattr(options, name) < least * parts:
            parser.error(f"--{name.replace('_', '-')}: give at least {least} for each micro-batch")


def _run_all(names: list[str], options: argparse.Namespace, work: Path) -> dict[str, Run]:
    runs = {}
    for name in names:
        workload = _workload(name, options)
        task = Task(
            contestant=name,
            folder=str(_folder(name, workload, options)),
            work=str(work / name),
            jars=str(options.jars),
            micro_batches=workload.micro_batches,
            driver_memory=options.driver_memory,
            verify=options.verify,
            hot_rows=options.hot_rows,
            sample_s=0.2 if name in _SKEWED else 1.0,
        )
        runs[name] = run_contestant(task)
        print("", *run_lines(runs[name], profile=options.profile), sep="\n", flush=True)
        if not options.keep:
            shutil.rmtree(task.work, ignore_errors=True)
    print()
    return runs


def _folder(name: str, workload: Workload, options: argparse.Namespace) -> Path:
    if name.startswith("nexmark-"):
        return prepare_events(Events(options.events, options.micro_batches), options.data)
    if name.startswith("tpch-"):
        return prepare_logs(Scale(options.scale, options.refreshed, options.micro_batches), options.data)
    if name == "tpcdi-trades":
        return prepare_trades(Trades(options.trades, options.micro_batches), options.data)
    if name == "fan-out":
        return prepare_fan_out(FanOut(options.fan_out, options.micro_batches, options.fan_outs), options.data)
    if name == "growth":
        return prepare_growing(Growing(options.growth, options.growth_micro_batches), options.data)
    return prepare(workload, options.data)


def _workload(name: str, options: argparse.Namespace) -> Workload:
    full = Workload(
        options.left_changes,
        options.left_keys,
        options.right_changes,
        options.right_keys,
        options.micro_batches,
        options.small_micro_batches,
    )
    if name == "plain-python":
        return full.scaled_down_to(options.plain_changes)
    if name in {"skew", "skew-spread"}:
        return replace(full, small_micro_batches=0, hot_percent=50)
    if name == "as-of":
        return replace(
            full,
            left_changes=options.records,
            right_changes=options.records // 2,
            right_keys=max(1, options.records // 20),
            small_micro_batches=0,
        )
    if name in {"star", "chain"}:
        return replace(full.scaled_down_to(options.star_changes), items_move=True)
    return full.cut_into(options.memory_micro_batches) if name == "memory" else full


def _write_json(options: argparse.Namespace, facts: dict[str, str], runs: dict[str, Run]) -> None:
    document = {
        "machine": facts,
        "workload": asdict(_workload("every", options)),
        "runs": {name: run.to_json() for name, run in runs.items()},
        "ratios": [asdict(ratio) | {"reached": ratio.reached} for ratio in ratios_of(runs)],
    }
    unfinished = options.json.with_name(f"{options.json.name}.{os.getpid()}")
    unfinished.write_text(json.dumps(document, indent=1))
    unfinished.rename(options.json)


def _parser() -> argparse.ArgumentParser:
    titles = "\n".join(f"  {name:20}{title}" for name, (_, _, title) in CONTESTANTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Left foreign-key join of two change logs: rates, memory, and ratios to other ways.",
        epilog=f"contestants (default: all, in this order):\n{titles}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("contestants", nargs="*", metavar="CONTESTANT", choices=[*CONTESTANTS, []])
    parser.add_argument(
        "--left-changes", type=int, default=3_000_000, metavar="N", help="3,000,000 by default"
    )
    parser.add_argument("--left-keys", type=int, default=500_000, metavar="N", help="500,000 by default")
    parser.add_argument("--right-changes", type=int, default=300_000, metavar="N", help="300,000 by default")
    parser.add_argument("--right-keys", type=int, default=50_000, metavar="N", help="50,000 by default")
    parser.add_argument("--micro-batches", type=int, default=3, metavar="N", help="3 by default")
    parser.add_argument(
        "--small-micro-batches", type=int, default=12, metavar="N", help="12, of 101 changes each"
    )
    parser.add_argument("--memory-micro-batches", type=int, default=12, metavar="N", help="12 by default")
    parser.add_argument(
        "--plain-changes", type=int, default=60_000, metavar="N", help="60,000 for plain-python"
    )
    parser.add_argument(
        "--records", type=int, default=2_000_000, metavar="N", help="2,000,000 of the stream in as-of"
    )
    parser.add_argument(
        "--star-changes", type=int, default=330_000, metavar="N", help="330,000 for star and chain"
    )
    parser.add_argument(
        "--hot-rows", type=int, default=1_000_000, metavar="N", help="1,000,000 on one right row in hot-row"
    )
    parser.add_argument("--events", type=int, default=200_000, metavar="N", help="200,000 of Nexmark")
    parser.add_argument("--scale", type=float, default=0.02, metavar="F", help="scale factor of TPC-H, 0.02")
    parser.add_argument(
        "--refreshed", type=float, default=0.1, metavar="F", help="0.1 of TPC-H's orders in each refresh"
    )
    parser.add_argument("--trades", type=int, default=100_000, metavar="N", help="100,000 of TPC-DI")
    parser.add_argument(
        "--fan-out", type=int, default=1_000_000, metavar="N", help="1,000,000 left rows of a right row"
    )
    parser.add_argument("--fan-outs", type=int, default=4, metavar="N", help="the right row changes 4 times")
    parser.add_argument(
        "--growth", type=int, default=2_000_000, metavar="N", help="2,000,000 changes of a table that grows"
    )
    parser.add_argument(
        "--growth-micro-batches", type=int, default=13, metavar="N", help="13 by default, of equal size"
    )
    parser.add_argument("--driver-memory", default="6g", help="heap of the JVM, 6g by default")
    parser.add_argument("--profile", action="store_true", help="print all observed metrics and durations")
    parser.add_argument("--verify", action="store_true", help="compare values of result changes too (slower)")
    parser.add_argument("--keep", action="store_true", help="keep checkpoints and logs")
    parser.add_argument(
        "--data",
        type=Path,
        default=_ROOT / "build" / "bench-data",
        metavar="DIR",
        help="data and working directories",
    )
    parser.add_argument(
        "--jars", type=Path, default=_ROOT / ".jars", metavar="DIR", help="where `make jars` put the jars"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures for programs")
    return parser
