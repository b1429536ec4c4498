"""Whole transactions: commit by commit, the join changes as it did in the database."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from itertools import groupby
from typing import Any

import pytest

from tablestream.errors import CaptureError
from tests.cdc.cutting import cut
from tests.cdc.operators import Captured, captured_row
from tests.cdc.recording import TABLES, Record, Row, commits, md5, points, row_of
from tests.cdc.whole import Database
from tests.marks import quick_first

CAPTURES = ("plain3", "plain1", "schema3", "schema1", "flat3", "flat1")


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


@pytest.mark.parametrize(
    ("seed", "capture"),
    quick_first(pytest.param(*one) for one in enumerate(CAPTURES)),
)
def test_the_join_changes_commit_by_commit_up_to_a_quiescent_point(capture: str, seed: int) -> None:
    follow(capture, seed, until=5)


@pytest.mark.exhaustive
def test_the_join_changes_commit_by_commit() -> None:
    follow("flat1", seed=6, until=len(points()))


def follow(capture: str, seed: int, until: int) -> None:
    """Compare the join with the database after each commit before a quiescent point."""
    order = random.Random(seed)
    tables = {f"shop.{name}": Captured([key], columns) for name, (key, columns) in TABLES.items()}
    database = Database(tables, shards=2)
    by_name = {name.removeprefix("shop."): one for name, one in tables.items()}
    wanted = {str(one["xid"]): one for one in commits()}
    batches, ends = cut(capture, "database", list(TABLES), seed, transactions=True)
    before: Counter[Row] = Counter()
    seen = []
    for number, batch in enumerate(batches[: ends[until - 1]]):
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
    touching = {one["commit"] for one in commits() if one["removed"] or one["added"]}
    assert {commit for commit in touching if commit <= seen[-1]} <= set(seen)
    assert before == Counter(row_of("join", row) for row in points()[until - 1].tables["join"])


def rows_of(rows: list[dict[str, Any]]) -> Counter[Row]:
    """Rows as the database tells of them."""
    return Counter(row_of("join", row) for row in rows)


def event(
    offset: int, op: str, key: int | None, n: int | None, tx: str, number: int, *, partition: int = 0
) -> Record:
    """A record of the table ``s.t`` in a transaction."""
    source = {"connector": "postgresql", "snapshot": "false", "sequence": json.dumps([tx, str(offset + 100)])}
    value = {
        "op": op,
        "before": {"id": key, "n": None} if op == "d" else None,
        "after": {"id": key, "n": n} if op in "cu" else None,
        "source": source | {"ts_us": 1_700_000_000_000_000 + offset},
        "transaction": {"id": f"{tx}:1", "total_order": number, "data_collection_order": number},
    }
    text = None if key is None else json.dumps({"id": key})
    return Record("db.s.t", partition, offset, 1_700_000_000_000, text, json.dumps(value), [])


def end(offset: int, tx: str, count: int, table: str = "s.t") -> Record:
    """The end of a transaction."""
    counts = [{"data_collection": table, "event_count": count}]
    value = {"status": "END", "id": f"{tx}:9", "event_count": count, "data_collections": counts}
    return Record(
        "db.transaction", 0, offset, 1_700_000_000_000, json.dumps({"id": tx}), json.dumps(value), []
    )


def tombstone(offset: int, key: int) -> Record:
    """What follows a delete."""
    return Record("db.s.t", 0, offset, 1_700_000_000_000, json.dumps({"id": key}), None, [])


FIRST = [event(0, "c", 1, 1, "10", 1), end(0, "10", 1)]
REPLACED = [
    event(1, "d", 1, None, "11", 1),
    tombstone(2, 1),
    event(3, "c", 1, 2, "11", 2),
    end(1, "11", 2),
]
TRUNCATED = [
    event(1, "c", 2, 2, "11", 1),
    event(2, "t", None, None, "11", 2),
    event(3, "c", 3, 3, "11", 3),
    end(1, "11", 3),
]
#: An event that is repeated must not count twice.
TWICE = [
    event(1, "c", 2, 2, "11", 1),
    event(1, "c", 2, 2, "11", 1),
    event(0, "c", 3, 3, "11", 2, partition=1),
    end(1, "11", 2),
]


@pytest.mark.parametrize("size", [1, 2, 3, 10])
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize(
    ("records", "wanted"),
    [(REPLACED, {1: 2}), (TRUNCATED, {3: 3}), (TWICE, {1: 1, 2: 2, 3: 3})],
    ids=["replaced", "truncated", "twice"],
)
def test_a_transaction_is_one_change(
    records: list[Record], wanted: dict[int, int], shards: int, size: int
) -> None:
    """However it is cut: the table is what it was before, or what it is after the transaction."""
    table = Captured(["id"], "id int, n int", shards=shards)
    database = Database({"s.t": table}, shards=shards)
    states: list[dict[Any, Any]] = [{}]
    for at in range(0, 6, size):
        run = database.run([*FIRST, *records][at : at + size])
        states.extend({key[0]: row[0] for key, row in table.rows.items()} for _ in run)
        database.restart()
    assert [one for one, _ in groupby(states)] in ([{}, {1: 1}, wanted], [{}, wanted])
    assert {key[0]: row[0] for key, row in table.rows.items()} == wanted
    assert table.dropped["unknown-value"] == 0
    assert sum(shard.kept(name) for shard in database.held["s.t"] for name in ("waiting", "blocked")) == 0


def test_a_table_that_ends_do_not_name_is_an_error() -> None:
    database = Database({"s.t": Captured(["id"], "id int, n int")})
    with pytest.raises(CaptureError, match="its end names none of them"):
        list(database.run([event(0, "c", 1, 1, "10", 1), end(0, "10", 1, "public.t")]))


def test_a_change_without_a_transaction_passes_at_once_or_behind_those_of_its_key_that_wait() -> None:
    """Such as a row of a snapshot."""
    table = Captured(["id"], "id int, n int")
    database = Database({"s.t": table})

    def alone(offset: int, key: int, n: int) -> Record:
        record = event(offset, "u", key, n, "12", 1)
        return record._replace(value=json.dumps(json.loads(record.value or "") | {"transaction": None}))

    list(database.run([*FIRST, event(1, "u", 1, 2, "11", 1), alone(2, 1, 3), alone(3, 2, 4)]))
    assert {key[0]: row[0] for key, row in table.rows.items()} == {1: 1, 2: 4}
    database.restart()
    list(database.run([end(1, "11", 1)]))
    assert {key[0]: row[0] for key, row in table.rows.items()} == {1: 3, 2: 4}
