"""Delta tables as streams of rows, as Delta's own source in Spark reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tablestream.connectors.delta.by_spark import SETTINGS, lacking
from tablestream.errors import SessionSettingError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from tablestream.connectors.source import Option


def appended_rows(
    spark: SparkSession, path: str, *, options: Mapping[str, Option] | None = None
) -> DataFrame:
    """Read the rows that are appended to a Delta table."""
    if lacking(spark):
        settings = " ".join(f"--conf {name}={value}" for name, value in SETTINGS.items())
        raise SessionSettingError(
            f"The session lacks Delta Lake, which reads {path}.",
            hint=f"Start Spark with --packages io.delta:delta-spark_<Spark's version>_2.13:<version> {settings}",
        )
    return spark.readStream.format("delta").options(**(options or {})).load(path)


def change_feed(spark: SparkSession, path: str, *, options: Mapping[str, Option] | None = None) -> DataFrame:
    """Read the change feed of a Delta table; raises as `appended_rows`."""
    return appended_rows(spark, path, options={"readChangeFeed": True, **(options or {})})
