"""The operators of captured tables against a plain reference: each rule alone, and random histories."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given

from tablestream.errors import CaptureError
from tests.cdc.database import ADA, COLUMNS, KEY, LARGE, NOTE, PLACEHOLDER, Database, Rows, Values
from tests.cdc.histories import HISTORIES, History, batches
from tests.cdc.operators import Captured
from tests.cdc.recording import Record

ALL = frozenset(LARGE)
BOB: Values = (2, "Bob", None)
Change = tuple[int, Values | None]


def captured(shards: int = 1, **options: Any) -> Captured:
    return Captured(KEY, COLUMNS, shards, **options)


def run(database: Database, table: Captured | None = None) -> list[Change]:
    """Run all records of a topic, one a micro-batch; return the changes."""
    table = table or captured()
    found = []
    for record, _ in database.topic:
        found += [(int(key[0]), _values(row)) for key, row in table.run([record])]
    database.topic.clear()
    return found


def _values(row: Any) -> Values | None:
    return None if row is None else (row[0], row[1], row[2])


def rows(table: Captured) -> Rows:
    return {int(key[0]): (row[0], row[1], row[2]) for key, row in table.rows.items()}


def kept(table: Captured, name: str) -> int:
    """How many rows `MovedRows` has in a trace, in all shards."""
    return sum(shard.kept(name) for shard in table.moved)


class TestEachKey:
    """The first rule table of `CapturedTable`."""

    @pytest.mark.parametrize("transactions", [True, False])
    def test_changes_that_the_connector_repeats_are_dropped_and_counted(self, transactions: bool) -> None:
        database, table = Database(transactions=transactions), captured()
        database.insert(1, ADA)
        database.update(1, n=5)
        database.update(1, n=6)
        run(database, table)
        database.restart(3)
        assert run(database, table) == []
        assert table.dropped["repeated"] == (
            3 if transactions else 2
        )  # others may share the last one's position

    @pytest.mark.parametrize("transactions", [True, False])
    def test_a_tombstone_behind_a_repeated_delete_is_repeated_too(self, *, transactions: bool) -> None:
        """It would delete a row that came back since."""
        database, table = Database(transactions=transactions), captured()
        database.insert(1, ADA)
        database.delete(1)
        database.insert(1, BOB)
        run(database, table)
        database.restart(3)
        assert run(database, table) == []
        assert rows(table) == {1: BOB}

    def test_a_delete_of_no_row_is_nothing(self) -> None:
        database = Database(rows={1: ADA})
        database.delete(1)
        assert run(database) == []

    def test_a_row_as_it_is_is_nothing(self) -> None:
        database = Database()
        database.insert(1, ADA)
        database.update(1)
        assert run(database) == [(1, ADA)]

    def test_columns_that_are_not_known_are_those_before_and_counted_by_column(self) -> None:
        database, table = Database(), captured()
        database.insert(1, ADA)
        database.update(1, NOTE, n=5)
        database.update(1, ALL, n=6)
        assert run(database, table) == [(1, ADA), (1, (5, *ADA[1:])), (1, (6, *ADA[1:]))]
        assert (table.dropped["filled note"], table.dropped["filled bio"]) == (2, 1)

    def test_columns_that_nobody_knows_drop_the_change_and_count_it(self) -> None:
        database, table = Database(rows={1: ADA}), captured()
        database.update(1, NOTE, n=5)
        database.update(1, n=6, note="known")
        assert run(database, table) == [(1, (6, "known", ADA[2]))]
        assert table.dropped["unknown-value"] == 1

    def test_a_row_that_was_deleted_is_not_the_row_before(self) -> None:
        database, table = Database(), captured()
        database.insert(1, ADA)
        database.delete(1)
        database.rows[1] = BOB
        database.update(1, NOTE, n=5)
        assert run(database, table) == [(1, ADA), (1, None)]
        assert table.dropped["unknown-value"] == 1

    def test_a_row_moved_here_has_the_unknown_columns_of_the_row_under_the_old_key(self) -> None:
        database = Database()
        database.insert(1, ADA)
        database.move(1, 2, ALL, n=5)
        assert run(database) == [(1, ADA), (1, None), (2, (5, *ADA[1:]))]


class TestAllKeys:
    """The second rule table of `CapturedTable`."""

    def test_a_truncate_deletes_every_row(self) -> None:
        database, table = Database(), captured(2)
        for key in range(4):
            database.insert(key, ADA)
        database.truncate()
        database.insert(1, BOB)
        run(database, table)
        assert rows(table) == {1: BOB}

    def test_a_truncate_that_is_repeated_keeps_later_rows(self) -> None:
        database, table = Database(), captured()
        database.insert(1, ADA)
        database.truncate()
        database.insert(1, ADA)
        database.insert(2, BOB)
        run(database, table)
        database.restart(3)
        assert run(database, table) == []

    def test_a_truncate_that_is_repeated_keeps_later_rows_of_other_partitions(self) -> None:
        database, table = Database(2), captured()
        database.insert(1, ADA)
        database.truncate()
        database.insert(1, ADA)
        database.insert(3, BOB)
        run(database, table)
        database.restart(3)
        assert run(database, table) == []

    @pytest.mark.parametrize("transactions", [True, False])
    def test_a_change_before_a_truncate_is_a_repetition_behind_it(self, transactions: bool) -> None:
        database, table = Database(transactions=transactions), captured()
        database.insert(1, ADA)
        database.update(1, NOTE, n=5)
        database.truncate()
        run(database, table)
        database.restart(2)
        assert run(database, table) == []
        assert table.dropped["unknown-value"] == 0

    @pytest.mark.parametrize(("truncates", "partitions"), [("fail", 1), ("auto", 2)])
    def test_a_truncate_whose_order_is_not_known_fails(self, truncates: str, partitions: int) -> None:
        database, table = Database(partitions), captured(truncates=truncates)
        database.insert(1, ADA)
        database.insert(2, ADA)
        database.truncate()
        with pytest.raises(CaptureError):
            run(database, table)

    def test_a_truncate_that_is_dropped_leaves_the_rows(self) -> None:
        database, table = Database(2), captured(truncates="drop")
        database.insert(1, ADA)
        database.truncate()
        database.insert(2, BOB)
        run(database, table)
        assert rows(table) == {1: ADA, 2: BOB}

    def test_the_end_of_a_snapshot_deletes_rows_that_it_did_not_name_and_that_are_older(self) -> None:
        database, table = Database(), captured(2)
        for key in range(4):
            database.insert(key, ADA)
        database.commit()
        database.unheard(1, 3)
        database.snapshot()
        run(database, table)
        assert rows(table) == {0: ADA, 2: ADA}

    def test_a_snapshot_after_an_interrupted_one_deletes_its_ghosts(self) -> None:
        database, table = Database(rows={1: ADA, 2: ADA, 3: BOB}), captured()
        database.snapshot(stop_after=2)
        database.unheard(1)
        database.snapshot()
        run(database, table)
        assert rows(table) == {2: ADA, 3: BOB}

    def test_a_row_of_the_first_transaction_is_as_new_as_the_snapshot_before(self) -> None:
        database, table = Database(rows={1: ADA}), captured()
        database.snapshot()
        database.insert(2, BOB)
        run(database, table)
        assert rows(table) == {1: ADA, 2: BOB}
        database.unheard(2)
        database.snapshot()
        run(database, table)
        assert rows(table) == {1: ADA}

    def test_a_repeated_snapshot_changes_nothing(self) -> None:
        database, table = Database(rows={1: ADA, 2: BOB}), captured()
        database.snapshot()
        run(database, table)
        database.snapshot()
        assert run(database, table) == []


class TestMovedRows:
    """The rule table of `MovedRows`; the topic's order is as written, or the insert comes first."""

    def test_a_row_that_was_moved_waits_for_the_one_it_was(self) -> None:
        database, table = Database(2), captured(3)
        database.insert(1, ADA)
        run(database, table)
        database.move(1, 2, ALL, n=5)
        database.update(2, NOTE, n=6)
        deleted, tombstone, inserted, updated = [record for record, _ in database.topic]
        assert table.run([inserted]) == table.run([updated]) == []
        table.restart()
        assert [key for (key,), _ in table.run([deleted])] == [2, 2, 1]
        assert table.run([tombstone]) == []
        assert rows(table) == {2: (6, *ADA[1:])}

    def test_the_row_that_left_waits_for_the_one_that_it_becomes(self) -> None:
        database, table = Database(2), captured(3)
        database.insert(1, ADA)
        database.move(1, 2, ALL, n=5)
        records = [record for record, _ in database.topic]
        table.run(records[:-1])
        table.restart()
        table.run(records[-1:])
        assert rows(table) == {2: (5, *ADA[1:])}

    def test_a_row_that_left_goes_on_waiting_while_others_move(self) -> None:
        database, table = Database(2), captured(1)
        database.insert(1, ADA)
        database.insert(3, BOB)
        run(database, table)
        database.move(1, 2, ALL, n=5)
        first = [record for record, _ in database.topic]
        database.move(3, 5, ALL, n=6)
        second = [record for record, _ in database.topic][len(first) :]
        table.run(first[-3:-1])
        table.run(second)
        assert kept(table, "leaving") == 1
        table.restart()
        table.run(first[-1:])
        assert rows(table) == {2: (5, *ADA[1:]), 5: (6, *BOB[1:])}
        assert kept(table, "leaving") == 0

    def test_a_change_of_a_moved_row_has_the_columns_of_the_filled_row(self) -> None:
        database, table = Database(), captured()
        database.insert(1, ADA)
        database.move(1, 2, NOTE)
        run(database, table)
        database.update(2, ALL, n=7)
        assert run(database, table) == [(2, (7, *ADA[1:]))]

    @pytest.mark.parametrize("transactions", [True, False])
    def test_a_column_that_the_row_under_the_old_key_did_not_know_drops_the_row(
        self, transactions: bool
    ) -> None:
        database, table = Database(rows={1: ADA}, transactions=transactions), captured()
        database.move(1, 2, NOTE)
        assert run(database, table) == []
        assert table.dropped["unknown-value"] == 1

    def test_a_moved_row_whose_old_record_never_comes_waits_or_is_rejected(self) -> None:
        """With the later changes of its key; without `follow_moves` nothing waits."""
        for follows_moves, wanted in ((True, {}), (False, {2: BOB})):
            database, table = Database(2), captured(follows_moves=follows_moves)
            database.insert(1, ADA)
            run(database, table)
            database.move(1, 2, ALL)
            database.update(2, n=BOB[0], note=BOB[1], bio=BOB[2])
            for record, _ in database.topic[2:]:
                table.run([record])
                table.restart()
            assert rows(table) == {1: ADA, **wanted}
            assert table.dropped["unknown-value"] == (0 if follows_moves else 1)

    def test_other_changes_pass_through_in_any_shard(self) -> None:
        database, table = Database(), captured(3)
        for key in range(6):
            database.insert(key, ADA)
        run(database, table)
        assert rows(table) == dict.fromkeys(range(6), ADA)

    @pytest.mark.parametrize("transactions", [True, False])
    def test_nothing_is_left_of_a_move_that_is_complete(self, transactions: bool) -> None:
        database, table = Database(2, transactions=transactions), captured()
        database.insert(1, ADA)
        database.move(1, 2, NOTE)
        run(database, table)
        assert (kept(table, "leaving"), kept(table, "waiting")) == (0, 0)

    @pytest.mark.parametrize("transactions", [True, False])
    def test_a_move_that_is_repeated_does_not_take_part_in_the_next_one(self, transactions: bool) -> None:
        database, table = Database(transactions=transactions), captured()
        database.insert(1, ADA)
        database.commit()
        database.move(1, 2, NOTE)
        run(database, table)
        database.restart(2)
        database.commit()
        database.move(2, 1, NOTE)
        database.commit()
        database.move(1, 2, NOTE, n=9)
        run(database, table)
        assert rows(table) == {2: (9, *ADA[1:])}
        assert table.dropped["unknown-value"] == 0

    @pytest.mark.parametrize("transactions", [True, False])
    def test_a_row_moved_here_twice_from_one_place_does_not_wait_again(self, transactions: bool) -> None:
        database, table = Database(2, transactions=transactions), captured()
        database.insert(1, ADA)
        database.commit()
        database.move(1, 2, NOTE)
        run(database, table)
        database.restart(1)
        database.update(2, n=7)
        run(database, table)
        assert rows(table) == {2: (7, *ADA[1:])}


