"""An attempt of a task: the round over some shards, as a Spark worker runs it, step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import polars as pl

from tablestream.operators.operator import WallClock
from tablestream.runtime.measures import ROWS_IN, ROWS_OUT, Counts
from tablestream.runtime.ports import Port
from tablestream.runtime.rounds import Round
from tablestream.runtime.run_round import run_round
from tablestream.spark import round_worker
from tablestream.state.births import NewShard
from tablestream.state.cache import ChunkCache
from tests.plans.slicing import sliced
from tests.simulation.order import BEGINS, ENDS, FAILS
from tests.simulation.store import AttemptStore
from tests.simulation.tuning import Sizes


@dataclass
class Attempt:
    """One attempt of a task.

    Attributes
    ----------
    work, shards
        The round, and how many shards the plan has.
    inboxes
        The messages of each shard of the task.
    stores
        The state of each shard, which the attempt has for itself.
    cache
        The cache of the executor.
    sizes
        How chunks and slices are cut.
    now_us
        The wall clock.
    emitted, dropped, measures, new
        What came of it so far; `new`: the shards that found no state.
    tell
        Is called when it begins, and when it ends or is killed.
    """

    work: Round
    shards: int
    inboxes: Mapping[int, Mapping[int, list[pl.DataFrame]]]
    stores: Mapping[int, AttemptStore]
    cache: ChunkCache
    sizes: Sizes
    now_us: int
    emitted: list[tuple[Port, pl.DataFrame]] = field(default_factory=list)
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)
    measures: Counter[tuple[str, str]] = field(default_factory=Counter)
    new: list[NewShard] = field(default_factory=list)
    tell: Callable[[str], None] = field(default=lambda _: None)

    def __post_init__(self) -> None:
        """Start before the first step."""
        self._steps = self._run()
        self.is_over = self.has_begun = False

    def advance(self, steps: int | None = None) -> bool:
        """Take so many steps, by default all; say whether the attempt is over."""
        while not self.is_over and (steps is None or steps > 0):
            self.is_over = next(self._steps, "over") == "over"
            steps = None if steps is None else steps - 1
        return self.is_over

    def end(self) -> None:
        """Kill it where it stands."""
        if self.has_begun and not self.is_over:
            self.tell(FAILS)
        self._steps.close()
        self.is_over = True

    @property
    def outcome(self) -> tuple[Any, ...]:
        """What it emitted to each port, in any order and however it was sliced, and what it counted."""
        rows = Counter(
            (port.number, tuple(sorted((name, repr(value)) for name, value in row.items())))
            for port, frame in self.emitted
            for row in frame.to_dicts()
        )
        return rows, self.dropped, self.measures, sorted(self.new)

    def _run(self) -> Generator[str]:
        """Run the round for shards that have messages, and then where a timer is due, as Spark does."""
        self.has_begun = True
        self.tell(BEGINS)
        for shard, inbox in self.inboxes.items():
            if inbox:
                yield from self._shard(shard, inbox)
        for shard, store in self.stores.items():
            due = [time for time in store.timers_ms if time * 1000 <= self.now_us]
            for time in due:
                yield from self._shard(shard, {})
                store.deleteTimer(time)
        self.tell(ENDS)

    def _shard(self, shard: int, inbox: Mapping[int, list[pl.DataFrame]]) -> Iterator[str]:
        """Do what `RoundWorker.run` does, with messages that are not packed."""
        work, store = self.work, self.stores[shard]
        state = work.open_state(store, self.cache, chunk_size_bytes=self.sizes.chunk_bytes)
        clock = WallClock(self.now_us) if work.needs_clock else None
        counts = Counts(self.dropped)
        place, slices = (shard, self.shards), sliced(work, inbox, self.sizes.slice_rows)
        for emission in run_round(work, slices, state, counts, clock, place):
            self.emitted.append(emission)
            yield "emitted"
        self._measure(counts.measures(work, state))
        was_new = state.is_new
        state.commit()
        if was_new:
            self.new.append(NewShard(work.number, shard, is_born=not state.is_new))
        if clock is not None:
            round_worker._set_timer(cast("Any", store), clock.wake_us)
        yield "committed"

    def _measure(self, measures: Mapping[tuple[str, str], int]) -> None:
        """Keep the measures that do not depend on how the state is stored."""
        self.measures.update({key: value for key, value in measures.items() if key[1] in {ROWS_IN, ROWS_OUT}})
