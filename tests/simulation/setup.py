"""What a run of the query is started with, and what may be different at the next start."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.simulation.variants import variants
from tests.simulation.world import Fault, Kind, Tuning, World, random_tunings


@dataclass(frozen=True)
class Setup:
    """What may be different from one run of a query to the next, while its state stays.

    Attributes
    ----------
    tasks, executors, shares_directory, tunings
        See `World`.
    variant
        Which of the plan's `variants` has the outputs.
    """

    tasks: int
    executors: int
    shares_directory: bool
    tunings: tuple[Tuning, ...]
    variant: int = 0

    @classmethod
    def of(cls, world: World) -> Setup:
        """Return what the first run is started with."""
        return cls(world.tasks, world.executors, world.shares_directory, world.tunings)

    def changed(self, fault: Fault, world: World) -> Setup:
        """Return what the next run is started with; the same if the world has nothing else of that kind."""
        rng = world.rng("restart", fault)
        if fault.kind is Kind.OTHER_TASKS:
            return replace(self, tasks=rng.randint(1, world.shards))
        if fault.kind is Kind.OTHER_EXECUTORS:
            return replace(self, executors=rng.randint(1, 3), shares_directory=rng.random() < 0.5)
        if fault.kind is Kind.OTHER_SIZES:
            return replace(self, tunings=random_tunings(rng))
        if fault.kind is Kind.OTHER_OUTPUTS:
            return replace(self, variant=rng.randrange(len(variants(world.case))))
        return self


def used_variants(world: World) -> set[int]:
    """Return the variants of the plan that a world may use."""
    start = Setup.of(world)
    return {0} | {start.changed(fault, world).variant for fault in world.faults}