@given(HISTORIES)
def test_a_table_is_what_the_database_has(history: History) -> None:
    database, order = history.database(), random.Random(history.seed)
    table, done = captured(history.shards), 0
    for batch in batches(history, database, order):
        changes = table.run(batch)
        assert not [row for _, row in changes if row is not None and PLACEHOLDER in row]
        if order.random() < 0.2:
            table.restart()
        done += len(batch)
        if history.partitions == 1:
            assert rows(table) == database.topic[done - 1][1], done
    assert rows(table) == database.rows
    assert table.dropped["unknown-value"] == 0
    assert kept(table, "waiting") == 0


def told(offset: int, op: str, key: int, source: dict[str, Any]) -> Record:
    """A record of the table ``s.t``; a truncate has no row."""
    row = None if op == "t" else {"id": key, "n": offset}
    value = {"op": op, "after": row, "source": {"ts_us": 1_700_000_000_000_000, **source}}
    text = None if op == "t" else json.dumps({"id": key})
    return Record("db.s.t", 0, offset, 1_700_000_000_000, text, json.dumps(value), [])


def postgres(commit: str | None, own: str, snapshot: str = "false") -> dict[str, Any]:
    return {"connector": "postgresql", "sequence": json.dumps([commit, own]), "snapshot": snapshot}


