"""What a command shows while Spark works for it: on a terminal for how long, and how many tasks are done."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pyspark.sql import SparkSession
from rich.progress import Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
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
        tracker = self._tracker
        found = [] if tracker is None else map(tracker.getStageInfo, tracker.getActiveStageIds())
        stages = [one for one in found if one is not None]
        done, of = (sum(getattr(one, name) for one in stages) for name in ("numCompletedTasks", "numTasks"))
        return Text(f"{done:,} of {of:,} tasks" if of else "")


@contextlib.contextmanager
def working(spark: SparkSession, text: str) -> Iterator[None]:
    """Show a text on standard error, on a terminal with what Spark has done, until the context ends."""
    err = console(stderr=True)
    if not err.is_terminal or err.is_dumb_terminal:
        err.print(Text(text), soft_wrap=True)
        yield
        return
    with Progress(TextColumn(text, markup=False), TimeElapsedColumn(), _Tasks(spark), console=err) as shown:
        shown.add_task("")
        yield
