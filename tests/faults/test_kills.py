"""A query whose processes are killed at random moments gives what an undisturbed one gives."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.processes import executors, kill_one, workers
from tests.faults.victim import work_off, write_logs
from tests.spark.deployment import CLUSTER, LOCAL
from tests.spark.test_deployments import ROOT, end

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

MICRO_BATCHES = 8
TABLES = ("sold", "amounts")
SECONDS = 240

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="reads processes from /proc")


def changes(directory: Path, table: str) -> list[dict[str, Any]]:
    """Read all changes of an output in their order; a change that was written twice is there twice."""
    found = []
    for file in (directory / table).glob("micro_batch=*/part-*.json"):
        for line in file.read_text(encoding="utf-8").splitlines():
            change = json.loads(line)
            change["_order"]["partition"] = change["_order"]["partition"].rpartition("/")[2]
            found.append(change)
    return sorted(found, key=lambda change: json.dumps(change["_order"]))


@pytest.fixture(scope="module")
def undisturbed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    directory = tmp_path_factory.mktemp("undisturbed")
    write_logs(directory, MICRO_BATCHES)
    work_off(spark, directory)
    found = {table: changes(directory, table) for table in TABLES}
    assert {one["_order"]["micro_batch"] for one in found["sold"]} == set(range(MICRO_BATCHES))
    return found


@contextmanager
def running(directory: Path, deployment: str) -> Iterator[subprocess.Popen[str]]:
    """Run the query in a process of its own, which ends, with all that it started."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.faults.victim", str(directory), str(directory / "cache"), deployment],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "src")))},
        stdout=subprocess.DEVNULL,
        stderr=(directory / "errors.txt").open("a"),
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            end(process)


def said(directory: Path) -> str:
    """What the processes wrote at the end."""
    return (directory / "errors.txt").read_text()[-5000:]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("deployment", "kills"), [(LOCAL, 14), (CLUSTER, 6)])
def test_killed_processes_do_not_show(
    undisturbed: dict[str, Any], tmp_path: Path, deployment: str, kills: int
) -> None:
    """Most are workers; of the others executors, where there are any, and the driver."""
    rng, killed = random.Random(kills), 0
    write_logs(tmp_path, MICRO_BATCHES)
    deadline = time.monotonic() + SECONDS
    while True:
        assert time.monotonic() < deadline, said(tmp_path)
        with running(tmp_path, deployment) as process:
            driver_dies = False
            while killed < kills and process.poll() is None and not driver_dies:
                time.sleep(0.2 + rng.random() * 0.4)
                assert time.monotonic() < deadline, said(tmp_path)
                alive = workers(process.pid)
                kind = rng.choice(
                    ["worker", "worker", "worker", "executor" if deployment == CLUSTER else "driver"]
                )
                driver_dies = kind == "driver" and bool(alive)
                killed += driver_dies or kill_one(
                    rng, executors(process.pid) if kind == "executor" else alive
                )
            if not driver_dies and process.wait(max(1.0, deadline - time.monotonic())) == 0:
                break
    assert killed >= kills, f"only {killed} processes were killed before all was worked off"
    for table in TABLES:
        assert changes(tmp_path, table) == undisturbed[table]
