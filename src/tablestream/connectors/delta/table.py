"""What a Delta sink does with a table, whoever does it: Spark or delta-rs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyspark.sql import Window
from pyspark.sql import functions as F

from tablestream.connectors.delta.marks import History
from tablestream.connectors.sink import CHANGE_TYPE, ORDER, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from tablestream.connectors.delta.marks import DeltaMark

RANK = "__rank"  # no column of an output begins like this


class Table(History, Protocol):
    """A table as it is now. Every method that writes makes one commit, which has the mark."""

    @property
    def columns(self) -> StructType | None:
        """The columns; None if there is no table."""

    def is_empty(self) -> bool:
        """Whether it has no rows."""

    def has_twice(self, key_columns: Sequence[str]) -> bool:
        """Whether a key has several rows."""

    def append(self, rows: DataFrame, said: DeltaMark) -> None:
        """Append rows, and create the table if there is none. A mark that is whole replaces all rows."""

    def mark(self, columns: StructType, said: DeltaMark) -> None:
        """Commit a mark alone; a table that is not there is created with the columns."""

    def merge(self, changes: DataFrame, key_columns: Sequence[str], said: DeltaMark) -> None:
        """Bring the table to the state after the last change of each key. A mark that is whole deletes other rows."""

    def clean(self, query: str) -> None:
        """Delete what a process of a query left beside the table that ended before it could do so itself."""

    def take_back(self, number: int, said: DeltaMark) -> None:
        """Delete a log's micro-batches from a number on. This may be a commit of its own, before the mark's."""


def last_changes(changes: DataFrame, key_columns: Sequence[str]) -> DataFrame:
    """Keep the last change per key: MERGE refuses two rows for one."""
    by_key = Window.partitionBy(*(F.col(quoted(name)) for name in key_columns)).orderBy(F.col(ORDER).desc())
    after = changes.filter(F.col(CHANGE_TYPE) != "update_preimage")
    ranked = after.withColumn(RANK, F.row_number().over(by_key))
    return ranked.filter(F.col(RANK) == 1).drop(RANK)
