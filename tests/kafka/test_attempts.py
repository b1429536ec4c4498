"""Tasks that fail half-way and are tried again, or that Spark starts twice, do not show in any target."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import tablestream as ts
from tests.faults.attempts import FAIL, SLOW, work_off
from tests.faults.comparing import changes
from tests.faults.victim import write_logs
from tests.kafka.topics import Topics, by_key
from tests.spark.change_logs import run
from tests.spark.test_deployments import ROOT, SECONDS, end

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.broker.kafka_broker import KafkaBroker

MICRO_BATCHES = 2

pytestmark = [pytest.mark.faults, pytest.mark.slow]


def run_apart(directory: Path, *given: str) -> str:
    """Run the disturbed query in a process of its own, which ends with all that it started; what it said."""
    command = [sys.executable, "-m", "tests.faults.attempts", str(directory), *given]
    with (
        (directory / "errors.txt").open("w") as errors,
        subprocess.Popen(
            command,
            cwd=directory,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "src")))},
            stdout=subprocess.DEVNULL,
            stderr=errors,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        try:
            ended = process.wait(SECONDS)
        finally:
            end(process)
    said = (directory / "errors.txt").read_text(encoding="utf-8")
    assert ended == 0, said[-5000:]
    return said


def delta(spark: SparkSession, directory: Path, name: str) -> tuple[list[str], int]:
    """The rows of a Delta table, and how many versions it has."""
    path = str(directory / name)
    rows = spark.read.format("delta").load(path).collect()
    versions = spark.sql(f"DESCRIBE HISTORY delta.`{path}`").count()
    return sorted(repr(row.asDict(recursive=True)).replace(str(directory), "") for row in rows), versions


def told_once(spark: SparkSession, topics: Topics, topic: str, directory: Path) -> dict[bytes, list[Any]]:
    """The values of each key that a reader of a topic gets who leaves repeats out."""
    frame = ts.from_kafka(
        spark, topic, key="id int", value="customer string, amount int, name string",
        bootstrap_servers=topics.servers, deduplicate=True,
    )  # fmt: skip
    sink = ts.to_memory(f"told once {topic}")
    run(ts.table(frame, "id", name="sold").to(sink), checkpoint=directory / "reader")
    values: dict[bytes, list[Any]] = {}
    for row in sink.rows():
        value = {name: row[name] for name in ("customer", "amount", "name")}
        values.setdefault(b'{"id":%d}' % row["id"], []).append(
            value if row["_change_type"] == "upsert" else None
        )
    return values


@pytest.fixture(scope="module")
def undisturbed(
    delta_spark: SparkSession, broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """The same query without faults: its directory and its topic."""
    topic = Topics(broker.bootstrap_servers, "attempts.").make("undisturbed", 2)
    directory = tmp_path_factory.mktemp("undisturbed")
    write_logs(directory, MICRO_BATCHES)
    work_off(delta_spark, directory, broker.bootstrap_servers, topic)
    return directory, topic


@pytest.mark.parametrize("how", [FAIL, SLOW])
def test_tasks_that_run_twice_do_not_show(
    delta_spark: SparkSession, topics: Topics, undisturbed: tuple[Path, str], tmp_path: Path, how: str
) -> None:
    """Those that fail also find every disk full for the cache: each worker logs that once."""
    here, (there, expected) = tmp_path, undisturbed
    given = topics.make("disturbed", 2)
    write_logs(here, MICRO_BATCHES)
    said = run_apart(here, topics.servers, given, how)

    marks = [mark.suffix for mark in (here / "marks").iterdir()]
    assert marks.count(".again") >= 6  # of two stages with state, and of four sinks
    assert marks.count(".stage") >= 2
    assert ".ended-by-itself" not in marks
    assert changes(here, "sold") == changes(there, "sold") != []
    for name in ("table", "log"):
        assert delta(delta_spark, here, name) == delta(delta_spark, there, name)
    written = topics.read(given)
    assert told_once(delta_spark, topics, given, here) == by_key(topics.read(expected))
    if how == FAIL:
        assert len(written) > len(topics.read(expected))
        assert not list((here / "cache").iterdir())
        told = said.count("Chunks stay in memory, which may be slower")
        assert (
            1 <= told <= 2 + marks.count("")
        )  # two workers at a time, and a failed task takes its own along
