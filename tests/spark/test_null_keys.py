"""Keys with a null in key joins, through Spark: they have no match, and a table may be joined with itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import tablestream as ts
from tablestream import functions as tf
from tablestream.testing import Driver, frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tablestream.topology.nodes import How

HOWS: tuple[How, ...] = ("inner", "left", "right", "outer")


def test_a_key_with_a_null_has_no_match_in_groups(spark: SparkSession) -> None:
    """Groups of two tables, and of one table with themselves; a part of the key is not null."""
    read = frame(spark, "id int, g string")
    groups = [
        ts.table(read, "id", name=name)
        .group_by("g", F.lit(1).alias("part"))
        .agg(name=f"groups of {name}", n=tf.count())
        for name in ("one", "other")
    ]
    one, other = groups[0].select(F.col("n").alias("n_one"), name="left"), groups[1]
    itself = one.select(F.col("n_one").alias("again"), name="itself")
    joined = {how: one.join(other, how=how, name=f"{how} other") for how in HOWS}
    same = {how: one.join(one, how=how, suffixes=("", "_2"), name=f"{how} one") for how in HOWS}
    view = {how: one.join(itself, how=how, name=f"{how} itself") for how in HOWS}
    driver = Driver(*(table.to(ts.to_memory(table.name), name=table.name) for table in (
        *joined.values(), *same.values(), *view.values())))  # fmt: skip
    for name in ("one", "other"):
        driver.pipe(name, [(1, "a"), (2, None)])
    driver.run()

    def rows(table: ts.Table) -> set[tuple[object, ...]]:
        return {tuple(row)[: len(table.columns)] for row in driver.changes(table.name)}

    matched, left, right = ("a", 1, 1, 1), (None, 1, 1, None), (None, 1, None, 1)
    wanted: dict[How, set[tuple[object, ...]]] = {
        "inner": {matched},
        "left": {matched, left},
        "right": {matched, right},
        "outer": {matched, (None, 1, 1, 1)},  # they have one key in the result
    }
    for how in HOWS:
        for tables in (same, view):
            assert rows(tables[how]) == wanted[how], tables[how].name
        found = rows(joined[how])
        assert found >= wanted[how], joined[how].name
        assert ((None, 1, 1, 1) in found) is (how == "outer")
