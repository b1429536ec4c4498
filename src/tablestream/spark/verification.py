"""Verifies the state of a query: every part is read and checked, nothing is changed.

Spark's tasks decode each chunk and send back what they found. The driver compares that with the manifests. If Spark
itself cannot read the state, its partitions are read one by one, to say which are damaged.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession

from tablestream.arguments.kinds import check_session, whole
from tablestream.base.calling import user_line
from tablestream.connectors.shipping import has_context
from tablestream.connectors.sink import checked_path
from tablestream.connectors.spark_place import UNREADABLE
from tablestream.connectors.workers import prepare_workers
from tablestream.errors import StateError, TablestreamError
from tablestream.planner.catalogue import StoredTables
from tablestream.spark import blobs
from tablestream.spark.failures import failure_of
from tablestream.spark.state_reader import check_kinds
from tablestream.spark.stored_state import StoredState
from tablestream.spark.unpacking import by_batches
from tablestream.state import manifest as manifests
from tablestream.state.checks import ChunkFacts, facts_of, faults_of
from tablestream.state.manifest import Manifest
from tablestream.state.shard import TraceSize


@dataclass(frozen=True)
class VerifiedTrace:
    """What an operator remembers of one thing, in all shards of a round, and whether it is whole.

    Attributes
    ----------
    round, operator, trace
        Where it is: the round, the name of the operator, and what the operator calls it.
    tables
        The tables that `read_state` reads from it.
    shards, rows, size_bytes
        How many shards have any of it, and what they store: rows, including tombstones and rows that a merge will
        remove, and their compressed bytes.
    faults
        How many faults it has.
    """

    round: int
    operator: str
    trace: str
    tables: tuple[str, ...]
    shards: int
    rows: int
    size_bytes: int
    faults: int


@dataclass(frozen=True)
class Damage:
    """What is damaged, and what it can be had from again.

    Attributes
    ----------
    round, shard, operator, trace
        Where; `shard` is None for a partition of the state that cannot be read, the others are then empty.
    what
        What is wrong.
    rebuild
        What can be done.
    """

    round: int
    shard: int | None
    operator: str
    trace: str
    what: str
    rebuild: str

    def __str__(self) -> str:
        """Where it is, and what is wrong."""
        shard = [] if self.shard is None else [f"shard {self.shard}"]
        where = [f"round {self.round}", *shard, *filter(None, (self.operator, self.trace))]
        return f"{', '.join(where)}: {self.what}"


@dataclass(frozen=True)
class Verification:
    """What `verify` found.

    Attributes
    ----------
    checkpoint, micro_batch, oldest
        The directory, the micro-batch whose state was read, and the first one that the checkpoint still has.
    traces
        What the state has, by round and operator.
    damage
        What is damaged; empty if all is whole.
    """

    checkpoint: str
    micro_batch: int
    oldest: int
    traces: tuple[VerifiedTrace, ...]
    damage: tuple[Damage, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Whether all is whole."""
        return not self.damage

    def __str__(self) -> str:
        """Whether all is whole, or a line for each part that is damaged."""
        if self.ok:
            rows = sum(one.rows for one in self.traces)
            has = f"{rows:,} rows in {len(self.traces)} traces"
            return f"The state after micro-batch {self.micro_batch} is whole: {has}."
        ways = dict.fromkeys(f"It can be rebuilt {one.rebuild}." for one in self.damage)
        return "\n".join(
            [f"The state after micro-batch {self.micro_batch} is damaged:", *map(str, self.damage), *ways]
        )


