"""Memory and processor time of the JVM and of Python workers below a process, read from ``/proc``.

Elsewhere than on Linux there is nothing to read; then no sample is taken and the report says so.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_PROC = Path("/proc")


@dataclass(frozen=True)
class Sample:
    """Resident memory at one moment, in MiB, and processor seconds used so far."""

    at_s: float
    jvm_mib: float
    workers_mib: float
    workers_private_mib: float
    largest_worker_mib: float
    largest_private_mib: float
    jvm_cpu_s: float
    workers_cpu_s: float


@dataclass(frozen=True)
class _Process:
    pid: int
    parent: int
    name: str
    cpu_s: float
    resident_mib: float
    private_mib: float


class Watch:
    """Samples the processes below one pid until it is told to stop.

    Python workers are all Python processes below the JVM. Their resident memory counts memory-mapped files,
    and pages that forks share once for each process; the private part counts no pages of files.

    Parameters
    ----------
    pid
        The process whose descendants are watched.
    interval_s
        Time between two samples.
    """

    def __init__(self, pid: int, interval_s: float = 1.0) -> None:
        self.samples: list[Sample] = []
        self._pid = pid
        self._interval_s = interval_s
        self._cpu_s: dict[int, tuple[bool, float]] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory-watch", daemon=True)

    def start(self) -> None:
        """Begin sampling, where there is a ``/proc``."""
        if _PROC.is_dir():
            self._thread.start()

    def stop(self) -> None:
        """Take no further samples."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def used_s(self) -> tuple[float, float] | None:
        """Processor seconds of JVMs and of Python workers from start to stop; None where there is no ``/proc``."""
        if not self.samples:
            return None
        first, last = self.samples[0], self.samples[-1]
        return last.jvm_cpu_s - first.jvm_cpu_s, last.workers_cpu_s - first.workers_cpu_s

    def _run(self) -> None:
        self.samples.append(self._sample())
        while not self._stopped.wait(self._interval_s):
            self.samples.append(self._sample())
        self.samples.append(self._sample())

    def _sample(self) -> Sample:
        jvms, workers = _jvms_and_workers(self._pid)
        for process in jvms + workers:
            self._cpu_s[process.pid] = (process in workers, process.cpu_s)
        return Sample(
            at_s=time.time(),
            jvm_mib=sum(p.resident_mib for p in jvms),
            workers_mib=sum(p.resident_mib for p in workers),
            workers_private_mib=sum(p.private_mib for p in workers),
            largest_worker_mib=max((p.resident_mib for p in workers), default=0.0),
            largest_private_mib=max((p.private_mib for p in workers), default=0.0),
            jvm_cpu_s=sum(cpu for is_worker, cpu in self._cpu_s.values() if not is_worker),
            workers_cpu_s=sum(cpu for is_worker, cpu in self._cpu_s.values() if is_worker),
        )


def descendants(pid: int) -> list[int]:
    """Return the ids of all processes below one, itself not among them; none where there is no ``/proc``."""
    return [process.pid for process in _below(pid)]


def jvm_seconds(pid: int) -> float:
    """Return the processor seconds of the JVMs below a process; 0 where there is no ``/proc``."""
    return sum(process.cpu_s for process in _jvms_and_workers(pid)[0])


def is_running(pid: int) -> bool:
    """Tell whether a process is there and no zombie."""
    stat = _fields(pid)
    return stat is not None and stat[1] != "Z"


def _jvms_and_workers(pid: int) -> tuple[list[_Process], list[_Process]]:
    processes = _below(pid)
    jvms = [p for p in processes if p.name == "java"]
    below_jvm = {p.pid for p in jvms}
    workers = []
    for process in processes:  # parents stand before their children
        if process.parent in below_jvm and process.name.startswith("python"):
            below_jvm.add(process.pid)  # a fork of the JVM that has not yet become another program is none
            workers.append(process)
    return jvms, workers


def _below(pid: int) -> list[_Process]:
    children: dict[int, list[int]] = {}
    if _PROC.is_dir():
        for number in [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]:
            stat = _fields(number)
            if stat is not None:
                children.setdefault(int(stat[2]), []).append(number)
    found: list[_Process] = []
    waiting = children.get(pid, [])
    while waiting:
        processes = [p for p in map(_process, waiting) if p is not None]
        found += processes
        waiting = [child for p in processes for child in children.get(p.pid, [])]
    return found


def _fields(pid: int) -> list[str] | None:
    """Return name, state, parent and the further fields of ``/proc/<pid>/stat``."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:  # ended meanwhile
        return None
    name, rest = text[text.index("(") + 1 :].rsplit(")", 1)
    return [name, *rest.split()]


def _process(pid: int) -> _Process | None:
    stat = _fields(pid)
    try:
        status = (_PROC / str(pid) / "status").read_text()
    except OSError:
        return None
    if stat is None:
        return None
    rows = [line.split() for line in status.splitlines()]
    kib = {row[0]: int(row[1]) for row in rows if row[-1] == "kB"}
    ticks = int(stat[12]) + int(stat[13])
    return _Process(
        pid=pid,
        parent=int(stat[2]),
        name=stat[0],
        cpu_s=ticks / os.sysconf("SC_CLK_TCK"),
        resident_mib=kib.get("VmRSS:", 0) / 1024,
        private_mib=kib.get("RssAnon:", 0) / 1024,
    )
