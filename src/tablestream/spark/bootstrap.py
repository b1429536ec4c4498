"""Keep the rows that tables start with in the checkpoint, and read them once, as streams.

Spark has no union of a batch and a streaming data frame. So the rows are written before the query starts, and read as
a file stream, which has all its files in the first micro-batch:

==============================================  ===========================================================
below the checkpoint
==============================================  ===========================================================
``tablestream-bootstrap/00-<table>/rows``       the rows as Parquet, with their numbers in ``__row``. Spark
                                                deletes the files when the second micro-batch begins
``tablestream-bootstrap/00-<table>/kept``       the meaning of the table. It is written when all rows are
                                                there and were checked; they are never evaluated again
==============================================  ===========================================================
"""

from __future__ import annotations

import json
import re
from functools import reduce
from operator import or_

import polars as pl
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.connectors.files import JSON_OPTIONS, first_line
from tablestream.errors import ArgumentError
from tablestream.planner.physical_plan import PhysicalPlan
from tablestream.spark.bootstrap_frame import Bootstrap
from tablestream.spark.columns import normalised, quoted, spark_type
from tablestream.spark.sources import SourceFrame
from tablestream.topology.nodes import Source

_DIRECTORY = "tablestream-bootstrap"
#: The most rows of a file. A file has one row group, which one task reads: large files would leave cores idle.
_ROWS_OF_A_FILE = 250_000
#: ``__row`` has the writing task above these bits. With its 16 bits it fits into a hop of the order.
_ROW_BITS = 27
#: As `monotonically_increasing_id` has the task.
_TASK_BITS = 33
#: The most hashes of keys that the driver compares at a time: 64 MiB.
_HASHES_TOGETHER = 1 << 23
_DUPLICATES_SHOWN = 3


def kept(spark: SparkSession, checkpoint: str, plan: PhysicalPlan) -> dict[Source, DataFrame]:
    """Write the bootstraps of a plan into its checkpoint, unless they are there, and read them as streams.

    What a driver left that ended while it wrote is written again.

    Raises
    ------
    ArgumentError
        A bootstrap has several rows with one key.
    """
    streams = {}
    for number, source in enumerate(plan.bootstrapped):
        name = re.sub("[^A-Za-z0-9]+", "_", source.name)
        path = f"{checkpoint}/{_DIRECTORY}/{number:02d}-{name}"
        bootstrap = _bootstrap_of(source)
        if _meaning(spark, path) != source.meaning:
            _write(spark, path, source, bootstrap.frame)
        streams[source] = _stream(spark, path, source, bootstrap)
    return streams


def first_rows(plan: PhysicalPlan) -> dict[Source, DataFrame]:
    """Return the bootstraps of a plan as batch frames, for a micro-batch without a checkpoint.

    Raises
    ------
    ArgumentError
        A bootstrap has several rows with one key.
    """
    found = {}
    for source in plan.bootstrapped:
        bootstrap = _bootstrap_of(source)
        _check_keys(bootstrap.frame, source)
        numbered = bootstrap.frame.withColumn("__row", F.monotonically_increasing_id())
        found[source] = _complete(numbered, source, bootstrap)
    return found


def _bootstrap_of(source: Source) -> Bootstrap:
    assert isinstance(source.frame, SourceFrame)  # noqa: S101 - the handles make it
    assert source.frame.bootstrap is not None  # noqa: S101 - it is bootstrapped
    return source.frame.bootstrap


def _meaning(spark: SparkSession, path: str) -> str | None:
    """The meaning of the table whose rows are there as a whole; None if they are not."""
    line = first_line(spark, f"{path}/kept/part-*")
    return None if line is None else str(json.loads(line)["value"])


