"""Star joins through Spark: the rows of the chain, one change a change, global tables among the right ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

import tablestream as ts
from tests.spark.change_logs import START, ChangeLog, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Row, SparkSession


def records(kind: str, *rows: tuple[int, Any, Any]) -> list[dict[str, Any]]:
    """Records of one table: (key, value, where it points), tombstones without a value."""
    return [{"kind": kind, "k": key, "v": value, "a": at, "b": at} for key, value, at in rows]


def last_rows(rows: list[Row]) -> dict[int, list[Any]]:
    """The table that changes lead to."""
    table = {row["k"]: None if row["_change_type"] == "delete" else [*row][1:-3] for row in rows}
    return {key: row for key, row in table.items() if row is not None}


def test_the_rows_are_those_of_the_chain_of_joins(spark: SparkSession, tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "log", "kind string, k int, v string, a int, b int, number bigint")
    pieces = [
        [*records("L", (1, "x", 10), (2, "y", 11), (3, "z", None)), *records("A", (10, "a", None))],
        [*records("B", (10, "b", None), (11, "c", None)), *records("L", (2, "Y", 10), (3, "Z", 11))],
        [*records("A", (10, None, None), (11, "d", None)), *records("L", (1, None, None))],
    ]
    numbers = iter(range(100))
    log.add(*([one | {"number": next(numbers)} for one in piece] for piece in pieces))

    def table(kind: str, make: Any = ts.table) -> Any:
        frame = log.read(spark).where(F.col("kind") == kind)
        columns = ["v", "a", "b"] if kind == "L" else [F.col("v").alias(kind.lower() + "v")]
        time = F.timestamp_seconds(F.lit(START) + F.col("number"))
        said = {"timestamp": time, "apply_as_deletes": "v IS NULL", "columns": columns, "order_by": "number"}
        return make(frame, "k", name=kind, **said)

    left, a, b = table("L"), table("A"), table("B", ts.global_table)
    star = left.join_many(ts.lookup(a, on="a", how="left"), ts.lookup(b, on=lambda row: row.b), name="star")
    chain = left.join(a, on="a", how="left").join(b, on="b", how="inner", name="chain")
    assert star.columns == chain.columns
    sinks = ts.to_memory("star"), ts.to_memory("chain")
    counts = run(star.to(sinks[0]), chain.to(sinks[1]), checkpoint=tmp_path / "checkpoint")
    told, wanted = (sink.rows() for sink in sinks)
    assert last_rows(told) == last_rows(wanted)
    assert last_rows(told) == {2: ["Y", 10, 10, None, "b"], 3: ["Z", 11, 11, "d", "c"]}
    steps = [(row["_order"]["time"], row["k"]) for row in told]
    assert len(steps) == len(set(steps))
    assert counts["copied bytes of star[B]"] > 0
