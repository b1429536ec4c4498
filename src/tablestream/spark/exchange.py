"""What moves data between the stages of a plan: a protocol, and how Spark does it in a streaming query.

`Builder` says what is computed. An exchange says where packers, rounds and unpackers run, and how blobs go from one
to the next. `tablestream.testing` has another one, which runs them in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol, TypeVar

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.connectors.shipping import has_context
from tablestream.errors import PlanError
from tablestream.runtime.drops import DropRules
from tablestream.runtime.ports import METRICS
from tablestream.runtime.rounds import Round
from tablestream.spark import blobs
from tablestream.spark.processor import RoundProcessor
from tablestream.spark.round_worker import RoundWorker, Settings
from tablestream.spark.unpacking import OutputUnpacker, by_batches

Observations = Callable[[], dict[str, list[Column]]]
"""Makes the aggregates of blobs that a query's progress shows, by name."""
Blobs = TypeVar("Blobs")
"""Blobs on their way between two stages."""

#: Spark's setting of the size from which a function is a broadcast variable, and the most that a round may take of the
#: megabyte that it is by default.
_THRESHOLD, _MOST_BYTES = "spark.broadcast.UDFCompressionThreshold", (1 << 20) - (32 << 10)


class Batches(Protocol):
    """A packer or an unpacker: record batches in, record batches out."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Work off the record batches of a task."""


class Exchange(Protocol[Blobs]):
    """Runs the stages of a plan, and moves blobs between them."""

    @property
    def now(self) -> str:
        """The time of the micro-batch, a timestamp, as SQL."""

    @property
    def observes_drops(self) -> bool:
        """Whether the query's progress is to have examples of drops."""

    @property
    def reads_notices(self) -> bool:
        """Whether the frame is to have notices about drops."""

    def pack(self, frame: DataFrame, packer: Batches) -> Blobs:
        """Evaluate a frame, and pack its rows."""

    def union(self, streams: Sequence[Blobs]) -> Blobs:
        """Put blobs together."""

    def run_round(self, stream: Blobs, work: Round, shards: int, rules: DropRules) -> Blobs:
        """Send blobs to their shards, and run a round on each."""

    def unpack(self, stream: Blobs, unpacker: Batches, schema: T.StructType) -> DataFrame:
        """Unpack blobs into the rows of a frame, in which expressions are evaluated."""

    def finish(
        self,
        stream: Blobs,
        unpacker: OutputUnpacker,
        schema: T.StructType,
        observations: Observations,
        *,
        in_place: bool,
    ) -> DataFrame:
        """Count the blobs of outputs, send them to their shards, and unpack them in order.

        `in_place`: they are in their shards already, one shard after the other.
        """


@dataclass(frozen=True)
class SparkExchange:
    """The stages of a streaming query: Spark's workers run them, and Spark's shuffles move the blobs."""

    settings: Settings
    """For the workers."""
    reporting: bool = False
    """Whether the frame also has rows of reports; see `tablestream.spark.reports`."""
    observes_drops: bool = False
    """Whether the query's progress is to have examples of drops."""

    @property
    def now(self) -> str:
        """The time at which Spark began the micro-batch."""
        return "current_timestamp()"

    @property
    def reads_notices(self) -> bool:
        """They are reports, too."""
        return self.reporting

    def pack(self, frame: DataFrame, packer: Batches) -> DataFrame:
        return frame.mapInArrow(by_batches(packer), blobs.SCHEMA)

    def union(self, streams: Sequence[DataFrame]) -> DataFrame:
        return reduce(lambda one, other: one.unionByName(other), streams)

    def run_round(self, stream: DataFrame, work: Round, shards: int, rules: DropRules) -> DataFrame:
        processor = RoundProcessor(RoundWorker(work, shards, self.settings, rules))
        _check_size(processor.size_bytes, work, stream.sparkSession)
        return stream.groupBy(blobs.SHARD).transformWithStateInPandas(
            processor, blobs.SCHEMA, "append", "ProcessingTime" if work.needs_clock else "none"
        )

    def unpack(self, stream: DataFrame, unpacker: Batches, schema: T.StructType) -> DataFrame:
        return stream.mapInArrow(by_batches(unpacker), schema)

    def finish(
        self,
        stream: DataFrame,
        unpacker: OutputUnpacker,
        schema: T.StructType,
        observations: Observations,
        *,
        in_place: bool,
    ) -> DataFrame:
        for name, columns in observations().items():
            stream = stream.observe(name, *columns)
        kept = stream.where(F.col(blobs.PORT) != METRICS if self.reporting else F.col(blobs.PORT) >= 0)
        if in_place:
            return kept.mapInArrow(by_batches(unpacker), schema)
        return kept.groupBy(blobs.SHARD).applyInArrow(by_batches(unpacker), schema)


def _check_size(size_bytes: int, work: Round, spark: SparkSession) -> None:
    """Raise `PlanError` for a round that Spark would send as a broadcast variable: a stateful stage lacks these."""
    if size_bytes <= _MOST_BYTES or not has_context(spark) or spark.conf.get(_THRESHOLD, None) is not None:
        return
    names = ", ".join(placed.name for placed in work.operators)
    raise PlanError(
        f"Round {work.number} of the plan ({names}) takes {size_bytes >> 10} KiB, and Spark gives a stateful stage no"
        f" more than {_MOST_BYTES >> 10}.",
        hint="Aggregate fewer columns in one group, for example in two groups that are joined; or set"
        f" {_THRESHOLD} to 16m when you create the session.",
    )