def mysql(place: int, snapshot: str = "false") -> dict[str, Any]:
    return {"connector": "mysql", "file": "binlog.000001", "pos": place, "snapshot": snapshot}


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("end", ["last", "last_in_data_collection"])
def test_a_snapshot_in_the_middle_of_postgresqls_stream_keeps_rows_that_it_does_not_name(
    end: str, size: int
) -> None:
    table = Captured(["id"], "id int, n int")
    records = [
        told(0, "c", 1, postgres("100", "110")),
        told(1, "c", 2, postgres("110", "120")),
        told(2, "r", 1, postgres("300", "310", end)),
        told(3, "u", 2, postgres("310", "320")),
    ]
    for at in range(0, len(records), size):
        table.run(records[at : at + size])
        assert at + size < 2 or table.rows.keys() == {(1,), (2,)}
    assert table.rows == {(1,): (2,), (2,): (3,)}


def test_a_truncate_that_is_repeated_keeps_rows_of_a_snapshot_in_the_middle_of_the_stream() -> None:
    table = Captured(["id"], "id int, n int")
    table.run([told(0, "t", 0, postgres("100", "110"))])
    table.run([told(1, "r", 1, postgres("300", "310", "last"))])
    table.run([told(2, "t", 0, postgres("100", "110"))])
    assert table.rows == {(1,): (1,)}


