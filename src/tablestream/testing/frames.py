"""Streaming frames that only declare their columns, for topologies that a driver runs."""

from __future__ import annotations

import tempfile
from functools import cache
from typing import Literal, get_args

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tablestream.arguments.words import check_known
from tablestream.connectors.kafka.source import KAFKA, kafka_origin
from tablestream.connectors.source import with_origin
from tablestream.errors import ArgumentError

Like = Literal["files", "kafka"]
#: What `from_kafka` knows of a record.
_OF_KAFKA = (
    "struct<topic: string, partition: int, offset: bigint, timestamp: timestamp,"
    " headers: array<struct<key: string, value: binary>>, tombstone: boolean, undecodable: string>"
)


def frame(spark: SparkSession, schema: T.StructType | str, *, like: Like = "files") -> DataFrame:
    """Return a streaming DataFrame without records, in place of a source that a test does not have.

    Parameters
    ----------
    spark
        The session.
    schema
        The columns, as a DDL string or a struct.
    like
        ``"files"``: as a frame of `from_files`. ``"kafka"``: as one of `from_kafka`, with the columns of key and value;
        its records have a time of their own, and null values are tombstones.

    Returns
    -------
    DataFrame
        For `table`, `global_table` and `stream`. A `Driver` gives it records.

    Raises
    ------
    ArgumentError
        The schema cannot be parsed, or `like` is unknown.

    Examples
    --------
    >>> import tablestream as ts
    >>> frame = ts.testing.frame(spark, "ticker string, price double")
    >>> ts.table(frame, "ticker", name="tickers")
    Table 'tickers' [key ticker: string] [price: double]
    """
    check_known("like", like, get_args(Like))
    try:
        declared = spark.readStream.schema(schema).format("parquet").load(_nothing().name)
    except PySparkException as error:
        raise ArgumentError(
            f"The schema {schema!r} cannot be parsed.", hint="Write it as in 'ticker string, price double'."
        ) from error
    if like == "files":
        return declared
    kafka = declared.withColumn(KAFKA, F.lit(None).cast(_OF_KAFKA))
    return with_origin(kafka, KAFKA, kafka_origin("drop"))


@cache
def _nothing() -> tempfile.TemporaryDirectory[str]:
    """A directory without files, which Spark wants to exist. It is removed with the process."""
    return tempfile.TemporaryDirectory(prefix="tablestream-nothing-")
