"""Keep the rows that tables start with in the checkpoint, and read them once, as streams.

Spark has no union of a batch and a streaming data frame. So the rows are written before the query starts, and read as
a file stream, which has all its files in the first micro-batch:

==============================================  ===========================================================
below the checkpoint
==============================================  ===========================================================
``tablestream-bootstrap/00-<table>/rows``       the rows as Parquet, with their numbers in ``__row``. Spark
                                                deletes the files when the second micro-batch begins
==============================================  ===========================================================

A start writes them as long as no query was started in the checkpoint, and never afterwards: the rows belong to the
place in the log from which that query began.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_

import polars as pl
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.base.calling import user_line
from tablestream.base.data_text import cut_text
from tablestream.connectors.spark_place import no_pattern
from tablestream.errors import ArgumentError
from tablestream.planner.physical_plan import PhysicalPlan
from tablestream.spark.bootstrap_frame import Bootstrap
from tablestream.spark.columns import normalised, spark_type
from tablestream.spark.session import exact_parquet
from tablestream.spark.sources import as_json, frame_of_source, key_fields, value_fields
from tablestream.topology.nodes import Field, Source

_DIRECTORY = "tablestream-bootstrap"
#: At most so many rows in a file, which has one row group: one task reads it, and large files would leave cores idle.
#: Without dictionaries: those of keys and ``__row`` would be filled and thrown away, half of the time of the writing.
_WRITING = {"maxRecordsPerFile": "250000", "parquet.enable.dictionary": "false"}
#: ``__row`` has the writing task above these bits. With its 16 bits it fits into a hop of the order.
_ROW_BITS = 27
#: As `monotonically_increasing_id` has the task.
_TASK_BITS = 33
_MOST_TASK_BITS = 16
_TOO_MANY = "bootstrap= has more than 134,217,728 rows in a partition, or 65,536 partitions: repartition it."
#: The most hashes of keys that the driver compares at a time: 64 MiB.
_HASHES_TOGETHER = 1 << 23
_HASHES_AT_ONCE = 1000
_DUPLICATES_SHOWN = 3


def written_once(
    spark: SparkSession, checkpoint: str, plan: PhysicalPlan, *, started: bool
) -> dict[Source, DataFrame]:
    """Write the bootstraps of a plan into its checkpoint, unless a query was started there; read them as streams."""
    if plan.bootstrapped:
        check_plain(checkpoint)
    streams = {}
    for source, name in places(plan.bootstrapped).items():
        path, bootstrap = f"{checkpoint}/{name}", bootstrap_of(source)
        if not started:
            write_rows(spark, path, bootstrap.frame)
            check_keys(spark, path, source, bootstrap)
        streams[source] = stream_of(spark, path, source, bootstrap)
    return streams


def places(sources: Sequence[Source]) -> dict[Source, str]:
    """Return where the rows of sources are that they start with, below the checkpoint."""
    names = (re.sub("[^A-Za-z0-9]+", "_", source.name) for source in sources)
    paths = (f"{_DIRECTORY}/{number:02d}-{name}/rows" for number, name in enumerate(names))
    return dict(zip(sources, paths, strict=True))


def check_plain(checkpoint: str) -> None:
    """Refuse a path with signs of patterns: Spark would not find rows there that it reads as a stream."""
    if no_pattern(checkpoint) != checkpoint:
        raise ArgumentError(
            f"Spark would take the checkpoint's path {checkpoint} for a pattern, and not find the rows in it.",
            hint="Choose a path without the signs [ ] { } * ? and \\.",
            where=user_line(),
        )


def first_rows(plan: PhysicalPlan) -> dict[Source, DataFrame]:
    """Return the bootstraps of a plan as batch frames, for a micro-batch without a checkpoint."""
    found = {}
    for source in plan.bootstrapped:
        bootstrap = bootstrap_of(source)
        _check_keys(bootstrap.frame, source)
        found[source] = _complete(_numbered(bootstrap.frame), source, bootstrap)
    return found


def bootstrap_of(source: Source) -> Bootstrap:
    """Return the rows that a source starts with, which it has."""
    bootstrap = frame_of_source(source).bootstrap
    assert bootstrap is not None  # noqa: S101 - it is bootstrapped
    return bootstrap


def write_rows(spark: SparkSession, path: str, frame: DataFrame) -> None:
    """Write the rows."""
    writer = _numbered(frame).write.mode("overwrite").options(**_WRITING)
    with exact_parquet(spark):
        writer.parquet(path)


def _numbered(frame: DataFrame) -> DataFrame:
    """The rows with their numbers: the task, and the place in it."""
    task = F.shiftright(F.monotonically_increasing_id(), _TASK_BITS)
    row = F.monotonically_increasing_id().bitwiseAND((1 << _TASK_BITS) - 1)
    too_many = (task >= 1 << _MOST_TASK_BITS) | (row >= 1 << _ROW_BITS)
    number = F.shiftleft(task, _ROW_BITS).bitwiseOR(row)
    refused = F.raise_error(F.lit(_TOO_MANY)).cast("bigint")
    return frame.withColumn("__row", F.when(too_many, refused).otherwise(number))


def check_keys(spark: SparkSession, path: str, source: Source, bootstrap: Bootstrap) -> None:
    """Refuse rows that were written if several have one key."""
    _check_keys(spark.read.schema(_schema(bootstrap.frame)).parquet(path), source)


def _check_keys(rows: DataFrame, source: Source) -> None:
    """Refuse several rows with one key: a batch has no order in which one of them is the last.

    The driver compares the keys' hashes, some millions at a time. That takes a quarter of the time of Spark's groups.
    """
    names = list(key_fields(source))
    kinds = [spark_type(one) for one in source.key]
    keys = [f"{normalised(name, kind)} AS {name}" for name, kind in zip(names, kinds, strict=True)]
    there = " AND ".join(f"{name} IS NOT NULL" for name in names)  # `dropna` drops NaN, too
    hashed = rows.where(there).selectExpr(*keys)
    hashed = hashed.select("*", F.xxhash64(*map(_hashable, names, kinds)).alias("__hash"))
    parts = 1 + rows.count() // _HASHES_TOGETHER
    for part in range(parts):
        mine = hashed.where(F.pmod("__hash", F.lit(parts)) == part)
        hashes = pl.Series(mine.select("__hash").toArrow()["__hash"])
        twice = hashes.filter(hashes.is_duplicated()).unique()
        for some in twice.to_frame().iter_slices(_HASHES_AT_ONCE):
            _refuse_several(mine.where(F.col("__hash").isin(some.to_series().to_list())), source)


def _hashable(name: str, kind: T.DataType) -> Column:
    """A column of the key, to be hashed. Spark's hash passes over nulls inside a value, so that is hashed as text."""
    nested = isinstance(kind, T.StructType | T.ArrayType | T.MapType)
    return as_json([F.col(name)]) if nested else F.col(name)


