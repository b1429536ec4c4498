"""A local Spark: checks for Java, settings for one computer, and a home in which its Pythons start quickly."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tablestream.arguments.kinds import check_string
from tablestream.base.calling import user_line
from tablestream.errors import ArgumentError, TablestreamError

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
_SPARK_HOME = "SPARK_HOME"
_ON_ONE_COMPUTER = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executorEnv.POLARS_MAX_THREADS": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_INSTALL = (
    "Install a full Java 17 or newer (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; "
    "macOS: brew install openjdk@17; or https://adoptium.net), or point JAVA_HOME at one."
)


class JavaError(TablestreamError):
    """Spark cannot start, because there is no Java that it can use."""

    code = "TABLESTREAM_JAVA"


def check_java() -> int:
    """Return the major version of the Java that Spark will use; raise `JavaError` if Spark cannot use it."""
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


def local_session(
    master: str = MASTER, *, memory: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a session of Spark on this computer that suits queries of this library.

    Parameters
    ----------
    master
        Where Spark runs: ``local[*]``, all cores of this computer, or ``local[2]``, two of them.
    memory
        The memory of Spark's Java, such as ``"4g"``. Default: what ``SPARK_DRIVER_MEMORY`` in the environment says, or
        2 GB.
    settings
        Further settings, which win over those of this function.

    Returns
    -------
    SparkSession
        A plain session. You stop it.

    Raises
    ------
    JavaError
        There is no Java that Spark can use; the message says how to install one.
    ArgumentError
        A session runs already, or the master is not of this computer.

    Notes
    -----
    A session that you make yourself does as well; this one starts its queries sooner. It sets:

    - ``spark.driver.host`` and ``spark.driver.bindAddress`` to ``127.0.0.1``: nobody else reaches it.
    - ``spark.ui.enabled`` and ``spark.ui.showConsoleProgress`` to ``false``.
    - ``spark.executorEnv.POLARS_MAX_THREADS`` to 1: there is a task for each core.
    - Java's option ``-XX:TieredStopAtLevel=1``: its second compiler takes longer than it wins back in runs of minutes.
      For a query that runs for days, put ``-XX:TieredStopAtLevel=4`` into the variable ``SPARK_SUBMIT_OPTS``.
    - ``SPARK_HOME``, while Java starts, to a directory with links to the installed PySpark, but without its zip: Python
      compiles the modules of a zip anew in each process that Spark starts. If ``SPARK_HOME`` is set, it stays.

    Examples
    --------
    >>> import tablestream as ts
    >>> spark = ts.local_session("local[2]", memory="4g")  # doctest: +SKIP
    """
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is not None:
        raise ArgumentError(
            "A Spark session runs already.",
            hint="Use it, or call its stop() first.",
            where=user_line(),
        )
    check_string(master, "master", "where Spark runs, such as local[2]")
    if not master.startswith("local"):
        raise ArgumentError(
            f"master={master!r} is not on this computer.",
            hint="Give local[*] or local[2], or make the session with SparkSession.builder.",
            where=user_line(),
        )
    check_java()
    given = {} if memory is None else {_MEMORY: memory}
    home = tempfile.mkdtemp(prefix="tablestream-spark-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    with _variables(_memory() | given | _java_options(_QUICK_START) | _home(Path(home))):
        return _built(master, dict(settings or {}))


@contextlib.contextmanager
def local_spark(scratch: Path, log: Path, *, is_long: bool = False) -> Iterator[SparkSession]:
    """Start a quiet local session, and stop it at the end.

    Its Java has 2 GB, unless the user's environment or Spark's configuration says how much. The user's own options of
    Java come after those of this function, so that they win.

    `scratch`: a directory for Spark's temporary files; created here, and removed at the end. `log`: a file for the
    standard error of Spark's processes, so that it does not disturb the progress display. `is_long`: whether it runs
    for long, so that Java's second compiler is worth its time.
    """
    check_java()
    scratch.mkdir(parents=True, exist_ok=True)
    logging = f"-Dlog4j2.configurationFile=file:{resources.files('tablestream.spark') / 'log4j2.properties'}"
    options = _java_options(*([] if is_long else [_QUICK_START]), logging)
    settings = {
        "spark.local.dir": str(scratch / "spark"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }
    with stderr_into(log), _variables(_memory() | options | _home(scratch / "home")):
        spark = _built(MASTER, settings)
    try:
        yield spark
    finally:
        spark.stop()
        shutil.rmtree(scratch, ignore_errors=True)


def _built(master: str, settings: dict[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("tablestream")
    for name, value in (_ON_ONE_COMPUTER | settings).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def make_home(home: Path) -> None:
    """Make a directory for ``SPARK_HOME`` with the programs and jars of the installed PySpark, but without its zip.

    Where ``python/lib/pyspark.zip`` exists, Spark puts it before the installed package on the path of its Pythons.
    Python keeps no compiled code of modules from zips, so each of these processes compiles them anew: 0.5 s in the one
    that Spark starts on the driver for each stateful stage of each query.
    """
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("There is no PySpark.", name="pyspark")
    home.mkdir(parents=True, exist_ok=True)
    for name in ("bin", "sbin", "jars", "conf"):
        installed = Path(spec.origin).parent / name
        (home / name).unlink(missing_ok=True)
        if installed.exists():
            (home / name).symlink_to(installed)


def _home(place: Path) -> dict[str, str]:
    """Make a home for Spark and return its variable; nothing if the user has one, or where there are no links."""
    if os.environ.get(_SPARK_HOME):
        return {}
    try:
        make_home(place)
    except OSError:
        return {}
    return {_SPARK_HOME: str(place)}


def _memory() -> dict[str, str]:
    """Return the variable for the memory of Spark's Java: as the user says, or the default."""
    return {_MEMORY: os.environ.get(_MEMORY) or _MEMORY_DEFAULT}


def _java_options(*own: str) -> dict[str, str]:
    """Return the variable for the options of Spark's Java; the user's own come last, and win."""
    return {_JAVA_OPTIONS: " ".join(filter(None, (*own, os.environ.get(_JAVA_OPTIONS))))}


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
