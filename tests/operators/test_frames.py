"""Window functions of rows that are sorted, without a plan around them."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from tablestream.errors import TotalOverflowError
from tablestream.operators.reduce.frames import Frames, Use

LARGEST = 2**63 - 1


def told(function: str, values: list[Any], peers: list[int], *, by_rows: bool = False) -> list[Any]:
    """What the rows of one partition are told; `peers`: a number that peers share."""
    rows = pl.DataFrame({"c0": values}).to_struct("v")
    places = np.arange(len(values))
    frames = Frames(rows, places, places == 0, np.array(peers))
    return Use(function, "c0", by_rows=by_rows, name="total").of(frames).to_list()


def test_a_frame_ends_at_the_last_peer_or_at_the_row() -> None:
    assert told("sum", [1, 2, 3, None], [0, 1, 1, 2]) == [1, 6, 6, 6]
    assert told("sum", [1, 2, 3, None], [0, 1, 1, 2], by_rows=True) == [1, 3, 6, 6]
    assert told("last_value", [1, 2, 3, None], [0, 1, 1, 2]) == [1, 3, 3, None]
    assert told("rank", [1, 2, 3, None], [0, 1, 1, 2]) == [1, 2, 2, 4]
    assert told("dense_rank", [1, 2, 3, None], [0, 1, 1, 2]) == [1, 2, 2, 3]


def test_nulls_do_not_count_and_nan_is_the_greatest() -> None:
    assert told("sum", [None, 1.5], [0, 1]) == [None, 1.5]
    assert told("count", [None, 1.5, None], [0, 1, 2]) == [0, 1, 1]
    assert told("min", [None, 3.0, float("nan"), 2.0], [0, 1, 2, 3]) == [None, 3.0, 3.0, 2.0]
    assert str(told("max", [1.0, float("nan"), 2.0], [0, 1, 2])) == "[1.0, nan, nan]"
    assert told("max", ["a", "\U0001f600", "\uff5e", None], [0, 1, 2, 3])[-1] == "\U0001f600"


def test_a_sum_beyond_64_bits_ends_the_query() -> None:
    assert told("sum", [LARGEST, -LARGEST, LARGEST], [0, 1, 2]) == [LARGEST, 0, LARGEST]
    with pytest.raises(TotalOverflowError, match="column 'total' does not fit bigint"):
        told("sum", [LARGEST, 1], [0, 1])
    assert (
        told("sum", [LARGEST, 1, -2], [0, 0, 0]) == [LARGEST - 1] * 3
    )  # nobody is told the sum of the first two
    with pytest.raises(TotalOverflowError):
        told("sum", [-LARGEST, -LARGEST, -LARGEST], [0, 1, 2])
