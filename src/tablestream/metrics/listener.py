"""A listener that receives every micro-batch's metrics and passes them on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from tablestream.errors import ArgumentError
from tablestream.metrics.query_metrics import MetricsReader, QueryMetrics


def print_metrics(metrics: QueryMetrics) -> None:
    """Write a micro-batch's metrics to standard error, as a small table."""
    print(metrics, file=sys.stderr, flush=True)  # noqa: T201 - that is what it is for


class MetricsListener(StreamingQueryListener):
    """Receives every micro-batch of this library's queries, and passes its metrics on.

    Parameters
    ----------
    export
        A function that is called with the `QueryMetrics` of each micro-batch. By default they are printed to
        standard error. For OpenTelemetry: an `OpenTelemetryExporter`.

    Raises
    ------
    ArgumentError
        `export` is not callable.

    Notes
    -----
    Add it before the query starts. The size of the state is None until the listener has heard of every shard, and a
    shard without work reports nothing.

    If `export` raises, Spark logs the error and the query continues.

    Examples
    --------
    >>> import tablestream as ts
    >>> spark.streams.addListener(ts.MetricsListener())  # doctest: +SKIP
    """

    def __init__(self, export: Callable[[QueryMetrics], Any] = print_metrics) -> None:
        if not callable(export):
            raise ArgumentError(
                f"export={export!r} is not callable.",
                hint="Give a function that takes a QueryMetrics, or an OpenTelemetryExporter.",
            )
        self._export = export
        self._readers: dict[str, MetricsReader] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        progress = event.progress
        reader = self._readers.setdefault(str(progress.runId), MetricsReader())
        metrics = reader.read(progress)
        if metrics is not None:
            self._export(metrics)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        self._readers.pop(str(event.runId), None)
