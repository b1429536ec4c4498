"""``python -m tests.simulation``: simulate many seeds, or one of them again; with ``--evolving`` evolving queries."""

from __future__ import annotations

import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before anything imports Polars

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import count, islice
from multiprocessing import get_context
from time import monotonic

from tests.simulation.evolving import run_evolving_seed
from tests.simulation.lives import make_life
from tests.simulation.report import Report
from tests.simulation.run import Result, described, run_seed, run_world, shrunk
from tests.simulation.world import make_world

#: So many seeds go to a process at a time.
_PART = 100
#: So many seeds have one line of progress.
_TOLD = 100


def main(arguments: list[str] | None = None) -> int:
    """Simulate; return 0 if every seed holds."""
    options = _parser().parse_args(arguments)
    run, explain = (run_evolving_seed, _describe_evolving) if options.evolving else (run_seed, _explain)
    if options.seed is not None:
        return (_replay_evolving if options.evolving else _replay)(options.seed)
    report, began = Report(), monotonic()
    seeds = _seeds(options.first, options.seeds, None if options.seconds is None else began + options.seconds)
    try:
        for seed, result in _results(run, seeds, options.processes):
            report.add(seed, result)
            _say_progress(report, monotonic() - began)
            if result.problem is not None:
                explain(seed, result)
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)  # noqa: T201 - what was done is printed as always
    print(report.text(monotonic() - began))  # noqa: T201 - a command prints
    return 1 if report.failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this seed alone, and print its events")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds (default: 100)")
    parser.add_argument("--seconds", type=float, help="run as many seeds as fit, instead of --seeds")
    parser.add_argument("--processes", type=int, default=1, help="how many processes (default: 1)")
    parser.add_argument("--evolving", action="store_true", help="let the queries evolve")
    return parser


def _seeds(first: int, seeds: int, until_s: float | None) -> Iterator[int]:
    """Yield seeds until there are enough or the time is over."""
    if until_s is None:
        yield from range(first, first + seeds)
        return
    for seed in count(first):
        if monotonic() >= until_s:
            return
        yield seed


def _results(
    run: Callable[[int], Result], seeds: Iterator[int], processes: int
) -> Iterator[tuple[int, Result]]:
    """Run seeds one after the other, or in several processes."""
    if processes == 1:
        yield from ((seed, run(seed)) for seed in seeds)
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        while part := list(islice(seeds, _PART * processes)):
            yield from zip(part, pool.map(run, part), strict=True)


def _say_progress(report: Report, seconds: float) -> None:
    """Tell, now and then, how far it has come."""
    if report.seeds % _TOLD == 0:
        print(f"{report.seeds:,} seeds in {seconds:,.0f} s, {len(report.failed)} failed", file=sys.stderr)  # noqa: T201 - the same


def _replay(seed: int) -> int:
    """Run one seed and describe it; a failing one is made small."""
    world = make_world(seed)
    result = run_world(world)
    _print([f"Seed {seed}", described(world, result)])
    if result.problem is not None:
        _explain(seed, result)
    return 0 if result.problem is None else 1


def _replay_evolving(seed: int) -> int:
    """Run the query of a seed that evolves, and describe it."""
    result = run_evolving_seed(seed)
    _describe_evolving(seed, result)
    return 0 if result.problem is None else 1


def _describe_evolving(seed: int, result: Result) -> None:
    """Describe what came of a seed's query."""
    events = (f"  {event}" for event in result.events)
    _print([f"Seed {seed}, evolving", str(make_life(seed)), *events, f"Problem: {result.problem}", ""])


def _explain(seed: int, result: Result) -> None:
    """Say why a seed fails, and describe the smallest world that fails like it."""
    world, command = shrunk(make_world(seed)), f"python -m tests.simulation --seed {seed}"
    lines = [f"Seed {seed} fails: {result.problem}", f"Replay it: {command}", "Smallest world:"]
    _print([*lines, described(world, run_world(world)), ""])


def _print(lines: Iterable[str]) -> None:
    print("\n".join(lines), flush=True)  # noqa: T201 - a command prints


if __name__ == "__main__":
    sys.exit(main())
