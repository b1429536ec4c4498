"""What the tests of faults compare with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.comparing import MICRO_BATCHES, TABLES, changes
from tests.faults.victim import work_off, write_logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def undisturbed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Run the query that nothing happens to; its changes by output."""
    directory = tmp_path_factory.mktemp("undisturbed")
    write_logs(directory, MICRO_BATCHES)
    work_off(spark, directory)
    found = {table: changes(directory, table) for table in TABLES}
    assert {one["_order"]["micro_batch"] for one in found["sold"]} == set(range(MICRO_BATCHES))
    return found
