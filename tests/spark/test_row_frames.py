"""Rows that the driver of Spark holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import types as T

from tablestream.spark.row_frames import CELLS, frame_of_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_computes_the_columns_of_many_rows_in_a_task_and_not_while_it_plans(
    spark: SparkSession,
) -> None:
    schema = T.StructType([T.StructField("a", T.LongType()), T.StructField("b", T.LongType())])
    tasks = {
        rows: "Repartition 1"
        in frame_of_table(spark, pa.table({"a": range(rows), "b": range(rows)}), schema)
        .selectExpr("a + b AS c")
        ._jdf.queryExecution()
        .optimizedPlan()
        .toString()
        for rows in (10, CELLS)
    }
    assert tasks == {10: False, CELLS: True}
