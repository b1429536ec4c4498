"""Run worlds, and make a failing one small."""

from __future__ import annotations

import logging
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.simulation.checks import Undisturbed, check
from tests.simulation.driver import Driver
from tests.simulation.happened import Happened
from tests.simulation.one_thread import on_one_thread
from tests.simulation.order import Event
from tests.simulation.points import counted
from tests.simulation.world import Entry, Kind, World, make_world

#: Memory, where there is such a directory.
_DIRECTORY = Path("/dev/shm")  # noqa: S108 - only caches of tests
#: So many worlds are tried to make a failing one small.
_TRIES = 400


@dataclass(frozen=True)
class Result:
    """What came of a world.

    Attributes
    ----------
    problem
        What is wrong; None: nothing.
    events
        What happened.
    faults, points
        How often faults happened, and rare places of the code were reached.
    micro_batches
        How many micro-batches were run, with those that were repeated.
    order
        What began, ended, failed and was written; see `tests.simulation.order`.
    """

    problem: str | None
    events: list[str]
    faults: Counter[Kind]
    points: Counter[str]
    micro_batches: int
    order: list[Event]


def run_world(world: World, undisturbed_of: Callable[[World], Undisturbed] = Undisturbed) -> Result:
    """Run a world, disturbed and undisturbed, and compare."""

    def run(directory: Path, happened: Happened, points: Counter[str]) -> None:
        undisturbed = undisturbed_of(world)
        with counted(points), quiet():
            disturbed = Driver(world, directory, happened)
            disturbed.run()
        check(world, disturbed, undisturbed)

    return observed(run, Happened(list(world.faults)))


def observed(run: Callable[[Path, Happened, Counter[str]], None], happened: Happened) -> Result:
    """Run a query in a directory of its own, and say what came of it."""
    points = Counter[str]()
    parent = _DIRECTORY if _DIRECTORY.is_dir() else None
    directory = Path(tempfile.mkdtemp(prefix="tablestream-simulation-", dir=parent))
    problem = None
    try:
        run(directory, happened, points)
    except Exception as error:  # noqa: BLE001 - whatever an operator raises is a finding
        problem = "".join(traceback.format_exception_only(error)).strip()
        if not isinstance(error, AssertionError):
            problem += "\n" + "".join(traceback.format_tb(error.__traceback__)[-3:])
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return Result(problem, happened.events, happened.faults, points, happened.micro_batches, happened.order)


def run_seed(seed: int) -> Result:
    """Run the world of a seed. Its frames are tiny, so it is faster on one thread."""
    return on_one_thread(lambda: run_world(make_world(seed)))


@contextmanager
def quiet() -> Iterator[None]:
    """Log no warnings: damaged cache files are the rule here."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def shrunk(world: World) -> World:
    """Drop faults, tunings, micro-batches and records for as long as the world fails."""
    tries, smaller = _TRIES, True
    while smaller:
        smaller = False
        for candidate in _simpler(world):
            tries -= 1
            if tries < 0:
                return world
            if run_world(candidate).problem is not None:
                world, smaller = candidate, True
                break
    return world


def _simpler(world: World) -> Iterator[World]:
    """Worlds with a little less, the largest steps first. Micro-batches keep their numbers: faults name them."""
    count = len(world.micro_batches)
    for end in sorted({1 + fault.micro_batch for fault in world.faults} | {count // 2, count - 1}):
        if 0 < end < count:
            faults = tuple(fault for fault in world.faults if fault.micro_batch < end)
            yield replace(world, micro_batches=world.micro_batches[:end], faults=faults)
    for fault in world.faults:
        yield replace(world, faults=tuple(other for other in world.faults if other is not fault))
    for tuning in world.tunings:
        yield replace(world, tunings=tuple(other for other in world.tunings if other is not tuning))
    for number, records in enumerate(world.micro_batches):
        if records:
            yield _with(world, number, ())
    for number, records in enumerate(world.micro_batches):
        for record in range(len(records) if len(records) > 1 else 0):
            yield _with(world, number, (*records[:record], *records[record + 1 :]))


def _with(world: World, number: int, records: tuple[Entry, ...]) -> World:
    before, after = world.micro_batches[:number], world.micro_batches[number + 1 :]
    return replace(world, micro_batches=(*before, records, *after))


def described(world: World, result: Result) -> str:
    """Describe a world and what happened in it, for people."""
    mode = "compat" if world.compat else "default mode"
    caches = "one cache" if world.shares_directory else "a cache each"
    lines = [
        f"Plan '{world.plan}', {mode}, hashes of {world.hash_bits} bits",
        f"{world.shards} shards in {world.tasks} tasks a round, {world.executors} executors with {caches}",
        f"Tuning: {', '.join(world.tunings) or 'none'}",
        *(
            f"Micro-batch {number} at {world.times_us[number]}: "
            + "; ".join(f"source {r.source} {r.key} {r.value!r} at {r.ts}" for r in records)
            for number, records in enumerate(world.micro_batches)
            if records
        ),
        *(f"Fault: {fault.kind} {tuple(fault[1:])}" for fault in world.faults),
        *(f"  {event}" for event in result.events),
        f"Problem: {result.problem}",
    ]
    return "\n".join(lines)
