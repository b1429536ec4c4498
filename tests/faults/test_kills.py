"""What happens to the processes and tasks of a query does not show in any target, nor does a repeated micro-batch."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import tablestream as ts
from tests.cli.programs import kill
from tests.faults.attempts import FAIL, SINKS, SLOW, STAGE, STAGED_SINKS, by_workers
from tests.faults.comparing import changes
from tests.faults.processes import executors, kill_one, workers
from tests.faults.victim import (
    APPENDED,
    CREATED,
    FULL_DISK,
    STAGED,
    STANDS,
    micro_batches,
    work_off,
    write_logs,
)
from tests.kafka.topics import Topics, by_key
from tests.postgres.database import Database
from tests.spark.change_logs import run
from tests.spark.deployment import LOCAL, STANDALONE
from tests.spark.test_deployments import ROOT
from tests.spark.test_restarts import forget_last_commit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from tests.broker.kafka_broker import KafkaBroker
    from tests.broker.postgres_server import PostgresServer

MICRO_BATCHES = 8
#: The Delta tables that Spark writes, and those that delta-rs writes.
DELTA = ("table", "log", "rs_table", "rs_log")
SECONDS = 1700  # before the test's own time is over, so that what the processes said is seen
IN_MEMORY = "Chunks stay in memory, which may be slower"
#: Has rows when one table of a later micro-batch is merged, and tasks have staged rows for the other.
HALF_MERGED = """
    SELECT 1 FROM tablestream_marks HAVING count(*) = 2 AND min(micro_batch) < max(micro_batch)
    AND EXISTS (SELECT 1 FROM pg_class WHERE relname LIKE 'tablestream_stage%')
    """
#: When drivers are killed: when there are so many files more, when an SQL query has rows, or where they stand still.
MOMENTS: tuple[int | str, ...] = (2, CREATED, HALF_MERGED, STAGED, APPENDED)

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="reads processes from /proc")


@dataclass
class Query:
    """A query of `tests.faults.victim`: its directory and what it writes to."""

    directory: Path
    topics: Topics
    topic: str
    database: Database
    micro_batches: int = MICRO_BATCHES

    def __post_init__(self) -> None:
        """Make the topic, and write what the query reads."""
        self.topics.make(self.topic, 2)
        write_logs(self.directory, self.micro_batches)

    @property
    def places(self) -> tuple[str, str, str]:
        """Where the targets are."""
        return self.topics.servers, self.topic, self.database.conninfo

    @contextmanager
    def running(self, deployment: str, moment: int | str = 0) -> Iterator[subprocess.Popen[str]]:
        """Run it in a process of its own, which ends, with all that it started."""
        stands = {STANDS: str(moment)} if moment in {CREATED, STAGED, APPENDED} else {}
        with subprocess.Popen(
            [sys.executable, "-m", "tests.faults.victim", deployment, *self.places],
            cwd=self.directory,
            env=os.environ | stands | {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "src")))},
            stdout=subprocess.DEVNULL,
            stderr=(self.directory / "errors.txt").open("a"),
            text=True,
            start_new_session=True,
        ) as process:
            try:
                yield process
            finally:
                kill(process)

    def said(self) -> str:
        """What the processes wrote."""
        return (self.directory / "errors.txt").read_text()

    def files(self) -> int:
        """How many files there are."""
        # Not with rglob: it fails where the writer takes a directory away, and os.walk passes over that.
        walks = (files for name in ("sold", "amounts") for _, _, files in os.walk(self.directory / name))
        return sum(not file.endswith(".crc") for files in walks for file in files)

    @contextmanager
    def waiting(self, moment: int | str) -> Iterator[Callable[[], bool]]:
        """Tell when there are so many files more, an SQL query has rows, or the process stands still."""
        wanted = self.files() + moment if isinstance(moment, int) else 0
        with psycopg.connect(self.database.conninfo, autocommit=True) as connection:

            def happened() -> bool:
                if isinstance(moment, int):
                    return self.files() >= wanted
                if moment != HALF_MERGED:
                    return (self.directory / moment).exists()
                with suppress(psycopg.errors.UndefinedTable):
                    return connection.execute(moment.encode()).fetchone() is not None
                return False

            yield happened

    def contents(self, spark: SparkSession) -> dict[str, Any]:
        """All that a reader finds in the targets, and what made each version of the Delta tables."""
        found: dict[str, Any] = {"sold": changes(self.directory, "sold")}
        for name in ("amounts", *DELTA):
            kind = "delta" if name in DELTA else "parquet"
            rows = spark.read.format(kind).load(str(self.directory / name)).collect()
            found[name] = sorted(
                repr(row.asDict(recursive=True)).replace(str(self.directory), "") for row in rows
            )
        for name in DELTA:
            history = spark.sql(f"DESCRIBE HISTORY delta.`{self.directory / name}`").collect()
            found[f"{name} versions"] = len(history)
            found[f"{name} micro-batches"] = [
                json.loads(row["userMetadata"])["tablestream"]["micro_batch"]
                for row in history
                if row["userMetadata"]
            ]
        found["left beside"] = [str(one) for one in self.directory.glob("rs_*/_tablestream/**/*.parquet")]
        found |= {name: self.database.rows(f"TABLE {name}") for name in ("small", "large")}
        found["marks"] = {row[2] for row in self.database.rows("TABLE tablestream_marks")}
        found["stages"] = self.database.stages()
        found["topic"] = self._told_once(spark)
        return found

    def _told_once(self, spark: SparkSession) -> dict[bytes, list[Any]]:
        """The values of each key that a reader of the topic gets who leaves repeats out."""
        frame = ts.from_kafka(
            spark, self.topic, key="id int", value="customer string, amount int, name string",
            bootstrap_servers=self.topics.servers, deduplicate=True,
        )  # fmt: skip
        number = next(_READERS)
        sink = ts.to_memory(f"told once {number}")
        run(ts.table(frame, "id", name="sold").to(sink), checkpoint=self.directory / f"reader{number}")
        values: dict[bytes, list[Any]] = {}
        for row in sink.rows():
            value = {name: row[name] for name in ("customer", "amount", "name")}
            values.setdefault(b'{"id":%d}' % row["id"], []).append(
                value if row["_change_type"] == "upsert" else None
            )
        return values


_READERS = itertools.count()


@pytest.fixture(scope="module")
def make(
    broker: KafkaBroker, postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Query]:
    """Make a query that nobody has started."""
    topics = Topics(broker.bootstrap_servers)
    return lambda name, *size: Query(
        tmp_path_factory.mktemp(name), topics, f"faults.{name}", Database.make(postgres, name), *size
    )


def worked_off(query: Query, spark: SparkSession) -> dict[str, Any]:
    """What a query writes that nothing happens to."""
    work_off(spark, query.directory, *query.places)
    contents = query.contents(spark)
    assert {one["_order"]["micro_batch"] for one in contents["sold"]} == set(range(query.micro_batches))
    assert contents["topic"] == by_key(query.topics.read(query.topic))
    assert contents["small"] == contents["large"] != []
    assert contents["marks"] == {query.micro_batches - 1}
    assert contents["stages"] == contents["left beside"] == []
    assert contents["table"] == contents["rs_table"]
    for name in DELTA:
        assert contents[f"{name} micro-batches"] == [*range(query.micro_batches)][::-1]
    return contents


def test_a_repeated_micro_batch_changes_nothing(
    make: Callable[..., Query], delta_spark: SparkSession
) -> None:
    """No target's rows, and Delta tables have no version more."""
    query = make("repeated", 3)
    contents = worked_off(query, delta_spark)
    forget_last_commit(query.directory / "checkpoint")
    work_off(delta_spark, query.directory, *query.places)
    assert differing(query.contents(delta_spark), contents) == []


