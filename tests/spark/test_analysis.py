"""What the library does to PySpark while Spark looks at a user's expressions."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
from pyspark.logger import PySparkLogger
from tablestream.spark.analysis import unlogged

names = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
with unlogged():
    for name in names:
        PySparkLogger.getLogger(name).exception("hidden", file="a.py", line="1")
for name in names:
    PySparkLogger.getLogger(name).exception("shown", file="a.py", line="1")
"""


def test_pyspark_can_log_its_own_errors_after_the_library_kept_some_quiet() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count('"msg": "shown"') == 2
    assert "hidden" not in ran.stderr
