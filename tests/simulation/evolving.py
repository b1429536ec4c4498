"""Queries that evolve, with faults: each generation has another plan, and goes on where the one before ended.

The rounds, the state, what becomes of each part, the marks, numbers and proofs of generations are the real ones. How
`tablestream.spark.evolve` lets them follow each other is done here in the same order, without files.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

from tablestream.connectors.marks import Moment, judged
from tablestream.errors import StateError, TargetError
from tablestream.planner.catalogue import decode
from tablestream.planner.evolution import Facts, Fate, fates
from tablestream.planner.physical_plan import PhysicalPlan
from tablestream.spark import generations
from tablestream.spark.generations import Generation, next_generation
from tablestream.state.sealed import unseal
from tests.plans.comparing import by_step_and_key, sources_of
from tests.plans.engine import Engine, Record, Step
from tests.plans.evolving import kept_rows, of_plan
from tests.simulation.checks import Undisturbed, check_counts, check_state
from tests.simulation.driver import Committed, Driver, SimulatedEngine, hasher
from tests.simulation.happened import DriverDied, Happened, SimulationError
from tests.simulation.lives import Ends, Life, Part, Stop, make_life, records_of_plan
from tests.simulation.one_thread import on_one_thread
from tests.simulation.points import counted
from tests.simulation.recipes import REFUSED, SOURCES
from tests.simulation.restores import expect
from tests.simulation.run import Result, observed, quiet
from tests.simulation.sink import Frame, MaintainedSink, MarkingSink, SinkFailed, applied
from tests.simulation.variants import Variant
from tests.simulation.world import Entry, Fault, Kind, World

_KINDS = {
    Ends.OFFSETS: Kind.DIES_AFTER_OFFSETS,
    Ends.ROUND: Kind.DIES_AFTER_ROUND,
    Ends.IN_DATA: Kind.SINK_FAILS_IN_DATA,
    Ends.BEFORE_MARK: Kind.SINK_FAILS_BEFORE_MARK,
    Ends.AFTER_MARK: Kind.SINK_FAILS_AFTER_MARK,
    Ends.BEFORE_COMMIT: Kind.DIES_BEFORE_COMMIT,
    Ends.AFTER_COMMIT: Kind.DIES_AFTER_COMMIT,
}


@dataclass
class GenerationDriver(Driver):
    """Runs a generation.

    Attributes
    ----------
    generation
        Its place.
    targets
        Of its outputs.
    evolving
        The targets that are written in its first step, and the moment as each of them sees it.
    old
        The last micro-batch of the generation before.
    """

    generation: Generation = field(default_factory=lambda: Generation(0, ""))
    targets: tuple[str, ...] = ()
    evolving: Mapping[str, Moment] = field(default_factory=dict)
    old: Moment = field(default_factory=lambda: Moment(0, ""))

    @property
    def is_step(self) -> bool:
        """Whether the next micro-batch is the one in which the kept rows enter."""
        return self.generation.number > 0 and not self.commits

    def _variants(self) -> list[Variant]:
        return [Variant("as at first", self.world.case.outputs(), self.targets)]

    def _start(self) -> SimulatedEngine:
        if not self.is_step:
            return super()._start()
        world = self.world
        engine = self.engine_of(self.variant.outputs, world.compat, world.shards, world.case.align)
        self.plan = engine.plan.text
        return engine

    def _sink(self, target: str) -> MarkingSink:
        fails = partial(self._sink_fails, target)
        kind = MaintainedSink if target.startswith("table") else MarkingSink
        sink = self.sinks.setdefault(target, kind(target, fails))
        sink.fails = fails
        return sink

    def moment(self, number: int) -> Moment:
        """See `Driver`; what Spark has written about a micro-batch begins with the generation's name."""
        with mock.patch.object(generations, "small_lines", self._lines):
            return generations.moment_of(None, self.generation, "query", number)  # type: ignore[arg-type]

    def _lines(self, spark: object, directory: str, name: str) -> list[str]:
        del spark, directory
        number = int(name)
        planned = self.offsets[number][1] if number < len(self.offsets) else None
        return [] if planned is None else [f"{self.generation.name} planned as {planned}"]

    def _write(self, frame: Frame, number: int) -> None:
        if not self.is_step:
            self.write_to(self.targets, frame, self.moment(number))
            return
        chosen = [at for at, target in enumerate(self.targets) if target in self.evolving]
        targets = [self.targets[at] for at in chosen]
        for target in targets:
            self._sink(target)
        moment = Moment(self.old.number, "query", self.generation.name, self.old.proof)
        self.write_to(targets, Frame([frame.outputs[at] for at in chosen]), moment, self.evolving)

    def look(self, spark: object, number: int, query_id: str, ports: list[int]) -> None:
        """See `Driver`: the list of births has the generation's own numbers."""
        super().look(spark, number - self.generation.first, query_id, ports)

    def _sink_fails(self, target: str, micro_batch: int, kind: Kind) -> None:
        super()._sink_fails(target, micro_batch - self.generation.first, kind)

    def step(self) -> None:
        """Let the kept rows enter; raise if the attempt ends."""
        try:
            self._micro_batch(0)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End its processes, and give the code its own sizes again."""
        self._running.close()

    def go_on(self, until: int = 0) -> None:
        """Start the query again, or for the first time after its step, and run so many micro-batches."""
        self.until = until
        if self.commits:
            self._restart()
        self.run()

    @property
    def part(self) -> Part:
        """The generation."""
        assert isinstance(self.world, Part)
        return self.world

    @property
    def last(self) -> Moment:
        """The last micro-batch."""
        return self.moment(len(self.commits) - 1)

    def kept(self, new: Part) -> list[Record]:
        """Read the rows that the state has of the sources of another plan."""
        known = {one.name for one in self.engine.plan.sources}
        sources = [one for one in sources_of([one.node for one in new.recipe.outputs()]) if one.name in known]
        return kept_rows(replace(self.engine, stores=self.final_state), sources)


class UndisturbedGeneration(Undisturbed):
    """The same generation in the plain engine, from the same rows."""

    def __init__(self, driver: GenerationDriver) -> None:
        self._driver = driver
        super().__init__(driver.world)

    def _run(self, world: World, variant: int) -> Engine:
        driver = self._driver
        outputs = world.case.outputs()
        engine = Engine(
            outputs,
            world.compat,
            world.shards,
            hasher=hasher(world),
            position=driver.base,
            evolvable=world.case.evolvable,
        )
        sources = sources_of([output.node for output in outputs])
        counts, self.outputs[variant] = self.counts.setdefault(variant, []), []
        for number in range(len(driver.commits)):
            engine.dropped = Counter()
            rows = [] if number else of_plan(driver.bootstrap, sources)
            engine.steps(world.records(sources, number), world.times_us[number], rows)
            counts.append(Committed(engine.dropped, engine.measures))
        return engine


@dataclass
class Query:
    """Runs a query through its generations, and compares each with a query that had its plan from the start.

    Attributes
    ----------
    life, directory, points
        The query, where its caches are, and how often something happened.
    lived
        The generations that were left, with the micro-batches that they had.
    since
        The first micro-batch that each target has.
    failed
        The names of attempts that ended too early.
    parts
        What happened in each generation.
    """

    life: Life
    directory: Path
    happened: Happened
    points: Counter[str]
    lived: list[tuple[Part, int]] = field(default_factory=list)
    since: dict[str, int] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    parts: list[Happened] = field(default_factory=list)

    def run(self) -> None:
        """Run it to its end."""
        part, *later = self.life.parts
        targets = part.recipe.targets
        self.since.update(dict.fromkeys(targets, 0))
        driver = GenerationDriver(part, self.directory, self._happens(part), targets=targets)
        driver.until = part.early
        driver.run()
        for new in later:
            driver = self._evolve(driver, new)
        driver.go_on(len(driver.world.micro_batches))
        self._compare(driver)
        self.happened.micro_batches = sum(one.micro_batches for one in self.parts)

    def _happens(self, part: Part) -> Happened:
        """What is to happen in a generation, noted with the rest."""
        happens = replace(self.happened, pending=list(part.faults))
        self.parts.append(happens)
        return happens

    def _evolve(self, driver: GenerationDriver, new: Part) -> GenerationDriver:
        """Let the query evolve, in as many attempts as it takes. If it is refused, it stays as it was."""
        happens = self._happens(new)
        compared = 0
        for stop in (*new.stops, None):
            if len(driver.commits) > compared:  # before the targets get anything of an attempt
                self._compare(driver)
                compared = len(driver.commits)
            targets, found = self._fates(driver, new)
            if found is None:
                return driver
            attempt = self._prepared(driver, new, targets, found, happens, stop)
            if attempt is not None and self._takes_step(attempt, stop):
                self._leave(driver, attempt)
                attempt.go_on(new.early)
                return attempt
            self.points[f"attempt to evolve ends {stop and stop.ends}"] += 1
            if attempt is not None:
                self.failed.add(attempt.generation.name)
            if stop is not None and stop.resumes:
                self._resume(driver)
        raise SimulationError("The last attempt to evolve ends too early.")

    def _fates(
        self, driver: GenerationDriver, new: Part
    ) -> tuple[tuple[str, ...], Mapping[str, Fate] | None]:
        """The targets of the new plan, and what becomes of each: what the recipes tell. None: it is refused."""
        targets = new.recipe.targets
        plan = Engine(new.recipe.outputs(), shards=new.shards, evolvable=new.evolvable).plan
        is_same = plan.is_same(driver.plan)
        renamed = tuple(
            f"{one} since {driver.generation.number}" if fate == "refused" else one
            for one, fate in _expected(driver, new, targets, is_same=is_same).items()
        )
        old = Facts.read(json.loads(json.dumps(_facts(driver.engine.plan, driver.targets).document)))
        found = {}
        for named in (targets, renamed):
            maintained = [one for one in named if one.startswith("table")]
            parts = fates(old, _facts(plan, named), plan, maintained, is_same=is_same, refill=new.refill)
            found = dict(zip(named, [one.fate for one in parts if one.part == "output"], strict=False))
            wanted = _expected(driver, new, named, is_same=is_same)
            if found != wanted:
                raise SimulationError(f"The outputs become {found} instead of {wanted}.")
        refused = [one for one in parts if one.fate == "refused"]
        remembers = bool(new.recipe.used & REFUSED.keys()) and not new.refill
        if any(one.part == "operator" for one in refused) != remembers:
            raise SimulationError(f"Refused are {refused}; the plan has {new.recipe.used}.")
        if driver.world.case.evolvable and any(one.part == "source" for one in refused):
            raise SimulationError(f"The state keeps every source whole, and refused are {refused}.")
        for one in parts:
            self.points[f"{one.part} {one.fate}"] += 1
        return renamed, None if refused else found

    def _prepared(
        self,
        driver: GenerationDriver,
        new: Part,
        targets: tuple[str, ...],
        found: Mapping[str, Fate],
        happens: Happened,
        stop: Stop | None,
    ) -> GenerationDriver | None:
        """An attempt that is about to take the first step; None: it ends before."""
        told = sum(self._before(new, [*self.lived, (driver.part, len(driver.commits))]), list[Entry]())
        if new.refill:
            new = new.refilled(told)
        last = driver.last
        place = next_generation("", driver.generation, last, last.number)
        place = replace(
            place, name=f"{place.number}, {sum(self.points.values())}"
        )  # the same at each run of a seed
        moment = Moment(last.number, "query", place.name, last.proof)
        evolving = {
            target: replace(moment, evolves="brought over" if fate == "brought over" else "new")
            for target, fate in found.items()
            if fate != "silent"
        }
        self._forget_stale(driver, evolving)
        if stop is not None and stop.ends is Ends.DAMAGED:
            if not new.refill:  # which does not read the state
                _check_damage(driver, new, stop)
            return None
        if stop is not None and stop.ends is Ends.BEFORE:
            return None
        happens.pending = [
            one for one in happens.pending if one.kind not in _KINDS.values() or one.micro_batch
        ]
        if stop is not None and stop.ends in _KINDS:
            happens.pending.append(Fault(_KINDS[stop.ends], 0, 0, stop.where))
        return GenerationDriver(
            new,
            self.directory,
            happens,
            sinks=driver.sinks,
            base=0 if new.refill else len(told),
            bootstrap=() if new.refill else driver.kept(new),
            generation=place,
            targets=targets,
            evolving=evolving,
            old=last,
        )

    def _forget_stale(self, driver: GenerationDriver, evolving: Mapping[str, Moment]) -> None:
        """A new target that the query has written once is refused; then the user deletes it."""
        for target, moment in evolving.items():
            sink = driver.sinks.get(target)
            is_old = sink is not None and sink.last is not None and sink.last.micro_batch < moment.number
            was_left = sink is not None and sink.last is not None and sink.last.proof == moment.before
            if sink is None or moment.evolves != "new" or not (is_old or was_left):
                continue
            try:
                judged(sink.found, moment.number, moment, sink.on_mismatch)
            except TargetError:
                del driver.sinks[target]
                self.points["target with rows of before refused"] += 1
            else:
                raise SimulationError(f"{target} has {sink.last}, and is not refused.")

    def _takes_step(self, attempt: GenerationDriver, stop: Stop | None) -> bool:
        """Let the kept rows enter, and say whether the generation is the current one then."""
        try:
            attempt.step()
        except (DriverDied, SinkFailed):
            return False
        if stop is not None and stop.ends is Ends.PLACES:
            attempt.close()
            return False
        return True

    def _resume(self, driver: GenerationDriver) -> None:
        """Let the old plan go on. It is refused if a target was brought over."""
        marks = {target: driver.sinks[target].last for target in driver.targets}
        refused = [target for target, mark in marks.items() if mark and mark.proof in self.failed]
        for target in driver.targets:
            expect(driver, driver.sinks[target], refused=target in refused)
        if refused:
            self.points["old plan refused after its target was brought over"] += 1
        elif len(driver.commits) < len(driver.world.micro_batches):
            self.points["old plan goes on after an attempt"] += 1
            driver.go_on(len(driver.commits) + 1)

    def _leave(self, driver: GenerationDriver, attempt: GenerationDriver) -> None:
        """Note that the next generation is the current one."""
        self.lived.append((driver.part, len(driver.commits)))
        self.since.update(dict.fromkeys(attempt.evolving, attempt.generation.first))

    # Comparing

    def _before(self, part: Part, lived: Sequence[tuple[Part, int]]) -> list[list[Entry]]:
        """What the sources were told that a plan reads, since the query has them."""
        sources, pieces = part.sources, list[list[Entry]]()
        for earlier, count in reversed(lived):
            sources = sources & earlier.sources
            told = earlier.micro_batches[:count]
            pieces[:0] = [[one for one in piece if SOURCES[one.source] in sources] for piece in told]
            if earlier.refill:  # it has read all that was before
                break
        return pieces

    def _compare(self, driver: GenerationDriver) -> None:
        """Compare a generation with itself without faults, and with a query that had its plan from the start."""
        undisturbed = UndisturbedGeneration(driver)
        check_counts(driver.world, driver, undisturbed)
        check_state(driver.world, driver, undisturbed)
        part, outputs = driver.part, driver.variant.outputs
        always = Engine(outputs, shards=part.shards, hasher=hasher(part), evolvable=part.evolvable)
        sources = sources_of([one.node for one in outputs])
        tables: list[dict[Any, Any]] = [{} for _ in outputs]
        before, own = self._before(part, self.lived), part.micro_batches[: len(driver.commits)]
        if part.refill:  # the same order, in as many micro-batches as it was told in
            again = iter(own[0])
            before, own = [list(islice(again, len(piece))) for piece in before], ((), *own[1:])
        for number, piece in enumerate(
            [*before, *own], driver.generation.first - len(before) if driver.generation.number else 0
        ):
            steps = always.steps(records_of_plan(piece, sources))
            for at, target in enumerate(driver.targets):
                tables[at] = applied(_shown(steps[at]), tables[at])
                if number >= driver.generation.first:
                    self._check_target(driver, target, number, steps[at], tables[at])
        _check_same_tables(undisturbed.engine, always)

    def _check_target(
        self, driver: GenerationDriver, target: str, number: int, steps: list[Step], table: dict[Any, Any]
    ) -> None:
        """A target has what a query says that had the plan from the start: its later changes, or its table."""
        sink, place = driver.sinks[target], f"Micro-batch {number}, {target}"
        is_step = driver.generation.number > 0 and number == driver.generation.first
        if sink.marks != set(range(self.since[target], driver.last.number + 1)):
            raise SimulationError(f"{target} has the micro-batches {sorted(sink.marks)}.")
        if isinstance(sink, MaintainedSink):
            if sink.tables[number] != table:
                raise SimulationError(f"{place}: the table is {sink.tables[number]} instead of {table}.")
            return
        got = sink.data[number]
        if not is_step:
            if _told(got) != _told(steps):
                raise SimulationError(f"{place}: told {_told(got)} instead of {_told(steps)}.")
        elif target in driver.evolving and applied(_shown(got), {}) != table:
            raise SimulationError(f"{place}: the whole table came as {got} instead of {table}.")


def _expected(
    driver: GenerationDriver, new: Part, targets: Sequence[str], *, is_same: bool
) -> dict[str, Fate]:
    """What becomes of the outputs, by what their tables are made of."""
    before = {
        target: driver.part.recipe.made_of(asked.table)
        for target, asked in zip(driver.targets, driver.part.recipe.asked, strict=True)
    }
    found = dict[str, Fate]()
    for target, asked in zip(targets, new.recipe.asked, strict=True):
        if target not in before:
            found[target] = "new"
        elif before[target] == new.recipe.made_of(asked.table) and not new.refill:
            found[target] = "silent"
        elif target.startswith("table"):
            found[target] = "brought over"
        else:
            found[target] = "silent" if is_same and not new.refill else "refused"
    return found


def _check_damage(driver: GenerationDriver, new: Part, stop: Stop) -> None:
    """Rows of a damaged state are read as they were, or not at all."""
    good = driver.kept(new)
    kinds = (Kind.CHUNK_MISSING, Kind.CHUNK_FLIPPED, Kind.MANIFEST_MISSING, Kind.MANIFEST_FLIPPED)
    driver.cluster.version = len(driver.commits)
    driver.cluster.damage_state(Fault(kinds[stop.where % len(kinds)], 0, 0, stop.where))
    try:
        found = driver.kept(new)
    except StateError:
        driver.cluster.state.restore()
        return
    if [one[1:] for one in found] != [one[1:] for one in good]:
        raise SimulationError(f"Of damaged state the query would evolve with {found} instead of {good}.")
    driver.cluster.state.restore()


def _check_same_tables(evolved: Engine, always: Engine) -> None:
    """The state has the same tables, but for times: those of rebuilt rows follow from the rows that are there."""
    names = [{one.name for one in _tables(engine)} for engine in (evolved, always)]
    if names[0] != names[1] and all(names):
        raise SimulationError(f"The state has the tables {names[0]} instead of {names[1]}.")
    for name in names[0] & names[1]:
        mine, his = (
            Counter((row.key, repr(row.value)) for row in engine.read(name)) for engine in (evolved, always)
        )
        if mine != his:
            raise SimulationError(f"The state has of {name} {mine - his} instead of {his - mine}.")


def _tables(engine: Engine) -> Sequence[Any]:
    texts = [store.tables for store in engine.stores.values() if store.tables]
    return decode(unseal(texts[0], "tables")).tables if texts else ()


def _facts(plan: PhysicalPlan, targets: Sequence[str]) -> Facts:
    return Facts.of(plan, {f"o{number}": target for number, target in enumerate(targets)})


def _shown(steps: Sequence[Step]) -> list[Step]:
    """Changes without the rows before."""
    return [
        one._replace(change=one.change._replace(value=one.change.value[1]))
        if isinstance(one.change.value, tuple)
        else one
        for one in steps
    ]


def _told(steps: Sequence[Step]) -> list[tuple[int, Any, Any]]:
    return [(one.number, one.change.key, one.change.value) for one in by_step_and_key(steps)]


def run_life(life: Life) -> Result:
    """Run a query that evolves, and compare."""
    happened = Happened([])

    def run(directory: Path, happened: Happened, points: Counter[str]) -> None:
        with counted(points), quiet():
            Query(life, directory, happened, points).run()

    return observed(run, happened)


def run_evolving_seed(seed: int) -> Result:
    """Run the query of a seed; see `run_seed`."""
    return on_one_thread(lambda: run_life(make_life(seed)))
