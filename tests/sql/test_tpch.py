"""TPC-H's queries, maintained while all eight tables change, have the rows that DuckDB computes anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.marks import quick_first
from tests.sql import tpch
from tests.sql.world import check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

#: The queries that are not maintained, with what their refusal says.
REFUSED: dict[str, str] = {}
#: Queries that run in one driver, and the seed of random rows for which their results change in most micro-batches.
DRIVERS = (
    (12, ("q1", "q3", "q5", "q6", "q7")),
    (12, ("q4", "q8", "q10", "q12", "q13")),
    (12, ("q9", "q11", "q14", "q16")),
    (12, ("q17", "q18", "q19", "q22")),
    (8, ("q15", "q21")),
    (13, ("q2",)),
    (26, ("q20",)),
)
#: The load, and refreshes of all tables.
MICRO_BATCHES = 6


def test_all_queries_are_there_and_none_is_refused() -> None:
    assert list(tpch.QUERIES) == [f"q{number}" for number in range(1, 23)]
    assert sorted(name for _, names in DRIVERS for name in names) == sorted(tpch.QUERIES)
    assert not REFUSED


@pytest.mark.parametrize("drawn", quick_first(DRIVERS))
def test_queries_give_what_duckdb_gives(spark: SparkSession, drawn: tuple[int, Sequence[str]]) -> None:
    seed, names = drawn
    queries = {name: tpch.QUERIES[name] for name in names}
    check(spark, queries, tpch.changes(seed, MICRO_BATCHES), tpch.TABLES, lively=True)
