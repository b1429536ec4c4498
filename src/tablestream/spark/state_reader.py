"""Read the state of a query from outside: a table in a checkpoint, as a batch data frame.

Spark's own reader returns the manifests and the chunks of a round. Those of one shard come together in one task,
which reads them as the query itself does. The driver only sees the list of tables, and manifests where it needs
their clocks.
"""

from __future__ import annotations

import os
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tablestream.arguments.kinds import check_session, whole
from tablestream.base.calling import user_line
from tablestream.connectors.sink import checked_path
from tablestream.connectors.workers import prepare_workers
from tablestream.errors import ArgumentError
from tablestream.planner.catalogue import StoredTable
from tablestream.spark import blobs
from tablestream.spark.relocation import check_place
from tablestream.spark.stored_rows import StoredRows, check_history, chosen, moment_of, shown
from tablestream.spark.stored_state import StoredState, store_of
from tablestream.spark.unpacking import by_batches


def read_state(
    spark: SparkSession,
    checkpoint: str | os.PathLike[str],
    table: str,
    batch_id: int | None = None,
    as_of: str | datetime | None = None,
) -> DataFrame:
    """Read a table from the state of a query: its rows now, or after an earlier micro-batch.

    The query may be running, or have ended. Its state is not changed.

    Parameters
    ----------
    spark
        A session; it need not be the one of the query.
    checkpoint
        The query's checkpoint directory.
    table
        The name of a table whose rows are in the state: a side of a join on the key, the right side of a
        foreign-key join, a table that streams are joined with, groups and their first rows, a versioned table, a
        result of `Table.materialize`, an output with ``before=True``. The error for an unknown name lists them.
    batch_id
        Read the table as it was after this micro-batch. The checkpoint keeps at least as many as
        ``spark.sql.streaming.minBatchesToRetain`` said when the query started: 10, unless the session sets it. Use the
        frame while its micro-batch is kept. Default: the last one.
    as_of
        For a versioned table: read the rows that were valid at this time, a datetime or a string that Spark casts
        to a timestamp in the session's time zone. None: all versions that were valid at any time in the history.

    Returns
    -------
    DataFrame
        The key and value columns, and ``_timestamp`` (timestamp), the time of the row. For a versioned table also
        ``valid_from`` and ``valid_to`` (timestamps; ``valid_to`` is null for the latest version of a row).

    Raises
    ------
    ArgumentError
        There is no such table, or the state does not have its rows; `as_of` is not a time, or a time before the
        history.
    NotVersionedError
        `as_of` is given, and the table is not versioned.
    ColumnCollisionError
        A versioned table itself has a column ``valid_from`` or ``valid_to``.
    StateError
        The directory is not the checkpoint of such a query, has no state yet, or lacks the state of the
        micro-batch.
    CheckpointMovedError
        The checkpoint was moved or copied; `relocate_checkpoint` makes it usable.

    Notes
    -----
    Cost: Spark's ``statestore`` source reads all state of one round; only the table's part is decoded, one shard
    per task. A task needs memory for the table's compressed chunks in its shard.

    Examples
    --------
    >>> import tablestream as ts
    >>> tickers = ts.read_state(spark, "out/checkpoint", "tickers")  # doctest: +SKIP
    >>> noon = ts.read_state(spark, "out/checkpoint", "prices", as_of="2024-01-02 12:00")  # doctest: +SKIP
    """
    check_session(spark)
    _check_kinds(checkpoint, table, batch_id)
    _, rows = read_stored(spark, checkpoint, table, whole(batch_id), as_of)
    return rows


def read_stored(
    spark: SparkSession,
    checkpoint: str | os.PathLike[str],
    table: str,
    batch_id: int | None,
    as_of: str | datetime | None,
) -> tuple[StoredTable, DataFrame]:
    """Return a table in the state, and its rows as `read_state` does; it raises the same errors."""
    path = checked_path(checkpoint, "the checkpoint")
    prepare_workers(spark)
    check_place(spark, path)
    state = StoredState.of(spark, path, batch_id)
    found = chosen(state.tables(), table)
    return found, _rows(state, found, _time(state, found, as_of))


def _time(state: StoredState, table: StoredTable, as_of: str | datetime | None) -> int | None:
    """Return a time in microseconds since 1970; raise as `read_state` if the table's history does not have it."""
    if as_of is None:
        return None
    moment_us = moment_of(state.spark, table, as_of)
    heads = [bytes(row.data) for row in state.manifests(table.round).collect()]
    check_history(state.spark, table, moment_us, heads)
    return moment_us


def _rows(state: StoredState, table: StoredTable, as_of_us: int | None) -> DataFrame:
    """Return the rows of a table as users see them."""
    stored = StoredRows.of_table(table, as_of_us)
    of_table = F.col("trace").isin([spec.number for spec in table.traces])
    heads = state.manifests(table.round).unionByName(state.shards(table.round))
    parts = heads.unionByName(state.chunks(table.round).where(of_table))
    if table.copied:
        any_shard = heads.select(F.min(blobs.SHARD)).first()
        parts = parts.where(F.col(blobs.SHARD) == F.lit(any_shard[0] if any_shard else None))
    read = by_batches(lambda batches: stored.of(store_of(batches)))
    rows = parts.groupBy(blobs.SHARD).applyInArrow(read, stored.schema)
    return rows.select(*shown(state.spark, table))


def _check_kinds(checkpoint: Any, table: Any, batch_id: Any) -> None:
    """Check the types of arguments."""
    kinds = (
        ("checkpoint", checkpoint, isinstance(checkpoint, str | os.PathLike), "the path of a directory"),
        ("table", table, isinstance(table, str), "the name of a table"),
        (
            "batch_id",
            batch_id,
            batch_id is None or whole(batch_id) is not None,
            "the number of a micro-batch",
        ),
    )
    for name, given, fits, wanted in kinds:
        if not fits:
            raise ArgumentError(
                f"{name}={given!r} is not {wanted}.", hint=f"Give {wanted}.", where=user_line()
            )
