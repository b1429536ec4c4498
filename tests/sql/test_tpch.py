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
#: Of random rows for which a query has a result in most micro-batches.
SEEDS = {"q2": 13, "q5": 11, "q7": 4, "q8": 10, "q11": 4, "q20": 3, "q21": 23, "q22": 7}
#: The load, and refreshes of all tables.
MICRO_BATCHES = 10


def test_all_queries_are_there_and_none_is_refused() -> None:
    assert list(tpch.QUERIES) == [f"q{number}" for number in range(1, 23)]
    assert not REFUSED


@pytest.mark.parametrize("name", quick_first(tpch.QUERIES))
def test_a_query_gives_what_duckdb_gives(spark: SparkSession, name: str) -> None:
    changes = tpch.changes(SEEDS.get(name, 1), MICRO_BATCHES)
    check(spark, {name: tpch.QUERIES[name]}, changes, tpch.TABLES, nonempty=True)
