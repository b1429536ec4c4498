"""Write what lets tests start Spark quickly: ``python -m scripts.class_archive FILE HOME``.

Tests start Spark in many processes, and Spark starts many Pythons.

FILE is an archive of the Java classes that Spark and a small query load. A Java that maps it need not find, read and
check these classes again. A Java of another version, or with other jars, does not use it.

HOME is a directory for ``SPARK_HOME`` in which Spark's Pythons start quickly; see `make_home`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tablestream.spark.local_spark import make_home

_PROGRAM = Path(__file__).parent.parent / "examples" / "ten_lines.py"
_TIMEOUT_S = 600.0


def main(archive: Path, home: Path) -> int:
    """Make the home, and run the first program with it, whose Java writes the archive when it ends."""
    make_home(home)
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.unlink(missing_ok=True)
    options = f"-XX:ArchiveClassesAtExit={archive.resolve()} -Xlog:disable"
    ran = subprocess.run(
        [sys.executable, str(_PROGRAM)],
        # Java compares the paths of the jars with the archive's as text.
        env=os.environ
        | {"SPARK_SUBMIT_OPTS": options, "PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(home.resolve())},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
    )
    if ran.returncode != 0 or not archive.exists():
        print(f"There is no archive of Java classes, so tests take longer:\n{ran.stdout}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
