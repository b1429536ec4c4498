"""The state of a query after a micro-batch, as Spark's readers give it to other programs: manifests and chunks."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tablestream.base.calling import user_line
from tablestream.connectors.sink import checked_path
from tablestream.connectors.spark_place import seen_by_spark
from tablestream.errors import StateError
from tablestream.planner.catalogue import StoredTables, decode
from tablestream.spark import blobs
from tablestream.spark.births import stored_births
from tablestream.spark.generations import current, id_of_query
from tablestream.spark.relocation import check_place
from tablestream.spark.store import PLAN, TABLES, variables
from tablestream.spark.stored_plan import stored_text
from tablestream.state.births import Births, shard_gone
from tablestream.state.sealed import unseal
from tablestream.state.shard import manifest_missing
from tablestream.state.store import MemoryStore

_MANIFEST = re.compile(variables(0)[0].replace("0", r"(\d+)"))
#: A fact of each round in the text of a plan.
_SHARDS = re.compile(r"^round \d+\nshards: (\d+)$", re.MULTILINE)
#: The place of a chunk; null for a manifest.
PLACE = {"trace": "int", "run": "bigint", "chunk": "int"}


def query_of(spark: SparkSession, checkpoint: str) -> str:
    """Return the id of the query whose checkpoint it is; raise `StateError` if it is none."""
    query_id = id_of_query(spark, checkpoint)
    if query_id is None:
        raise StateError(
            f"{seen_by_spark(spark, checkpoint)} is not the checkpoint of a query.",
            hint="Give the directory that the query was started with, as checkpoint= of ts.start.",
            where=user_line(),
        )
    return query_id


@dataclass(frozen=True)
class StoredState:
    """The state of a query after a micro-batch."""

    spark: SparkSession
    checkpoint: str
    micro_batch: int
    """The session that reads, the directory, and the micro-batch."""
    oldest: int
    """The first micro-batch whose state the checkpoint still has."""
    operators: Mapping[int, int]
    """The number of Spark's operator for each round."""
    births: Births
    """The micro-batches in which shards first wrote state."""

    @classmethod
    def of(cls, spark: SparkSession, checkpoint: str, wanted: int | None) -> StoredState:
        """Find the rounds of a query; raise `StateError` unless the state after a micro-batch exists."""
        query_id = query_of(spark, checkpoint)
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
                f"The checkpoint {seen_by_spark(spark, checkpoint)} has no state of tables.",
                hint="Wait until the query has completed a micro-batch. A plan without joins and groups has no state.",
                where=user_line(),
            )
        if not kept[0] <= micro_batch <= kept[1]:
            raise StateError(
                f"The checkpoint {seen_by_spark(spark, checkpoint)} has the state after the micro-batches {kept[0]} to"
                f" {kept[1]}, not that after {micro_batch}.",
                hint="Give batch_id= one of these; spark.sql.streaming.minBatchesToRetain says how many are kept.",
                where=user_line(),
            )
        births = stored_births(spark, checkpoint, query_id)
        return cls(spark, checkpoint, micro_batch, kept[0], operators, births)

    @classmethod
    def current(
        cls, spark: SparkSession, checkpoint: str | os.PathLike[str], wanted: int | None
    ) -> StoredState:
        """Find the state of a query's current generation, as `of` does; refuse a checkpoint that was moved."""
        path = current(spark, checked_path(checkpoint, "the checkpoint")).path
        check_place(spark, path)
        return cls.of(spark, path, wanted)

    def manifests(self, work: int) -> DataFrame:
        """Return the manifests of a round, by shard."""
        places = (F.lit(None).cast(kind).alias(name) for name, kind in PLACE.items())
        rows = self._read(work, variables(work)[0])
        return rows.select(f"key.{blobs.SHARD}", *places, F.col("value.manifest").alias("data"))

    def shards(self, work: int) -> DataFrame:
        """Return the shards of a round that must have a manifest, in the same columns, without data."""
        born = self.births.before(self.micro_batch + 1)
        rows = [(shard, None, None, None, None) for number, shard in born if number == work]
        columns = ", ".join(f"{name} {kind}" for name, kind in PLACE.items())
        return self.spark.createDataFrame(rows, f"{blobs.SHARD} int, {columns}, data binary")

    def chunks(self, work: int) -> DataFrame:
        """Return the chunks of a round, by shard and place, in the same columns."""
        rows = self._read(work, variables(work)[1])
        places = (f"user_map_key.{name}" for name in PLACE)
        return rows.select(f"key.{blobs.SHARD}", *places, F.col("user_map_value.chunk").alias("data"))

    def tables(self) -> StoredTables:
        """Return the list of tables in the state, which every shard of every round has; raise if there is no shard."""
        for work in sorted(self.operators):
            text = self._text(work, TABLES)
            if text is not None:
                return decode(unseal(text, "tables"))
        for place, micro_batch in self.births.before(self.micro_batch + 1).items():
            raise shard_gone(place, micro_batch)
        raise StateError(
            f"The checkpoint {seen_by_spark(self.spark, self.checkpoint)} has no rows of any table yet.",
            hint="Wait until records have arrived.",
            where=user_line(),
        )

    def shards_of_plan(self) -> int | None:
        """Return the number of shards, which the text of the plan has; None if it is lost or does not say it.

        A query that Spark's own ``writeStream`` started has the text only in its state.
        """
        text = stored_text(self.spark, self.checkpoint)
        found = _SHARDS.search(self._text(min(self.operators), PLAN) or "" if text is None else text)
        return None if found is None else int(found[1])

    def _text(self, work: int, place: tuple[int, int, int]) -> str | None:
        """The text that a round keeps at a place; None if there is none."""
        trace, run, chunk = place
        here = (F.col("trace") == trace) & (F.col("run") == run) & (F.col("chunk") == chunk)
        row = self.chunks(work).where(here).select("data").first()
        return None if row is None else bytes(row[0]).decode(errors="replace")

    def _read(self, work: int, variable: str) -> DataFrame:
        reader = self.spark.read.format("statestore").option("operatorId", self.operators[work])
        reader = reader.option("batchId", self.micro_batch).option("stateVarName", variable)
        return reader.load(self.checkpoint)


def store_of(batches: Iterable[pa.RecordBatch]) -> MemoryStore:
    """Return the state of a shard from its manifest (the row without a trace), which must be there, and its chunks."""
    store = MemoryStore()
    for batch in batches:
        columns = (batch[name].to_pylist() for name in (*PLACE, "data"))
        for trace, run, chunk, data in zip(*columns, strict=True):
            if trace is None:
                store.manifest = store.manifest if data is None else data
            else:
                store.chunks[trace, run, chunk] = data
    if store.manifest is None:  # then there are chunks, or the shard is listed
        raise manifest_missing()
    return store
