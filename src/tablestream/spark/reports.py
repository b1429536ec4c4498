"""What the stages report to the driver beside the changes, and what a query's progress shows of a plan.

Reports are of shards without state, and of dropped records. They travel with the changes, as blobs whose ports are
below `METRICS`. In a query of `ts.start` they arrive in ``foreachBatch``, and are read before any sink is written.
Where nobody can read them there, the query's progress has the notices about drops, and a listener reads them.
"""

from __future__ import annotations

import atexit
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, ref

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryListener

from tablestream.connectors import sink
from tablestream.connectors.shipping import has_context
from tablestream.metrics.query_metrics import fields_of, parted
from tablestream.operators.reasons import FAILED, MALFORMED, NULL_KEY, NULL_TIME, OUT_OF_ORDER, reason_of
from tablestream.planner.physical_plan import PhysicalPlan
from tablestream.runtime.drops import ACCEPTED, DropReport, Notice
from tablestream.runtime.measures import DROPS, FIGURES, MEASURED, MEASURES, OBSERVED, SHARDS, measured
from tablestream.runtime.ports import METRICS, NOTICES
from tablestream.runtime.rounds import copied_name
from tablestream.spark import blobs
from tablestream.spark.unpacking import NOTE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

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


def observations(plan: PhysicalPlan, failing: Collection[str] = (), *, told: bool) -> dict[str, list[Column]]:
    """Return the aggregates of blobs that a query's progress shows, by name.

    `failing`: the tables that may have rows for which an expression fails, and that do not end the query. `told`:
    whether they include examples of drops, because nobody reads the notices themselves.
    """
    found = {OBSERVED: _observed(plan, failing), MEASURED: _measured(plan)}
    if told:
        found[DROPS] = _told(plan, failing)
    return found


def _reasons(plan: PhysicalPlan, failing: Collection[str]) -> list[tuple[str, str]]:
    """All operators and reasons that are counted."""
    reasons = [
        (plan.names[source], reason) for source in plan.sources for reason in (NULL_KEY, NULL_TIME, MALFORMED)
    ]
    between = [reader for one in plan.between for reader in one.readers]
    reasons += [(reader.counted_by, OUT_OF_ORDER) for reader in between if reader.counted_by is not None]
    operators = [placed for work in plan.rounds for placed in work.operators]
    reasons += [(placed.name, reason) for placed in operators for reason in placed.operator.reasons]
    return list(dict.fromkeys([*reasons, *((name, FAILED) for name in failing)]))


def _observed(plan: PhysicalPlan, failing: Collection[str]) -> list[Column]:
    """The number of output changes, and of drops per operator and reason."""
    names = [blobs.counter_name(*place) for place in _reasons(plan, failing)]
    operators = [placed for work in plan.rounds for placed in work.operators]
    names += [copied_name(placed.name) for placed in operators if placed.copied]
    changes = [ending.port.number for ending in plan.endings if not ending.rejected]
    here = f"{blobs.PORT} IN ({', '.join(map(str, changes)) or 'NULL'})"
    return [_sum("changes", here), *map(_reported, names)]


def _measured(plan: PhysicalPlan) -> list[Column]:
    """The operators' measures by name, and the number of shards.

    Each round has one aggregate. One for each measure made a plan of 200 operators spend most of its time on them.
    """
    number = F.lit(plan.options.shards)
    shards = F.coalesce(F.max(number), number).cast("bigint")
    operators = {work.number: measured([work]) for work in plan.rounds}
    names = [
        blobs.counter_name(one, measure)
        for some in operators.values()
        for one in some
        for measure in MEASURES
    ]
    figures = "CAST(map() AS MAP<STRING, BIGINT>)"
    if names:
        listed = f"split(decode(X'{chr(0).join(names).encode().hex()}', 'UTF-8'), chr(0))"
        sums = [_sums(number, len(some) * len(MEASURES)) for number, some in operators.items()]
        figures = f"map_from_arrays({listed}, concat({', '.join(sums)}))"
    return [shards.alias(SHARDS), F.expr(f"{figures} AS {FIGURES}")]


def _sums(number: int, figures: int) -> str:
    """The sums over the shards of what the operators of a round measured, an array."""
    mine = f"{blobs.PORT} = {METRICS} AND {blobs.ROWS} = {number} AND startswith({blobs.BLOB}, X'00')"
    text = f"CAST(substring({blobs.BLOB}, 2) AS STRING)"
    told = f"collect_list(CASE WHEN {mine} THEN CAST(split({text}, ',') AS ARRAY<BIGINT>) END)"
    return (
        f"aggregate({told}, array_repeat(0L, {figures}), (sums, one) -> zip_with(sums, one, (a, b) -> a + b))"
    )


def _told(plan: PhysicalPlan, failing: Collection[str]) -> list[Column]:
    """An example of the drops per operator and reason, and how many records each source passed on."""
    told = [place for place in _reasons(plan, failing) if reason_of(place[1]).kind != "counted"]
    passed = [blobs.counter_name(plan.names[source], ACCEPTED) for source in plan.sources]
    return [*(_example(blobs.counter_name(*place)) for place in told), *map(_accepted, passed)]


def _example(name: str) -> Column:
    """One of the examples that tasks have sent under a name."""
    head = f"{name}\0".encode()
    mine = f"{blobs.PORT} = {NOTICES} AND startswith({blobs.BLOB}, X'{head.hex()}')"
    text = f"decode(substring({blobs.BLOB}, {len(head) + 1}), 'UTF-8')"
    return F.expr(f"max(CASE WHEN {mine} THEN {text} END) AS {sink.quoted(name)}")


def _accepted(name: str) -> Column:
    """The sum of the counts that tasks have sent under a name; null if there was no such task."""
    mine = f"{blobs.PORT} = {NOTICES} AND {blobs.BLOB} = X'{name.encode().hex()}00'"
    return F.expr(f"sum(CASE WHEN {mine} THEN {blobs.ROWS} END) AS {sink.quoted(name)}")


def _reported(name: str) -> Column:
    """The sum of the counts that shards report under a name."""
    return _sum(name, f"{blobs.PORT} = {METRICS} AND {blobs.BLOB} = X'{name.encode().hex()}'")


def _sum(name: str, mine: str) -> Column:
    """The sum of ``rows`` where a SQL condition holds. As SQL a counter takes one call of the JVM instead of twenty."""
    return F.expr(f"coalesce(sum(CASE WHEN {mine} THEN {blobs.ROWS} END), 0L) AS {sink.quoted(name)}")
