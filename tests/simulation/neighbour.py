"""Another query of the same plan, whose workers share the cache with the simulated one."""

from __future__ import annotations

from unittest import mock

from tablestream.state import manifest as manifests
from tests.plans.comparing import sources_of
from tests.plans.engine import Engine
from tests.plans.logs import random_log
from tests.simulation.executors import Executor
from tests.simulation.world import World

#: So many records has each of its micro-batches.
_RECORDS = 3
#: The format of its state, also while the simulated query is started as a version with another one.
_FORMAT = manifests.FORMAT_VERSION


class Neighbour:
    """A query with its own input and its own state of record."""

    def __init__(self, world: World) -> None:
        outputs = world.case.outputs()
        self._engine = Engine(outputs, world.compat, world.shards, align=world.case.align)
        self._log = random_log(sources_of([output.node for output in outputs]), world.seed + 1, 60, worlds=1)

    def run(self, executor: Executor) -> str:
        """Run a micro-batch on an executor."""
        self._engine.cache = executor.cache
        first = self._engine.position
        records = self._log[first : first + _RECORDS]
        with mock.patch.object(manifests, "FORMAT_VERSION", _FORMAT):
            self._engine.steps(records, now=first * 1000)
        return f"executor {executor.number}: {len(records)} records"
