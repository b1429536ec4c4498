"""A sink: a SQLite table that has one row per key. The changes of a micro-batch and its mark are one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import tablestream as ts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MARKS = "CREATE TABLE IF NOT EXISTS marks (target TEXT PRIMARY KEY, query TEXT NOT NULL, micro_batch INTEGER NOT NULL)"
MARK = (
    "INSERT INTO marks VALUES (?, ?, ?) ON CONFLICT (target) DO UPDATE SET micro_batch = excluded.micro_batch"
)


class WrongQueryError(RuntimeError):
    """The table has the rows of another query, which started from another checkpoint."""


@dataclass(frozen=True)
class SqliteTable:
    """An implementation of `tablestream.Sink`. The table exists, and its primary key is the key of the changes."""

    database: str
    table: str
    key_columns: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        return f"sqlite {self.database} {self.table}"

    @property
    def needs_final(self) -> bool:
        return True  # a row that changes twice in a micro-batch is written once

    def keyed_by(self, names: Sequence[str]) -> Self:
        return replace(self, key_columns=tuple(names))

    def check(self, spark: SparkSession, columns: Sequence[str]) -> None:  # noqa: ARG002 - the contract's
        with closing(sqlite3.connect(self.database)) as database:
            found = {row[1] for row in database.execute(f'PRAGMA table_info("{self.table}")')}
        missing = sorted(set(columns) - found)
        if missing:
            raise ts.errors.ArgumentError(
                f"{self.target} lacks the columns {', '.join(missing)}.", hint="Create them."
            )

    def write(self, changes: DataFrame, micro_batch_id: int, query_id: str, output_name: str) -> None:  # noqa: ARG002
        columns = [name for name in changes.columns if not name.startswith("_")]
        rows = changes.select("_change_type", *columns).collect()  # in order per key
        names, values = ", ".join(f'"{name}"' for name in columns), ", ".join("?" * len(columns))
        upsert = f'INSERT OR REPLACE INTO "{self.table}" ({names}) VALUES ({values})'
        is_key = " AND ".join(f'"{name}" IS ?' for name in self.key_columns)
        delete = f'DELETE FROM "{self.table}" WHERE {is_key}'
        with closing(sqlite3.connect(self.database)) as database, database:
            if self._has(database, query_id, micro_batch_id):
                return
            for row in rows:
                if row["_change_type"] == "delete":
                    database.execute(delete, [row[name] for name in self.key_columns])
                else:
                    database.execute(upsert, [row[name] for name in columns])
            database.execute(MARK, (self.target, query_id, micro_batch_id))

    def _has(self, database: sqlite3.Connection, query_id: str, micro_batch_id: int) -> bool:
        """Whether the table has the micro-batch already."""
        database.execute(MARKS)
        mark = database.execute(
            "SELECT query, micro_batch FROM marks WHERE target = ?", (self.target,)
        ).fetchone()
        if mark is not None and mark[0] != query_id:
            raise WrongQueryError(f"{self.target} has the rows of another query: use a new table.")
        return mark is not None and mark[1] >= micro_batch_id
