"""What a command shows while Spark works for it: on a terminal for how long, and how many tasks are done."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from rich.progress import Progress, ProgressColumn, Task, TimeElapsedColumn
from rich.text import Text

from tablestream.cli.display import console
from tablestream.connectors.shipping import has_context


class _Tasks(ProgressColumn):
    """The tasks of the stages that run now. A server of Spark Connect does not tell them."""

    max_refresh = 0.5

    def __init__(self, spark: SparkSession) -> None:
        super().__init__()
        self._tracker = spark.sparkContext.statusTracker() if has_context(spark) else None

    def render(self, task: Task) -> Text:  # noqa: ARG002 - the stages are Spark's
        try:
            return Text(self._text())
        except (Py4JError, OSError):  # Java has ended: what waits for Spark gets the error that says so
            return Text("")

    def _text(self) -> str:
        tracker = self._tracker
        found = [] if tracker is None else map(tracker.getStageInfo, tracker.getActiveStageIds())
        stages = [one for one in found if one is not None]
        done, of = (sum(getattr(one, name) for one in stages) for name in ("numCompletedTasks", "numTasks"))
        return f"{done:,} of {of:,} tasks" if of else ""


@contextlib.contextmanager
def working(spark: SparkSession, text: str) -> Iterator[None]:
    """Show a text on standard error, and on a terminal what Spark has done, until the context ends."""
    err = console(stderr=True)
    err.print(Text(text), soft_wrap=True)
    if not err.is_terminal or err.is_dumb_terminal:
        yield
        return
    with Progress(TimeElapsedColumn(), _Tasks(spark), console=err) as shown:
        shown.add_task("")
        yield
