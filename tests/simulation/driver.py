"""The driver of a simulated query: offset log, rounds, sinks, commit log, and restarts after it died."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest import mock

import polars as pl

from tablestream.connectors.marks import Moment
from tablestream.errors import DamagedStateError
from tablestream.planner.physical_plan import Align
from tablestream.runtime.rounds import Round
from tablestream.spark.outputs import write_outputs
from tablestream.spark.reports import Reports
from tablestream.state.births import Births, NewShard, decode, encode
from tests.plans.comparing import sources_of
from tests.plans.engine import Engine, Hasher, Inbox, Output, Record, Step, stable_hash
from tests.plans.evolving import of_plan
from tests.simulation.cluster import Cluster
from tests.simulation.happened import DriverDied, Happened, SimulationError
from tests.simulation.order import COMMITTED, STARTS, WRITES, WRITTEN, Event
from tests.simulation.restart import made_older, refuse
from tests.simulation.restores import Backup, restore, settled
from tests.simulation.setup import Setup
from tests.simulation.sink import Frame, MarkingSink, SinkFailed
from tests.simulation.store import Place
from tests.simulation.tuning import tuned
from tests.simulation.variants import Variant, variants
from tests.simulation.world import REFUSALS, RESTARTS, RESTORES, Fault, Kind, Tuning, World

#: Where in a micro-batch the query ends if something is different when it starts again, by `Fault.turn`.
ENDS = {"before the micro-batch": 0, "after the rounds": 1, "after the sinks": 2}


@dataclass
class SimulatedEngine(Engine):
    """An engine that runs its rounds as tasks of a cluster.

    Attributes
    ----------
    cluster
        Runs the tasks. It has the state of record.
    new
        The shards that found no state in the micro-batch.
    touched
        The shards that had something to do in the micro-batch.
    """

    cluster: Cluster | None = None
    new: list[NewShard] = field(default_factory=list)
    touched: set[Place] = field(default_factory=set)

    def _work(self, work: Round, inbox: Inbox) -> None:
        assert self.cluster is not None
        for task in self._tasks(work, inbox):
            attempt = self.cluster.run(work, self.shards, task, self.now)
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
                self.touched.add((work.number, shard))
                tasks.setdefault(shard % cluster.setup.tasks, {})[shard] = messages
        rng = world.rng("order", cluster.version, work.number, len(cluster.happened.events))
        return rng.sample(list(tasks.values()), len(tasks))


def _die(cluster: Cluster, kind: Kind, event: str, turn: int | None = None) -> None:
    """Let the driver die here, if the world wants it."""
    for fault in cluster.happened.take([kind], cluster.version, turn):
        cluster.happened.count(fault, event)
        raise DriverDied


@dataclass
class Committed:
    """What one micro-batch counted, and the variant of the plan that had the outputs."""

    dropped: Counter[tuple[str, str]]
    measures: Counter[tuple[str, str]]
    variant: int = 0


@dataclass
class Driver:
    """Runs a world's query to its end.

    Attributes
    ----------
    offsets
        The offset log: for each micro-batch where its records begin, and the how manieth it is that was planned.
    births
        The list of births, as the checkpoint has it.
    commits
        The commit log.
    plan
        The text of the plan that the checkpoint was started with.
    sinks
        All that the query was ever started with, by their targets.
    written
        By target, which variant of the plan each micro-batch in the sink comes from.
    tunings
        All that the query was ever started with.
    planned
        How many micro-batches were planned.
    backups
        A backup of the checkpoint after each micro-batch.
    until
        How many micro-batches the query runs before it ends; 0: all.
    base, bootstrap
        How many records came before, and the rows that the sources start with.
    """

    world: World
    directory: Path
    happened: Happened
    offsets: list[tuple[int, int]] = field(default_factory=list)
    births: list[str] = field(default_factory=list)
    commits: list[Committed] = field(default_factory=list)
    plan: str = ""
    sinks: dict[str, MarkingSink] = field(default_factory=dict)
    written: dict[str, dict[int, int]] = field(default_factory=dict)
    tunings: set[Tuning] = field(default_factory=set)
    planned: int = 0
    backups: list[Backup] = field(default_factory=list)
    until: int = 0
    base: int = 0
    bootstrap: Sequence[Record] = ()

    def __post_init__(self) -> None:
        """Start the query."""
        self.variants = self._variants()
        self.setup = Setup.of(self.world)
        self._running = ExitStack()
        with self._running:
            self._tune()
            self.cluster = Cluster(self.world, self.directory, self.happened, self.setup)
            self.engine = self._start()
            self._running = self._running.pop_all()

    def _variants(self) -> list[Variant]:
        return variants(self.world.case)

    def run(self) -> None:
        """Run the micro-batches, and start again whenever the query ends too early."""
        with self._running:
            self._run()
        self.cluster.state.restore()

    def _run(self) -> None:
        while len(self.commits) < (self.until or len(self.world.micro_batches)):
            try:
                self._micro_batch(len(self.commits))
            except (DriverDied, SinkFailed):
                self._restart()
            except DamagedStateError as error:
                if not self.cluster.state.restore():
                    raise SimulationError(f"The state is intact, and the query ends with: {error}") from error
                self.happened.note("the query ended with damaged state; the good copy is back")
                self._restart()

    @property
    def variant(self) -> Variant:
        """The outputs that the query was started with."""
        return self.variants[self.setup.variant]

    def _tune(self) -> None:
        """Give the processes that start now their sizes."""
        self._running.close()
        self._running.enter_context(tuned(self.setup.tunings))
        self.tunings.update(self.setup.tunings)

    def _start(self) -> SimulatedEngine:
        """Start the query as `ts.start` does: it stores the plan, or compares it with the stored one."""
        world = self.world
        engine = self.engine_of(self.variant.outputs, world.compat, world.shards, world.case.align)
        self.plan = self.plan or engine.plan.text
        engine.plan.check_same(self.plan)
        self.happened.order.append(Event(STARTS))
        for target in self.variant.targets:
            settled(self, self._sink(target))
        return engine

    def _sink(self, target: str) -> MarkingSink:
        return self.sinks.setdefault(target, MarkingSink(target, partial(self._sink_fails, target)))

    def moment(self, number: int) -> Moment:
        """A micro-batch, with what the offset log proves."""
        proofs = {at: f"planned as {when}" for at, (_, when) in enumerate(self.offsets)}
        return Moment(number, "query", proofs.get(number, ""), proofs.get(number - 1, ""))

    @property
    def backup(self) -> Backup:
        """What a backup of the checkpoint has now."""
        versions = {place: dict(known) for place, known in self.cluster.state.versions.items()}
        return Backup(list(self.offsets), list(self.births), list(self.commits), versions)

    def engine_of(
        self, outputs: Sequence[Output], compat: bool, shards: int, align: Align | None
    ) -> SimulatedEngine:
        """Lower a plan for the cluster."""
        engine = SimulatedEngine(
            outputs,
            compat,
            shards,
            hasher=hasher(self.world),
            align=align,
            evolvable=self.world.case.evolvable,
            cluster=self.cluster,
        )
        engine._random = self.world.rng("delivery", len(self.happened.events))
        return engine

    def _restart(self) -> None:
        number = len(self.commits)
        self.happened.note(f"restart at micro-batch {number}")
        for fault in self.happened.take(RESTORES, number):
            restore(self, fault)
        for fault in self.happened.take(RESTARTS, number):
            if fault.kind in REFUSALS:
                refuse(self, fault)
            else:
                self._change(fault)
        self._tune()
        self.cluster.restart(self.setup)
        self.engine = self._start()

    def _change(self, fault: Fault) -> None:
        """Let the query go on with something else."""
        if fault.kind is Kind.OLDER_CHECKPOINT:
            made_older(self)
            self.happened.count(fault, "texts without checksums")
            return
        before, self.setup = self.setup, self.setup.changed(fault, self.world)
        if self.setup != before:
            what = self.variant.name if fault.kind is Kind.OTHER_OUTPUTS else str(self.setup)
            self.happened.count(fault, what)

    def _ends(self, number: int, turn: int) -> None:
        """Let the query end where something is different when it starts again."""
        if self.happened.expects((*RESTARTS, *RESTORES), number, turn):
            raise DriverDied

    def begin(self, engine: SimulatedEngine, number: int) -> list[list[Step]]:
        """Begin a micro-batch, and compute its changes."""
        if number == len(self.offsets):
            self.planned += 1
            done = self.base + sum(map(len, self.world.micro_batches[:number]))
            self.offsets.append((done, self.planned))
        _die(self.cluster, Kind.DIES_AFTER_OFFSETS, "")
        engine.position, engine.dropped, engine.new = self.offsets[number][0], Counter(), []
        sources = sources_of([output.node for output in engine.outputs])
        rows = [] if number else of_plan(self.bootstrap, sources)
        return engine.steps(self.world.records(sources, number), self.world.times_us[number], rows)

    def _micro_batch(self, number: int) -> None:
        self._ends(number, ENDS["before the micro-batch"])
        self.cluster.begin(number)
        steps = self.begin(self.engine, number)
        self._ends(number, ENDS["after the rounds"])
        self.happened.order.append(Event(WRITES, number))
        self.cluster.lose_outputs()
        self._write(Frame(steps), number)
        self.happened.order.append(Event(WRITTEN, number))
        self._ends(number, ENDS["after the sinks"])
        _die(self.cluster, Kind.DIES_BEFORE_COMMIT, "")
        self.cluster.commit()
        self.commits.append(Committed(self.engine.dropped, self.engine.measures, self.setup.variant))
        self.backups.append(self.backup)
        self.happened.order.append(Event(COMMITTED, number))
        _die(self.cluster, Kind.DIES_AFTER_COMMIT, "")

    def _write(self, frame: Frame, number: int) -> None:
        """Write the outputs as the runner does: every second one, and one that is alone, by tasks and a commit."""
        for target in self.variant.targets:
            if number not in self.sinks[target].marks:
                self.written.setdefault(target, {})[number] = self.setup.variant
        self.write_to(self.variant.targets, frame, self.moment(number))

    def write_to(
        self,
        targets: Sequence[str],
        frame: Frame,
        moment: Moment,
        evolving: Mapping[str, Moment] = MappingProxyType({}),
    ) -> None:
        """Write outputs; `evolving`: the moment as a target sees it."""
        names = {f"{self.variant.name}: {target}": target for target in targets}
        sinks: dict[str, Any] = {name: self.sinks[target] for name, target in names.items()}
        staged = {name: at for at, name in enumerate(sinks) if (at + len(sinks)) % 2}
        given: Any = frame
        watch: Any = self
        outputs: Any = SimpleNamespace(
            outputs={name: SimpleNamespace(number=at, stage=at) for name, at in staged.items()}
        )
        seen = {name: evolving[target] for name, target in names.items() if target in evolving}
        with mock.patch.object(Reports, "of", partial(_reported, staged)):
            write_outputs(given, moment, sinks, split=_output, watch=watch, staged=outputs, evolving=seen)

    def look(self, spark: object, number: int, query_id: str, ports: list[int]) -> None:
        """Do what `ShardWatch.look` does, with reports that are not packed."""
        del spark, ports
        births = Births.of(map(decode, self.births), query_id)
        births.check(number, self.engine.new, {})
        record = births.record(number, self.engine.new)
        self.births += [] if record is None else [encode(record)]

    def _sink_fails(self, target: str, micro_batch: int, kind: Kind) -> None:
        """Let one of the sinks fail; the ones before it have their mark then."""
        output = self.variant.targets.index(target)
        for fault in self.happened.take([kind], micro_batch, of=(output, len(self.variant.targets))):
            self.happened.count(fault, f"output {output}")
            raise SinkFailed

    @property
    def final_state(self) -> dict[Place, Any]:
        """The last version of every shard that has one."""
        version, state = len(self.commits), self.cluster.state
        return {place: state.at(place, version) for place in sorted(state.versions)}


def _reported(staged: dict[str, int], micro_batch: Frame) -> Reports:
    """Compute a micro-batch; the engine has the reports of its tasks, but for what they write."""
    micro_batch.count()
    written: Any = {at: micro_batch.outputs[at] for at in staged.values()}
    return Reports([], [], written)


def _output(frame: Any, number: int) -> Any:
    return frame.outputs[number]


def hasher(world: World) -> Hasher:
    """Return the hash of keys, cut to the world's bits. Few bits leave the shards as they are."""
    mask = (1 << world.hash_bits) - 1
    return stable_hash if world.hash_bits == 64 else lambda key: stable_hash(key) & mask
