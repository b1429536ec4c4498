"""Arrow's rows as a batch frame of Spark, which holds them."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from tablestream.spark.types import arrow_type


def frame_of_table(spark: SparkSession, table: pa.Table, schema: T.StructType) -> DataFrame:
    """Return an Arrow table as a batch frame. PySpark cannot convert one without rows that has nested columns."""
    return spark.createDataFrame(table, schema) if table.num_rows else spark.createDataFrame([], schema)


def frame_of(spark: SparkSession, batches: Iterable[pa.RecordBatch], schema: T.StructType) -> DataFrame:
    """Return record batches as a batch frame."""
    kinds = pa.schema([(one.name, arrow_type(one.dataType, one.name)) for one in schema])
    return frame_of_table(spark, pa.Table.from_batches(list(batches), kinds), schema)
