"""Records that a test pipes into a source: rows of the user's frame, with what their system would add to them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.connectors.sink import literal, quoted
from tablestream.errors import ArgumentError, PlanError
from tablestream.spark.columns import sql_type
from tablestream.spark.row_frames import frame_of_table
from tablestream.spark.sources import SourceFrame, frame_of_source
from tablestream.testing.values import GivenRows, named, typed
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
        if self._frame.is_captured:
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
        own = [one for one in self._given.names if one != self._known]
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
            f"{self._made(now)} AS {quoted(one.name)}" if one.name == self._known else quoted(one.name)
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
        return frame_of_source(self.source)

    @cached_property
    def _given(self) -> T.StructType:
        """The columns of the user's frame."""
        return self._frame.given.schema

    @cached_property
    def _known(self) -> str | None:
        """The struct in which the source says where a row comes from, if it has one."""
        column = self._frame.origin.column
        is_struct = column is not None and isinstance(self._given[column].dataType, T.StructType)
        return column if is_struct else None

    @cached_property
    def _schema(self) -> T.StructType:
        """The columns that a test may give: those of the frame, and the fields of that struct in its place."""
        own = [T.StructField(one.name, one.dataType) for one in self._given if one.name != self._known]
        return T.StructType(
            own + [T.StructField(f"{self._known}.{one.name}", one.dataType) for one in self._parts]
        )

    @cached_property
    def _parts(self) -> Sequence[T.StructField]:
        kind = None if self._known is None else self._given[self._known].dataType
        return kind.fields if isinstance(kind, T.StructType) else ()

    def _made(self, now: str) -> str:
        """That struct as SQL: what the test says, and otherwise one source partition, with the records in order."""
        keys = {one.name for one in self.source.key}
        value = [one.name for one in self._given if one.name not in keys | {self._known}]
        parts = []
        for one in self._parts:
            said = quoted(f"{self._known}.{one.name}")
            usual = self._usual(one, now, value)
            whole = said if usual is None else f"coalesce({said}, {usual})"
            parts.append(f"CAST({whole} AS {sql_type(one.dataType)}) AS {quoted(one.name)}")
        return f"struct({', '.join(parts)})"

    def _usual(self, field: T.StructField, now: str, value: Sequence[str]) -> str | None:
        """What a field is that the source reads by its name, as SQL."""
        origin = self._frame.origin
        usual = {
            origin.position: _ARRIVAL,
            origin.time: now,
            origin.tombstone: " AND ".join(f"{quoted(name)} IS NULL" for name in value) or "false",
        }
        usual |= dict.fromkeys(
            origin.partition or (), literal(self.name) if isinstance(field.dataType, T.StringType) else "0"
        )
        its = re.compile(rf"\.`?{re.escape(field.name)}`?\b")
        return next((sql for text, sql in usual.items() if text is not None and its.search(text)), None)


def _of_file(name: str) -> str:
    """The place of a record in a file, as SQL: its source is one file, which was never modified."""
    return (
        f"struct({literal(name)} AS file_path, timestamp_micros(0L) AS file_modification_time,"
        f" 0L AS file_block_start, {_ARRIVAL} AS row_index) AS {_FILE}"
    )
