"""What the stages report to the driver beside the changes: shards without state, and dropped records.

Reports travel with the changes, as blobs whose ports are below `METRICS`. In a query of `ts.start` they arrive in
``foreachBatch``, and are read before any sink is written. Where nobody can read them there, the query's progress has
the notices about drops, and a listener reads them.
"""

from __future__ import annotations

import atexit
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, ref

from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryListener

from tablestream.connectors.shipping import has_context
from tablestream.metrics.query_metrics import fields_of, parted
from tablestream.runtime.drops import ACCEPTED, DropReport, Notice
from tablestream.runtime.measures import DROPS, OBSERVED
from tablestream.runtime.rounds import METRICS, NOTICES
from tablestream.spark.unpacking import NOTE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

_PORT = "__port"
#: Users find the warnings under the name of the library.
_log = logging.getLogger("tablestream.drops")
_listening = WeakSet["SparkSession"]()


@dataclass(frozen=True)
class Reports:
    """The reports of a micro-batch: the ports of shards without state, and what was dropped.

    `written`: what the tasks say that they have written, by the port of the output.
    """

    ports: list[int]
    notices: list[Notice]
    written: dict[int, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, micro_batch: DataFrame) -> Reports:
        """Compute all partitions of a micro-batch, and take its reports."""
        reports = (F.col(_PORT) < METRICS) | F.col(NOTE).isNotNull()
        rows = micro_batch.select(_PORT, NOTE).where(reports).collect()
        ports = [port for port, _ in rows if port < METRICS and port != NOTICES]
        written = dict[int, list[str]]()
        for port, note in rows:
            if port >= 0:
                written.setdefault(port, []).append(note)
        return cls(ports, [Notice.of(note) for port, note in rows if port == NOTICES], written)


def warn_of_drops(report: DropReport, micro_batch: int, notices: list[Notice]) -> None:
    """Log what is worth saying about the drops of a micro-batch."""
    for text in report.hear(micro_batch, notices):
        _log.warning("%s", text)


def listen(spark: SparkSession) -> None:
    """Warn of the drops of queries in whose progress they are; once per session.

    Not under Spark Connect: a listener there has a thread that keeps the process from ending.
    """
    if spark in _listening or not has_context(spark):
        return
    listener = _Listener()
    spark.streams.addListener(listener)
    _listening.add(spark)
    # Otherwise Java calls this process when it has gone, and says so at length.
    atexit.register(_leave, ref(spark), listener)


def _leave(session: ref[SparkSession], listener: _Listener) -> None:
    spark = session()
    if spark is not None:
        with suppress(Exception):  # Java may have gone before
            spark.streams.removeListener(listener)


class _Listener(StreamingQueryListener):
    """Reads drops from the progress of queries."""

    def __init__(self) -> None:
        self._reports: dict[str, DropReport] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Warn of the drops of a micro-batch."""
        progress = event.progress
        observed = progress.observedMetrics
        if DROPS in observed and OBSERVED in observed:
            report = self._reports.setdefault(str(progress.runId), DropReport())
            warn_of_drops(report, progress.batchId, list(_notices(observed)))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Forget the query."""
        self._reports.pop(str(event.runId), None)


def _notices(observed: Any) -> Iterator[Notice]:
    """What a progress has about drops."""
    counts = fields_of(observed[OBSERVED])
    for name, told in fields_of(observed[DROPS]).items():
        operator, reason = parted(name)
        if reason == ACCEPTED:
            if told is not None:
                yield Notice(operator, reason, told)
        elif counts.get(name):
            yield Notice(operator, reason, counts[name], told or "")
