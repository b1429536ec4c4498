"""Outputs kept in this Python process, for tests and for small results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from tablestream.connectors.memory.collected import TimeText, collected
from tablestream.connectors.shipping import has_context
from tablestream.connectors.sink import ORDER, KeyedSink
from tablestream.errors import ArgumentError, PlanError


@dataclass(slots=True)
class _Log:
    """The rows that one query wrote under a name, by micro-batch."""

    query_id: str
    micro_batches: dict[int, list[Row]] = field(default_factory=dict)


_LOGS: dict[str, _Log] = {}


@dataclass(frozen=True, slots=True)
class MemorySink(KeyedSink):
    """Rows by name in this process; made by `to_memory`."""

    name: str

    @property
    def target(self) -> str:
        return f"memory {self.name}"

    def check(self, spark: SparkSession, columns: Sequence[str]) -> None:  # noqa: ARG002 (the contract's)
        """Refuse Spark Connect: the rows would stay in a worker of the server."""
        if not has_context(spark):
            raise PlanError(
                "A memory sink cannot be read under Spark Connect: its rows stay in a worker process of the server.",
                hint="Write to to_files(...) or to_delta(...) and read that.",
            )

    def write(self, changes: DataFrame, micro_batch_id: int, query_id: str, output_name: str) -> None:  # noqa: ARG002 (the contract's)
        """Keep the rows of one micro-batch, and replace those of an earlier attempt."""
        self.check(changes.sparkSession, ())
        log = _LOGS.get(self.name)
        if log is None or log.query_id != query_id:
            log = _LOGS[self.name] = _Log(query_id)
        log.micro_batches[micro_batch_id] = collected(changes)

    def rows(self, *, as_written: bool = False) -> list[Row]:
        """Return everything that was written so far.

        Parameters
        ----------
        as_written
            Keep the rows of a micro-batch in the order of its partitions, in which only the changes of one key are
            in order, instead of sorting them by ``_order``.

        Returns
        -------
        list of Row
            All micro-batches, one after the other.
        """
        log = _LOGS.get(self.name)
        if log is None:
            return []
        runs = [log.micro_batches[number] for number in sorted(log.micro_batches)]
        return [row for run in runs for row in (run if as_written else in_order(run))]

    def clear(self) -> None:
        """Forget what was written under this name."""
        _LOGS.pop(self.name, None)


def to_memory(name: str) -> MemorySink:
    """Keep an output's changes in this process, for tests.

    A micro-batch that is written again replaces its earlier rows. A query with another checkpoint that writes under
    the same name clears it first; a query that is restarted from its checkpoint continues.

    Parameters
    ----------
    name
        The name of the rows: two sinks with the same name show the same rows.

    Returns
    -------
    MemorySink
        Its ``rows()`` are the changes so far, its ``clear()`` forgets them.

    Raises
    ------
    ArgumentError
        The name is empty.
    PlanError
        When the query starts under Spark Connect, where another process calls ``foreachBatch``.

    Notes
    -----
    Everything is collected to the driver: use it for small results.

    Examples
    --------
    >>> sink = to_memory("positions")
    >>> changes = spark.sql("SELECT 1 AS id, 'upsert' AS _change_type, struct(0L AS micro_batch) AS _order")
    >>> sink.write(changes, 0, "a query", "positions")
    >>> sink.write(changes, 0, "a query", "positions")  # a replay
    >>> [(row.id, row._change_type) for row in sink.rows()]
    [(1, 'upsert')]
    """
    if not name:
        raise ArgumentError(
            "The name of a memory sink is empty.", hint="Give one, as in to_memory('positions')."
        )
    return MemorySink(name)


def in_order(rows: list[Row]) -> list[Row]:
    """Sort by ``_order``, as Spark does; rows without it stay as they are."""
    return sorted(rows, key=lambda row: sortable(row[ORDER])) if rows and ORDER in rows[0] else rows


def sortable(value: Any) -> tuple[Any, ...]:
    """Put nulls first and NaN last, also inside structs and arrays: a rejected record may have a null ``order_by``."""
    if value is None:
        return (0,)
    if isinstance(value, TimeText):  # before all times of Python, or after them
        return (0.5 if value.number < 0 else 1.5, value.number)
    if value != value:  # noqa: PLR0124 - only NaN is not itself
        return (2,)
    if isinstance(value, dict):  # a struct, where rows come from Arrow
        return sortable(tuple(value.values()))
    return (1, tuple(map(sortable, value)) if isinstance(value, tuple | list) else value)
