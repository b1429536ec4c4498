"""Fetch Debezium's PostgreSQL connector into a directory: ``python -m scripts.fetch_connector .jars/connect``.

Maven fetches it, checks its checksum and unpacks it. The directory is filled in one move, so a broken download leaves
nothing behind. The worker that runs the connector is among the broker's jars (`scripts.fetch_jars`).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.fetch_jars import has_maven

CONNECTOR = "io.debezium:debezium-connector-postgres:3.6.0.Final:tar.gz:plugin"
_FOLDER = "debezium-connector-postgres"


def fetch(directory: Path) -> bool:
    """Put the connector in its place; return whether it came."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
        goal = ["dependency:unpack", f"-Dartifact={CONNECTOR}", f"-DoutputDirectory={scratch}"]
        # -C: a wrong checksum is an error, and not a warning.
        done = subprocess.run(["mvn", "-q", "-B", "-ntp", "-C", *goal], cwd=scratch, check=False)
        found = Path(scratch, _FOLDER)
        if done.returncode or not any(found.glob("debezium-connector-postgres-*.jar")):
            return False
        shutil.rmtree(directory / _FOLDER, ignore_errors=True)
        found.rename(directory / _FOLDER)
    return True


def main(directory: Path) -> int:
    """Fill the directory; return the exit code."""
    if not has_maven():
        print("Maven fetches Debezium's connector, and there is no mvn.", file=sys.stderr)
        print("Install it: sudo apt-get install maven, brew install maven", file=sys.stderr)
        return 1
    if not fetch(directory.resolve()):
        print(f"Maven could not fetch {CONNECTOR} into {directory}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
