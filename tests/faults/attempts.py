"""Tasks that fail, or are slow, after a part of their output.

In one micro-batch the first attempt of every task fails half-way. In the next one it stands still half-way, until Spark
starts another one beside it and ends the first.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext, cloudpickle

from tablestream.connectors.delta.sink import DeltaSink
from tablestream.connectors.files.sink import FileSink
from tablestream.connectors.kafka.sink import KafkaSink
from tablestream.connectors.postgres.sink import PostgresSink
from tablestream.spark.unpacking import micro_batch_id
from tests.faults import followed
from tests.faults.followed import FollowedProcessor, follow_stages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from tablestream.connectors.sink import Stage, StagedFiles, StagedSink
    from tablestream.spark.processor import RoundProcessor

# A cluster's workers cannot import the tests: what they need of these goes to them as it is.
for module in (followed, sys.modules[__name__]):
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]

FAIL, SLOW = "fail", "slow"
STAGE, SINKS = "stage", (FileSink, DeltaSink, KafkaSink)
#: Those whose changes the workers write themselves.
STAGED_SINKS = (DeltaSink, PostgresSink)
#: Longer than a loaded machine needs for the copy of a task, which ends the sleep.
SECONDS = 300
#: A copy is started of a task that has run for two seconds, and longer than others: quick tasks get none by chance.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "2s",
    "spark.speculation.task.duration.threshold": "2s",
}


def disturb(first: int, marks: Path, what: str, turn: int = 0) -> None:
    """Fail an attempt of a task, or let it stand still until it is ended; a file tells of it.

    Of the slow ones only those of the first partition: others have to be quick, for Spark to see that one is slow.
    There the attempt stands still that comes first: it may be a second one, of a task that was slow by itself. What
    workers write can be in the stage of a round, whose first attempt fails. So each kind has its turn: the attempt that
    fails, and how many micro-batches later a task stands still.
    """
    context = TaskContext.get()
    assert context is not None
    how = {first: FAIL, first + 1 + turn: SLOW}.get(micro_batch_id())
    if how is None or (how == SLOW and context.partitionId()):
        return
    place = marks / f"{how} {what} {context.stageId()} {context.partitionId()}"
    is_first = context.attemptNumber() == turn if how == FAIL else not place.exists()
    if not is_first:
        if place.exists():
            place.with_suffix(".again").touch()
        return
    place.touch()
    if how == FAIL:
        raise ConnectionError("the first attempt of a task fails")
    time.sleep(SECONDS)
    place.with_suffix(".ended-by-itself").touch()


def half_way(batches: Iterable[pa.RecordBatch], then: Callable[[], None]) -> Iterator[pa.RecordBatch]:
    """Pass record batches on, and disturb the task in the middle of its first one."""
    for number, batch in enumerate(batches):
        if number == 0 and batch.num_rows > 1:
            yield batch.slice(0, batch.num_rows // 2)
            then()
            yield batch.slice(batch.num_rows // 2)
        else:
            yield batch


def disturb_stage(first: int, marks: Path, _: RoundProcessor) -> None:
    """Disturb a stage when the first shard has given its first blobs and written its state."""
    disturb(first, marks, STAGE)


@dataclass
class DisturbedFiles:
    """Files of a task that is disturbed behind its first rows."""

    files: StagedFiles
    then: Callable[[], None]
    rows: int = 0

    def add(self, rows: pa.Table) -> None:
        self.files.add(rows)
        if not self.rows:
            self.then()
        self.rows += rows.num_rows

    def end_keys(self) -> None:
        self.files.end_keys()

    def close(self) -> str:
        return self.files.close()

    def abandon(self) -> None:
        self.files.abandon()


@dataclass(frozen=True)
class DisturbedStage:
    """What the workers do, disturbed."""

    stage: Stage
    then: Callable[[], None]

    def line(self, columns: Mapping[str, str]) -> str | None:
        return self.stage.line(columns)

    def open(self, micro_batch_id: int, query_id: str) -> DisturbedFiles:
        return DisturbedFiles(self.stage.open(micro_batch_id, query_id), self.then)


def disturb_staged(kind: Any, then: Callable[[], None]) -> None:
    """Disturb the tasks that write for a kind of sink themselves."""
    stage, commit = kind.stage, kind.commit

    def disturbed(sink: StagedSink, *given: Any) -> Stage | str:
        made = stage(sink, *given)
        return made if isinstance(made, str) else DisturbedStage(made, then)

    def committed(sink: StagedSink, spark: SparkSession, given: DisturbedStage, *rest: Any) -> None:
        commit(sink, spark, given.stage, *rest)

    kind.stage, kind.commit = disturbed, committed


def by_workers(kind: type) -> str:
    """What marks call the tasks that write for a kind of sink themselves."""
    return f"{kind.__name__}-staged"


def disturb_all(first: int, marks: Path) -> None:
    """Disturb all stages of some micro-batches: those with state, and those in which a sink, or the workers, write."""
    marks.mkdir()
    follow_stages(partial(FollowedProcessor, partial(disturb_stage, first, marks)))
    for turn, kind in enumerate(STAGED_SINKS, start=1):
        disturb_staged(kind, partial(disturb, first, marks, by_workers(kind), turn))

    def disturbed(write: Callable[..., None], kind: str) -> Callable[..., None]:
        def patched(sink: object, changes: DataFrame, *given: Any) -> None:
            passing = partial(half_way, then=partial(disturb, first, marks, kind))
            write(sink, changes.mapInArrow(passing, changes.schema), *given)

        return patched

    for kind in SINKS:
        kind.write = disturbed(kind.write, kind.__name__)  # type: ignore[method-assign]