def verify(
    spark: SparkSession, checkpoint: str | os.PathLike[str], batch_id: int | None = None
) -> Verification:
    """Read all the state of a query and check it: sums, counts, order. Nothing is changed, nothing rebuilt.

    The query may be running, or have ended.

    Parameters
    ----------
    spark
        A session; it need not be the one of the query.
    checkpoint
        The query's checkpoint directory.
    batch_id
        Check the state after this micro-batch. Default: the last one that is committed.

    Returns
    -------
    Verification
        What the state has by round, operator and trace, and what of it is damaged.

    Raises
    ------
    StateError
        The directory is not the checkpoint of such a query, has no state yet, or lacks the state of the micro-batch.
    DamagedStateError
        The checkpoint's own list of shards was altered.
    CheckpointMovedError
        The checkpoint was moved or copied; `relocate_checkpoint` makes it usable.

    Notes
    -----
    Every chunk is decoded in one of Spark's tasks, which needs memory for one chunk. Cost: that of reading the state
    once. What is checked: the manifest of each shard that ever had state; the checksum, size, rows, tombstones, order
    and range of hashes of each chunk; the counts of each run; the checksums of the stored plan and list of tables.

    Examples
    --------
    >>> import tablestream as ts
    >>> ts.verify(spark, "out/checkpoint").ok  # doctest: +SKIP
    True
    """
    check_session(spark)
    check_kinds(checkpoint, batch_id)
    given = checked_path(checkpoint, "the checkpoint")
    state = StoredState.current(spark, given, whole(batch_id))
    prepare_workers(spark)
    born = sorted(state.births.before(state.micro_batch + 1))
    rounds = [
        _round(state, work, [shard for number, shard in born if number == work])
        for work in sorted({*state.operators, *(work for work, _ in born)})
    ]
    tables = _tables(state)
    traces = [one for read in rounds for one in read.traces(tables)]
    damage = [one for read in rounds for one in read.damage(_remedy(state))]
    if damage:
        _check_kept(state)
    return Verification(given, state.micro_batch, state.oldest, tuple(traces), tuple(damage))


def _check_kept(state: StoredState) -> None:
    """Raise if the state was removed while it was read: a query that runs keeps that after its last micro-batches."""
    try:
        oldest = StoredState.of(state.spark, state.checkpoint, None).oldest
    except StateError:
        return
    if oldest > state.micro_batch:
        raise StateError(
            f"The query went on, and removed the state after micro-batch {state.micro_batch} while it was read.",
            hint="Verify it again, or a copy of the checkpoint, or keep more micro-batches:"
            " spark.sql.streaming.minBatchesToRetain.",
            where=user_line(),
        )


def _tables(state: StoredState) -> StoredTables:
    """The list of tables, for their names alone; none if it cannot be read."""
    try:
        return state.tables()
    except (TablestreamError, *UNREADABLE):
        return StoredTables(())


def _remedy(state: StoredState) -> str:
    """What the state can be had from again."""
    last = state.micro_batch - 1
    earlier = (
        f"the state after an earlier micro-batch, {state.oldest} to {last}, if it is whole (batch_id=), or "
        if state.oldest <= last
        else ""
    )
    return f"from {earlier}a copy of the checkpoint; or from the sources, with a new checkpoint"


@dataclass(frozen=True)
class _ReadRound:
    """What was read of a round: manifests and chunks by shard, and what could not be read.

    `lost`: why partitions could not be read, and the shards that they may have had.
    """

    number: int
    manifests: Mapping[int, Manifest]
    faults: Sequence[tuple[int, str, str]]
    lost: Sequence[str]

    def traces(self, tables: StoredTables) -> Iterator[VerifiedTrace]:
        """Add up the traces over shards."""
        for name in sorted({name for head in self.manifests.values() for name in head.traces}):
            sizes = [TraceSize.of(head.runs(name)) for head in self.manifests.values() if head.runs(name)]
            operator, _, trace = name.rpartition("/")
            named = tuple(
                table.name
                for table in tables.tables
                if table.round == self.number and any(spec.name == name for spec in table.traces)
            )
            rows, size_bytes = sum(one.rows for one in sizes), sum(one.size_bytes for one in sizes)
            faults = sum(trace_name == name for _, trace_name, _ in self.faults)
            yield VerifiedTrace(self.number, operator, trace, named, len(sizes), rows, size_bytes, faults)

    def damage(self, remedy: str) -> Iterator[Damage]:
        """Say what is damaged."""
        cached = f"from the cache of a worker that has the chunk, while the query goes on; else {remedy}"
        for what in self.lost:
            yield Damage(self.number, None, "", "", what, remedy)
        for shard, name, what in self.faults:
            operator, _, trace = name.rpartition("/")
            yield Damage(
                self.number, shard, operator, trace, what, cached if what.startswith("chunk") else remedy
            )


