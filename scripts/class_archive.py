"""Write an archive of the Java classes that Spark and a small query load: ``python -m scripts.class_archive FILE``.

Tests start Spark in many processes. A Java that maps the archive need not find, read and check these classes again. A
Java of another version, or with other jars, does not use it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_PROGRAM = Path(__file__).parent.parent / "examples" / "ten_lines.py"
_TIMEOUT_S = 600.0


def main(archive: Path) -> int:
    """Run the first program, whose Java writes the archive when it ends."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.unlink(missing_ok=True)
    options = f"-XX:ArchiveClassesAtExit={archive.resolve()} -Xlog:disable"
    ran = subprocess.run(
        [sys.executable, str(_PROGRAM)],
        env=os.environ | {"SPARK_SUBMIT_OPTS": options, "PYSPARK_PYTHON": sys.executable},
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
    sys.exit(main(Path(sys.argv[1])))