def differing(found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """What is not as it was."""
    return [name for name in expected if found[name] != expected[name]]


@pytest.mark.exhaustive  # of kills, others are in tests/demo and tests/faults/test_evolving_kills.py
@pytest.mark.timeout(SECONDS + 100)
def test_what_happens_to_processes_and_tasks_does_not_show(
    make: Callable[..., Query], delta_spark: SparkSession
) -> None:
    """Workers and the driver are killed; tasks fail, and are slow until others run beside them; executors are killed.

    Drivers are killed before and behind commits of Delta's, by Spark and by delta-rs, and where delta-rs has made a
    table without rows. The Python workers of the first start find every disk full for the cache.
    """
    expected = worked_off(make("undisturbed"), delta_spark)
    query, rng, killed = make("disturbed"), random.Random(3), 0
    for number, moment in enumerate(MOMENTS):
        with query.running(LOCAL if number else FULL_DISK, moment) as process:
            killed += kill_until(query, process, rng, moment)
        if number == 0:
            assert not list((query.directory / "cache").iterdir())
            assert 1 <= query.said().count(IN_MEMORY) <= 2 + killed  # two workers at a time
    assert killed >= len(MOMENTS)
    with query.running(STANDALONE) as process:
        kill_on_cluster(query, process, rng, micro_batches(query.directory) + 1)
        assert process.wait(SECONDS) == 0, query.said()[-5000:]

    marks = [mark.name for mark in (query.directory / "marks").iterdir()]
    happened = {tuple(mark.split()[:2]) for mark in marks if mark.endswith(".again")}
    kinds = {STAGE, *(one.__name__ for one in SINKS), *map(by_workers, STAGED_SINKS)}
    assert happened == {(how, what) for how in (FAIL, SLOW) for what in kinds}
    assert not [mark for mark in marks if mark.endswith(".ended-by-itself")]
    assert differing(query.contents(delta_spark), expected) == []
    assert len(query.topics.read(query.topic)) > sum(map(len, expected["topic"].values()))


def wait(query: Query, process: subprocess.Popen[str], over: Callable[[], bool]) -> Iterator[None]:
    """Give others the time between two looks, until something has happened."""
    deadline = time.monotonic() + SECONDS
    while not over():
        assert process.poll() is None, query.said()[-5000:]
        assert time.monotonic() < deadline, query.said()[-5000:]
        yield
        time.sleep(0.01)


def kill_until(query: Query, process: subprocess.Popen[str], rng: random.Random, moment: int | str) -> int:
    """Kill two workers, if there is time, and the driver at a moment; how many workers it was."""
    killed, due = 0, time.monotonic()
    with query.waiting(moment) as happened:
        for _ in wait(query, process, happened):
            if killed < 2 and time.monotonic() > due:
                killed += kill_one(rng, workers(process.pid))
                due = time.monotonic() + 0.2 + rng.random() * 0.4
    kill(process)
    return killed


def kill_one_of(process: subprocess.Popen[str], rng: random.Random, kind: Callable[[int], list[int]]) -> bool:
    return kill_one(rng, kind(process.pid))


def kill_on_cluster(query: Query, process: subprocess.Popen[str], rng: random.Random, after: int) -> None:
    """Kill workers and an executor, one after the other, when a micro-batch is done."""
    commit = query.directory / "checkpoint" / "commits" / str(after)
    for _ in wait(query, process, commit.exists):
        pass
    for kind in (workers, executors, workers):
        time.sleep(0.2 + rng.random() * 0.4)
        for _ in wait(query, process, partial(kill_one_of, process, rng, kind)):
            pass
