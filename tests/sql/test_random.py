"""Random queries give what DuckDB gives, after each micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import tablestream as ts
from tests.marks import quick_first
from tests.sql.random_queries import random_query
from tests.sql.world import World, changes, check

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EACH = 6


@pytest.mark.parametrize("seed", quick_first(range(10)))
def test_random_queries_give_what_duckdb_gives(spark: SparkSession, seed: int) -> None:
    found = {f"q{number}": random_query(seed * EACH + number) for number in range(EACH)}
    tables = World(spark).tables()
    accepted = {name: query for name, query in found.items() if is_accepted(query, tables)}
    check(spark, accepted, changes(seed, 2))


def is_accepted(query: str, tables: dict[str, ts.Table]) -> bool:
    """Whether a query is maintained: a refusal is right as well, and other errors are not."""
    try:
        ts.sql(query, **tables)
    except ts.errors.SqlRefusedError:
        return False
    return True