def _refuse_several(rows: DataFrame, source: Source) -> None:
    """Raise if some keys are there several times. Others have only the same hash."""
    grouped = rows.groupBy(*key_fields(source)).agg(F.count(F.lit(1)).alias("__several"))
    several = grouped.where("__several > 1").limit(_DUPLICATES_SHOWN)
    shown = several.select(_as_json(key_fields(source))).collect()
    if shown:
        raise ArgumentError(
            f"bootstrap= has several rows with one key: {', '.join(cut_text(row[0]) for row in shown)}.",
            hint="Keep one row of each key, for instance the newest.",
            operator=source.name,
            where=source.where,
        )


def stream_of(spark: SparkSession, path: str, source: Source, bootstrap: Bootstrap) -> DataFrame:
    """Read the rows as a stream.

    With `fileNameOnly`, files that could not be deleted are not read again in a checkpoint that was moved.
    """
    reader = spark.readStream.schema(_schema(bootstrap.frame))
    rows = reader.option("cleanSource", "delete").option("fileNameOnly", "true").parquet(path)
    return _complete(rows, source, bootstrap)


def _complete(rows: DataFrame, source: Source, bootstrap: Bootstrap) -> DataFrame:
    """The rows with all columns of a source."""
    key = key_fields(source)
    return rows.select(
        "*",
        reduce(or_, [F.col(name).isNull() for name in key]).alias("__null_key"),
        _as_json(key).alias("__key_json"),
        _as_json(key | value_fields(source)).alias("__record"),
        *(F.lit(None).cast(kind).alias(name) for name, kind in bootstrap.absent.items()),
    )


def _as_json(fields: Mapping[str, Field]) -> Column:
    """Columns under the user's names as one JSON object."""
    return as_json([F.col(name).alias(one.name) for name, one in fields.items()])


def _schema(frame: DataFrame) -> T.StructType:
    """The columns in the files."""
    return T.StructType([*frame.schema, T.StructField("__row", T.LongType())])
