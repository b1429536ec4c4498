"""The demo as a user runs it, small: through Spark to the verdict, and interrupted on the way."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl
import pytest

from examples.demo.display import JsonDisplay
from examples.demo.flights_join import FLIGHTS_JOIN
from examples.demo.holdings_list import HOLDINGS_LIST
from examples.demo.run import DemoOptions, run_demo
from examples.demo.weather import GRACE, weather_logs
from examples.demo.weather_join import WEATHER_JOIN

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_the_maintained_table_is_the_batch_join(spark: SparkSession, tmp_path: Path) -> None:
    options = DemoOptions(tmp_path / "demo", micro_batches=2, scale=0.005)
    file = io.StringIO()
    result = run_demo(FLIGHTS_JOIN, options, JsonDisplay(file), spark)
    *reports, summary = [json.loads(line) for line in file.getvalue().splitlines()]
    assert result.ok, list(result.lines())
    assert result.table.height > 1_000
    assert [report["micro_batch"] for report in reports] == [0, 1]
    assert summary["rows_in"] == sum(summary["inputs"].values())
    log = pl.read_parquet(options.changes / "**" / "*.parquet", hive_partitioning=False)
    assert summary["changes_out"] == log.height
    assert log.filter(pl.col("_change_type") == "delete").height > 0


@pytest.mark.exhaustive
def test_the_mailing_list_is_the_batch_computation_by_both_joins(spark: SparkSession, tmp_path: Path) -> None:
    options = DemoOptions(tmp_path / "demo", micro_batches=2, scale=0.016)
    file = io.StringIO()
    result = run_demo(HOLDINGS_LIST, options, JsonDisplay(file), spark)
    *reports, summary = [json.loads(line) for line in file.getvalue().splitlines()]
    assert result.ok, list(result.lines())
    assert result.table.height > 200
    assert [report["micro_batch"] for report in reports] == [0, 1]
    assert min(summary["counts"].values()) > 0
    changes = [one for one in summary["comparisons"] if one["of"] == "changes"]
    assert summary["changes_out"] == 2 * changes[0]["equal"] > 2 * result.table.height


def test_departures_meet_the_weather_of_their_time(spark: SparkSession, tmp_path: Path) -> None:
    options = DemoOptions(tmp_path / "demo", micro_batches=2, scale=0.01)
    file = io.StringIO()
    result = run_demo(WEATHER_JOIN, options, JsonDisplay(file), spark)
    *reports, summary = [json.loads(line) for line in file.getvalue().splitlines()]
    assert result.ok, list(result.lines())
    assert [report["micro_batch"] for report in reports] == [0, 1]
    assert summary["changes_out"] == result.table.height == summary["inputs"]["departures"] - result.held
    assert result.held > 0
    late, expired = summary["counted"].values()
    # A departure a bit less late, too, where readings or departures that are told before it are of later hours.
    told_late = summary["counts"]["departures told more than 3 hours after their time"]
    assert 0 < late <= told_late
    assert expired == 0
    assert summary["counts"]["departures told before the last word on their weather"] > 500


@pytest.mark.exhaustive
def test_readings_that_come_after_the_grace_are_missing_and_that_is_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    too_late = replace(
        WEATHER_JOIN, logs=lambda steps, scale: weather_logs(steps, scale=scale, latest=32 * GRACE)
    )
    options = DemoOptions(tmp_path / "demo", micro_batches=2, scale=0.01)
    file = io.StringIO()
    result = run_demo(too_late, options, JsonDisplay(file), spark)
    summary = json.loads(file.getvalue().splitlines()[-1])
    assert not result.ok
    (check,) = result.checks
    # Of ten departures one or two: their reading is late, or is corrected late.
    assert 100 < check.result.differing < 0.3 * result.table.height
    assert check.result.only_found == check.result.only_expected == 0
    assert "NOT EQUAL" in next(result.lines())
    assert summary["counts"]["readings told more than 3 hours after their hour"] > 1_000
    _, expired = summary["counted"].values()
    assert expired > 0
    assert f"{expired:,} readings came later than the history, and were left out." in result.lines()
