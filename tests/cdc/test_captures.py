"""The page of databases shows what the recordings become, as `captures` prints it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cdc.captures import CAPTURES, CUTS, SPARK, cells_of, replayed, row_of_types, through_spark
from tests.cdc.vectors import MODES
from tests.marks import quick_first

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "databases" / "recordings.md"
ROWS = [(capture, transactions) for transactions in (False, True) for capture in CAPTURES]
#: The recordings that are not replayed whole.
OTHER_MODES = {
    ("interrupted_plain3", False): "cut",
    ("flat1", False): "restarted",
    ("interrupted_plain3", True): "restarted",
    ("flat1", True): "cut",
}


def shown() -> list[dict[str, str]]:
    """The rows of the section's tables of recordings, with the names of their columns."""
    section = PAGE.read_text(encoding="utf-8")
    rows: list[dict[str, str]] = []
    head: list[str] = []
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            head = []
        elif not head:
            head = cells
        elif not line.startswith("|---"):
            rows.append(dict(zip(head, cells, strict=True)))
    return [row for row in rows if "recording" in row]


def shown_of(capture: str, *, transactions: bool) -> dict[str, str]:
    """The row of a recording."""
    (row,) = (
        row
        for row in shown()
        if row["recording"] == f"`{capture}`"
        and row.get("whole transactions") == ("yes" if transactions else "no")
    )
    return row


def check(found: dict[str, str], row: dict[str, str]) -> None:
    assert {name: row[name] for name in found} == found


def test_the_page_has_a_row_for_each_recording() -> None:
    names = [row["recording"].strip("`") for row in shown()]
    assert names == [*(capture for capture, _ in ROWS), *MODES]


def test_every_state_that_the_page_compares_is_equal() -> None:
    cells = [cell for row in shown() for name in (*CUTS, SPARK, "values equal") if (cell := row.get(name))]
    assert len(cells) == len(ROWS) * (len(CUTS) + 1) + len(MODES)
    compared = [cell.split(" of ") for cell in cells]
    assert all(one == other for one, other in compared)


@pytest.mark.parametrize(
    ("capture", "transactions", "mode"),
    quick_first(pytest.param(*row, OTHER_MODES.get(row, "whole")) for row in ROWS),
)
def test_a_recording_becomes_what_the_page_says(capture: str, transactions: bool, mode: str) -> None:
    """Each recording in one mode; the page's command runs all of them.

    `test_captured_tables` cuts and restarts each, and `test_whole_transactions` all but the interrupted one.
    """
    outcomes = replayed(capture, transactions=transactions, modes=[mode])
    found = cells_of(capture, outcomes, transactions=transactions)
    check(found, shown_of(capture, transactions=transactions))


@pytest.mark.slow
def test_a_recording_becomes_what_the_page_says_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    """With whole transactions, after every commit; `test_join` has other forms, at quiescent points."""
    outcome = through_spark(spark, tmp_path, "flat3", transactions=True)
    check(cells_of("flat3", {SPARK: outcome}, transactions=True), shown_of("flat3", transactions=True))


@pytest.mark.parametrize("mode", quick_first(MODES, quick=2))
def test_a_recorded_table_of_every_type_is_what_the_page_says(mode: str) -> None:
    (row,) = (row for row in shown() if row["recording"] == f"`{mode}`")
    check(row_of_types(mode), row)
