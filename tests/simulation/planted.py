"""Faults planted in the code, each with a seed from which on worlds show it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import polars as pl

from tablestream.planner import lower
from tablestream.planner.physical_plan import PhysicalPlan
from tablestream.runtime import run_round
from tablestream.spark import round_worker
from tablestream.state import births, cache, manifest, merge, run, trace
from tablestream.state.run import RunInfo, RunStorage, checksum
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore
from tests.simulation.sink import MarkingSink
from tests.simulation.store import AttemptStore, Place, StateOfRecord
from tests.simulation.world import Kind, World, make_world


@dataclass(frozen=True)
class Planted:
    """A planted fault.

    Attributes
    ----------
    plant
        Puts it into the code for a while.
    seed, kind
        The first world to look at. `kind`: the only kind of fault in that world, if it is not a world of all kinds.
    needs_faults
        Whether the world shows it only because of its own faults.
    """

    plant: Callable[[], AbstractContextManager[Any]]
    seed: int
    kind: Kind | None = None
    needs_faults: bool = True

    def worlds(self) -> Iterator[World]:
        """Worlds of which one shows it. The first one does, until a new plan gives the seeds other worlds."""
        for seed in range(self.seed, self.seed + 60):
            yield make_world(seed, kind=self.kind, micro_batches=8)


def _older_run_wins() -> AbstractContextManager[Any]:
    """A merge takes the rows of the older run."""
    newest = merge.newest_rows
    return mock.patch.object(merge, "newest_rows", lambda frames, spec: newest(frames[::-1], spec))


def _tombstone_dropped_too_early() -> AbstractContextManager[Any]:
    """A merge drops tombstones although there are older runs."""
    merged = merge.merge

    def dropping(*arguments: Any, **options: Any) -> Iterator[pl.DataFrame]:
        return merged(*arguments, **{**options, "drop_tombstones": True})

    return mock.patch.object(trace, "merge", dropping)


def _mark_before_data() -> AbstractContextManager[Any]:
    """A sink marks a micro-batch before it has written the changes."""

    def write(sink: MarkingSink, changes: Any, micro_batch_id: int, *_: str) -> None:
        if micro_batch_id not in sink.marks:
            sink.data[micro_batch_id] = []
            sink.mark(micro_batch_id)
            sink.put(changes, micro_batch_id)

    return mock.patch.object(MarkingSink, "write", write)


def _stale_cache_read() -> AbstractContextManager[Any]:
    """A cached chunk is named by its numbers, and not by its checksum."""

    def read(storage: RunStorage, info: RunInfo, index: int) -> pl.DataFrame:
        name = checksum(f"{storage.spec.name} {info.number} {index}".encode())
        return storage._cache.open(name, lambda: storage._fetch(info, index))

    return mock.patch.object(run.RunStorage, "read", read)


def _checksum_not_looked_at() -> AbstractContextManager[Any]:
    """A cached file is taken as it is."""
    return mock.patch.object(cache, "_check")


def _timer_lost() -> AbstractContextManager[Any]:
    """A worker registers no timer."""
    return mock.patch.object(round_worker, "_set_timer")


def _micro_batch_merged_twice() -> AbstractContextManager[Any]:
    """A repeated micro-batch starts from the state that its first attempt wrote."""
    opened = StateOfRecord.open

    def newest(state: StateOfRecord, place: Place, version: int) -> AttemptStore:
        return opened(state, place, max(state.versions.get(place, {version: None})))

    return mock.patch.object(StateOfRecord, "open", newest)


def _every_attempt_counts() -> AbstractContextManager[Any]:
    """An attempt writes the version itself, and not a copy."""

    def at(state: StateOfRecord, place: Place, version: int) -> AttemptStore:
        store = state.at(place, version)
        state.versions.setdefault(place, {}).setdefault(version, store)
        return store

    return mock.patch.object(StateOfRecord, "open", at)


@contextmanager
def _shard_forgotten() -> Iterator[None]:
    """A shard whose manifest is missing counts as new: neither its plan nor the list of births is looked at."""
    with mock.patch.object(MemoryStore, "read_plan", return_value=None), _lost_shard_counts_as_new():
        yield


def _lost_shard_counts_as_new() -> AbstractContextManager[Any]:
    """The list of births is not compared with the shards that find no state."""
    return mock.patch.object(births.Births, "check")


def _birth_counts_at_once() -> AbstractContextManager[Any]:
    """A shard that was born in a micro-batch that failed is missed when the micro-batch is done again."""
    return mock.patch.object(births.Births, "before", lambda known, _: dict(known.born))


def _emission_numbered_twice() -> AbstractContextManager[Any]:
    """All emissions of a message have the same number."""
    return mock.patch.object(run_round, "RANKS", 0)


def _retention_off_by_one() -> AbstractContextManager[Any]:
    """A row that expires now counts as expired."""
    expired = merge._expired
    return mock.patch.object(merge, "_expired", lambda rows, spec, before: expired(rows, spec, before + 1))


def _plans_not_compared_at_the_start() -> AbstractContextManager[Any]:
    """`ts.start` takes any plan for the one of the checkpoint."""
    return mock.patch.object(PhysicalPlan, "check_same")


def _plans_not_compared_by_workers() -> AbstractContextManager[Any]:
    """All plans have the same fingerprint."""
    begun = ShardState.__init__

    def begin(state: ShardState, *arguments: Any, **options: Any) -> None:
        store, cache, specs, _, *others = arguments
        begun(state, store, cache, specs, "any", *others, **options)

    return mock.patch.object(ShardState, "__init__", begin)


def _shards_not_compared() -> AbstractContextManager[Any]:
    """The number of shards is not part of a plan's description."""
    described = lower._Finishing._description

    def without(finishing: Any, drafts: Any) -> tuple[str, ...]:
        return tuple(line for line in described(finishing, drafts) if not line.startswith("shards"))

    return mock.patch.object(lower._Finishing, "_description", without)


