"""Fetch Delta Lake's jars, which the tests of the Delta sink need, into a directory.

Maven does it where it is installed, or can be (root on Debian); else Spark's own resolver, Ivy.
The directory is filled in one move, so a broken download leaves nothing behind.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# All that tables addressed by path use; the rest of Delta's dependencies serve catalogs, or ship with Spark.
ARTIFACTS = ("io.delta:delta-spark_4.2_2.13:4.4.0", "io.delta:delta-storage:4.4.0")
REST = ("io.unitycatalog:*", "io.delta:delta-kernel-*", "org.apache.*:*", "com.fasterxml.*:*", "org.slf4j:*")


def jar_name(artifact: str) -> str:
    """Return the file name of an artifact, as a Maven repository has it."""
    _, name, version = artifact.split(":")
    return f"{name}-{version}.jar"


def has_maven() -> bool:
    """Say whether Maven is here; as root on Debian, install it first."""
    if shutil.which("mvn") is None and os.geteuid() == 0 and shutil.which("apt-get") is not None:
        print("Maven is missing; installing it.")
        install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", "maven"]
        subprocess.run(["apt-get", "update", "-q"], check=False)
        subprocess.run(install, check=False, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    return shutil.which("mvn") is not None


def fetch_by_maven(into: Path) -> bool:
    """Copy every artifact with Maven; say whether all came."""
    for artifact in ARTIFACTS:
        goal = ["dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={into}"]
        if subprocess.run(["mvn", "-q", "-B", "-ntp", *goal], check=False).returncode != 0:
            return False
    return True


def fetch_by_ivy(into: Path) -> bool:
    """Let Spark resolve the artifacts, as ``spark.jars.packages`` does; say whether all came."""
    with tempfile.TemporaryDirectory() as ivy:
        start = (
            "from pyspark.sql import SparkSession\n"
            "builder = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false')\n"
            f"builder = builder.config('spark.jars.packages', {','.join(ARTIFACTS)!r})\n"
            f"builder = builder.config('spark.jars.excludes', {','.join(REST)!r})\n"
            f"builder = builder.config('spark.jars.ivy', {ivy!r})\n"
            "builder.getOrCreate().stop()\n"
        )
        done = subprocess.run([sys.executable, "-c", start], check=False)
        for jar in Path(ivy, "jars").glob("io.delta_*.jar"):
            shutil.copy(jar, into / jar.name.removeprefix("io.delta_"))
    return done.returncode == 0


def main(directory: Path) -> int:
    """Fill the directory with the jars; return the exit code."""
    wanted = {jar_name(artifact) for artifact in ARTIFACTS}
    directory.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        into = Path(scratch)
        fetched = (has_maven() and fetch_by_maven(into)) or fetch_by_ivy(into)
        missing = wanted - {jar.name for jar in into.glob("*.jar")}
        if not fetched or missing:
            print(f"Could not fetch {', '.join(sorted(missing or wanted))}.", file=sys.stderr)
            print(f"Put them into {directory}/ by hand, then: touch {directory}/.stamp", file=sys.stderr)
            return 1
        for old in directory.glob("*.jar"):
            old.unlink()
        for name in wanted:
            (into / name).replace(directory / name)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
