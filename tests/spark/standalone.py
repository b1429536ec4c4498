"""A standalone Spark cluster: a master and two workers, whose executors have no tablestream but what is shipped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.find_spark_home import _find_spark_home

from tests.conftest import KEPT_CLASSES, QUICK_JAVA

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEPLOY = "org.apache.spark.deploy"
_SECONDS = 240
#: Spark starts no second copy of a task on a host that has the first: each worker is a host.
_HOSTS = ("127.0.0.1", "127.0.0.2")

#: Python imports it when it starts: the package is found in zips alone, as if nobody had installed it.
_NOT_INSTALLED = """
import importlib.machinery
import sys


class OnlyShipped:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "tablestream":
            zips = [entry for entry in sys.path if entry.endswith(".zip")]
            spec = importlib.machinery.PathFinder.find_spec(name, zips)
            if spec is None:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            return spec


sys.meta_path.insert(0, OnlyShipped)
"""


@contextmanager
def standalone(directory: Path) -> Iterator[str]:
    """Start a master and two workers with a core each; give the master's address. They end, whatever happens."""
    python = directory / "python"
    python.mkdir()
    (python / "sitecustomize.py").write_text(_NOT_INSTALLED, encoding="utf-8")
    with socket.socket() as free:
        free.bind((_HOSTS[0], 0))
        port = free.getsockname()[1]
    address = f"spark://{_HOSTS[0]}:{port}"
    with ExitStack() as started:
        master = ["master.Master", "--host", _HOSTS[0], "--port", str(port), "--webui-port", "0"]
        started.enter_context(_running(directory, "master", master, python))
        _wait(port)
        for host in _HOSTS:
            resources = ["--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"work-{host}")]
            worker = ["worker.Worker", "--host", host, "--webui-port", "0", *resources, address]
            started.enter_context(_running(directory, f"worker-{host}", worker, python))
        yield address


@contextmanager
def _running(directory: Path, name: str, command: list[str], python: Path) -> Iterator[None]:
    """Run one of Spark's classes in a process of its own, and end it and what it started."""
    home = Path(_find_spark_home())
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYTHON"))}
    environment = kept | {
        "SPARK_HOME": str(home),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{QUICK_JAVA} {KEPT_CLASSES}",
        "PYTHONPATH": str(python),  # of the executors, which are its children
        "PYSPARK_PYTHON": sys.executable,
    }
    with (
        (directory / f"{name}.log").open("wb") as log,
        subprocess.Popen(
            [home / "bin" / "spark-class", f"{_DEPLOY}.{command[0]}", *command[1:]],
            cwd=directory,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _wait(port: int) -> None:
    """Wait until the master listens."""
    end = time.monotonic() + _SECONDS
    while True:
        try:
            socket.create_connection((_HOSTS[0], port)).close()
        except ConnectionRefusedError:
            assert time.monotonic() < end, "the master does not start"
            time.sleep(0.1)
        else:
            return
