"""Runs each contestant in a process of its own, so that none warms another's JVM, and watches its memory."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.processes import Watch, descendants, is_running
from benchmarks.results import Run, read_run

_ROOT = Path(__file__).resolve().parent.parent
_GRACE_S = 10.0
_ERROR = re.compile(r"[\w.]*(Error|Exception)\b")


@dataclass(frozen=True)
class Task:
    """What a contestant's process is told.

    ``folder`` holds the workload's files, ``work`` is an empty directory for all that is written. ``jars`` has the
    jars of Spark's Kafka connector and, in ``broker``, those of a broker. Memory is sampled every ``sample_s`` seconds.
    """

    contestant: str
    folder: str
    work: str
    jars: str
    micro_batches: int
    driver_memory: str = "6g"
    verify: bool = False
    repeats: int = 3
    hot_rows: int = 1_000_000
    sample_s: float = 1.0


def run_contestant(task: Task) -> Run:
    """Run one contestant to its end and return what it measured, or its error.

    Raises
    ------
    KeyboardInterrupt
        When the user interrupts; the contestant's processes have ended then.
    """
    work = Path(task.work)
    work.mkdir(parents=True)
    (work / "task.json").write_text(json.dumps(asdict(task)))
    with (work / "log.txt").open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.child", str(work)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=_environment(work),
            start_new_session=True,  # an interrupt reaches us first; we end the child
        )
        watch = Watch(child.pid, task.sample_s)
        watch.start()
        try:
            child.wait()
        finally:
            watch.stop()
            _end(child)
    return _outcome(task, child.returncode, watch)


def _environment(work: Path) -> dict[str, str]:
    python_path = [str(_ROOT), str(_ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    own: dict[str, str] = {
        "PYTHONPATH": os.pathsep.join(p for p in python_path if p),  # workers import the contestants' classes
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "POLARS_MAX_THREADS": "1",
        "SPARK_LOCAL_DIRS": str(work / "spark"),
        "TMPDIR": str(_made(work / "tmp")),
    }
    return os.environ | own


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a contestant and every process below it, each by its own id."""
    below = descendants(child.pid)
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    deadline = time.monotonic() + _GRACE_S
    while any(map(is_running, below)) and time.monotonic() < deadline:
        time.sleep(0.1)  # the JVM ends by itself when its parent is gone, the workers with it
    for pid in filter(is_running, below):
        os.kill(pid, signal.SIGKILL)


def _outcome(task: Task, code: int, watch: Watch) -> Run:
    file = Path(task.work) / "run.json"
    if not file.exists():
        log = (Path(task.work) / "log.txt").read_text(errors="replace").splitlines()
        telling = [line for line in log if _ERROR.match(line)][-3:]
        return Run(task.contestant, error="\n".join([f"ended with code {code}", *(telling or log[-15:])]))
    run = read_run(file)
    run.memory = [_as_floats(asdict(sample)) for sample in watch.samples]
    return run


def _as_floats(sample: dict[str, Any]) -> dict[str, float]:
    return {name: round(float(value), 3) for name, value in sample.items()}
