"""The processes below one, read from ``/proc``, and how to kill some."""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress
from pathlib import Path


def below(pid: int) -> dict[int, str]:
    """Return the command lines of all processes below one, by their number."""
    parents, commands = dict[int, int](), dict[int, str]()
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            with suppress(OSError, ValueError):
                stat = (directory / "stat").read_text().rpartition(") ")[2].split()
                if stat[0] == "Z":
                    continue
                parents[int(directory.name)] = int(stat[1])
                commands[int(directory.name)] = (directory / "cmdline").read_text().replace("\0", " ")
    found = dict[int, str]()
    for one in commands:
        above = one
        while above in parents:
            above = parents[above]
            if above == pid:
                found[one] = commands[one]
                break
    return found


def workers(pid: int) -> list[int]:
    """Return the Python workers below a process: what Spark's daemons forked."""
    daemons = {one for one, command in below(pid).items() if "pyspark.daemon" in command}
    return [one for one in daemons if any(one in below(other) for other in daemons if other != one)]


def executors(pid: int) -> list[int]:
    """Return the executors below a process."""
    return [one for one, command in below(pid).items() if "CoarseGrainedExecutorBackend" in command]


def kill_one(rng: random.Random, pids: list[int]) -> bool:
    """Kill one of some processes, at once; return whether there was one."""
    if not pids:
        return False
    with suppress(ProcessLookupError):
        os.kill(rng.choice(sorted(pids)), signal.SIGKILL)
        return True
    return False
