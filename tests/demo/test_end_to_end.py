"""The demo as a user runs it, small: through Spark to the verdict, and interrupted on the way."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tablestream.demo.display import JsonDisplay
from tablestream.demo.flights_join import FLIGHTS_JOIN
from tablestream.demo.holdings_list import HOLDINGS_LIST
from tablestream.demo.run import DemoOptions, run_demo

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


@pytest.mark.spark
def test_ctrl_c_stops_the_query_and_ends_with_130(tmp_path: Path) -> None:
    arguments = [
        "demo",
        "--scale",
        "0.005",
        "--micro-batches",
        "40",
        "--output",
        str(tmp_path / "demo"),
        "--json",
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "tablestream", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as running:
        try:
            assert running.stdout is not None
            first = json.loads(running.stdout.readline())
            running.send_signal(signal.SIGINT)
            rest, errors = running.communicate(timeout=60)
        finally:
            running.kill()
    assert first["event"] == "micro_batch"
    assert running.returncode == 130
    assert "Traceback" not in errors
    assert all(json.loads(line)["event"] == "micro_batch" for line in rest.splitlines())
