"""Infers ordering, event time, tombstones and malformed rows from a DataFrame.

==============================  ===========================================  ========================  ==============
frame                           source partition, position                   time                      tombstones
==============================  ===========================================  ========================  ==============
of ``tablestream.with_origin``  as it says                                   as it says                as it says
of ``tablestream.from_kafka``   topic and partition, offset                  Kafka's, or the change's  null values
of Spark's Kafka source         topic and partition, offset                  Kafka's
files                           modification time, path and block, row       that of the micro-batch
of ``from_change_feed``         none; by version                             that of the commit        deletes
any other                       the Spark task, counted                      that of the micro-batch
==============================  ===========================================  ========================  ==============
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from tablestream.connectors.sink import quoted
from tablestream.connectors.source import CORRUPT_RECORD, UNREADABLE, Origin, noted_origin
from tablestream.spark.analysis import unlogged

_FILE = "_metadata.file_path"
#: The path of a file without the escapes of URIs, by which it sorts as its name does.
_PATH = (
    f"CASE WHEN contains({_FILE}, '%') THEN coalesce(try_url_decode(replace({_FILE}, '+', '%2B')), {_FILE})"
    f" ELSE {_FILE} END"
)
_MODIFIED = "unix_micros(_metadata.file_modification_time)"


def origin_of(df: DataFrame) -> Origin:
    """Find the source of a frame's rows.

    In a frame of another reader, Spark's column for malformed rows marks such rows. They end the query, because they
    would otherwise be rows of nulls.
    """
    said = noted_origin(df.schema)
    if said is None and CORRUPT_RECORD in df.columns:
        said = Origin(malformed=quoted(CORRUPT_RECORD), remedy=UNREADABLE, column=CORRUPT_RECORD)
    said = said or Origin(remedy=UNREADABLE)
    if said.partition is not None:
        return said
    return _of_kafka(df, said) if _is_kafka(df) else _of_files(df, said)


def _of_kafka(df: DataFrame, said: Origin) -> Origin:
    """The places that Spark's Kafka source knows."""
    time = "`timestamp`" if "timestamp" in df.columns else None
    is_time = time is not None and isinstance(df.schema["timestamp"].dataType, T.TimestampType)
    return replace(
        said,
        partition=("`topic`", "CAST(`partition` AS bigint)"),
        position="`offset`",
        time=said.time or time,
        written_at=said.written_at or (f"unix_micros({time})" if is_time else None),
        continues=True,
    )


def _is_kafka(df: DataFrame) -> bool:
    kinds = {one.name: one.dataType.simpleString() for one in df.schema}
    return [kinds.get(name) for name in ("topic", "partition", "offset")] == ["string", "int", "bigint"]


def _of_files(df: DataFrame, said: Origin) -> Origin:
    """The places that Spark knows of rows of files; of no others."""
    metadata = _metadata(df)
    if "file_path" not in metadata:
        return replace(said, partition=())
    return replace(
        said,
        partition=(_MODIFIED, _PATH, "_metadata.file_block_start"),
        position="_metadata.row_index" if "row_index" in metadata else None,
        written_at=said.written_at or _MODIFIED,
    )


def _metadata(df: DataFrame) -> list[str]:
    """Spark's metadata of the file that a row comes from; empty for other sources."""
    try:
        with unlogged():
            kind = df.select("_metadata").schema[0].dataType
    except AnalysisException:
        return []
    return kind.names if isinstance(kind, T.StructType) else []
