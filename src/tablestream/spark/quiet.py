"""Silence the processes that Spark starts for a query beside its executors.

They print each of their steps, for every stateful stage and, under Spark Connect, for every micro-batch. Spark
copies that to the driver's standard error, whatever the log level.
"""

from __future__ import annotations

import sys
from typing import TextIO

#: What these processes begin their lines with, by the module that each of them runs.
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
