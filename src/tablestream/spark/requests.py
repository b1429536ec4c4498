"""What a query writes, as users ask for it: an output, its sink and its name; and what is checked of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from tablestream.arguments.words import checked_name
from tablestream.base.calling import user_line
from tablestream.connectors.sink import RecordSink, Sink, TypedSink
from tablestream.errors import ArgumentError, MixedPlanError, TablestreamError
from tablestream.planner.physical_plan import Output
from tablestream.spark.columns import schema_of
from tablestream.spark.options import Emit, Tombstones, output_of
from tablestream.spark.staging import REJECTED_COLUMNS
from tablestream.topology.graph import history_of
from tablestream.topology.nodes import Node
from tablestream.topology.nulls import nullable_key


@dataclass(frozen=True, repr=False)
class OutputRequest:
    """An output of a query: what it emits, its sink and its name; see `Table.to`."""

    output: Output
    spark: SparkSession
    sink: Sink
    name: str

    def __repr__(self) -> str:
        return f"Output '{self.name}' to {self.sink.target}"


def request(
    node: Node,
    spark: SparkSession,
    sink: Sink,
    name: str,
    *,
    emit: Emit | None = None,
    before: bool = False,
    tombstones: Tombstones = "all",
) -> OutputRequest:
    """Describe an output. A sink that needs only final changes gets only those."""
    if emit == "every" and sink.needs_final and history_of(node) is not None:
        raise ArgumentError(
            f"{sink.target} keeps one row per key, and any change of a versioned table may be late.",
            hint='Omit emit=: emit="final" emits the latest.',
            operator=name,
            where=user_line(),
        )
    chosen: Emit = emit or ("final" if sink.needs_final else "every")
    is_numbered = isinstance(sink, RecordSink)
    output = output_of(node, chosen, before, tombstones, latest_only=sink.needs_final, numbered=is_numbered)
    return OutputRequest(output, spark, sink, name)


def check_requests(outputs: Sequence[Any]) -> None:
    """Raise unless there is at least one output and nothing else."""
    others = [one for one in outputs if not isinstance(one, OutputRequest)]
    if others or not outputs:
        listed = bool(others) and isinstance(others[0], list | tuple)
        raise ArgumentError(
            f"A {type(others[0]).__name__} is not an output." if others else "A query needs an output.",
            hint="Pass its outputs one by one: with a star, as in ts.start(*outputs)."
            if listed
            else 'Pass what table.to(sink) returns, such as table.to(ts.to_files("out")).',
            where=user_line(),
        )


def check_session(outputs: Sequence[OutputRequest], name: str | None) -> None:
    """Refuse outputs of several sessions, what is no name, and the name of a query that runs in the session."""
    spark = outputs[0].spark
    if any(output.spark is not spark for output in outputs):
        raise MixedPlanError(
            "The tables of one query belong to different Spark sessions.",
            hint="Create all of them from frames of one session.",
            where=user_line(),
        )
    if checked_name(name) is not None and any(one.name == name for one in spark.streams.active):
        raise ArgumentError(
            f"A query of the name {name!r} runs in this session.",
            hint="Stop it first, or give another name=.",
            where=user_line(),
        )


@contextmanager
def in_one_sentence(place: str, where: str) -> Iterator[None]:
    """Make one sentence of Spark's error for a place that it cannot read or write: PySpark passes on what Java says."""
    try:
        yield
    except TablestreamError:
        raise
    except (PySparkException, Py4JJavaError, OSError) as error:
        lines = [line.strip(" :") for line in str(error).split("\n") if line.strip()]
        said = next(
            (line for line in lines if not line.startswith("An error occurred")), type(error).__name__
        )
        raise ArgumentError(
            f"{place} cannot be read or written: {said}",
            hint="Give a directory that Spark can write. Another file system needs its jar and settings in Spark.",
            where=where,
        ) from error


def check_sink(one: OutputRequest) -> None:
    """Let a sink refuse the session and the columns."""
    key, value = types_of(one.output)
    one.sink.check(one.spark, [*key.names, *value.names])
    if isinstance(one.sink, TypedSink):
        one.sink.check_types(one.spark, StructType([*key.fields, *value.fields]))


def types_of(output: Output) -> tuple[StructType, StructType]:
    """The key and value columns of an output's changes, without those that the library adds."""
    if output.rejected:
        return StructType(), REJECTED_COLUMNS
    key = StructType(
        [
            StructField(one.name, one.dataType, can_be_null)
            for one, can_be_null in zip(schema_of(output.node.key), nullable_key(output.node), strict=True)
        ]
    )
    return key, schema_of(output.node.value)


def keyed(one: OutputRequest) -> Sink:
    """The sink with the key of its changes. Rejected records have none."""
    key = [column.name for column in one.output.node.key]
    return one.sink if one.output.rejected else one.sink.keyed_by(key)


def shaped(one: OutputRequest) -> Sink:
    """The sink with the columns of its changes, if it makes records."""
    if not isinstance(one.sink, RecordSink):
        return one.sink
    key, value = types_of(one.output)
    return one.sink.shaped(key, value, records=one.output.rejected or one.output.node.is_stream)
