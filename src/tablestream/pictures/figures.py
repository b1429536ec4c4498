"""What a query did in some micro-batches, as figures for its picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tablestream.errors import ArgumentError
from tablestream.metrics.query_metrics import ADDED, OperatorMetrics, QueryMetrics


@dataclass(frozen=True)
class Figures:
    """The metrics of some micro-batches of a query, added up."""

    caption: str
    """A line about the query."""
    operators: Mapping[str, OperatorMetrics]
    """The sums of each operator, and the size of its state after the last micro-batch."""
    dropped: Mapping[tuple[str, str], int]
    """Numbers of dropped records, by table or operator, and reason; without zeros."""

    @classmethod
    def of(cls, metrics: QueryMetrics | Iterable[QueryMetrics]) -> Figures:
        """Add up the metrics of a micro-batch or of several, in their order.

        Raises
        ------
        ArgumentError
            There are none, they are of several queries, or they are something else.
        """
        each = _checked(metrics)
        operators: dict[str, OperatorMetrics] = {}
        dropped: Counter[tuple[str, str]] = Counter()
        for one in each:
            dropped.update(one.dropped)
            for name, now in one.operators.items():
                operators[name] = _added(operators[name], now) if name in operators else now
        return cls(_caption(each), operators, +dropped)

    def check(self, operators: Collection[str]) -> None:
        """Raise `ArgumentError` unless these are the metrics of a plan with these operators."""
        if set(operators) != self.operators.keys():
            names = sorted(self.operators.keys() ^ set(operators))
            raise ArgumentError(
                f"The metrics are those of another plan: only one of both has {', '.join(names)}.",
                hint="Give tablestream.diagram(...) the outputs and the options that the query was started with.",
            )


def _checked(metrics: Any) -> list[QueryMetrics]:
    each = [metrics] if isinstance(metrics, QueryMetrics) or not isinstance(metrics, Iterable) else [*metrics]
    others = [one for one in each if not isinstance(one, QueryMetrics)]
    if others:
        reason = f"metrics= has a {type(others[0]).__name__}, which is no metrics of a micro-batch."
    elif not each:
        reason = "metrics= has no micro-batch."
    elif len({one.query_id for one in each}) > 1:
        reason = "metrics= has micro-batches of several queries."
    else:
        return each
    raise ArgumentError(
        reason,
        hint="Give the QueryMetrics of one query, as tablestream.MetricsListener(heard.append) collects them.",
    )


def _added(before: OperatorMetrics, now: OperatorMetrics) -> OperatorMetrics:
    sums = {name: getattr(before, name) + getattr(now, name) for name in ADDED}
    return replace(now, **sums)


def _caption(each: list[QueryMetrics]) -> str:
    """How many micro-batches, their records and changes, and their time, as each micro-batch says it."""
    last, count = each[-1], len(each)
    which = f"micro-batch {last.micro_batch}" if count == 1 else f"{count:,} micro-batches"
    seconds = sum(one.duration_ms for one in each) / 1000
    time = f"{seconds:,.1f} s" if count == 1 else f"{seconds:,.1f} s, {seconds / count:,.1f} s each"
    records, changes = sum(one.rows_in for one in each), sum(one.changes_out for one in each)
    return f"{last.query_name or last.query_id}, {which}: {records:,} records in, {changes:,} changes out, {time}"


def size(size_bytes: int) -> str:
    """Return a number of bytes with its unit.

    Examples
    --------
    >>> size(400), size(4_200), size(7_300_000)
    ('400 B', '4.2 kB', '7.3 MB')
    """
    value, units = float(size_bytes), ["kB", "MB", "GB", "TB"]
    if size_bytes < 1000:
        return f"{size_bytes} B"
    while True:
        value, unit = value / 1000, units.pop(0)
        # What would be shown as 1000.0 has the next unit.
        if round(value, 1) < 1000 or not units:
            return f"{value:,.1f} {unit}"
