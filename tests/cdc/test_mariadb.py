"""Topics of a MariaDB under load become what the database had: each table when it was quiet, the join at each commit.

`scripts.record_mariadb` recorded them: three connections, killed workers, a column that was added in mid-stream.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.cdc.cutting import cut
from tests.cdc.operators import Captured, captured_row
from tests.cdc.recording import TABLES, Row, commits, points, records, row_of
from tests.cdc.test_whole_transactions import difference, joined, rows_of
from tests.cdc.whole import Database
from tests.marks import quick_first

CAPTURES = ("mariadb_plain3", "mariadb_schema1", "mariadb_flat3")
DATABASE = "mariadb_database"
#: ``tags`` is a SET, which is text.
COLUMNS = {name: (key, columns.replace("array<string>", "string")) for name, (key, columns) in TABLES.items()}
#: How often a recording is cut between two quiescent points, and whether operators go on from their state.
CUTS = {"whole": (0, False), "cut": (4, False), "restarted": (4, True)}


def each(*modes: str) -> pytest.MarkDecorator:
    """Each recording in one mode. They are of one load, and differ in what the decoder reads."""
    return pytest.mark.parametrize(
        ("capture", "mode"), quick_first(pytest.param(*one) for one in zip(CAPTURES, modes, strict=True))
    )


def captured() -> dict[str, Captured]:
    return {name: Captured([key], columns) for name, (key, columns) in COLUMNS.items()}


@each("restarted", "cut", "whole")
def test_each_table_is_what_mariadb_had_whenever_it_was_quiet(capture: str, mode: str) -> None:
    most, restarts = CUTS[mode]
    tables = captured()
    batches, ends = cut(capture, DATABASE, list(TABLES), seed=16, most=most)
    for number, batch in enumerate(batches, 1):
        for name, table in tables.items():
            table.run([one for one in batch if one.topic.endswith(f".shop.{name}")])
            if restarts:
                table.restart()
        for point in (one for one, end in zip(points(DATABASE), ends, strict=True) if end == number):
            for name, table in tables.items():
                rows = {captured_row(table, name, key, value) for key, value in table.rows.items()}
                assert rows == {row_of(name, row) for row in point.tables[name]}, (point.after_commit, name)
    counted = sum((one.dropped for one in tables.values()), Counter())
    assert counted["unknown-value"] == 0
    assert counted["repeated"] > 0


@pytest.mark.slow
@each("cut", "whole", "restarted")
def test_the_join_changes_commit_by_commit_as_in_mariadb(capture: str, mode: str) -> None:
    most, restarts = CUTS[mode]
    tables = {f"shop.{name}": one for name, one in captured().items()}
    by_name = {name.removeprefix("shop."): one for name, one in tables.items()}
    database = Database(tables)
    state: Counter[Row] = Counter()
    steps: list[tuple[str | None, Any]] = []
    for batch in cut(capture, DATABASE, list(TABLES), seed=16, transactions=True, most=most)[0]:
        for transaction in database.run(batch):
            after = joined(by_name)
            if transaction is not None and after != state:
                steps.append((transaction, difference(state, after)))
            state = after
        if restarts:
            database.restart()
    changing = [one for one in commits(DATABASE) if one["removed"] or one["added"]]
    assert steps == [(one["xid"], (rows_of(one["removed"]), rows_of(one["added"]))) for one in changing]
    assert state == Counter(row_of("join", row) for row in points(DATABASE)[-1].tables["join"])


@pytest.mark.parametrize("capture", CAPTURES)
def test_the_workers_that_were_killed_wrote_transactions_again(capture: str) -> None:
    """So the recording shows that repeats change nothing."""
    ends = Counter(one.key for one in records(capture) if one.topic.endswith(".transaction"))
    assert max(ends.values()) > 2


def last(name: str, columns: str) -> dict[int, Row]:
    """A table after its topic of JSON without schemas."""
    table = Captured(["id"], columns)
    table.run([one for one in records("mariadb_plain3") if one.topic.endswith(f".shop.{name}")])
    return {key[0]: row for key, row in table.rows.items()}


def held(name: str) -> dict[int, Row]:
    """The same table, as the database had it in the end."""
    return {row["id"]: tuple(row.values())[1:] for row in points(DATABASE)[-1].tables[name]}


def test_what_a_cascade_changes_is_not_in_the_topics() -> None:
    """InnoDB does not write it to the binary log, so the children of a deleted row stay."""
    assert [held("children"), last("children", "id int, parent int")] == [{2: (2,)}, {1: (1,), 2: (2,)}]


def test_a_uuid_of_mariadb_is_its_text() -> None:
    assert last("others", "id int, u string") == held("others")
    assert held("others")[1] == ("123e4567-e89b-12d3-a456-426655440000",)
