"""A source: the rows of a SQLite table with a growing id, as a stream. Spark's own protocol for sources in Python.

A change is a row of the table, and is never changed itself; `id` says which changes were read. `from_sqlite` says the
same to the library: `id` orders the changes, and where `gone` is 1 they only delete.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

import tablestream as ts

ORIGIN = ts.Origin(partition=("{}.log",), position="{}.id", tombstone="{}.gone = 1", continues=True)


def from_sqlite(spark: SparkSession, database: str, table: str, schema: str) -> DataFrame:
    """Read changes; the columns of `schema` that are no part of a row are `id` and `gone`."""
    spark.dataSource.register(SqliteRows)
    options = {"database": database, "table": table}
    rows = spark.readStream.format("sqlite_rows").schema(schema).options(**options).load()
    known = F.struct(F.lit(table).alias("log"), "id", "gone")
    return ts.with_origin(rows.withColumn("_sqlite", known).drop("id", "gone"), "_sqlite", ORIGIN)


class SqliteRows(DataSource):
    """``spark.readStream.format("sqlite_rows")`` with the options ``database`` and ``table``, and a schema."""

    @classmethod
    def name(cls) -> str:
        return "sqlite_rows"

    def simpleStreamReader(self, schema: StructType) -> SqliteReader:  # noqa: N802 - Spark's name
        return SqliteReader(self.options["database"], self.options["table"], schema.names)


class SqliteReader(SimpleDataSourceStreamReader):
    """Reads the rows behind an offset, the id of the last row that was read."""

    def __init__(self, database: str, table: str, columns: list[str]) -> None:
        names = ", ".join(f'"{name}"' for name in columns)
        self._database = database
        self._rows = f'SELECT {names} FROM "{table}" WHERE id > ? AND id <= ? ORDER BY id'
        self._last = f'SELECT coalesce(max(id), 0) FROM "{table}"'

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"id": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[Any, ...]], dict[str, int]]:
        with closing(sqlite3.connect(self._database)) as database:
            end = {"id": max(start["id"], *database.execute(self._last).fetchone())}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[Any, ...]]:  # noqa: N802
        with closing(sqlite3.connect(self._database)) as database:
            return iter(database.execute(self._rows, (start["id"], end["id"])).fetchall())
