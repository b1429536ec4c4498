"""The check of `make demo-cdc` finds what a broken query would emit: each fault is planted, and found."""

from __future__ import annotations

import pytest

from examples.database.states import Change, History, Row, compare, difference, replay, row_of

A, B, C = (row_of((key, None, "SKU-1", 1, None, None, "1.00", "text")) for key in "ABC")
B2, C2 = (row_of((key, None, "SKU-1", 2, None, None, "1.00", "text")) for key in "BC")


def upsert(micro_batch: int, row: Row) -> Change:
    return Change(micro_batch, str(row[0]), row)


def delete(micro_batch: int, key: str) -> Change:
    return Change(micro_batch, key, None)


def history() -> History:
    """A first row; two rows in one commit; a commit that changes nothing; a change and a delete in one commit."""
    made = History({"A": A})
    made.add({"A": A, "B": B, "C": C})
    made.add({"A": A, "B": B, "C": C})
    made.add({"B": B2, "C": C})
    return made


RIGHT = [upsert(0, A), upsert(1, C), upsert(1, B), upsert(2, B2), delete(2, "A")]


def test_the_history_has_what_each_commit_made_of_the_join() -> None:
    assert history().steps == [(1, {"B": B, "C": C}), (3, {"A": None, "B": B2})]
    assert history().commits == 3


def test_changes_that_go_from_commit_to_commit_are_right() -> None:
    found = replay(RIGHT, history())
    assert (found.changes, found.micro_batches, found.states, found.problems) == (4, 2, 2, ())


@pytest.mark.parametrize("repeated", [upsert(1, B), delete(1, "Z")])
def test_a_change_that_leaves_its_row_as_it_is_counts_as_none(repeated: Change) -> None:
    assert replay([*RIGHT[:3], repeated, *RIGHT[3:]], history()).problems == ()


def test_a_snapshot_may_be_shown_in_parts() -> None:
    first = row_of(("A", None, "SKU-1", 1, None, None, None, None))
    assert replay([upsert(0, first), *RIGHT], history()).problems == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            [upsert(0, A), upsert(1, C), upsert(2, B), *RIGHT[3:]],
            "Micro-batch 1 ends in the middle of commit 1",
        ),
        (RIGHT[:4], "Micro-batch 2 ends in the middle of commit 3"),
        (RIGHT[:3], "The changes of the last 1 commits are missing"),
        ([upsert(0, A), upsert(1, B2), *RIGHT[1:]], "a change that commit 1 did not make, after 0 of"),
        ([upsert(0, A), upsert(1, C), upsert(1, B2)], "a change that commit 1 did not make, after 1 of"),
        ([upsert(0, A), *RIGHT[3:], *RIGHT[1:3]], "a change that commit 1 did not make"),
        ([*RIGHT[:3], delete(1, "B"), *RIGHT[3:]], "a change that commit 3 did not make"),
        ([*RIGHT, upsert(2, C2)], "a change that no commit made"),
        ([upsert(0, B)], "never reached"),
        ([], "never reached"),
    ],
    ids=[
        "a commit in two micro-batches",
        "an incomplete commit",
        "a lost commit",
        "a row that came too soon",
        "another value",
        "commits in another order",
        "a state between two commits",
        "one change too many",
        "no first state",
        "nothing",
    ],
)
def test_what_no_commit_explains_is_found(changes: list[Change], said: str) -> None:
    assert said in "\n".join(replay(changes, history()).problems)


def test_states_that_differ_are_told_row_by_row() -> None:
    assert compare({"A": A, "B": B}, {"A": A, "B": B}, "found", "wanted") == ()
    told = compare({"A": A, "B": B}, {"B": B2, "C": C}, "found", "wanted")
    assert told[0].startswith("3 rows differ")
    assert told[1:3] == (f"  found: {A}", "  wanted: None")


def test_a_difference_has_what_came_changed_and_went() -> None:
    assert difference({"A": A, "B": B}, {"B": B2, "C": C}) == {"A": None, "B": B2, "C": C}


def test_a_long_value_is_compared_by_its_hash() -> None:
    assert row_of((1, None, "x" * 9000)) != row_of((1, None, "x" * 8999 + "y"))
    assert row_of((1, None, "x" * 9000)) == ("1", None, row_of(("x" * 9000,))[0])
    assert row_of((1, None)) == ("1", None)
