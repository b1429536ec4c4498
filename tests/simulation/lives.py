"""A life: the generations of a query that evolves, made from one integer, as `tests.simulation.world` makes a world."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from tests.plans.comparing import sources_of
from tests.plans.engine import Record
from tests.plans.evolving import of_plan
from tests.plans.logs import random_cuts, random_log
from tests.plans.tables import source
from tests.simulation.plans import Case
from tests.simulation.recipes import SOURCES, Recipe, changed, random_recipe, remembering
from tests.simulation.world import (
    FAULTS,
    Entry,
    Fault,
    Kind,
    World,
    random_faults,
    random_times,
    random_tunings,
    records_of,
)

#: What may be different when a generation starts again; other outputs are another plan.
_CHANGES = (Kind.OTHER_TASKS, Kind.OTHER_EXECUTORS, Kind.OTHER_SIZES)
#: The share of generations that read the logs again.
_REFILLS = 0.3


class Ends(StrEnum):
    """Where an attempt to evolve ends too early."""

    DAMAGED = "at damage of the old state"
    BEFORE = "before its first micro-batch"
    OFFSETS = "after the offsets"
    ROUND = "after a round"
    IN_DATA = "in a target's data"
    BEFORE_MARK = "before a target's mark"
    AFTER_MARK = "after a target's mark"
    BEFORE_COMMIT = "before the commit of its first micro-batch"
    AFTER_COMMIT = "between the commit and the places in sources"
    PLACES = "between the places in sources and the switch"
    SWITCH = "after the switch"


class Stop(NamedTuple):
    """An attempt that ends too early, at which target it does, and whether the old plan runs on before the next one."""

    ends: Ends
    where: int
    resumes: bool


@dataclass(frozen=True)
class Part(World):
    """A generation: its plan, what it is told, and what goes wrong.

    Attributes
    ----------
    recipe, evolvable
        The plan, and whether the state keeps its sources whole.
    early
        After how many micro-batches the first attempt to evolve further comes.
    stops
        The attempts to evolve into this plan that end too early.
    refill
        Whether it begins with the logs of its sources, in place of the rows in the state of the generation before.
    """

    recipe: Recipe = field(default_factory=lambda: Recipe((), ()))
    evolvable: bool = True
    early: int = 0
    stops: tuple[Stop, ...] = ()
    refill: bool = False

    @property
    def case(self) -> Case:
        """The plan."""
        return Case(self.recipe.outputs, has_model=False, evolvable=self.evolvable)

    @property
    def sources(self) -> set[str]:
        """The names of the sources that it reads."""
        return self.recipe.used & {*SOURCES}

    def records(self, sources: Sequence[Any], number: int) -> list[Record]:
        """See `World`."""
        return records_of_plan(self.micro_batches[number], sources)

    def refilled(self, told: Sequence[Entry]) -> Part:
        """The generation, whose first micro-batch reads all that was told before.

        Each log has its order; which one comes first is another thing in every second generation.
        """
        rng = self.rng("refill")
        logs = [[one for one in told if one.source == number] for number in range(len(SOURCES))]
        rng.shuffle(logs)
        again = told if rng.random() < 0.5 else [one for log in logs for one in log]
        return replace(self, micro_batches=(tuple(again), *self.micro_batches[1:]))


@dataclass(frozen=True)
class Life:
    """The generations of a query."""

    seed: int
    parts: tuple[Part, ...]

    def __str__(self) -> str:
        """Describe it, for people."""
        lines = []
        for number, part in enumerate(self.parts):
            lines.append(f"Generation {number}: {part.recipe}")
            lines.append(
                f"  {part.shards} shards, evolvable: {part.evolvable}, refill: {part.refill},"
                f" tuning: {', '.join(part.tunings)}"
            )
            lines += [f"  attempt that ends {stop.ends}, {stop.where}, {stop.resumes}" for stop in part.stops]
            for at, records in enumerate(part.micro_batches):
                told = "; ".join(
                    f"{SOURCES[one.source]} {one.key} {one.value!r} at {one.ts}" for one in records
                )
                lines.append(f"  micro-batch {at}: {told}")
            lines += [f"  fault: {fault.kind} {tuple(fault[1:])}" for fault in part.faults]
        return "\n".join(lines)


def records_of_plan(entries: Sequence[Entry], sources: Sequence[Any]) -> list[Record]:
    """Return input records with a plan's sources."""
    return of_plan(records_of(entries, [source(name) for name in SOURCES]), sources)


def make_life(seed: int, *, micro_batches: int = 3) -> Life:
    """Make the query of a seed; `micro_batches`: at most so many has a generation."""
    rng = random.Random(f"{seed} evolving")
    recipe, parts = random_recipe(rng), list[Part]()
    worlds, bits = rng.choice((1, 2)), rng.choice((64, 64, 64, 2))
    for number in range(rng.choice((2, 2, 2, 2, 3))):
        again = random.Random(f"{seed} refill {number}")
        refill = number > 0 and again.random() < _REFILLS
        if refill:
            recipe = remembering(again, recipe)
        parts.append(_part(rng, seed, number, recipe, micro_batches, worlds, bits, refill=refill))
        recipe = changed(rng, recipe)
    return Life(seed, tuple(parts))


def _part(
    rng: random.Random,
    seed: int,
    number: int,
    recipe: Recipe,
    most: int,
    worlds: int,
    bits: int,
    *,
    refill: bool,
) -> Part:
    """Make a generation; its first micro-batch, but for the first one, is the step in which the kept rows enter."""
    nodes = [one.node for one in recipe.outputs()]
    log = random_log(sources_of(nodes), rng.randrange(1 << 30), rng.randint(2, 5 * most), worlds=worlds)
    entries = [
        Entry(SOURCES.index(one.source.name), one.whole, one.value, one.ts + 20 * number) for one in log
    ]
    pieces = tuple(map(tuple, random_cuts(entries, rng.randrange(1 << 30), rng.randint(1, most))))
    cut = ((), *pieces) if number else pieces
    shards = rng.choice((1, 1, 1, 2, 3))
    chosen = rng.sample((*FAULTS, Kind.OUTPUT_LOST, *_CHANGES), rng.randint(1, 8))
    stops = [
        Stop(rng.choice(list(Ends)), rng.randrange(1000), rng.random() < 0.4)
        for _ in range(rng.choice((0, 1, 1, 2)))
    ]
    of_attempts = [one for one in chosen if "attempt" in one] or [Kind.SPECULATION]
    in_step = [Fault(rng.choice(of_attempts), 0, rng.randrange(2), rng.randrange(1000)) for _ in range(2)]
    later = random_faults(rng, chosen, cut, rng.randint(0, 4)) if any(cut) else ()
    return Part(
        seed=seed,
        plan=str(recipe),
        compat=False,
        shards=shards,
        hash_bits=bits,
        tasks=rng.randint(1, shards),
        executors=rng.randint(1, 3),
        shares_directory=rng.random() < 0.5,
        tunings=random_tunings(rng),
        micro_batches=cut,
        times_us=random_times(rng, len(cut)),
        faults=(*(in_step if number else ()), *later),
        recipe=recipe,
        evolvable=rng.random() < 0.85,
        early=rng.randint(1, len(cut)),
        stops=tuple(stops) if number else (),
        refill=refill,
    )
