"""The watch over a query's shards: what it takes from a micro-batch, and what it stores in the checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from tablestream.errors import DamagedStateError
from tablestream.spark import blobs
from tablestream.spark.births import ShardWatch, stored_births
from tablestream.state.births import NewShard

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

QUERY = "query"
#: So many that their reports need several of Spark's bitmaps.
SHARDS = 4096
NAMES = {number: f"operator {number}" for number in range(1, 11)}
FIRST, LAST, IDLE = (
    NewShard(1, blobs.shard_names(SHARDS)[0], is_born=True),
    NewShard(10, blobs.shard_names(SHARDS)[-1], is_born=True),
    NewShard(3, 7, is_born=False),
)


def micro_batch(spark: SparkSession, *new: NewShard) -> DataFrame:
    """Two rows of outputs, and the reports of some shards."""
    ports = [blobs.report(one, SHARDS).port for one in new]
    return spark.createDataFrame([(port,) for port in (3, *ports, 4)], "__port int")


def observe(watch: ShardWatch, frame: DataFrame, number: int) -> None:
    """Let a sink read the rows of one output."""
    with watch.observing(frame, number, QUERY) as seen:
        assert seen.where(F.col("__port") == 3).count() == 1


def test_births_are_stored_and_compared(spark: SparkSession, tmp_path: Path) -> None:
    """By both ways, by turns; another watch on the same checkpoint knows what the first one stored."""
    for way in (observe, lambda watch, frame, number: watch.compute(frame, number, QUERY)):
        checkpoint = str(tmp_path / way.__name__)
        watch = ShardWatch(checkpoint, SHARDS, NAMES)
        way(watch, micro_batch(spark, FIRST, IDLE), 0)
        way(watch, micro_batch(spark), 1)
        way(watch, micro_batch(spark, LAST, IDLE), 2)
        way(watch, micro_batch(spark, LAST, IDLE), 2)
        born = {FIRST[:2]: 0, LAST[:2]: 2}
        assert stored_births(spark, checkpoint, QUERY).born == born
        assert not stored_births(spark, checkpoint, "another").born
        for one in (watch, ShardWatch(checkpoint, SHARDS, NAMES)):
            with pytest.raises(DamagedStateError, match=r"round 10 is gone.*\(operator 10\)"):
                way(one, micro_batch(spark, LAST), 3)
        assert stored_births(spark, checkpoint, QUERY).born == born
