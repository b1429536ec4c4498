"""Which parts of a table's key can be null; a target that is created has to know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import tablestream as ts
from tablestream.spark.runner import _types

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tablestream.topology.nodes import How

HOWS: tuple[How, ...] = ("inner", "left", "right", "outer")


def test_which_parts_of_a_key_can_be_null(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    log = ts.from_files(spark, tmp_path / "log", "parquet", "id int, g int, n int")
    at = F.lit(0).cast("timestamp")
    source, other = (ts.table(log, "id", timestamp=at, name=name) for name in ("source", "other"))
    groups = source.group_by("g").count()
    per_group = ts.table(log, "g", columns=["n"], timestamp=at, name="per_group")
    counts = groups.select(F.col("count").alias("c"))
    joined = {
        how: counts.join(
            per_group, how=how, select=lambda left, right: [F.coalesce(left.c, right.n).alias("c")]
        )
        for how in HOWS
    }
    found = {
        "": [
            source,
            source.filter("n > 1").select("n"),
            source.materialize(),
            source.join(other, suffixes=("", "_2")),
        ],
        "g": [
            groups,
            counts,
            joined["left"],
            joined["outer"],
        ],
        "no": [joined["inner"], joined["right"]],
        "group, not rank": [source.group_by("g").top(1, "n")],
        "all": [source.join(other, on="n", how=how, suffixes=("", "_2")) for how in HOWS[2:]],
        "many's": [source.one_to_many(other.select("g"), on="g", how="left", suffixes=("", "_2"))],
        "none": [source.one_to_many(other.select("g"), on="g", suffixes=("", "_2"))],
    }
    nulls = {
        name: {tuple(one.nullable for one in _types(table.to(ts.to_memory("m")))[0]) for table in tables}
        for name, tables in found.items()
    }
    assert nulls == {
        "": {(False,)},
        "g": {(True,)},
        "no": {(False,)},
        "group, not rank": {(True, False)},
        "all": {(True, True)},
        "many's": {(False, True)},
        "none": {(False, False)},
    }
