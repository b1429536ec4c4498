"""The operators alone, on one core and without Spark: rates, the size of versions, what waits in buffers, and groups.

``python -m benchmarks.operators``. What is measured is the work of rounds on one shard, as a worker does it: messages
are sorted and numbered, the operators run, what they emit gets its place, runs are written, merged and encoded. Rates
are messages per second of processor time, of which other work on the machine takes little away.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before anything imports Polars

import polars as pl
from rich.table import Table

from benchmarks.report import opened_report
from benchmarks.subjects import (
    ITEM,
    KEYS,
    STEP_US,
    buffers,
    large_group,
    one_round,
    small_groups,
    subjects,
    versions_at,
)
from tablestream.operators.versioned_table import VersionedTable
from tablestream.operators.versions import valid_versions
from tablestream.runtime.measures import Counts
from tablestream.runtime.run_round import run_round
from tablestream.state.cache import MemoryCache, NoCache
from tablestream.state.changes import TIME
from tablestream.state.shard import ShardState
from tablestream.state.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.subjects import Buffered, Grouped, Log, Subject
    from tablestream.runtime.rounds import Round
    from tablestream.state.trace_spec import TraceSpec

#: Stands for the worker's files: chunks are encoded, and decoded once.
_CACHE_BYTES = 1 << 30


class Shard:
    """One shard of some rounds, with its state."""

    def __init__(self, rounds: Sequence[Round]) -> None:
        self._rounds = [(work, MemoryStore(), MemoryCache(_CACHE_BYTES)) for work in rounds]

    def run(self, micro_batch: Log) -> int:
        """Work off a micro-batch and commit it; return how many results there are."""
        inbox = {port: [messages] for port, messages in micro_batch.items()}
        for number, (work, _, _) in enumerate(self._rounds):
            state = self.state(number)
            for port, messages in run_round(work, [inbox], state, Counts()):
                inbox.setdefault(port.number, []).append(messages)
            state.commit()
        read = {port for work, _, _ in self._rounds for port in work.ports}
        return sum(frame.height for port, frames in inbox.items() if port not in read for frame in frames)

    @property
    def specs(self) -> tuple[TraceSpec, ...]:
        """The traces of the first round."""
        return self._rounds[0][0].traces

    def state(self, number: int = 0) -> ShardState:
        """Open the state of a round."""
        work, store, cache = self._rounds[number]
        return ShardState(store, cache, work.traces, work.fingerprint)


@dataclass(frozen=True)
class Rate:
    """What a subject did: messages in and out, and messages in per second of processor time."""

    name: str
    rows_in: int
    rows_out: int
    rows_per_s: float


def rate(subject: Subject, rows: int, micro_batches: int, repeats: int) -> Rate:
    """Run a subject several times from an empty state; the median counts."""
    pieces = _cut(subject.log(rows), micro_batches)
    seconds, out = [], 0
    for _ in range(repeats):
        shard = Shard(subject.rounds)
        began_s = time.process_time()
        out = sum(shard.run(piece) for piece in pieces)
        seconds.append(time.process_time() - began_s)
    rows_in = sum(frame.height for piece in pieces for frame in piece.values())
    return Rate(subject.name, rows_in, out, rows_in / statistics.median(seconds))


def _cut(log: Log, pieces: int) -> list[Log]:
    """Cut messages into micro-batches that end at the same times."""
    last = max(int(frame[TIME][-1]) for frame in log.values())
    ends = [last * (number + 1) // pieces for number in range(pieces)]
    starts = [-1, *ends[:-1]]
    return [
        {port: frame.filter(pl.col(TIME).is_between(start + 1, end)) for port, frame in log.items()}
        for start, end in zip(starts, ends, strict=True)
    ]


@dataclass(frozen=True)
class Size:
    """The state of versions against what its history needs, as ratios.

    Attributes
    ----------
    largest_rows, largest_bytes
        At any time, once the history is full.
    merged_rows, merged_bytes
        The largest after a merge of all runs.
    """

    largest_rows: float
    largest_bytes: float
    merged_rows: float
    merged_bytes: float


def size_of_versions(keys: int, inside: int, gone: int) -> Size:
    """Write a version of every key in each micro-batch, until `gone` of each key lie before the history."""
    history_us = (inside - 1) * STEP_US
    shard = Shard(one_round(VersionedTable(KEYS, ITEM, history_us), 1))
    (spec,) = shard.specs
    found, merged = [], []
    for number in range(gone + inside):
        shard.run(versions_at(number, keys))
        if number >= 2 * inside:
            runs, ratios = _against_need(shard.state(), spec, number * STEP_US - history_us)
            found.append(ratios)
            if runs == 1:
                merged.append(ratios)
    (rows, size_bytes), (merged_rows, merged_bytes) = (
        map(max, zip(*one, strict=True)) for one in (found, merged)
    )
    return Size(rows, size_bytes, merged_rows, merged_bytes)


def _against_need(state: ShardState, spec: TraceSpec, bound: int) -> tuple[int, tuple[float, float]]:
    """How many runs there are, and the ratios of their rows and bytes to those of one run that has the need alone."""
    trace = state.trace(spec.name)
    alone = ShardState(MemoryStore(), NoCache(), [spec], "").trace(spec.name)
    alone.insert(valid_versions(trace.scan(), bound))
    (need,) = alone.runs
    rows, size_bytes = (sum(getattr(run, what) for run in trace.runs) for what in ("rows", "size_bytes"))
    return len(trace.runs), (rows / need.rows, size_bytes / need.size_bytes)


@dataclass(frozen=True)
class Held:
    """What micro-batches cost while so many rows wait in a buffer, or are in groups: milliseconds of processor time.

    Attributes
    ----------
    rows
        How many rows.
    rows_out
        What each micro-batch gave, on average.
    median_ms, mean_ms
        Merges of large runs are rare, and count in the mean.
    """

    name: str
    rows: int
    rows_out: float
    median_ms: float
    mean_ms: float


def held(buffered: Buffered, waiting: int, changes: int, micro_batches: int) -> Held:
    """Let so many rows wait, then work off micro-batches of a few changes."""
    shard = Shard([buffered.work])
    shard.run(buffered.log(0, waiting))
    seconds, out = [], 0
    for number in range(micro_batches):
        messages = buffered.log(waiting + number * changes, changes)
        began_s = time.process_time()
        out += shard.run(messages)
        seconds.append(time.process_time() - began_s)
    median, mean = (1000 * of(seconds) for of in (statistics.median, statistics.mean))
    return Held(buffered.name, waiting, out / micro_batches, median, mean)


def grouped(groups: Grouped, changes: int, micro_batches: int) -> Held:
    """Fill groups, then work off micro-batches of a few changes."""
    shard = Shard(groups.rounds)
    shard.run(groups.log(0, changes))
    seconds, out = [], 0
    for number in range(1, micro_batches + 1):
        messages = groups.log(number, changes)
        began_s = time.process_time()
        out += shard.run(messages)
        seconds.append(time.process_time() - began_s)
    median, mean = (1000 * of(seconds) for of in (statistics.median, statistics.mean))
    return Held(groups.name, groups.rows, out / micro_batches, median, mean)


def held_table(found: Sequence[Held], title: str) -> Table:
    """Put what micro-batches cost beside how many rows are there."""
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for column in ("rows", "out", "median, ms", "mean, ms"):
        table.add_column(column, justify="right")
    for one in found:
        cells = (f"{one.rows:,}", f"{one.rows_out:,.0f}", f"{one.median_ms:,.1f}", f"{one.mean_ms:,.1f}")
        table.add_row(one.name, *cells)
    return table


def rates_table(rates: Sequence[Rate]) -> Table:
    """Put rates beside each other, and beside the first."""
    table = Table(title="Operators alone, one core", title_justify="left")
    table.add_column("operator")
    for column in ("messages in", "out", "in per second", f"of {rates[0].name}"):
        table.add_column(column, justify="right")
    for one in rates:
        share = f"{one.rows_per_s / rates[0].rows_per_s:.2f}"
        table.add_row(one.name, f"{one.rows_in:,}", f"{one.rows_out:,}", f"{one.rows_per_s:,.0f}", share)
    return table


def size_table(size: Size) -> Table:
    """Put sizes beside their targets."""
    table = Table(title="State of versions, by what the history needs", title_justify="left")
    table.add_column("")
    for column in ("rows", "bytes", "target"):
        table.add_column(column, justify="right")
    table.add_row("after a merge of all runs", f"{size.merged_rows:.2f}", f"{size.merged_bytes:.2f}", "≤ 1.5")
    table.add_row("at any time", f"{size.largest_rows:.2f}", f"{size.largest_bytes:.2f}", "≤ 2")
    return table


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    options = _parser().parse_args(arguments)
    console = opened_report()
    if pl.thread_pool_size() != 1:
        console.print(f"Polars has {pl.thread_pool_size()} threads: these are not rates of one core.")
    rates = []
    for subject in subjects():
        console.print(f"{subject.name} ...")
        rates.append(rate(subject, options.rows, options.micro_batches, options.repeats))
    console.print(rates_table(rates))
    if options.gone:
        console.print(
            f"{options.keys:,} keys, {options.inside} versions each in the history, {options.gone:,} gone by"
        )
        console.print(size_table(size_of_versions(options.keys, options.inside, options.gone)))
    found = [
        held(one, waiting, options.changes, options.buffered)
        for waiting in options.waiting
        for one in buffers(waiting)
    ]
    if found:
        console.print(held_table(found, f"Buffers, micro-batches of {options.changes:,} changes"))
    if options.group_rows:
        every = [*large_group(options.group_rows), *small_groups(options.group_rows // 10, 5)]
        found = [grouped(one, options.changes, options.buffered) for one in every]
        console.print(held_table(found, f"Groups, micro-batches of {options.changes:,} changes"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operators", description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000, metavar="N", help="messages to each operator")
    parser.add_argument(
        "--micro-batches", type=int, default=3, metavar="N", help="they come in, 3 by default"
    )
    parser.add_argument(
        "--repeats", type=int, default=5, metavar="N", help="of which the median counts, 5 by default"
    )
    parser.add_argument("--keys", type=int, default=500, metavar="N", help="of the versions, 500 by default")
    parser.add_argument(
        "--inside", type=int, default=10, metavar="N", help="versions of a key in the history, 10"
    )
    parser.add_argument(
        "--gone", type=int, default=1000, metavar="N", help="versions of a key that are over; 0: skip"
    )
    parser.add_argument(
        "--waiting",
        type=int,
        nargs="*",
        default=[10_000, 1_000_000],
        metavar="N",
        help="rows that wait in buffers; none: skip",
    )
    parser.add_argument(
        "--group-rows",
        type=int,
        default=1_000_000,
        metavar="N",
        help="rows of a large group; half of them are in small groups; 0: skip",
    )
    parser.add_argument(
        "--changes", type=int, default=100, metavar="N", help="in each micro-batch to a buffer or to groups"
    )
    parser.add_argument(
        "--buffered", type=int, default=50, metavar="N", help="such micro-batches, 50 by default"
    )
    return parser


if __name__ == "__main__":
    main()
