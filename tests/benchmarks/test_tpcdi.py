"""The logs like TPC-DI's have every kind of change, and trades find what DuckDB finds for their time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.contestants import load
from benchmarks.launch import Task
from benchmarks.tpcdi.logs import KEYS, SCHEMAS, Trades, prepare_trades
from benchmarks.tpcdi.query import SQL, opened_logs
from tests.benchmarks.through_driver import read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import duckdb
    from pyspark.sql import SparkSession

TRADES = Trades(600, 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_trades(TRADES, tmp_path_factory.mktemp("tpcdi"))


@pytest.fixture
def database(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with opened_logs(folder) as opened:
        yield opened


def test_no_row_changes_twice_at_one_time(database: duckdb.DuckDBPyConnection) -> None:
    every = " union all ".join(
        f"select '{kind}' as kind, {key}::varchar as key, changed_at from {kind}_versions"
        for kind, (key,) in KEYS.items()
    )
    counts = database.sql(
        f"select count(*), count(distinct (kind, key, changed_at)) from ({every})"
    ).fetchall()
    rows = 2 * 600 + 30 * 5 + 15 * 4 + 6 * 4
    assert counts == [(rows, rows)]


def test_no_trade_is_submitted_when_another_row_changes(database: duckdb.DuckDBPyConnection) -> None:
    others = " union all ".join(f"select changed_at from {kind}_versions" for kind in KEYS if kind != "trade")
    submitted = "select changed_at from trade_versions where t_status = 'SBMT'"
    ((rows, times),) = database.sql(
        f"select count(*), count(distinct changed_at) from ({submitted} union all ({others}))"
    ).fetchall()
    assert rows == times == 600 + 30 * 5 + 15 * 4 + 6 * 4


def test_columns_are_those_of_the_schemas(folder: Path) -> None:
    for kind, schema in SCHEMAS.items():
        for log in read(folder, kind):
            assert log.column_names == [column.split()[0] for column in schema.split(", ")]


def test_securities_and_trades_are_in_order_and_the_others_are_late(folder: Path) -> None:
    late = {}
    for kind in SCHEMAS:
        times = [time for log in read(folder, kind) for time in log["changed_at"].to_pylist()]
        latest, late[kind] = times[0], 0
        for time in times:
            late[kind] += time < latest
            latest = max(latest, time)
    assert late["security"] == late["trade"] == 0
    assert late["account"] > 10
    assert late["customer"] > 5


def test_trades_find_every_kind_of_version(database: duckdb.DuckDBPyConnection) -> None:
    ((trades, none, no_customer, states),) = database.sql(
        "select count(*), count(*) filter (ca_name is null), count(*) filter (ca_name is not null and c_name is null),"
        f" count(distinct t_status) from ({SQL})"
    ).fetchall()
    assert trades == 600
    assert none > 10
    assert no_customer > 0
    assert states == 2


@pytest.mark.exhaustive
def test_a_contestant_compares_what_it_wrote(spark: SparkSession, tmp_path: Path, folder: Path) -> None:
    task = Task("tpcdi-trades", str(folder), str(tmp_path), jars="", micro_batches=3)
    run = load("tpcdi-trades")(spark, task)
    assert run.facts["equal to DuckDB"] == "yes"
    assert run.facts["rows of the final table"] == 600
    assert run.changes_out > 2 * 600  # each trade twice, and corrections


def test_the_key_is_the_first_column() -> None:
    assert {kind: key for kind, (key,) in KEYS.items()} == {
        "customer": "c_id",
        "account": "ca_id",
        "security": "s_symbol",
        "trade": "t_id",
    }
