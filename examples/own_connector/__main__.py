"""``python -m examples.own_connector [DIRECTORY]``: the balance of each account, from SQLite into SQLite."""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from pyspark.sql import SparkSession

import tablestream as ts
from examples.own_connector.sqlite_sink import SqliteTable
from examples.own_connector.sqlite_source import from_sqlite

SCHEMA = "id bigint, transfer bigint, account string, amount bigint, gone int"
TABLES = """
CREATE TABLE IF NOT EXISTS changes (id INTEGER PRIMARY KEY, transfer, account, amount, gone);
CREATE TABLE IF NOT EXISTS balances (account TEXT PRIMARY KEY, balance);
"""


def balances(spark: SparkSession, database: str) -> ts.OutputRequest:
    """Declare the output: transfers that come, change and go, summed by account."""
    transfers = ts.table(from_sqlite(spark, database, "changes", SCHEMA), key="transfer")
    table = transfers.group_by("account").agg(balance=ts.functions.sum("amount"))
    return table.to(SqliteTable(database, "balances"))


def run(spark: SparkSession, directory: Path) -> dict[str, int]:
    """Work off what is new, and return the table."""
    database = str(directory / "accounts.db")
    query = ts.start(
        balances(spark, database), checkpoint=directory / "checkpoint", trigger={"availableNow": True}
    )
    query.awaitTermination()
    with closing(sqlite3.connect(database)) as found:
        return dict(found.execute("SELECT account, balance FROM balances ORDER BY account"))


def add(directory: Path, *changes: tuple[int, str, int, int]) -> None:
    """Append changes: a transfer, its account, its amount, and 1 if it is gone."""
    with closing(sqlite3.connect(directory / "accounts.db")) as database, database:
        database.executescript(TABLES)
        database.executemany(
            "INSERT INTO changes (transfer, account, amount, gone) VALUES (?, ?, ?, ?)", changes
        )


def main() -> None:
    """Run twice, with changes in between."""
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    spark = ts.configure(SparkSession.builder.master("local[2]").getOrCreate())
    add(directory, (1, "ann", 100, 0), (2, "bob", 70, 0), (3, "ann", -30, 0))
    print(run(spark, directory))
    add(directory, (2, "bob", 0, 1), (3, "ann", -50, 0))
    print(run(spark, directory))


if __name__ == "__main__":
    main()
