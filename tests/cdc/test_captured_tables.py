"""Captured tables without Spark: at every quiescent point they are what the database had, however they are cut."""

from __future__ import annotations

import random

import pytest

from tests.cdc.cutting import cut
from tests.cdc.operators import Captured, captured_row
from tests.cdc.recording import TABLES, points, row_of
from tests.marks import quick_first

CAPTURES = [
    ("plain3", "database"),
    ("interrupted_plain3", "interrupted_database"),
    *((one, "database") for one in ("flat3", "schema3", "plain1", "schema1", "flat1")),
]


@pytest.mark.parametrize(("seed", "recorded"), quick_first(pytest.param(*one) for one in enumerate(CAPTURES)))
@pytest.mark.parametrize("table", TABLES)
def test_a_table_is_what_the_database_had(table: str, recorded: tuple[str, str], seed: int) -> None:
    capture, database = recorded
    key, columns = TABLES[table]
    order = random.Random(seed)
    captured = Captured([key], columns, shards=order.randint(1, 3))
    batches, ends = cut(capture, database, [table], seed)
    wanted = [{row_of(table, row) for row in point.tables[table]} for point in points(database)]
    for number, batch in enumerate(batches, start=1):
        captured.run(batch)
        if order.random() < 0.3:
            captured.restart()
        for end, rows in zip(ends, wanted, strict=True):
            if number == end:
                found = {captured_row(captured, table, key_, value) for key_, value in captured.rows.items()}
                assert found == rows, (number, found - rows, rows - found)
    assert captured.dropped["unknown-value"] == 0
