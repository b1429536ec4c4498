"""Records that a test pipes into a source: rows of the user's frame, with what their system would add to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import and_

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.connectors.files import noted
from tablestream.connectors.kafka import KAFKA
from tablestream.errors import ArgumentError, PlanError
from tablestream.spark.columns import quoted
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
        """Return the waiting records as the frame of the source, in their order; `now` is the wall clock as SQL."""
        schema = T.StructType([*self._schema, T.StructField(_ARRIVAL, T.LongType())])
        rows = frame_of_table(self.spark, pa.concat_tables(self.waiting), schema)
        columns = [
            self._of_kafka(now).alias(one.name) if one.name == self._kafka else quoted(one.name)
            for one in self._given
        ]
        if _FILE not in self._given.names:
            columns.append(_of_file(self.name))
        try:
            return self._frame.described(rows.select(*columns), F.expr(now))
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

    def _of_kafka(self, now: str) -> Column:
        """What Kafka knows of a record, where the test does not say it."""
        keys = {one.name for one in self.source.key}
        value = [one.name for one in self._given if one.name not in keys | {self._kafka}]
        empty = reduce(and_, [quoted(name).isNull() for name in value]) if value else F.lit(False)
        usual = {
            "topic": F.lit(self.name),
            "partition": F.lit(0),
            "offset": F.col(_ARRIVAL),
            "timestamp": F.expr(now),
            "tombstone": empty,
        }
        parts = []
        for one in self._parts:
            said = F.col(f"`{self._kafka}.{one.name}`")
            whole = F.coalesce(said, usual[one.name]) if one.name in usual else said
            parts.append(whole.cast(one.dataType).alias(one.name))
        return F.struct(*parts)


def _of_file(name: str) -> Column:
    """The place of a record in a file: its source is one file, which was never modified. As SQL it is one call."""
    return F.expr(
        f"named_struct('file_path', '{_sql(name)}', 'file_modification_time', timestamp_micros(0L),"
        f" 'file_block_start', 0L, 'row_index', {_ARRIVAL}) AS {_FILE}"
    )


def _sql(text: str) -> str:
    """The inside of a SQL text."""
    return text.replace("\\", "\\\\").replace("'", "\\'")
