"""Choose the Python of Spark's workers, and check that it has what a plan needs.

PySpark runs ``python3`` of the workers' PATH unless ``PYSPARK_PYTHON`` names another. On one machine that is often
not the driver's Python, which has this package. So on a local master workers run the driver's Python, unless the
user named one; for a Spark Connect server that this process starts, importing the package says so. On a cluster
the driver's path means nothing, so one job asks the workers what they have.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Callable
from weakref import WeakSet

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tablestream.connectors.shipping import has_context, is_local, ship
from tablestream.errors import SessionSettingError

_PYTHON, _SETTING = "PYSPARK_PYTHON", "spark.pyspark.python"
#: Spark's messages if Python does not start on a worker, and if it has another version than the driver's.
_NO_START = re.compile(r'Cannot run program "[^"]*"|port number from pyspark\.daemon')
_OTHER_VERSION = re.compile(r"Python in worker has different version: ([\d.]+)")
_checked: WeakSet[SparkSession] = WeakSet()


def use_driver_python(spark: SparkSession) -> None:
    """Let the workers of a local master run this Python, unless the user named one.

    PySpark reads the context's ``pythonExec`` whenever it creates a function for workers. So this also works if the
    session was created before this package was imported.
    """
    if os.environ.get(_PYTHON) or not sys.executable or not has_context(spark) or not is_local(spark):
        return
    if spark.conf.get(_SETTING, None) is None:
        spark.sparkContext.pythonExec = sys.executable


def prepare_workers(spark: SparkSession) -> None:
    """Give workers the driver's Python, or the package, and check once that they can run a plan."""
    use_driver_python(spark)
    ship(spark)
    if spark in _checked or _runs_driver_python(spark):
        return
    lack, can_install = _lack(spark)
    if lack:
        raise SessionSettingError(
            f"{lack}, and the driver's is {sys.executable} (Python {platform.python_version()}).",
            hint=_remedy(spark, can_install=can_install),
        )
    _checked.add(spark)


def _runs_driver_python(spark: SparkSession) -> bool:
    return has_context(spark) and is_local(spark) and spark.sparkContext.pythonExec == sys.executable


def _lack(spark: SparkSession) -> tuple[str, bool]:
    """Say what the workers' Python lacks, empty if nothing, and whether packages would help."""
    inquiry = F.udf(_inquiry(), "array<string>", useArrow=False)
    try:
        (row,) = spark.range(0, 1, 1, 1).select(inquiry("id")).collect()
    except (PySparkException, Py4JError) as error:
        return _refusal(error), False
    python, version, *missing = row[0]
    if not missing:
        return "", False
    return f"The Python of Spark's workers, {python} (Python {version}), has no {', '.join(missing)}", True


def _refusal(error: Exception) -> str:
    """Say why the workers did not answer; raise the error if the reason is not their Python."""
    version, found = _OTHER_VERSION.search(str(error)), _NO_START.search(str(error))
    if version is not None:
        return f"Spark's workers run Python {version.group(1)}"
    if found is None:
        raise error
    return f"Python does not start on Spark's workers ({found.group()})"


def _inquiry() -> Callable[[object], list[str]]:
    """Return a function that reports a worker's Python, and the packages that it lacks.

    It refers to nothing in this module, which a worker may not have.
    """

    def answer(_: object) -> list[str]:
        import sys
        from importlib import import_module
        from importlib.util import find_spec

        missing = [name for name in ("tablestream", "polars", "pyarrow", "pandas") if find_spec(name) is None]
        try:
            # One of Spark's jars has the directories, without modules.
            import_module("google.protobuf.message")
        except ImportError:
            missing.append("protobuf")
        return [sys.executable, ".".join(map(str, sys.version_info[:3])), *missing]

    return answer


def _remedy(spark: SparkSession, *, can_install: bool) -> str:
    if not is_local(spark):
        where = "on the executors" if has_context(spark) else "on the executors of the Spark Connect server"
        install = f"Install tablestream's requirements {where}. Or set" if can_install else "Set"
        return (
            f"{install} {_PYTHON} to a Python {'.'.join(platform.python_version_tuple()[:2])} {where} that has"
            " tablestream's requirements,"
            f" before {'you create the session' if has_context(spark) else 'the server starts'}."
        )
    if os.environ.get(_PYTHON):
        return f"Unset {_PYTHON}, or set it to {sys.executable}, before you create the session."
    return f"Import tablestream before you create the session, or set {_PYTHON} to {sys.executable} before."
