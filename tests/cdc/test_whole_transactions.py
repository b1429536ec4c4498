"""Whole transactions: commit by commit, the join changes as it did in the database."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from tests.cdc.cutting import cut
from tests.cdc.operators import Captured, captured_row
from tests.cdc.recording import TABLES, Row, commits, md5, points, row_of
from tests.cdc.whole import Database
from tests.marks import quick_first


def joined(tables: Mapping[str, Captured]) -> Counter[Row]:
    """The join that the recording has."""
    rows = {
        name: {key[0]: captured_row(one, name, key, value) for key, value in one.rows.items()}
        for name, one in tables.items()
    }
    found: Counter[Row] = Counter()
    for position in rows["positions"].values():
        _, client_id, ticker, *_ = position
        of_ticker = rows["tickers"].get(ticker)
        of_client = rows["clients"].get(client_id)
        right = (None,) * 5 if of_ticker is None else (*of_ticker[:4], md5(of_ticker[4]))
        found[(*position, *right, *(of_client or (None,) * 4))] += 1
    return found


def difference(before: Counter[Row], after: Counter[Row]) -> tuple[Counter[Row], Counter[Row]]:
    """The rows that were removed and added."""
    return before - after, after - before


@pytest.mark.parametrize("seed", quick_first(range(4)))
@pytest.mark.parametrize(
    "capture", quick_first(["plain3", "plain1", "schema3", "schema1", "flat3", "flat1"], 2)
)
def test_the_join_changes_commit_by_commit(capture: str, seed: int) -> None:
    order = random.Random(seed)
    tables = {f"shop.{name}": Captured([key], columns) for name, (key, columns) in TABLES.items()}
    database = Database(tables, shards=2)
    by_name = {name.removeprefix("shop."): one for name, one in tables.items()}
    wanted = {str(one["xid"]): one for one in commits()}
    batches, _ = cut(capture, "database", list(TABLES), seed, transactions=True)
    before: Counter[Row] = Counter()
    seen = []
    for number, batch in enumerate(batches):
        for transaction in database.run(batch):
            after = joined(by_name)
            if transaction in wanted:
                seen.append(wanted[transaction]["commit"])
                removed, added = difference(before, after)
                assert removed == rows_of(wanted[transaction]["removed"]), (number, transaction)
                assert added == rows_of(wanted[transaction]["added"]), (number, transaction)
            before = after
        if order.random() < 0.3:
            database.restart()
    assert seen == sorted(seen)
    touching = [one["commit"] for one in commits() if one["removed"] or one["added"]]
    assert set(touching) <= set(seen)
    assert before == Counter(row_of("join", row) for row in points()[-1].tables["join"])


def rows_of(rows: list[dict[str, Any]]) -> Counter[Row]:
    """Rows as the database tells of them."""
    return Counter(row_of("join", row) for row in rows)
