"""Outputs that the workers write themselves: which they are, and what the workers compute for them.

An output is staged if its sink lets the workers write. If its columns need no expression, its rows do not come to Spark
at all: they are columns of the messages, in another order or under other names, null where there is no row. The texts
that say so are the same that Spark would get. They have so few words that Polars reads them with the same meaning. If
there are others, Spark computes the columns, and the workers write the rows behind it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyspark.sql import types as T

from tablestream.connectors.shipping import has_context
from tablestream.connectors.sink import CHANGE_TYPE, LATEST, TIMESTAMP, StagedSink
from tablestream.connectors.sink import ORDER as PLACE
from tablestream.connectors.spark_types import arrow_schema
from tablestream.spark.build import Builder
from tablestream.spark.columns import Scope, schema_of
from tablestream.spark.exchange import SparkExchange
from tablestream.spark.round_worker import Settings
from tablestream.spark.unpacking import ORDER, Shown, StagedPort, StagedRows
from tablestream.state.positions import frame_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

    from tablestream.connectors.sink import Sink
    from tablestream.planner.physical_plan import Ending, PhysicalPlan
    from tablestream.spark.layout import Layout
    from tablestream.topology.nodes import Field

#: The words and signs of texts that mean the same to Spark and to Polars: names of unpacked columns, and conditions.
_KNOWN = re.compile(
    r"(?:__p\d+_\w+|CASE|WHEN|THEN|ELSE|END|AND|OR|coalesce|false|'upsert'|'delete'|[(),\s])*"
)


#: The columns of `Table.rejected`.
REJECTED_COLUMNS = (
    T.StructType()
    .add("operator", "string")
    .add("reason", "string")
    .add("source", "string")
    .add("timestamp", T.TimestampType())
    .add("key", "string")
    .add("record", "string")
)
_CONNECT = "under Spark Connect, workers do not know the number of the micro-batch"
_LINES = pa.schema([("line", pa.string())])


@dataclass(frozen=True)
class Staged:
    """The outputs of a query that the workers write."""

    outputs: Mapping[str, StagedPort | StagedRows] = field(default_factory=dict)
    """By their names: those whose messages they write, and those whose columns Spark computes before. None of the
    latter, if Spark writes any output itself: then it keeps all rows."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why the others come from Spark's rows, or what Spark does before, by their names."""
    first: int = 0
    """The number that targets give to the first micro-batch of the checkpoint."""

    @classmethod
    def of(cls, spark: SparkSession, plan: PhysicalPlan, sinks: Mapping[str, Sink]) -> Staged:
        """Look at the outputs of a plan, whose sinks are in the same order."""
        found = {
            name: _staged(spark, plan, ending, sink)
            for ending, (name, sink) in zip(plan.endings, sinks.items(), strict=True)
        }
        reasons = {name: why for name, (_, why) in found.items() if why}
        outputs = {name: one for name, (one, _) in found.items() if one is not None}
        if len(outputs) < len(found):
            for name in [name for name, one in outputs.items() if isinstance(one, StagedRows)]:
                reasons[name] = "it has columns that Spark computes, beside an output from Spark's rows"
                del outputs[name]
        return cls(outputs, reasons)

    @property
    def ports(self) -> tuple[StagedPort, ...]:
        """Those whose messages the workers write."""
        return tuple(one for one in self.outputs.values() if isinstance(one, StagedPort))

    @property
    def rows(self) -> tuple[StagedRows, ...]:
        """Those whose columns Spark computes before."""
        return tuple(one for one in self.outputs.values() if isinstance(one, StagedRows))

    def way(self, name: str) -> str:
        """Say who writes an output, for people."""
        if name not in self.outputs:
            return f"from Spark's rows, since {self.reasons[name]}"
        return "by the workers" + (f", after {self.reasons[name]}" if name in self.reasons else "")

    @property
    def columns(self) -> int:
        """How many columns the rows have in which Spark computes."""
        return sum(len(one.fields) for one in self.rows)


NOTHING_STAGED = Staged()


def _staged(
    spark: SparkSession, plan: PhysicalPlan, ending: Ending, sink: Sink
) -> tuple[StagedPort | StagedRows | None, str]:
    """Find out how one output is staged, if it is, and why Spark does what it does for it."""
    if not isinstance(sink, StagedSink):
        return None, "its sink takes nothing else"
    if ending.before or not has_context(spark):
        return None, "a change and the row before it are two rows" if ending.before else _CONNECT
    builder = Builder(replace(plan, endings=(ending,)), SparkExchange(Settings("", 0)))
    layout = builder.ending_layout(ending)
    types = _types(ending, layout)
    schema = arrow_schema(types)
    stage = sink.stage(spark, types, schema)
    if isinstance(stage, str):
        return None, stage
    number = ending.port.number
    if stage.line(dict.fromkeys(types.names, "NULL")) is not None:
        return StagedRows(number, _LINES, stage), "Spark has made its lines"
    texts = None if ending.rejected else _texts(builder, ending)
    if texts is not None and all(map(_KNOWN.fullmatch, texts)):
        shown = Shown(layout.opened(number), tuple(zip(types.names, texts, strict=True)), schema)
        if _fits(shown, schema):
            return StagedPort(shown, stage), ""
    return StagedRows(number, schema, stage), "Spark has computed its columns"


def _types(ending: Ending, layout: Layout) -> T.StructType:
    """The columns of the changes, as `Table.changes` and `Table.rejected` have them."""
    place = T.StructField(PLACE, next(one.dataType for one in layout.plain if one.name == ORDER))
    if ending.rejected:
        return T.StructType([*REJECTED_COLUMNS.fields, place])
    latest = [T.StructField(LATEST, T.BooleanType())] if ending.tells_latest else []
    added = [T.StructField(CHANGE_TYPE, T.StringType()), T.StructField(TIMESTAMP, T.TimestampType()), *latest]
    fields = schema_of([*ending.node.key, *ending.node.value]).fields
    return T.StructType([*fields, *added, place])


def _texts(builder: Builder[DataFrame], ending: Ending) -> list[str] | None:
    """What the columns are, as SQL; None if Spark has to compute one."""
    try:
        return list(builder.columns_in(_NoFrame(cast("DataFrame", None)), ending).values())
    except _NeedsSpark:
        return None


def _fits(shown: Shown, schema: pa.Schema) -> bool:
    """Whether the columns have their types: keys may have the wider ones in which they are compared."""
    made = shown.of(frame_of(shown.opened.fields.empty_table())).schema
    wanted = frame_of(schema.empty_table()).schema
    return all(made[name] == kind for name, kind in wanted.items() if name != TIMESTAMP)


class _NeedsSpark(Exception):  # noqa: N818 - an answer
    """A column is not one that arrives."""


class _NoFrame(Scope):
    """A scope in which nothing can be computed."""

    def add(self, columns: Mapping[str, Column], beside: dict[str, str]) -> None:  # noqa: ARG002 (Scope's)
        """Refuse columns."""
        raise _NeedsSpark

    def _has_type(self, made: Field) -> bool:  # noqa: ARG002 (the same)
        """Take columns as they are: `_fits` compares the types."""
        return True
