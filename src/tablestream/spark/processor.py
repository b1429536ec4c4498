"""The stateful stage of a round, as Spark calls it.

Spark runs a stage in two kinds of Python processes. One, started anew for every stage of every query, only declares
the stage's state. The others are the workers, which run the round. The first kind needs none of the libraries of
operators, and importing them takes three quarters of its time. So this module imports none of them, and the round
stays pickled until a worker opens it. It travels inside Spark's own pickle of the stage, never in state or messages.

Spark sends a function of more than a megabyte as a broadcast variable, which the first kind of process does not have.
So a large round is compressed: descriptions of wide tables repeat themselves.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from tablestream.spark.processes import begin_task, quieten
from tablestream.spark.store import SparkStore

if TYPE_CHECKING:
    import pandas as pd

    from tablestream.spark.round_worker import RoundWorker

#: A larger pickle of a round is compressed.
_LARGE_BYTES = 128 << 10


class RoundProcessor(StatefulProcessor):
    """Hands the messages of a shard, and its state, to the worker of a round.

    `worker`: works off a shard's messages.
    """

    def __init__(self, worker: RoundWorker) -> None:
        self._number = worker.work.number
        packed: bytes = CloudPickleSerializer().dumps(worker)  # type: ignore[no-untyped-call]
        self._is_compressed = len(packed) > _LARGE_BYTES
        self._packed = lzma.compress(packed, preset=0) if self._is_compressed else packed

    @property
    def size_bytes(self) -> int:
        """How many bytes the round takes in Spark's pickle of the stage."""
        return len(self._packed)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        quieten()

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state variables."""
        self._handle, self.store = handle, SparkStore(handle, self._number)

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        """Run the round for the messages of one shard."""
        begin_task()
        yield from self.worker.run(int(key[0]), rows, self.store, self._handle, timerValues)

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: Any,
        timerValues: Any,  # noqa: N803 - Spark's name
        expiredTimerInfo: Any,  # noqa: N803, ARG002 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        """Run the round for a shard without messages, in which something has waited long enough."""
        yield from self.worker.wake(int(key[0]), self.store, self._handle, timerValues)

    @cached_property
    def worker(self) -> RoundWorker:
        """What works the messages off, opened where it is needed."""
        packed = lzma.decompress(self._packed) if self._is_compressed else self._packed
        worker: RoundWorker = CloudPickleSerializer().loads(packed)  # type: ignore[no-untyped-call]
        return worker

    def close(self) -> None:
        """Nothing to close: runs are mapped files that go with the process."""
