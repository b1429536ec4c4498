"""The Spark session of a command: that of the user's module, of spark-submit, or a local one."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark
import typer
from pyspark.sql import SparkSession

from tablestream.errors import TablestreamError
from tablestream.spark import local_spark

#: The variables by which spark-submit and Spark Connect tell a program of the session that it should have.
_REMOTE = "SPARK_REMOTE"
_GIVEN = ("PYSPARK_GATEWAY_PORT", _REMOTE, "SPARK_CONNECT_MODE_ENABLED")


def session_is_given() -> bool:
    """Whether the environment says which session a program has. Otherwise it starts a local one."""
    return any(name in os.environ for name in _GIVEN)


@dataclass
class Sessions:
    """Returns the session of a command, and starts a local one if there is none."""

    _ended: contextlib.ExitStack
    _log: Path | None
    _is_long: bool
    _starting: Callable[[], None]
    _scratch: Path | None = None

    def __call__(self) -> SparkSession:
        active = SparkSession.getActiveSession()
        if active is not None:
            return active
        if session_is_given():
            return self._given()
        self._starting()
        scratch = self._new_scratch()
        log = self._log or scratch / "log"
        return self._ended.enter_context(
            local_spark.local_spark(scratch / "spark", log, is_long=self._is_long)
        )

    def _given(self) -> SparkSession:
        """The session of the environment. A server that starts with it on this machine writes its messages to the log.

        Otherwise the screen has them: each job's progress, and stack traces after Ctrl-C.
        """
        if not os.environ.get(_REMOTE, "").startswith("local"):
            return SparkSession.builder.getOrCreate()
        with local_spark.stderr_into(self._log or self._new_scratch() / "log"):
            return SparkSession.builder.getOrCreate()

    def _new_scratch(self) -> Path:
        """Make the directory of temporary files, which goes with the session."""
        self._scratch = Path(self._ended.enter_context(tempfile.TemporaryDirectory(prefix="tablestream-")))
        return self._scratch

    def remove_files(self) -> None:
        """Remove what a local session leaves if its process ends at once."""
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        if self._log is not None:
            self._log.unlink(missing_ok=True)


def starting_text(target: str | None = None) -> str:
    """Return the line that says what takes the first seconds."""
    what = "" if target is None else f"{target} with "
    return f"Starting {what}a local Spark {pyspark.__version__} ({local_spark.MASTER}), which takes some seconds."


def _say_starting() -> None:
    typer.echo(starting_text(), err=True)


@contextlib.contextmanager
def sessions(
    log: Path | None = None, *, is_long: bool = False, starting: Callable[[], None] = _say_starting
) -> Iterator[Sessions]:
    """Yield what returns the session of the command; a local one ends with the context, and somebody else's stays.

    The messages of a local session's processes go to `log`; by default they are removed at the end. `is_long`: it is
    for a program that runs for long. `starting` is called before a local session starts, which takes seconds in which
    nothing else is shown; by default it says so on standard error.
    """
    with contextlib.ExitStack() as ended:
        yield Sessions(ended, log, is_long, starting)


@contextlib.contextmanager
def kept_if_needed(log: Path) -> Iterator[None]:
    """Remove a log at the end, unless there is an error that does not say enough itself."""
    try:
        yield
    except (TablestreamError, KeyboardInterrupt):
        log.unlink(missing_ok=True)
        raise
    log.unlink(missing_ok=True)
