"""A query that an older version has begun goes on with this one, from its whole checkpoint, and evolves."""

from __future__ import annotations

import shutil
import tarfile
from typing import TYPE_CHECKING

import polars as pl
import pytest

import tablestream as ts
from tablestream.errors import DamagedStateError
from tests.spark.older_checkpoints import FOLDER, plan, run, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

ARCHIVES = sorted(FOLDER.glob("*.tar.xz"))
assert len(ARCHIVES) >= 2, "archives of older versions stay"


def unpacked(archive: Path, path: Path) -> Path:
    """The files of a query, at another place than where it ran; its logs have what is new only."""
    with tarfile.open(archive) as files:
        files.extraction_filter = getattr(tarfile, "data_filter", None)  # Python has it from 3.11.4
        files.extractall(path)  # noqa: S202 - it is of this repository
    shop = path / "shop"
    shutil.rmtree(shop / "logs")
    ts.relocate_checkpoint(str(shop / "out/checkpoint"))
    write(shop, "orders", "2.csv", "2,9,10,2024-01-03 09:00:00")
    write(shop, "customers", "2.csv", "9,Cy,2024-01-03 00:00:00", "7,Eve,2024-01-03 00:00:00")
    return shop


def rows(shop: Path, table: str) -> dict[object, object]:
    return dict(pl.read_delta(str(shop / "out" / table)).rows())


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda archive: archive.name.removesuffix(".tar.xz"))
def test_a_query_of_an_older_version_goes_on(archive: Path, spark: SparkSession, tmp_path: Path) -> None:
    shop = unpacked(archive, tmp_path)
    assert rows(shop, "per_name") == {"Ada": 2, "Bob": 1, None: 4}
    run(plan(spark, shop), shop, shards=2)  # before facts were kept, each start said so
    assert rows(shop, "per_name") == {"Eve": 2, "Cy": 14}
    changes = spark.read.parquet(str(shop / "out/joined")).where("micro_batch = 1").select("id", "name")
    assert sorted(map(tuple, changes.collect())) == [(1, "Eve"), (2, "Cy"), (3, "Cy")]
    if "evolvable" not in archive.name:
        return
    ts.evolve(*plan(spark, shop, more=True), checkpoint=str(shop / "out/checkpoint"), shards=4)
    write(shop, "orders", "3.csv", "4,9,1,2024-01-03 10:00:00", "5,,3,2024-01-03 10:01:00")
    run(plan(spark, shop, more=True), shop)
    assert rows(shop, "per_name") == {"Eve": 2, "Cy": 15, None: 3}
    assert rows(shop, "per_customer") == {7: 1, 9: 3, None: 1}
    changes = spark.read.parquet(str(shop / "out/joined")).where("micro_batch > 1").select("id", "name")
    assert sorted(map(tuple, changes.collect())) == [(4, "Cy"), (5, None)]


def test_facts_that_another_version_wrote_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    (archive,) = (one for one in ARCHIVES if "evolvable" in one.name)
    shop = unpacked(archive, tmp_path)
    (facts,) = (shop / "out/checkpoint/tablestream/facts").glob("part-*")
    facts.write_text(facts.read_text().replace('"entry"', '"number"'))
    with pytest.raises(DamagedStateError, match="says of its plan cannot be read: KeyError"):
        ts.check(*plan(spark, shop), checkpoint=str(shop / "out/checkpoint"))
