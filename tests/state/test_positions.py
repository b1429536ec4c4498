"""Rows in order: few and many, near each other and over all integers."""

import numpy as np
import pytest

from tablestream.state.positions import stable_order

_LEAST, _GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@pytest.mark.parametrize("rows", [0, 1, 999, 1_000, 5_000, 200_001])
@pytest.mark.parametrize(
    ("low", "high"),
    [(7, 7), (-9, 9), (-40_000, 40_000), (-(1 << 31), 1 << 31), (-(1 << 40), 1 << 40), (_LEAST, _GREATEST)],
)
def test_values_are_sorted_and_equal_ones_keep_their_order(rows: int, low: int, high: int) -> None:
    drawn = np.random.default_rng(rows).integers(low, high, rows, endpoint=True)
    values = np.where(
        np.arange(rows) % 3 == 0, np.resize(drawn[::7], rows), drawn
    )  # many appear several times
    values[:2] = [low, high][:rows]
    assert stable_order(values).tolist() == sorted(range(rows), key=values.tolist().__getitem__)
