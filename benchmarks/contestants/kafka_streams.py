"""Kafka Streams from topics to a topic: the same join in Java, compiled when it runs, on a broker of its own.

``KafkaStreamsJoin.java`` is the program. It runs at least once, without caches, with a thread for each core.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.contestants.kafka import (
    SCHEMAS,
    TARGET,
    facts_of,
    filled,
    made,
    target_facts,
    topics_broker,
)
from benchmarks.processes import Watch
from benchmarks.results import MicroBatch, Run
from benchmarks.spark_session import CORES
from tests.broker.kept import BrokerError, Kept, java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from benchmarks.launch import Task

COMMIT_MS = 30_000
"""Time between two commits: Kafka Streams' default."""
_SOURCE = Path(__file__).with_name("KafkaStreamsJoin.java")
_THIRDS = 3
_THROWN = re.compile(r"(Caused by: )?[\w.$]*(Error|Exception)\b")


class Sample(NamedTuple):
    """How far the program was at one moment: records taken in from the two topics, and records in the target."""

    at_s: float
    taken_in: int
    written: int


def every_change(spark: SparkSession, task: Task) -> Run:
    """Join two topics into a third; the topics are those of the library's contestant, and so are the checks."""
    work = Path(task.work).resolve()
    class_path = compiled(Path(task.jars) / "streams", work / "classes")
    with topics_broker(task) as broker:
        kafka: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
        for topic in SCHEMAS:
            filled(spark, task, topic, kafka)
        made(TARGET, kafka)
        samples = work / "samples.txt"
        with Watch(os.getpid(), interval_s=0.5) as watch:
            run_program(
                [f"-Xmx{task.driver_memory}", "-cp", class_path, _SOURCE.stem],
                [broker.bootstrap_servers, TARGET, CORES, COMMIT_MS, work / "state", samples],
                work,
            )
        run = run_of(task.contestant, read_samples(samples))
        run.facts = facts_of(run, watch) | target_facts(spark, task, kafka)
    return run


def compiled(jars: Path, classes: Path) -> str:
    """Compile the program, and return the class path that it runs with.

    Raises
    ------
    BrokerError
        There are no jars of Kafka Streams, or there is no Java compiler; the message says how to get them.
    """
    if not any(jars.glob("kafka-streams-*.jar")):
        raise BrokerError(
            f"There are no jars of Kafka Streams in {jars}.",
            hint="Fetch them: in a clone of tablestream, `make streams` puts them into .jars/streams.",
        )
    found = [str(jar.resolve()) for jar in sorted(jars.glob("*.jar"))]
    command = [
        javac(),
        "-Xlint:all",
        "-Werror",
        "-d",
        str(classes),
        "-cp",
        os.pathsep.join(found),
        str(_SOURCE),
    ]
    subprocess.run(command, check=True)
    return os.pathsep.join([str(classes.resolve()), *found])


def javac() -> str:
    """Find the compiler beside the java that Spark would take.

    Raises
    ------
    BrokerError
        There is none, as on a machine with a Java runtime only.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("javac", path=str(Path(home, "bin")) if home else None)
    if found is None:
        where = f"in {home}" if home else "on the PATH"
        raise BrokerError(
            f"Kafka Streams' program is compiled when it runs, and there is no javac {where}.",
            hint="Install a JDK (Debian, Ubuntu: apt-get install openjdk-17-jdk-headless), or point JAVA_HOME at one.",
        )
    return found


def run_program(options: list[str], arguments: list[Any], work: Path) -> None:
    """Run the program until it ends; it ends with this process, however that ends.

    Raises
    ------
    BrokerError
        It failed; the message has the last exception of its log.
    """
    program = Kept("Kafka Streams", work, work / "streams.log")
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    program.start([java("Kafka Streams"), quiet, *options, *map(str, arguments)])
    try:
        code = program.ended()
    finally:
        program.stop()
    if code:
        thrown = [line for line in program.said().splitlines() if _THROWN.match(line)]
        raise BrokerError(f"Kafka Streams ended with code {code}: {thrown[-1] if thrown else 'see its log'}")


def read_samples(file: Path) -> list[Sample]:
    """Read what the program wrote down."""
    rows = [line.split() for line in file.read_text(encoding="ascii").splitlines()]
    return [Sample(float(at_s), int(taken_in), int(written)) for at_s, taken_in, written in rows]


def run_of(name: str, samples: list[Sample]) -> Run:
    """Cut a run where each third of its input had been taken in; so steady is without the first third.

    It ends with the last record that it wrote, and not with the commit that proves that this was the last one.
    """
    last = samples[-1]
    ends = [
        next(one for one in samples if one.taken_in * _THIRDS >= last.taken_in * third)
        for third in range(1, _THIRDS)
    ]
    end = next(one for one in samples if (one.taken_in, one.written) == (last.taken_in, last.written))
    parts = [
        MicroBatch(
            number,
            since.at_s,
            until.at_s - since.at_s,
            until.taken_in - since.taken_in,
            until.written - since.written,
        )
        for number, (since, until) in enumerate(pairwise([samples[0], *ends, end]))
    ]
    return Run(name, end.at_s - samples[0].at_s, parts)
