"""Follows a query until it ends, or stops it after its micro-batch when the user asks for that."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from tablestream.cli.exit_codes import ExitCode
from tablestream.cli.progress import MicroBatch
from tablestream.metrics.query_metrics import MetricsReader

_POLL_S = 0.25
_STOP_POLL_S = 0.05
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Stop:
    """Whether the user wants the query to stop."""

    wanted: bool = False


@contextlib.contextmanager
def stop_signals(at_once: Callable[[], None]) -> Iterator[Stop]:
    """Yield what Ctrl-C sets, or the signal TERM; a second one calls `at_once`, and ends this process at once.

    A signal is handled between any two steps of the main thread, which may hold the lock of a screen or of an event. So
    its handler takes no lock, and prints nothing.

    Spark's own handler of Ctrl-C cancels all jobs, which would fail the running micro-batch. So this comes after the
    session was made.
    """
    stop = Stop()

    def handle(_number: int, _frame: FrameType | None) -> None:
        if not stop.wanted:
            stop.wanted = True
            return
        try:
            at_once()
        finally:
            os._exit(ExitCode.INTERRUPTED)  # Spark's Java ends with this process

    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def follow(query: StreamingQuery, stop: Stop, stopping: Callable[[], None]) -> Iterator[MicroBatch]:
    """Yield the micro-batches of a query as they end, until it ends or fails.

    `stop` stops it after its micro-batch, and `stopping` tells the user so.
    """
    reader, seen, is_active = MetricsReader(), -1, True
    while is_active:
        time.sleep(_POLL_S)
        if stop.wanted:
            stopping()
            stop_after_micro_batch(query)
        is_active = query.isActive  # asked before the progress, so that the last of it is not missed
        for progress in _since(query, seen):
            seen = progress.batchId
            yield MicroBatch.of(progress, reader.read(progress))
    query.awaitTermination()


def stop_after_micro_batch(query: StreamingQuery) -> None:
    """Stop a query when its micro-batch has ended. Spark may have begun the next one, and then does that one again."""
    before = _last(query)
    while query.isActive and _is_busy(query) and _last(query) == before:
        time.sleep(_STOP_POLL_S)
    query.stop()


def _is_busy(query: StreamingQuery) -> bool:
    status = query.status
    return bool(status["isTriggerActive"] and status["isDataAvailable"])


def _last(query: StreamingQuery) -> int:
    """Return the number of the last micro-batch that has ended; -1 if there is none."""
    progress = query.lastProgress
    return -1 if progress is None else progress.batchId - (not _ran(progress))


def _ran(progress: Any) -> bool:
    """Whether a micro-batch ran. Spark also reports that nothing has arrived, with the number of the next one."""
    return "addBatch" in progress.durationMs


def _since(query: StreamingQuery, seen: int) -> list[Any]:
    """Return the progress of micro-batches after `seen`, and do not carry all of it over to find none."""
    if _last(query) <= seen:
        return []
    return [one for one in query.recentProgress if one.batchId > seen and _ran(one)]
