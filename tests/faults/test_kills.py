"""A query whose processes are killed at random moments gives what an undisturbed one gives.

One of each kind is killed: `tests/simulation` has the many moments and orders, without Spark.
"""

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

#: What is killed, each in a later micro-batch than the one before.
KILLS = {LOCAL: ("worker", "driver", "worker"), CLUSTER: ("worker", "executor")}

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


def done(directory: Path) -> int:
    """How many micro-batches are committed."""
    return sum(one.name.isdigit() for one in directory.iterdir()) if directory.is_dir() else 0


def kill(rng: random.Random, kind: str, process: subprocess.Popen[str]) -> bool:
    """Kill a worker or an executor once workers run a stage, or have run one; return whether it was done.

    For the driver it only says that it is time: leaving `running` kills it, with all that it started.
    """
    if not (alive := workers(process.pid)):
        return False
    if kind == "driver":
        return True
    return kill_one(rng, executors(process.pid) if kind == "executor" else alive)


@pytest.mark.parametrize("deployment", KILLS)
def test_killed_processes_do_not_show(undisturbed: dict[str, Any], tmp_path: Path, deployment: str) -> None:
    """Workers; the driver, which starts again; and an executor, where there are any."""
    rng, killed = random.Random(7), list[str]()
    write_logs(tmp_path, MICRO_BATCHES)
    deadline = time.monotonic() + SECONDS
    while True:
        assert time.monotonic() < deadline, said(tmp_path)
        with running(tmp_path, deployment) as process:
            driver_dies = False
            while process.poll() is None and not driver_dies:
                if not (pending := KILLS[deployment][len(killed) :]):
                    break
                time.sleep(0.1 + rng.random() * 0.4)
                assert time.monotonic() < deadline, said(tmp_path)
                if done(tmp_path / "checkpoint" / "commits") >= len(killed) and kill(
                    rng, pending[0], process
                ):
                    killed.append(pending[0])
                    driver_dies = pending[0] == "driver"
            if not driver_dies and process.wait(max(1.0, deadline - time.monotonic())) == 0:
                break
    assert tuple(killed) == KILLS[deployment], f"only {killed} were killed before all was worked off"
    for table in TABLES:
        assert changes(tmp_path, table) == undisturbed[table]
