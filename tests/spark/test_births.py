"""The watch over a query's shards: what it takes from a micro-batch, and what it stores in the checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tablestream.errors import DamagedStateError
from tablestream.spark import blobs
from tablestream.spark.births import ShardWatch, stored_births
from tablestream.spark.generations import Generation
from tablestream.state.births import NewShard

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

QUERY = "query"
#: So many that their reports need several of Spark's bitmaps.
SHARDS = 4096
NAMES = {number: f"operator {number}" for number in range(1, 11)}
FIRST, LAST, IDLE = (
    NewShard(1, blobs.shard_names(SHARDS)[0], is_born=True),
    NewShard(10, blobs.shard_names(SHARDS)[-1], is_born=True),
    NewShard(3, 7, is_born=False),
)


def ports(*new: NewShard) -> list[int]:
    """The reports of some shards."""
    return [blobs.report(one, SHARDS).port for one in new]


def test_births_are_stored_and_compared(spark: SparkSession, tmp_path: Path) -> None:
    """Another watch on the same checkpoint knows what the first one stored."""
    checkpoint = str(tmp_path)
    watch = ShardWatch(Generation(0, checkpoint), SHARDS, NAMES)
    watch.look(spark, 0, QUERY, ports(FIRST, IDLE))
    watch.look(spark, 1, QUERY, ports())
    watch.look(spark, 2, QUERY, ports(LAST, IDLE))
    watch.look(spark, 2, QUERY, ports(LAST, IDLE))
    born = {FIRST[:2]: 0, LAST[:2]: 2}
    assert stored_births(spark, checkpoint, QUERY).born == born
    assert not stored_births(spark, checkpoint, "another").born
    for one in (watch, ShardWatch(Generation(0, checkpoint), SHARDS, NAMES)):
        with pytest.raises(DamagedStateError, match=r"round 10 is gone.*\(operator 10\)"):
            one.look(spark, 3, QUERY, ports(LAST))
    assert stored_births(spark, checkpoint, QUERY).born == born


def test_a_watch_is_settled_when_all_shards_are_known(spark: SparkSession, tmp_path: Path) -> None:
    """And has looked since the start: a sink that gets rows while they are computed goes without from then on."""
    every = [NewShard(1, shard, is_born=True) for shard in blobs.shard_names(3)]

    def ports(*new: NewShard) -> list[int]:
        return [blobs.report(one, 3).port for one in new]

    watch = ShardWatch(Generation(0, str(tmp_path)), 3, {1: "counts"})
    watch.look(spark, 0, QUERY, ports(*every[:2]))
    assert not watch.is_settled
    watch.look(spark, 1, QUERY, ports(every[2]))
    again = ShardWatch(Generation(0, str(tmp_path)), 3, {1: "counts"})
    assert [watch.is_settled, again.is_settled] == [True, False]
    again.look(spark, 2, QUERY, ports())
    assert again.is_settled
