"""Joins whose left rows are spread over shards, through Spark: the same changes, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import tablestream as ts
from tablestream.errors import ArgumentError, PlanChangedError, PlanError
from tablestream.spark.state_tables import summary
from tests.spark.change_logs import START, ChangeLog, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tablestream.spark.requests import OutputRequest

SCHEMA = "side string, id int, to int, v int, gone boolean, ts bigint"


def rows(side: str, number: int, ids: range, gone: range = range(0)) -> list[dict[str, Any]]:
    times = START + 100 * number
    return [
        {"side": side, "id": one, "to": one % 2, "v": one * number, "gone": one in gone, "ts": times + one}
        for one in ids
    ]


@pytest.mark.exhaustive
@pytest.mark.usefixtures("several_partitions")
def test_the_changes_are_those_of_a_join_that_is_not_spread(spark: SparkSession, tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "log", SCHEMA)
    outputs: dict[int | None, OutputRequest] = {}
    sinks = {spread: ts.to_memory(f"spread {spread}") for spread in (None, 3)}

    def table(side: str) -> ts.Table:
        frame = log.read(spark).where(F.col("side") == side)
        times = F.timestamp_seconds("ts")
        dropped = ["ts", "side", "gone"]
        return ts.table(
            frame, "id", timestamp=times, except_columns=dropped, apply_as_deletes="gone", name=side
        )

    def select(mine: ts.Row, other: ts.Row) -> list[Any]:
        return [mine.v, other.v.alias("w")]

    for spread, sink in sinks.items():
        joined = table("left").join(table("right"), on="to", how="left", select=select, spread=spread)
        outputs[spread] = joined.to(sink)

    def work_off() -> None:
        for spread, output in outputs.items():
            run(output, checkpoint=tmp_path / str(spread))

    log.add(rows("left", 1, range(40)) + rows("right", 2, range(4)))
    work_off()
    log.add(rows("left", 3, range(20, 30), range(25, 30)) + rows("right", 4, range(4), range(1, 2)))
    work_off()
    found = {
        spread: sorted(
            ((one.id, one.v, one.w, one["_change_type"], one["_timestamp"]) for one in sink.rows()),
            key=lambda one: one[0],  # of each key in its order
        )
        for spread, sink in sinks.items()
    }
    assert found[None] == found[3]
    assert len(found[3]) > 100
    state = ts.read_state(spark, tmp_path / "3", "right")
    assert sorted((one.id, one.v) for one in state.collect()) == [(0, 0), (2, 8), (3, 12)]
    (size,) = summary(spark, tmp_path / "3").tables
    assert size.rows == summary(spark, tmp_path / "None").tables[0].rows
    with pytest.raises(PlanChangedError, match="spread over 3 shards"):
        run(outputs[3], checkpoint=tmp_path / "None")


@pytest.mark.parametrize(
    ("join", "words"),
    [
        ({"on": "to", "spread": 1}, "spread=1 is not a number of shards"),
        ({"on": "to", "spread": True}, "spread=True is not"),
        ({"on": "to", "spread": "8"}, "spread='8' is not"),
        ({"spread": 8}, "cannot be used without on="),
        ({"on": "to", "how": "outer", "spread": 8}, "how='outer'"),
        ({"on": "to", "how": "right", "spread": 8}, "how='right'"),
        ({"on": "to", "complete_history": True, "spread": 8}, "with complete_history="),
    ],
)
def test_a_spread_is_refused_where_it_means_nothing(
    join: dict[str, Any], words: str, spark: SparkSession, tmp_path: Path
) -> None:
    frame = ChangeLog(tmp_path / "log", "id int, to int, v int").read(spark)
    left, right = (
        ts.table(frame, "id", order_by="to", history="1 day", name=name) for name in ("left", "right")
    )
    with pytest.raises(ArgumentError, match=words):
        left.join(right, **join)


def test_global_tables_and_compat_refuse_a_spread_and_a_join_on_the_whole_key_ignores_it(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = ChangeLog(tmp_path / "log", "id int, to int, v int").read(spark)
    left, right = (ts.table(frame, "id", order_by="to", name=name) for name in ("left", "right"))
    spread = left.join(right, on="to", suffixes=("", "_2"), spread=8)
    with pytest.raises(PlanError, match="spread="):
        spread.explain(compat="kafka-streams")
    on_key = left.join(right, on="id", suffixes=("", "_2"), spread=8)
    on_key.explain(compat="kafka-streams")
    spread.explain()
    assert [line for line in capsys.readouterr().out.splitlines() if "spread=" in line] == [
        "  left_right_join/answer: ForeignKeyAnswer (spread=8)"
    ]
    with pytest.raises(ArgumentError, match="with a global table"):
        left.join(ts.global_table(frame, "id", order_by="to"), on="to", spread=8)
