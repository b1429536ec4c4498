"""TPC-H's queries, maintained while all eight tables change, have the rows that DuckDB computes anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.marks import quick_first
from tests.sql import tpch
from tests.sql.world import check

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The queries that are not maintained, with what their refusal says.
REFUSED: dict[str, str] = {}
#: The load, and refreshes of all tables.
MICRO_BATCHES = 10


def test_all_queries_are_there_and_none_is_refused() -> None:
    assert list(tpch.QUERIES) == [f"q{number}" for number in range(1, 23)]
    assert not REFUSED


@pytest.mark.parametrize("name", quick_first(tpch.QUERIES))
def test_a_query_gives_what_duckdb_gives(spark: SparkSession, name: str) -> None:
    check(spark, {name: tpch.QUERIES[name]}, tpch.changes(22, MICRO_BATCHES), tpch.TABLES, nonempty=True)
