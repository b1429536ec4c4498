"""The metrics of a micro-batch, read from the progress that Spark reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, fields
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from tablestream.runtime.measures import (
    CACHE_HITS,
    FETCHES,
    FIGURES,
    MEASURED,
    MERGES,
    OBSERVED,
    ROWS_IN,
    ROWS_OUT,
    SHARDS,
    STATE_BYTES,
    STATE_BYTES_ADDED,
    STATE_ROWS,
    STATE_ROWS_ADDED,
)

_CHANGES = "changes"
#: What of `OperatorMetrics` is added up over micro-batches: all but the size of the state.
ADDED = ("rows_in", "rows_out", "cache_hits", "fetches", "merges")


@dataclass(frozen=True)
class OperatorMetrics:
    """What one operator did in a micro-batch.

    Attributes
    ----------
    rows_in, rows_out
        Messages that it received, and rows that it emitted.
    state_rows, state_bytes
        The size of its state in all shards: rows, including tombstones and rows that a merge will remove, and their
        compressed bytes. None until all shards have reported.
    cache_hits, fetches
        Chunks of state that it read: found in the worker's cache, or fetched from Spark's state.
    merges
        Runs of its state that were merged into one.
    """

    rows_in: int
    rows_out: int
    state_rows: int | None
    state_bytes: int | None
    cache_hits: int
    fetches: int
    merges: int


@dataclass(frozen=True)
class QueryMetrics:
    """What a query did in a micro-batch.

    Attributes
    ----------
    query_name
        The query's name; None if it has none.
    query_id, run_id
        Spark's ids: the first lives as long as the checkpoint, the second until the query stops.
    micro_batch
        The number of the micro-batch.
    timestamp
        When it began, in UTC, as ISO 8601.
    duration_ms
        How long it took, in milliseconds.
    rows_in, changes_out
        Records that its sources read, and changes that all outputs received together.
    dropped
        Numbers of dropped records, by table or operator, and reason; including zeros.
    operators
        What each operator did, by their names and in their order.
    """

    query_name: str | None
    query_id: str
    run_id: str
    micro_batch: int
    timestamp: str
    duration_ms: int
    rows_in: int
    changes_out: int
    dropped: Mapping[tuple[str, str], int] = field(default_factory=dict)
    operators: Mapping[str, OperatorMetrics] = field(default_factory=dict)

    def __str__(self) -> str:
        """A line about the micro-batch, a table of the operators, and the dropped records."""
        title = (
            f"{self.query_name or self.query_id}, micro-batch {self.micro_batch}: {self.rows_in:,} records in,"
            f" {self.changes_out:,} changes out, {self.duration_ms / 1000:.1f} s"
        )
        sums = [one.name.replace("_", " ") for one in fields(OperatorMetrics)]
        rows: list[tuple[str, ...]] = [("operator", *sums)]
        rows += [(name, *map(_shown, astuple(one))) for name, one in self.operators.items()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(
                [name.ljust(widths[0]), *(text.rjust(w) for text, w in zip(rest, widths[1:], strict=True))]
            )
            for name, *rest in rows
        ]
        dropped = [f"{place}: {count:,} {reason}" for (place, reason), count in self.dropped.items() if count]
        if dropped:
            lines.append(f"dropped: {', '.join(dropped)}")
        return "\n".join([title, *(f"  {line}" for line in lines)])


def _shown(figure: int | None) -> str:
    return "?" if figure is None else f"{figure:,}"


class MetricsReader:
    """Reads the metrics of one run of a query. It remembers the state of shards that have no work.

    Examples
    --------
    >>> reader = MetricsReader()
    >>> for progress in query.recentProgress:  # doctest: +SKIP
    ...     print(reader.read(progress))
    """

    def __init__(self) -> None:
        self._sizes: dict[str, tuple[int, int]] = {}

    def read(self, progress: StreamingQueryProgress) -> QueryMetrics | None:
        """Read the progress of the next micro-batch.

        Parameters
        ----------
        progress
            One of ``query.recentProgress``, or a listener's.

        Returns
        -------
        QueryMetrics
            None if the query is not one of this library, or nothing ran.
        """
        observed = progress.observedMetrics
        if OBSERVED not in observed or MEASURED not in observed:
            return None
        counts, measures = fields_of(observed[OBSERVED]), fields_of(observed[MEASURED])
        return QueryMetrics(
            query_name=progress.name,
            query_id=str(progress.id),
            run_id=str(progress.runId),
            micro_batch=progress.batchId,
            timestamp=progress.timestamp,
            duration_ms=progress.batchDuration,
            rows_in=progress.numInputRows,
            changes_out=counts[_CHANGES],
            dropped={parted(name): count for name, count in counts.items() if ": " in name},
            operators=self._operators(measures[FIGURES], measures[SHARDS], is_first=progress.batchId == 0),
        )

    def _operators(
        self, measures: Mapping[str, int], shards: int, *, is_first: bool
    ) -> dict[str, OperatorMetrics]:
        of_operator: dict[str, dict[str, int]] = {}
        for name, value in measures.items():
            operator, measure = parted(name)
            of_operator.setdefault(operator, {})[measure] = value
        found = {}
        for operator, sums in sorted(of_operator.items()):
            size = self._size(operator, sums, whole=is_first or sums[SHARDS] == shards)
            rows, size_bytes = size or (None, None)
            found[operator] = OperatorMetrics(
                sums[ROWS_IN],
                sums[ROWS_OUT],
                rows,
                size_bytes,
                sums[CACHE_HITS],
                sums[FETCHES],
                sums[MERGES],
            )
        return found

    def _size(self, operator: str, sums: Mapping[str, int], *, whole: bool) -> tuple[int, int] | None:
        """Rows and bytes of an operator's state: as all shards report them, or the last known size plus additions."""
        if whole:
            self._sizes[operator] = sums[STATE_ROWS], sums[STATE_BYTES]
        elif operator in self._sizes:
            rows, size_bytes = self._sizes[operator]
            self._sizes[operator] = rows + sums[STATE_ROWS_ADDED], size_bytes + sums[STATE_BYTES_ADDED]
        return self._sizes.get(operator)


def parted(name: str) -> tuple[str, str]:
    """Split a field's name into table or operator, and reason or measure."""
    operator, _, what = name.rpartition(": ")
    return operator, what


def fields_of(row: Any) -> dict[str, Any]:
    """Return the fields of an observed row by name; under Spark Connect a row has its values and their schema."""
    found: dict[str, Any] = row.asDict()
    if "schema" in found:
        names = [column["name"] for column in found["schema"]["fields"]]
        found = dict(zip(names, found["values"], strict=True))
    return found
