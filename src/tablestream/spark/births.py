"""The list of births in a checkpoint, and what the stages report for it.

A shard that finds no state reports so. Its report travels as a blob without content, whose port is a number below
`METRICS`, and arrives in ``foreachBatch`` as a row with this ``__port``. `ShardWatch` takes these rows out of the
micro-batch before the sinks are written. If the sink gets the rows while they are computed, it observes them, and
knows them when the sink is done: then the query ends after the sink, and before the commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F

from tablestream.connectors.files import small_lines
from tablestream.connectors.shipping import has_context
from tablestream.runtime.rounds import METRICS
from tablestream.spark import blobs
from tablestream.state.births import Births, decode, encode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tablestream.planner.physical_plan import PhysicalPlan

#: The place of the list in a checkpoint: files with one entry each, which are only added.
_LIST = "tablestream/shards"
_PORT = "__port"
#: The bits of one of Spark's bitmaps.
_BITS = 32768


def stored_births(spark: SparkSession, checkpoint: str, query_id: str) -> Births:
    """Read the list of a query.

    Raises
    ------
    DamagedStateError
        An entry was altered.
    """
    lines = small_lines(spark, f"{checkpoint}/{_LIST}/part-*")
    return Births.of((decode(json.loads(line)["value"]) for line in lines), query_id)


@dataclass
class ShardWatch:
    """Compares the shards of every micro-batch that found no state with the list, and extends the list.

    Parameters
    ----------
    checkpoint
        The directory of the query's checkpoint.
    shards, operators
        The number of shards, and the names of each round's operators.
    """

    checkpoint: str
    shards: int
    operators: Mapping[int, str]
    _births: Births | None = field(default=None, init=False)

    @classmethod
    def of(cls, plan: PhysicalPlan, checkpoint: str) -> ShardWatch:
        """Watch the shards of a plan."""
        names = {work.number: ", ".join(placed.name for placed in work.operators) for work in plan.rounds}
        return cls(checkpoint, plan.mode.shards, names)

    def compute(self, micro_batch: DataFrame, number: int, query_id: str) -> None:
        """Compute all partitions of a persisted micro-batch, and look at its shards.

        Raises
        ------
        DamagedStateError
            The whole state of a shard is gone.
        """
        ports = micro_batch.select(_PORT).where(F.col(_PORT) < METRICS).collect()
        self._look(micro_batch.sparkSession, number, query_id, [row[0] for row in ports])

    def can_observe(self, micro_batch: DataFrame) -> bool:
        """Whether `observing` is possible; it is not under Spark Connect."""
        return has_context(micro_batch.sparkSession)

    @contextmanager
    def observing(self, micro_batch: DataFrame, number: int, query_id: str) -> Iterator[DataFrame]:
        """Yield the micro-batch for a sink that reads all of it once, and then look at its shards.

        Raises
        ------
        DamagedStateError
            The whole state of a shard is gone.
        """
        highest = 2 * max(self.operators, default=1) * self.shards
        report = f"{METRICS - 1} - {_PORT}"
        maps = [
            F.expr(f"bitmap_construct_agg(CASE WHEN ({report}) DIV {_BITS} = {block} AND {_PORT} < {METRICS}"
                   f" THEN ({report}) % {_BITS} END) AS block_{block}")
            for block in range(highest // _BITS + 1)
        ]  # fmt: skip
        observation = Observation("tablestream shards")
        yield micro_batch.observe(observation, *maps)
        ports = [
            METRICS - 1 - (block * _BITS + bit)
            for block in range(len(maps))
            for bit in _bits(bytes(observation.get[f"block_{block}"]))
        ]
        self._look(micro_batch.sparkSession, number, query_id, ports)

    def _look(self, spark: SparkSession, number: int, query_id: str, ports: list[int]) -> None:
        """Check the shards that found no state, and store births."""
        if self._births is None:
            self._births = stored_births(spark, self.checkpoint, query_id)
        new = [blobs.reported(port, self.shards) for port in ports]
        self._births.check(number, new, self.operators)
        record = self._births.record(number, new)
        if record is not None:
            entry = spark.createDataFrame([(encode(record),)], "value string").coalesce(1)
            entry.write.mode("append").json(f"{self.checkpoint}/{_LIST}")
            self._births = self._births.after(record)


def _bits(data: bytes) -> Iterator[int]:
    """The numbers of the bits that are set, the lowest of the first byte first."""
    for place, byte in enumerate(data):
        for bit in range(8):
            if byte >> bit & 1:
                yield place * 8 + bit