@pytest.mark.parametrize(("snapshots", "kept"), [("complete", {1}), ("partial", {1, 2})])
@pytest.mark.parametrize(
    ("before", "named"),
    [(mysql(110), mysql(310, "last")), (postgres("100", "110"), postgres(None, "310", "last"))],
)
def test_a_partial_snapshot_keeps_rows_that_it_does_not_name(
    before: dict[str, Any], named: dict[str, Any], snapshots: str, kept: set[int]
) -> None:
    table = Captured(["id"], "id int, n int", snapshots=snapshots)
    table.run([told(0, "c", 1, before), told(1, "c", 2, before), told(2, "r", 1, named)])
    assert {key for (key,) in table.rows} == kept


@pytest.mark.parametrize("size", [1, 2])
def test_a_log_that_was_set_back_is_an_error(size: int) -> None:
    """A snapshot from before known changes: what follows it would all be taken for repeated."""

    def record(offset: int, op: str, sequence: list[str | None], snapshot: str) -> Record:
        source = {"connector": "postgresql", "sequence": json.dumps(sequence), "snapshot": snapshot}
        value = {
            "op": op,
            "after": {"id": 1, "n": offset},
            "source": source | {"ts_us": 1_700_000_000_000_000},
        }
        return Record("db.s.t", 0, offset, 1_700_000_000_000, '{"id": 1}', json.dumps(value), [])

    captured = Captured(["id"], "id int, n int")
    records = [record(0, "c", ["500", "510"], "false"), record(1, "r", [None, "20"], "last")]
    first, *rest = [records[at : at + size] for at in range(0, 2, size)]
    for batch in [first] if rest else []:
        captured.run(batch)
    with pytest.raises(CaptureError, match="was set back"):
        captured.run(rest[0] if rest else first)
    again = Captured(["id"], "id int, n int")
    again.run([record(0, "c", ["500", "510"], "false"), record(1, "r", [None, "600"], "last")])
    assert again.rows == {(1,): (1,)}


def test_null_of_an_insert_is_no_unknown_value() -> None:
    """Only an update leaves out what it did not change."""

    def record(offset: int, op: str) -> Record:
        value = {"op": op, "after": {"id": offset, "note": None, "n": offset}, "source": {}}
        return Record("db.s.t", 0, offset, 0, json.dumps({"id": offset}), json.dumps(value), [])

    table = Captured(["id"], "id int, note string, n int", options={"unchanged": ("note",)})
    table.run([record(1, "r"), record(2, "c"), record(3, "u")])
    assert table.rows == {(1,): (None, 1), (2,): (None, 2)}
    assert table.dropped["unknown-value"] == 1
