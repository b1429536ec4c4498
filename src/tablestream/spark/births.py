"""The list of births in a checkpoint, and what the stages report for it.

A shard that finds no state reports so (`tablestream.spark.reports`). Its report is a blob without content, whose port
is a number below `NOTICES`. `ShardWatch` looks at these ports before the sinks are written. It needs the computed
micro-batch. A sink that gets the rows while they are computed goes without once the watch is settled: a shard that is
lost while the query runs is then noticed when it starts again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tablestream.connectors.small_texts import documents, write_line
from tablestream.spark import blobs
from tablestream.state.births import Births, decode, encode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tablestream.planner.physical_plan import PhysicalPlan
    from tablestream.spark.generations import Generation

#: The place of the list in a checkpoint: files with one entry each, which are only added.
_LIST = "tablestream/shards"


def stored_births(spark: SparkSession, checkpoint: str, query_id: str) -> Births:
    """Read the list of a query; raise `DamagedStateError` if an entry was altered."""
    entries = documents(spark, checkpoint, f"{_LIST}/part-*")
    return Births.of((decode(entry["value"]) for entry in entries), query_id)


@dataclass
class ShardWatch:
    """Compares the shards of every micro-batch that found no state with the list, and extends the list."""

    place: Generation
    """The generation of the query. Its list has the numbers that Spark gives to micro-batches."""
    shards: int
    operators: Mapping[int, str]
    """The number of shards, and the names of each round's operators."""
    _births: Births | None = field(default=None, init=False)

    @classmethod
    def of(cls, plan: PhysicalPlan, place: Generation) -> ShardWatch:
        """Watch the shards of a plan."""
        names = {work.number: ", ".join(placed.name for placed in work.operators) for work in plan.rounds}
        return cls(place, plan.options.shards, names)

    @property
    def is_settled(self) -> bool:
        """Whether a micro-batch was looked at since the start, and all shards of all rounds are in the list."""
        if self._births is None:
            return False
        places = {(number, shard) for number in self.operators for shard in blobs.shard_names(self.shards)}
        return places <= self._births.born.keys()

    def look(self, spark: SparkSession, number: int, query_id: str, ports: list[int]) -> None:
        """Check the shards of a micro-batch that found no state, raise if one had some before, and store births."""
        checkpoint, own = self.place.path, number - self.place.first
        if self._births is None:
            self._births = stored_births(spark, checkpoint, query_id)
        new = [blobs.reported(port, self.shards) for port in ports]
        self._births.check(own, new, self.operators)
        record = self._births.record(own, new)
        if record is not None:
            entry = json.dumps({"value": encode(record)})
            write_line(spark, f"{checkpoint}/{_LIST}", entry, mode="append")
            self._births = self._births.after(record)
