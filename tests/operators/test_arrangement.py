"""Changes paired with the row before them, by turns."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from tablestream.operators.arrangement import Arrangement, TableRows, Turn
from tablestream.operators.events import ints

#: (key, place, step, whether it is a row); place 0: a row of the state.
Rows = list[tuple[str, int, int, bool]]
LOG: Rows = [("a", 0, 0, True), ("b", 1, 1, True), ("a", 2, 1, False), ("a", 3, 1, True), ("a", 4, 2, True)]


def paired(rows: Rows, turn: Turn, *, minimal: bool = False) -> list[tuple[str, int, int, int | None]]:
    """The key of each delta, the places of its first and last message, and of the row before."""
    frame = pl.DataFrame(rows, ["key", "_seq", "_step", "_live"], orient="row")
    deltas = TableRows(frame, ints(frame["key"].rank("dense"))).deltas(turn, minimal=minimal)
    place = frame["_seq"]
    return [
        (frame["key"][now], place[first], place[now], None if before < 0 else place[before])
        for first, now, before in zip(
            deltas.first.tolist(), deltas.now.tolist(), deltas.before.tolist(), strict=True
        )
    ]


@pytest.mark.parametrize(
    ("turn", "wanted"),
    [
        (Turn.MESSAGE, [("a", 2, 2, 0), ("a", 3, 3, 2), ("a", 4, 4, 3), ("b", 1, 1, None)]),
        (Turn.STEP, [("a", 2, 3, 0), ("a", 4, 4, 3), ("b", 1, 1, None)]),
        (Turn.MICRO_BATCH, [("a", 2, 4, 0), ("b", 1, 1, None)]),
    ],
)
def test_a_turn_is_paired_with_the_row_before_its_first_message(turn: Turn, wanted: object) -> None:
    assert paired(LOG, turn) == wanted


def test_minimal_deltas_have_no_tombstones_for_absent_rows() -> None:
    rows = [("a", 0, 0, True), ("a", 1, 1, False), ("a", 2, 2, False), ("b", 3, 3, False)]
    assert paired(rows, Turn.MESSAGE, minimal=True) == [("a", 1, 1, 0)]
    assert paired(rows, Turn.MICRO_BATCH, minimal=True) == [("a", 1, 1, 0)]
    assert len(paired(rows, Turn.MESSAGE)) == 3


def test_no_messages_make_no_deltas() -> None:
    assert paired([("a", 0, 0, True)], Turn.MICRO_BATCH) == []


def test_the_latest_marked_row_is_of_the_same_key_and_may_be_the_row_itself() -> None:
    keys, place = np.array([1, 0, 1, 0, 1]), np.array([3, 1, 1, 2, 2])
    arranged = Arrangement.of(keys, place)
    assert arranged.row.tolist() == [1, 3, 2, 4, 0]
    assert arranged.before.tolist() == [-1, 1, -1, 2, 4]
    marked = np.array([False, False, False, True, True])[arranged.row]
    assert arranged.by_row(arranged.latest(marked)).tolist() == [4, -1, -1, 3, 4]


def test_rows_at_one_place_keep_their_order() -> None:
    keys = np.array([1, 0, 1])
    assert Arrangement.of(keys, np.zeros(3, dtype=np.int64)).row.tolist() == [1, 0, 2]
    assert Arrangement.of(keys).row.tolist() == [1, 0, 2]
