"""Read the state of a query from outside: a table in a checkpoint, as a batch data frame.

Spark's own reader returns the manifests and the chunks of a round. Those of one shard come together in one task,
which reads them as the query itself does. The driver only sees the list of tables, and manifests where it needs
their clocks.
"""

from __future__ import annotations

import os
from datetime import datetime
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tablestream.arguments.kinds import check_session, whole
from tablestream.base.calling import user_line
from tablestream.connectors.sink import CHANGE_TYPE, NUMBER, ORDER
from tablestream.connectors.workers import prepare_workers
from tablestream.errors import ArgumentError, StateError, TargetError
from tablestream.planner.catalogue import StoredTable, decode
from tablestream.planner.physical_plan import PhysicalPlan
from tablestream.spark import blobs
from tablestream.spark.row_frames import frame_of
from tablestream.spark.stored_key import KeyRows
from tablestream.spark.stored_plan import stored_steps
from tablestream.spark.stored_rows import (
    VALID_FROM,
    VALID_TO,
    StoredRows,
    check_history,
    chosen,
    moment_of,
    shown,
)
from tablestream.spark.stored_state import StoredState, store_of
from tablestream.spark.unpacking import by_batches
from tablestream.topology.graph import named_as
from tablestream.topology.nodes import Node


def read_state(
    spark: SparkSession,
    checkpoint: str | os.PathLike[str],
    table: str,
    batch_id: int | None = None,
    as_of: str | datetime | None = None,
    key: Any = None,
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
        The name of a table whose rows are in the state: a side of a join on the key, the right side of a foreign-key
        join, a table that streams are joined with, groups and their first rows, a versioned table, a result of
        `Table.materialize`, an output with ``before=True``. Without ``history=``, a result of `Table.materialize` is
        also found by the name of the table that it was made of. With ``.waiting`` behind the name of a result of
        ``suppress``, ``reorder`` or a join with ``grace=``, or of a database's table with transactions: what waits
        there. With ``.aligning`` behind the name of a source, or of a view of it: what waits for ``align=``. The error
        for an unknown name lists them. If no such table is called so, the name of an output of one.
    batch_id
        Read the table as it was after this micro-batch. The checkpoint keeps at least as many as
        ``spark.sql.streaming.minBatchesToRetain`` said when the query started: 10, unless the session sets it. Use the
        frame while its micro-batch is kept. Default: the last one.
    as_of
        For a versioned table: read the rows that were valid at this time, a datetime or a string that Spark casts
        to a timestamp in the session's time zone. None: all versions that were valid at any time in the history.
    key
        Read only the row of this key, or the versions of a versioned table: a mapping of all key columns to their
        values, such as ``{"ticker": "A"}``, or the value of the only one. A part may be None; a struct is a tuple.
        None: all rows.

    Returns
    -------
    DataFrame
        The key and value columns, and ``_timestamp`` (timestamp), the time of the row. For a versioned table also
        ``valid_from`` and ``valid_to`` (timestamps; ``valid_to`` is null for the latest version of a row). For what
        waits also ``_change_type``, ``upsert`` or ``delete``.

    Raises
    ------
    ArgumentError
        There is no such table, or the state does not have its rows; `as_of` is not a time, or a time before the
        history; `key` has other columns, or a value does not fit its column's type.
    NotVersionedError
        `as_of` is given, and the table is not versioned.
    ColumnCollisionError
        The table itself has a column of one of these names.
    StateError
        The directory is not the checkpoint of such a query, has no state yet, or lacks the state of the
        micro-batch.
    CheckpointMovedError
        The checkpoint was moved or copied; `relocate_checkpoint` makes it usable.

    Notes
    -----
    Cost: Spark's ``statestore`` source reads all state of one round; only the table's part is decoded, one shard
    per task. A task needs memory for the table's compressed chunks in its shard.

    With `key`, one partition of the state is opened, the one with the key's shard, and the rows are read at once: the
    frame holds them. All partitions are opened for what waits, except in ``suppress``, and under Spark Connect,
    where one shard is decoded.

    Examples
    --------
    >>> import tablestream as ts
    >>> tickers = ts.read_state(spark, "out/checkpoint", "tickers")  # doctest: +SKIP
    >>> one = ts.read_state(spark, "out/checkpoint", "tickers", key="A")  # doctest: +SKIP
    >>> noon = ts.read_state(spark, "out/checkpoint", "prices", as_of="2024-01-02 12:00")  # doctest: +SKIP
    """
    check_session(spark)
    check_kinds(checkpoint, batch_id, table)
    _, rows = read_stored(spark, checkpoint, table, whole(batch_id), as_of, key)
    return rows


def read_stored(
    spark: SparkSession,
    checkpoint: str | os.PathLike[str],
    table: str,
    batch_id: int | None,
    as_of: str | datetime | None,
    key: Any = None,
) -> tuple[StoredTable, DataFrame]:
    """Return a table in the state, and its rows as `read_state` does; it raises the same errors."""
    state = StoredState.current(spark, checkpoint, batch_id)
    prepare_workers(spark)
    found = chosen(state.tables(), table, partial(_table_of, state))
    moment_us = None if as_of is None else moment_of(state.spark, found, as_of)
    wanted = None if key is None else KeyRows.of(state, found, key)
    if moment_us is not None:
        known = None if wanted is None else wanted.manifest
        heads = [known] if known else [row.data for row in state.manifests(found.round).collect()]
        check_history(state.spark, found, moment_us, map(bytes, heads))
    columns = shown(state.spark, found)
    if wanted is None:
        return found, stored_frame(state, found, moment_us).select(*columns)
    rows = stored_frame(state, found, moment_us) if found.scattered else key_frame(wanted, moment_us)
    return found, wanted.only(rows.select(*columns))


def _table_of(state: StoredState, name: str) -> str:
    """The name of an output's table; the name itself if no output is called so, or another version began the query."""
    try:
        lineage = stored_steps(state.spark, state.checkpoint)
    except StateError:
        return name
    return lineage.steps[lineage.outputs[name]].title if name in lineage.outputs else name


def key_frame(wanted: KeyRows, as_of_us: int | None = None) -> DataFrame:
    """Return the rows with the hash of a key, as `StoredRows` has them; all of its shard, if need be."""
    state, table, shard, manifest = wanted.state, wanted.table, wanted.shard, wanted.manifest
    if shard is None or manifest is None:
        return stored_frame(state, table, as_of_us, shard)
    stored = StoredRows.of_table(table, as_of_us)
    return frame_of(state.spark, wanted.record_batches(shard, manifest, stored), stored.schema)


def stored_frame(
    state: StoredState, table: StoredTable, as_of_us: int | None = None, shard: int | None = None
) -> DataFrame:
    """Return the rows of a table, or those in a shard, in the columns of `StoredRows`."""
    stored = StoredRows.of_table(table, as_of_us)
    of_table = F.col("trace").isin([spec.number for spec in table.traces])
    heads = state.manifests(table.round).unionByName(state.shards(table.round))
    parts = heads.unionByName(state.chunks(table.round).where(of_table))
    if shard is not None:
        parts = parts.where(F.col(blobs.SHARD) == shard)
    elif table.copied:
        any_shard = heads.select(F.min(blobs.SHARD)).first()
        parts = parts.where(F.col(blobs.SHARD) == F.lit(any_shard[0] if any_shard else None))
    read = by_batches(lambda batches: stored.of(store_of(batches)))
    return parts.groupBy(blobs.SHARD).applyInArrow(read, stored.schema)


def check_kinds(checkpoint: Any, batch_id: Any, table: Any = "", limit: Any = 1) -> None:
    """Check the types of arguments."""
    kinds = (
        ("checkpoint", checkpoint, isinstance(checkpoint, str | os.PathLike), "the path of a directory"),
        ("table", table, isinstance(table, str), "the name of a table"),
        (
            "batch_id",
            batch_id,
            batch_id is None or ((found := whole(batch_id)) is not None and found >= 0),
            "the number of a micro-batch, 0 or more",
        ),
        ("limit", limit, (whole(limit) or 0) >= 1, "a number of rows, 1 or more"),
    )
    for name, given, fits, wanted in kinds:
        if not fits:
            raise ArgumentError(
                f"{name}={given!r} is not {wanted}.", hint=f"Give {wanted}.", where=user_line()
            )


def stored_output(
    spark: SparkSession, checkpoint: str, plan: PhysicalPlan, node: Node, micro_batch: int
) -> DataFrame:
    """Return the rows of a table after a micro-batch, as changes that insert them; `TargetError` if there are none."""
    name = named_as(node, plan.names)
    try:
        known = StoredState.of(spark, checkpoint, micro_batch).tables().by_name.get(name)
    except StateError as error:
        raise _not_stored(name, error.reason) from error
    now = [decode(work.tables).by_name.get(name) for work in plan.rounds]
    if known is None or known not in now or (known.key, known.value) != (node.key, node.value):
        raise _not_stored(name, f"The state does not have the rows of '{name}'.")
    _, rows = read_stored(spark, checkpoint, name, micro_batch, None)
    if known.history is not None:
        rows = rows.where(F.col(VALID_TO).isNull()).drop(VALID_FROM, VALID_TO)
    number = F.lit(0).cast("bigint").alias(NUMBER)
    return rows.select("*", F.lit("insert").alias(CHANGE_TYPE), F.struct(number).alias(ORDER))


def _not_stored(name: str, why: str) -> TargetError:
    return TargetError(
        f"The target of '{name}' cannot be rebuilt. {why}",
        hint="What the state keeps can be: groups, versioned tables, and what has materialize(). Otherwise write to a"
        " new target with a new checkpoint, which reads the sources from their beginning.",
    )
