"""Queries into PostgreSQL: the table is the state of the output, whatever is repeated, restarted or killed."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import tablestream as ts
from tests.faults.test_kills import running, said
from tests.faults.victim import ORDERS, write_logs
from tests.postgres.victim import TABLES, amounts, expected, work_off
from tests.spark.change_logs import START, ChangeLog, run
from tests.spark.test_restarts import forget_last_commit

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.postgres.database import Database

MICRO_BATCHES = 2
SECONDS = 600  # a loaded machine is no failure
SECRET = "Hidden-0815"  # noqa: S105 - the password of nobody


def contents(database: Database) -> list[list[tuple[Any, ...]]]:
    """The rows of both tables."""
    return [database.rows(f"SELECT customer, n::int, amount::int FROM {name}") for name in TABLES]


def versions(database: Database) -> list[Any]:
    """What every row was last written by, and the marks."""
    rows = [database.rows(f"SELECT customer, xmin::text, ctid::text FROM {name}") for name in TABLES]
    return [*rows, database.rows("TABLE tablestream_marks")]


def test_a_table_is_the_state_of_its_output(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """After random changes with deletes, a repeated micro-batch, a restart, and with another checkpoint."""
    write_logs(tmp_path, MICRO_BATCHES)
    work_off(spark, tmp_path, database.conninfo)
    assert contents(database) == [expected(tmp_path)] * 2
    before = versions(database)
    forget_last_commit(tmp_path / "checkpoint")
    work_off(spark, tmp_path, database.conninfo)
    assert versions(database) == before
    assert database.stages() == []

    log = ChangeLog(tmp_path / "orders", ORDERS, files=MICRO_BATCHES)
    log.add(
        [{"id": n, "customer": "g", "amount": 1, "deleted": n % 3 == 0, "ts": START + 99} for n in range(40)]
    )
    work_off(spark, tmp_path, database.conninfo)
    assert contents(database) == [expected(tmp_path)] * 2
    assert {row[2] for row in database.rows("TABLE tablestream_marks")} == {MICRO_BATCHES}

    (tmp_path / "checkpoint").rename(tmp_path / "old")
    work_off(spark, tmp_path, database.conninfo)
    assert contents(database) == [expected(tmp_path)] * 2
    assert len(database.rows("TABLE tablestream_marks")) == 4


def test_alone_every_change_and_images_before_it_do_as_well(
    spark: SparkSession, database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sink that is alone gets the changes while they are computed. No plan shows its password."""
    write_logs(tmp_path, 1)
    for number, before in enumerate((False, True)):
        sink = ts.to_postgres(f"t{number}", f"{database.conninfo} password={SECRET}", create=True)
        output = amounts(spark, tmp_path).to(replace(sink, inline_bytes=0), emit="every", before=before)
        assert SECRET not in repr(output) + ts.plan_text(output)
        run(output, checkpoint=tmp_path / f"checkpoint{number}", shards=2)
        found = database.rows(f"SELECT customer, n::int, amount::int FROM t{number}")
        assert found == expected(tmp_path)
    assert SECRET not in "".join(capsys.readouterr())
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert not [file for file in files if SECRET.encode() in file.read_bytes()]


KILLS = 2
#: When the driver is killed, in SQL: a task has staged rows; of a later micro-batch one table is merged, and the
#: other is not.
MOMENTS = [
    "SELECT 1 FROM pg_class WHERE relname LIKE 'tablestream_stage%'",
    "SELECT 1 FROM tablestream_marks HAVING count(*) = 2 AND min(micro_batch) < max(micro_batch)",
]


@pytest.mark.faults
def test_a_driver_that_is_killed_does_not_show(
    spark: SparkSession,  # noqa: ARG001 - it runs in a process of those that have Spark
    database: Database,
    tmp_path: Path,
) -> None:
    """Each start costs seconds: at two of the moments."""
    deadline, kills, pending = time.monotonic() + SECONDS, 0, MOMENTS.copy()
    write_logs(tmp_path, MICRO_BATCHES)
    while True:
        with running(tmp_path, database.conninfo, "tests.postgres.victim") as process:
            while process.poll() is None and (kills == KILLS or not happened(database, pending)):
                assert time.monotonic() < deadline, said(tmp_path)
                time.sleep(0.002)
            if process.poll() is not None:
                assert process.returncode == 0, said(tmp_path)
                break
            kills += 1
            os.killpg(process.pid, signal.SIGKILL)
    assert kills == KILLS
    assert contents(database) == [expected(tmp_path)] * 2
    assert {row[2] for row in database.rows("TABLE tablestream_marks")} == {MICRO_BATCHES - 1}
    assert database.stages() == []


def happened(database: Database, pending: list[str]) -> bool:
    """Whether one of the moments has come, which is then no longer waited for."""
    import psycopg

    for moment in pending:
        try:
            found = database.rows(moment)
        except psycopg.errors.UndefinedTable:
            continue
        if found:
            pending.remove(moment)
            return True
    return False
