"""The judge of maintained results: DuckDB, over the final tables of the logs and over the result's last rows.

Both are read from Parquet by DuckDB itself, so that no part of Spark takes part in the comparison.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class TypesDifferError(Exception):
    """A column has another type than DuckDB gives it, so that equal values could be rounded."""


def opened(folder: Path, keys: Mapping[str, Sequence[str]]) -> duckdb.DuckDBPyConnection:
    """Open a database with the final table of each log, under the log's name.

    Parameters
    ----------
    folder
        Holds a folder of Parquet files for each log, with columns ``deleted`` and ``changed_at``.
    keys
        The key of each log.
    """
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    for name, key in keys.items():
        last = _last(_parquet(folder / name), key, "changed_at")
        rows = f"SELECT * EXCLUDE (changed_at, deleted) FROM {last} WHERE NOT deleted"
        database.execute(f"CREATE TABLE {name} AS {rows}")
    return database


def versions_of(database: duckdb.DuckDBPyConnection, folder: Path, name: str) -> None:
    """Add all versions of a log's rows, as ``<name>_versions``; a version that deletes its row is one of them."""
    database.execute(f"CREATE TABLE {name}_versions AS SELECT * FROM {_parquet(folder / name)}")


def last_rows(changes: Path, key: Sequence[str]) -> str:
    """Return the SQL of what a log of changes leaves: the last row of each key, if it is not deleted."""
    return f"SELECT * FROM {_last(_parquet(changes), key, '_order')} WHERE _change_type = 'upsert'"


def differing_rows(database: duckdb.DuckDBPyConnection, found: str, expected: str) -> tuple[int, int]:
    """Compare the rows that SQL found with those that are expected, in the columns of the latter.

    Returns
    -------
    tuple of int
        How many rows were found, and how many rows one side has more often than the other.

    Raises
    ------
    TypesDifferError
        A column has another type on one side.
    """
    query = database.sql(expected)
    columns = ", ".join(query.columns)
    found = f"SELECT {columns} FROM ({found})"
    types = database.sql(found).types
    if list(types) != list(query.types):
        raise TypesDifferError(f"{columns}: {types}, but {query.types} are expected")
    pairs = (found, expected), (expected, found)
    surplus = [_count(database, f"({one}) EXCEPT ALL ({other})") for one, other in pairs]
    return _count(database, found), sum(surplus)


def _count(database: duckdb.DuckDBPyConnection, sql: str) -> int:
    ((rows,),) = database.sql(f"SELECT count(*) FROM ({sql})").fetchall()
    return int(rows)


def _parquet(folder: Path) -> str:
    return f"read_parquet('{folder}/**/*.parquet')"


def _last(rows: str, key: Sequence[str], order: str) -> str:
    """The last row of each key."""
    keys = ", ".join(key)
    return f"(SELECT * FROM {rows} QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY {order} DESC) = 1)"
