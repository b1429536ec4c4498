"""A worker process of Spark, which works off many tasks: what it pays once, and not in each."""

from __future__ import annotations

import gc
from dataclasses import dataclass

from pyspark import TaskContext


@dataclass
class _Process:
    """What this process has done: the first task that it got, and whether its modules are left out of collections."""

    first_task: int | None = None
    is_frozen: bool = False


_process = _Process()


def begin_task() -> None:
    """Leave what the process has imported out of garbage collections, from its second task on.

    Spark collects garbage after every task. Going through the 100,000 objects of imported modules takes 45 ms of it,
    and nothing of them is ever garbage. When the second task begins, most is imported, and Spark has just collected.
    What else the process holds at that moment is left out as well: little, and once.
    """
    context = TaskContext.get()
    if context is None or _process.is_frozen:  # not a worker; or done
        return
    task = context.taskAttemptId()
    if _process.first_task is None:
        _process.first_task = task
    elif task != _process.first_task:
        gc.freeze()
        _process.is_frozen = True
