"""Queries into PostgreSQL: the table is the state of the output, whatever is repeated or restarted.

Amounts by customer go to the table ``small`` by way of the driver, and to ``large`` through a staging table of each
task. `tests.faults.test_kills` kills such a query.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import tablestream as ts
from tablestream.connectors.postgres.marks import Marks
from tablestream.errors import PlanError, TargetError
from tests.faults.victim import ORDERS, write_logs
from tests.spark.change_logs import START, ChangeLog, run
from tests.spark.test_restarts import forget_last_commit

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tablestream.connectors.marks import OnMismatch
    from tablestream.spark.requests import OutputRequest
    from tests.postgres.database import Database

TABLES = ("small", "large")
MICRO_BATCHES = 2
COLUMNS = "SELECT attname::text FROM pg_attribute WHERE attrelid = 'sums'::regclass AND attnum > 0"
SECRET = "Hidden-0815"  # noqa: S105 - the password of nobody


def amounts(spark: SparkSession, directory: Path) -> ts.Table:
    """Number and sum of the orders of each customer."""
    orders = ts.table(
        ChangeLog(directory / "orders", ORDERS).read(spark), "id", apply_as_deletes="deleted",
        timestamp=F.timestamp_seconds("ts"), except_columns=["deleted", "ts"], name="orders",
    )  # fmt: skip
    return orders.group_by("customer").agg(n=ts.functions.count(), amount=ts.functions.sum("amount"))


def work_off(spark: SparkSession, directory: Path, conninfo: str, on_mismatch: OnMismatch = "refuse") -> None:
    """Run the query until all is worked off."""
    table = amounts(spark, directory)
    small, large = (ts.to_postgres(name, conninfo, create=True, on_mismatch=on_mismatch) for name in TABLES)
    wanted: list[OutputRequest] = [table.to(small), table.to(replace(large, inline_bytes=0), name="large")]
    run(*wanted, checkpoint=directory / "checkpoint", shards=2)


def expected(directory: Path) -> list[tuple[str, int, int]]:
    """The rows of the table, worked out from the change log one by one."""
    orders: dict[int, tuple[str, int]] = {}
    for file in sorted((directory / "orders").glob("*.json")):
        for one in map(json.loads, file.read_text().splitlines()):
            orders.pop(one["id"], None)
            if not one["deleted"]:
                orders[one["id"]] = (one["customer"], one["amount"])
    groups: dict[str, list[int]] = defaultdict(list)
    for customer, amount in orders.values():
        groups[customer].append(amount)
    return sorted((customer, len(found), sum(found)) for customer, found in groups.items())


def contents(database: Database) -> list[list[tuple[Any, ...]]]:
    """The rows of both tables."""
    return [database.rows(f"SELECT customer, n::int, amount::int FROM {name}") for name in TABLES]


def versions(database: Database) -> list[Any]:
    """What every row was last written by, and the marks."""
    rows = [database.rows(f"SELECT customer, xmin::text, ctid::text FROM {name}") for name in TABLES]
    return [*rows, database.rows("TABLE tablestream_marks")]


@pytest.mark.usefixtures("several_partitions")
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
    database.run("INSERT INTO small VALUES ('of another plan', 1, 1)")
    with pytest.raises(TargetError, match=r"public\.small has rows that are not this query's"):
        work_off(spark, tmp_path, database.conninfo)
    work_off(spark, tmp_path, database.conninfo, "rebuild")
    assert contents(database) == [expected(tmp_path)] * 2
    assert len(database.rows("TABLE tablestream_marks")) == 2


@pytest.mark.exhaustive
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


def broken(*_: Any, **__: Any) -> None:
    raise RuntimeError("Broken")


def test_a_table_gets_the_columns_that_a_changed_output_has(
    spark: SparkSession, tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def output(**more: Any) -> OutputRequest:
        log = ChangeLog(tmp_path / "orders", ORDERS).read(spark)
        orders = ts.table(log, "id", except_columns=["deleted", "ts"], name="orders")
        sums = orders.group_by("customer").agg(n=ts.functions.count(), **more)
        return sums.to(ts.to_postgres("sums", database.conninfo, create=True))

    write_logs(tmp_path, MICRO_BATCHES)
    run(output(), checkpoint=tmp_path / "checkpoint", evolvable=True)
    counted = database.rows("SELECT customer, n FROM sums")
    wider = output(amount=ts.functions.sum("amount"))
    with pytest.raises(PlanError, match="has no column 'amount'"):
        run(wider, checkpoint=tmp_path / "another")
    # The columns come with the rows: an attempt that fails leaves the table as it was.
    with monkeypatch.context() as patch:
        patch.setattr(Marks, "set", broken)
        with pytest.raises(Exception, match="Broken"):
            ts.evolve(wider, checkpoint=tmp_path / "checkpoint")
    assert database.rows(COLUMNS) == [("customer",), ("n",)]
    ts.evolve(wider, checkpoint=tmp_path / "checkpoint")
    assert database.rows("SELECT customer, n FROM sums WHERE amount > 0") == counted
