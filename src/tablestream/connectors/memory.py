"""Outputs kept in this Python process, for tests and for looking at a small result."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from tablestream.connectors.sink import ORDER
from tablestream.errors import ArgumentError, PlanError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, Row, SparkSession


@dataclass(slots=True)
class _Log:
    """What one query wrote under a name: rows by micro-batch."""

    query_id: str
    micro_batches: dict[int, list[Row]] = field(default_factory=dict)


_LOGS: dict[str, _Log] = {}


@dataclass(frozen=True, slots=True)
class MemorySink:
    """Rows by name in this process; made by `memory`."""

    name: str
    key_columns: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        """Kind and name."""
        return f"memory {self.name}"

    @property
    def needs_final(self) -> bool:
        """Every change is kept."""
        return False

    def keyed_by(self, names: Sequence[str]) -> Self:
        """Give the same target, told which columns are the key."""
        return replace(self, key_columns=tuple(names))

    def check(self, spark: SparkSession, columns: Sequence[str]) -> None:  # noqa: ARG002 (the contract's)
        """Refuse Spark Connect: the rows would stay in a worker of the server."""
        if type(spark).__module__.startswith("pyspark.sql.connect"):
            raise _no_connect()

    def write(self, changes: DataFrame, micro_batch_id: int, query_id: str, output_name: str) -> None:  # noqa: ARG002 (the contract's)
        """Keep the rows of one micro-batch, in place of what it left before."""
        self.check(changes.sparkSession, ())
        log = _LOGS.get(self.name)
        if log is None or log.query_id != query_id:
            log = _LOGS[self.name] = _Log(query_id)
        log.micro_batches[micro_batch_id] = changes.collect()

    def rows(self, *, as_written: bool = False) -> list[Row]:
        """Give what has been written so far.

        Parameters
        ----------
        as_written
            Leave the rows of a micro-batch in the order of its partitions, in which only the changes of one
            key are in order, instead of sorting them by ``_order``.

        Returns
        -------
        list of Row
            All micro-batches, one after the other.
        """
        log = _LOGS.get(self.name)
        if log is None:
            return []
        runs = [log.micro_batches[number] for number in sorted(log.micro_batches)]
        return [row for run in runs for row in (run if as_written else _in_order(run))]

    def clear(self) -> None:
        """Forget what was written under this name."""
        _LOGS.pop(self.name, None)


def to_memory(name: str) -> MemorySink:
    """Keep an output's changes in this process, for tests.

    A micro-batch that is written again replaces what it left before. A query with another checkpoint that
    writes under the same name starts it afresh; one that is restarted from its checkpoint goes on.

    Parameters
    ----------
    name
        The name to find the rows by: two sinks of one name show the same rows.

    Returns
    -------
    MemorySink
        Its ``rows()`` are the changes so far, its ``clear()`` forgets them.

    Raises
    ------
    ArgumentError
        When the name is empty.
    PlanError
        Under Spark Connect, when the query starts: what ``foreachBatch`` calls there runs in another process.

    Notes
    -----
    Everything is collected to the driver: for small results.

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


def _in_order(rows: list[Row]) -> list[Row]:
    """Sort by ``_order``, as Spark does; rows without it stay as they are."""
    return sorted(rows, key=lambda row: _sortable(row[ORDER])) if rows and ORDER in rows[0] else rows


def _sortable(value: Any) -> tuple[Any, ...]:
    """Put nulls first, inside structs and arrays too: a rejected record may have no place in an ``order_by``."""
    if value is None:
        return (0,)
    return (1, tuple(map(_sortable, value)) if isinstance(value, tuple | list) else value)


def _no_connect() -> PlanError:
    return PlanError(
        "A memory sink cannot be read under Spark Connect: its rows stay in a worker process of the server.",
        hint="Write to to_files(...) or to_delta(...) and read that.",
    )
