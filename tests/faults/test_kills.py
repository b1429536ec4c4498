"""A query whose processes are killed at random moments gives what an undisturbed one gives."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.comparing import MICRO_BATCHES, TABLES, changes
from tests.faults.processes import executors, kill_one, workers
from tests.faults.victim import write_logs
from tests.spark.deployment import CLUSTER, LOCAL
from tests.spark.test_deployments import ROOT, end

if TYPE_CHECKING:
    from collections.abc import Iterator


SECONDS = 780  # before the test's own time is over, so that what the processes said is seen

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="reads processes from /proc")


@contextmanager
def running(
    directory: Path, deployment: str, victim: str = "tests.faults.victim"
) -> Iterator[subprocess.Popen[str]]:
    """Run the query in a process of its own, which ends, with all that it started."""
    with subprocess.Popen(
        [sys.executable, "-m", victim, str(directory), str(directory / "cache"), deployment],
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


@pytest.mark.parametrize(("deployment", "kills"), [(LOCAL, 7), (CLUSTER, 4)])
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
