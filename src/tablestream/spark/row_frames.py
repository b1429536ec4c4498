"""Arrow's rows as a batch frame of Spark, which holds them."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from tablestream.base.type_parts import within
from tablestream.connectors.spark_types import arrow_schema

#: Rows times fields from which a task costs less than what Spark does without one. Small plans took a tenth longer with
#: it, nine joined queries in one driver 12 s of a processor per micro-batch without it and 4 s with it.
CELLS = 5_000


def frame_of_table(spark: SparkSession, table: pa.Table, schema: T.StructType) -> DataFrame:
    """Return an Arrow table as a batch frame. PySpark cannot convert one without rows that has nested columns.

    Spark computes the columns of a frame of given rows while it plans, one step after the other, and its time grows
    with the square of the columns. It waits for a task if there is a step that it cannot compute so.
    """
    frame = spark.createDataFrame(table, schema) if table.num_rows else spark.createDataFrame([], schema)
    cells = table.num_rows * sum(1 for _ in within(schema))
    return frame.coalesce(1) if cells > CELLS else frame


def frame_of(spark: SparkSession, batches: Iterable[pa.RecordBatch], schema: T.StructType) -> DataFrame:
    """Return record batches as a batch frame."""
    return frame_of_table(spark, pa.Table.from_batches(list(batches), arrow_schema(schema)), schema)
