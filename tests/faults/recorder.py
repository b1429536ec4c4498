"""Record the order of what happens in a real run of Spark: ``python -m tests.faults.recorder FILE``.

A join by foreign key works off four micro-batches. In the second, the first attempt of a task fails in each round after
it has written its state. In the third, the query ends after its sink is written, and starts again. The order goes to
the file, as `tests.simulation.order` describes it: one event a line, written by whoever sees it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import tablestream as ts
from tablestream.spark import runner
from tablestream.spark.outputs import write_outputs
from tablestream.spark.processor import RoundProcessor
from tablestream.spark.unpacking import micro_batch_id
from tests.conftest import SPARK_SETTINGS
from tests.faults.followed import follow_stages
from tests.faults.victim import sold_orders, write_logs
from tests.simulation.order import BEGINS, COMMITTED, ENDS, FAILS, STARTS, WRITES, WRITTEN, Event
from tests.spark.change_logs import run

MICRO_BATCHES, FAILING, DYING = 4, 1, 2


def note(file: Path, event: Event) -> None:
    """Add a line, which processes may do at the same time."""
    with file.open("a", encoding="utf-8") as lines:
        lines.write(f"{event}\n")


class RecordedProcessor(RoundProcessor):
    """A stage that notes when an attempt begins, ends or fails; the first attempts in one micro-batch fail."""

    def __init__(self, file: Path, *given: Any) -> None:
        super().__init__(*given)
        self._file, self._began = file, False

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
        if began.micro_batch == FAILING and began.task == began.attempt == 0:
            self._began = False
            note(self._file, self._event(FAILS))
            raise ConnectionError("the first attempt of a task fails")

    def close(self) -> None:
        """Note the end of an attempt."""
        super().close()
        if self._began:
            note(self._file, self._event(ENDS))

    def _event(self, what: str) -> Event:
        context = TaskContext.get()
        assert context is not None
        return Event(what, micro_batch_id(), self._number, context.partitionId(), context.attemptNumber())


def record_driver(file: Path, checkpoint: Path) -> Callable[[], None]:
    """Note what the driver does from now on; once it dies when the sinks are written.

    Returns a function that notes new commits.
    """
    seen: set[int] = set()

    def commits() -> None:
        for number in range(MICRO_BATCHES):
            if number not in seen and (checkpoint / "commits" / str(number)).exists():
                seen.add(number)
                note(file, Event(COMMITTED, number))

    def write(micro_batch: Any, number: int, outputs: Any, **given: Any) -> None:
        commits()
        write_outputs(micro_batch, number, outputs, **given)
        note(file, Event(WRITTEN, number))
        if number == DYING and not (died := file.with_suffix(".died")).exists():
            died.touch()
            raise ConnectionError("the driver dies")

    vars(runner)["write_outputs"] = write
    follow_stages(partial(RecordedProcessor, file))
    return commits


def record(file: Path) -> None:
    """Run the query until it has worked off all micro-batches."""
    session = SparkSession.builder.master("local[2,2]")
    for name, value in SPARK_SETTINGS.items():
        session = session.config(name, value)
    spark = session.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        write_logs(place, MICRO_BATCHES)
        commits = record_driver(file, place / "checkpoint")
        sink = ts.to_files(place / "sold", "json")
        noting = type(sink).write

        def write(this: Any, changes: Any, number: int, *given: Any) -> None:
            note(file, Event(WRITES, number))
            noting(this, changes, number, *given)

        type(sink).write = write  # type: ignore[method-assign,assignment]
        for _ in range(2):
            note(file, Event(STARTS))
            with suppress(StreamingQueryException):
                run(sold_orders(spark, place).to(sink), checkpoint=place / "checkpoint", shards=4)
        commits()
    spark.stop()


if __name__ == "__main__":
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    record(Path(sys.argv[1]).absolute())
