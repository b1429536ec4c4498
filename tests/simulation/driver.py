"""The driver of a simulated query: offset log, rounds, sinks, commit log, and restarts after it died."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from tablestream.errors import DamagedStateError
from tablestream.runtime.rounds import Round
from tablestream.spark.outputs import Output as WrittenOutput
from tablestream.spark.outputs import write_outputs
from tablestream.state.births import Births, NewShard, decode, encode
from tests.plans.comparing import sources_of
from tests.plans.engine import Engine, Hasher, Inbox, Output, stable_hash
from tests.simulation.cluster import Cluster
from tests.simulation.happened import Happened
from tests.simulation.order import COMMITTED, STARTS, WRITES, WRITTEN, Event
from tests.simulation.sink import Frame, MarkingSink, SinkFailed
from tests.simulation.store import Place
from tests.simulation.world import Kind, World


class DriverDied(Exception):  # noqa: N818 - an event of the simulation
    """The driver's process ends."""


class SimulationError(AssertionError):
    """A rule of the engine does not hold in a world."""


@dataclass
class SimulatedEngine(Engine):
    """An engine that runs its rounds as tasks of a cluster.

    Attributes
    ----------
    cluster
        Runs the tasks. It has the state of record.
    new
        The shards that found no state in the micro-batch.
    """

    cluster: Cluster | None = None
    new: list[NewShard] = field(default_factory=list)

    def _work(self, work: Round, inbox: Inbox) -> None:
        assert self.cluster is not None
        for task in self._tasks(work, inbox):
            attempt = self.cluster.run(work, task, self.now)
            self.dropped.update(attempt.dropped)
            self.measures.update(attempt.measures)
            self.new += attempt.new
            for port, frame in attempt.emitted:
                self._deliver(port, frame, inbox)
        _die(self.cluster, Kind.DIES_AFTER_ROUND, f"round {work.number}", work.number - 1)

    def _tasks(self, work: Round, inbox: Inbox) -> list[dict[int, dict[int, list[pl.DataFrame]]]]:
        """The shards of each task with their messages, in any order."""
        assert self.cluster is not None
        cluster, world = self.cluster, self.cluster.world
        tasks: dict[int, dict[int, dict[int, list[pl.DataFrame]]]] = {}
        for shard in range(self.shards):
            messages = inbox.pop((work.number, shard), {})
            if messages or cluster.has_timer((work.number, shard), self.now):
                tasks.setdefault(shard % world.tasks, {})[shard] = messages
        rng = world.rng("order", cluster.version, work.number, len(cluster.happened.events))
        return rng.sample(list(tasks.values()), len(tasks))


def _die(cluster: Cluster, kind: Kind, event: str, turn: int | None = None) -> None:
    """Let the driver die here, if the world wants it."""
    for fault in cluster.happened.take([kind], cluster.version, turn):
        cluster.happened.count(fault, event)
        raise DriverDied


@dataclass
class Committed:
    """What one micro-batch counted."""

    dropped: Counter[tuple[str, str]]
    measures: Counter[tuple[str, str]]


@dataclass
class Driver:
    """Runs a world's query to its end.

    Attributes
    ----------
    offsets
        The offset log: for each micro-batch where its records begin.
    births
        The list of births, as the checkpoint has it.
    commits
        The commit log.
    sinks
        One for each output.
    """

    world: World
    directory: Path
    happened: Happened
    offsets: list[int] = field(default_factory=list)
    births: list[str] = field(default_factory=list)
    commits: list[Committed] = field(default_factory=list)
    sinks: list[MarkingSink] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Start the query."""
        self.outputs: Sequence[Output] = self.world.case.outputs()
        self._sources = sources_of([output.node for output in self.outputs])
        self.cluster = Cluster(self.world, self.directory, self.happened)
        self.sinks = [
            MarkingSink(f"memory {n}", partial(self._sink_fails, n)) for n in range(len(self.outputs))
        ]
        self.engine = self._start()

    def run(self) -> None:
        """Run all micro-batches, and start again whenever the query ends too early."""
        while len(self.commits) < len(self.world.micro_batches):
            try:
                self._micro_batch(len(self.commits))
            except (DriverDied, SinkFailed):
                self._restart()
            except DamagedStateError as error:
                if not self.cluster.state.restore():
                    raise SimulationError(f"The state is intact, and the query ends with: {error}") from error
                self.happened.note("the query ended with damaged state; the good copy is back")
                self._restart()
        self.cluster.state.restore()

    def _start(self) -> SimulatedEngine:
        world = self.world
        self.happened.order.append(Event(STARTS))
        engine = SimulatedEngine(
            self.outputs,
            world.compat,
            world.shards,
            hasher=hasher(world),
            align=world.case.align,
            cluster=self.cluster,
        )
        engine._random = world.rng("delivery", len(self.happened.events))
        return engine

    def _restart(self) -> None:
        self.happened.note(f"restart at micro-batch {len(self.commits)}")
        self.cluster.restart()
        self.engine = self._start()

    def _micro_batch(self, number: int) -> None:
        records = self.world.records(self._sources, number)
        self.cluster.begin(number)
        if number == len(self.offsets):
            self.offsets.append(sum(map(len, self.world.micro_batches[:number])))
        _die(self.cluster, Kind.DIES_AFTER_OFFSETS, "")
        self.engine.position, self.engine.dropped = self.offsets[number], Counter()
        self.engine.new = []
        steps = self.engine.steps(records, self.world.times_us[number])
        self.happened.order.append(Event(WRITES, number))
        self._write(Frame(steps), number)
        self.happened.order.append(Event(WRITTEN, number))
        _die(self.cluster, Kind.DIES_BEFORE_COMMIT, "")
        self.commits.append(Committed(self.engine.dropped, self.engine.measures))
        self.happened.order.append(Event(COMMITTED, number))
        _die(self.cluster, Kind.DIES_AFTER_COMMIT, "")

    def _write(self, frame: Frame, number: int) -> None:
        """Write the outputs as the runner does."""
        outputs: Any = [WrittenOutput(f"output {n}", sink) for n, sink in enumerate(self.sinks)]  # type: ignore[arg-type]
        watch: Any = self
        write_outputs(frame, number, outputs, query_id="query", split=_output, watch=watch)  # type: ignore[arg-type]

    def compute(self, micro_batch: Frame, number: int, query_id: str) -> None:
        """Do what `ShardWatch.compute` does, with reports that are not packed."""
        micro_batch.count()
        births = Births.of(map(decode, self.births), query_id)
        births.check(number, self.engine.new, {})
        record = births.record(number, self.engine.new)
        self.births += [] if record is None else [encode(record)]

    def _sink_fails(self, output: int, micro_batch: int, kind: Kind) -> None:
        """Let one of the sinks fail; the ones before it have their mark then."""
        for fault in self.happened.take([kind], micro_batch, of=(output, len(self.sinks))):
            self.happened.count(fault, f"output {output}")
            raise SinkFailed

    @property
    def final_state(self) -> dict[Place, Any]:
        """The last version of every shard that has one."""
        version, state = len(self.commits), self.cluster.state
        return {place: state.at(place, version) for place in sorted(state.versions)}


def _output(frame: Any, number: int) -> Any:
    return frame.outputs[number]


def hasher(world: World) -> Hasher:
    """Return the hash of keys, cut to the world's bits. Few bits leave the shards as they are."""
    mask = (1 << world.hash_bits) - 1
    return stable_hash if world.hash_bits == 64 else lambda key: stable_hash(key) & mask
