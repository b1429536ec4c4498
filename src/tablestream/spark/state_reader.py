"""Read the state of a query from outside: a table in a checkpoint, as a batch data frame.

Spark's own reader returns the manifests and the chunks of a round. Those of one shard come together in one task,
which reads them as the query itself does. The driver only sees the list of tables, and manifests where it needs
their clocks.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tablestream.calling import user_line
from tablestream.connectors.files import first_line
from tablestream.connectors.sink import checked_path
from tablestream.connectors.workers import prepare_workers
from tablestream.errors import ArgumentError, StateError
from tablestream.planner.catalogue import StoredTable, StoredTables, decode
from tablestream.spark import blobs
from tablestream.spark.births import stored_births
from tablestream.spark.relocation import check_place
from tablestream.spark.store import TABLES, variables
from tablestream.spark.stored_rows import StoredRows, check_history, chosen, moment_of, shown
from tablestream.spark.unpacking import by_batches
from tablestream.state.births import Births, shard_gone
from tablestream.state.sealed import unseal
from tablestream.state.shard import manifest_missing
from tablestream.state.store import MemoryStore

_MANIFEST = re.compile(variables(0)[0].replace("0", r"(\d+)"))
#: The place of a chunk; null for a manifest.
_PLACE = {"trace": "int", "run": "bigint", "chunk": "int"}


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
    _check_kinds(checkpoint, table, batch_id)
    checkpoint = checked_path(checkpoint, "the checkpoint")
    prepare_workers(spark)
    check_place(spark, checkpoint)
    state = _State.of(spark, checkpoint, batch_id)
    found = chosen(state.tables(), table)
    moment_us = None if as_of is None else moment_of(spark, found, as_of)
    if moment_us is not None:
        heads = [bytes(row.data) for row in state.manifests(found.round).collect()]
        check_history(spark, found, moment_us, heads)
    return _rows(state, found, moment_us)


@dataclass(frozen=True)
class _State:
    """The state of a query after a micro-batch, with the number of Spark's operator for each round."""

    spark: SparkSession
    checkpoint: str
    micro_batch: int
    operators: Mapping[int, int]
    births: Births

    @classmethod
    def of(cls, spark: SparkSession, checkpoint: str, wanted: int | None) -> _State:
        """Find the rounds of a query, and check that the state after a micro-batch exists.

        Raises
        ------
        StateError
            It does not exist.
        """
        metadata = first_line(spark, f"{checkpoint}/metadata")
        if metadata is None:
            raise StateError(
                f"{checkpoint} is not the checkpoint of a query.",
                hint="Give the directory that the query was started with, as checkpoint= of ts.start.",
                where=user_line(),
            )
        # The reader asks this coordinator for the places of state stores; without queries, nothing else starts it.
        _ = spark.streams.active
        operators, kept = {}, (0, -1)
        for row in spark.read.format("state-metadata").load(checkpoint).collect():
            properties = json.loads(row.operatorProperties or "{}")
            names = {one["stateName"] for one in properties.get("stateVariables", [])}
            for number in filter(None, map(_MANIFEST.fullmatch, names)):
                operators[int(number.group(1))] = row.operatorId
                kept = row.minBatchId, row.maxBatchId
        micro_batch = kept[1] if wanted is None else wanted
        if not operators or kept[1] < 0:
            raise StateError(
                f"The checkpoint {checkpoint} has no state of tables.",
                hint="Wait until the query has completed a micro-batch. A plan without joins and groups has no state.",
                where=user_line(),
            )
        if not kept[0] <= micro_batch <= kept[1]:
            raise StateError(
                f"The checkpoint {checkpoint} has the state after the micro-batches {kept[0]} to {kept[1]},"
                f" not that after {micro_batch}.",
                hint="Give batch_id= one of these; spark.sql.streaming.minBatchesToRetain says how many are kept.",
                where=user_line(),
            )
        births = stored_births(spark, checkpoint, json.loads(metadata)["id"])
        return cls(spark, checkpoint, micro_batch, operators, births)

    def manifests(self, work: int) -> DataFrame:
        """Return the manifests of a round, by shard."""
        places = (F.lit(None).cast(kind).alias(name) for name, kind in _PLACE.items())
        rows = self._read(work, variables(work)[0])
        return rows.select(f"key.{blobs.SHARD}", *places, F.col("value.manifest").alias("data"))

    def shards(self, work: int) -> DataFrame:
        """Return the shards of a round that must have a manifest, in the same columns, without data."""
        born = self.births.before(self.micro_batch + 1)
        rows = [(shard, None, None, None, None) for number, shard in born if number == work]
        columns = ", ".join(f"{name} {kind}" for name, kind in _PLACE.items())
        return self.spark.createDataFrame(rows, f"{blobs.SHARD} int, {columns}, data binary")

    def chunks(self, work: int) -> DataFrame:
        """Return the chunks of a round, by shard and place, in the same columns."""
        rows = self._read(work, variables(work)[1])
        places = (f"user_map_key.{name}" for name in _PLACE)
        return rows.select(f"key.{blobs.SHARD}", *places, F.col("user_map_value.chunk").alias("data"))

    def tables(self) -> StoredTables:
        """Return the list of tables in the state. Every shard of every round has the same list.

        Raises
        ------
        StateError
            There is no shard yet.
        DamagedStateError
            There is no shard any more.
        """
        trace, run, chunk = TABLES
        for work in sorted(self.operators):
            here = (F.col("trace") == trace) & (F.col("run") == run) & (F.col("chunk") == chunk)
            row = self.chunks(work).where(here).select("data").first()
            if row is not None:
                return decode(unseal(bytes(row[0]).decode(errors="replace"), "tables"))
        for place, micro_batch in self.births.before(self.micro_batch + 1).items():
            raise shard_gone(place, micro_batch)
        raise StateError(
            f"The checkpoint {self.checkpoint} has no rows of any table yet.",
            hint="Wait until records have arrived.",
            where=user_line(),
        )

    def _read(self, work: int, variable: str) -> DataFrame:
        reader = self.spark.read.format("statestore").option("operatorId", self.operators[work])
        reader = reader.option("batchId", self.micro_batch).option("stateVarName", variable)
        return reader.load(self.checkpoint)


