"""Programs in processes of their own, which end with the test: with their children, and before a deadline."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

DEADLINE_S = 600


@contextlib.contextmanager
def program(
    *arguments: str,
    variables: Mapping[str, str] | None = None,
    others: Mapping[str, str] = os.environ,
    directory: Path | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """Start Python with these arguments, in a process group of its own, which is killed at the end.

    Its environment has some variables, and others.
    """
    running = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**others, **(variables or {})},
    )
    deadline = threading.Timer(DEADLINE_S, kill, [running])  # a test may wait for a line as well
    deadline.start()
    try:
        yield running
    finally:
        deadline.cancel()
        kill(running)
        running.communicate(timeout=DEADLINE_S)


def done(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments until it ends."""
    with program(*arguments, **options) as running:
        out, errors = running.communicate(timeout=DEADLINE_S)
        return subprocess.CompletedProcess(running.args, running.returncode, out, errors)


def kill(running: subprocess.Popen[Any]) -> None:
    """Kill a process and those that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
