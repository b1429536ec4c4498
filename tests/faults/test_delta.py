"""Delta tables of a query whose micro-batches are repeated, and whose process is killed while it writes."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.comparing import changes
from tests.faults.delta_victim import FORMATS, OUTPUTS, work_off
from tests.faults.test_kills import running, said
from tests.faults.victim import write_logs
from tests.spark.test_restarts import forget_last_commit

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

MICRO_BATCHES = 3
SECONDS = 600  # a loaded machine is no failure


def outputs(spark: SparkSession, directory: Path) -> dict[str, Any]:
    """All that a query wrote: rows as text in order, and of Delta tables what made each version."""
    found: dict[str, Any] = {}
    for name in OUTPUTS:
        rows = spark.read.format(FORMATS.get(name, "delta")).load(str(directory / name)).collect()
        found[name] = sorted(repr(row.asDict(recursive=True)).replace(str(directory), "") for row in rows)
        if name not in FORMATS:
            history = spark.sql(f"DESCRIBE HISTORY delta.`{directory / name}`").collect()
            found[f"{name} versions"] = [row["operation"] for row in history]
    return found


@pytest.fixture(scope="module")
def undisturbed(delta_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("undisturbed")
    write_logs(directory, MICRO_BATCHES)
    work_off(delta_spark, directory)
    return directory


def test_a_repeated_micro_batch_changes_nothing(delta_spark: SparkSession, undisturbed: Path) -> None:
    """Not the rows of any target, and Delta tables have no version more."""
    before = outputs(delta_spark, undisturbed)
    assert all(before.values())
    forget_last_commit(undisturbed / "checkpoint")
    work_off(delta_spark, undisturbed)
    assert outputs(delta_spark, undisturbed) == before


def test_a_driver_that_is_killed_while_it_writes_does_not_show(
    delta_spark: SparkSession, undisturbed: Path, tmp_path: Path
) -> None:
    """At the moments when files of the tables have come: before a commit, behind one, between two tables."""
    rng = random.Random(3)
    write_logs(tmp_path, MICRO_BATCHES)
    deadline, kills = time.monotonic() + SECONDS, 0
    while True:
        with running(tmp_path, "local", "tests.faults.delta_victim") as process:
            seen = number_of_files(tmp_path)
            wanted = seen + 1 + rng.randrange(12)
            while process.poll() is None and (kills == KILLS or number_of_files(tmp_path) < wanted):
                assert time.monotonic() < deadline, said(tmp_path)
                time.sleep(0.01)
            if process.poll() == 0:
                break
            kills += 1
            os.killpg(process.pid, signal.SIGKILL)
    assert kills == KILLS
    assert outputs(delta_spark, tmp_path) == outputs(delta_spark, undisturbed)
    assert changes(tmp_path, "json") == changes(undisturbed, "json")


KILLS = 2


def number_of_files(directory: Path) -> int:
    """How many files the tables have, of rows or of their logs."""
    # Not with rglob: it fails where the writer takes a directory away meanwhile, and os.walk passes over that.
    walks = (files for name in OUTPUTS for _, _, files in os.walk(directory / name))
    return sum(not file.endswith(".crc") for files in walks for file in files)
