"""Python processes of Spark: workers pay once what is not of a task, and processes of a query do not tell their steps.

This module imports little: what Spark starts beside its executors needs no more to declare its state.
"""

from __future__ import annotations

import gc
import sys
from dataclasses import dataclass
from typing import TextIO

from pyspark import TaskContext

#: What the processes that Spark starts for a query beside its executors begin their lines with, by the module that each
#: of them runs. They print each of their steps, for every stateful stage and, under Spark Connect, for every
#: micro-batch. Spark copies that to the driver's standard error, whatever the log level.
_BEGINNINGS = {
    "pyspark.sql.streaming.transform_with_state_driver_worker": "Streaming TransformWithState",
    "pyspark.sql.connect.streaming.worker.foreach_batch_worker": "Streaming ForeachBatch worker",
}


class _Quiet:
    """Standard output without lines that begin so; `print` writes a text and its line end separately."""

    def __init__(self, out: TextIO, beginning: str) -> None:
        self._out, self._beginning, self._left_out = out, beginning, False

    def write(self, text: str) -> int:
        self._left_out = text.startswith(self._beginning) or (self._left_out and text == "\n")
        return len(text) if self._left_out else self._out.write(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self._out, name)


def quieten() -> None:
    """Drop the progress lines of this process, if Spark runs it for a query; users' own output stays."""
    beginning = _BEGINNINGS.get(_main())
    if beginning is not None and not isinstance(sys.stdout, _Quiet):
        sys.stdout = _Quiet(sys.stdout, beginning)


def _main() -> str:
    """The module that this process runs; empty if it runs a file."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return "" if spec is None else str(spec.name)


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
