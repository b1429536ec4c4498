"""Metrics for OpenTelemetry, whose exporters pass them to Prometheus and others.

All instruments have the attribute ``query``; those of operators also ``operator``, and drops ``reason``:

==================================  =========  =======  ==============================================
name                                kind       unit     what
==================================  =========  =======  ==============================================
``tablestream.micro_batches``       counter             micro-batches
``tablestream.duration``            histogram  s        duration of a micro-batch
``tablestream.records``             counter             records that sources read
``tablestream.changes``             counter             changes that outputs received
``tablestream.dropped``             counter             dropped records
``tablestream.operator.rows_in``    counter             messages that an operator received
``tablestream.operator.rows_out``   counter             rows that it emitted
``tablestream.operator.cache_hits`` counter             chunks of state found in a worker's cache
``tablestream.operator.fetches``    counter             chunks of state fetched from Spark's state
``tablestream.operator.merges``     counter             merges of an operator's state
``tablestream.state.rows``          gauge               rows in an operator's state
``tablestream.state.size``          gauge      By       their compressed size
==================================  =========  =======  ==============================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tablestream.base.extras import install_hint
from tablestream.errors import ArgumentError
from tablestream.metrics.query_metrics import ADDED, OperatorMetrics, QueryMetrics

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter


class OpenTelemetryExporter:
    """Passes metrics to OpenTelemetry, for `MetricsListener`.

    Parameters
    ----------
    meter
        Creates the instruments. Default: the meter of OpenTelemetry's global provider, which the program sets up.

    Raises
    ------
    ArgumentError
        ``opentelemetry-api`` is not installed.

    Notes
    -----
    Prometheus: give OpenTelemetry's ``MeterProvider`` the ``PrometheusMetricReader`` of
    ``opentelemetry-exporter-prometheus``.

    References
    ----------
    OpenTelemetry Metrics API.

    Examples
    --------
    >>> import tablestream as ts
    >>> listener = ts.MetricsListener(ts.OpenTelemetryExporter())
    >>> spark.streams.addListener(listener)  # doctest: +SKIP
    """

    def __init__(self, meter: Meter | None = None) -> None:
        if meter is None:
            meter = _global_meter()
        name = "tablestream"
        self._micro_batches = meter.create_counter(f"{name}.micro_batches")
        self._duration_s = meter.create_histogram(f"{name}.duration", unit="s")
        self._records = meter.create_counter(f"{name}.records")
        self._changes = meter.create_counter(f"{name}.changes")
        self._dropped = meter.create_counter(f"{name}.dropped")
        self._counters = {one: meter.create_counter(f"{name}.operator.{one}") for one in ADDED}
        self._state_rows = meter.create_gauge(f"{name}.state.rows")
        self._state_bytes = meter.create_gauge(f"{name}.state.size", unit="By")

    def __call__(self, metrics: QueryMetrics) -> None:
        query = {"query": metrics.query_name or metrics.query_id}
        self._micro_batches.add(1, query)
        self._duration_s.record(metrics.duration_ms / 1000, query)
        self._records.add(metrics.rows_in, query)
        self._changes.add(metrics.changes_out, query)
        for (place, reason), count in metrics.dropped.items():
            self._dropped.add(count, {**query, "operator": place, "reason": reason})
        for name, operator in metrics.operators.items():
            self._record(operator, {**query, "operator": name})

    def _record(self, operator: OperatorMetrics, attributes: dict[str, str]) -> None:
        for name, counter in self._counters.items():
            counter.add(getattr(operator, name), attributes)
        if operator.state_rows is not None and operator.state_bytes is not None:
            self._state_rows.set(operator.state_rows, attributes)
            self._state_bytes.set(operator.state_bytes, attributes)


def _global_meter() -> Meter:
    try:
        from opentelemetry.metrics import get_meter
    except ImportError as missing:
        raise ArgumentError(
            "An OpenTelemetryExporter needs opentelemetry-api, which is not installed.",
            hint=install_hint("opentelemetry"),
        ) from missing
    return get_meter("tablestream")
