"""What a hot foreign key costs the busiest shard: the two rounds of a foreign-key join, shard by shard, without Spark.

``python -m benchmarks.hot_key``. All shards run in this process, one after the other, as workers run them: messages
are decoded, sorted and numbered, the operators run, state is written and merged, and what is emitted is encoded. The
time is processor time. The busiest shard is what a cluster with enough cores waits for.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before anything imports Polars

import polars as pl
from rich.table import Table

from benchmarks.report import opened_report
from benchmarks.subjects import foreign_key_join, two_logs
from tablestream.runtime.measures import Counts
from tablestream.runtime.ports import Port
from tablestream.runtime.rounds import Round
from tablestream.runtime.run_round import run_round
from tablestream.spark import blobs
from tablestream.spark.round_worker import PackedInbox
from tablestream.state.cache import MemoryCache
from tablestream.state.changes import FOREIGN_HASH, KEY_HASH, TIME
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore

if TYPE_CHECKING:
    from benchmarks.subjects import Log

_CACHE_BYTES = 1 << 30


@dataclass
class Join:
    """A foreign-key join in all its shards.

    Attributes
    ----------
    spread, shards
        Over how many shards the left rows of one right row are spread, and how many there are.
    seconds
        By round, the processor time of each shard, without the first micro-batch.
    answers
        How many results there were, without those of the first micro-batch.
    """

    spread: int | None
    shards: int
    seconds: dict[int, list[float]] = field(default_factory=dict)
    answers: int = 0

    def __post_init__(self) -> None:
        """Begin without state."""
        self._rounds = foreign_key_join(self.spread)
        self._state = [
            [(MemoryStore(), MemoryCache(_CACHE_BYTES)) for _ in range(self.shards)] for _ in self._rounds
        ]
        self.forget()

    def forget(self) -> None:
        """Begin to count anew."""
        self.seconds, self.answers = {work.number: [0.0] * self.shards for work in self._rounds}, 0

    def run(self, micro_batch: Log) -> None:
        """Work off a micro-batch."""
        entering = {1: Port(1, 1, 1, KEY_HASH, "left"), 2: Port(2, 2, 2, FOREIGN_HASH, "right")}
        entering[2] = replace(entering[2], copies=self.spread or 1)
        inbox: dict[tuple[int, int], list[blobs.Blob]] = defaultdict(list)
        for number, port in entering.items():
            for blob in blobs.pack(port, micro_batch[number], self.shards):
                inbox[port.round, blob.shard].append(blob)
        for work in self._rounds:
            for number, shard in enumerate(blobs.shard_names(self.shards)):
                began_s = time.process_time()
                sent = self._shard(work, number, inbox.pop((work.number, shard), []))
                self.seconds[work.number][number] += time.process_time() - began_s
                for port, blob in sent:
                    inbox[port.round, blob.shard].append(blob)
                    self.answers += blob.rows if port.round > len(self._rounds) else 0

    def _shard(self, work: Round, number: int, arrived: list[blobs.Blob]) -> list[tuple[Port, blobs.Blob]]:
        inbox = PackedInbox()
        for blob in arrived:
            inbox.add(blob.port, blob.rows, blob.blob)
        store, cache = self._state[work.number - 1][number]
        state = ShardState(store, cache, work.traces, work.fingerprint)
        emitted = run_round(work, inbox.opened(work), state, Counts(), shard=(number, self.shards))
        sent = [(port, blob) for port, frame in emitted for blob in blobs.pack(port, frame, self.shards)]
        state.commit()
        return sent


def measure(rows: int, hot_share: float, spread: int | None, shards: int, repeats: int = 1) -> Join:
    """Fill a join with half of the messages, then measure the other half; the fastest time of each shard counts."""
    log = two_logs(rows, hot_share)
    middle = int(max(frame[TIME][-1] for frame in log.values())) // 2
    joins = [Join(spread, shards) for _ in range(repeats)]
    for join in joins:
        join.run({port: frame.filter(pl.col(TIME) <= middle) for port, frame in log.items()})
        join.forget()
        join.run({port: frame.filter(pl.col(TIME) > middle) for port, frame in log.items()})
    fastest = joins[0]
    for number in fastest.seconds:
        shown = zip(*(join.seconds[number] for join in joins), strict=True)
        fastest.seconds[number] = [min(seconds) for seconds in shown]
    return fastest


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hot_key", description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=1_100_000, metavar="N", help="1,100,000 messages by default"
    )
    parser.add_argument("--shards", type=int, default=16, metavar="N", help="16 by default")
    parser.add_argument("--hot", type=float, default=0.5, metavar="SHARE", help="0.5 by default")
    parser.add_argument("--spreads", type=int, nargs="+", default=[2, 4, 8, 16], metavar="N")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="3 by default")
    options = parser.parse_args(arguments)
    table = Table(title="Processor seconds of the second round", title_justify="left")
    for name in (
        "left rows on one key",
        "spread",
        "answers",
        "all shards",
        "busiest shard",
        "times the even one",
    ):
        table.add_column(name, justify="right")
    even = 0.0
    for hot, spread in [(0.0, None), (options.hot, None), *((options.hot, one) for one in options.spreads)]:
        join = measure(options.rows, hot, spread, options.shards, options.repeats)
        seconds = join.seconds[2]
        even = even or max(seconds)
        cells = [
            f"{hot:.0%}",
            str(spread or "-"),
            f"{join.answers:,}",
            f"{sum(seconds):.2f}",
            f"{max(seconds):.2f}",
        ]
        table.add_row(*cells, f"{max(seconds) / even:.1f}")
    opened_report().print(table)


if __name__ == "__main__":
    main()
