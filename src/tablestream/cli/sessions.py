"""The Spark session of a command: that of the user's module, of spark-submit, or a local one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from tablestream.errors import TablestreamError
from tablestream.spark import local_spark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: The variables by which spark-submit and Spark Connect tell a program of the session that it should have.
_GIVEN = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")


@contextlib.contextmanager
def sessions(log: Path | None = None) -> Iterator[Callable[[], SparkSession]]:
    """Yield a function that returns the session of the command, and starts a local one if there is none.

    A local session ends with the context. A session that somebody else started stays.

    Parameters
    ----------
    log
        A file for the messages of a local session's processes. By default they are removed at the end.
    """
    with contextlib.ExitStack() as ended:

        def session() -> SparkSession:
            active = SparkSession.getActiveSession()
            if active is not None:
                return active
            if any(name in os.environ for name in _GIVEN):
                return SparkSession.builder.getOrCreate()
            scratch = Path(ended.enter_context(tempfile.TemporaryDirectory(prefix="tablestream-")))
            return ended.enter_context(local_spark.local_spark(scratch / "spark", log or scratch / "log"))

        yield session


@contextlib.contextmanager
def kept_if_needed(log: Path) -> Iterator[None]:
    """Remove a log at the end, unless there is an error that does not say enough itself."""
    try:
        yield
    except (TablestreamError, KeyboardInterrupt):
        log.unlink(missing_ok=True)
        raise
    log.unlink(missing_ok=True)
