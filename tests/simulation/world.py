"""A world: everything that a simulated query meets, made from one integer."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tablestream.topology.graph import ancestors
from tablestream.topology.nodes import Deduplicate, Source
from tests.plans.comparing import sources_of
from tests.plans.logs import random_cuts, random_log
from tests.plans.tables import Key, Record, Value
from tests.simulation.plans import CASES, CLASSES, Case

#: The microseconds between two micro-batches.
_TRIGGER_US = 1000


class Kind(StrEnum):
    """What can go wrong."""

    ATTEMPT_NEVER_STARTS = "attempt never starts"
    ATTEMPT_FAILS_EMITTING = "attempt fails after some output"
    ATTEMPT_FAILS_WRITING = "attempt fails in a state write"
    ATTEMPT_FAILS_AFTER = "attempt fails after its commit"
    SPECULATION = "two attempts at once"
    ZOMBIE = "attempt goes on after its task is over"
    DIES_AFTER_OFFSETS = "driver dies after the offsets"
    DIES_AFTER_ROUND = "driver dies after a round"
    SINK_FAILS_IN_DATA = "sink fails in its data"
    SINK_FAILS_BEFORE_MARK = "sink fails before its mark"
    SINK_FAILS_AFTER_MARK = "sink fails after its mark"
    DIES_BEFORE_COMMIT = "driver dies before the commit log"
    DIES_AFTER_COMMIT = "driver dies after the commit log"
    CACHE_LOST = "cache file lost"
    CACHE_TRUNCATED = "cache file truncated"
    CACHE_FLIPPED = "cache file flipped"
    CACHE_SWAPPED = "cache file swapped"
    CACHE_DIRECTORY_LOST = "cache directory lost"
    EXECUTOR_REPLACED = "executor replaced"
    NEIGHBOUR = "another query in the cache"
    OUTPUT_LOST = "output of a task lost"
    CHUNK_MISSING = "chunk missing"
    CHUNK_FLIPPED = "chunk flipped"
    MANIFEST_MISSING = "manifest missing"
    MANIFEST_FLIPPED = "manifest flipped"
    SHARD_GONE = "whole state of a shard gone"
    OTHER_TASKS = "restart with other tasks"
    OTHER_EXECUTORS = "restart with other executors"
    OTHER_SIZES = "restart with other sizes"
    OTHER_OUTPUTS = "restart with other outputs"
    OLDER_CHECKPOINT = "restart on an older version's checkpoint"
    CHECKPOINT_RESTORED = "an older checkpoint is restored"
    TARGETS_RESTORED = "older targets are restored"
    BOTH_RESTORED = "checkpoint and targets are restored, each to a moment of its own"
    REFUSED_SHARDS = "another number of shards is refused"
    REFUSED_PLAN = "another plan is refused"
    REFUSED_FORMAT = "another format of the state is refused"


#: What is different when the query starts again: it goes on with it.
CHANGES = (
    Kind.OTHER_TASKS,
    Kind.OTHER_EXECUTORS,
    Kind.OTHER_SIZES,
    Kind.OTHER_OUTPUTS,
    Kind.OLDER_CHECKPOINT,
)
#: With what a start is refused; the next one is as before.
REFUSALS = (Kind.REFUSED_SHARDS, Kind.REFUSED_PLAN, Kind.REFUSED_FORMAT)
#: What is brought back from a backup while the query is stopped.
RESTORES = (Kind.CHECKPOINT_RESTORED, Kind.TARGETS_RESTORED, Kind.BOTH_RESTORED)
#: What happens at a restart.
RESTARTS = (*CHANGES, *REFUSALS)
#: What happens at any time. Lost outputs and restores came later, and have sources of chance of their own.
FAULTS = tuple(kind for kind in Kind if kind not in {*RESTARTS, *RESTORES, Kind.OUTPUT_LOST})


class Tuning(StrEnum):
    """What makes rare paths of the code frequent."""

    SMALL_CHUNKS = "chunks of 100 bytes"
    MERGE_AT_ONCE = "merge at once"
    NEVER_MERGE = "never merge"
    SMALL_CACHE = "a cache of one chunk"
    NO_DISK = "no disk for the cache"
    SMALL_SLICES = "slices of three rows"
    SMALL_FAN_OUT = "fan-outs of one row"
    SORTS = "sorts as of many rows"


class Fault(NamedTuple):
    """A fault: in which micro-batch, at which of its tasks, and where there.

    `turn` and `where` are numbers from which the simulator takes what fits: the third chunk of five, say. For what
    happens at a restart, `turn` says where in the micro-batch the query ends: see `driver.ENDS`.
    """

    kind: Kind
    micro_batch: int
    turn: int
    where: int


class Entry(NamedTuple):
    """An input record, which names its source by number."""

    source: int
    key: Key
    value: Value
    ts: int
    written: tuple[str, int, int] | None = None


@dataclass(frozen=True)
class World:
    """The input and the faults of one simulated query.

    Attributes
    ----------
    seed
        Also decides what a fault leaves open, such as the order of tasks.
    plan, compat, shards
        What runs.
    hash_bits
        How many bits the hashes of keys have.
    tasks
        How many tasks a round has; each has its share of the shards.
    executors, shares_directory
        How many executors there are, and whether their caches share a directory.
    tunings
        What makes rare paths frequent; the undisturbed run has none of it.
    micro_batches
        The input.
    times_us
        The wall clock at each micro-batch. It may go back.
    faults
        What goes wrong.
    """

    seed: int
    plan: str
    compat: bool
    shards: int
    hash_bits: int
    tasks: int
    executors: int
    shares_directory: bool
    tunings: tuple[Tuning, ...]
    micro_batches: tuple[tuple[Entry, ...], ...]
    times_us: tuple[int, ...]
    faults: tuple[Fault, ...]

    @property
    def case(self) -> Case:
        """The plan."""
        return CASES[self.plan]

    def rng(self, *what: object) -> random.Random:
        """Return a source of chance for one decision, which does not depend on other decisions."""
        return random.Random(f"{self.seed} {what}")

    def records(self, sources: list[Source], number: int) -> list[Record]:
        """Return the records of a micro-batch."""
        return records_of(self.micro_batches[number], sources)


def records_of(entries: Sequence[Entry], sources: Sequence[Source]) -> list[Record]:
    """Return input records with their sources."""
    return [Record(sources[entry.source], *entry[1:]) for entry in entries]


def make_world(
    seed: int, *, plan: str | None = None, kind: Kind | None = None, micro_batches: int = 20
) -> World:
    """Make the world of a seed.

    Parameters
    ----------
    seed
        Any integer.
    plan, kind
        A plan and the only kind of fault, if they are given.
    micro_batches
        How many micro-batches it has, on average.
    """
    rng = random.Random(seed)
    if plan is None:
        plan = rng.choice(list(CLASSES[rng.choice(list(CLASSES))]))
    case = CASES[plan]
    count = max(3, rng.randint(micro_batches - 4, micro_batches + 4))
    shards = rng.choice((1, 1, 1, 2, 2, 4))
    cut = _input(rng, case, count)
    kinds = [kind] if kind is not None else _some(rng, FAULTS, most=8)
    later = (
        () if kind is not None else (*_restarts(seed, cut), *_lost_outputs(seed, cut), *_restores(seed, cut))
    )
    return World(
        seed=seed,
        plan=plan,
        compat=rng.choice(case.modes),
        shards=shards,
        hash_bits=rng.choice((64, 64, 64, 2)),
        tasks=rng.randint(1, shards),
        executors=rng.randint(1, 3),
        shares_directory=rng.random() < 0.5,
        tunings=random_tunings(rng),
        micro_batches=cut,
        times_us=random_times(rng, count),
        faults=_in_order((*random_faults(rng, kinds, cut, rng.randint(4, 8)), *later)),
    )


def _restarts(seed: int, micro_batches: tuple[tuple[Entry, ...], ...]) -> tuple[Fault, ...]:
    """Let something be different at restarts in half of the worlds.

    They have a source of chance of their own: without them, the world of a seed is what it was before there were any.
    """
    rng = random.Random(f"{seed} restarts")
    if rng.random() < 0.5:
        return ()
    return random_faults(rng, _some(rng, RESTARTS, most=4), micro_batches, rng.randint(1, 4))


def _lost_outputs(seed: int, micro_batches: tuple[tuple[Entry, ...], ...]) -> tuple[Fault, ...]:
    """Let an executor take outputs of tasks with it in half of the worlds; see `_restarts` for their chance."""
    rng = random.Random(f"{seed} lost outputs")
    if rng.random() < 0.5:
        return ()
    return random_faults(rng, [Kind.OUTPUT_LOST], micro_batches, rng.randint(1, 3))


def _restores(seed: int, micro_batches: tuple[tuple[Entry, ...], ...]) -> tuple[Fault, ...]:
    """Let backups be restored in a third of the worlds; see `_restarts` for their chance."""
    rng = random.Random(f"{seed} restores")
    if rng.random() < 2 / 3:
        return ()
    return random_faults(rng, list(RESTORES), micro_batches, rng.randint(1, 3))


def _some(rng: random.Random, kinds: Sequence[Kind], most: int) -> list[Kind]:
    """Switch on a random part of the kinds: all at once hide what few of them show."""
    return rng.sample(kinds, rng.randint(1, most))


def random_tunings(rng: random.Random) -> tuple[Tuning, ...]:
    """Choose none in half of the worlds, else some."""
    if rng.random() < 0.5:
        return ()
    chosen = set(rng.sample(list(Tuning), rng.randint(1, 4)))
    if Tuning.MERGE_AT_ONCE in chosen:
        chosen.discard(Tuning.NEVER_MERGE)
    return tuple(sorted(chosen))


def _input(rng: random.Random, case: Case, count: int) -> tuple[tuple[Entry, ...], ...]:
    """Make a log, deliver some of its records twice, and cut it."""
    nodes = [output.node for output in case.outputs()]
    sources = sources_of(nodes)
    log = random_log(sources, rng.randrange(1 << 30), 3 * count // 2, worlds=rng.choice((1, 2)))
    entries = [Entry(sources.index(one.source), one.whole, one.value, one.ts) for one in log]
    if any(isinstance(node, Deduplicate) for node in ancestors(*nodes)):
        entries = _written(rng, entries)
    elif rng.random() < 0.3:
        entries = [
            again
            for number, entry in enumerate(entries)
            for again in (entry, entries[max(0, number - rng.randrange(4))])[: 1 + (rng.random() < 0.1)]
        ]
    return tuple(map(tuple, random_cuts(entries, rng.randrange(1 << 30), count)))


def _written(rng: random.Random, entries: list[Entry]) -> list[Entry]:
    """Let a writer write the records in micro-batches of its own, and some stretches of them again."""
    log: list[Entry] = []
    for micro_batch, piece in enumerate(random_cuts(entries, rng.randrange(1 << 30), 1 + len(entries) // 4)):
        numbers = Counter[Key]()
        numbered = []
        for entry in piece:
            numbered.append(entry._replace(written=("w", micro_batch, numbers[entry.key])))
            numbers[entry.key] += 1
        end = rng.randint(0, len(numbered))
        log += numbered[:end] + numbered[rng.randint(0, end) :]
    return log


def random_times(rng: random.Random, count: int) -> tuple[int, ...]:
    """Let the clock go on, now and then stand still, jump ahead or go back."""
    now, times = 1_000_000, []
    for _ in range(count):
        now += _TRIGGER_US * rng.choice((1, 1, 1, 0, 2, 10, -5))
        times.append(now)
    return tuple(times)


def random_faults(
    rng: random.Random, kinds: Sequence[Kind], micro_batches: tuple[tuple[Entry, ...], ...], count: int
) -> tuple[Fault, ...]:
    """Spread faults over the micro-batches that have records."""
    busy = [number for number, records in enumerate(micro_batches) if records]
    return tuple(
        Fault(rng.choice(kinds), rng.choice(busy), rng.choice((0, 0, 0, 0, 1, 2)), rng.randrange(1000))
        for _ in range(count)
    )


def _in_order(faults: Sequence[Fault]) -> tuple[Fault, ...]:
    return tuple(sorted(faults, key=lambda fault: fault.micro_batch))
