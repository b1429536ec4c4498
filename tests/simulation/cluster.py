"""The cluster: runs the tasks of a round on executors, with attempts that fail, race and go on too long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from tablestream.errors import StateError
from tablestream.runtime.rounds import Round
from tests.simulation.attempt import Attempt
from tests.simulation.executors import CACHE_KINDS, damage_cache, flipped, make_executors
from tests.simulation.happened import Happened, SimulationError
from tests.simulation.neighbour import Neighbour
from tests.simulation.order import BEGINS, FAILS, Event
from tests.simulation.setup import Setup
from tests.simulation.store import AttemptFailed, Place, StateOfRecord
from tests.simulation.tuning import Sizes
from tests.simulation.world import Fault, Kind, World

Inboxes = Mapping[int, Mapping[int, list[pl.DataFrame]]]
#: What happens to an attempt of a task.
_ATTEMPT_KINDS = (
    Kind.ATTEMPT_NEVER_STARTS,
    Kind.ATTEMPT_FAILS_EMITTING,
    Kind.ATTEMPT_FAILS_WRITING,
    Kind.ATTEMPT_FAILS_AFTER,
    Kind.ZOMBIE,
)
_STATE_KINDS = (
    Kind.CHUNK_MISSING,
    Kind.CHUNK_FLIPPED,
    Kind.MANIFEST_MISSING,
    Kind.MANIFEST_FLIPPED,
    Kind.SHARD_GONE,
)


@dataclass
class Cluster:
    """What outlives a micro-batch: the state of record, the executors and the attempts that nobody waits for.

    Attributes
    ----------
    setup
        What the query was started with.
    version
        The version of the state that the current micro-batch starts from, which is its number.
    turn
        How many tasks of the micro-batch were run.
    attempts
        How many attempts of tasks there were.
    published
        The shards whose next version this run of the micro-batch wrote.
    done
        The attempts of the micro-batch whose output counts.
    """

    world: World
    directory: Path
    happened: Happened
    setup: Setup
    version: int = 0
    turn: int = 0
    attempts: int = 0
    state: StateOfRecord = field(default_factory=StateOfRecord)
    zombies: list[Attempt] = field(default_factory=list)
    published: set[Place] = field(default_factory=set)
    done: list[Attempt] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Start the executors."""
        self._neighbour: Neighbour | None = None
        self.restart(self.setup)

    def begin(self, micro_batch: int) -> None:
        """Begin a micro-batch; stored files may be damaged meanwhile."""
        self.version, self.turn = micro_batch, 0
        self.published.clear()
        self.done.clear()
        self.happened.micro_batches += 1
        for fault in self.happened.take(_STATE_KINDS, micro_batch):
            self.damage_state(fault)

    def restart(self, setup: Setup) -> None:
        """Start all executors anew."""
        self.setup, self.sizes = setup, Sizes.of(setup.tunings)
        self.executors = make_executors(setup, self.directory, self.sizes)

    def commit(self) -> None:
        """Forget what a run that ended wrote for the micro-batch: in Spark, each partition writes its version again."""
        self.state.forget(self.version + 1, kept=self.published)

    def run(self, work: Round, shards: int, inboxes: Inboxes, now_us: int) -> Attempt:
        """Run a task, in as many attempts as it takes, and return the one that counts."""
        self._meanwhile()
        self.lose_outputs(work)
        for fault in self.happened.take(_ATTEMPT_KINDS, self.version, self.turn):
            self._fail(fault, self._attempt(work, shards, inboxes, now_us, fault.where))
        races = self.happened.take([Kind.SPECULATION], self.version, self.turn)
        attempt = self._attempt(work, shards, inboxes, now_us, self.turn)
        if races:
            attempt = self._race(
                races[0], attempt, self._attempt(work, shards, inboxes, now_us, races[0].where)
            )
        attempt.advance()
        self._publish(attempt)
        self.done.append(attempt)
        self.turn += 1
        return attempt

    def lose_outputs(self, reader: Round | None = None) -> None:
        """Lose outputs with an executor: their tasks run again, give the same, and write the same version.

        Parameters
        ----------
        reader
            The round whose next task was to read them; None: the sinks were.
        """
        done = [one for one in self.done if reader is None or one.work.number < reader.number]
        due = (
            (0, 1) if reader is None else (self.turn % 3, 3)
        )  # a third of the faults at a task, the rest later
        for fault in self.happened.take([Kind.OUTPUT_LOST], self.version, of=due) if done else ():
            rng = self.world.rng("again", fault)
            lost = rng.choice(done)
            inboxes = {
                shard: {port: rng.sample(frames, len(frames)) for port, frames in inbox.items()}
                for shard, inbox in lost.inboxes.items()
            }
            again = self._attempt(lost.work, lost.shards, inboxes, lost.now_us, fault.where)
            again.advance()
            self._note(fault, again, "computed again")
            if again.outcome != lost.outcome:
                raise SimulationError(
                    f"A task of round {lost.work.number} gives something else if it is run again."
                )
            self._publish(again)

    def has_timer(self, place: tuple[int, int], now_us: int) -> bool:
        """Whether Spark has to call a shard although it has no messages."""
        times = self.state.at(place, self.version).timers_ms
        return any(time * 1000 <= now_us for time in times)

    # Attempts

    def _attempt(self, work: Round, shards: int, inboxes: Inboxes, now_us: int, where: int) -> Attempt:
        """Prepare an attempt on one of the executors."""
        number = self.world.rng("executor", self.version, self.turn, where).randrange(len(self.executors))
        stores = {shard: self.state.open((work.number, shard), self.version) for shard in inboxes}
        cache = self.executors[number].cache
        self.attempts += 1
        task = min(inboxes) % self.setup.tasks
        place = Event(BEGINS, self.version, work.number, task, self.attempts)
        attempt = Attempt(work, shards, inboxes, stores, cache, self.sizes, now_us)
        attempt.tell = lambda what: self.happened.order.append(place._replace(what=what))
        return attempt

    def _publish(self, attempt: Attempt) -> None:
        for shard, store in attempt.stores.items():
            place = attempt.work.number, shard
            self.state.publish(place, self.version + 1, store)
            self.published.add(place)

    def _fail(self, fault: Fault, attempt: Attempt) -> None:
        """Run an attempt until it fails."""
        if fault.kind is Kind.ATTEMPT_FAILS_WRITING:
            self._fail_writing(fault, attempt)
            return
        steps = {Kind.ATTEMPT_NEVER_STARTS: 0, Kind.ATTEMPT_FAILS_AFTER: None}
        is_over = attempt.advance(steps.get(fault.kind, 1 + fault.where % 4))
        if fault.kind is Kind.ATTEMPT_FAILS_AFTER and fault.where % 2:
            self._publish(attempt)
        if fault.kind is Kind.ZOMBIE and not is_over:
            self.zombies.append(attempt)
        else:
            attempt.end()
        self._note(fault, attempt, f"after {len(attempt.emitted)} emissions")

    def _fail_writing(self, fault: Fault, attempt: Attempt) -> None:
        """Let the state store refuse a write."""
        writes = fault.where % 5
        for store in attempt.stores.values():
            store.writes_left = writes
        try:
            attempt.advance()
        except AttemptFailed:
            attempt.tell(FAILS)
            self._note(fault, attempt, f"after {writes} writes")

    def _race(self, fault: Fault, one: Attempt, other: Attempt) -> Attempt:
        """Let two attempts work side by side; return the first that is over. The other one ends, or goes on."""
        rng = self.world.rng("race", fault)
        while not (one.is_over or other.is_over):
            rng.choice((one, other)).advance(1)
        winner, loser = (one, other) if one.is_over else (other, one)
        if fault.where % 2 and loser.has_begun:
            self.zombies.append(loser)
        else:
            loser.end()
        self._note(fault, winner, f"the loser had {len(loser.emitted)} of {len(winner.emitted)} emissions")
        return winner

    def _note(self, fault: Fault, attempt: Attempt, event: str) -> None:
        shards = ", ".join(map(str, attempt.inboxes))
        self.happened.count(fault, f"round {attempt.work.number}, shards {shards}: {event}")

    # What happens beside the task

    def _meanwhile(self) -> None:
        """Let zombies go on a step, and change caches and executors."""
        for zombie in self.zombies:
            self._wake(zombie)
        self.zombies = [zombie for zombie in self.zombies if not zombie.is_over]
        due = (*CACHE_KINDS, Kind.EXECUTOR_REPLACED, Kind.NEIGHBOUR)
        for fault in self.happened.take(due, self.version, self.turn):
            executor = self.executors[fault.where % len(self.executors)]
            if fault.kind is Kind.EXECUTOR_REPLACED:
                executor.restart()
                self.happened.count(fault, f"executor {executor.number}")
            elif fault.kind is Kind.NEIGHBOUR:
                self._neighbour = self._neighbour or Neighbour(self.world)
                self.happened.count(fault, self._neighbour.run(executor))
            else:
                found = damage_cache(fault.kind, executor.directory, self.world.rng("cache", fault))
                if found is not None:
                    self.happened.count(fault, f"executor {executor.number}: {found}")

    def _wake(self, zombie: Attempt) -> None:
        """Let an attempt go on that nobody waits for; what it meets does not matter to the query."""
        try:
            zombie.advance(1)
        except (AttemptFailed, StateError) as problem:
            zombie.tell(FAILS)
            zombie.is_over = True
            self.happened.note(f"a zombie ended with {type(problem).__name__}")

    def damage_state(self, fault: Fault) -> None:
        """Damage a stored file of the version that the micro-batch starts from."""
        rng = self.world.rng("state", fault)
        places = [place for place in self.state.versions if self.state.at(place, self.version).manifest]
        if not places:
            return
        place = rng.choice(sorted(places))
        store = self.state.at(place, self.version)
        if fault.kind is Kind.SHARD_GONE:
            store.is_gone = True
            self.happened.count(fault, f"round {place[0]}, shard {place[1]}")
            return
        missing = fault.kind in {Kind.CHUNK_MISSING, Kind.MANIFEST_MISSING}
        if fault.kind in {Kind.MANIFEST_MISSING, Kind.MANIFEST_FLIPPED}:
            assert store.manifest is not None
            store.lost_manifest = [None if missing else flipped(store.manifest, rng)]
            self.happened.count(fault, "1 manifest")
        elif store.chunks:
            chunk = rng.choice(sorted(store.chunks))
            store.lost[chunk] = None if missing else flipped(store.chunks[chunk], rng)
            self.happened.count(fault, f"chunk {chunk}")
