"""Random queries give what DuckDB gives, after each micro-batch. ``python -m tests.sql.random`` runs many more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sql.random import EACH, Runner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_random_queries_give_what_duckdb_gives(spark: SparkSession) -> None:
    runner = Runner(spark)
    runner.run(0, EACH)
    assert not runner.report.failed
    assert runner.report.ran
