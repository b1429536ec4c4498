"""The sink that prints: the first changes of each micro-batch, in order, beside any other outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.sql import functions as F

import tablestream as ts
from tablestream.connectors.console.sink import ConsoleSink
from tablestream.errors import ArgumentError, PlanError
from tests.connectors.changes import KEY, changes
from tests.spark.change_logs import ChangeLog, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def printed(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], sink: ConsoleSink, *values: str
) -> list[str]:
    """Return the lines for changes with these values, which reach the sink in another order."""
    frame = changes(spark, 3, *((number, "a", value) for number, value in enumerate(values)))
    sink.write(frame.coalesce(1).sortWithinPartitions(F.col("_order").desc()), 3, "query", "out")
    return capsys.readouterr().out.splitlines()


def test_the_first_changes_are_printed_in_order_and_how_many_more_there_are(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = ts.to_console(n_rows=2)
    title, _, header, _, first, second, *rest = printed(spark, capsys, sink, "x", "y", "z")
    assert title == "out, micro-batch 3: the first 2 of 3 changes"
    assert [name.strip() for name in header.split("|")[1:-1]] == [
        "k1", "k.2", "v", "_change_type", "_timestamp",
    ]  # fmt: skip
    assert (" x|" in first, " y|" in second) == (True, True)
    assert (rest[0][0], rest[1:]) == ("+", ["", "... and 1 more", ""])
    title, *lines = printed(spark, capsys, sink, "x", "y")
    assert title == "out, micro-batch 3: 2 changes"
    assert not any("more" in line for line in lines)


def test_control_characters_are_shown(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    text = "\n".join(printed(spark, capsys, ts.to_console(), "\x1b[2Jx\x9b"))
    assert r"|\x1b[2Jx\x9b|" in text
    assert not set("\x1b\x9b") & set(text)


def test_a_micro_batch_that_is_done_again_is_printed_again_and_an_empty_one_never(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    first, again = (printed(spark, capsys, ts.to_console(), "x") for _ in range(2))
    assert first == again
    assert first[0] == "out, micro-batch 3: 1 change"
    assert printed(spark, capsys, ts.to_console()) == []


def test_values_are_cut_as_spark_s_show_cuts_them(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    long = "x" * 30
    cut: list[tuple[dict[str, Any], str]] = [
        ({}, "x" * 17 + "..."),
        ({"truncate": 10}, "x" * 7 + "..."),
        ({"truncate": False}, long),
    ]
    for options, shown in cut:
        lines = printed(spark, capsys, ts.to_console(**options), long)
        assert any(f"|{shown}|" in line for line in lines)


@pytest.mark.parametrize(
    "options",
    [
        {"n_rows": 0},
        {"n_rows": True},
        {"n_rows": "7"},
        {"n_rows": None},
        {"truncate": -1},
        {"truncate": "no"},
    ],
)
def test_what_is_no_number_of_rows_or_characters_is_refused(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(ArgumentError, match=rf"\[TABLESTREAM_ARGUMENT\] {name}=.*Give "):
        ts.to_console(**options)


def test_a_session_of_spark_connect_is_refused() -> None:
    with pytest.raises(PlanError, match="under Spark Connect: the server would show them"):
        ts.to_console().check(cast("SparkSession", object()), KEY)  # it has no SparkContext


def test_several_outputs_of_a_query_are_printed_beside_others(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = ChangeLog(tmp_path / "log", "id int, sku string")
    log.add([{"id": 1, "sku": "cup"}, {"id": None, "sku": "pot"}, {"id": 2, "sku": "cup"}], [{"id": 1}])
    orders = ts.table(log.read(spark), "id", name="orders")
    per_sku = orders.group_by("sku").count(name="per_sku")
    kept = ts.to_memory("beside the console")
    outputs = [
        per_sku.to(ts.to_console(n_rows=1)),
        orders.rejected().to(ts.to_console()),
        per_sku.to(kept, name="kept"),
    ]
    run(*outputs, checkpoint=tmp_path / "checkpoint")
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "micro-batch" in line or "more" in line] == [
        "per_sku, micro-batch 0: the first 1 of 2 changes",
        "... and 1 more",
        f"{outputs[1].name}, micro-batch 0: 1 change",
        "per_sku, micro-batch 1: the first 1 of 2 changes",
        "... and 1 more",
    ]
    assert any("null-key" in line for line in lines)
    assert [row["count"] for row in kept.rows()] == [1, 2, 1, 1]
    kept.clear()
