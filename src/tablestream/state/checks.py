"""What must hold in the state of a shard: its manifest and its chunks agree, and each chunk is what was written.

A chunk is checked alone (`facts_of`), wherever it is read; what was found is compared with the manifest, which needs
no rows. So checking a state takes the memory of one chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import polars as pl

from tablestream.errors import TablestreamError
from tablestream.state.changes import LIVE
from tablestream.state.manifest import Manifest
from tablestream.state.run import ChunkInfo, RunInfo, checksum, decode
from tablestream.state.sealed import unseal

#: The trace of texts that are stored beside the chunks.
_TEXTS = -1


@dataclass(frozen=True)
class ChunkFacts:
    """What a stored chunk is."""

    trace: int
    run: int
    chunk: int
    """Its place."""
    size_bytes: int
    checksum: str
    """Of the stored bytes."""
    rows: int = 0
    dead: int = 0
    """Its rows, and how many of them are tombstones."""
    sorted_ranges: tuple[tuple[int, int], ...] = ()
    """The first and the last value of each Int64 column that is sorted and has no null. One of them has the hashes."""
    problem: str = ""
    """Why it cannot be decoded; empty if it can."""


@dataclass(frozen=True)
class Fault:
    """What is wrong in a shard, and the trace; empty: the shard as a whole."""

    trace: str
    what: str


def facts_of(trace: int, run: int, chunk: int, data: bytes) -> ChunkFacts:
    """Check a chunk alone.

    Examples
    --------
    >>> facts_of(0, 7, 0, b"no chunk").problem[:12]
    'ArrowInvalid'
    """
    found = ChunkFacts(trace, run, chunk, len(data), checksum(data))
    try:
        if trace == _TEXTS:
            unseal(data.decode(errors="replace"), "plan or of the list of tables")
            return found
        frame = decode(data)
        dead = frame.height - int(frame[LIVE].sum())
        ranges = tuple(_sorted_ranges(frame))
    except TablestreamError as error:
        return replace(found, problem=error.reason)
    except Exception as error:  # noqa: BLE001 - whatever damaged bytes do to a decoder
        return replace(found, problem=f"{type(error).__name__}: {error}")
    return replace(found, rows=frame.height, dead=dead, sorted_ranges=ranges)


def _sorted_ranges(frame: pl.DataFrame) -> Iterator[tuple[int, int]]:
    for column in frame:
        if column.dtype == pl.Int64 and column.len() and not column.has_nulls() and column.is_sorted():
            yield int(column[0]), int(column[-1])


def faults_of(manifest: Manifest, facts: Mapping[tuple[int, int], ChunkFacts]) -> Iterator[Fault]:
    """Compare the manifest of a shard with its chunks, by run and place in it. A run's number names it in the shard."""
    numbers = [run.number for runs in manifest.traces.values() for run in runs]
    if len(set(numbers)) < len(numbers) or any(number >= manifest.next_run for number in numbers):
        yield Fault(
            "", f"the numbers of its runs, {numbers}, are not different ones below {manifest.next_run}"
        )
    for trace, runs in manifest.traces.items():
        for run in runs:
            found = [facts.get((run.number, index)) for index in range(len(run.chunks))]
            for index, chunk in enumerate(run.chunks):
                what = _difference(chunk, found[index])
                if what:
                    yield Fault(trace, f"chunk {index} of run {run.number} {what}")
            yield from (Fault(trace, f"run {run.number} {what}") for what in _of_run(run, found))


def _difference(wanted: ChunkInfo, found: ChunkFacts | None) -> str:
    """Say how a chunk is not the one that the manifest describes; empty if it is."""
    if found is None:
        return "is missing"
    if found.checksum != wanted.checksum:
        return "is not what was written: its checksum differs"
    if found.problem:
        return f"cannot be decoded: {found.problem}"
    if (found.rows, found.size_bytes) != (wanted.rows, wanted.size_bytes):
        counted, told = f"{found.rows} rows, {found.size_bytes} bytes", f"{wanted.rows}, {wanted.size_bytes}"
        return f"has {counted}, and the manifest says {told}"
    if (wanted.min_hash, wanted.max_hash) not in found.sorted_ranges:
        return f"is not sorted by a hash from {wanted.min_hash} to {wanted.max_hash}, as the manifest says"
    return ""


def _of_run(run: RunInfo, found: list[ChunkFacts | None]) -> Iterator[str]:
    """Say how the parts of a run do not fit together."""
    if any(before.max_hash > after.min_hash for before, after in pairwise(run.chunks)):
        yield "is not sorted: the hashes of its chunks overlap"
    if run.rows != sum(chunk.rows for chunk in run.chunks):
        yield f"has {sum(chunk.rows for chunk in run.chunks)} rows in its chunks, and the manifest says {run.rows}"
    whole = [one for one in found if one is not None and not one.problem]
    if len(whole) == len(run.chunks) and run.dead != sum(one.dead for one in whole):
        yield f"has {sum(one.dead for one in whole)} tombstones, and the manifest says {run.dead}"
    if len({one.trace for one in whole}) > 1:
        yield "has chunks of several traces"