def _write(spark: SparkSession, path: str, source: Source, frame: DataFrame) -> None:
    """Write the rows, check them, and note that they are there."""
    task = F.shiftright(F.monotonically_increasing_id(), _TASK_BITS)
    row = F.monotonically_increasing_id().bitwiseAND((1 << _ROW_BITS) - 1)
    numbered = frame.withColumn("__row", F.shiftleft(task, _ROW_BITS).bitwiseOR(row))
    numbered.write.mode("overwrite").option("maxRecordsPerFile", _ROWS_OF_A_FILE).parquet(f"{path}/rows")
    _check_keys(spark.read.schema(_schema(frame)).parquet(f"{path}/rows"), source)
    note = spark.createDataFrame([(source.meaning,)], "value string").coalesce(1)
    note.write.mode("overwrite").json(f"{path}/kept")


def _check_keys(rows: DataFrame, source: Source) -> None:
    """Refuse several rows with one key: a batch has no order in which one of them is the last.

    The driver compares the keys' hashes, some millions at a time. That takes a quarter of the time of Spark's groups.
    """
    fields = zip(_key_names(source), source.key, strict=True)
    keys = [normalised(F.col(name), spark_type(one)).alias(one.name) for name, one in fields]
    whole = rows.dropna(how="any", subset=_key_names(source))
    hashed = whole.select(F.xxhash64(*keys).alias("hash"), *keys)
    parts = 1 + rows.count() // _HASHES_TOGETHER
    for part in range(parts):
        mine = hashed.where(F.pmod("hash", F.lit(parts)) == part)
        hashes = pl.Series(mine.select("hash").toArrow()["hash"])
        twice = hashes.filter(hashes.is_duplicated()).unique().head(_DUPLICATES_SHOWN).to_list()
        if twice:
            _refuse_several(mine.where(F.col("hash").isin(twice)).drop("hash"), source)


def _refuse_several(rows: DataFrame, source: Source) -> None:
    """Raise if some keys are there several times. Others have only the same hash."""
    several = rows.groupBy(*rows.columns).count().where("count > 1").drop("count")
    shown = several.select(_as_json(list(map(quoted, several.columns)))).collect()
    if shown:
        raise ArgumentError(
            f"bootstrap= has several rows with one key: {', '.join(row[0] for row in shown)}.",
            hint="Keep one row of each key, for instance the newest.",
            operator=source.name,
            where=source.where,
        )


def _stream(spark: SparkSession, path: str, source: Source, bootstrap: Bootstrap) -> DataFrame:
    """Read the rows as a stream.

    With `fileNameOnly`, files that could not be deleted are not read again in a checkpoint that was moved.
    """
    reader = spark.readStream.schema(_schema(bootstrap.frame))
    rows = reader.option("cleanSource", "delete").option("fileNameOnly", "true").parquet(f"{path}/rows")
    return _complete(rows, source, bootstrap)


def _complete(rows: DataFrame, source: Source, bootstrap: Bootstrap) -> DataFrame:
    """The rows with all columns of a source."""
    value = [F.col(f"__value_{number}").alias(one.name) for number, one in enumerate(source.value)]
    return rows.select(
        "*",
        reduce(or_, [F.col(name).isNull() for name in _key_names(source)]).alias("__null_key"),
        _as_json(_keys(source)).alias("__key_json"),
        _as_json([*_keys(source), *value]).alias("__record"),
        *(F.lit(None).cast(kind).alias(name) for name, kind in bootstrap.nulls.items()),
    )


def _keys(source: Source) -> list[Column]:
    """The key, under the user's names."""
    return [F.col(name).alias(one.name) for name, one in zip(_key_names(source), source.key, strict=True)]


def _key_names(source: Source) -> list[str]:
    return [f"__key_{number}" for number in range(len(source.key))]


def _as_json(columns: list[Column]) -> Column:
    return F.to_json(F.struct(*columns), JSON_OPTIONS)


def _schema(frame: DataFrame) -> T.StructType:
    """The columns in the files."""
    return T.StructType([*frame.schema, T.StructField("__row", T.LongType())])