def _waiting_not_compared() -> AbstractContextManager[Any]:
    """What waits for outputs is not part of a plan's description."""
    return mock.patch.object(lower._Finishing, "_waiting", return_value=())


def _format_not_looked_at() -> AbstractContextManager[Any]:
    """A manifest is read in whatever version it is."""
    decode = manifest.decode

    def decoded(data: bytes) -> manifest.Manifest:
        version = json.loads(data.partition(b"\n")[0])["version"]
        with mock.patch.object(manifest, "FORMAT_VERSION", version):
            return decode(data)

    return mock.patch.object(manifest, "decode", decoded)


def _sink_goes_by_names() -> AbstractContextManager[Any]:
    """A sink recognises a micro-batch by the name of the output that wrote it."""
    names: dict[tuple[MarkingSink, int], str] = {}

    def write(sink: MarkingSink, changes: Any, micro_batch_id: int, _: str, output_name: str) -> None:
        if names.get((sink, micro_batch_id)) != output_name:
            sink.put(changes, micro_batch_id)
            sink.mark(micro_batch_id)
            names[sink, micro_batch_id] = output_name

    return mock.patch.object(MarkingSink, "write", write)


PLANTED = {
    "an older run wins": Planted(_older_run_wins, 0, needs_faults=False),
    "a tombstone is dropped too early": Planted(_tombstone_dropped_too_early, 0, needs_faults=False),
    "a mark is written before the data": Planted(_mark_before_data, 22),
    "a stale chunk is read from the cache": Planted(_stale_cache_read, 4, needs_faults=False),
    "a checksum is not looked at": Planted(_checksum_not_looked_at, 0, Kind.CACHE_SWAPPED),
    "a timer is lost": Planted(_timer_lost, 39, needs_faults=False),
    "a repeated micro-batch is merged twice": Planted(_micro_batch_merged_twice, 1),
    "a task that runs again merges twice": Planted(_micro_batch_merged_twice, 0, Kind.OUTPUT_LOST),
    "an attempt that failed is seen": Planted(_every_attempt_counts, 0, Kind.ATTEMPT_FAILS_EMITTING),
    "an attempt that goes on is seen": Planted(_every_attempt_counts, 0, Kind.ZOMBIE),
    "the loser of two attempts is seen": Planted(_every_attempt_counts, 0, Kind.SPECULATION),
    "a shard is forgotten at a restart": Planted(_shard_forgotten, 0, Kind.MANIFEST_MISSING),
    "a lost shard counts as new": Planted(_lost_shard_counts_as_new, 0, Kind.SHARD_GONE),
    "a birth counts before its commit": Planted(_birth_counts_at_once, 1, Kind.DIES_BEFORE_COMMIT),
    "a start does not compare plans": Planted(_plans_not_compared_at_the_start, 0, Kind.REFUSED_PLAN),
    "workers do not compare plans": Planted(_plans_not_compared_by_workers, 0, Kind.REFUSED_PLAN),
    "the number of shards is not compared": Planted(_shards_not_compared, 0, Kind.REFUSED_SHARDS),
    "what waits for outputs is not compared": Planted(_waiting_not_compared, 832, Kind.REFUSED_PLAN),
    "the format of a manifest is not looked at": Planted(_format_not_looked_at, 0, Kind.REFUSED_FORMAT),
    "a sink goes by the names of outputs": Planted(_sink_goes_by_names, 6, Kind.OTHER_OUTPUTS),
    "an emission is numbered twice": Planted(_emission_numbered_twice, 5, needs_faults=False),
    "a retention bound is off by one": Planted(_retention_off_by_one, 12, needs_faults=False),
}
