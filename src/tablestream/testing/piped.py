"""Records that a test pipes into a source: rows of the user's frame, with what their system would add to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.connectors.files import noted
from tablestream.connectors.kafka import KAFKA
from tablestream.connectors.sink import literal, quoted
from tablestream.errors import ArgumentError, PlanError
from tablestream.spark.columns import sql_type
from tablestream.spark.sources import SourceFrame
from tablestream.testing.values import GivenRows, frame_of_table, named, typed
from tablestream.topology.nodes import Source

_ARRIVAL, _FILE = "__arrival", "_metadata"


@dataclass
class Piped:
    """The records of one source: those that wait for the next micro-batch, and how many there were."""

    spark: SparkSession
    name: str
    source: Source
    waiting: list[pa.Table] = field(default_factory=list)
    arrived: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be piped."""
        if "__capture" in self._frame.frame.columns:
            raise ArgumentError(
                f"'{self.name}' is captured from a database, and a Driver has no records of its connector.",
                hint="Test what comes after it: give the topology a table of testing.frame(...) in its place.",
                operator=self.name,
                where=self.source.where,
            )

    def moved(self, other: Piped) -> Piped:
        """The same records for the source of another plan."""
        return Piped(self.spark, self.name, other.source, list(self.waiting), self.arrived)

    def add(self, rows: GivenRows) -> None:
        """Let rows wait for the next micro-batch."""
        own = (
            self._given.names
            if self._kafka is None
            else [one for one in self._given.names if one != self._kafka]
        )
        names, given = named(rows, own)
        table = typed(self.spark, self._schema, names, given)
        places = pa.array(range(self.arrived, self.arrived + len(given)), pa.int64())
        self.waiting.append(table.append_column(_ARRIVAL, places))
        self.arrived += len(given)

    def taken(self, now: str) -> DataFrame:
        """Return the waiting records as rows of the user's frame, in their order; `now` is the wall clock as SQL."""
        schema = T.StructType([*self._schema, T.StructField(_ARRIVAL, T.LongType())])
        rows = frame_of_table(self.spark, pa.concat_tables(self.waiting), schema)
        columns = [
            f"{self._of_kafka(now)} AS {quoted(one.name)}" if one.name == self._kafka else quoted(one.name)
            for one in self._given
        ]
        if _FILE not in self._given.names:
            columns.append(_of_file(self.name))
        return rows.selectExpr(*columns)

    def check(self, now: str) -> None:
        """Raise `PlanError` if the columns of the source cannot be evaluated for the waiting records."""
        try:
            self._frame.described(self.taken(now), F.expr(now))
        except AnalysisException as error:
            raise PlanError(
                f"The columns of '{self.name}' cannot be evaluated for piped rows: {str(error).splitlines()[0]}",
                hint='Name the columns of its frame, as in F.col("price") or "price", instead of df["price"].',
                operator=self.name,
                where=self.source.where,
            ) from error

    @property
    def _frame(self) -> SourceFrame:
        assert isinstance(self.source.frame, SourceFrame)  # noqa: S101 - the handles make it
        return self.source.frame

    @cached_property
    def _given(self) -> T.StructType:
        """The columns of the user's frame."""
        return self._frame.given.schema

    @cached_property
    def _kafka(self) -> str | None:
        """The column with what Kafka knows of a record, if the frame is from Kafka."""
        found = noted(self._given, KAFKA)
        return None if found is None else found[0]

    @cached_property
    def _schema(self) -> T.StructType:
        """The columns that a test may give: those of the frame, and the parts of ``_kafka`` in its place."""
        own = [T.StructField(one.name, one.dataType) for one in self._given if one.name != self._kafka]
        return T.StructType(
            own + [T.StructField(f"{self._kafka}.{one.name}", one.dataType) for one in self._parts]
        )

    @cached_property
    def _parts(self) -> Sequence[T.StructField]:
        if self._kafka is None:
            return ()
        kind = self._given[self._kafka].dataType
        assert isinstance(kind, T.StructType)  # noqa: S101 - `from_kafka` made it
        return kind.fields

    def _of_kafka(self, now: str) -> str:
        """What Kafka knows of a record, where the test does not say it, as SQL."""
        keys = {one.name for one in self.source.key}
        value = [one.name for one in self._given if one.name not in keys | {self._kafka}]
        usual = {
            "topic": literal(self.name),
            "partition": "0",
            "offset": _ARRIVAL,
            "timestamp": now,
            "tombstone": " AND ".join(f"{quoted(name)} IS NULL" for name in value) or "false",
        }
        parts = []
        for one in self._parts:
            said = quoted(f"{self._kafka}.{one.name}")
            whole = f"coalesce({said}, {usual[one.name]})" if one.name in usual else said
            parts.append(f"CAST({whole} AS {sql_type(one.dataType)}) AS {quoted(one.name)}")
        return f"struct({', '.join(parts)})"


def _of_file(name: str) -> str:
    """The place of a record in a file, as SQL: its source is one file, which was never modified."""
    return (
        f"struct({literal(name)} AS file_path, timestamp_micros(0L) AS file_modification_time,"
        f" 0L AS file_block_start, {_ARRIVAL} AS row_index) AS {_FILE}"
    )
