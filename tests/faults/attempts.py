"""Tasks that fail, or are slow, after a part of their output.

``python -m tests.faults.attempts DIRECTORY SERVERS TOPIC HOW`` writes a join by foreign key to four targets. HOW is
``fail``: on one machine, whose workers cannot write a byte to any disk, the first attempt of every task fails half-way.
Or ``slow``: on a cluster it stands still half-way, until Spark starts another one beside it and ends the first.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext, cloudpickle
from pyspark.sql import SparkSession

import tablestream as ts
from tablestream.connectors.delta import DeltaSink
from tablestream.connectors.files import FileSink
from tablestream.connectors.kafka_sink import KafkaSink
from tablestream.spark.unpacking import micro_batch_id
from tests.conftest import DELTA_SETTINGS
from tests.faults import followed
from tests.faults.followed import FollowedProcessor, follow_stages
from tests.faults.victim import sold_orders
from tests.spark.change_logs import run
from tests.spark.deployment import STANDALONE, configured, session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from tablestream.spark.processor import RoundProcessor

#: A cluster's workers cannot import the tests: what they need of these goes to them as it is.
cloudpickle.register_pickle_by_value(followed)  # type: ignore[no-untyped-call]

FAIL, SLOW = "fail", "slow"
#: Longer than a loaded machine needs for the copy of a task, which ends the sleep.
SECONDS = 300
#: A copy of a task is started when it runs a little longer than the others, or half a second.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "300ms",
    "spark.speculation.task.duration.threshold": "500ms",
}


def disturb(how: str, marks: Path) -> None:
    """Fail the first attempt of a task, or let it stand still until it is ended; a file tells of it."""
    context = TaskContext.get()
    assert context is not None
    place = marks / f"{context.stageId()}-{context.partitionId()}"
    if context.attemptNumber():
        if place.exists():
            place.with_suffix(".again").touch()
        return
    place.touch()
    if how == FAIL:
        raise ConnectionError("the first attempt of a task fails")
    time.sleep(SECONDS)
    place.with_suffix(".ended-by-itself").touch()


def half_way(batches: Iterable[pa.RecordBatch], how: str, marks: Path) -> Iterator[pa.RecordBatch]:
    """Pass record batches on, and disturb the task in the middle of its first one."""
    for number, batch in enumerate(batches):
        if number == 0 and batch.num_rows > 1 and _is_due(how):
            yield batch.slice(0, batch.num_rows // 2)
            disturb(how, marks)
            yield batch.slice(batch.num_rows // 2)
        else:
            yield batch


def _is_due(how: str) -> bool:
    """Whether a task is to be disturbed: in the second micro-batch; of the slow ones only those of the first partition.

    Others have to be quick, for Spark to see that one is slow.
    """
    context = TaskContext.get()
    return micro_batch_id() == 1 and (how == FAIL or (context is not None and context.partitionId() == 0))


def disturb_stage(how: str, marks: Path, _: RoundProcessor) -> None:
    """Disturb a stage when the first shard has given its first blobs and written its state."""
    if _is_due(how):
        context = TaskContext.get()
        assert context is not None
        (marks / f"{context.stageId()}.stage").touch()
        disturb(how, marks)


def disturb_all(how: str, marks: Path) -> None:
    """Disturb all stages from now on: those with state, and those in which a sink writes."""
    marks.mkdir()
    follow_stages(partial(FollowedProcessor, partial(disturb_stage, how, marks)))

    def disturbed(write: Callable[..., None]) -> Callable[..., None]:
        def patched(sink: object, changes: DataFrame, *given: Any) -> None:
            passing = partial(half_way, how=how, marks=marks)
            write(sink, changes.mapInArrow(passing, changes.schema), *given)

        return patched

    for kind in (FileSink, DeltaSink, KafkaSink):
        kind.write = disturbed(kind.write)  # type: ignore[method-assign]


def work_off(spark: SparkSession, directory: Path, servers: str, topic: str) -> None:
    """Run the query until all is worked off."""
    sold = sold_orders(spark, directory)
    run(
        sold.to(ts.to_files(directory / "sold", "json")),
        sold.to(ts.to_delta(directory / "table"), name="table"),
        sold.to(ts.to_delta(directory / "log", mode="changes"), name="log"),
        sold.to(ts.to_kafka(topic, bootstrap_servers=servers), name="topic"),
        checkpoint=directory / "checkpoint",
        shards=2,
    )


def one_machine(directory: Path) -> SparkSession:
    """Make a session that tries tasks again, and whose Python workers find every disk full."""
    python = directory / "python"
    python.write_text(f'#!/bin/sh\nulimit -f 0\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    python.chmod(0o700)
    os.environ["PYSPARK_PYTHON"] = str(python)
    return configured(SparkSession.builder.master("local[2,4]"), DELTA_SETTINGS, directory)


def main(directory: str, servers: str, topic: str, how: str) -> None:
    """Make a session, and work off what is there."""
    here = Path(directory)
    os.environ["TABLESTREAM_CACHE_DIR"] = str(here / "cache")
    disturb_all(how, here / "marks")
    with ExitStack() as around:
        if how == SLOW:
            spark = around.enter_context(session(STANDALONE, here, DELTA_SETTINGS | SPECULATION))
        else:
            spark = one_machine(here)
            around.callback(spark.stop)
        work_off(spark, here, servers, topic)


if __name__ == "__main__":
    main(*sys.argv[1:])
