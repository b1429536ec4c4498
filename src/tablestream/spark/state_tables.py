"""Lists the tables in the state of a query, with their sizes: only manifests are read, no rows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from tablestream.pictures.figures import size
from tablestream.planner.catalogue import StoredTable
from tablestream.spark.stored_state import StoredState
from tablestream.state import manifest as manifests
from tablestream.state.manifest import Manifest
from tablestream.state.shard import TraceSize


@dataclass(frozen=True)
class TableSize:
    """A table in the state."""

    name: str
    key: tuple[str, ...]
    """The table, and its key columns."""
    is_versioned: bool
    """Whether the state has its versions."""
    rows: int
    size_bytes: int
    """What is stored, in all shards: rows, including tombstones and rows that a merge will remove, and their compressed
    bytes. A row of which several shards have a copy counts once."""
    waits: bool = False
    """Whether it is what waits in a buffer."""

    def __str__(self) -> str:
        """How large it is."""
        rows = "row" if self.rows == 1 else "rows"
        return f"{self.rows:,} {rows}, {size(self.size_bytes)}"


@dataclass(frozen=True)
class StateSummary:
    """The tables that can be read, and those that the state does not keep, after a micro-batch."""

    micro_batch: int
    oldest: int
    """The micro-batch, and the first one whose state can still be read."""
    tables: tuple[TableSize, ...]
    others: tuple[str, ...]
    """The tables that can be read, and the names of those whose rows the state does not keep."""


def summary(
    spark: SparkSession, checkpoint: str | os.PathLike[str], batch_id: int | None = None
) -> StateSummary:
    """List the tables in the state. The errors about the checkpoint are those of `read_state`."""
    state = StoredState.current(spark, checkpoint, batch_id)
    stored = state.tables()
    heads = {
        number: [manifests.decode(bytes(row.data)) for row in state.manifests(number).collect()]
        for number in sorted({table.round for table in stored.tables})
    }
    sizes = tuple(_size(table, heads[table.round]) for table in stored.tables)
    return StateSummary(state.micro_batch, state.oldest, sizes, stored.others)


def _size(table: StoredTable, heads: Sequence[Manifest]) -> TableSize:
    """Add up the runs of a table. The trace with its keys has its rows."""
    of_keys = table.traces[0].name
    rows = [TraceSize.of(head.runs(of_keys)).rows for head in heads]
    sizes = [TraceSize.of(head.runs(spec.name)).size_bytes for head in heads for spec in table.traces]
    copies = 1 if table.copies is None else table.copies.number
    return TableSize(
        table.name,
        tuple(one.name for one in table.key),
        table.history is not None,
        max(rows, default=0) if table.copied else sum(rows) // copies,
        sum(sizes),
        table.waits,
    )