def _round(state: StoredState, work: int, born: Sequence[int]) -> _ReadRound:
    """Read a round, and compare its shards with their manifests."""
    if work not in state.operators:
        return _ReadRound(work, {}, (), ("the state of the whole round is gone",))
    heads, lost = _read(state.manifests(work))
    checked, lost_too = _read(state.chunks(work).mapInArrow(by_batches(_checked), "facts string"))
    lost = {**lost, **lost_too}
    found, faults = _decoded(heads)
    chunks: dict[int, dict[tuple[int, int], ChunkFacts]] = defaultdict(dict)
    for row in checked:
        shard, values = json.loads(row["facts"])
        one = ChunkFacts(**values | {"sorted_ranges": tuple(map(tuple, values["sorted_ranges"]))})
        if one.trace >= 0:
            chunks[shard][one.run, one.chunk] = one
        elif one.problem:
            faults.append((shard, "", one.problem))
    known = {*found, *(shard for shard, _, _ in faults)}
    for shard in sorted({*chunks, *born} - known):
        if not _is_lost(shard, lost):
            faults.append(
                (shard, "", f"its {'manifest is missing' if shard in chunks else 'whole state is gone'}")
            )
    for shard, head in sorted(found.items()):
        if not _is_lost(shard, lost):
            faults += [(shard, fault.trace, fault.what) for fault in faults_of(head, chunks[shard])]
    return _ReadRound(work, found, faults, [_lost_text(*one, born) for one in sorted(lost.items())])


def _decoded(rows: Iterable[Row]) -> tuple[dict[int, Manifest], list[tuple[int, str, str]]]:
    """Decode manifests by shard; what is wrong with the others."""
    found, faults = {}, []
    for row in rows:
        try:
            found[row[0]] = manifests.decode(bytes(row["data"]))
        except StateError as error:
            faults.append((row[0], "", error.reason))
    return found, faults


#: The partitions of a frame on the state that could not be read, and why; all together: (-1, 0).
_Lost = Mapping[tuple[int, int], str]


def _read(frame: DataFrame) -> tuple[list[Row], _Lost]:
    """Collect a frame on the state; if that fails, what can be read of its partitions."""
    spark = frame.sparkSession
    try:
        return frame.collect(), {}
    except UNREADABLE as error:
        if not has_context(spark):
            return [], {(-1, 0): failure_of(str(error)).message}
    rows: list[Row] = []
    lost = {}
    try:
        every = frame.rdd
        partitions = every.getNumPartitions()
    except UNREADABLE as error:
        return [], {(-1, 0): failure_of(str(error)).message}
    for number in range(partitions):
        try:
            rows += spark.sparkContext.runJob(every, list, [number])
        except UNREADABLE as error:
            lost[number, partitions] = failure_of(str(error)).message
    return rows, lost


def _is_lost(shard: int, lost: _Lost) -> bool:
    """Whether a shard is, or may be, in a partition that could not be read."""
    return any(number < 0 or blobs.partition_of(shard, of) == number for number, of in lost)


def _lost_text(place: tuple[int, int], why: str, born: Iterable[int]) -> str:
    number, of = place
    if number < 0:
        return f"Spark cannot read the state of the round: {why}"
    shards = [shard for shard in born if blobs.partition_of(shard, of) == number]
    which = f"shards {', '.join(map(str, shards))}" if shards else "no known shard"
    return f"Spark cannot read partition {number} of the state ({which}): {why}"


def _checked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Check chunks, one at a time; their shards and `ChunkFacts` as JSON."""
    for batch in batches:
        columns = [batch[name].to_pylist() for name in (blobs.SHARD, "trace", "run", "chunk")]
        for shard, trace, run, chunk, data in zip(*columns, batch["data"], strict=True):
            found = (shard, asdict(facts_of(trace, run, chunk, data.as_py())))
            yield pa.RecordBatch.from_pydict({"facts": [json.dumps(found)]})


def facts(found: Verification) -> Iterator[dict[str, Any]]:
    """Yield what programs get: an object about the state, one for each trace, and one for each damage."""
    yield {
        "checkpoint": found.checkpoint,
        "micro_batch": found.micro_batch,
        "oldest_micro_batch": found.oldest,
        "ok": found.ok,
    }
    yield from (_object(one) for one in found.traces)
    yield from ({"damage": one.what} | _object(one) for one in found.damage)


def _object(one: VerifiedTrace | Damage) -> dict[str, Any]:
    return {
        "bytes" if name == "size_bytes" else name: list(value) if isinstance(value, tuple) else value
        for name, value in vars(one).items()
        if name != "what"
    }
