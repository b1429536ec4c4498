"""Record the order of what happens in a real run of Spark: ``python -m tests.faults.recorder HOW FILE``.

A join by foreign key works off four micro-batches. The order goes to the file, as `tests.simulation.order` describes
it: one event a line, written by whoever sees it. Attempts have the numbers that Spark gives them in the whole run. HOW
says what happens in the second micro-batch, when the first task has given its first blobs and written their state:

===============  =====================================================================================================
``retries``      the task fails, in each round
``executors``    in the second round its executor dies, and takes outputs of the first round with it; in the fourth
                 micro-batch one dies while the sink is written
``speculation``  in each round it stands still until Spark has started another attempt beside it
===============  =====================================================================================================

In the third micro-batch the query ends after its sink is written, and starts again.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from pyspark import TaskContext, cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import tablestream as ts
from tablestream.connectors.marks import Moment
from tablestream.spark import runner
from tablestream.spark.outputs import write_outputs
from tablestream.spark.processor import RoundProcessor
from tablestream.spark.unpacking import micro_batch_id
from tests.faults.attempts import SPECULATION
from tests.faults.followed import follow_stages
from tests.faults.processes import executors, kill_one
from tests.faults.victim import sold_orders, write_logs
from tests.simulation import order
from tests.simulation.order import BEGINS, COMMITTED, ENDS, FAILS, STARTS, WRITES, WRITTEN, Event
from tests.spark.change_logs import run
from tests.spark.deployment import STANDALONE, configured, session

# A cluster's workers cannot import the tests: what they need of these goes to them as it is.
cloudpickle.register_pickle_by_value(order)  # type: ignore[no-untyped-call]

RETRIES, EXECUTORS, SPECULATES = "retries", "executors", "speculation"
MICRO_BATCHES, DISTURBED, DYING, WRITING = 4, 1, 2, 3
#: Longer than Spark needs to start another attempt, which ends the sleep.
SECONDS = 300


def note(file: Path, event: Event) -> None:
    """Add a line, which processes may do at the same time."""
    with file.open("a", encoding="utf-8") as lines:
        lines.write(f"{event}\n")


class RecordedProcessor(RoundProcessor):
    """A stage that notes when an attempt begins, ends or fails; in one micro-batch something happens to first ones."""

    def __init__(self, how: str, file: Path, *given: Any) -> None:
        super().__init__(*given)
        self._how, self._file, self._began = how, file, False

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: N803 - Spark's name
    ) -> Iterator[Any]:
        """Run the round for the messages of one shard."""
        began = self._event(BEGINS)
        if not self._began:
            note(self._file, began)
        self._began = True
        yield from super().handleInputRows(key, rows, timerValues)
        if began.micro_batch == DISTURBED and began.task == 0:
            self._disturb()

    def close(self) -> None:
        """Note the end of an attempt."""
        super().close()
        if self._began:
            note(self._file, self._event(ENDS))

    def _disturb(self) -> None:
        """Let something happen, once in each round."""
        happened = self._file.with_suffix(f".round{self._number}")
        if happened.exists() or (self._how == EXECUTORS and self._number == 1):
            return
        happened.touch()
        if self._how == RETRIES:
            self._began = False
            note(self._file, self._event(FAILS))
            raise ConnectionError("the first attempt of a task fails")
        if self._how == EXECUTORS:
            above = Path(f"/proc/{os.getppid()}/stat").read_text(encoding="utf-8").rpartition(") ")[2]
            executor = int(above.split()[1])  # the parent of the process that forked this worker
            os.kill(executor, signal.SIGKILL)
        time.sleep(SECONDS)

    def _event(self, what: str) -> Event:
        context = TaskContext.get()
        assert context is not None
        return Event(what, micro_batch_id(), self._number, context.partitionId(), context.taskAttemptId())


def record_driver(how: str, file: Path, checkpoint: Path) -> Callable[[], None]:
    """Note what the driver does from now on; once it dies when the sinks are written.

    Returns a function that notes new commits.
    """
    seen: set[int] = set()

    def commits() -> None:
        for number in range(MICRO_BATCHES):
            if number not in seen and (checkpoint / "commits" / str(number)).exists():
                seen.add(number)
                note(file, Event(COMMITTED, number))

    def write(micro_batch: Any, moment: Moment, sinks: Any, **given: Any) -> None:
        commits()
        number = moment.number
        write_outputs(micro_batch, moment, sinks, **given)
        note(file, Event(WRITTEN, number))
        if number == DYING and not (died := file.with_suffix(".died")).exists():
            died.touch()
            raise ConnectionError("the driver dies")

    vars(runner)["write_outputs"] = write
    follow_stages(partial(RecordedProcessor, how, file))
    return commits


@contextmanager
def cluster_for(how: str, directory: Path) -> Iterator[SparkSession]:
    """Start what the way needs: tasks that are tried again, executors that can die, or speculation."""
    if how == RETRIES:
        spark = configured(SparkSession.builder.master("local[2,2]"), {}, directory)
        try:
            yield spark
        finally:
            spark.stop()
    else:
        with session(STANDALONE, directory, SPECULATION if how == SPECULATES else {}) as spark:
            yield spark


def record(how: str, file: Path) -> None:
    """Run the query until it has worked off all micro-batches."""
    with tempfile.TemporaryDirectory() as directory, cluster_for(how, Path(directory)) as spark:
        spark.sparkContext.setLogLevel("OFF")
        place = Path(directory)
        write_logs(place, MICRO_BATCHES)
        seen = place / "order.txt"
        commits = record_driver(how, seen, place / "checkpoint")
        sink = ts.to_files(place / "sold", "json")
        noting = type(sink).write

        def write(this: Any, changes: Any, number: int, *given: Any) -> None:
            note(seen, Event(WRITES, number))
            if how == EXECUTORS and number == WRITING:
                kill_one(Random(0), executors(os.getpid()))
            noting(this, changes, number, *given)

        type(sink).write = write  # type: ignore[method-assign,assignment]
        for _ in range(2):
            note(seen, Event(STARTS))
            with suppress(StreamingQueryException):
                run(sold_orders(spark, place).to(sink), checkpoint=place / "checkpoint", shards=4)
        commits()
        file.write_text(seen.read_text(encoding="utf-8"), encoding="utf-8")


if __name__ == "__main__":
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    record(sys.argv[1], Path(sys.argv[2]).absolute())
