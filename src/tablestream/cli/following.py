"""Follows a query until it ends, or stops it after its micro-batch when the user asks for that."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

from tablestream.cli.exit_codes import ExitCode
from tablestream.cli.progress import MicroBatch
from tablestream.metrics.query_metrics import MetricsReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

    from pyspark.sql.streaming.query import StreamingQuery

_POLL_S = 0.25
_STOP_POLL_S = 0.05
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def stop_signals(say: Callable[[str, Mapping[str, Any]], None]) -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C sets, or the signal TERM; a second one ends this process at once.

    Spark's own handler of Ctrl-C cancels all jobs, which would fail the running micro-batch. So this comes after the
    session was made.
    """
    wanted = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        if wanted.is_set():
            os._exit(ExitCode.INTERRUPTED)  # Spark's Java ends with this process
        wanted.set()
        say(
            "Stopping after this micro-batch. Ctrl-C once more ends at once.",
            {"event": "stopping"},
        )

    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        yield wanted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def follow(query: StreamingQuery, stop: threading.Event) -> Iterator[MicroBatch]:
    """Yield the micro-batches of a query as they end, until it ends.

    Parameters
    ----------
    query
        A running query.
    stop
        Stops the query after its micro-batch.

    Raises
    ------
    StreamingQueryException
        The query failed.
    """
    reader, seen, is_active = MetricsReader(), -1, True
    while is_active:
        if stop.wait(_POLL_S):
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
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def _since(query: StreamingQuery, seen: int) -> list[Any]:
    """Return the progress of micro-batches after `seen`, and do not carry all of it over to find none."""
    return [one for one in query.recentProgress if one.batchId > seen] if _last(query) > seen else []