@dataclass(frozen=True)
class _ShardReader:
    """Reads the rows of a table in one shard from its manifest (the row without a trace) and its chunks."""

    rows: StoredRows

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows, a bounded number at a time."""
        store = MemoryStore()
        for batch in batches:
            columns = (batch[name].to_pylist() for name in (*_PLACE, "data"))
            for trace, run, chunk, data in zip(*columns, strict=True):
                if trace is None:
                    store.manifest = store.manifest if data is None else data
                else:
                    store.chunks[trace, run, chunk] = data
        if store.manifest is None:  # then there are chunks, or the shard is listed
            raise manifest_missing()
        yield from self.rows.of(store)


def _rows(state: _State, table: StoredTable, as_of_us: int | None) -> DataFrame:
    """Return the rows of a table as users see them."""
    stored = StoredRows.of_table(table, as_of_us)
    reader = _ShardReader(stored)
    of_table = F.col("trace").isin([spec.number for spec in table.traces])
    parts = state.manifests(table.round).unionByName(state.chunks(table.round).where(of_table))
    parts = parts.unionByName(state.shards(table.round))
    if table.copied:
        heads = state.manifests(table.round).unionByName(state.shards(table.round))
        any_shard = heads.select(F.min(blobs.SHARD)).first()
        parts = parts.where(F.col(blobs.SHARD) == F.lit(any_shard[0] if any_shard else None))
    rows = parts.groupBy(blobs.SHARD).applyInArrow(by_batches(reader), stored.schema)
    return rows.select(*shown(state.spark, table))


def _check_kinds(checkpoint: Any, table: Any, batch_id: Any) -> None:
    """Check the types of arguments."""
    kinds = (
        ("checkpoint", checkpoint, isinstance(checkpoint, str | os.PathLike), "the path of a directory"),
        ("table", table, isinstance(table, str), "the name of a table"),
        (
            "batch_id",
            batch_id,
            batch_id is None or (isinstance(batch_id, int) and not isinstance(batch_id, bool)),
            "the number of a micro-batch",
        ),
    )
    for name, given, fits, wanted in kinds:
        if not fits:
            raise ArgumentError(
                f"{name}={given!r} is not {wanted}.", hint=f"Give {wanted}.", where=user_line()
            )
