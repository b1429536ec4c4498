"""Plans and metrics to draw."""

from __future__ import annotations

from tablestream.metrics.query_metrics import OperatorMetrics, QueryMetrics
from tablestream.planner.lower import lower
from tablestream.planner.physical_plan import Align, PhysicalPlan, PlanOptions
from tablestream.runtime.measures import measured
from tests.plans.test_explain import DEFAULT_ONLY, PLANS, _types

MODES = {"default": PlanOptions(), "compat": PlanOptions(compat=True), "align": PlanOptions(align=Align(7))}
#: Every plan in every mode that it has.
DRAWN = [
    (name, mode)
    for name in sorted(PLANS)
    for mode in MODES
    if (name, mode) not in {(one, "compat") for one in DEFAULT_ONLY}
]


def plan(name: str, mode: str = "default") -> PhysicalPlan:
    """Lower one of the plans whose text is pinned."""
    return lower(PLANS[name](), _types, MODES[mode])


def operator_metrics(number: int, *, known: bool = True) -> OperatorMetrics:
    """Metrics that differ from those of another number; `known`: whether all shards have reported."""
    rows, size_bytes = (number * 1_000, number * 12_345) if known else (None, None)
    return OperatorMetrics(number * 100, number * 10, rows, size_bytes, cache_hits=1, fetches=2, merges=3)


def metrics(
    of: PhysicalPlan, dropped: dict[tuple[str, str], int] | None = None, micro_batch: int = 0
) -> QueryMetrics:
    """The metrics of a micro-batch of a query that runs a plan."""
    return QueryMetrics(
        query_name="sold",
        query_id="1",
        run_id="2",
        micro_batch=micro_batch,
        timestamp="2026-01-01T00:00:00.000Z",
        duration_ms=1_500,
        rows_in=1_234,
        changes_out=77,
        dropped=dropped or {},
        operators={
            name: operator_metrics(number) for number, name in enumerate(measured(of.rounds), start=1)
        },
    )
