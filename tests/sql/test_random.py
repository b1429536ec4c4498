"""Random queries give what DuckDB gives, after each micro-batch. ``python -m tests.sql.random`` runs many more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.marks import quick_first
from tests.sql.random import EACH, Runner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("seed", quick_first(range(10)))
def test_random_queries_give_what_duckdb_gives(spark: SparkSession, seed: int) -> None:
    runner = Runner(spark)
    runner.run(range(seed * EACH, (seed + 1) * EACH))
    assert not runner.report.failed
    assert runner.report.ran
