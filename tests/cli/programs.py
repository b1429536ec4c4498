"""Programs in processes of their own, which end with the test: with their children, and before a deadline."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DEADLINE_S = 600


@contextlib.contextmanager
def program(*arguments: str, variables: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """Start Python with these arguments, in a process group of its own, which is killed at the end."""
    running = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | (variables or {}),
    )
    deadline = threading.Timer(DEADLINE_S, _kill, [running])  # a test may wait for a line as well
    deadline.start()
    try:
        yield running
    finally:
        deadline.cancel()
        _kill(running)
        running.communicate(timeout=DEADLINE_S)


def done(*arguments: str, variables: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments until it ends."""
    with program(*arguments, variables=variables) as running:
        out, errors = running.communicate(timeout=DEADLINE_S)
        return subprocess.CompletedProcess(running.args, running.returncode, out, errors)


def _kill(running: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
