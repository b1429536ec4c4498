"""What is read from a query's progress, printed, and handed to OpenTelemetry."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from pyspark.sql import Row

import tablestream as ts
from tablestream.errors import ArgumentError
from tablestream.metrics.query_metrics import MetricsReader
from tablestream.runtime.measures import MEASURES


def progress(batch: int, told: dict[str, dict[str, int]], shards: int = 4, connect: bool = False) -> Any:
    """The progress of a micro-batch in which operators told something; what they did not tell is 0."""
    measures: dict[str, int] = {}
    for operator, values in told.items():
        measures |= {f"{operator}: {name}": values.get(name.replace("-", "_"), 0) for name in MEASURES}
    observed: dict[str, Any] = {"tablestream": {"changes": 7, "orders: null-key": 2, "a: b: late": 0}}
    observed["tablestream_operators"] = {"shards": shards, "measures": measures}
    if connect:  # as its recentProgress has them
        observed = {
            name: {"values": list(row.values()), "schema": {"fields": [{"name": one} for one in row]}}
            for name, row in observed.items()
        }
    return SimpleNamespace(
        name="sold", id="1", runId="2", batchId=batch, timestamp="2026-01-01T00:00:00.000Z", batchDuration=1500,
        numInputRows=9, observedMetrics={name: Row(**row) for name, row in observed.items()},
    )  # fmt: skip


def join(**values: int) -> dict[str, dict[str, int]]:
    return {"sold/answer": values}


def sizes(reader: MetricsReader, batch: int, **values: int) -> tuple[int | None, int | None]:
    metrics = reader.read(progress(batch, join(**values)))
    assert metrics is not None
    one = metrics.operators["sold/answer"]
    return one.state_rows, one.state_bytes


@pytest.mark.parametrize("connect", [False, True])
def test_a_micro_batch_is_read(connect: bool) -> None:
    told = join(
        rows_in=3, rows_out=5, state_rows=20, state_bytes=400, cache_hits=2, fetches=1, merges=1, shards=4
    )
    metrics = MetricsReader().read(progress(3, told, connect=connect))
    assert metrics == ts.QueryMetrics(
        query_name="sold", query_id="1", run_id="2", micro_batch=3, timestamp="2026-01-01T00:00:00.000Z",
        duration_ms=1500, rows_in=9, changes_out=7,
        dropped={("orders", "null-key"): 2, ("a: b", "late"): 0},
        operators={"sold/answer": ts.OperatorMetrics(3, 5, 20, 400, 2, 1, 1)},
    )  # fmt: skip


def test_another_query_has_no_metrics() -> None:
    other = progress(0, {})
    other.observedMetrics = {"mine": Row(n=1)}
    assert MetricsReader().read(other) is None


def test_the_size_of_the_state_is_that_of_all_shards() -> None:
    reader = MetricsReader()
    # Nothing is known before all shards were heard of; then what some of them add is added.
    assert sizes(reader, 5, state_rows=10, state_bytes=90, shards=3) == (None, None)
    assert sizes(reader, 6, state_rows=20, state_bytes=200, shards=4) == (20, 200)
    assert sizes(reader, 7, state_rows=4, state_rows_added=-1, state_bytes_added=9, shards=1) == (19, 209)
    assert sizes(reader, 8, shards=0) == (19, 209)
    assert sizes(reader, 9, state_rows=30, state_bytes=300, state_rows_added=2, shards=4) == (30, 300)


def test_a_new_query_s_state_is_what_its_first_micro_batch_tells() -> None:
    reader = MetricsReader()
    assert sizes(reader, 0, state_rows=10, state_bytes=90, state_rows_added=10, shards=2) == (10, 90)
    assert sizes(reader, 1, state_rows=5, state_rows_added=5, state_bytes_added=50, shards=1) == (15, 140)


def test_metrics_are_printed_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    told = join(rows_in=3000, rows_out=5, state_rows=20, state_bytes=4000, cache_hits=2, merges=1, shards=1)
    ts.MetricsListener().onQueryProgress(SimpleNamespace(progress=progress(3, told)))  # type: ignore[arg-type]
    assert capsys.readouterr().err == (
        "sold, micro-batch 3: 9 records in, 7 changes out, 1.5 s\n"
        "  operator     rows in  rows out  state rows  state bytes  cache hits  fetches  merges\n"
        "  sold/answer    3,000         5           ?            ?           2        0       1\n"
        "  dropped: orders: 2 null-key\n"
    )


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(ArgumentError, match="is not callable"):
        ts.MetricsListener("prometheus")  # type: ignore[arg-type]


def test_opentelemetry_gets_sums_and_sizes() -> None:
    memory = InMemoryMetricReader()
    meter = MeterProvider([memory]).get_meter("test")
    listener = ts.MetricsListener(ts.OpenTelemetryExporter(meter))
    for batch in (0, 1):
        told = join(
            rows_in=3, rows_out=5, fetches=2, state_rows=10, state_rows_added=10, state_bytes=8, shards=1
        )
        listener.onQueryProgress(SimpleNamespace(progress=progress(batch, told)))  # type: ignore[arg-type]
    found: dict[str, dict[tuple[str, ...], float]] = {}
    data = memory.get_metrics_data()
    assert data is not None
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        for point in metric.data.data_points:
            attributes = point.attributes or {}
            assert attributes["query"] == "sold"
            place = tuple(str(attributes[name]) for name in ("operator", "reason") if name in attributes)
            found.setdefault(metric.name, {})[place] = (
                point.sum if metric.name == "tablestream.duration" else point.value  # type: ignore[union-attr]
            )
    of_join = ("sold/answer",)
    assert found == {
        "tablestream.micro_batches": {(): 2},
        "tablestream.duration": {(): 3.0},
        "tablestream.records": {(): 18},
        "tablestream.changes": {(): 14},
        "tablestream.dropped": {("orders", "null-key"): 4, ("a: b", "late"): 0},
        "tablestream.operator.rows_in": {of_join: 6},
        "tablestream.operator.rows_out": {of_join: 10},
        "tablestream.operator.cache_hits": {of_join: 0},
        "tablestream.operator.fetches": {of_join: 4},
        "tablestream.operator.merges": {of_join: 0},
        "tablestream.state.rows": {of_join: 20},
        "tablestream.state.size": {of_join: 8},
    }
