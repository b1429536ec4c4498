"""Fetch the jars that tests, and the tutorial with Kafka, need beside Spark's own, into a directory.

``*.jar`` there is for Spark: Delta Lake and Spark's Kafka connector. ``broker/*.jar`` is a Kafka broker, with a Kafka
client of its own that Spark must not see. ``streams/*.jar`` is Kafka Streams, which the benchmark runs; it is fetched
alone, with ``streams`` as the second argument. Maven fetches them; as root on Debian it is installed if it is missing.
Each set is filled in one move, so a broken download leaves nothing behind.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class JarSet:
    """Jars that stand together on one class path.

    Attributes
    ----------
    folder
        Where they go, below the directory.
    artifacts
        As ``group:artifact:version``.
    complete
        Whether what they depend on comes along; otherwise these are all.
    """

    folder: str
    artifacts: tuple[str, ...]
    complete: bool


SPARK = JarSet(
    folder=".",
    artifacts=(
        # All that tables addressed by path use; the rest of Delta's dependencies serve catalogs, or ship with Spark.
        "io.delta:delta-spark_4.2_2.13:4.4.0",
        "io.delta:delta-storage:4.4.0",
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        # 4.2.0 of this one is not everywhere, and the connector calls nothing newer.
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.13.1",
        "org.scala-lang.modules:scala-parallel-collections_2.13:1.2.0",
    ),
    complete=False,
)
BROKER = JarSet(
    folder="broker",
    artifacts=(
        "org.apache.kafka:kafka_2.13:4.3.0",
        "org.apache.kafka:kafka-tools:4.3.0",
        "org.slf4j:slf4j-simple:1.7.36",
    ),
    complete=True,
)
STREAMS = JarSet(
    folder="streams",
    artifacts=("org.apache.kafka:kafka-streams:4.3.0", "org.slf4j:slf4j-simple:1.7.36"),
    complete=True,
)
SETS = {"": (SPARK, BROKER), "streams": (STREAMS,)}


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


def project(jars: JarSet) -> str:
    """Write the Maven project that depends on a set's artifacts."""
    alone = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    dependencies = [
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        f"{'' if jars.complete else alone}</dependency>"
        for group, name, version in (artifact.split(":") for artifact in jars.artifacts)
    ]
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>tablestream</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{''.join(dependencies)}</dependencies></project>"
    )


def fetch(jars: JarSet, directory: Path) -> list[str]:
    """Put a set in its place; return the names of jars that did not come."""
    target = directory / jars.folder
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        into = Path(scratch, "jars")
        Path(scratch, "pom.xml").write_text(project(jars), encoding="utf-8")
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={into}"]
        done = subprocess.run(["mvn", "-q", "-B", "-ntp", *goal], cwd=scratch, check=False)
        missing = [
            name for name in map(jar_name, jars.artifacts) if done.returncode or not (into / name).exists()
        ]
        if not missing:
            for old in target.glob("*.jar"):
                old.unlink()
            for jar in into.glob("*.jar"):
                jar.replace(target / jar.name)
    return missing


def main(directory: Path, sets: str = "") -> int:
    """Fill the directory with the jars of some sets; return the exit code."""
    if not has_maven():
        print("Maven fetches the jars of Delta Lake and Kafka, and there is no mvn.", file=sys.stderr)
        print("Install it: sudo apt-get install maven, brew install maven", file=sys.stderr)
        return 1
    directory = directory.resolve()
    for jars in SETS[sets]:
        missing = fetch(jars, directory)
        if missing:
            print(f"Maven could not fetch {', '.join(missing)} into {directory}.", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
