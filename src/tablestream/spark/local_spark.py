"""A local Spark for the command line: checks for Java, and settings for one computer."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from tablestream.errors import TablestreamError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

MINIMUM_JAVA = 17
#: All cores of this machine.
MASTER = "local[*]"
_JAVA_TIMEOUT_S = 60
# The second compiler takes longer than a run of minutes can win back: 40 of 90 seconds of the JVM's processor time
# in a small demo.
_QUICK_START = "-XX:TieredStopAtLevel=1"
# Spark reads this variable only if neither its configuration nor its arguments say how much memory the driver has.
_MEMORY, _MEMORY_DEFAULT = "SPARK_DRIVER_MEMORY", "2g"
# Spark puts these before the driver's options of its configuration, which a setting of the session would replace.
_JAVA_OPTIONS = "SPARK_SUBMIT_OPTS"
_INSTALL = (
    "Install a full Java 17 or newer (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; "
    "macOS: brew install openjdk@17; or https://adoptium.net), or point JAVA_HOME at one."
)


class JavaError(TablestreamError):
    """Spark cannot start, because there is no Java that it can use."""

    code = "TABLESTREAM_JAVA"


def check_java() -> int:
    """Return the major version of the Java that Spark will use.

    Raises
    ------
    JavaError
        There is none, it is older than 17, or it lacks a module that Spark needs.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        where = (
            f"JAVA_HOME is {home}, but {java} does not exist." if home else "There is no java on the PATH."
        )
        raise JavaError(f"Spark needs Java, and none was found. {where}", hint=_INSTALL)
    version = _java_version(java)
    if version < MINIMUM_JAVA:
        raise JavaError(f"Spark needs Java {MINIMUM_JAVA} or newer; {java} is Java {version}.", hint=_INSTALL)
    if _run_java(java, "--add-modules", "jdk.incubator.vector", "-version").returncode:
        raise JavaError(
            f"Spark needs the Java module jdk.incubator.vector, which {java} does not have.", hint=_INSTALL
        )
    return version


@contextlib.contextmanager
def local_spark(scratch: Path, log: Path, *, is_long: bool = False) -> Iterator[SparkSession]:
    """Start a quiet local session, and stop it at the end.

    Its Java has 2 GB, unless the user's environment or Spark's configuration says how much. The user's own options of
    Java come after those of this function, so that they win.

    Parameters
    ----------
    scratch
        A directory for Spark's temporary files; created here, and removed at the end.
    log
        A file for the standard error of Spark's processes, so that it does not disturb the progress display.
    is_long
        Whether it runs for long, so that Java's second compiler is worth its time.
    """
    check_java()
    scratch.mkdir(parents=True, exist_ok=True)
    with stderr_into(log), _variables(_memory() | _java_options(is_long=is_long)):
        spark = _session(scratch)
    try:
        yield spark
    finally:
        spark.stop()
        shutil.rmtree(scratch, ignore_errors=True)


def _session(scratch: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.executorEnv.POLARS_MAX_THREADS": "1",
        "spark.local.dir": str(scratch / "spark"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }
    builder = SparkSession.builder.master(MASTER).appName("tablestream")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _memory() -> dict[str, str]:
    """Return the variable for the memory of Spark's Java: as the user says, or the default."""
    return {_MEMORY: os.environ.get(_MEMORY) or _MEMORY_DEFAULT}


def _java_options(*, is_long: bool) -> dict[str, str]:
    """Return the variable for the options of Spark's Java, with the user's own after the others."""
    logging = f"-Dlog4j2.configurationFile=file:{resources.files('tablestream.spark') / 'log4j2.properties'}"
    options = [*([] if is_long else [_QUICK_START]), logging, os.environ.get(_JAVA_OPTIONS, "")]
    return {_JAVA_OPTIONS: " ".join(filter(None, options))}


@contextlib.contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    """Let child processes inherit some environment variables."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def stderr_into(log: Path) -> Iterator[None]:
    """Let child processes inherit `log` as their standard error; this process keeps its own."""
    sys.stderr.flush()
    own = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)


def _java_version(java: str) -> int:
    answer = _run_java(java, "-version")
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if answer.returncode or found is None:
        raise JavaError(f"{java} does not run: {(answer.stderr or answer.stdout).strip()}", hint=_INSTALL)
    return int(found.group(1))


def _run_java(java: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [java, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=_JAVA_TIMEOUT_S, check=False)  # noqa: S603  # the user's own java
