"""How many processes a run of the tests has on this machine."""

from __future__ import annotations

import os
from pathlib import Path

GB = 1 << 30
#: Of a process with its Spark session and the workers of that.
EACH = 5 * GB // 2
#: Of the servers that all processes share, and of what else runs here.
SHARED = 2 * GB
#: What a container may use; one that may use all has the word `max` there.
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def cores() -> int:
    """Count the cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> int:
    """Return the bytes that this machine has, or that a container may use."""
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    said = [path.read_text(encoding="utf-8").strip() for path in LIMITS if path.is_file()]
    return min([installed, *(int(text) for text in said if text.isdigit())])


def processes(cores: int, memory: int) -> int:
    """One more than cores, since much of a test with servers is waiting; as many as have room for their sessions.

    Parameters
    ----------
    cores
        Of the machine.
    memory
        Its bytes.
    """
    return max(1, min(cores + 1, (memory - SHARED) // EACH))
